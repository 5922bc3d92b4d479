"""Batches that depend only on the seed and the step, their loader, and why it fails.

    order = Order(len(dataset), batch_size=256, seed=0, first_step=1000)     # continues at step 1000
    batches = loader(dataset, 256, seed=0, first_step=1000, loading=Loading(workers=2))

The step is the state: the samples of a batch are computed from the seed and the step, and the random numbers of a
sample from the epoch's key and its index (exactrun.data). So are those of the parts of several ranks.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from exactrun.data import Collated, DataError, Keyed
from exactrun.seeds import ORDER, mix
from exactrun.workers import begin, signals_later
from gpukit.errors.signs import named
from gpukit.findings.causes import PROJECT, cause, worded

EMPTY = "The data set is empty."
# The cause of a failure to load data, by the sign that matches its text; the first one that does counts.
CAUSES = {
    "open-files": "open-files",
    **dict.fromkeys(("shared-memory", "shared-object", "shared-object-gone", "bus-error"), "shared-memory"),
    "worker-killed": "host-memory-full",
    "worker-crashed": "library-crashed",
    **dict.fromkeys(("worker-gone", "worker-ended"), "worker-crashed"),
    "worker-slow": "loader-timeout",
    "fork-after-cuda": "cuda-after-fork",
    "not-picklable": "not-picklable",
}
SIGNS = {sign.id: sign for sign in named(*CAUSES, "worker-raised")}


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


def explain(error: BaseException) -> str | None:
    """Why the data loader failed, and the remedy; None for any other error, such as the data set's own.

    Use this for every error that the loop raises: torch reports the death of a worker by a signal, during a step.
    """
    if (id := failure(error)) is None:
        return None
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    found = cause(id)
    why, remedy = (worded(each, PROJECT) for each in (found.why, found.remedy))
    return f"Loading data failed ({text[:160]}). {why} {remedy}"


def stays(error: BaseException) -> bool:
    """Whether only workers fail with this error, so that loading in the training process may succeed."""
    return failure(error) in ("shared-memory", "cuda-after-fork", "not-picklable")


def failure(error: BaseException) -> str | None:
    """The id of the cause, if the data loader failed; None if the error is not the loader's."""
    text, each = str(error), error
    while each := each.__cause__:
        text += f"\n{each}"
    raised = SIGNS["worker-raised"].matches(text)
    if isinstance(error, MemoryError) or (raised and raised[1] == "MemoryError"):
        return "host-memory-full"
    for id in CAUSES:
        whose = "DataLoader worker" in text or not id.startswith("worker-") or id == "worker-slow"
        if whose and SIGNS[id].matches(text) and not (id == "not-picklable" and raised):
            return CAUSES[id]
    if isinstance(error, ConnectionError | EOFError | FileNotFoundError):
        frames = traceback.extract_tb(error.__traceback__)  # of the sockets through which workers send their tensors
        if any(frame.filename.endswith("torch/multiprocessing/reductions.py") for frame in frames):
            return "worker-crashed"
    return None
