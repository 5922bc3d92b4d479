"""Batches that depend only on the seed and the step, and their loader.

    order = Order(len(dataset), batch_size=256, seed=0, first_step=1000)     # continues at step 1000
    batches = loader(dataset, 256, seed=0, first_step=1000, loading=Loading(workers=2))

Nothing here has state that a checkpoint must contain: the step is the state. The samples of a batch are computed from
the seed and the step (`Order`), and the random numbers of a sample from the epoch's key and its index (`Keyed`). A
resumed run therefore sees exactly the same data as an uninterrupted one, with any number of workers or ranks.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, default_collate, get_worker_info

from gpukit.train.seeds import COLLATE, ORDER, SAMPLE, Draws, mix
from gpukit.train.seeds import numpy_generator as numpy_generator
from gpukit.train.seeds import seed_all as seed_all
from gpukit.train.seeds import seed_step as seed_step
from gpukit.train.workers import begin, signals_later
from gpukit.train.workers import explain as explain

EMPTY = "The data set is empty."


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


class Order(Sampler[list[tuple[int, int]]]):
    """Endless batches of (key, index), this rank's part of each; they depend only on the seed and the step.

    Every epoch has its own key, and contains each of `length` samples once, in `batches_per_epoch` = ceil(length /
    batch_size) batches. None is larger than `batch_size`; if the last one would be smaller than half of that, it shares
    its samples evenly with the one before, so that no rank has no sample and no BatchNorm a single one. The parts of
    all ranks together are the same batch for any number of ranks; their sizes differ by at most one.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        seed: int,
        first_step: int = 0,
        rank: int = 0,
        world: int = 1,
        shuffle: bool = True,
    ) -> None:
        if length < 1:
            raise DataError(EMPTY)
        if batch_size < 1:
            raise DataError(f"--batch-size must be at least 1, not {batch_size}.")
        self.length, self.batch_size, self.seed, self.first_step = length, batch_size, seed, first_step
        self.rank, self.world, self.shuffle = rank, world, shuffle
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
        if not self.shuffle:
            return torch.arange(self.length, dtype=kind)
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


@dataclass(frozen=True)
class Loading:
    """Loader settings. `prefetch`: batches per worker; `context`: the start method, None for Python's default."""

    workers: int = 0
    prefetch: int = 2
    pin: bool = True  # only with a CUDA device
    persistent: bool = False
    context: str | None = None
    reason: str = "as set"


def length(dataset: Dataset) -> int:
    """The number of samples; DataError if the data set is not map-style, has no length, or is empty."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise DataError(
            f"{type(dataset).__name__} can only be read from the beginning, so a run could not resume within an epoch: "
            "use a map-style data set with `__getitem__` and `__len__` (for a stream: of its shards or records)."
        )
    try:
        found = len(dataset)
    except TypeError:
        raise DataError(f"{type(dataset).__name__} has no length: define `__len__`.") from None
    if not found:
        raise DataError(EMPTY)
    return found


def loader(
    dataset: Dataset,
    batch_size: int,
    seed: int,
    *,
    first_step: int = 0,
    loading: Loading | None = None,
    ranks: Any = None,
    collate: Callable[[list[Any]], Any] | None = None,
    device: torch.device | str | None = None,
    shuffle: bool = True,
) -> DataLoader:
    """Endless batches from `first_step`: this rank's part of the `batch_size` samples of each step.

    `ranks` has `rank` and `world` (None: one process). Batches are the same for any `loading`. The workers end with the
    iterator; `explain` describes the errors that it raises.
    """
    loading = loading or Loading()
    rank, world = (ranks.rank, ranks.world) if ranks is not None else (0, 1)
    order = Order(length(dataset), batch_size, seed, first_step, rank, world, shuffle)
    worked = loading.workers > 0
    return _Loader(
        Keyed(dataset),
        batch_sampler=order,
        num_workers=loading.workers,
        collate_fn=Collated(collate),
        pin_memory=loading.pin and torch.device(device or "cpu").type == "cuda",
        worker_init_fn=begin,
        generator=torch.Generator(),  # the loader draws a seed when it starts: keep it off the global generator
        prefetch_factor=loading.prefetch if worked else None,
        persistent_workers=worked and loading.persistent,
        multiprocessing_context=loading.context if worked else None,
    )


class _Loader(DataLoader):
    def __iter__(self) -> Iterator[Any]:
        """Defer signals until all workers have started: torch loses track of workers if their start is interrupted."""
        with signals_later():
            return super().__iter__()

    def check_worker_number_rationality(self) -> None:
        """Suppress the warning about more workers than CPUs: that is right if they wait for a disk."""
