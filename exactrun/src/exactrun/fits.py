"""A batch that does not fit in memory is computed again, in smaller parts.

    for attempt in fits(inputs, labels):
        with attempt:
            for share, (some, theirs) in attempt:
                (share * cross_entropy(model(some), theirs)).backward()

The gradient is that of the whole batch, except for rounding, if the loss is a mean over the samples, each of which is
computed alone. If it is a sum, it is added up without `share`; if it is a mean over something else, such as words that
are not padding, the share is the part of these.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from exactrun.errors import TrainingError, first_line, is_oom
from exactrun.state import generators_now, set_generators, unwrapped


class Fits:
    """Attempts at a batch: as a whole, and if memory runs out in forward or backward, in parts of half as many samples.

    `most`: samples at one time; it shrinks, and does not grow again. Keep the object, so that a resumed run has the
    same parts.

    A failed attempt leaves nothing behind: the gradients of `model` are cleared, and its buffers and the random
    generators are what they were before. The numbers of a run therefore depend on the size of the parts, but not on how
    far an attempt got. With dropout, parts draw other masks than the whole batch; BatchNorm sees one part at a time.
    Do not accumulate the gradients of several batches: use a larger batch.

    Raises:
        TrainingError: a single sample does not fit, or several processes train together, in which the others wait for
            the one that ran out.
        SplitError: the samples of a batch cannot be separated.
    """

    def __init__(self, model: nn.Module, most: int | None = None) -> None:
        self.model = unwrapped(model)
        self.most = most

    def __call__(self, *batch: Any) -> Iterator[Attempt]:
        """The attempts at a batch: tensors, or tuples, lists, and dicts of them, and numbers."""
        total = samples(batch)
        while True:
            sizes = even(total, self.most or total or 1)
            parts = split(batch, sizes) if len(sizes) > 1 else [batch]
            shares = [size / total for size in sizes] if total else [1.0]
            attempt = Attempt(self.model, list(zip(shares, parts)))
            yield attempt
            if attempt.failed is None:
                return
            attempt.undo()
            self._shrink(sizes[0], attempt.failed)

    def _shrink(self, size: int, why: str) -> None:
        if size == 1:
            raise TrainingError(f"Out of memory with a single sample ({why}): use a smaller model or smaller samples.")
        self.most = (size + 1) // 2
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            raise TrainingError(
                f"Out of memory with {size} samples at once ({why}): start with `Fits(model, most={self.most})`."
            )
        print(
            f"Out of memory with {size} samples at once ({why}): the batch is repeated in parts of {self.most}.",
            file=sys.stderr,
            flush=True,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"most": self.most}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The smaller of the saved number and the present one applies."""
        self.most = min(filter(None, (self.most, state["most"])), default=None)


class Attempt:
    """One attempt: iterate over it for pairs of a part's share of the batch and the part, a tuple like the batch.

    As a context manager, it ends an error that says that memory ran out. `failed`: the first line of that error.
    """

    def __init__(self, model: nn.Module, parts: list[tuple[float, tuple[Any, ...]]]) -> None:
        self.model = model
        self.parts = parts
        self.failed = None
        self.generators = generators_now()
        self.buffers = [
            (module._buffers, name, one, one.detach().clone())
            for module in model.modules()
            for name, one in module._buffers.items()
            if one is not None and name not in module._non_persistent_buffers_set
        ]

    def __iter__(self) -> Iterator[tuple[float, tuple[Any, ...]]]:
        return iter(self.parts)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: TracebackType | None) -> bool:
        if error is None or not is_oom(error):
            return False
        self.failed = first_line(error)
        return True

    @torch.no_grad()
    def undo(self) -> None:
        """Free what the attempt has allocated, and put back what it has changed."""
        for parameter in self.model.parameters():
            parameter.grad = None
        for buffers, name, one, before in self.buffers:
            buffers[name] = one  # the module may have put another tensor in its place
            one.copy_(before)
        set_generators(self.generators)
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


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
