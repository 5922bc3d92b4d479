"""What doctor looks at. Each property looks once, when it is read first; the checks only judge."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from gpukit.stack import Stack

PROJECT = Path(__file__).resolve().parents[2]
QUICK, SLOW = 4, 8  # seconds: for what only the client answers, and for what the engine or the driver does
CLIENT = ["docker", "--version"]
ENDPOINT = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
INFO = ["docker", "info", "--format", "{{json .}}"]
SERVER = ["docker", "version", "--format", "{{json .Server}}"]
CARDS = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]


@dataclass(frozen=True)
class Answer:
    """What a command said. `code` is None where there is no such command, or it did not answer in time."""

    code: int | None
    out: str = ""
    err: str = ""
    late: bool = False


@dataclass(frozen=True)
class Grant:
    """What came of asking the engine for the GPU. `granted` is None where it could not be asked, or did not tell."""

    granted: bool | None
    seen: str
    cause: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Folder:
    """A mount's source on this machine."""

    source: str
    target: str
    read_only: bool
    kind: str  # folder, file, missing, dangling (a link to nothing)
    usable: bool  # may be read, and written where the mount is writable; for a missing one: may be made


@dataclass(frozen=True)
class Config:
    """devcontainer.json as far as doctor looks at it; `error` is set where it cannot be read."""

    folders: tuple[Folder, ...] = ()
    error: str = ""


def ask(argv: list[str], timeout: float) -> Answer:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Answer(None)
    except subprocess.TimeoutExpired:
        return Answer(None, err=f"no answer in {timeout:g} s", late=True)
    except OSError as error:
        return Answer(None, err=str(error))
    return Answer(done.returncode, done.stdout, done.stderr)


class Host:
    """This machine. The driver and the engine are asked at the same time: each may take seconds."""

    def __init__(self, stack: Stack, project: Path = PROJECT) -> None:
        self.project = project
        self._stack = stack
        self._pool = ThreadPoolExecutor(3)
        self._cards, self._info, self._server = (self._pool.submit(ask, argv, SLOW) for argv in (CARDS, INFO, SERVER))

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False)

    @cached_property
    def client(self) -> Answer:
        return ask(CLIENT, QUICK)

    @cached_property
    def info(self) -> Answer:
        return self._info.result()

    @cached_property
    def server(self) -> Answer:
        return self._server.result()

    @cached_property
    def endpoint(self) -> str:
        """Where the client finds the engine: unix://..., tcp://..., ssh://...; empty where it does not say."""
        return ask(ENDPOINT, QUICK).out.strip()

    @cached_property
    def cards(self) -> Answer:
        return self._cards.result()

    @cached_property
    def system(self) -> str:
        """linux, wsl, macos or windows."""
        if sys.platform == "darwin":
            return "macos"
        if sys.platform == "win32":
            return "windows"
        with contextlib.suppress(OSError):
            if "microsoft" in Path("/proc/sys/kernel/osrelease").read_text(encoding="utf-8").lower():
                return "wsl"
        return "linux"

    @cached_property
    def arch(self) -> str:
        """The processor, in the words of image registries."""
        machine = platform.machine().lower()
        return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)

    @cached_property
    def today(self) -> date:
        return date.today()

    @cached_property
    def _project(self) -> Any:
        # launch's own reading of devcontainer.json, imported here: it is not needed for the other probes
        from gpukit.launcher.project import Project

        return Project(self.project, os.environ)

    @cached_property
    def grant(self) -> Grant:
        """Ask the engine for the GPU as every entrance does: whatever else one looks at, this is what counts."""
        from gpukit.launcher.devcontainer import ConfigError
        from gpukit.launcher.errors import RefusalError
        from gpukit.launcher.preflight import preflight

        said = io.StringIO()
        try:
            if self._project.gpus is None:
                return Grant(None, "", "devcontainer.json asks for no GPU.")
            self._project.engine.cpu_helps = False  # the remedy here is for those who want their GPU
            with contextlib.redirect_stderr(said):
                preflight(self._project)
        except ConfigError as error:
            return Grant(None, "", str(error))
        except RefusalError as refusal:
            if refusal.kind not in ("gpu", "engine"):
                return Grant(None, "", str(refusal))
            cause, _, remedy = str(refusal).partition(": ")
            return Grant(False, "refused", f"{cause.rstrip('.')}.", remedy[:1].upper() + remedy[1:].rstrip("."))
        if said.getvalue():
            return Grant(None, "", said.getvalue())
        return Grant(True, f"GPU {self._project.gpus}")

    @cached_property
    def config(self) -> Config:
        from gpukit.launcher.devcontainer import ConfigError
        from gpukit.launcher.errors import RefusalError

        try:
            config = self._project.config
        except (ConfigError, RefusalError) as error:
            return Config(error=str(error))
        mounts = filter(None, (config.workspace_mount, *config.mounts))
        return Config(tuple(_folder(mount) for mount in mounts if mount["type"] == "bind"))

    @cached_property
    def built(self) -> bool:
        """Whether an image of this project is there: one that launch labelled, or one that VS Code's container runs."""
        image = ["docker", "image", "ls", "--quiet", "--filter", f"label=gpukit.project={self.project}"]
        container = ["docker", "ps", "--all", "--quiet", "--filter", f"label=devcontainer.local_folder={self.project}"]
        return any(ask(argv, SLOW).out.strip() for argv in (image, container))

    def free_gb(self, folder: str) -> float | None:
        """Space left on the disk that holds a folder of this machine; None where that cannot be seen."""
        try:
            return shutil.disk_usage(folder).free / 1e9
        except OSError:
            return None


def _folder(mount: Mapping[str, Any]) -> Folder:
    source, read_only = mount["source"], bool(mount["readonly"])
    path = Path(source)
    if path.is_dir():
        kind, usable = "folder", os.access(source, os.R_OK | os.X_OK | (0 if read_only else os.W_OK))
    elif path.is_symlink() and not path.exists():
        kind, usable = "dangling", False
    elif path.exists():
        kind, usable = "file", os.access(source, os.R_OK if read_only else os.R_OK | os.W_OK)
    else:
        above = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
        kind, usable = "missing", above.is_dir() and os.access(above, os.W_OK | os.X_OK)
    return Folder(source, mount["target"], read_only, kind, usable)
