"""Exports the model of a run, and compares it with the original: `python -m plate_reader.export --run a`."""

import math
from dataclasses import replace
from typing import Any

import timm
import torch
from gpukit.script.errors import report_errors
from gpukit.script.export import export
from torch import Tensor, nn

from .config import Settings
from .data import classes
from .model import build_model


def build(settings: Settings) -> nn.Module:
    """The model without pretrained weights: the checkpoint has its weights."""
    return build_model(replace(settings, pretrained=False))


def example(settings: Settings) -> Tensor:
    """One sample, as the model reads it."""
    return torch.zeros(3, settings.image_size, settings.image_size)


def about(settings: Settings) -> dict[str, Any]:
    """What is needed to use the model; written into the ONNX file."""
    known = timm.get_pretrained_cfg(settings.model)
    size = settings.image_size
    preprocessing = {"resize": math.ceil(size / 0.9), "crop": size, "mean": list(known.mean), "std": list(known.std)}
    return {"classes": classes(settings), **preprocessing}


if __name__ == "__main__":
    with report_errors():
        export(Settings, build, example, about, prog=f"python -m {__package__}.export")
