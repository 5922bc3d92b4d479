"""Tests of the training script, on the CPU."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch
from exactrun import TrainingError, checkpoint
from exactrun.metrics import Lines

from desk_rack.config import Settings
from desk_rack.train import train


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(1)  # faster for such a small model
    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def settings(folder: Path, **changes: object) -> Settings:
    short = {"name": "test", "max_steps": 8, "log_steps": 1, "batch_size": 32, "workers": 0}
    return Settings(output_dir=folder, **short | changes)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def test_a_run_writes_losses_a_checkpoint_and_its_settings(tmp_path: Path) -> None:
    run = train(settings(tmp_path))
    assert list(losses(run)) == list(range(1, 9))
    assert checkpoint.newest(run).step == 8
    facts = json.loads((run / "run.json").read_text())
    assert facts["settings"]["batch_size"] == 32
    assert math.isfinite(facts["finished"]["held_out_loss"])


def test_a_resumed_run_repeats_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly, across the end of an epoch, and with another number of workers."""
    more_than_an_epoch = {"batch_size": 1024, "max_steps": 12}
    uninterrupted = train(settings(tmp_path / "uninterrupted", **more_than_an_epoch))
    log = Lines.log

    def interrupt(self: Lines, step: int, figures: dict[str, float]) -> None:
        log(self, step, figures)
        if step == 5:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stopped:
        patched.setattr(Lines, "log", interrupt)
        train(settings(tmp_path / "interrupted", **more_than_an_epoch))
    assert stopped.value.code == 128 + signal.SIGTERM
    resumed = train(settings(tmp_path / "interrupted", **more_than_an_epoch, workers=2))
    assert losses(resumed) == losses(uninterrupted)
    ours = checkpoint.newest(resumed).weights
    theirs = checkpoint.newest(uninterrupted).weights
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_training_stops_if_the_loss_is_infinite(tmp_path: Path) -> None:
    train(settings(tmp_path, max_steps=2))
    with pytest.raises(TrainingError, match="smaller learning rate"):
        train(settings(tmp_path, lr=1e30))
    found = checkpoint.newest(tmp_path / "test")
    assert found.step == 2
    assert all(tensor.isfinite().all() for tensor in found.weights.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_the_loss_decreases_on_the_gpu(tmp_path: Path) -> None:
    loss = losses(train(settings(tmp_path, max_steps=300, batch_size=256)))
    assert loss[300] < 0.5 * loss[1]
