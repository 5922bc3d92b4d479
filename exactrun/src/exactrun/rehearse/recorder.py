"""In the process of the script: records every step, saves at the steps that it is given, and ends the process.

Of two `Run`s in a script, the first is recorded.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from exactrun.errors import end
from exactrun.rehearse import files, seen

STEP = "step"
BATCH = "batch"
MODULES = "modules.txt"  # the libraries that the script had imported in its first step
_runs = 0


def recorder(**settings: Any) -> Other:
    """That of the first run of this process, or of another one."""
    global _runs
    _runs += 1
    return Recorder(**settings) if _runs == 1 else Other(settings["folder"], _runs)


class Other:
    """Of a further run of the script: it is not saved, and has its own folder."""

    def __init__(self, folder: str, number: int) -> None:
        self.own = Path(folder) / f"run-{number}"

    def folder(self) -> Path:
        """The folder of the run, instead of the one that the script asks for."""
        return self.own

    def begin(self, run: Any) -> None:
        """The run exists, and its newest checkpoint is loaded."""

    def batch(self, run: Any, done: int | None) -> bool:
        """The next batch of a pass is about to be read, after `done` of them (None: the next item of `run.epochs`);
        False ends the pass."""
        return True

    def step(self, run: Any, loss: Any) -> bool:
        """A step ends; True saves it. Others are not saved."""
        return False

    def saved(self, run: Any) -> None:
        """A step is saved."""


class Recorder(Other):
    """Records a run in `folder`/run; its steps are written to `out`, of each rank.

    `steps`: after so many, the process ends. `saves`: the steps that are saved. `kill`: the one after whose save the
    process is killed; 0: none. `most`: batches of a pass, after which it is cut short; 0: it is not.
    """

    def __init__(self, folder: str, out: str, steps: int, saves: list[int], kill: int = 0, most: int = 0) -> None:
        super().__init__(folder, 1)
        self.out = out
        self.steps = steps
        self.saves = saves
        self.kill = kill
        self.most = most

    def begin(self, run: Any) -> None:
        self.file = Path(f"{self.out}.{run.ranks.rank}").open("ab")  # noqa: SIM115 (until the process ends)
        register_optimizer_step_post_hook(lambda *_: files.begin())  # a `while` reads no batch

    def batch(self, run: Any, done: int | None) -> bool:
        files.begin()
        if done is not None:
            self.write(run, BATCH, done)
        return done is None or not self.most or done < self.most

    def step(self, run: Any, loss: Any) -> bool:
        files.begin()
        done = getattr(run._loops[-1].batches, "done", None) if run._loops else None
        self.write(run, STEP, done, seen.plain(loss, True) if loss is not None else "None", run.settled)
        if run.ranks.main and run.completed == 1:
            libraries = [name for name, one in list(sys.modules.items()) if seen.library(one)]
            (self.own.parent / MODULES).write_text("\n".join(libraries), encoding="utf-8")
        if run.completed >= self.steps:
            self.end(run)
        return run.completed in self.saves

    def saved(self, run: Any) -> None:
        if self.kill and run.completed >= self.kill:
            run.check_saved()
            run.ranks.barrier()
            self.file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self, run: Any) -> None:
        run.ranks.barrier()
        self.file.flush()
        end(0)

    def write(self, run: Any, kind: str, done: int | None, loss: str = "", settled: bool = True) -> None:
        frame = sys._getframe(1)
        with torch.no_grad():
            row = {"kind": kind, "step": run.completed, "done": done, "variables": seen.variables(run, frame)}
            if kind == STEP:
                row |= {"loss": loss, "settled": settled, "generators": seen.generators(), "kept": seen.kept(run)}
        pickle.dump(row, self.file)
        self.file.flush()
