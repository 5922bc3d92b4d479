"""Doctor's probes. Each property is evaluated once, on first access; the checks only evaluate the results.

Everything that may hang (the engine, the driver, a dead network mount) runs in background threads with a timeout from
the start, so that doctor ends in seconds even if nothing responds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from gpukit.errors.machine import Machine
from gpukit.host import choice, facts, health, memory, podman, smi, uv
from gpukit.host.preflight import refusal
from gpukit.host.process import LONG_TIMEOUT, SHORT_TIMEOUT, Background, Result, nvidia_smi, run
from gpukit.host.project import Project, settings
from gpukit.project.devcontainer import ConfigError
from gpukit.project.location import ADOPTED, is_adopted, root
from gpukit.project.messages import RefusalError
from gpukit.project.stack import Stack

ENGINE_TIMEOUT = 20.0  # seconds: to start a container with the GPU, or to run a command in one
CLIENT = ["--version"]
ENDPOINT = ["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
INFO = ["info", "--format", "{{json .}}"]
SERVER = ["version", "--format", "{{json .Server}}"]
CARDS = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
MIG = ["nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"]
FABRIC = ["nvidia-smi", "--query-gpu=fabric.state", "--format=csv,noheader"]
LISTED = ["nvidia-smi", "-L"]
JOURNAL = ["journalctl", "--dmesg", "--boot", "--quiet", "--output=cat"]
TOOLKIT = ["nvidia-ctk", "--version"]
FABRIC_MANAGER = ["systemctl", "is-active", "nvidia-fabricmanager"]
SPECIFICATIONS = ("/etc/cdi", "/var/run/cdi")
DEVICES = Path("/dev")


@dataclass(frozen=True)
class Folder:
    """A mount's source on this machine."""

    source: str
    target: str
    read_only: bool
    kind: str  # folder, file, missing, dangling (a link to nothing), silent (no answer, as from a dead network mount)
    usable: bool  # readable, and writable unless the mount is read-only; if missing: whether it can be created


