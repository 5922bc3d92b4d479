"""Settings of optimizers, such as the learning rate, that may change between two starts of a run; their schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from exactrun.seeds import walk

Settings = list[dict[str, Any]]  # of each group of parameters, by name


def optimizer_settings(optimizer: Optimizer) -> Settings:
    """The learning rate and all else that is a number, a text, or a tuple of these."""
    return [
        {
            name: value
            for name, value in group.items()
            if name not in ("params", "initial_lr") and isinstance(value, (bool, int, float, str, tuple))
        }
        for group in optimizer.param_groups
    ]


def changed(before: Settings, now: Settings) -> Settings:
    """The settings of `now` that are not those of `before`; none if there are other groups."""
    if len(before) != len(now):
        return []
    return [different(old, new) for old, new in zip(before, now)]


def different(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The settings of one group that are new, or have another value."""
    return {name: value for name, value in new.items() if name not in old or old[name] != value}


def in_words(groups: Settings) -> str:
    """The settings, as in "lr 0.1", once for all groups."""
    named = ((name, value) for group in groups for name, value in group.items())
    texts = (f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in named)
    return ", ".join(dict.fromkeys(texts))


def missing(objects: Mapping[str, Any]) -> str:
    """A sentence if a scheduler of a kept optimizer is not kept; otherwise nothing."""
    # asked of the type: an object that looks up any name, as wandb's summary, can raise anything
    steppers = [one for one in walk(list(objects.values()), code=False) if hasattr(type(one), "step")]
    scheduled = {id(getattr(one, "optimizer", None)) for one in steppers}
    for name, one in objects.items():
        if not isinstance(one, Optimizer):
            continue
        inner = getattr(one, "optimizer", one)  # accelerate wraps it
        if getattr(inner.step, "_wrapped_by_lr_sched", False) and not {id(one), id(inner)} & scheduled:
            text = f"`{name}` has a scheduler that is not kept, so a resumed run starts it from its beginning"
            return f"{text}: use `run.keep(scheduler=...)`."
    return ""
