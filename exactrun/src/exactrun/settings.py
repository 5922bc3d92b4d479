"""Settings of optimizers, such as the learning rate, that may change between two starts of a run."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

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
