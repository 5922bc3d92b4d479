"""Tasks for the finder's tests, which its processes import: a batch takes as much memory as the settings say.

With CARD_MIB set, a stand-in takes the place of the GPU: an allocator that counts what a batch takes.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from gpukit.script import device as devices
from gpukit.script.device import Device
from gpukit.script.task import Task

MIB = 2**20


class Card:
    """A GPU with CARD_MIB of memory, of which the model takes 10."""

    exists = staticmethod(lambda: True)
    taken = 0

    def __init__(self, device: Device, most: int | None = None) -> None:
        total = int(os.environ["CARD_MIB"]) * MIB
        self.how, Card.budget = ("as set", most) if most and most < total else ("cudaMemGetInfo", total)

    def start(self) -> None:
        Card.taken = 10 * MIB

    def peak(self) -> int:
        return Card.taken

    def works(self) -> bool:
        return True

    @classmethod
    def take(cls, count: int) -> None:
        if 10 * MIB + count > cls.budget:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        cls.taken = 10 * MIB + count


if "CARD_MIB" in os.environ:
    devices.GpuMemory = Card


@dataclass(frozen=True)
class Settings:
    """`each`: MiB that a sample takes, and `traced` of that without data. `wrong`: with more than `most` samples."""

    each: float = 1.0
    samples: int = 10_000
    wrong: str = ""
    most: int = 0
    compile: bool = False
    traced: float = 0.5


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
    if settings.wrong == "model":
        raise torch.OutOfMemoryError("CUDA out of memory.")
    if settings.wrong == "crash":
        os._exit(3)
    model = device.prepare(nn.Linear(1, 1))

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        traced = batch.device.type == "meta"
        if len(batch) > settings.most and not traced:
            if settings.wrong == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if settings.wrong == "launch":
                raise RuntimeError("CUDA error: invalid configuration argument")
        if devices.GpuMemory is Card and not traced:
            Card.take(int(len(batch) * settings.each * MIB))
            return model(batch).sum()
        seen = settings.traced if traced else 1
        taken = torch.ones(int(len(batch) * settings.each * seen * 2**18), device=batch.device)
        return model(batch).sum() + taken.sum()

    return Task(model, torch.optim.AdamW(model.parameters()), Rows(settings.samples), loss)
