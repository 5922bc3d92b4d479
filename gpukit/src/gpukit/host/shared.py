"""What the checkout of a job shares with its project: outputs/ and data/.

Which folders of an adopted repository have data and results is not known. What git ignores there is not code, so it is
shared, by links: a job reads and writes it where it would without the queue.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
from pathlib import Path

from gpukit.host.git import ignored, names, would_ignore
from gpukit.project.location import ADOPTED, is_adopted, located

SHARED = ("outputs", "data")
PROJECT = "/mnt/gpukit-project"  # the repository in containers: not in the checkout, which a job may remove
CACHES = ("__pycache__", "*.pyc", ".pytest_cache", ".ruff_cache", "*.egg-info")


def mounts(root: Path, target: str) -> dict[str, Path]:
    """What a container has besides a checkout at `target`, by its path there."""
    return {PROJECT: root} if is_adopted(root) else {f"{target}/{name}": root / name for name in SHARED}


def is_linked(root: Path, folder: Path) -> bool:
    """Whether the links in a checkout are for this machine, and not for a container."""
    first = folder / (ADOPTED["outputs"] if is_adopted(root) else SHARED[0])
    return first.is_symlink() and not str(first.readlink()).startswith(PROJECT)


def beside(folder: Path) -> Path:
    """What is known of a checkout, where its job does not write: HEAD, index, exclude, and linked, the links' paths."""
    return folder.with_name(f"{folder.name}.code")


def link(root: Path, folder: Path, here: bool) -> list[str]:
    """Link what git ignores in an adopted repository into a checkout, ignored folders as a whole; their paths.

    `here`: for this machine; otherwise for a container.
    """
    located("outputs", root).mkdir(exist_ok=True)
    linked = []
    for path in [*ignored(root), ADOPTED["outputs"], ".env"]:
        name = path.rpartition("/")[2]
        ours = path.startswith(f"{ADOPTED['.launch']}/") and path != ADOPTED["outputs"]
        if ours or any(fnmatch.fnmatchcase(name, each) for each in CACHES) or not os.path.lexists(root / path):
            continue
        place = folder / path
        with contextlib.suppress(FileExistsError, NotADirectoryError):  # the code has it, from before it was ignored
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(os.path.relpath(root / path, place.parent) if here else f"{PROJECT}/{path}")
            linked.append(path)
    with (folder / ".git/info/exclude").open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{pattern(path)}\n" for path in linked)
    return linked


def pattern(path: str) -> str:
    """The line of a .gitignore for one path."""
    return "/" + re.sub(r"([\\*?[ ])", r"\\\1", path)


def replaced(folder: Path) -> list[str]:
    """The links in whose place a job has put a file or folder: `os.replace` does."""
    file = beside(folder) / "linked"
    linked = names(file.read_text(encoding="utf-8", errors="surrogateescape")) if file.is_file() else []
    return [path for path in linked if os.path.lexists(folder / path) and not (folder / path).is_symlink()]


def home(root: Path, folder: Path, left: list[str]) -> set[str]:
    """What a job has written that git ignores: it belongs where it would be without the queue.

    Without new files if there is another one of their names by now: the results of two jobs must not be mixed.
    """
    over = {*replaced(folder)}
    new = would_ignore(root, [path for path in left if path not in over])
    new = set() if any(os.path.lexists(root / path) for path in new) else new
    return new | {path for path in over if (folder / path).is_file() and not (root / path).is_dir()}
