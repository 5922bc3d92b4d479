"""Endless batches for TRL's trainer (trl.py), which depend only on the seed and the step, for any number of processes.

The step is the state: the samples of a batch are computed from the seed and the step, and the random numbers of a
sample from the epoch's key and its index (exactrun.data). So are those of the parts of several ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from exactrun.data import DataError
from exactrun.seeds import ORDER, mix


class Order(Sampler[list[tuple[int, int]]]):
    """Endless batches of (key, index), this rank's part of each; they depend only on the seed and the step.

    Every epoch has its own key, and contains each of `length` samples once, in `batches_per_epoch` = ceil(length /
    batch_size) batches. None is larger than `batch_size`; if the last one would be smaller than half of that, it shares
    its samples evenly with the one before, so that no rank has no sample and no BatchNorm a single one. The parts of
    all ranks together are the same batch for any number of ranks; their sizes differ by at most one.
    """

    def __init__(
        self, length: int, batch_size: int, seed: int, first_step: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        self.length, self.batch_size, self.seed, self.first_step = length, batch_size, seed, first_step
        self.rank, self.world = rank, world
        self.batches_per_epoch = math.ceil(length / batch_size)
        last = self.batches_per_epoch - 1
        smallest = min(self._start(each + 1) - self._start(each) for each in {max(0, last - 1), last})
        if smallest < world:
            raise DataError(
                f"The smallest batch of an epoch has {smallest} samples for {world} processes: with {length} samples "
                f"in total, use --batch-size {2 * world} or more, or fewer processes."
            )

    def _start(self, position: int) -> int:
        """Where in an epoch the batch at this position begins."""
        last, left = self.batches_per_epoch - 1, self.length % self.batch_size
        if position > last:
            return self.length
        if position == last > 0 and 0 < 2 * left < self.batch_size:
            return self.length - (self.batch_size + left) // 2
        return position * self.batch_size

    def key(self, epoch: int) -> int:
        return mix(self.seed, epoch) >> 1

    def epoch(self, number: int) -> torch.Tensor:
        """All indices, (length,), in the order of that epoch: 3.4 s and 400 MB for 1e8 of them.

        NumPy's RandomState takes 4 times as long; a permutation that is computed index by index needs no memory, but
        takes as long in total, and more for small data sets.
        """
        kind = torch.int32 if self.length < 2**31 else torch.int64
        generator = torch.Generator().manual_seed(mix(ORDER, self.key(number)))
        return torch.randperm(self.length, generator=generator, dtype=kind)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch, first = divmod(self.first_step, self.batches_per_epoch)
        while True:
            key, order = self.key(epoch), self.epoch(epoch).numpy()
            for position in range(first, self.batches_per_epoch):
                start, stop = self._start(position), self._start(position + 1)
                mine = [start + (stop - start) * rank // self.world for rank in (self.rank, self.rank + 1)]
                yield [(key, index) for index in order[slice(*mine)].tolist()]
            epoch, first = epoch + 1, 0
