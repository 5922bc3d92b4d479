"""How a run ends before its loops do: after its last step or minute, at its best step, and with a loss that is NaN."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from exactrun import checkpoint, metrics
from exactrun.errors import TrainingError
from exactrun.run import Run

DATA = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))


def train(folder: Path, scores: Iterator[float] | None = None, accumulate: int = 1, **options: Any) -> list[int]:
    """The steps that it makes: 5 are an epoch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    made = []
    scores = scores or count()
    with Run(folder, log_steps=1, **{"save_steps": 100, **options}) as run:
        run.keep(model=model, optimizer=optimizer)
        for _ in run.epochs(count()):
            for _, batch in run.enumerate(DataLoader(DATA, 4, shuffle=True)):
                loss = model(batch).square().mean()
                loss.backward()
                if (run.completed + 1) % accumulate == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                made.append(run.completed + 1)
                run.step(loss=loss, score=next(scores))
    return made


def losses(folder: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in metrics.read(folder)}


@pytest.mark.parametrize("first", [3, 5, 7])
def test_a_run_with_more_steps_continues_exactly(first: int, tmp_path: Path) -> None:
    """In mid-epoch, and where one ends."""
    assert train(tmp_path / "whole", max_steps=12) == [*range(1, 13)]
    assert train(tmp_path / "parts", max_steps=first) == [*range(1, first + 1)]
    assert train(tmp_path / "parts", max_steps=first) == []
    assert train(tmp_path / "parts", max_steps=12) == [*range(first + 1, 13)]
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    whole, parts = (checkpoint.newest(tmp_path / name) for name in ("whole", "parts"))
    assert whole.step == parts.step == 12
    assert all(torch.equal(parts.weights[name], whole.weights[name]) for name in whole.weights)


def test_minutes_end_a_run(tmp_path: Path) -> None:
    made = train(tmp_path, max_minutes=0.0001)
    assert checkpoint.newest(tmp_path).step == made[-1]
    assert train(tmp_path, max_steps=made[-1] + 2) == [made[-1] + 1, made[-1] + 2]


def test_accumulated_gradients_are_completed(tmp_path: Path) -> None:
    assert train(tmp_path, accumulate=3, max_steps=4) == [*range(1, 7)]
    assert checkpoint.newest(tmp_path).step == 6


def test_the_best_step_is_saved_and_no_other_gets_its_score(tmp_path: Path) -> None:
    train(tmp_path, iter([5.0, 3.0, 4.0, 6.0]), max_steps=4, best="score", keep=1)
    train(tmp_path, iter([3.5, 2.0, 9.0]), max_steps=7, best="score", keep=1)
    kept = [checkpoint.load(path) for path in sorted(tmp_path.glob("checkpoints/step-*"))]
    assert [(one.step, one.metric) for one in kept] == [(6, 2.0), (7, 9.0)]


def test_a_loss_that_is_nan_ends_it(tmp_path: Path) -> None:
    def scores() -> Iterator[float]:
        yield from (1.0, 1.0)
        DATA[:] = torch.nan
        yield from (1.0, 1.0)

    before = DATA.clone()
    try:
        with pytest.raises(TrainingError, match="the loss is NaN or infinite at step 4"):
            train(tmp_path, scores(), save_steps=1, max_steps=9)
    finally:
        DATA[:] = before
    assert checkpoint.newest(tmp_path).step == 3


def test_a_buffer_may_be_infinite_and_a_weight_may_not(tmp_path: Path) -> None:
    """As a mask of attention is."""
    model = nn.Linear(1, 1)
    model.register_buffer("mask", torch.tensor(float("-inf")))
    with Run(tmp_path, save_steps=1) as run:
        run.keep(model=model)
        run.step()
        model.weight.data.fill_(torch.inf)
        with pytest.raises(TrainingError, match="a weight of model is NaN or infinite"):
            run.step()
