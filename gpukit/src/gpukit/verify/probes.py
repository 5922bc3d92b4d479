"""What is seen of the machine, the folders, and the software. Each property is evaluated on first access."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from gpukit.host import facts, health, smi
from gpukit.host.limits import limited
from gpukit.host.memory import meminfo
from gpukit.image import guard
from gpukit.project.location import located, place, root
from gpukit.project.stack import Stack
from gpukit.verify import requirements
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

    def result(self) -> Mapping[str, Any]:
        """The answer. Raises the error."""
        if self.error:
            self.error.device = self.device
            raise self.error
        return self.answer


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
class Imported:
    """`place`: the file with the import, or pyproject.toml. `called`: it was imported, and failed on the GPU."""

    module: str
    statement: str = ""
    place: str = ""
    error: TorchError | None = None
    called: bool = False
    skipped: bool = False


# Folders that libraries fill; all of them are optional except the first.
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "UV_CACHE_DIR")
COMMAND_LIMIT = 30
GIGABYTE = 1 << 30
LIMITS = ("memlock", "stack", "nofile")


class Probes:
    """Of the machine, the folders, and the software."""

    environment: Mapping[str, str]
    _stack: Stack
    _threads: ThreadPoolExecutor
    _smi_query: Future[smi.Smi] | None = None

    def query_smi(self) -> None:
        """Start nvidia-smi before anything here computes: any process that it lists then is not ours."""
        self._smi_query = self._threads.submit(smi.look)

    @cached_property
    def smi(self) -> smi.Smi:
        return self._smi_query.result() if self._smi_query else smi.look()

    @cached_property
    def in_use_by(self) -> str:
        """What else uses a GPU, so that its memory must not be filled; empty if nothing does.

        If the driver does not report it, as in WSL, a display is assumed.
        """
        if not self.smi.cards or Path("/dev/dxg").exists():
            return "a display (assumed)"
        if any(card.display for card in self.smi.cards):
            return "a display"
        return "another process" if any(card.processes for card in self.smi.cards) else ""

    @property
    def exclusive(self) -> bool:
        """Whether only one process at a time can use a GPU: then ours take turns."""
        return any(card.mode.startswith("Exclusive") for card in self.smi.cards)

    @cached_property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        """Xid errors in the kernel's log: bus and number. None if this container cannot read it."""
        return health.xids(health.kernel_log())

    @cached_property
    def gpu_nodes(self) -> list[str]:
        """The GPU device files: on a PC, in WSL, on Jetson."""
        patterns = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu/*")
        return sorted(str(node) for pattern in patterns for node in Path("/dev").glob(pattern))

    @cached_property
    def inaccessible_nodes(self) -> list[str]:
        """The GPU and driver device files that this user cannot open."""
        nodes = [*self.gpu_nodes, *(str(node) for node in Path("/dev").glob("nvidia[a-z-]*") if not node.is_dir())]
        return [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]

    @cached_property
    def cuda_library(self) -> bool:
        """Whether the driver's CUDA library, which the host mounts into the container, can be loaded."""
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        return True

    @cached_property
    def shm_gb(self) -> tuple[float, float] | None:
        """The size of /dev/shm, and what is free of it."""
        try:
            usage = shutil.disk_usage("/dev/shm")
        except OSError:
            return None
        return usage.total / GIGABYTE, usage.free / GIGABYTE

    @cached_property
    def limits(self) -> dict[str, int]:
        """Limits of this process; -1 is unlimited."""
        names = {name: getattr(resource, f"RLIMIT_{name.upper()}") for name in LIMITS}
        limits = {name: resource.getrlimit(number)[0] for name, number in names.items()}
        return {name: -1 if limit == resource.RLIM_INFINITY else limit for name, limit in limits.items()}

    @cached_property
    def processors(self) -> Processors:
        allowed = len(os.sched_getaffinity(0))
        threads = self.environment.get("OMP_NUM_THREADS", "")
        return Processors(os.cpu_count() or allowed, allowed, smi.quota(), threads)

    @cached_property
    def ram(self) -> Ram:
        here = meminfo()
        if "MemAvailable" not in here:
            return Ram()
        groups = limited()
        limit = min((limit for limit, _ in groups), default=None)
        free = max(0, min([here["MemAvailable"], *(limit - used for limit, used in groups)]))
        gigabytes = (here.get("MemTotal", 0), free, limit, here.get("SwapTotal", 0))
        return Ram(*(None if each is None else each / GIGABYTE for each in gigabytes))

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
        problem = ""
        number = None
        owner = None
        free = None
        try:
            owner = nearest.stat().st_uid
            free = shutil.disk_usage(nearest).free / GIGABYTE
            if writing:
                _write_in(nearest, megabytes)
            elif there:
                next(Path(path).iterdir(), None)
        except OSError as error:
            problem = error.strerror or str(error)
            number = error.errno
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

    @cached_property
    def gpukit(self) -> Versions:
        # Not by sys.path: ./launch inside the container runs the wheel in vendor/, which has metadata too.
        paths = list({sysconfig.get_path(name) for name in ("purelib", "platlib")})
        installed = next((found.version for found in metadata.distributions(name="gpukit", path=paths)), None)
        wheels = sorted(located("vendor").glob("gpukit-*.whl"))
        if len(wheels) != 1:
            folder = f"{place(root(), 'vendor')}/"
            reason = f"{folder} has {len(wheels)} gpukit wheels." if wheels else f"{folder} has no gpukit wheel."
            return Versions(installed, None, reason)
        return Versions(installed, wheels[0].name.split("-")[1])

    @cached_property
    def python(self) -> str:
        return ".".join(str(part) for part in sys.version_info[:3])

    @cached_property
    def prefixes(self) -> tuple[str, str]:
        """That of this Python, and that of the image's, or of the environment that `./launch --native` created."""
        return sys.prefix, sys.prefix if guard.OWN.is_file() else sys.base_prefix

    @cached_property
    def workspace_venv(self) -> str:
        """A virtual environment in the workspace, which editors would use for this project."""
        folder = root() / ".venv"
        return str(folder) if (folder / "pyvenv.cfg").is_file() else ""

    @property
    def base_image(self) -> str:
        """What `./launch build` built the image from, as NAME@DIGEST; "" if it was not recorded."""
        return self.environment.get("GPUKIT_BASE", "")

    @cached_property
    def protected(self) -> dict[str, str] | None:
        """The protected packages recorded when the image was built; None without a record."""
        try:
            return guard.recorded(guard.RECORD)
        except OSError:
            return None

    @cached_property
    def protected_changes(self) -> list[guard.Change]:
        return guard.changed(self.protected or {})

    @property
    def special_places(self) -> tuple[str, ...]:
        """A container that no project made is often rented; Podman's containers have a file of their own."""
        rented = ("container",) if self._stack.standalone and facts.container() else ()
        return (*rented, "podman") if Path("/run/.containerenv").exists() else rented

    @cached_property
    def requirements(self) -> requirements.Requirements:
        if self._stack.standalone:  # a pyproject.toml in the current folder may belong to anything
            return requirements.Requirements(reason="There is no project.")
        return requirements.read(root(), self._distributions)

    @cached_property
    def _distributions(self) -> dict[str, metadata.Distribution]:
        return requirements.distributions()

    @cached_property
    def conflicts(self) -> tuple[requirements.Conflict, ...] | None:
        """None without uv."""
        lines = guard.conflicts()
        base = []
        with contextlib.suppress(OSError):
            base = guard.CONFLICTS.read_text(encoding="utf-8").splitlines()
        return None if lines is None else requirements.conflicts(lines, base)

    @cached_property
    def imports(self) -> list[requirements.Import]:
        """Those in the project's sources."""
        return requirements.imported(root())

    @cached_property
    def unknown_imports(self) -> list[requirements.Import]:
        """Those that cannot work, because no installed package has the module."""
        return [each for each in self.imports if not each.lazy and not found(each.module)]

    @cached_property
    def compiler(self) -> str | None:
        return next((found for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)

    @cached_property
    def python_header(self) -> bool:
        return Path(sysconfig.get_path("include"), "Python.h").is_file()

    @cached_property
    def kernel(self) -> Kernel | None:
        """None without Jupyter."""
        # Natively, the machine may have its own Jupyter, which is not this project's.
        within = str(Path(sys.prefix, "bin")) if sys.prefix != sys.base_prefix else None
        jupyter = shutil.which("jupyter", path=within)
        if jupyter is None:
            return None
        printed = run(jupyter, "kernelspec", "list", "--json")
        try:
            specs = json.loads(printed or "")["kernelspecs"]
            name = "python3" if "python3" in specs else sorted(specs)[0]
            command = specs[name]["spec"]["argv"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            return Kernel(message="`jupyter kernelspec list` shows no kernel")
        # Jupyter starts a plain `python` with its own interpreter.
        path = _interpreter_of(jupyter) if re.fullmatch(r"python[\d.]*", command) else command
        prefix = run(path, "-c", "import ipykernel, sys; print(sys.prefix)")
        return Kernel(name, path, (prefix or "").strip(), "" if prefix else f"{path} cannot import ipykernel")


def _nearest(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _write_in(folder: Path, megabytes: int) -> None:
    """Create, write, rename, and delete a file, as caches do."""
    with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=folder) as scratch:
        Path(scratch, "a").write_bytes(b"x" * max(1, megabytes << 20))
        Path(scratch, "a").rename(Path(scratch, "b"))


def found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def run(*command: str) -> str | None:
    """The output of a command; None if it fails.

    Raises:
        subprocess.TimeoutExpired: it did not end
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMMAND_LIMIT, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def _interpreter_of(script: str) -> str:
    """The interpreter in the first line of a script."""
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(1024).decode(errors="replace")
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0].endswith("/env"):
            words = [found for name in words[1:2] if (found := shutil.which(name))]
        if words and "python" in Path(words[0]).name:  # for a long path, pip writes a line of sh instead
            return words[0]
    return sys.executable
