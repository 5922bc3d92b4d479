"""Counts the samples of a batch, and splits it into parts; every sample is in exactly one part."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

Path = tuple[Any, ...]  # the keys and positions that lead to a value in a batch


class SplitError(Exception):
    """The samples of a batch cannot be determined; the message says where."""


class Batches:
    """The structure of a project's batches.

    A batch is a tensor whose first dimension is the samples, or such tensors in tuples, lists, and dicts. A list may
    also have one entry per sample, with different shapes. Two tensors in a list can therefore be two columns or two
    samples. DataLoader's default collate never returns a list of samples that contain tensors. A custom `collate` is
    called with two and with three copies of dataset[0]: the lists that grow are lists of samples. So is the default for
    batches that are not just columns, such as lists of texts.
    """

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self.dataset, self.collate = dataset, collate
        self.lists: frozenset[Path] | None = None  # the paths of lists of samples; None: not tried yet

    def samples(self, batch: Any) -> int:
        """The number of samples in the batch; 0 if it is None or empty. SplitError if it cannot be determined."""
        length = _rows(batch)
        if length is not None and not (self.collate is not None and isinstance(batch, list)):
            return length
        if _empty(batch):
            return 0
        if self.lists is None:
            self.lists = self._tried()
        count = _count(batch, (), self.lists)
        if count is None:
            raise SplitError(f"the number of samples in this {type(batch).__name__} cannot be determined")
        return count

    def split(self, batch: Any, sizes: list[int]) -> list[Any]:
        """The batch in parts of `sizes` samples, in order; tensors are views.

        Values that are neither tensors nor containers are in every part. SplitError if the length of a tensor is not
        the number of samples, or for other objects that hold tensors, such as graphs.
        """
        return _split(batch, (), self.lists or frozenset(), sizes)

    def _tried(self) -> frozenset[Path]:
        try:
            sample = self.dataset[0]
            collate = self.collate or default_collate
            return frozenset(_growing(collate([sample] * 2), collate([sample] * 3), ()))
        except Exception:  # it rejects copies of one sample
            return frozenset()


def even(total: int, most: int, least: int = 1, count: int = 1) -> list[int]:
    """The sizes of the fewest parts of at most `most` samples, as equal as possible: 10 by 4 is [4, 3, 3].

    There are at least `count`. No part is smaller than `least`, even if others then exceed `most`: 5 by 2 with `least`
    2 is [3, 2].
    """
    count = max(1, min(max(count, -(-total // most)), total // least))
    return [total // count + (number < total % count) for number in range(count)]


def _rows(batch: Any) -> int | None:
    """The length of a tensor, or of all tensors of a flat batch; None for others. Fast: each step waits for it."""
    if type(batch) is Tensor:
        return batch.shape[0]
    length = None
    if isinstance(batch, (list, tuple, dict)):
        for column in batch.values() if isinstance(batch, dict) else batch:
            if type(column) is not Tensor or not column.ndim or length not in (None, column.shape[0]):
                return None
            length = column.shape[0]
    return length


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or any(_holds_tensors(child) for _, child in _children(value))


def _empty(value: Any) -> bool:
    container = isinstance(value, (Mapping, list, tuple))
    return value is None or (container and all(_empty(child) for _, child in _children(value)))


def _growing(two: Any, three: Any, path: Path) -> Iterator[Path]:
    if isinstance(two, (list, tuple)) and (len(two), len(three)) == (2, 3):
        yield path
    elif isinstance(two, (list, tuple, Mapping)) and len(two) == len(three):
        for (key, one), (_, other) in zip(_children(two), _children(three), strict=True):
            yield from _growing(one, other, (*path, key))


def _count(value: Any, path: Path, lists: frozenset[Path]) -> int | None:
    if isinstance(value, Tensor):
        return len(value) if value.ndim else None
    if path in lists:
        return len(value)
    counts = (_count(child, (*path, key), lists) for key, child in _children(value))
    return next((count for count in counts if count is not None), None)


def _split(value: Any, path: Path, lists: frozenset[Path], sizes: list[int]) -> list[Any]:
    total = sum(sizes)
    if isinstance(value, Tensor) and value.ndim:
        if len(value) != total:
            place = "".join(f"[{key!r}]" for key in path)
            raise SplitError(f"batch{place} has {len(value)} rows for {total} samples")
        return list(value.split(sizes))
    if isinstance(value, (list, tuple)):
        columns = any(len(one) > len(path) and one[: len(path)] == path for one in lists)
        if path in lists or (len(value) == total and not columns and not _holds_tensors(value)):
            starts = [sum(sizes[:number]) for number in range(len(sizes))]
            return [value[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    if not isinstance(value, (Tensor, Mapping)) and (hasattr(value, "to") or getattr(value, "shape", ())):
        raise SplitError(f"the samples of a {type(value).__name__} cannot be separated")
    children = [(key, _split(child, (*path, key), lists, sizes)) for key, child in _children(value)]
    return [_with(value, {key: parts[number] for key, parts in children}) for number in range(len(sizes))]


def _with(value: Any, children: dict[Any, Any]) -> Any:
    """A container of the same type with these children."""
    if isinstance(value, MutableMapping):
        clone = copy.copy(value)
        clone.update(children)
        return clone
    if isinstance(value, Mapping):
        return children
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*children.values())
    return type(value)(children.values()) if isinstance(value, (list, tuple)) else value
