"""Lightning's Trainer with exact resume.

    exact = ExactResume("outputs/x", every=100)
    trainer = Trainer(callbacks=[exact])
    trainer.fit(model, exact.loader(loader))      # resumes from the newest valid checkpoint, if there is one

A run that was killed gives the same losses, weights, optimizers, and schedulers as an uninterrupted one, bit by bit:
also in the middle of an epoch, with dropout, random augmentation, validation in between, and any number of workers.

- `loader` gives the batches of a DataLoader; the order of an epoch, and the numbers that its samples draw, follow from
  the seed and the epoch.
- A checkpoint (checkpoint.py) is saved before a batch, when validation, schedulers, and callbacks have finished the one
  before. It contains what Lightning's own contains, except hyperparameters, and the states of the generators.

Not covered: strategies that shard the model, combined loaders, streams, and means of an epoch that is interrupted
(`self.log(..., on_epoch=True)` in training, which Lightning does not save). With accumulation, a checkpoint waits for
the optimizer's step.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError:
    from pytorch_lightning import Callback, LightningModule, Trainer

from exactrun import checkpoint
from exactrun.adapters.epochs import keyed
from exactrun.errors import TrainingError
from exactrun.ranks import Ranks
from exactrun.state import generators_now, restored, set_generators, values

TENSORS = "state_dict"
KEPT = "exactrun"
LEFT_OUT = re.compile("(datamodule_)?(hparams_name|hyper_parameters)|hparams_type")


class ExactResume(Callback):
    """Saves a checkpoint in `folder` every `every` optimizer steps and at the end, and resumes from the newest one.

    `keep`: number of newest checkpoints to keep. `seed`: determines the order of the data and the numbers that its
    samples draw.

    Raises:
        CheckpointError: from `fit`, if checkpoints exist but none can be used, or another process trains in `folder`.
    """

    def __init__(self, folder: str | Path, every: int = 200, keep: int = 3, seed: int = 0) -> None:
        self.folder = Path(folder)
        self.every = every
        self.keep = keep
        self.seed = seed
        self.saved = 0  # the step of the newest checkpoint
        self.batches: Loader | None = None
        self.kept: dict[str, Any] = {}  # to be restored before the next batch

    def loader(self, loader: DataLoader) -> Loader:
        """The batches of `loader`, which must make batches from a map-style data set."""
        self.batches = Loader(loader, self.seed)
        return self.batches

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the newest checkpoint."""
        if self.batches is None:  # made by `train_dataloader` of a DataModule or the model, which was not asked yet
            trainer.fit_loop.setup_data()
        if self.batches is None:
            raise TrainingError(
                "ExactResume needs the data too: trainer.fit(model, exact.loader(loader)), or exact.loader(...) as the "
                "result of train_dataloader."
            )
        self.ranks = Ranks.joined()
        self.batches.trainer = trainer
        self.batches.order.rank = trainer.global_rank
        self.batches.order.world = trainer.world_size
        found = checkpoint.newest(self.folder, about=self._about(trainer))
        if found is None:
            return
        for message in [*found.passed_over, f"Resuming from {found.path}."]:
            if trainer.is_global_zero:
                print(message, file=sys.stderr, flush=True)
        self.saved = found.step
        state = dict(found.state)
        self.kept = state.pop(KEPT)
        self.batches.order.first = self.kept["batches"]
        trainer.num_sanity_val_steps = 0  # the run has passed it before, and may be finished
        connector = trainer._checkpoint_connector
        connector._loaded_checkpoint = {**state, TENSORS: found.weights}  # the Trainer restores the loops from it
        connector.restore_datamodule()
        connector.restore_model()
        connector.restore_callbacks()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Save if it is time, or restore the generators and metrics as they were here."""
        if self.kept:
            trainer.fit_loop.restarting = False  # otherwise a ReduceLROnPlateau makes no step after this epoch
            self._restore_rest(trainer)
        due = trainer.global_step // self.every > self.saved // self.every
        if due and batch_idx % trainer.accumulate_grad_batches == 0:
            self._save(trainer, batch_idx)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the last step."""
        if trainer.global_step > self.saved:
            done = trainer.fit_loop.epoch_loop.batch_progress.current.completed
            self._save(trainer, done if done < trainer.num_training_batches else 0, ended=True)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """After a run that was killed after its last step, what follows `fit` draws and reads the same."""
        if self.kept:
            self._restore_rest(trainer)

    def _restore_rest(self, trainer: Trainer) -> None:
        trainer._logger_connector._callback_metrics.update(self.kept["metrics"])  # for schedulers and callbacks
        set_generators(restored(self.kept["generators"][trainer.global_rank]))
        self.kept = {}

    def _about(self, trainer: Trainer) -> dict[str, Any]:
        return {
            "samples": len(self.batches.dataset),
            "batches of an epoch": len(self.batches.order),
            "processes": trainer.world_size,
            "accumulate_grad_batches": trainer.accumulate_grad_batches,
            "seed": self.seed,
        }

    def _save(self, trainer: Trainer, batches: int, ended: bool = False) -> None:
        """Save the state before the batch with this number. `ended`: after an epoch, not in it."""
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        loops = state["loops"]["fit_loop"]
        progress = loops["epoch_loop.batch_progress"]
        progress["is_last_batch"] = False
        progress["current"] |= dict.fromkeys(progress["current"], batches)
        progress["total"]["ready"] = progress["total"]["completed"]  # this batch has not begun
        if ended and batches:  # max_steps or a callback ended it within an epoch, which the Trainer counts as complete
            for each in (loops["epoch_progress"]["total"], loops["epoch_progress"]["current"]):
                each |= {name: each[name] - 1 for name in ("processed", "completed")}
        generators = self.ranks.gather(generators_now())
        weights = {name: one for name, one in state.pop(TENSORS).items() if isinstance(one, torch.Tensor)}
        state = {name: one for name, one in state.items() if not LEFT_OUT.fullmatch(name)}
        metrics = {name: one.detach().clone() for name, one in trainer.callback_metrics.items()}
        state[KEPT] = {"generators": values(generators, "the generators"), "batches": batches, "metrics": metrics}
        self.saved = trainer.global_step
        if trainer.is_global_zero:
            checkpoint.save(self.folder, self.saved, weights, state, about=self._about(trainer), keep=self.keep)
        trainer.strategy.barrier("ExactResume")


class Loader:
    """The batches of a DataLoader for one epoch after the other, this rank's share of them."""

    def __init__(self, loader: DataLoader, seed: int) -> None:
        self.options = keyed(loader, seed)
        self.dataset = loader.dataset
        self.order = self.options["batch_sampler"]
        self.trainer = None

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Any]:
        self.order.set_epoch(self.trainer.current_epoch)
        batches = iter(DataLoader(**self.options))  # when the first batch is read
        self.order.first = 0
        yield from batches
