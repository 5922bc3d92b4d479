"""Batches, or samples, whose random numbers depend only on a key and an index.

Nothing here has state that a checkpoint must contain: a key stands for a pass, or for a batch of it, and the random
numbers follow from it. A resumed run therefore sees exactly the same data as an uninterrupted one, with any number of
workers.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from exactrun.seeds import COLLATE, SAMPLE, Seeds, generators, mix
from exactrun.workers import begin


class DataError(Exception):
    """The data cannot be loaded; the message is one sentence for the user."""


class Begin:
    """A loader's worker_init_fn: signals, and the user's own function."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self.own = own

    def __call__(self, worker: int) -> None:
        begin()
        if self.own is not None:
            self.own(worker)


class Batch(NamedTuple):
    """A batch that is read with one seed, its key."""

    key: int  # made with the first index too, since processes of a distributed run read others
    indices: Sequence[Any]


class Keyed(Dataset):
    """A data set whose batches draw the same random numbers each time they are read, in any process.

    A batch is a Batch: the generators are seeded once, with its key. Or it is a list of (key, index): they are seeded
    for each sample, which then draws the same in any batch; that takes 10 us or more for each. A key is an integer that
    stands for a pass or a batch. `collate` makes a batch of the samples, and may draw as well (masks, mixup). A loader
    without batches asks for (key, index).

    Seeded are the global generators of torch (CPU), `random`, and NumPy, and those that the data set, its transforms,
    and `collate` hold or name in their modules. A generator that a sample creates itself cannot be seeded here: use
    `numpy.random.default_rng(numpy.random.randint(2**63))`. All other attributes are the data set's.
    """

    def __init__(self, dataset: Dataset, collate: Callable[[Any], Any] = default_collate) -> None:
        vars(self).update(dataset=dataset, _collate=collate, _seeds=None)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.dataset, name, value)  # by a `worker_init_fn`

    def __reduce__(self) -> tuple[Any, ...]:
        return Keyed, (self.dataset, self._collate)  # other generators stand for those that are found here

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, pair: tuple[int, Any]) -> Any:
        return self._read(self._one, pair, pair[1:])

    def __getitems__(self, batch: Batch | list[tuple[int, Any]]) -> Any:
        if isinstance(batch, Batch):
            return self._read(self._batch, batch, batch.indices[:1])
        return self._read(self._samples, batch, [index for _, index in batch[:1]])

    def _one(self, pair: tuple[int, Any]) -> Any:
        return self._collate(self._sample(*pair))

    def _samples(self, pairs: list[tuple[int, Any]]) -> Any:
        samples = [self._sample(*pair) for pair in pairs]
        for key, index in pairs[:1]:
            self._seeds.seed(mix(COLLATE, key, as_number(index)))
        return self._collate(samples)

    def _sample(self, key: int, index: Any) -> Any:
        self._seeds.seed(mix(SAMPLE, key, as_number(index)))
        return self.dataset[index]

    def _batch(self, batch: Batch) -> Any:
        self._seeds.seed(batch.key)
        return self._collate(self._fetched(batch.indices))

    def _fetched(self, indices: Sequence[Any]) -> Any:
        dataset = self.dataset
        fetch = getattr(dataset, "__getitems__", None)  # a data set may set it to None, as torch allows
        return fetch(indices) if fetch else [dataset[index] for index in indices]

    def _read(self, read: Callable[[Any], Any], batch: Any, first: Sequence[Any]) -> Any:
        """The result of `read`; `first` is the first index. In a process that is not a worker, the generators keep
        their state, so that a training loop draws the same numbers with and without workers. It is done in one thread,
        as in a worker, since sums of large tensors differ in their last bits with the number of threads.
        """
        if self._seeds is None:
            self._find(first)
        if get_worker_info() is not None:
            return read(batch)
        if (threads := torch.get_num_threads()) > 1:
            torch.set_num_threads(1)
        kept = self._seeds.set_aside()
        try:
            return read(batch)
        finally:
            self._seeds.put_back(kept)
            if threads > 1:
                torch.set_num_threads(threads)

    def _find(self, first: Sequence[Any]) -> None:
        """In a process that has not read before: find the generators. The first sample may create some."""
        for _ in range(2):
            vars(self)["_seeds"] = Seeds(generators([self.dataset, self._collate]))
            with self._seeds.apart():
                self._seeds.seed(0)
                self._fetched(first)


def as_number(index: Any) -> int:
    """An index as a number; a sampler may also yield names, or lists of indices."""
    try:
        return operator.index(index)
    except TypeError:
        return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "big")


def collated(batch: Any) -> Any:
    """A loader's collate function for what Keyed returns, which is a batch already."""
    return batch
