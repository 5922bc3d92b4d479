"""A task: model, optimizer, data and loss as one value, which the loop, the finder and the tuner share."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from gpukit.project.location import root
from gpukit.project.stack import StackError, load


@dataclass
class Task:
    """What is to be trained; `build(settings, device)` of train.py makes it, and finder and tuner make it elsewhere.

    `model`: as `device.prepare` gives it. `dataset`: map-style and of a known length; dataset[index] is one sample.
    `loss(model, batch)`: the batch is on the device; the result is the *sum* (not the mean) of the losses over the
    valid targets, a 0-d tensor: sums of parts add up to the sum of the whole, means do not where parts hold unequal
    numbers of targets. `targets(batch)`: how many valid targets a batch has (before it goes to the device); None: one
    for each sample. `collate`: as DataLoader's; None: its default. `scheduler`: stepped after each optimizer step,
    without arguments.
    """

    model: nn.Module
    optimizer: Optimizer
    dataset: Dataset
    loss: Callable[[nn.Module, Any], Tensor]
    targets: Callable[[Any], int] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    scheduler: LRScheduler | None = None


def scale_lr(optimizer: Optimizer, scheduler: LRScheduler | None, factor: float) -> None:
    """Multiply learning rates by `factor`, those to come by the scheduler too; schedulers within one are reached."""
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = group[name] * factor
    left = [] if scheduler is None else [scheduler]
    while left:
        one = left.pop()
        left += getattr(one, "_schedulers", [])  # SequentialLR and ChainedScheduler
        if hasattr(one, "base_lrs"):
            one.base_lrs = [lr * factor for lr in one.base_lrs]


def load_task(spec: str | None, arguments: list[str]) -> tuple[Callable[..., Task], Any]:
    """The function that builds a task, and the settings to call it with, read from command-line arguments.

    `spec`: "package.module:function"; None: `<package>.train:build` of the project. The settings' class is the annotation of the function's first parameter. SystemExit with one sentence where
    it is not there.
    """
    spec = spec or f"{_package()}.train:build"
    module_name, _, name = spec.partition(":")
    sources = root() / "src"
    if sources.is_dir() and str(sources) not in sys.path:
        sys.path.insert(0, str(sources))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # something that the module itself needs: the traceback says what
        raise SystemExit(f"There is no module {module_name!r}: name a task as package.module:function.") from None
    build = getattr(module, name, None)
    if not callable(build):
        raise SystemExit(f"{module_name} has no function {name!r}: name a task as package.module:function.")
    return build, _settings(spec, build, arguments)


def _package() -> str:
    try:
        return load().package
    except StackError as error:
        raise SystemExit(f"{error}: name the task as package.module:function.") from None


def _settings(spec: str, build: Callable[..., Task], arguments: list[str]) -> Any:
    import tyro

    first = next(iter(inspect.signature(build).parameters), None)
    kind = typing.get_type_hints(build).get(first)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise SystemExit(
            f"{spec} must say what its settings are, as in `def build(settings: Settings, device: Device)`."
        )
    return tyro.cli(kind, args=arguments)
