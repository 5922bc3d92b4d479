"""Counts the samples of a batch, and splits it into parts; every sample is in exactly one part.

A batch is a tensor whose first dimension is the samples, or such tensors and lists with one entry for each sample, in
tuples, lists, and dicts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from torch import Tensor


class SplitError(Exception):
    """The samples of a batch cannot be determined; the message says where."""


def samples(batch: Any) -> int:
    """The number of samples in a batch: the length of its first tensor or, without one, of its first list; 0 if it is
    None or empty. SplitError if it cannot be determined."""
    if _empty(batch):
        return 0
    found = next((len(one) for one in _leaves(batch) if isinstance(one, Tensor) and one.ndim), None)
    found = found or next((len(one) for one in _leaves(batch) if isinstance(one, (list, tuple))), None)
    if found is None:
        raise SplitError(f"the number of samples in this {type(batch).__name__} cannot be determined")
    return found


def split(batch: Any, sizes: list[int], path: tuple[Any, ...] = ()) -> list[Any]:
    """The batch in parts of `sizes` samples, in order; tensors are views.

    Values that are neither tensors nor containers are in every part. SplitError if the length of a tensor is not the
    number of samples, or for other objects that hold tensors, such as graphs.
    """
    total = sum(sizes)
    if isinstance(batch, Tensor) and batch.ndim:
        if len(batch) != total:
            place = "".join(f"[{key!r}]" for key in path)
            raise SplitError(f"batch{place} has {len(batch)} rows for {total} samples")
        return list(batch.split(sizes))
    if isinstance(batch, (list, tuple)) and len(batch) == total and _is_plain(batch):
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        return [batch[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    if not isinstance(batch, (Tensor, Mapping)) and (hasattr(batch, "to") or getattr(batch, "shape", ())):
        raise SplitError(f"the samples of a {type(batch).__name__} cannot be separated")
    children = [(key, split(child, sizes, (*path, key))) for key, child in _children(batch)]
    return [_with(batch, {key: parts[number] for key, parts in children}) for number in range(len(sizes))]


def even(total: int, most: int) -> list[int]:
    """The sizes of the fewest parts of at most `most` samples, as equal as possible: 10 by 4 is [4, 3, 3]."""
    count = max(1, -(-total // most))
    return [total // count + (number < total % count) for number in range(count)]


def _children(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)


def _leaves(value: Any) -> Iterator[Any]:
    """Tensors, other values, and lists of plain values."""
    if not isinstance(value, (Mapping, list, tuple)) or (isinstance(value, (list, tuple)) and _is_plain(value)):
        yield value
    else:
        for _, child in _children(value):
            yield from _leaves(child)


def _is_plain(values: Any) -> bool:
    """Whether a list has no tensor, list, or dict in it, and so one entry for each sample."""
    return not any(isinstance(one, (Tensor, Mapping, list, tuple)) for one in values)


def _empty(value: Any) -> bool:
    container = isinstance(value, (Mapping, list, tuple))
    return value is None or (container and all(_empty(child) for _, child in _children(value)))


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
