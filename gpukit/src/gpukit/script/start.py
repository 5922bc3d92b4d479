"""How a training script starts and ends: its processes, its device, the folder of its run, and what its end reports."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from exactrun import trial
from exactrun.errors import TrainingError
from exactrun.folder import on_main
from exactrun.observer import Observer
from exactrun.ranks import Ranks
from exactrun.run import Run
from gpukit.project.stack import load
from gpukit.script import runs
from gpukit.script.device import choose, limit
from gpukit.script.settings import RunSettings
from gpukit.track import observers

OF_RUN = ("save_steps", "keep", "log_steps", "max_steps", "max_minutes", "other_processes")  # settings


@dataclass(frozen=True)
class Start:
    """What a training script is given: `device`, the number format `dtype` of autocast, which is `mixed` unless that is
    float32, the number of this process among `world`, its samples per step, the folder of the run, and the `options` of
    `Run` from the command line."""

    device: torch.device
    dtype: torch.dtype
    memory_format: torch.memory_format
    rank: int
    world: int
    batch_size: int
    folder: Path
    options: dict[str, Any]

    @property
    def mixed(self) -> bool:
        return self.dtype != torch.float32


def start(settings: RunSettings, *, scaled: bool = False) -> Start:
    """Join the processes of torchrun, choose the device, and make the folder of the run, or find the one to resume.

    `scaled`: the loop scales its loss, so that fp16 may be chosen. Sets PyTorch's options for the whole process, such
    as TF32.

    Raises:
        SystemExit, TrainingError, CheckpointError: with one sentence, if that is not possible.
    """
    on_gpu = settings.device != "cpu" and torch.cuda.is_available()
    ranks = Ranks.joined() if dist.is_initialized() else Ranks.start("cuda" if on_gpu else "cpu")
    chosen = choose(device=settings.device, dtype=settings.dtype, local_rank=ranks.local_rank, scaled=scaled)
    if chosen.device.type == "cuda":
        torch.cuda.set_device(chosen.device)
        torch.set_float32_matmul_precision("high")  # TF32, where the GPU has it
        limit(chosen.device)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    size = settings.batch_size
    if size % ranks.world:
        least = size - size % ranks.world or ranks.world
        raise TrainingError(
            f"--batch-size {size} cannot be shared evenly by {ranks.world} processes: use {least} instead."
        )
    folder = settings.output_dir  # of a rehearsal, whose `Run` takes another one
    if trial.NAME not in os.environ:
        with on_main(ranks, lambda: runs.choose(settings.output_dir, settings.name, settings.resume, load())) as run:
            folder = run.path
    options = {name: getattr(settings, name) for name in OF_RUN if hasattr(settings, name)}
    options |= {"observers": [Report(chosen.line), *observers()], "progress": True}
    return Start(
        chosen.device,
        chosen.dtype,
        chosen.memory_format,
        ranks.rank,
        ranks.world,
        size // ranks.world,
        folder,
        options,
    )


class Report(Observer):
    """Reports the device, and the settings that an earlier start of the run had differently, which it records."""

    def __init__(self, device: str) -> None:
        self.device = device

    def open(self, run: Run) -> None:
        run.say(self.device)

    def begin(self, run: Run) -> None:
        runs.record(run.files, run.settings, run.say)


def finish(run: Run) -> None:
    """Report the end of a run, and record its last metrics in run.json; or say how to continue a run that had been
    finished before."""
    if finished := runs.finished(run.files, run.completed):
        run.say(finished)
        return
    run.check_saved()
    run.files.keep(finished={"step": run.completed, **run.metrics})
    scores = "".join(f"{name.replace('_', ' ')} {value:.4g}, " for name, value in run.metrics.items())
    run.say(f"Done: step {run.completed}, {scores}in {run.folder}")
