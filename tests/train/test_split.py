"""Batches as people's collate functions make them: counted, and split so that every sample is in exactly one part."""

from __future__ import annotations

from collections import UserDict, namedtuple
from typing import Any

import numpy
import pytest
import torch

from exactrun.fits import SplitError, even, samples, split

Pair = namedtuple("Pair", ["image", "label"])
X = torch.arange(24.0).view(8, 3)
Y = torch.arange(8)


@pytest.mark.parametrize(
    ("total", "most", "sizes"),
    [(10, 4, [4, 3, 3]), (8, 4, [4, 4]), (3, 8, [3]), (1, 1, [1]), (0, 1, [0]), (127, 15, [15, *[14] * 8])],
)
def test_sizes_are_few_and_even(total: int, most: int, sizes: list[int]) -> None:
    assert even(total, most) == sizes and sum(sizes) == total


@pytest.mark.parametrize(
    "batch",
    [
        X,
        (X, Y),
        [X, Y],
        Pair(X, Y),
        {"x": X, "deep": {"y": [Y, (X, Y)]}},
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_columns(batch: Any) -> None:
    assert samples(batch) == 8
    parts = split(batch, [3, 3, 2])
    assert [type(part) for part in parts] == [type(batch)] * 3
    assert torch.equal(torch.cat([leaf(part) for part in parts]), X)
    assert isinstance(batch, torch.Tensor) or leaf(batch) is X  # the batch itself is as it was


def leaf(value: Any) -> torch.Tensor:
    """The first tensor."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values())) if hasattr(value, "values") else value[0]
    return value


def test_numbers_are_in_every_part() -> None:
    batch = {"x": X, "epoch": 3, "scale": torch.tensor(2.0), "mask": None}
    parts = split(batch, [5, 3])
    assert [len(part["x"]) for part in parts] == [5, 3]
    assert all(part["epoch"] == 3 and part["scale"] == 2 and part["mask"] is None for part in parts)


@pytest.mark.parametrize("batch", [None, [], ["cat", "dog"], object(), {"scale": torch.tensor(2.0)}, UserDict(x=Y)])
def test_what_does_not_show_how_many_samples_it_holds(batch: Any) -> None:
    with pytest.raises(SplitError, match="number of samples cannot be determined"):
        samples(batch)


@pytest.mark.parametrize(
    "batch",
    [
        (torch.zeros(4, 3), torch.zeros(23, 6)),  # boxes of all pictures in one tensor, as YOLO has them
        [torch.ones(length, 2) for length in (4, 23, 1, 4, 2)],  # a list of samples, which looks like columns
    ],
    ids=["boxes", "ragged"],
)
def test_rows_that_are_no_samples_are_not_split(batch: Any) -> None:
    assert samples(batch) == 4
    with pytest.raises(SplitError, match="has 23 rows for 4 samples"):
        split(batch, [2, 2])


@pytest.mark.parametrize(
    "whole",
    [torch.nn.utils.rnn.pack_sequence([Y[:2]] * 4), numpy.zeros((4, 3)), UserDict(x=Y[:4]), list("abcd")],
    ids=type,
)
def test_objects_that_hold_tensors_are_not_repeated_in_each_part(whole: Any) -> None:
    """Such as a batch of graphs, or of texts, beside its labels."""
    assert samples((Y[:4], whole)) == 4
    with pytest.raises(SplitError, match=r"cannot be separated|8 rows for 4 samples"):
        split((Y[:4], whole), [2, 2])
