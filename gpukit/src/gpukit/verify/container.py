"""What verify looks at. Each property looks once, when it is read first; the checks only judge."""

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
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from gpukit.image import guard
from gpukit.project.location import root
from gpukit.project.stack import Stack
from gpukit.verify import smi, system
from gpukit.verify.packages import behind, unmet
from gpukit.verify.torch_process import TorchError, TorchProcess
from gpukit.verify.tracking import MODULES

GIGABYTE = 1 << 30
# Folders that libraries fill as they go; all of them are optional except the first.
CACHES = ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "UV_CACHE_DIR")
IMPORT_LIMIT, DEVICE_LIMIT, COMPILE_LIMIT = 120, 60, 180
LOAD_LIMIT, PROCESSES_LIMIT, COMMAND_LIMIT = 120, 90, 15
LIMITS = ("memlock", "stack", "nofile")
# What gives access somewhere, and the files that do the same.
CREDENTIALS = ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "AWS_ACCESS_KEY_ID", "KAGGLE_KEY")
CREDENTIAL_FILES = (".netrc", ".cache/huggingface/token", ".aws/credentials", ".kaggle/kaggle.json")
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([\w:.]+)\): (\d+)")


@dataclass(frozen=True)
class Place:
    """A folder, as this user finds it. `problem` says why it cannot be used, in the system's words."""

    path: str
    there: bool
    mounted: bool = False
    read_only: bool = False
    problem: str = ""
    owner: int | None = None
    free_gb: float | None = None


@dataclass(frozen=True)
class Person:
    uid: int
    gid: int
    name: str | None  # None where the uid has no entry in passwd
    workspace: str
    owner: int  # of the workspace
    written: int | None = None  # who owns a file that is made there; None where none can be made


@dataclass(frozen=True)
class Processors:
    """How many this container may use: all that the machine has, those it may run on, and its share of time."""

    machine: int
    allowed: int
    quota: float | None = None
    threads: str = ""  # OMP_NUM_THREADS
    ours: frozenset[int] = frozenset()  # those it may run on, by number
    near: tuple[str, ...] = ()  # for each GPU, those of its socket; empty on a machine of one socket


@dataclass(frozen=True)
class Ram:
    """The machine's memory in GB; `free_gb` as far as the container may have it."""

    total_gb: float = 0.0
    free_gb: float | None = None
    limit_gb: float | None = None
    swap_gb: float = 0.0


