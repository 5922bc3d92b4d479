"""Batches of a user's DataLoader, whose order and random numbers follow from a seed and the epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, Sampler

from gpukit.train.data import Collated, DataError, Keyed
from gpukit.train.seeds import ORDER, generators, mix, restore, seed_these, snapshot
from gpukit.train.workers import begin

KEPT = ("num_workers", "pin_memory", "timeout", "prefetch_factor", "persistent_workers", "multiprocessing_context")


class Batches(Sampler[list[tuple[int, Any]]]):
    """The batches of a batch sampler, as (key, index). What the sampler draws follows from the seed and the epoch: it
    draws from generators of its own or from the global ones, which keep their state.

    `first`: the batch with which the next iteration begins. Of several processes, each gets every `world`-th batch.
    """

    rank, world = 0, 1

    def __init__(self, batches: Iterable[list[Any]], seed: int) -> None:
        self.batches, self.seed = batches, seed
        self.epoch = self.first = 0

    def __len__(self) -> int:
        return len(self.batches) // self.world

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration, also in the samplers inside (DistributedSampler)."""
        self.epoch, inner = epoch, self.batches
        while inner is not None:
            if hasattr(inner, "set_epoch"):
                inner.set_epoch(epoch)
            inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        key, first, self.first = mix(self.seed, self.epoch) >> 1, self.first, 0
        outside = snapshot()
        seed_these(generators(self.batches), mix(ORDER, key))
        batches, inside = iter(self.batches), snapshot()
        for number in range(len(self) * self.world):
            restore(inside)
            batch = next(batches)
            inside = snapshot()
            restore(outside)
            if number % self.world == self.rank and number // self.world >= first:
                yield [(key, index) for index in batch]
            outside = snapshot()


def parts(loader: DataLoader, seed: int) -> tuple[Keyed, dict[str, Any]]:
    """The data set and the options of a DataLoader that gives the batches of `loader`, keyed.

    Raises:
        DataError: its data set is a stream, or `loader` does not make batches.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise DataError(
            f"A DataLoader of {type(loader.dataset).__name__} with batch_size={loader.batch_size} has no batches of "
            "indices, so an epoch could not be resumed: use a map-style data set with `__getitem__` and `__len__`."
        )
    options = {name: getattr(loader, name) for name in KEPT}
    options["worker_init_fn"] = partial(_begin, loader.worker_init_fn)
    options["generator"] = torch.Generator()  # the loader draws a seed when it starts: keep it off the global generator
    options["batch_sampler"], options["collate_fn"] = Batches(loader.batch_sampler, seed), Collated(loader.collate_fn)
    return Keyed(loader.dataset), options


def _begin(also: Any, worker: int) -> None:
    begin(worker)
    if also is not None:
        also(worker)
