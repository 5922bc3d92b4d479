"""What verify looks at. Each property looks once, when it is read first; the checks only judge."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpukit import guard
from gpukit.stack import Stack
from gpukit.verify.torch_process import ROOT, TorchError, TorchProcess

GIGABYTE = 1 << 30
# Folders that libraries fill as they go; all of them are optional except the first.
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "UV_CACHE_DIR")
IMPORT_LIMIT, DEVICE_LIMIT, COMPILE_LIMIT = 120, 60, 180


@dataclass(frozen=True)
class Place:
    """A folder, as this user finds it. `problem` says why it cannot be used, in the system's words."""

    path: str
    there: bool
    mounted: bool = False
    read_only: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Person:
    uid: int
    gid: int
    name: str | None  # None where the uid has no entry in passwd
    workspace: str
    owner: int  # of the workspace


@dataclass(frozen=True)
class Torch:
    """torch as it was found. `error` is set where it cannot be imported."""

    version: str = ""
    cuda: str | None = None
    error: TorchError | None = None


@dataclass(frozen=True)
class Device:
    name: str
    capability: str


@dataclass(frozen=True)
class Devices:
    """What torch finds of GPUs. `complaint` is what CUDA said where it finds none."""

    found: tuple[Device, ...] = ()
    arch_list: tuple[str, ...] = ()
    complaint: str = ""


@dataclass(frozen=True)
class Result:
    """What came of computing or compiling on a device."""

    device: str = ""
    equal: bool = False
    compiled: bool = True
    seconds: float = 0.0
    error: TorchError | None = None


class Container:
    """This container, or wherever verify runs."""

    def __init__(self, stack: Stack, environment: Mapping[str, str] = os.environ) -> None:
        self._stack = stack
        self.environment = environment
        self._torch = TorchProcess()

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._torch.close()

    # What torch says

    @cached_property
    def torch(self) -> Torch:
        try:
            said = self._torch.ask("facts", limit=IMPORT_LIMIT)
        except TorchError as error:
            return Torch(error=error)
        return Torch(said["version"], said["cuda"])

    @cached_property
    def devices(self) -> Devices:
        try:
            said = self._torch.ask("devices", limit=DEVICE_LIMIT)
        except TorchError as error:
            return Devices(complaint=str(error))
        return Devices(
            tuple(Device(**device) for device in said["devices"]), tuple(said["arch_list"]), said["complaint"]
        )

    @cached_property
    def tensors(self) -> tuple[Result, ...]:
        return tuple(self._compute("tensor", name, DEVICE_LIMIT) for name in self._device_names())

    @cached_property
    def compiled(self) -> Result:
        return self._compute("compile", self._device_names()[0], COMPILE_LIMIT)

    def _device_names(self) -> list[str]:
        return [f"cuda:{index}" for index in range(len(self.devices.found))] or ["cpu"]

    def _compute(self, what: str, device: str, limit: float) -> Result:
        try:
            return Result(**self._torch.ask(what, device, limit=limit))
        except TorchError as error:
            return Result(device=device, error=error)

    # The machine as the container sees it

    @cached_property
    def gpu_nodes(self) -> list[str]:
        """The devices through which a GPU is reached: on a PC, in WSL, on Jetson."""
        patterns = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu/*")
        return sorted(str(node) for pattern in patterns for node in Path("/dev").glob(pattern))

    @cached_property
    def cuda_library(self) -> bool:
        """Whether the driver's part of CUDA, which the host lends to the container, can be loaded."""
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        return True

    @cached_property
    def compiler(self) -> str | None:
        return next((found for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)

    @cached_property
    def python_header(self) -> bool:
        return Path(sysconfig.get_path("include"), "Python.h").is_file()

    @cached_property
    def shm_gb(self) -> float | None:
        try:
            return shutil.disk_usage("/dev/shm").total / GIGABYTE
        except OSError:
            return None

    # The interpreter and its packages

    @cached_property
    def python(self) -> str:
        return ".".join(str(part) for part in sys.version_info[:3])

    @cached_property
    def prefixes(self) -> tuple[str, str]:
        """Where this Python lives, and where the one it was made from; different in a virtual environment."""
        return sys.prefix, sys.base_prefix

    @cached_property
    def recorded(self) -> dict[str, str] | None:
        """The protected packages as they were at build; None where nobody wrote them down."""
        try:
            return guard.recorded(guard.RECORD)
        except OSError:
            return None

    @cached_property
    def changes(self) -> list[guard.Change]:
        return guard.changed(self.recorded or {})

    # People and places

    @cached_property
    def person(self) -> Person:
        try:
            name: str | None = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = None
        return Person(os.getuid(), os.getgid(), name, str(ROOT), ROOT.stat().st_uid)

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

    def _place(self, path: str, writing: bool) -> Place:
        there = Path(path).is_dir()
        mount = self._mount_table.get(path)
        problem = ""
        try:
            if writing:
                # What is not there yet may be made by the library that wants it: then the folder above counts.
                _write_in(Path(path) if there else _nearest(Path(path)))
            elif there:
                next(Path(path).iterdir(), None)
        except OSError as error:
            problem = error.strerror or str(error)
        return Place(path, there, mount is not None, "ro" in (mount or ()), problem)

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


def _write_in(folder: Path) -> None:
    """Make a file, write it, rename it, take it away: what a cache does."""
    with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=folder) as scratch:
        Path(scratch, "a").write_text("x", encoding="utf-8")
        Path(scratch, "a").rename(Path(scratch, "b"))