@dataclass(frozen=True)
class Kernel:
    """Jupyter's kernel for Python, and where the packages are that it would import."""

    name: str = ""
    command: str = ""
    prefix: str = ""
    complaint: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a request on a device: what the worker said, or why it did not."""

    device: str
    said: Mapping[str, Any] = field(default_factory=dict)
    error: TorchError | None = None


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
    shared: bool = False  # memory, with the CPU


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
        self.stress = False
        self._torch = TorchProcess()
        self._second: TorchProcess | None = None
        self._threads = ThreadPoolExecutor(1)
        self._compiling: Future[Result] | None = None
        self._looking: Future[smi.Smi] | None = None
        self._early = False

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._torch.end()
        if self._second is not None:
            self._second.end()
        self._threads.shutdown()

    def prepare(self, checks: Iterable[str], stress: bool = False) -> None:
        """Compiling takes longest by far: where it will be asked for it starts now, in a process of its own."""
        self.stress = stress
        self._early = "compile" in checks
        if not self.gpu_nodes:
            if self._early:
                self._compile("cpu")
            return
        # Before anything here computes: whatever process it names then is another's.
        self._looking = self._threads.submit(smi.look)

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
        results = tuple(self._compute(self._torch, "tensor", name, DEVICE_LIMIT) for name in self._device_names())
        if self._early and not self.exclusive and all(result.equal for result in results):
            self._compile(self._device_names()[0])
        return results

    @cached_property
    def compiled(self) -> Result:
        return self._compile(self._device_names()[0]).result()

    def _compile(self, device: str) -> Future[Result]:
        if self._compiling is None:
            self._compiling = self._threads.submit(self._compute, self._other, "compile", device, COMPILE_LIMIT)
        return self._compiling

    @property
    def _other(self) -> TorchProcess:
        """Another process than the first; where only one may use the GPU, the first anew."""
        if self.gpu_nodes and self.exclusive:
            self._torch.close()
            return self._torch
        if self._second is None:
            self._second = TorchProcess()
        return self._second

    def _device_names(self) -> list[str]:
        return [f"cuda:{index}" for index in range(len(self.devices.found))] or ["cpu"]

    def _compute(self, process: TorchProcess, what: str, device: str, limit: float) -> Result:
        try:
            return Result(**process.ask(what, device, limit=limit))
        except TorchError as error:
            _afresh(process, error)
            return Result(device=device, error=error)

    def _ask(self, process: TorchProcess, what: str, device: str, *arguments: Any, limit: float) -> Outcome:
        try:
            return Outcome(device, process.ask(what, *arguments, limit=limit))
        except TorchError as error:
            _afresh(process, error)
            return Outcome(device, error=error)

    def _on_each(self, what: str, *arguments: Any, limit: float = LOAD_LIMIT) -> tuple[Outcome, ...]:
        """On one GPU after another; what follows a broken one would only wait for the same."""
        outcomes: list[Outcome] = []
        for index in range(len(self.devices.found)):
            name = f"cuda:{index}"
            outcomes.append(self._ask(self._torch, what, name, name, *arguments, limit=limit))
            if outcomes[-1].error:
                break
        return tuple(outcomes)

    def _half(self) -> str:
        """The half precision that the first GPU has in hardware."""
        return "bf16" if int(self.devices.found[0].capability.partition(".")[0]) >= 8 else "fp16"

    @cached_property
    def products(self) -> Outcome:
        first = self.devices.found[0]
        outcome = self._ask(self._torch, "matmul", "cuda:0", "cuda:0", first.capability, limit=DEVICE_LIMIT)
        for result in outcome.said.get("results", ()):
            if result.get("complaint"):
                _afresh(self._torch, TorchError("", result["complaint"]))
        return outcome

    @cached_property
    def convolution(self) -> Outcome:
        return self._ask(self._torch, "convolution", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def attention(self) -> Outcome:
        return self._ask(self._torch, "attention", "cuda:0", "cuda:0", self._half(), limit=DEVICE_LIMIT)

    @cached_property
    def amp(self) -> Outcome:
        return self._ask(self._torch, "amp", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def held(self) -> str:
        """Who else holds a GPU here, so that its memory must not be filled; empty where nobody does.

        Where the driver does not say, as in WSL, a display is taken for granted.
        """
        if not self.smi.cards or Path("/dev/dxg").exists():
            return "a display, as far as can be known here"
        if any(card.display for card in self.smi.cards):
            return "a display"
        return "another process" if any(card.processes for card in self.smi.cards) else ""

    @cached_property
    def patterns(self) -> tuple[Outcome, ...]:
        return self._on_each("pattern", self.stress and not self.held)

    @cached_property
    def out_of_memory(self) -> Outcome:
        return self._ask(self._torch, "oom", "cuda:0", "cuda:0", limit=DEVICE_LIMIT)

    @cached_property
    def transfers(self) -> tuple[Outcome, ...]:
        return self._on_each("transfer")

    @cached_property
    def gemms(self) -> tuple[Outcome, ...]:
        return self._on_each("gemm", self._half())

    @cached_property
    def collective(self) -> Outcome:
        process = self._other if len(self.devices.found) > 1 else self._torch
        return self._ask(process, "collective", "", len(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def peers(self) -> Outcome:
        return self._ask(self._torch, "peers", "", len(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def loader(self) -> Outcome:
        return self._ask(self._torch, "loader", "", 2, bool(self.devices.found), limit=PROCESSES_LIMIT)

    @cached_property
    def training(self) -> tuple[Outcome, Outcome | None]:
        """Ten steps, and the last five again, in another process, from the checkpoint between."""
        device = self._device_names()[0]
        try:
            with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=root()) as folder:
                file = str(Path(folder, "checkpoint.pt"))
                whole = self._ask(self._torch, "train", device, device, file, False, limit=DEVICE_LIMIT)
                if whole.error:
                    return whole, None
                return whole, self._ask(self._other, "train", device, device, file, True, limit=DEVICE_LIMIT)
        except OSError as error:
            return Outcome(device, error=TorchError("OSError", str(error))), None

    @cached_property
    def smi(self) -> smi.Smi:
        return self._looking.result() if self._looking else smi.look()

    @property
    def exclusive(self) -> bool:
        """Whether only one process may compute on a GPU: then ours take turns."""
        return any(card.mode.startswith("Exclusive") for card in self.smi.cards)

    @cached_property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        """What the driver wrote into the kernel's log: bus and number. None where it may not be read in here."""
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        found = []
        try:
            with contextlib.suppress(BlockingIOError):
                while text := os.read(log, 8192):
                    found += [(bus, int(number)) for bus, number in XID.findall(text.decode(errors="replace"))]
        except OSError:
            return None
        finally:
            os.close(log)
        return tuple(dict.fromkeys(found))

    # The machine as the container sees it

    @cached_property
    def gpu_nodes(self) -> list[str]:
        """The devices through which a GPU is reached: on a PC, in WSL, on Jetson."""
        patterns = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu/*")
        return sorted(str(node) for pattern in patterns for node in Path("/dev").glob(pattern))

    @cached_property
    def closed_nodes(self) -> list[str]:
        """Those of them, and the driver's own, that this user may not open."""
        nodes = [*self.gpu_nodes, *(str(node) for node in Path("/dev").glob("nvidia[a-z-]*") if not node.is_dir())]
        return [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]

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

    @cached_property
    def shm_free_gb(self) -> float | None:
        try:
            return shutil.disk_usage("/dev/shm").free / GIGABYTE
        except OSError:
            return None

    @cached_property
    def assembler(self) -> tuple[str, tuple[str, ...]] | None:
        """The ptxas that Triton uses for the first GPU, and the architectures it knows; None without one."""
        blackwell = bool(self.devices.found) and int(self.devices.found[0].capability.partition(".")[0]) >= 10
        names = (["ptxas-blackwell"] if blackwell else []) + ["ptxas"]
        spec = importlib.util.find_spec("triton")
        folders = list(spec.submodule_search_locations or ()) if spec else []
        chosen = [self.environment.get(f"TRITON_{name.upper().replace('-', '_')}_PATH") for name in names]
        inside = [str(Path(folder, "backends/nvidia/bin", name)) for name in names for folder in folders]
        for path in filter(None, [*chosen, *inside]):
            said = _said(path, "--help")
            if said is not None:
                return path, tuple(dict.fromkeys(re.findall(r"\bsm_\d+[af]?\b", said)))
        return None

    @cached_property
    def limits(self) -> dict[str, int]:
        """Of this process, in bytes and numbers; -1 is unlimited."""
        names = {name: getattr(resource, f"RLIMIT_{name.upper()}") for name in LIMITS}
        limits = {name: resource.getrlimit(number)[0] for name, number in names.items()}
        return {name: -1 if limit == resource.RLIM_INFINITY else limit for name, limit in limits.items()}

    @cached_property
    def processors(self) -> Processors:
        allowed = len(os.sched_getaffinity(0))
        threads = self.environment.get("OMP_NUM_THREADS", "")
        near = (
            tuple(system.near(card.bus) for card in self.smi.cards) if self.gpu_nodes and system.sockets() > 1 else ()
        )
        ours = frozenset(os.sched_getaffinity(0))
        return Processors(os.cpu_count() or allowed, allowed, system.quota(), threads, ours, tuple(filter(None, near)))

    @cached_property
    def ram(self) -> Ram:
        said = system.meminfo()
        if "MemAvailable" not in said:
            return Ram()
        limit, used = system.memory_limit()
        free = said["MemAvailable"] if limit is None else min(said["MemAvailable"], max(0, limit - used))
        gigabytes = (said.get("MemTotal", 0), free, limit, said.get("SwapTotal", 0))
        return Ram(*(None if each is None else each / GIGABYTE for each in gigabytes))

    @cached_property
    def clock(self) -> tuple[datetime, datetime | None]:
        """Now, and when the newest of this project's own files was written."""
        files = [*Path(__file__).parents[1].glob("*.py"), root() / "stack.json", guard.RECORD]
        times = [file.stat().st_mtime for file in files if file.is_file()]
        return datetime.now(), datetime.fromtimestamp(max(times)) if times else None

    @cached_property
    def companions(self) -> tuple[int, list[tuple[str, str, str]]]:
        return unmet()

    @cached_property
    def behind(self) -> list[tuple[str, str]]:
        return behind(root())

    @cached_property
    def trackers(self) -> tuple[Outcome, ...]:
        there = [module for module in MODULES if importlib.util.find_spec(module)]
        return tuple(self._ask(self._torch, "dry-run", name, name, limit=DEVICE_LIMIT) for name in there)

    @cached_property
    def credentials(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of those that are there, and of those that are not; never a value."""
        home = Path(self.environment.get("HOME") or "/")
        there = [name for name in CREDENTIALS if self.environment.get(name)]
        there += [f"~/{name}" for name in CREDENTIAL_FILES if os.access(home / name, os.R_OK)]
        return tuple(there), tuple(name for name in CREDENTIALS if name not in there)

    @cached_property
    def kernel(self) -> Kernel | None:
        """None where there is no Jupyter."""
        # Natively the machine may have one of its own, which is not this project's.
        within = str(Path(sys.prefix, "bin")) if sys.prefix != sys.base_prefix else None
        jupyter = shutil.which("jupyter", path=within)
        if jupyter is None:
            return None
        said = _said(jupyter, "kernelspec", "list", "--json")
        try:
            specs = json.loads(said or "")["kernelspecs"]
            name = "python3" if "python3" in specs else sorted(specs)[0]
            command = specs[name]["spec"]["argv"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            return Kernel(complaint="`jupyter kernelspec list` names no kernel")
        # Jupyter starts a plain `python` as the interpreter that it runs in itself.
        path = _interpreter_of(jupyter) if re.fullmatch(r"python[\d.]*", command) else command
        prefix = _said(path, "-c", "import ipykernel, sys; print(sys.prefix)")
        return Kernel(name, path, (prefix or "").strip(), "" if prefix else f"{path} cannot import ipykernel")

    @cached_property
    def room(self) -> tuple[Place, ...]:
        """Where programs put what is temporary. Python alone looks for another folder when this one does not serve."""
        return (self._place(self.environment.get("TMPDIR") or "/tmp", writing=True, megabytes=1),)

    # The interpreter and its packages

    @cached_property
    def python(self) -> str:
        return ".".join(str(part) for part in sys.version_info[:3])

    @cached_property
    def prefixes(self) -> tuple[str, str]:
        """Where this Python lives, and where the one it was made from; different in a virtual environment."""
        return sys.prefix, sys.base_prefix

    @cached_property
    def stale(self) -> str:
        """A virtual environment in the workspace, which editors would take for this project's."""
        folder = root() / ".venv"
        return str(folder) if (folder / "pyvenv.cfg").is_file() else ""

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
        written = None
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix=".gpukit-", dir=root()) as folder:
            written = Path(folder).stat().st_uid
        return Person(os.getuid(), os.getgid(), name, str(root()), root().stat().st_uid, written)

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

    def _place(self, path: str, writing: bool, megabytes: int = 0) -> Place:
        there = Path(path).is_dir()
        # What is not there yet may be made by the library that wants it: then the folder above counts.
        nearest = Path(path) if there else _nearest(Path(path))
        mount = self._mount_table.get(path)
        problem, owner, free = "", None, None
        try:
            owner = nearest.stat().st_uid
            free = shutil.disk_usage(nearest).free / GIGABYTE
            if writing:
                _write_in(nearest, megabytes)
            elif there:
                next(Path(path).iterdir(), None)
        except OSError as error:
            problem = error.strerror or str(error)
        return Place(path, there, mount is not None, "ro" in (mount or ()), problem, owner, free)

    @cached_property
    def _mount_table(self) -> dict[str, list[str]]:
        """Mount point -> options."""
        table: dict[str, list[str]] = {}
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
                fields = line.split()
                table[fields[4].replace("\\040", " ")] = fields[5].split(",")
        return table


def _afresh(process: TorchProcess, error: TorchError) -> None:
    """After an error of CUDA's every later call in that process ends with it too: the next one gets a new process."""
    if re.search(r"cuda|cudnn|cublas", str(error), re.IGNORECASE):
        process.close()


def _nearest(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _write_in(folder: Path, megabytes: int) -> None:
    """Make a file, write it, rename it, take it away: what a cache does."""
    with tempfile.TemporaryDirectory(prefix=".gpukit-", dir=folder) as scratch:
        Path(scratch, "a").write_bytes(b"x" * max(1, megabytes << 20))
        Path(scratch, "a").rename(Path(scratch, "b"))


def _said(*command: str) -> str | None:
    """What a command prints; None where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMMAND_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _interpreter_of(script: str) -> str:
    """What the first line of a script names."""
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(1024).decode(errors="replace")
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0].endswith("/env"):
            words = [found for name in words[1:2] if (found := shutil.which(name))]
        if words and "python" in Path(words[0]).name:  # a long path is hidden behind a line of sh
            return words[0]
    return sys.executable
