"""Which files the packages of a project depend on: apart from what reads them, which most commands do not need."""

from __future__ import annotations

from pathlib import Path

from gpukit.project.location import EXTRA, is_adopted


def dependency_files(root: Path) -> list[str]:
    """All files on which the packages depend, relative to the project's folder."""
    if not is_adopted(root):
        return ["pyproject.toml", "requirements.txt"]
    from gpukit.project import dependencies  # imported here because it is slow

    return [EXTRA, *dict.fromkeys(source.partition("#")[0] for source in dependencies.sources(root))]
