"""Counts the samples of a batch, and splits it into parts; every sample is in exactly one part.

A batch is a tensor whose first dimension is the samples, or such tensors in tuples, lists, and dicts.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten


class SplitError(Exception):
    """The samples of a batch cannot be determined; the message says where."""


def samples(batch: Any) -> int:
    """The number of samples in a batch: the length of its first tensor. SplitError if it has none."""
    for one in tree_leaves(batch):
        if isinstance(one, Tensor) and one.ndim:
            return len(one)
    raise SplitError("the number of samples cannot be determined: give tensors, in tuples, lists, and dicts")


def split(batch: Any, sizes: list[int]) -> list[Any]:
    """The batch in parts of `sizes` samples, in order; tensors are views, and numbers are in every part.

    SplitError if the length of a tensor is not the number of samples, or for other objects, such as texts and graphs.
    """
    leaves, structure = tree_flatten(batch)
    columns = [_split(one, sizes) for one in leaves]
    return [tree_unflatten([parts[number] for parts in columns], structure) for number in range(len(sizes))]


def even(total: int, most: int) -> list[int]:
    """The sizes of the fewest parts of at most `most` samples, as equal as possible: 10 by 4 is [4, 3, 3]."""
    count = max(1, -(-total // most))
    return [total // count + (number < total % count) for number in range(count)]


def _split(value: Any, sizes: list[int]) -> list[Any]:
    if isinstance(value, Tensor) and value.ndim:
        if len(value) != sum(sizes):
            raise SplitError(f"a tensor of the batch has {len(value)} rows for {sum(sizes)} samples")
        return list(value.split(sizes))
    if value is None or isinstance(value, (Tensor, bool, int, float)):
        return [value] * len(sizes)
    raise SplitError(f"the samples of a {type(value).__name__} cannot be separated: give tensors")
