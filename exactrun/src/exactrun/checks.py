"""Checks of what an exact resume rests on: batches that are the same again, and schedulers that are kept."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from exactrun.seeds import walk


def digest(batch: Any) -> int:
    """A checksum of a few numbers and words from each part of a batch."""
    return zlib.crc32(repr(_few(batch)).encode())


def _few(value: Any) -> Any:
    if isinstance(value, (Tensor, numpy.ndarray)):
        if isinstance(value, Tensor) and (value.layout != torch.strided or value.device.type != "cpu"):
            return value.shape
        flat = value.reshape(-1)
        return value.shape, flat[:: max(1, len(flat) // 64)].tolist()
    if isinstance(value, Mapping):
        return [(key, _few(value[key])) for key in list(value)[:64]]
    if isinstance(value, (list, tuple)):
        return len(value), [_few(each) for each in value[:: max(1, len(value) // 16)]]
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return value[:256] if isinstance(value, (str, bytes)) else type(value).__name__


def missing(objects: Mapping[str, Any]) -> str:
    """A sentence if a scheduler of a kept optimizer is not kept; otherwise nothing."""
    # asked of the type: an object that looks up any name, as wandb's summary, can raise anything
    steppers = [one for one in walk(list(objects.values()), code=False) if hasattr(type(one), "step")]
    scheduled = {id(getattr(one, "optimizer", None)) for one in steppers}
    for name, one in objects.items():
        if not isinstance(one, torch.optim.Optimizer):
            continue
        inner = getattr(one, "optimizer", one)  # accelerate wraps it
        if getattr(inner.step, "_wrapped_by_lr_sched", False) and not {id(one), id(inner)} & scheduled:
            text = f"`{name}` has a scheduler that is not kept, so a resumed run starts it from its beginning"
            return f"{text}: use `run.keep(scheduler=...)`."
    return ""
