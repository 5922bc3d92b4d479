"""Tasks for the finder's tests, which its processes import: a batch takes as much memory as the settings say."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from gpukit.train.device import Device
from gpukit.train.task import Task


@dataclass(frozen=True)
class Settings:
    """`each`: MiB that a sample takes. `wrong`: what goes wrong, with more than `most` samples."""

    each: float = 1.0
    samples: int = 10_000
    wrong: str = ""
    most: int = 0
    compile: bool = False


class Rows(Dataset):
    """Rows of one number, or of as many as their index has digits."""

    def __init__(self, count: int, ragged: bool = False) -> None:
        self.count, self.ragged = count, ragged

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(len(str(index)) if self.ragged else 1)


def build(settings: Settings, device: Device) -> Task:
    if settings.wrong == "build":
        raise ValueError("there is no such data")
    model = device.prepare(nn.Linear(1, 1))

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        if len(batch) > settings.most:
            if settings.wrong == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if settings.wrong == "launch":
                raise RuntimeError("CUDA error: invalid configuration argument")
        taken = torch.ones(int(len(batch) * settings.each * 2**18))
        return model(batch).sum() + taken.sum()

    return Task(model, torch.optim.AdamW(model.parameters()), Rows(settings.samples), loss)
