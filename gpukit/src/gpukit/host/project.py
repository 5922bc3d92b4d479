"""The project: its names, its configuration, and its environment."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gpukit.host.engine import Engine, remote
from gpukit.host.memory import VARIABLE, fraction
from gpukit.host.refusals import no_gpu
from gpukit.project import devcontainer, stack
from gpukit.project.location import located, place, project_of
from gpukit.project.messages import RefusalError, say

MAIN = ".devcontainer/devcontainer.json"
CPU = ".devcontainer/cpu/devcontainer.json"
# An index, also of a MIG slice (0:1), a UUID, a name of CDI (nvidia.com/gpu=0), or another option of --gpus.
GPU = re.compile(r"all|\d+(:\d+)?|(GPU|MIG)-[\w/-]+|[\w./-]+=[\w.:-]+")


class Project:
    def __init__(self, root: Path, environ: Mapping[str, str], cpu: bool = False, gpus: str = "", dry: bool = False):
        """`root`: the project's folder, or a job's checkout: `code` is that, and `self.root` the project's folder."""
        self.root = project_of(root)
        self.code = root
        self.dry = dry
        self.sealed = ""  # what its containers are without: launch/sealed.py
        main = located(MAIN, root)
        without_gpu = located(CPU, root)
        if not main.is_file():
            raise RefusalError(f"{root} is not a generated project: it has no {main.relative_to(root)}.")
        self.given = {**environ, "GPUS": gpus} if gpus else dict(environ)
        self.chosen_gpus = gpus
        self.cpu = cpu and without_gpu.is_file()
        self.env = self.environment()
        self.config = devcontainer.load(without_gpu if self.cpu else main, self.env, self.root)
        if cpu and self.gpus is not None:
            raise RefusalError(f"This project has no {place(root, CPU)}, the configuration without a GPU.")
        self.engine = Engine(self.env, cpu_helps=not self.cpu and without_gpu.is_file(), dry=dry)
        # of its images, containers, and native environments
        self.name = f"{self.slug}-{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"
        self.tag = self.name + "-cpu" * self.cpu

    def environment(self) -> dict[str, str]:
        """The variables for starting a container: the caller's, then those in .env, then the cap on shared memory."""
        found = {**dotenv(self.located(".env")), **self.given}
        return {VARIABLE: f"{self.fraction:.2f}", **found} if self.fraction else found

    @cached_property
    def fraction(self) -> float | None:
        """The cap on PyTorch's part of memory that the CPU and the GPU share; the engine must be on this machine."""
        elsewhere = not self.given.get("DOCKER_HOST", "unix:").startswith("unix:")
        try:
            return None if self.cpu or elsewhere else fraction(self.stack)
        except RefusalError:
            return None

    @cached_property
    def stack(self) -> dict[str, Any]:
        try:
            return stack.read(located(stack.FILE, self.code))
        except stack.StackError as error:
            raise RefusalError(f"{error}.") from None

    def located(self, name: str) -> Path:
        """The path of a file that a generated project has at `name`."""
        return located(name, self.root)

    def launch(self, command: str) -> str:
        """A command to advise, with the options that this one was given."""
        options = ["--cpu"] * self.cpu + [f"--gpus {self.chosen_gpus}"] * bool(self.chosen_gpus)
        return " ".join(["./launch", *options, command])

    @property
    def slug(self) -> str:
        return self.stack.get("project") or slug(self.root.name)

    @property
    def label(self) -> str:
        return f"gpukit.project={self.root}"

    @property
    def as_root(self) -> bool:
        return os.getuid() == 0

    @property
    def gpus(self) -> str | None:
        """The requested GPUs; None for a configuration without a GPU."""
        request = " ".join(devcontainer.gpu_arguments(self.config))
        if not request:
            return None
        chosen = re.search(r"--gpus[= ]\"?(?:device=)?(.*?)\"?(?: --|$)|NVIDIA_VISIBLE_DEVICES=(\S*)", request)
        return next((group for group in chosen.groups() if group is not None), "") if chosen else "all"

    def refuse_another_gpukit(self) -> None:
        """Refuse files that Python would import instead of gpukit: a program's folder and src/ come first."""
        for folder in ("", "src", "notebooks"):
            for name in ("gpukit.py", "gpukit/__init__.py"):
                path = self.code / folder / name
                if path.is_file():
                    found = (path.parent if name.endswith("__init__.py") else path).relative_to(self.code)
                    raise RefusalError(f"Python would import {found} instead of the installed gpukit: rename {found}.")

    def prepare(self) -> None:
        """Report what is used, require a choice of GPU, and create the mount sources."""
        self.engine.argv()  # raises an error if it is not installed
        self.refuse_mistakes()
        self.gpu_is_chosen()
        ignored = [*self.config.ignored, *(f"{place}/{key}".lstrip("/") for place, key in self.config.unknown)]
        if ignored:
            say(f"launch ignores these keys, which only other tools read: {', '.join(ignored)}.")
        path = self.config.path.relative_to(self.code)
        say(f"{path}: " + ("no GPU." if self.gpus is None else f"GPUs {self.gpus} (variable GPUS)."))
        self.report_cap()
        if self.as_root:
            say("You are root, so the container runs as root too; use a regular user in the group docker if you can.")
        self.initialize()

    def refuse_mistakes(self) -> None:
        """Refuse keys and flags that do not exist: the container would start without what they ask for."""
        mistake = devcontainer.wrong(self.config)
        if mistake:
            raise RefusalError(f"{self.config.path.relative_to(self.code)}: {mistake}")

    def report_cap(self) -> None:
        """Say so where other programs leave PyTorch much less of a shared memory than usual."""
        most = self.stack.get("memory", {}).get("fraction")
        if self.fraction and most and self.fraction < 0.75 * most and self.env[VARIABLE] == f"{self.fraction:.2f}":
            say(
                f"Little of the memory that the CPU and the GPU share is free, so PyTorch may use {self.fraction:.0%} "
                f"of it, and not {most:.0%}: `./launch doctor --only memory` shows why."
            )

    def gpu_is_chosen(self) -> None:
        if self.gpus == "":
            if not self.dry and self.lacks_gpu():
                raise no_gpu()
            raise RefusalError("No GPU is chosen: set GPUS, for example `GPUS=0` or `GPUS=0,1`, or use --gpus.")
        if self.gpus and not all(GPU.fullmatch(name) for name in self.gpus.split(",")):
            raise RefusalError(f"GPUS is {self.gpus!r}: it must be `all`, indexes as in `0,1`, or the UUID of a GPU.")

    def lacks_gpu(self, native: bool = False) -> bool:
        """Whether the machine that runs its programs certainly has no GPU; `native`: without the engine."""
        from gpukit.host import facts  # only needed here, and slow

        return facts.no_gpu() and (native or not remote(self.engine.endpoint()))

    def initialize(self) -> None:
        """Run initializeCommand on the host, as VS Code does: a string by the shell, lists and objects without."""
        commands = self.config.initialize_command
        if not commands or self.dry:
            return
        env = {**self.env, "GPUKIT_ENTRANCE": "launch", "GPUKIT_ENGINE": self.engine.name}
        for command in commands.values() if isinstance(commands, dict) else [commands]:
            argv = command if isinstance(command, list) else ["/bin/sh", "-c", command]
            try:
                code = subprocess.run(argv, cwd=self.root, env=env, stdout=sys.stderr.fileno()).returncode
            except OSError as error:
                raise RefusalError(f"initializeCommand `{shlex.join(argv)}` cannot run: {error.strerror}.") from None
            if code:  # the command itself has printed the reason
                raise RefusalError(f"initializeCommand `{shlex.join(argv)}` ended with exit status {code}.")
        self.env = self.environment()  # it may have written to .env
        self.engine.env.update(self.env)

    def show(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> bool:
        """With --dry-run, print the exact command instead of running it."""
        if self.dry:
            variables = "".join(f"{name}={shlex.quote(value)} " for name, value in (env or {}).items())
            print(variables + shlex.join(self.engine.words(*arguments)) + (f" <<'END'\n{stdin}END" if stdin else ""))
        return self.dry

    def show_start(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> bool:
        """The same for commands that request GPUs: refuse what the command itself would refuse."""
        if self.dry:
            self.gpu_is_chosen()
        return self.show(*arguments, stdin=stdin, env=env)


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "project"


def dotenv(path: Path) -> dict[str, str]:
    """The KEY=VALUE lines of a .env file."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise RefusalError(f"{path} cannot be read: {error}.") from None
    found = {}
    for line in lines:
        match = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*", line)
        if match:
            value = match[2]
            quoted = re.fullmatch(r"""(["'])(.*)\1(?:\s+#.*)?""", value)
            found[match[1]] = quoted[2] if quoted else re.sub(r"(?:^|\s+)#.*", "", value)
    return found


def settings(root: Path) -> dict[str, str]:
    """The caller's variables, and those in the project's .env if it can be read."""
    with contextlib.suppress(RefusalError):
        return {**dotenv(located(".env", root)), **os.environ}
    return dict(os.environ)


def secret(path: Path) -> str:
    """The token in a file, which is created once, readable only for its user."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}-{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
        with contextlib.suppress(FileExistsError):  # of another process
            os.link(draft, path)
        draft.unlink()
    text = path.read_text(encoding="ascii")
    if text != text.strip():
        path.write_text(text.strip(), encoding="ascii")  # Jupyter takes every byte of it for the token
    return text.strip()
