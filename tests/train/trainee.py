"""A generated project's train.py, run in processes of its own.

They are forked from one that has PyTorch imported already: that takes seconds, and there are many.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from exactrun import metrics
from tests.ports import free_port

PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch.utils.data",
    "tyro",
    # what the use cases vision and llm need, where it is installed
    "tests.train.torchvision_anyway",
    "timm",
    "trl.trainer.sft_trainer",
    "tests.train.fsdp_on_cpu",
]
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(PRELOADED)
LIMIT = 120  # seconds


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@dataclass
class Started:
    """A process that trains; `out` and `err` are the files that it writes to."""

    process: Any
    out: Path
    err: Path

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, within: float = LIMIT) -> Ended:
        """Wait for it; after `within` seconds it is killed, and the test fails."""
        self.process.join(within)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise AssertionError(f"still running after {within} s\n{self.output()}")
        return Ended(self.process.exitcode, self.out.read_text(), self.err.read_text())

    def output(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Until something is there; the process must not end before."""
        until = time.monotonic() + LIMIT
        while not there():
            assert self.process.exitcode is None, self.output()
            assert time.monotonic() < until, self.output()
            time.sleep(0.01)


class Trainee:
    """A project that may be written into.

    `always`: arguments that every start gets; `by`: what torchrun starts, before the module's name.
    """

    def __init__(
        self,
        folder: Path,
        package: str = "my_gpu_project",
        always: tuple[str, ...] = ("--workers", "0"),
        by: str | Path = "-m",
    ) -> None:
        self.folder = folder
        self.package = package
        self.always = always
        self.by = by
        self.started: list[Any] = []
        self.source = folder / "src" / package

    def start(self, *arguments: str, module: str = "train", hold: int = 0, **environment: str) -> Started:
        """`python -m <package>.train`; after step `hold` of the run, it waits, to be killed there."""
        out, err = (self.folder.parent / f"{len(self.started)}.{name}" for name in ("out", "err"))
        words = [*(self.always if module == "train" else ()), *arguments]
        what = (self.folder, f"{self.package}.{module}", words, str(out), str(err), hold, environment)
        process = PROCESSES.Process(target=_train, args=what)
        process.start()
        for path in (out, err):
            path.touch()
        self.started.append(process)
        return Started(process, out, err)

    def killed(self, step: int, *arguments: str) -> None:
        """The run `killed`, killed after this step."""
        started = self.start(*arguments, "--name", "killed", hold=step)
        started.wait_for(lambda: step in self.losses("killed"))
        started.send(signal.SIGKILL)
        assert started.end().code == -signal.SIGKILL

    def start_two(self, *arguments: str, hold: tuple[int, int] = (0, 0)) -> list[Started]:
        """Two processes on the CPU, as torchrun starts them, which ends no process when the other one has ended."""
        given = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        arguments = (*arguments, "--device", "cpu")
        return [
            self.start(*arguments, hold=hold[rank], RANK=str(rank), LOCAL_RANK=str(rank), **given) for rank in (0, 1)
        ]

    def end(self) -> None:
        """Leave none running: a test may have failed before."""
        for process in self.started:
            process.kill()
            process.join()

    def run(self, *arguments: str, **options: Any) -> Ended:
        return self.start(*arguments, **options).end()

    def train(self, *arguments: str, **options: Any) -> str:
        """What it prints; it must end well."""
        ended = self.run(*arguments, **options)
        assert ended.code == 0, ended
        return ended.out

    def torchrun(self, *arguments: str) -> subprocess.Popen[str]:
        """Two processes on the CPU, as torchrun starts them."""
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        path = [self.folder / "src", os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            [*command, self.by, f"{self.package}.train", *self.always, "--device", "cpu", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def replace(self, name: str, old: str, new: str) -> None:
        """Change a file of its source."""
        path = self.source / name
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} in {name}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def run_folder(self, name: str) -> Path:
        return self.folder / "outputs" / name

    def losses(self, name: str) -> dict[int, float]:
        """Step -> loss; of a step that ran twice the later."""
        return {line["step"]: line["loss"] for line in metrics.read(self.run_folder(name)) if "loss" in line}

    def steps(self, name: str) -> list[int]:
        """The steps of which there are checkpoints."""
        return sorted(int(path.name[5:]) for path in self.run_folder(name).glob("checkpoints/step-*"))


def children(folder: Path) -> list[int]:
    """Processes whose working folder is this one: torchrun gives each of its workers a session of its own."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def hold_after(number: int) -> None:
    from exactrun import Run

    step = Run.step

    def held(run: Run, *values: Any, **named: Any) -> None:
        step(run, *values, **named)
        while run.completed >= number:
            time.sleep(1)

    Run.step = held


def _train(
    folder: Path,
    module: str,
    arguments: list[str],
    out: str,
    err: str,
    hold: int,
    environment: dict[str, str],
) -> None:
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    multiprocessing.set_start_method("fork", force=True)  # as it is in a process of Python's own
    os.chdir(folder)
    os.environ.update(environment)
    sys.path = [str(folder / "src"), str(folder / "fakes"), *sys.path]
    sys.argv = ["train.py", *arguments]
    if hold:
        hold_after(hold)
    import torch

    torch.set_num_threads(1)
    runpy.run_module(module, run_name="__main__")
