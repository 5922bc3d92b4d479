"""The user, and the folders that this user reads and writes."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from gpukit.project.location import root
from gpukit.project.stack import Stack
from gpukit.verify.probes.seen import Place, User

GIGABYTE = 1 << 30
# Folders that libraries fill; all of them are optional except the first.
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "UV_CACHE_DIR")


class Folders:
    environment: Mapping[str, str]
    _stack: Stack

    @cached_property
    def user(self) -> User:
        try:
            name: str | None = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = None
        written = None
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix=".gpukit-", dir=root()) as folder:
            written = Path(folder).stat().st_uid
        return User(os.getuid(), name, str(root()), root().stat().st_uid, written)

    @cached_property
    def mounts(self) -> tuple[Place, ...]:
        return tuple(self._place(path, writing=True) for path in self._stack.mounts)

    @cached_property
    def read_only(self) -> tuple[Place, ...]:
        return tuple(self._place(path, writing=False) for path in self._stack.read_only)

    @cached_property
    def caches(self) -> tuple[Place, ...]:
        home = self.environment.get("HOME") or "/"
        paths = [str(Path(home, ".cache")), *(self.environment[name] for name in CACHES if self.environment.get(name))]
        return tuple(self._place(path, writing=True) for path in dict.fromkeys(paths))

    @cached_property
    def temporary(self) -> tuple[Place, ...]:
        """The folder for temporary files. Only Python tries other folders if this one is not writable."""
        return (self._place(self.environment.get("TMPDIR") or "/tmp", writing=True, megabytes=1),)

    def _place(self, path: str, writing: bool, megabytes: int = 0) -> Place:
        there = Path(path).is_dir()
        # A library may create a missing folder: then the folder above it counts.
        nearest = Path(path) if there else _nearest(Path(path))
        mount = self._mount_table.get(path)
        problem, number, owner, free = "", None, None, None
        try:
            owner = nearest.stat().st_uid
            free = shutil.disk_usage(nearest).free / GIGABYTE
            if writing:
                _write_in(nearest, megabytes)
            elif there:
                next(Path(path).iterdir(), None)
        except OSError as error:
            problem, number = error.strerror or str(error), error.errno
        return Place(path, there, mount is not None, "ro" in (mount or ()), problem, number, owner, free)

    @cached_property
    def _mount_table(self) -> dict[str, list[str]]:
        """Mount point -> options."""
        table: dict[str, list[str]] = {}
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
                fields = line.split()
                table[fields[4].replace("\\040", " ")] = fields[5].split(",")
        return table


def _nearest(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _write_in(folder: Path, megabytes: int) -> None:
    """Create, write, rename, and delete a file, as caches do."""
    with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=folder) as scratch:
        Path(scratch, "a").write_bytes(b"x" * max(1, megabytes << 20))
        Path(scratch, "a").rename(Path(scratch, "b"))
