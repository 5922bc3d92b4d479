"""The training script, on the CPU: it saves, stops when told to, and goes on as if it had never stopped."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch

from gpukit.train import checkpoint
from gpukit.train.errors import TrainingError
from gpukit.train.track import Tracker

from neural_notebook.config import Settings
from neural_notebook.train import train


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(1)  # several only wait for each other where there is so little to do
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def settings(folder: Path, **changes: object) -> Settings:
    short = {"name": "test", "max_steps": 8, "log_steps": 1, "batch_size": 32, "workers": 0}
    return Settings(output_dir=folder, **short | changes)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


@pytest.fixture
def signal_at(monkeypatch: pytest.MonkeyPatch):
    """`signal_at(3, signal.SIGTERM)`: what is trained after that gets the signal while it reports step 3."""
    log = Tracker.log

    def prepare(step: int, number: signal.Signals) -> None:
        def logged(self: Tracker, at: int, **figures: float) -> None:
            log(self, at, **figures)
            if at == step:
                signal.raise_signal(number)

        monkeypatch.setattr(Tracker, "log", logged)

    return prepare


def test_a_run_leaves_losses_a_checkpoint_and_what_it_was_started_with(tmp_path: Path) -> None:
    run = train(settings(tmp_path))
    assert list(losses(run)) == list(range(1, 9))
    assert checkpoint.newest(run).step == 8
    facts = json.loads((run / "run.json").read_text())
    assert facts["settings"]["batch_size"] == 32
    assert math.isfinite(facts["finished"]["held_out_loss"])


def test_a_resumed_run_repeats_an_unbroken_one(tmp_path: Path, signal_at) -> None:
    """To the bit, over the end of an epoch, with two workers after none."""
    more_than_an_epoch = {"batch_size": 1024, "max_steps": 12}
    unbroken = train(settings(tmp_path / "unbroken", **more_than_an_epoch))
    signal_at(5, signal.SIGTERM)
    with pytest.raises(SystemExit):
        train(settings(tmp_path / "broken", **more_than_an_epoch))
    resumed = train(settings(tmp_path / "broken", **more_than_an_epoch, workers=2))
    assert losses(resumed) == losses(unbroken)
    ours, theirs = checkpoint.newest(resumed).weights, checkpoint.newest(unbroken).weights
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_first(number: signal.Signals, tmp_path: Path, signal_at) -> None:
    signal_at(3, number)
    with pytest.raises(SystemExit) as stopped:
        train(settings(tmp_path, max_steps=1000))
    assert stopped.value.code == 128 + number
    assert 3 <= checkpoint.newest(tmp_path / "test").step <= 4


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(settings(tmp_path))
    before = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    train(settings(tmp_path))
    assert "is finished" in capsys.readouterr().out
    with pytest.raises(TrainingError, match="--name"):
        train(settings(tmp_path, resume=False))
    assert {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()} == before


def test_a_loss_that_is_no_number_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    train(settings(tmp_path, max_steps=2))
    with pytest.raises(TrainingError, match="smaller --lr"):
        train(settings(tmp_path, lr=1e30))
    found = checkpoint.newest(tmp_path / "test")
    assert found.step == 2
    assert all(tensor.isfinite().all() for tensor in found.weights.values())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_it_learns_on_the_gpu(tmp_path: Path) -> None:
    seen = losses(train(settings(tmp_path, max_steps=300, batch_size=256)))
    assert seen[300] < 0.5 * seen[1]
