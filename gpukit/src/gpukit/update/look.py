"""What an update would do, found on a copy of the project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpukit.update.summary import Summary
from gpukit.update.template import Template


@dataclass
class Look:
    template: Template
    commit: str  # the template's, to which the project is updated
    name: str  # the same as Copier stores it
    old: str  # the template's commit that the project has
    old_name: str
    copy: Path
    valid: bool  # whether the hook found the result complete and consistent
    summary: Summary
    conflicts: list[str]  # entries of the index
