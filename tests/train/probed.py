"""A training script with `Run`, as the finder starts it.

With CARD_MIB set, a stand-in takes the place of the GPU: an allocator, of which each sample takes 1 MiB.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from exactrun.run import Run
from gpukit.script import device as devices
from gpukit.script.finder import OPTION, find

MIB = 2**20


class Card:
    """A GPU with CARD_MIB of memory, of which the model takes 10."""

    taken = 0

    def __init__(self, most: int | None) -> None:
        total = int(os.environ["CARD_MIB"]) * MIB
        Card.budget = min(most or total, total)

    @classmethod
    def here(cls, most: int | None = None) -> Card:
        return cls(most)

    def peak(self) -> int:
        return Card.taken


if "CARD_MIB" in os.environ:
    devices.GpuMemory = Card


def take(count: int) -> None:
    if 10 * MIB + count > Card.budget:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
    Card.taken = 10 * MIB + count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(OPTION, default="32")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    if given.batch_size == "auto":
        given.batch_size = find()
        print("using", given.batch_size)
    torch.manual_seed(0)
    model = nn.Linear(given.width, given.width).to(given.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loader = DataLoader(TensorDataset(torch.ones(1, given.width).expand(given.samples, -1)), int(given.batch_size))
    run = Run("outputs/probed", progress=False)
    run.keep(model=model, optimizer=optimizer)
    for _ in run.epochs(range(1_000_000)):
        for _, (inputs,) in run.enumerate(loader):
            if devices.GpuMemory is Card:
                take(len(inputs) * MIB)
            loss = model(inputs.to(given.device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss=loss)
            if run.completed == given.steps:
                return


if __name__ == "__main__":
    main()
