"""The settings that every training script of a project has, and how they are read.

    settings = parse(Settings, prog="python -m my_project.train")

Every field is a command-line option. Those not given come from the run that is resumed, then from the class.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from exactrun.errors import TrainingError
from gpukit.project.location import located
from gpukit.script import runs

Kind = TypeVar("Kind", bound="RunSettings")


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run; a project's Settings adds its own."""

    max_steps: int = 1000
    """Stop after this many steps, counted from the beginning of the run."""
    max_minutes: float | None = None
    """Also stop after this many minutes of training, with a checkpoint; the same command then continues."""
    batch_size: int = 32
    """Samples per step, over all processes."""
    lr: float = 1e-3
    """Learning rate after the warm-up. Another one applies from the checkpoint that is resumed."""
    seed: int = 0
    """Determines the initial weights, the order of the data, its augmentation, and dropout."""

    resume: bool = True
    """Continue from the newest valid checkpoint, if there is one. no-resume: a new run, whose name ends with the time;
    that name resumes it."""
    name: str = "run"
    """Name of the run and its folder."""
    output_dir: Path = field(default_factory=lambda: located("outputs"))
    """Folder of all runs, with their checkpoints and metrics."""
    eval_steps: int = 200
    """Evaluate the model every this many steps, and in the last one."""
    save_steps: int | None = 200
    """Save a checkpoint every this many steps, and after the last one. None: as often as takes 5 % of the time."""
    keep: int = 3
    """Number of newest checkpoints to keep, in addition to the best one."""
    log_steps: int = 50
    """Report loss and speed every this many steps, and more often at first."""
    workers: int = 0
    """Data loader processes."""
    other_processes: bool = False
    """Resume a run that had another number of processes; its numbers then differ from those of an uninterrupted one."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU if PyTorch finds one. CUDA_VISIBLE_DEVICES selects among several."""
    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of the forward pass (autocast)."""
    compile: bool = False
    """Compile the model with torch.compile."""
    deterministic: bool = False
    """Use deterministic algorithms, for bit-identical results on a GPU; slower."""
    microbatch: int | None = None
    """Maximum number of samples that a process computes at once; the gradients of such parts are accumulated."""

    def __post_init__(self) -> None:
        self.at_least(1, "max_steps", "batch_size", "eval_steps", "save_steps", "log_steps", "keep", "microbatch")
        self.at_least(0, "workers")
        for name in ("lr", "clip", "max_minutes"):
            value = getattr(self, name, None)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
        if self.name in ("", ".", "..") or "/" in self.name:
            raise ValueError(f"name must be a folder name without a slash, not {self.name!r}")

    def at_least(self, least: int, *names: str) -> None:
        """ValueError if one of these settings is a smaller integer."""
        for name in names:
            value = getattr(self, name, None)
            if isinstance(value, int) and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")


def parse(kind: type[Kind], prog: str, arguments: list[str] | None = None) -> Kind:
    """The settings from the command line, and from the run that is resumed.

    Raises:
        SystemExit: an option is wrong, or --help.
        TrainingError: run.json has a value that is not possible.
    """
    import tyro

    given = tyro.cli(kind, prog=prog, args=arguments)
    known = runs.resumed(given.output_dir, given.name) if given.resume else {}
    hints = typing.get_type_hints(kind)
    found = {name: known[name] for name in hints.keys() & known.keys() - runs.OF_A_START}
    for name, value in found.items():
        if isinstance(value, str) and Path in (hints[name], *typing.get_args(hints[name])):
            found[name] = Path(value)
    try:
        return tyro.cli(kind, prog=prog, args=arguments, default=kind(**found)) if found else given
    except (TypeError, ValueError) as error:
        raise TrainingError(f"The run's run.json: {error}.") from None
