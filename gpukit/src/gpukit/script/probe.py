"""The first steps of a training script, measured as its user starts it: in a process of its own, by its `Run`.

    found = measure([sys.executable, "train.py", "--batch-size", "64"])

The process has EXACTRUN_TRIAL in its environment, by which `Run` calls the Probe below at the end of each step. What
the run saves goes to a temporary folder, and the process ends with the last step that is measured; what the script
writes elsewhere before, it writes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from exactrun import trial
from exactrun.errors import OUT_OF_MEMORY, TrainingError
from gpukit.script import device as devices

WARM_UP = 2  # first steps, which compile and fill caches
STEPS = 6  # steps that are measured


@dataclass(frozen=True)
class Measured:
    """The first steps of a script.

    `samples`: of its data set; 0: not known. `peak`, `budget`: bytes of GPU memory that it took (None: none) and could
    take. `why`: they failed; `memory`: for lack of it.
    """

    steps: int = 0
    samples: int = 0
    device: str = ""
    peak: int | None = None
    budget: int | None = None
    why: str = ""
    memory: bool = False


class Probe(trial.Trial):
    """The trial. `limit`: use at most this many bytes of GPU memory."""

    def __init__(self, report: str, limit: int | None) -> None:
        self.report = Path(report)
        self.limit = limit
        self.number = self.second = 0  # the second: the peak of the first steps

    def folder(self, path: Path) -> Path:
        return self.report.parent / "run"

    def begin(self, run: Any) -> None:
        self.memory = devices.GpuMemory.here(self.limit)
        if run.ranks.main:
            self.write(Measured())
            atexit.register(self.end, run)

    def step(self, run: Any, loss: Any) -> None:
        self.number += 1
        if self.number == WARM_UP and self.memory:
            with contextlib.suppress(torch.OutOfMemoryError):  # `end` reports it
                self.second = self.memory.peak()
        if self.number == STEPS:
            if run.ranks.main:
                self.end(run)
            os._exit(0)  # nothing else of the script runs

    def end(self, run: Any) -> None:
        """Report what was measured."""
        samples = 0
        with contextlib.suppress(AttributeError, TypeError):
            samples = len(run.source.dataset)
        found = Measured(self.number, samples, str(run.progress.device))
        if self.memory:
            found = replace(found, budget=self.memory.budget)
            try:
                if last := self.memory.peak():
                    found = replace(found, peak=last + max(0, last - self.second))  # as much is added once more
            except torch.OutOfMemoryError as error:
                found = replace(found, why=str(error), memory=True)
        self.write(found)

    def write(self, found: Measured) -> None:
        spare = self.report.with_suffix(".tmp")
        spare.write_text(json.dumps(asdict(found)), encoding="utf-8")
        spare.replace(self.report)


def measure(command: list[str], *, limit: int | None = None, most: float = 3600.0) -> Measured:
    """Run the command until its first steps are measured; at most `most` seconds. `limit`: of GPU memory, in bytes.

    Raises:
        TrainingError: the script has no `Run`, or makes no step.
    """
    with tempfile.TemporaryDirectory(prefix="probe-", ignore_cleanup_errors=True) as scratch:
        report = Path(scratch) / "report.json"
        output = Path(scratch) / "output"
        settings = {"report": str(report), "limit": limit}
        environment = os.environ | {trial.NAME: f"{__name__}:Probe", trial.SETTINGS: json.dumps(settings)}
        with output.open("wb") as file:
            try:
                process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise TrainingError(f"{command[0]} cannot be started: {error.strerror}.") from None
            try:
                code = process.wait(most)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with its workers and compilers
                process.wait()
        found = Measured(**json.loads(report.read_text(encoding="utf-8"))) if report.exists() else None
        return _judged(found, code, output.read_text(encoding="utf-8", errors="replace"), command)


def _judged(found: Measured | None, code: int | None, output: str, command: list[str]) -> Measured:
    """What the process has reported, or how it ended."""
    if found and (found.why or (found.steps and code == 0)):
        return found
    if code is None:
        return Measured(why="it made too few steps in the time that was left")
    if code:
        lacking = code == -signal.SIGKILL or bool(OUT_OF_MEMORY.search(output[-20_000:]))
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "")
        said = "out of memory" if lacking else last[:200]
        return Measured(why=said if said and code > 0 else f"its process ended with {how}", memory=lacking)
    name = next((one for one in command if one.endswith(".py")), " ".join(command[1:3]))
    if not found:
        raise TrainingError(f"{name} ended without `exactrun.run.Run`, which measures its steps: use it in the script.")
    raise TrainingError(f"{name} ended without a call of `run.step`, so nothing was measured.")
