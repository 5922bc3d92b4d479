"""Batches as people's collate functions make them: counted, and split so that every sample is in exactly one part."""

from __future__ import annotations

from collections import UserDict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import default_collate

from exactrun.parts import Batches, SplitError, even

Pair = namedtuple("Pair", ["image", "label"])
X, Y = torch.arange(24.0).view(8, 3), torch.arange(8)


def batches(*dataset: Any, collate: Any = None) -> Batches:
    return Batches(list(dataset), collate)


@pytest.mark.parametrize(
    ("total", "most", "least", "sizes"),
    [
        (10, 4, 1, [4, 3, 3]),
        (8, 4, 1, [4, 4]),
        (3, 8, 1, [3]),
        (1, 1, 1, [1]),
        (5, 2, 2, [3, 2]),
        (3, 2, 2, [3]),
        (1, 2, 2, [1]),
        (127, 15, 1, [15, 14, 14, 14, 14, 14, 14, 14, 14]),
    ],
)
def test_sizes_are_few_and_even(total: int, most: int, least: int, sizes: list[int]):
    assert even(total, most, least) == sizes and sum(sizes) == total


@pytest.mark.parametrize(
    "batch",
    [
        X,
        (X, Y),
        [X, Y],
        Pair(X, Y),
        {"x": X, "deep": {"y": [Y, (X, Y)]}},
        UserDict({"x": X, "y": Y}),
        MappingProxyType({"x": X}),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_columns(batch: Any):
    made = batches()
    assert made.samples(batch) == 8
    parts = made.split(batch, [3, 3, 2])
    assert [type(part) for part in parts] == [dict if isinstance(batch, MappingProxyType) else type(batch)] * 3
    assert torch.equal(torch.cat([leaf(part) for part in parts]), X)
    assert isinstance(batch, torch.Tensor) or leaf(batch) is X  # the batch itself is as it was


def leaf(value: Any) -> torch.Tensor:
    """The first tensor."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values())) if hasattr(value, "values") else value[0]
    return value


def test_what_is_no_tensor():
    batch = {"x": X, "names": list("abcdefgh"), "classes": ["cat", "dog"], "epoch": 3, "scale": torch.tensor(2.0)}
    parts = batches().split(batch, [5, 3])
    assert [part["names"] for part in parts] == [list("abcde"), list("fgh")]
    assert all(part["classes"] == ["cat", "dog"] and part["epoch"] == 3 and part["scale"] == 2 for part in parts)


@pytest.mark.parametrize("batch", [None, [], {}, (), [[], []], {"x": None}])
def test_nothing(batch: Any):
    assert batches().samples(batch) == 0


def test_texts():
    """A data set of texts, which become tokens in the loss: DataLoader's default leaves a list of them."""
    one = batches("cat")
    assert one.samples(["cat", "dog", "cow"]) == 3
    assert one.split(["cat", "dog", "cow"], [2, 1]) == [["cat", "dog"], ["cow"]]
    pairs = batches(("question", "answer"))
    batch = default_collate([("q1", "a1"), ("q2", "a2")])  # as many columns as samples
    assert pairs.samples(batch) == 2
    assert [list(map(list, part)) for part in pairs.split(batch, [1, 1])] == [[["q1"], ["a1"]], [["q2"], ["a2"]]]
    named = batches({"text": "cat"})
    assert named.samples({"text": ["cat", "dog", "cow"]}) == 3


def test_things_that_are_no_tensors():
    """Pictures as PIL has them, and numbers, in columns that a collate of one's own made."""

    def columns(samples: Any) -> Any:
        return [list(column) for column in zip(*samples, strict=True)]

    made = batches((object(), 1), collate=columns)
    batch = columns([(object(), number) for number in range(5)])
    assert made.samples(batch) == 5
    assert [part[1] for part in made.split(batch, [3, 2])] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("batch", [object(), {"scale": torch.tensor(2.0)}, "cat"])
def test_what_does_not_show_how_many_samples_it_holds(batch: Any):
    with pytest.raises(SplitError, match=f"samples in this {type(batch).__name__}"):
        batches(0, collate=lambda samples: batch).samples(batch)


def test_ragged_lists_of_tensors():
    ragged = [torch.ones(length, 2) for length in (4, 9, 1, 4, 2)]
    made = batches(torch.ones(3, 2), collate=list)
    assert made.samples(ragged) == 5
    assert [[len(one) for one in part] for part in made.split(ragged, [2, 3])] == [[4, 9], [1, 4, 2]]
    unknown = batches()
    with pytest.raises(SplitError, match="has 9 rows for 4 samples"):
        unknown.split(ragged, [unknown.samples(ragged) - 1, 1])


def test_a_list_of_samples_is_known_by_how_it_grows():
    """Pictures of three channels: three rows in each, and any number of them."""
    pictures = batches(torch.zeros(3, 5), collate=list)
    for count in (1, 2, 3, 7):
        batch = [torch.zeros(3, 4 + number) for number in range(count)]
        assert pictures.samples(batch) == count
    assert [len(part) for part in pictures.split(batch, [4, 3])] == [4, 3]


def test_boxes_in_pictures():
    """As torchvision's detection references have it: a tuple of pictures and a tuple of dicts."""

    def columns(samples: Any) -> Any:
        return tuple(zip(*samples, strict=True))

    made = batches((torch.zeros(3, 5), {"boxes": torch.zeros(2, 4)}), collate=columns)
    batch = columns([(torch.zeros(3, 5), {"boxes": torch.zeros(3, 4)})] * 3)
    assert made.samples(batch) == 3
    first, second = made.split(batch, [2, 1])
    assert len(first[0]) == len(first[1]) == 2 and len(second[1]) == 1


def test_columns_in_a_list_from_a_collate_of_ones_own():
    views = batches((torch.zeros(4), torch.zeros(4)), collate=lambda samples: default_collate(samples))
    batch = default_collate([(torch.zeros(4), torch.zeros(4))] * 2)  # two views of two samples
    assert views.samples(batch) == 2
    assert [len(part[1]) for part in views.split(batch, [1, 1])] == [1, 1]


def test_a_collate_that_cannot_be_tried():
    tried = []

    def collate(samples: list[Any]) -> Any:
        tried.append(samples)
        raise ValueError("one of each, please")

    made = batches(torch.zeros(3), collate=collate)
    assert [made.samples([X, Y]) for _ in range(3)] == [8, 8, 8] and len(tried) == 1


def test_rows_that_are_no_samples_are_not_split():
    """Boxes of all pictures in one tensor, as YOLO has them."""
    batch = (torch.zeros(4, 3), torch.zeros(23, 6))
    assert batches().samples(batch) == 4
    with pytest.raises(SplitError, match=r"batch\[1\] has 23 rows for 4 samples"):
        batches().split(batch, [2, 2])


@pytest.mark.parametrize("whole", [torch.nn.utils.rnn.pack_sequence([Y[:2]] * 4), numpy.zeros((4, 3))], ids=type)
def test_objects_that_hold_tensors_are_not_repeated_in_each_part(whole: Any):
    """Such as a batch of graphs beside its labels."""
    assert batches().samples((Y[:4], whole)) == 4
    with pytest.raises(SplitError, match=f"samples of a {type(whole).__name__} cannot be separated"):
        batches().split((Y[:4], whole), [2, 2])