@dataclass(frozen=True)
class Config:
    """The mounts in devcontainer.json; `error` is set if it cannot be read."""

    folders: tuple[Folder, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Specification:
    """A CDI file for NVIDIA GPUs, and the driver that it was written for."""

    path: str
    driver: str


@dataclass(frozen=True)
class Toolkit:
    """The installed parts of NVIDIA's Container Toolkit."""

    version: str = ""  # of nvidia-ctk; empty if it is missing
    runtime: bool = False  # nvidia-container-runtime
    specifications: tuple[Specification, ...] = ()


@dataclass(frozen=True)
class Container:
    """A container of this project, whoever started it."""

    name: str
    running: bool
    gpu: bool


@dataclass(frozen=True)
class Merge:
    """Files that `copier update` left in conflict, as paths in the project."""

    conflicts: tuple[str, ...] = ()  # by git's index, or by the markers in the text
    rejected: tuple[str, ...] = ()  # .rej files


def _answered(name: str) -> property:
    """The result of one of the commands that were started together."""
    return property(lambda host: host._answer(name))


class Host:
    """This machine. Slow probes are started together in the background."""

    def __init__(
        self,
        stack: Stack,
        project: Path | None = None,
        cpu: bool = False,
        local: Machine | None = None,
        native: bool = False,
    ) -> None:
        """`cpu`: no GPU is asked for. `native`: a program runs here without a container, so no engine is asked."""
        self.project = project or root()
        self.native = native
        self._stack = stack
        self.cpu = cpu
        self._known = local
        self._local: Background | None = None
        self.engine_name = choice.known(settings(self.project))
        commands = {
            "info": ([self.engine_name, *INFO], LONG_TIMEOUT),
            "client": ([self.engine_name, *CLIENT], SHORT_TIMEOUT),
        }
        if self.engine_name == "docker":
            commands.update(server=(["docker", *SERVER], LONG_TIMEOUT), endpoint=(["docker", *ENDPOINT], SHORT_TIMEOUT))
        commands = {} if native else commands
        queries = {} if cpu else {"cards": CARDS}
        if stack.gpu and not cpu:
            queries.update(mig=MIG, fabric=FABRIC, listed=LISTED, smi=smi.COMMAND)
            others = {"toolkit": TOOLKIT, "fabric_manager": FABRIC_MANAGER, "journal": JOURNAL}
            commands.update({name: (argv, SHORT_TIMEOUT) for name, argv in others.items()})
        commands.update({name: ([nvidia_smi(), *argv[1:]], LONG_TIMEOUT) for name, argv in queries.items()})
        self._asked = {name: self._ask(*what) for name, what in commands.items()}
        self._folders = Background(self._look_at_folders, SHORT_TIMEOUT, None)
        self._merge = Background(self._look_at_merge, SHORT_TIMEOUT, Merge())

    @staticmethod
    def _ask(argv: list[str], seconds: float) -> Background:
        unfinished = Result(None, err=f"no answer in {seconds:g} s", timed_out=True)
        return Background(lambda: run(argv, seconds), seconds + 0.2, unfinished)

    def _answer(self, name: str) -> Result:
        later = self._asked.get(name)
        return later.value if later else Result(None)

    def prepare(self, checks: Iterable[str], stress: bool = False) -> None:
        """Collect the facts for --json while the checks run."""
        project = None if self._stack.standalone else self.project
        known = self._known
        look = partial(facts.local, project, engine=self.engine_name)
        self._local = Background(lambda: known or look(), LONG_TIMEOUT, Machine())

    @property
    def local(self) -> Machine:
        """The facts about this machine: `machine` in --json."""
        if self._local is None:
            self.prepare(())
        return self._local.value

    client = _answered("client")
    info = _answered("info")
    server = _answered("server")
    cards = _answered("cards")
    mig = _answered("mig")
    fabric = _answered("fabric")
    listed = _answered("listed")  # `nvidia-smi -L`: the only list with MIG slices

    system = cached_property(lambda _: facts.system())
    arch = cached_property(lambda _: facts.arch())
    today = cached_property(lambda _: date.today())
    meminfo = cached_property(lambda _: memory.meminfo())  # /proc/meminfo in bytes
    pci = cached_property(lambda _: facts.pci())  # NVIDIA's devices; None if the bus is not visible
    secure_boot = cached_property(lambda _: facts.secure_boot())

    @property
    def for_podman(self) -> bool:
        """Whether the project has a configuration for VS Code with Podman."""
        return (self.project / podman.CONFIG).is_file()

    @property
    def endpoint(self) -> str:
        """The engine's address: unix://..., tcp://..., ssh://...; empty if unknown."""
        if self.engine_name == "podman" and not self.native:
            return podman.endpoint(os.environ, lambda: run(["podman", *podman.CONNECTIONS], SHORT_TIMEOUT).out)
        return self._answer("endpoint").out.strip()

    @cached_property
    def smi(self) -> smi.Smi:
        """What nvidia-smi says of the state of the GPUs that are requested, or of all."""
        found = smi.read(self._answer("smi"))
        chosen = (self.gpus or "all").split(",")
        cards = [card for index, card in enumerate(found.cards) if {str(index), card.uuid} & {*chosen}]
        return replace(found, cards=tuple(cards) or found.cards)

    @cached_property
    def log(self) -> str | None:
        """The kernel's log of this boot; None if this user cannot read it."""
        return health.kernel_log() or self._answer("journal").out or None

    @property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        return health.xids(self.log)

    @cached_property
    def given(self) -> int:
        """How many GPUs of the driver this process should see. Containers and Slurm's jobs see the whole bus, but can
        open only the device files of their own GPUs.
        """
        nodes = sum(os.access(node, os.R_OK | os.W_OK) for node in DEVICES.glob("nvidia[0-9]*"))
        bus = sum(device.kind == "gpu" and device.driver == "nvidia" for device in self.pci or ())
        return min(filter(None, (nodes, bus)), default=0)

    @property
    def fabric_manager(self) -> str:
        """The state of its service: active, inactive, failed; empty without systemd."""
        return self._answer("fabric_manager").out.strip()

    @cached_property
    def special_places(self) -> tuple[str, ...]:
        """Whose sentences come first; on a DGX Spark, the driver comes with DGX OS."""
        inside = ("container",) if facts.container() else ()
        engine = ("podman",) if self.engine_name == "podman" else ()
        return (*inside, *engine, "spark" if self.exists(facts.FASTOS) else self.system)

    def text(self, path: str) -> str | None:
        return facts.text(path)

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    @cached_property
    def module(self) -> str:
        """The version of the loaded NVIDIA kernel module; empty if none is loaded."""
        text = self.text("/sys/module/nvidia/version") or self.text("/proc/driver/nvidia/version") or ""
        found = re.search(r"\d{3,}\.\d+(?:\.\d+)?", text)
        return found.group() if found else ""

    @cached_property
    def toolkit(self) -> Toolkit:
        answer = self._answer("toolkit")
        found = re.search(r"version (\d+(?:\.\d+)+)", answer.text)
        version = found.group(1) if found else "unknown" if answer.code is not None else ""
        specifications = []
        for folder in SPECIFICATIONS:
            with contextlib.suppress(OSError):
                for path in sorted(Path(folder).iterdir()):
                    text = self.text(str(path)) if path.suffix in (".yaml", ".json") else None
                    if text and "nvidia.com/gpu" in text:
                        driver = re.search(r"libcuda\.so\.(\d{3,}\.\d+(?:\.\d+)?)", text)
                        specifications.append(Specification(str(path), driver.group(1) if driver else ""))
        return Toolkit(version, shutil.which("nvidia-container-runtime") is not None, tuple(specifications))

    @cached_property
    def _project(self) -> Any:
        return Project(self.project, os.environ, self.cpu)

    @cached_property
    def gpus(self) -> str | None:
        """The GPUs that the project requests: all, 0, 0,1, a UUID; None if it requests none or cannot be read."""
        with contextlib.suppress(ConfigError, RefusalError):
            return self._project.gpus
        return None

    @cached_property
    def refusal(self) -> RefusalError | None:
        """Why the engine refuses the GPU, which is requested with the flags of every entry point; None if it does not.

        Its kind is one of GPU_KINDS, unless the GPU could not be requested, or something else failed.
        """
        try:
            if self._project.gpus is None:
                return RefusalError("devcontainer.json requests no GPU.")
            self._project.engine.cpu_helps = False  # the remedy should make the GPU work, not avoid it
            self._project.engine.patience = ENGINE_TIMEOUT
            return refusal(self._project)
        except ConfigError as error:
            return RefusalError(str(error))
        except RefusalError as error:
            return error

    def _look_at_folders(self) -> Config:
        if self._stack.standalone:
            folders = dict.fromkeys([os.environ.get("HOME", ""), str(self.project)])
            return Config(tuple(_folder({"source": each, "target": "", "readonly": False}) for each in folders if each))
        try:
            config = self._project.config
        except (ConfigError, RefusalError) as error:
            return Config(error=str(error))
        mounts = [mount for mount in (config.workspace_mount, *config.mounts) if mount and mount["type"] == "bind"]
        looked = []
        for mount in mounts:
            silent = Folder(mount["source"], mount["target"], bool(mount["readonly"]), "silent", False)
            looked.append(Background(lambda mount=mount: _folder(mount), SHORT_TIMEOUT - 0.5, silent))
        return Config(tuple(each.value for each in looked))

    @cached_property
    def config(self) -> Config:
        return self._folders.value or Config(error="devcontainer.json could not be read in time")

    @property
    def merge(self) -> Merge:
        return self._merge.value

    def _look_at_merge(self) -> Merge:
        if self._stack.standalone:
            return Merge()
        listed = run(["git", "-C", str(self.project), "ls-files", "--unmerged", "-z", "."], SHORT_TIMEOUT - 0.5).out
        unmerged = {line.partition("\t")[2] for line in listed.split("\0") if line}
        marked, rejected = _merge_leftovers(self.project)
        return Merge(tuple(sorted(unmerged.union(marked))), rejected)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """The project's containers: those that launch labelled, and VS Code's."""
        listing = [self.engine_name, "ps", "--all", "--quiet", "--filter"]
        names: set[str] = set()
        for label in (f"gpukit.project={self.project}", f"devcontainer.local_folder={self.project}"):
            names.update(run([*listing, f"label={label}"], LONG_TIMEOUT).out.split())
        if not names:
            return ()
        return tuple(containers(run([self.engine_name, "inspect", *sorted(names)], LONG_TIMEOUT).out))

    @cached_property
    def inside(self) -> Result | None:
        """nvidia-smi's output in a running container of this project with the GPU; None if there is none."""
        running = next((each for each in self.containers if each.running and each.gpu), None)
        return run([self.engine_name, "exec", running.name, "nvidia-smi", "-L"], ENGINE_TIMEOUT) if running else None

    @cached_property
    def built(self) -> bool:
        """Whether an image of this project exists: one that launch labelled, or that of VS Code's container."""
        image = [self.engine_name, "image", "ls", "--quiet", "--filter", f"label=gpukit.project={self.project}"]
        return bool(self.containers) or bool(run(image, LONG_TIMEOUT).out.strip())

    @cached_property
    def native_folders(self) -> list[str]:
        """Where the native environment and uv's cache are, or the nearest folders that exist."""
        folders = (uv.environments(self._project.env), uv.cache(self._project.env))
        return [str(next(path for path in (folder, *folder.parents) if path.exists())) for folder in folders]

    @cached_property
    def created(self) -> bool:
        """Whether the project has a native environment."""
        return any(uv.environments(self._project.env).glob(f"{self._project.name}-*/stamp.json"))

    def free_gb(self, folder: str) -> float | None:
        """Free space on the disk of a folder; None if unknown."""
        return Background(lambda: shutil.disk_usage(folder).free / 1e9, SHORT_TIMEOUT, None).value


def containers(text: str) -> Iterable[Container]:
    """Parse the output of `docker inspect`."""
    try:
        found = json.loads(text)
    except ValueError:
        return
    for each in found:
        host = each.get("HostConfig") or {}
        config = each.get("Config") or {}
        visible = any(one.startswith("NVIDIA_VISIBLE_DEVICES=") for one in config.get("Env") or [])
        by_runtime = visible and host.get("Runtime") == "nvidia"
        by_podman = any(podman.DEVICE in word for word in config.get("CreateCommand") or [])
        running = bool((each.get("State") or {}).get("Running"))
        gpu = bool(host.get("DeviceRequests")) or by_podman or by_runtime
        yield Container(str(each.get("Name", "")).lstrip("/"), running, gpu)


TEMPLATE_FOLDERS = ("", ".devcontainer", ".devcontainer/cpu", ".github/workflows", ".vscode", "cluster")
ADOPTED_FOLDERS = tuple(dict.fromkeys(str(Path(path).parent) for path in ADOPTED.values()))


def _merge_leftovers(project: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Files with conflict markers, and .rej files, in the folders that the template writes to."""
    marked = []
    rejected = []
    for folder in ADOPTED_FOLDERS if is_adopted(project) else TEMPLATE_FOLDERS:
        try:
            paths = sorted((project / folder).iterdir())
        except OSError:
            continue
        for path in paths:
            if path.suffix == ".rej":
                rejected.append(str(path.relative_to(project)))
                continue
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size < 200_000:
                    data = path.read_bytes()
                    if re.search(rb"^<<<<<<< .*$", data, re.MULTILINE) and re.search(rb"^>>>>>>> ", data, re.MULTILINE):
                        marked.append(str(path.relative_to(project)))
    return tuple(marked), tuple(rejected)


def _folder(mount: Mapping[str, Any]) -> Folder:
    source = mount["source"]
    read_only = bool(mount["readonly"])
    path = Path(source)
    if path.is_dir():
        kind = "folder"
        usable = os.access(source, os.R_OK | os.X_OK | (0 if read_only else os.W_OK))
    elif path.is_symlink() and not path.exists():
        kind = "dangling"
        usable = False
    elif path.exists():
        kind = "file"
        usable = os.access(source, os.R_OK if read_only else os.R_OK | os.W_OK)
    else:
        above = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
        kind = "missing"
        usable = above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    return Folder(source, mount["target"], read_only, kind, usable)
