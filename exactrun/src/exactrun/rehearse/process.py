"""Starts the user's script in processes that are forked from this one, which has imported PyTorch; a rank each."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import runpy
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy
import torch
import torch._dynamo  # which optimizers import
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from exactrun import trial
from exactrun.errors import end
from exactrun.rehearse import files

TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
SHORT = 60  # letters of a folder in which workers can have their sockets, whose names have at most 108
GRACE = 10.0  # seconds in which the other ranks end too
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # torch.compile's cache stays the user's: compiling takes longer than small runs
QUIET = {"WANDB_MODE": "disabled", "WANDB_SILENT": "true", "COMET_MODE": "disabled"}


class UsageError(Exception):
    """The command cannot be rehearsed; the message says why."""


@dataclass(frozen=True)
class Script:
    """A Python script or (`module`) a module, its arguments, and the number of ranks."""

    name: str
    arguments: list[str]
    module: bool = False
    ranks: int = 0

    @classmethod
    def of(cls, command: Sequence[str]) -> Script:
        """Of a command line: [python] train.py ..., [python] -m package.train ..., torchrun [options] train.py ...

        Raises:
            UsageError: it is another command.
        """
        words = list(command)
        ranks = 0
        if words and Path(words[0]).name.startswith("python"):
            words = words[1:]
            while words and words[0].startswith("-") and words[0] != "-m":
                words = words[1:]
        if words[:1] == ["-m"] and words[1:2] and words[1] in TORCHRUN:
            words = words[1:]
        if words and Path(words[0]).name in TORCHRUN:
            words, ranks = _after_torchrun(words[1:])
        module = words[:1] == ["-m"]
        words = words[module:]
        if not words:
            raise UsageError("Which script? For example: python -m exactrun rehearse -- train.py --batch-size 8")
        if words[0].endswith(".ipynb"):
            raise UsageError(
                f"{words[0]} is a notebook: write it as a script (`jupyter nbconvert --to script {words[0]}`), and "
                "rehearse that."
            )
        if not module and not Path(words[0]).is_file():
            raise UsageError(f"{words[0]} is no file here: use train.py, -m package.train, or torchrun.")
        return cls(words[0], words[1:], module, ranks)


def _after_torchrun(words: list[str]) -> tuple[list[str], int]:
    ranks = 1
    while words and words[0].startswith("-") and words[0] not in ("-m", "--module"):
        name, _, value = words.pop(0).partition("=")
        if not value and words and name not in ("--standalone", "--no-python", "--no_python"):
            value = words.pop(0)
        if name.replace("_", "-") == "--nproc-per-node":
            if not value.isdigit():
                raise UsageError(f"A rehearsal needs the number of processes, not --nproc-per-node {value}.")
            ranks = int(value)
    return (["-m", *words[1:]] if words[:1] == ["--module"] else words), ranks


@dataclass
class Life:
    """What happened to the processes of a script, from its start to its end."""

    out: str
    log: Path
    codes: list[int] = field(default_factory=list)  # of each rank; negative: of the signal that killed it
    seconds: float = 0.0

    def last_words(self, lines: int = 12) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return "\n".join(text.rstrip().splitlines()[-lines:])


def live(script: Script, scratch: Path, number: int, seed: int, settings: dict[str, Any], patience: float) -> Life:
    """Start the script, and wait until all of its processes have ended; after `patience` seconds, they are killed."""
    life = Life(str(scratch / f"rows-{number}"), scratch / f"log-{number}.txt")
    settings = settings | {"out": life.out}
    env = {trial.NAME: json.dumps(settings), **QUIET}
    if len(str(scratch)) < SHORT:
        env["TMPDIR"] = str(scratch / "tmp")
    (scratch / "tmp").mkdir(exist_ok=True)
    with contextlib.suppress(KeyError, OSError):  # the user has no name, for which older versions of PyTorch ask
        env[COMPILED] = os.environ.get(COMPILED) or default_cache_dir()
    port = _free_port()
    began = time.monotonic()
    left = dict[int, int]()
    gone, kept = os.pipe()  # the processes end with this one
    try:
        for rank in range(max(1, script.ranks)):
            if script.ranks:
                env |= {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                }
                env |= {"WORLD_SIZE": str(script.ranks), "LOCAL_WORLD_SIZE": str(script.ranks), "GROUP_RANK": "0"}
            sys.stdout.flush()
            sys.stderr.flush()
            process = os.fork()
            if not process:
                os.close(kept)
                _become(script, env, scratch, life.log, seed, gone)
            left[process] = rank
            with contextlib.suppress(OSError):
                os.setpgid(process, process)
        processes = list(left)
        codes = dict[int, int]()
        until = began + patience
        while left:
            for process in list(left):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    codes[left.pop(process)] = os.waitstatus_to_exitcode(status)
                    until = min(until, time.monotonic() + GRACE)
            if left and time.monotonic() > until:
                for process in left:
                    _kill(process)
                until += GRACE
            time.sleep(0.005)
        life.codes = [codes[rank] for rank in sorted(codes)]
        life.seconds = time.monotonic() - began
        for process in processes:  # their data loaders' workers
            _kill(process)
        return life
    finally:
        for process in left:
            _kill(process)
            os.waitpid(process, 0)
        os.close(gone)
        os.close(kept)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _become(script: Script, env: dict[str, str], scratch: Path, log: Path, seed: int, gone: int) -> NoReturn:
    """In the forked process: become the script, and end as it does."""
    code = 1
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        threading.Thread(target=_end_with, args=(gone,), daemon=True).start()
        with Path(os.devnull).open("rb") as nothing, log.open("ab") as file:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if not n else "w", closefd=False) for n in range(3))  # noqa: SIM115
        os.environ.update(env)
        tempfile.tempdir = None
        random.seed(seed)
        numpy.random.seed(seed)
        torch.manual_seed(seed)
        files.watch(scratch / "written", scratch, os.environ.get(COMPILED, scratch))
        code = _run(script)
    finally:
        end(code)


def _run(script: Script) -> int:
    """The exit code of the script."""
    code = 0
    try:
        if script.module:
            sys.argv = ["-m", *script.arguments]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        else:
            path = Path(script.name).absolute()
            sys.argv = [script.name, *script.arguments]
            sys.path[0] = str(path.parent)
            main = ModuleType("__main__")
            main.__file__ = str(path)
            main.__builtins__ = __builtins__
            sys.modules["__main__"] = main
            exec(compile(path.read_bytes(), str(path), "exec"), vars(main))
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
    except BaseException as error:
        sys.last_type = type(error)
        sys.last_value = error
        sys.last_traceback = error.__traceback__
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    return code


def _end_with(gone: int) -> None:
    os.read(gone, 1)
    os.killpg(0, signal.SIGKILL)
