"""What a script writes besides its run: seen before it is written, so that it can be put back.

    watch(folder)              # in the process of the script
    put_back(folder)           # afterwards, in the process that started it

Seen are the files that Python opens, renames, or removes, and those of `torch.save`; not those of a library in another
language, or of a program that the script starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

JOURNAL = "written"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LARGE = 2 << 30  # bytes of a file that is not copied
PATHS = {"os.rename": 2, "os.remove": 1, "os.truncate": 1, "os.mkdir": 1, "shutil.rmtree": 1}  # events, and their paths
PATHS |= {"sqlite3.connect": 1, "os.link": 2, "os.symlink": 2}
BY_FOLDER = ("os.remove", "os.mkdir", "shutil.rmtree")  # whose last value is a folder's number; -1: none
NEVER = ("/dev/", "/proc/", "/sys/")
CACHES = ("__pycache__", "torchinductor_")  # of Python and torch.compile, which later lives may use
_watch: _Watch | None = None


def watch(folder: Path, *apart: str | Path) -> None:
    """From now on, note in `folder` what this process and its workers write, except below the folders `apart`."""
    global _watch
    _watch = _Watch(folder, apart)
    sys.addaudithook(_watch)
    save = torch.save

    def announced(obj: Any, f: Any, *args: Any, **options: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):  # it may be written without Python
            _watch("open", (f, "wb", WRITES))
        return save(obj, f, *args, **options)

    torch.save = announced


def begin() -> None:
    """Training begins: what is new from now on is a result."""
    if _watch is not None:
        _watch.begun = True


class _Watch:
    def __init__(self, folder: Path, apart: Sequence[str | Path]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.apart = (*(os.path.realpath(one) + os.sep for one in apart), *NEVER)
        self.begun = False
        self.known = set[Path]()
        self.busy = threading.local()

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(given[0], int) or not given[2] & WRITES:
                return
        elif event not in PATHS or (event in BY_FOLDER and given[-1] != -1):
            return
        if getattr(self.busy, "now", False):
            return
        self.busy.now = True
        try:
            for path in given[: PATHS.get(event, 1)]:
                self.note(event, path)
        finally:
            self.busy.now = False

    def note(self, event: str, path: Any) -> None:
        try:
            given = Path(os.fsdecode(path)).absolute()
        except TypeError:
            return
        real = given.parent.resolve() / given.name
        there = os.path.lexists(real)
        cached = any(part.startswith(CACHES) for part in real.parts)
        if real in self.known or cached or str(real).startswith(self.apart):
            return
        if event == "os.mkdir" and there:
            return
        self.known.add(real)
        backup = self.folder / f"{os.getpid()}-{len(self.known)}" if there else None
        if backup and real.is_dir():
            shutil.copytree(real, backup, symlinks=True)
        elif backup and real.is_file():
            if (size := real.stat().st_size) > LARGE:
                raise RuntimeError(f"A rehearsal does not write to {real}, which has {size >> 30} GB: move it away.")
            shutil.copy2(real, backup)
        entry = {"path": str(real), "backup": backup and str(backup), "result": self.begun}
        with (self.folder / JOURNAL).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


class Written:
    """The files that the lives of a script have written, and how each was before."""

    def __init__(self) -> None:
        self.before: dict[str, bool] = {}  # whether it was there before the rehearsal
        self.lives: dict[str, int] = {}  # how many wrote it

    def put_back(self, folder: Path) -> None:
        """After a life: what was there before is as it was; what is new, and not from before training began, goes, as
        do new folders that are empty."""
        entries: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / JOURNAL).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):
                    one = json.loads(line)
                    entries.setdefault(one["path"], one)
        for path, one in reversed(entries.items()):
            if one["backup"] is None and not os.path.lexists(path):  # a temporary one
                continue
            place = Path(path)
            if one["backup"] is None and place.is_dir() and not any(place.iterdir()):
                place.rmdir()
                continue
            self.before.setdefault(path, one["backup"] is not None)
            self.lives[path] = self.lives.get(path, 0) + 1
            if one["backup"]:
                with contextlib.suppress(OSError):
                    _copy(Path(one["backup"]), place)
            elif one["result"]:
                _remove(place)
        shutil.rmtree(folder, ignore_errors=True)

    def finish(self) -> None:
        """At the end: what each life wrote again is a result, and goes; data that the first one brought stay."""
        for path, before in reversed(self.before.items()):
            if not before and self.lives[path] > 1:
                _remove(Path(path))

    def names(self) -> list[str]:
        """What was written, shortly; those that are still there are marked."""
        here = Path.cwd()
        found = []
        for path, before in self.before.items():
            shown = Path(path)
            shown = shown.relative_to(here) if shown.is_relative_to(here) else shown
            if not Path(path).is_dir() or before:
                found.append(f"{shown} (left there)" if not before and Path(path).exists() else str(shown))
        return sorted(found)


def _copy(backup: Path, path: Path) -> None:
    if backup.is_dir():
        shutil.copytree(backup, path, symlinks=True, dirs_exist_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(backup, path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
