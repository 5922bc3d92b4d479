"""What the probes report, for the checks to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpukit.verify.torch_process import TorchError


@dataclass(frozen=True)
class Place:
    """A folder. `problem` is the system's error message if this user cannot use it, `error` its number."""

    path: str
    there: bool
    mounted: bool = False
    read_only: bool = False
    problem: str = ""
    error: int | None = None
    owner: int | None = None
    free_gb: float | None = None


@dataclass(frozen=True)
class User:
    uid: int
    name: str | None  # None: the uid has no entry in passwd
    workspace: str
    owner: int  # of the workspace
    written: int | None = None  # the owner of files created there; None: none can be created


@dataclass(frozen=True)
class Versions:
    """gpukit's version in this Python and in vendor/. None: not installed, or no wheel to compare with (`reason`)."""

    installed: str | None
    vendored: str | None
    reason: str = ""


@dataclass(frozen=True)
class Processors:
    """CPUs: the machine's, those this process may run on, and the quota of CPU time."""

    machine: int
    allowed: int
    quota: float | None = None
    threads: str = ""  # OMP_NUM_THREADS
    ours: frozenset[int] = frozenset()  # the numbers of those it may run on
    near: tuple[str, ...] = ()  # for each GPU the CPUs of its socket; empty on a machine with one socket


@dataclass(frozen=True)
class Ram:
    """The machine's memory in GB; `free_gb` within the container's limit."""

    total_gb: float = 0.0
    free_gb: float | None = None
    limit_gb: float | None = None
    swap_gb: float = 0.0


@dataclass(frozen=True)
class Kernel:
    """Jupyter's Python kernel, and the prefix of its packages."""

    name: str = ""
    command: str = ""
    prefix: str = ""
    message: str = ""


@dataclass(frozen=True)
class Outcome:
    """The worker's answer to a request on a device, or the error."""

    device: str
    answer: Mapping[str, Any] = field(default_factory=dict)
    error: TorchError | None = None


@dataclass(frozen=True)
class Torch:
    """torch as installed. `error`: it cannot be imported. `index`: where it is from, if not from PyTorch's index."""

    version: str = ""
    cuda: str | None = None
    error: TorchError | None = None
    index: str = ""


@dataclass(frozen=True)
class Device:
    name: str
    capability: str
    shared: bool = False  # CPU and GPU share memory
    fraction: float = 1.0  # of the memory, that torch's allocator may use in one process


@dataclass(frozen=True)
class Devices:
    """The GPUs that torch finds. `message` is CUDA's error if it finds none."""

    found: tuple[Device, ...] = ()
    arch_list: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Result:
    """The result of computing or compiling on a device."""

    device: str = ""
    equal: bool = False
    compiled: bool = True
    seconds: float = 0.0
    error: TorchError | None = None
