"""Exact resume in the loops of other libraries: a sample of benchmarks/resume.py, and damaged checkpoints."""

from __future__ import annotations

import importlib.util
import random
import shutil
from pathlib import Path

import pytest

import tests.train.torchvision_anyway  # noqa: F401 - before transformers
from tests.train import library_loops as loops
from tests.train import trainee  # sets what the processes have imported

MISSING = [name for name in ("transformers", "accelerate", "trl") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
assert trainee.PROCESSES is loops.PROCESSES


def ended(script: loops.Script, folder: Path, workers: int, accumulate: int) -> str:
    """What it prints; it must end well."""
    loops.finished(loops.started(script, folder, workers, accumulate), folder)
    return (folder / "log").read_text()


def resumed_as_unbroken(script: loops.Script, workers: int, accumulate: int, spare: Path) -> Path:
    ended(script, spare / "whole", workers, accumulate)
    whole = loops.read(spare / "whole")
    draw = random.Random(2)
    assert loops.killed(script, spare / "killed", workers, accumulate, len(whole) - 1, draw)
    assert loops.read(spare / "killed") == whole
    return spare / "killed"


def test_hugging_face_killed_and_resumed_repeats_an_unbroken_run(tmp_path: Path) -> None:
    """In mid-epoch, with two workers and accumulation; then only whole checkpoints are used."""
    folder = resumed_as_unbroken(loops.hugging_face, 2, 2, tmp_path)
    expected = loops.read(folder)
    newest = folder / "run/checkpoint-40"
    older = folder / "run/checkpoint-35"
    assert sorted((folder / "run").glob("checkpoint-*")) == [older, newest]
    assert "Resuming from" in (folder / "log").read_text()

    (folder / "run/checkpoint-99").mkdir()  # as a program that was killed leaves it
    data = bytearray((newest / "optimizer.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (newest / "optimizer.pt").write_bytes(data)
    log = ended(loops.hugging_face, folder, 2, 2)
    assert "checkpoint-99 is skipped: manifest.json is missing." in log
    assert "checkpoint-40 is skipped: optimizer.pt has a wrong SHA-256." in log
    assert f"Resuming from {older}." in log
    assert loops.read(folder) == expected

    process = loops.started(loops.hugging_face, folder, 2, 1)
    process.join(loops.PATIENCE)
    assert process.exitcode == 1
    last = (folder / "log").read_text().splitlines()[-1]
    assert last.endswith(
        "samples per step = 8, but this run has 4: resume with the same, or start a new run in another folder."
    )


def test_a_checkpoint_that_a_kill_cut_off_is_removed_and_one_without_a_manifest_is_not(tmp_path: Path) -> None:
    from exactrun import checkpoint
    from exactrun.adapters.huggingface import ExactResume

    trainer = type("Trainer", (ExactResume,), {"_about": lambda self: {"seed": 1}})()

    def begun(step: int) -> Path:
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text("{}")
        return folder

    def cut_off(step: int) -> Path:
        folder = begun(step)
        (folder / checkpoint.MANIFEST).touch()
        return folder

    cut = cut_off(10)
    assert trainer._newest(tmp_path) is None and not cut.exists()  # the first one
    complete = cut_off(20)
    checkpoint.seal(complete, 20, {"seed": 1})
    cut = cut_off(30)
    of_others = begun(40)
    assert trainer._newest(tmp_path) == complete and not cut.exists()
    shutil.rmtree(complete)
    with pytest.raises(checkpoint.CheckpointError, match=r"checkpoint-40 is skipped: manifest\.json is missing"):
        trainer._newest(tmp_path)
    assert of_others.exists()


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="not installed: lightning")
def test_lightning_killed_and_resumed_repeats_an_unbroken_run(tmp_path: Path) -> None:
    resumed_as_unbroken(loops.lightning, 0, 2, tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="not installed: lightning")
def test_lightning_with_a_data_module_resumes_and_a_finished_run_is_only_restored(tmp_path: Path) -> None:
    import torch
    from lightning.pytorch import LightningDataModule, LightningModule, Trainer
    from torch.utils.data import DataLoader, TensorDataset

    from exactrun.adapters.lightning import ExactResume

    counts = {"training": 0, "validation": 0}

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            counts["training"] += 1
            return self.layer(batch[0]).mean()

        def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
            counts["validation"] += 1
            self.log("validations", float(counts["validation"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    class Data(LightningDataModule):
        def train_dataloader(self) -> object:
            return exact.loader(DataLoader(TensorDataset(torch.zeros(8, 3)), 4))

        def val_dataloader(self) -> DataLoader:
            return DataLoader(TensorDataset(torch.zeros(8, 3)), 4)

    seen = []
    generators = []
    metrics = []
    for epochs in (2, 2, 3):
        exact = ExactResume(tmp_path, every=1)
        silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = Trainer(max_epochs=epochs, callbacks=[exact], accelerator="cpu", **silent)
        trainer.fit(Module(), datamodule=Data())
        seen.append(dict(counts))
        generators.append(torch.get_rng_state())
        metrics.append(dict(trainer.callback_metrics))
    assert torch.equal(generators[1], generators[0])
    assert metrics[1] == metrics[0] != {}
    assert [each["training"] for each in seen] == [4, 4, 6]
    assert seen[1] == seen[0] and seen[2]["validation"] == seen[1]["validation"] + 2
