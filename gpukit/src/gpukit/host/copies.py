"""The code of jobs on a machine without git: copies of the files that `./launch --host` sent to it.

A copy is in .launch/jobs/copies, and its name follows from its files. Compare host/frozen.py, which uses git.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLACE = "copies"  # in .launch/jobs
SENT = ".launch/sent.json"  # what was sent, by remote/there.py, which imports nothing of ours


def sent(root: Path) -> list[str]:
    """The files that were sent and are there; empty if this folder is not one that is sent to."""
    try:
        names = json.loads((root / SENT).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError):
        return []
    return [name for name in sorted(names) if (root / name).is_symlink() or (root / name).is_file()]


def make(root: Path, place: Path, names: list[str]) -> str:
    """Copy these files, unless there is a copy of the same already; its name."""
    digest = hashlib.blake2b(digest_size=20)
    with tempfile.TemporaryDirectory(prefix="freeze-", dir=place) as draft:
        files = Path(draft, "files")
        files.mkdir()
        for name in names:
            target = files / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target, follow_symlinks=False)
            kind, contents = content(target)
            digest.update(f"{name}\0{kind}\0{len(contents)}\0".encode(errors="surrogateescape") + contents)
        copy = place / PLACE / digest.hexdigest()
        copy.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):  # it exists, not empty
            files.rename(copy)
    return copy.name


def content(path: Path) -> tuple[str, bytes]:
    """A file's kind, and its bytes or its target; of one that does not exist, nothing."""
    if not os.path.lexists(path):
        return "", b""
    if path.is_symlink():
        return "link", os.fsencode(path.readlink())
    return "program" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes()


def find(place: Path, code: str) -> Path | None:
    """The copy with this name, if there is one."""
    copy = place / PLACE / code
    return copy if re.fullmatch("[0-9a-f]{40}", code) and copy.is_dir() else None


def files(folder: Path, ignored: tuple[str, ...] = ()) -> Iterator[str]:
    """The files in a folder, without what these patterns of a .gitignore name."""
    for where, folders, names in os.walk(folder):
        inside = os.path.relpath(where, folder)
        for name in [*folders, *names]:
            path = os.path.normpath(f"{inside}/{name}")
            if any(fnmatch.fnmatch(f"/{path}" if each[0] == "/" else name, each.rstrip("/")) for each in ignored):
                folders[:] = [other for other in folders if other != name]
            elif name not in folders or Path(where, name).is_symlink():
                yield path


def look(path: Path) -> list[int]:
    """What changes when a file does; a copy has that of its original."""
    try:
        found = path.lstat()
    except OSError:
        return []
    return [found.st_mode, found.st_size, found.st_mtime_ns]


def written(copy: Path, folder: Path, ignored: tuple[str, ...]) -> list[str]:
    """The files of a checkout that are new, or not as in its copy."""
    return [name for name in files(folder, ignored) if look(copy / name) != look(folder / name)]


def forget(place: Path, kept: set[str]) -> None:
    for copy in (place / PLACE).glob("*"):
        if copy.name not in kept:
            gone = place / f"{copy.name}.gone"  # at once: a part of it would be another job's code
            copy.rename(gone)
            shutil.rmtree(gone)


def changes(first: Path, second: Path) -> list[dict[str, Any]]:
    """The files in which the second copy differs from the first one, with the number of lines added and removed."""
    found = []
    for path in sorted({*files(first), *files(second)}):
        if look(first / path) == look(second / path):
            continue
        before = content(first / path)
        after = content(second / path)
        if before == after:
            continue
        facts: dict[str, Any] = {"path": path, "added": None, "removed": None}
        if b"\0" not in before[1] + after[1]:
            lines = [text.decode(errors="replace").splitlines() for _, text in (before, after)]
            signs = [line[0] for line in [*difflib.unified_diff(*lines, n=0)][2:]]  # after the two names
            facts.update(added=signs.count("+"), removed=signs.count("-"))
        found.append(facts)
    return found
