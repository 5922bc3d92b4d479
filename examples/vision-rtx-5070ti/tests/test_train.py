"""The training script, on the CPU: it saves, stops when told to, and resumes as if it had never stopped."""

import json
import signal
from pathlib import Path

import pytest
import torch

from plate_reader import checkpoint
from plate_reader.config import Settings
from plate_reader.track import Tracker
from plate_reader.train import train


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def settings(folder: Path, **changes: object) -> Settings:
    short = {"name": "test", "max_steps": 10, "log_steps": 1, "batch_size": 32}
    return Settings(output_dir=folder, **short | changes)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def test_ten_steps_leave_losses_and_a_checkpoint(tmp_path: Path) -> None:
    run = train(settings(tmp_path))
    assert list(losses(run)) == list(range(1, 11))
    assert checkpoint.load(checkpoint.newest(run))["step"] == 10
    assert not list(run.glob("*.tmp"))


def test_a_resumed_run_repeats_an_unbroken_one(tmp_path: Path) -> None:
    epoch_and_a_half = {"batch_size": 1024, "max_steps": 12}
    unbroken = train(settings(tmp_path / "unbroken", **epoch_and_a_half))
    train(settings(tmp_path / "broken", **epoch_and_a_half | {"max_steps": 5}))
    resumed = train(settings(tmp_path / "broken", **epoch_and_a_half, resume=True))
    assert losses(resumed) == losses(unbroken)
    ours, theirs = (checkpoint.load(checkpoint.newest(run))["model"] for run in (resumed, unbroken))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_first(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tracker, "log", lambda self, step, **_: signal.raise_signal(number) if step == 3 else None)
    with pytest.raises(SystemExit) as stopped:
        train(settings(tmp_path, max_steps=1000))
    assert stopped.value.code == 128 + number
    assert 3 <= checkpoint.load(checkpoint.newest(tmp_path / "test"))["step"] <= 4


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path) -> None:
    train(settings(tmp_path))
    with pytest.raises(SystemExit, match="--resume"):
        train(settings(tmp_path))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_it_learns_on_the_gpu(tmp_path: Path) -> None:
    seen = losses(train(settings(tmp_path, max_steps=300, batch_size=256)))
    assert seen[300] < 0.5 * seen[1]
