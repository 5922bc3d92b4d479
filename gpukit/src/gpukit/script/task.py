"""A task: model, optimizer, data, and loss as one value, for the training loop, the finder, and the tuner."""

from __future__ import annotations

import importlib
import inspect
import sys
import time
import typing
from collections.abc import Callable, Iterable, Mapping
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
    """What to train; built by `build(settings, device)` of the project.

    `model`: from `device.prepare`. `dataset`: map-style, with a length; dataset[index] is one sample. `loss(model,
    batch)`: the batch is on the device; returns the loss as a 0-d tensor, or a tuple of it and metrics. `reduction`: it
    is the "sum" of the losses over the valid targets (not their mean, so that the losses of parts can be added), or
    their "mean". `targets(batch)`: the number of valid targets in a batch (before it is moved to the device); None: one
    per sample. `collate`: as in DataLoader; None: its default. `scheduler`: stepped after each optimizer step, without
    arguments.
    """

    model: nn.Module
    optimizer: Optimizer
    dataset: Dataset
    loss: Callable[[nn.Module, Any], Tensor | tuple[Tensor, Any]]
    targets: Callable[[Any], float] | None = None
    collate: Callable[[list[Any]], Any] | None = None
    scheduler: LRScheduler | None = None
    reduction: str = "sum"

    def __post_init__(self) -> None:
        if self.reduction not in ("sum", "mean"):
            raise ValueError(f'reduction must be "sum" or "mean", not {self.reduction!r}')


def scale_lr(factor: float, *objects: Any) -> None:
    """Multiply the learning rates of these optimizers and schedulers by `factor`, including future ones.

    Nested schedulers are included; objects of other types are ignored.
    """
    left = list(objects)
    while left:
        one = left.pop()
        if isinstance(one, Optimizer):
            for group in one.param_groups:
                for name in ("lr", "initial_lr"):
                    if name in group:
                        group[name] = group[name] * factor
        elif isinstance(one, LRScheduler):
            left += getattr(one, "_schedulers", [])  # SequentialLR and ChainedScheduler
            if hasattr(one, "base_lrs"):
                one.base_lrs = [lr * factor for lr in one.base_lrs]


def largest_samples(task: Task, among: int = 64, seconds: float = 5.0) -> list[Any]:
    """The largest of up to `among` samples, evenly spaced in the data set, read in about `seconds`.

    Samples are padded to the longest of their batch, so that a batch of these takes the most memory. If the data set
    has larger ones elsewhere, `Step` splits their batches.
    """
    total, samples, since = len(task.dataset), [], time.monotonic()
    for number in range(min(total, among)):
        samples.append(task.dataset[number * total // min(total, among)])
        if time.monotonic() - since > seconds and number >= 2:
            break
    sizes = [_size(sample) for sample in samples]
    return [each for each, size in zip(samples, sizes, strict=True) if size == max(sizes)]


def _size(sample: Any) -> int:
    """Bytes of tensors and arrays, and lengths of texts and of lists of numbers."""
    if hasattr(sample, "nbytes"):
        return sample.nbytes
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        return _size(list(sample.values()))
    return sum(map(_size, sample)) if isinstance(sample, Iterable) else 1


def load_task(spec: str | None, arguments: list[str]) -> tuple[Callable[..., Task], Any]:
    """The function that builds a task, and its settings from command-line arguments.

    `spec`: "package.module:function"; None: `<package>.train:build` of the project. The class of the settings is the
    annotation of the function's first parameter. Raises SystemExit with one sentence if one of them is missing.
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
            raise  # an import in the module failed: the traceback shows which
        raise SystemExit(f"There is no module {module_name!r}: set --task to package.module:function.") from None
    build = getattr(module, name, None)
    if not callable(build):
        raise SystemExit(f"{module_name} has no function {name!r}: set --task to package.module:function.")
    return build, _settings(spec, build, arguments)


def _package() -> str:
    try:
        return load().package
    except StackError as error:
        raise SystemExit(f"{error}: set --task to package.module:function.") from None


def _settings(spec: str, build: Callable[..., Task], arguments: list[str]) -> Any:
    import tyro

    first = next(iter(inspect.signature(build).parameters), None)
    kind = typing.get_type_hints(build).get(first)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise SystemExit(
            f"{spec} must annotate its settings with a dataclass: `def build(settings: Settings, device: Device)`."
        )
    return tyro.cli(kind, args=arguments)
