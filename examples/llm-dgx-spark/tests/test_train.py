"""Tests of the training script, with a tiny model on the CPU."""

import json
import signal
from pathlib import Path

import pytest
import torch
from exactrun import TrainingError, checkpoint
from exactrun.metrics import Lines
from gpukit.script.trl import quiet

from spark_fine_tuning.config import Settings
from spark_fine_tuning.train import train


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(1)  # faster for such a small model
    quiet()
    monkeypatch.setenv("WANDB_MODE", "disabled")
    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def settings(folder: Path, **changes: object) -> Settings:
    """With 76 training samples, an epoch has 9 steps."""
    short = {"name": "test", "max_steps": 4, "log_steps": 1, "batch_size": 8, "warmup_steps": 2}
    return Settings(model="tiny", data="tiny", output_dir=folder, **short | changes)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def test_a_resumed_run_repeats_an_uninterrupted_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly, across the end of an epoch, with dropout."""
    uninterrupted = train(settings(tmp_path / "uninterrupted", max_steps=12))
    log = Lines.log

    def interrupt(self: Lines, step: int, figures: dict[str, float]) -> None:
        log(self, step, figures)
        if step == 7:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stopped:
        patched.setattr(Lines, "log", interrupt)
        train(settings(tmp_path / "interrupted", max_steps=12))
    assert stopped.value.code == 128 + signal.SIGTERM
    resumed = train(settings(tmp_path / "interrupted", max_steps=12))
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
    loss = losses(train(settings(tmp_path, max_steps=100, lr=1e-2)))
    assert loss[100] < loss[1]
