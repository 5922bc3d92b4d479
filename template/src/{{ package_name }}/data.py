"""The data: two spirals in the plane, made from a seed, and batches that come in the same order after a resume."""

import math
from collections.abc import Iterator

import torch
from torch.utils.data import Sampler, TensorDataset


def spirals(count: int, seed: int) -> TensorDataset:
    """`count` points, each with the arm it lies on: 0 or 1."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.arange(count) % 2
    radius = torch.rand(count, generator=random).sqrt()
    angle = radius * 3 * math.pi + arm * math.pi
    points = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    return TensorDataset(points + 0.02 * torch.randn(count, 2, generator=random), arm)


class Batches(Sampler[list[int]]):
    """Endless shuffled batches of indices. The order depends on seed and step alone, so a run can start at any step."""

    def __init__(self, size: int, batch_size: int, seed: int, first_step: int = 0) -> None:
        if batch_size > size:
            raise SystemExit(f"--batch-size {batch_size} is more than the {size} samples there are.")
        self.size, self.batch_size, self.seed, self.first_step = size, batch_size, seed, first_step

    def __iter__(self) -> Iterator[list[int]]:
        epoch, skip = divmod(self.first_step, self.size // self.batch_size)
        while True:
            random = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(self.size, generator=random)
            batches = order[: self.size - self.size % self.batch_size].view(-1, self.batch_size)
            for batch in batches[skip:]:
                yield batch.tolist()
            epoch, skip = epoch + 1, 0
