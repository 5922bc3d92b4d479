"""The same training with each library, saved and resumed as in its documentation.

    python loops.py LIBRARY FOLDER --steps 60 --workers 2 --save 10

Writes `step loss` (in hexadecimal) to FOLDER/losses.txt and, at the end, a digest of the parameters. If FOLDER contains
a checkpoint, the run resumes. The model and the data are those of a generated project on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

BATCH = 256


class Log:
    """Writes one line per loss, before the next step starts."""

    def __init__(self, folder: Path) -> None:
        self.lines = (folder / "losses.txt").open("a", buffering=1)

    def __call__(self, step: int, loss: torch.Tensor) -> None:
        self.lines.write(f"{step} {loss.item().hex()}\n")

    def end(self, model: nn.Module) -> None:
        digest = hashlib.sha256()
        for value in model.state_dict().values():
            digest.update(value.numpy().tobytes())
        self.lines.write(f"parameters {digest.hexdigest()}\n")


def stateful(task: Any, given: argparse.Namespace) -> None:
    """torchdata's StatefulDataLoader in a plain loop, which also saves the random states of the main process."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    file, log = given.folder / "state.pt", Log(given.folder)
    loader = StatefulDataLoader(task.dataset, BATCH, shuffle=True, num_workers=given.workers)
    step = 0
    if file.exists():
        state = torch.load(file, weights_only=False)
        task.model.load_state_dict(state["model"])
        task.optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        torch.set_rng_state(state["torch"])
        np.random.set_state(state["numpy"])
        random.setstate(state["random"])
        step = state["step"]
    while step < given.steps:
        for points, arm in loader:
            loss = cross_entropy(task.model(points), arm)
            task.optimizer.zero_grad()
            loss.backward()
            task.optimizer.step()
            step += 1
            if step % given.save == 0:
                state = {"model": task.model.state_dict(), "optimizer": task.optimizer.state_dict(), "step": step}
                state |= {"loader": loader.state_dict(), "torch": torch.get_rng_state()}
                state |= {"numpy": np.random.get_state(), "random": random.getstate()}
                torch.save(state, file.with_suffix(".new"))
                file.with_suffix(".new").replace(file)
            log(step, loss)
            if step == given.steps:
                break
    log.end(task.model)


def accelerate(task: Any, given: argparse.Namespace) -> None:
    """accelerate: save_state, load_state, skip_first_batches, and the seedable sampler."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration

    log = Log(given.folder)
    automatic = ProjectConfiguration(project_dir=given.folder, automatic_checkpoint_naming=True, total_limit=2)
    engine = Accelerator(
        cpu=True, project_config=automatic, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)
    )
    loader = DataLoader(task.dataset, BATCH, shuffle=True, num_workers=given.workers)
    model, optimizer, loader = engine.prepare(task.model, task.optimizer, loader)
    saved = sorted((given.folder / "checkpoints").glob("checkpoint_*"), key=lambda path: int(path.name.split("_")[1]))
    step = 0
    if saved:
        engine.load_state(str(saved[-1]))
        step = int((saved[-1] / "step").read_text())
        engine.project_configuration.iteration = int(saved[-1].name.split("_")[1]) + 1
    epoch, skip = divmod(step, len(loader))
    while step < given.steps:
        loader.set_epoch(epoch)
        for points, arm in engine.skip_first_batches(loader, skip) if skip else loader:
            loss = cross_entropy(model(points), arm)
            engine.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % given.save == 0:
                (Path(engine.save_state()) / "step").write_text(str(step))
            log(step, loss)
            if step == given.steps:
                break
        epoch, skip = epoch + 1, 0
    log.end(engine.unwrap_model(model))


class Named(Dataset):
    """Samples as dictionaries, as HF Trainer expects them."""

    def __init__(self, samples: Dataset) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        points, arm = self.samples[index]
        return {"points": points, "labels": arm}


class WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, points: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.model(points)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def hf(task: Any, given: argparse.Namespace) -> None:
    """HF Trainer with resume_from_checkpoint=True."""
    from transformers import Trainer, TrainingArguments

    log = Log(given.folder)

    class Logging(Trainer):
        def training_step(self, *arguments: Any, **options: Any) -> torch.Tensor:
            loss = super().training_step(*arguments, **options)
            log(self.state.global_step + 1, loss)
            return loss

    settings = TrainingArguments(
        output_dir=str(given.folder),
        max_steps=given.steps,
        per_device_train_batch_size=BATCH,
        save_steps=given.save,
        save_total_limit=2,
        dataloader_num_workers=given.workers,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    trainer = Logging(model=WithLoss(task.model), args=settings, train_dataset=Named(task.dataset))
    trainer.train(resume_from_checkpoint=any(given.folder.glob("checkpoint-*")))
    log.end(trainer.model)


def lightning(task: Any, given: argparse.Namespace) -> None:
    """Lightning's Trainer with ModelCheckpoint, ckpt_path and torchdata's StatefulDataLoader."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torchdata.stateful_dataloader import StatefulDataLoader

    log = Log(given.folder)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            loss = cross_entropy(self.model(batch[0]), batch[1])
            log(self.global_step + 1, loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return task.optimizer

    pl.seed_everything(0, workers=True, verbose=False)
    module = Module()
    keep = ModelCheckpoint(given.folder, every_n_train_steps=given.save, save_top_k=-1, filename="{step}")
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=given.steps,
        callbacks=[keep],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    saved = sorted(given.folder.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    loader = StatefulDataLoader(task.dataset, BATCH, shuffle=True, num_workers=given.workers)
    trainer.fit(module, loader, ckpt_path=saved[-1] if saved else None, weights_only=False)
    log.end(module.model)


LIBRARIES: dict[str, Callable[[Any, argparse.Namespace], None]] = {
    "torchdata StatefulDataLoader": stateful,
    "accelerate": accelerate,
    "HF Trainer": hf,
    "Lightning": lightning,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--package", default="bench")
    for name, default in {"steps": 60, "workers": 2, "save": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    package = given.package
    settings = importlib.import_module(f"{package}.config").Settings(batch_size=BATCH)
    from gpukit.script import device

    task = importlib.import_module(f"{package}.task").build(settings, device.choose(device="cpu"))
    LIBRARIES[given.library](task, given)


if __name__ == "__main__":
    main()
