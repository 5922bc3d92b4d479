"""The project's location."""

from __future__ import annotations

import os
import re
from pathlib import Path

VARIABLE = "GPUKIT_PROJECT"  # set by ./launch, the image, and the native environment


def project_of(folder: Path) -> Path:
    """The project of a job's checkout (host/frozen.py); any other folder is a project's own."""
    match = re.fullmatch(r"(.+)/\.launch/(?:jobs|slurm)/[^/]+", str(folder))
    return Path(match[1]) if match else folder


def find_root() -> Path | None:
    """The project's folder: $GPUKIT_PROJECT, otherwise the first one upward with stack.json and .devcontainer/."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "stack.json").is_file() and (folder / ".devcontainer").is_dir():
            return folder
    return None


def root() -> Path:
    """The same; the current directory outside a project."""
    return find_root() or Path.cwd()
