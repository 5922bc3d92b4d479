"""Counts the samples of a batch, and splits it into parts; every sample is in exactly one part.

A batch is a tensor whose first dimension is the samples, or such tensors and lists with one entry for each sample, in
tuples, lists, and dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


class SplitError(Exception):
    """The samples of a batch cannot be determined; the message says where."""


def samples(batch: Any) -> int:
    """The number of samples in a batch: the length of its first tensor or, without one, of its first list; 0 if it is
    None or empty. SplitError if it cannot be determined."""
    leaves = [one for one in tree_leaves(batch, is_leaf=_is_plain) if one is not None]
    for kind in (Tensor, (list, tuple)):
        for one in leaves:
            if isinstance(one, kind) and getattr(one, "ndim", 1):
                return len(one)
    if leaves:
        kinds = ", ".join(dict.fromkeys(type(one).__name__ for one in leaves))
        raise SplitError(f"the number of samples cannot be determined from {kinds}: tensors and lists in dicts show it")
    return 0


def split(batch: Any, sizes: list[int]) -> list[Any]:
    """The batch in parts of `sizes` samples, in order; tensors are views.

    Values that are neither tensors nor lists are in every part. SplitError if the length of a tensor is not the number
    of samples, or for objects that hold tensors, such as graphs, and mappings other than a dict.
    """
    leaves, structure = tree_flatten(batch, is_leaf=_is_plain)
    split = [_split(one, sizes) for one in leaves]
    return [tree_unflatten([parts[number] for parts in split], structure) for number in range(len(sizes))]


def even(total: int, most: int) -> list[int]:
    """The sizes of the fewest parts of at most `most` samples, as equal as possible: 10 by 4 is [4, 3, 3]."""
    count = max(1, -(-total // most))
    return [total // count + (number < total % count) for number in range(count)]


def _split(value: Any, sizes: list[int]) -> list[Any]:
    total = sum(sizes)
    if isinstance(value, Tensor) and value.ndim:
        if len(value) != total:
            raise SplitError(f"a tensor of the batch has {len(value)} rows for {total} samples")
        return list(value.split(sizes))
    if isinstance(value, (list, tuple)) and len(value) == total:
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        return [value[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    if isinstance(value, Mapping):
        raise SplitError(f"the samples of a {type(value).__name__} cannot be separated: give `dict(batch)` instead")
    if not isinstance(value, Tensor) and (hasattr(value, "to") or getattr(value, "shape", ())):
        raise SplitError(f"the samples of a {type(value).__name__} cannot be separated")
    return [value] * len(sizes)


def _is_plain(value: Any) -> bool:
    """Whether this is a list without a tensor, list, or dict in it, and so with one entry for each sample."""
    inside = (Tensor, dict, list, tuple)
    return isinstance(value, (list, tuple)) and bool(value) and not any(isinstance(one, inside) for one in value)
