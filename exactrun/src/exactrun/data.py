"""Samples whose random numbers depend only on a key and their index.

Nothing here has state that a checkpoint must contain: a key stands for an epoch or a pass, and the random numbers of a
sample follow from it. A resumed run therefore sees exactly the same data as an uninterrupted one, with any number of
workers or ranks.
"""

from __future__ import annotations

import hashlib
import operator
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate, get_worker_info

from exactrun.seeds import COLLATE, SAMPLE, Draws, mix
from exactrun.seeds import numpy_generator as numpy_generator
from exactrun.seeds import seed_all as seed_all
from exactrun.workers import begin


class DataError(Exception):
    """The data cannot be loaded; the message is one sentence for the user."""


class Begin:
    """A loader's worker_init_fn: signals, the user's own function, and another one."""

    def __init__(self, own: Callable[[int], object] | None, then: Callable[[int], object] | None = None) -> None:
        self.functions = [each for each in (begin, own, then) if each is not None]

    def __call__(self, worker: int) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as signals_later does, for loaders within a stream
        for each in self.functions:
            each(worker)


class Keyed(Dataset):
    """A data set indexed by (key, index), whose samples draw the same random numbers for the same key and index.

    A key is an integer of 63 bits that stands for an epoch. Before `dataset[index]`, the generators that the data set
    draws from are seeded with both (seeds.Draws): the global ones of torch, `random`, and NumPy, and those that the
    data set and its transforms hold or name in their modules. A generator that a sample creates itself cannot be seeded
    here (use `numpy_generator`), nor can the operating system's.

    A DataLoader fetches batches with `__getitems__`. The data set's own is used as long as no sample draws. All other
    attributes are the data set's.
    """

    def __init__(self, dataset: Dataset) -> None:
        vars(self).update(dataset=dataset, _draws=Draws(dataset), _process=0)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["dataset"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.dataset, name, value)  # by a `worker_init_fn`

    def __reduce__(self) -> tuple[type, tuple[Dataset]]:
        return Keyed, (self.dataset,)  # other generators stand for those that are found here

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, pair: tuple[int, Any]) -> Any:
        return self.__getitems__([pair])[0]

    def __getitems__(self, pairs: list[tuple[int, Any]]) -> Any:
        global _latest
        if self._process != os.getpid():  # one sample shows most of what is drawn, without reading a batch twice
            vars(self)["_process"] = os.getpid()
            self._read(pairs[:1])
            self._draws.find()
        _latest = pairs[:1]
        return self._read(pairs)

    def _read(self, pairs: list[tuple[int, Any]]) -> Any:
        def read(seed: Callable[[int], None]) -> Any:
            if not self._draws.drawn:
                indices = [index for _, index in pairs]
                batched = getattr(dataset, "__getitems__", None)
                return batched(indices) if batched else [dataset[index] for index in indices]
            samples, last, state = [], None, 0
            for key, index in pairs:
                if key != last:
                    last, state = key, mix(SAMPLE, key)
                seed(mix(_number(index), state=state))
                samples.append(dataset[index])
            return samples

        dataset = self.dataset
        return self._draws.call(read)


def _number(index: Any) -> int:
    """An index as a number; a sampler may also yield names, or lists of indices."""
    try:
        return operator.index(index)
    except TypeError:
        return int.from_bytes(hashlib.blake2b(repr(index).encode(), digest_size=8).digest(), "big")


_latest: list[tuple[int, Any]] = []  # the first of the batch that Keyed read last in this process


class Collated:
    """`collate` (None: torch's default) for the samples of Keyed, with seeded random numbers (for masks or mixup)."""

    def __init__(self, collate: Callable[[Any], Any] | None) -> None:
        self.collate = default_collate if collate is None else collate
        self._draws = Draws(collate)

    def __reduce__(self) -> tuple[type, tuple[Callable[[Any], Any]]]:
        return Collated, (self.collate,)

    def __call__(self, samples: Any) -> Any:
        def together(seed: Callable[[int], None]) -> Any:
            for key, index in _latest:
                seed(mix(COLLATE, key, _number(index)))
            return self.collate(samples)

        batch = self.collate(samples) if self.collate is default_collate else self._draws.call(together)
        if get_worker_info() is not None:
            _share(batch)
        return batch


def _share(batch: Any) -> None:
    """Move a batch's tensors to shared memory here, so that a failure reaches the training process.

    The queue would do it in another thread, where the error is only printed, and the training process would wait for
    the batch forever.
    """
    if isinstance(batch, torch.Tensor) and batch.layout == torch.strided:
        batch.share_memory_()
    elif isinstance(batch, Mapping | list | tuple):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            _share(part)
