"""Batches for the loops of other libraries, which begin each epoch themselves and say which one it is."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from exactrun.data import DataError
from exactrun.passes import Order, options
from exactrun.seeds import generators, mix
from exactrun.vector_math import settle

settle()
KEPT = ("num_workers", "pin_memory", "timeout", "prefetch_factor", "persistent_workers", "multiprocessing_context")


class Epochs(Order):
    """Batches whose key follows from a seed and the epoch."""

    def __init__(self, batches: Any, seed: int) -> None:
        super().__init__(batches, True, generators(batches))
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Select the epoch of the next iteration, also in the samplers inside (DistributedSampler)."""
        self.key = mix(self.seed, epoch) >> 1
        inner = self.sampler
        while inner is not None:
            if hasattr(inner, "set_epoch"):
                inner.set_epoch(epoch)
            inner = getattr(inner, "batch_sampler", None) or getattr(inner, "sampler", None)


def keyed(loader: DataLoader, seed: int) -> dict[str, Any]:
    """The arguments of a DataLoader that gives the batches of `loader`, whose order and random numbers follow from the
    seed and the epoch; its `batch_sampler` is an Epochs.

    Raises:
        DataError: its data set is a stream, or `loader` does not make batches.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise DataError(
            f"A DataLoader of {type(loader.dataset).__name__} with batch_size={loader.batch_size} has no batches of "
            "indices, so an epoch could not be resumed: use a map-style data set with `__getitem__` and `__len__`."
        )
    kept = {name: getattr(loader, name) for name in KEPT}
    return kept | options(loader) | {"batch_sampler": Epochs(loader.batch_sampler, seed)}
