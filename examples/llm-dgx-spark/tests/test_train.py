"""The training script, on the CPU, with a tiny model: it saves, stops when told to, and goes on as if it had not."""

import json
import signal
from pathlib import Path

import pytest
import torch

from gpukit.train import checkpoint
from gpukit.train.errors import TrainingError
from gpukit.train.track import Tracker

from spark_fine_tuning.config import Settings
from spark_fine_tuning.train import only_what_matters, train
from spark_fine_tuning.trainer import Trainer


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    torch.set_num_threads(1)  # several only wait for each other where there is so little to do
    only_what_matters()
    monkeypatch.setenv("WANDB_MODE", "disabled")
    if "gpu" not in request.keywords:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def settings(folder: Path, **changes: object) -> Settings:
    """For 76 samples to train on: 10 steps are an epoch."""
    short = {"name": "test", "max_steps": 4, "log_steps": 1, "batch_size": 8, "warmup_steps": 2}
    return Settings(model="tiny", data="tiny", output_dir=folder, **short | changes)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def same(one: Path, other: Path) -> bool:
    ours, theirs = checkpoint.newest(one).weights, checkpoint.newest(other).weights
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_stopped_run_goes_on_as_if_it_had_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, over the end of an epoch, with dropout."""
    unbroken = train(settings(tmp_path / "unbroken", max_steps=12))
    log = Tracker.log

    def logged(self: Tracker, step: int, **figures: float) -> None:
        log(self, step, **figures)
        if step == 7:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as stopped:
        patched.setattr(Tracker, "log", logged)
        train(settings(tmp_path / "broken", max_steps=12))
    assert stopped.value.code == 128 + signal.SIGTERM
    resumed = train(settings(tmp_path / "broken", max_steps=12))
    assert losses(resumed) == losses(unbroken)
    assert same(resumed, unbroken)


def test_a_step_that_runs_out_of_memory_is_taken_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enough = train(settings(tmp_path / "enough", dropout=0.0))
    attempt = Trainer.attempt

    def too_much(self: Trainer, model, inputs, num_items_in_batch, most: int) -> torch.Tensor:
        loss = attempt(self, model, inputs, num_items_in_batch, most)
        if most > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return loss

    monkeypatch.setattr(Trainer, "attempt", too_much)
    little = train(settings(tmp_path / "little", dropout=0.0))
    assert losses(little) == pytest.approx(losses(enough), rel=1e-5)


def test_a_finished_run_leaves_an_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(settings(tmp_path))
    assert (run / "adapter" / "adapter_model.safetensors").exists()
    train(settings(tmp_path))
    assert "is finished" in capsys.readouterr().out


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
    seen = losses(train(settings(tmp_path, max_steps=100, lr=1e-2)))
    assert seen[100] < seen[1]
