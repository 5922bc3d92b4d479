"""transformers' Trainer, and its subclasses such as TRL's, with exact resume.

    trainer = exact(Trainer)(model=model, args=arguments, train_dataset=data)
    trainer.train()         # resumes from the newest valid checkpoint in `output_dir`, if there is one

A run that was killed gives the same losses, weights, and optimizer as an uninterrupted one, bit by bit: also in the
middle of an epoch, with dropout, random augmentation, accumulation, and any number of loader workers.

- The order of an epoch follows from the seed and the epoch; the numbers that a sample draws, from those and its index.
- The generators continue as the Trainer saves and restores them: loading data does not change them.
- A checkpoint is the Trainer's own folder `checkpoint-N`, with all that it contains. Its manifest of sizes and SHA-256,
  which is checked when it is loaded, is empty until all else is written; older checkpoints are removed only then.
- The sums that the Trainer keeps between two logged steps are saved with it, and so are stateful callbacks.
- In one process, SIGINT, SIGTERM, and SIGUSR1 end training after the step, with a checkpoint.

Not covered: data sets without indices (streams), DeepSpeed, `auto_find_batch_size`, and trainers whose samples come
from generation (GRPO). `output_dir` must be on a disk that all processes share.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.data_loader import DataLoaderShard
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import rotate_checkpoints

from exactrun import checkpoint
from exactrun.adapters.epochs import keyed
from exactrun.checkpoint import MANIFEST, CheckpointError
from exactrun.errors import TrainingError
from exactrun.folder import on_main
from exactrun.hashed import verify
from exactrun.ranks import Ranks
from exactrun.stop import StopSignals

NAME = re.compile(r"checkpoint-(\d+)")
SUMS = "sums_{}.pt"
KEPT = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_total_train_tokens")  # between two logged steps

Kind = TypeVar("Kind", bound=type[Trainer])


def exact(kind: Kind) -> Kind:
    """The Trainer class `kind` with exact resume."""
    return type(kind.__name__, (ExactResume, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


class ExactResume:
    """Put this before a Trainer in the bases of a class, or use `exact`."""

    _resumed: Path | None = None

    def train(self, resume_from_checkpoint: bool = True, *args: Any, **options: Any) -> Any:
        """Train from the newest valid checkpoint, if there is one; from the beginning, if `resume_from_checkpoint` is
        False.

        Raises:
            CheckpointError: no checkpoint can be used, or another process uses `output_dir`.
        """
        if not isinstance(resume_from_checkpoint, (bool, type(None))):
            raise TrainingError("A run continues from the newest checkpoint in `output_dir`: copy another one there.")
        settings = self.args
        if settings.save_only_model:
            raise TrainingError("save_only_model leaves out what a run needs to resume: set it to False.")
        if settings.auto_find_batch_size:
            raise TrainingError("auto_find_batch_size changes the batches of a run: set per_device_train_batch_size.")
        settings.ignore_data_skip = False
        settings.restore_callback_states_from_checkpoint = True
        run = Path(settings.output_dir)
        with contextlib.ExitStack() as open_:
            if self.is_world_process_zero():
                open_.enter_context(checkpoint.claim(run))
            resumed = None if resume_from_checkpoint is False else on_main(Ranks.joined(), lambda: self._newest(run))
            self._resumed = resumed
            stop = open_.enter_context(StopSignals() if settings.world_size == 1 else contextlib.nullcontext())
            callback = _Between(self, stop)
            self.add_callback(callback)
            try:
                result = super().train(resumed and str(resumed), *args, **options)
            finally:
                self.remove_callback(callback)
            if stop is not None and stop.number and self.state.global_step < self.state.max_steps:
                raise stop.ending()
        return result

    def get_train_dataloader(self) -> DataLoader:
        """The same batches, with an order and random numbers that follow from the seed and the epoch."""
        prepared = super().get_train_dataloader()
        if not isinstance(prepared, DataLoaderShard):
            raise TrainingError(
                "Streams and dispatch_batches are not supported, which give one process all data: use a data set with "
                "indices, and dispatch_batches=False in accelerator_config."
            )
        options = keyed(prepared.base_dataloader, self._data_seed())
        return DataLoaderShard(device=prepared.device, _non_blocking=prepared._non_blocking, **options)

    def _data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _about(self) -> dict[str, Any]:
        """What must not change between two starts of a run: name -> value."""
        return {
            "samples": len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else None,
            "samples per step": self.get_total_train_batch_size(self.args),
            "seed": self.args.seed,
            "data_seed": self._data_seed(),
            "dataloader_drop_last": self.args.dataloader_drop_last,
            "train_sampling_strategy": str(self.args.train_sampling_strategy),
        }

    # Saving and loading

    def _save_checkpoint(self, model: Any, trial: Any = None, *args: Any, **options: Any) -> None:
        """Save, then write the manifest, and then remove older checkpoints."""
        run = Path(self._get_output_dir(trial))
        path = run / f"checkpoint-{self.state.global_step}"
        limit = self.args.save_total_limit
        self.args.save_total_limit = None
        try:
            if self.is_world_process_zero():
                if path.exists():  # it is damaged, or of a run that started before
                    shutil.rmtree(path)
                path.mkdir(parents=True)
                (path / MANIFEST).touch()
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial, *args, **options)
            self.accelerator.wait_for_everyone()
            if self.is_world_process_zero():
                checkpoint.seal(path, self.state.global_step, self._about())
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be written ({error.strerror or error}): free space on the disk or set another "
                "output_dir, then resume. Earlier checkpoints are unchanged."
            ) from error
        finally:
            self.args.save_total_limit = limit
        if self.is_world_process_zero():
            # By their times: a damaged one of a later step must not be kept instead of this one.
            rotate_checkpoints(str(run), limit, self.state.best_model_checkpoint, use_mtime=True)
        self.accelerator.wait_for_everyone()

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        state = {name: getattr(self, name) for name in KEPT if hasattr(self, name)}
        metrics = getattr(self, "_metrics", None)  # TRL's, by mode
        if isinstance(metrics, dict):
            plain = {mode: {name: list(values) for name, values in one.items()} for mode, one in metrics.items()}
            state["_metrics"] = plain
        torch.save(state, Path(output_dir) / SUMS.format(self.args.process_index))

    def _restore_sums(self) -> None:
        """Restore what the Trainer has just initialized, and the generators as they were between the two steps."""
        self._load_rng_state(str(self._resumed))
        file = self._resumed / SUMS.format(self.args.process_index)
        if not file.exists():  # the checkpoint is of fewer processes
            return
        state = torch.load(file, map_location="cpu", weights_only=True)
        for mode, values in state.pop("_metrics", {}).items():
            self._metrics[mode] = defaultdict(list, values)
        for name, value in state.items():
            setattr(self, name, value.to(self.args.device) if isinstance(value, torch.Tensor) else value)

    def _newest(self, run: Path) -> Path | None:
        """The newest valid checkpoint; CheckpointError if there are only others. Removes those that a kill cut off."""
        for manifest in run.glob(f"checkpoint-*/{MANIFEST}"):
            if not manifest.stat().st_size:
                shutil.rmtree(manifest.parent)
        found = [path for path in run.glob("checkpoint-*") if NAME.fullmatch(path.name)]
        found.sort(key=lambda path: int(NAME.fullmatch(path.name)[1]), reverse=True)
        messages: list[str] = []
        newest = checkpoint.first_intact(run, found, lambda path: (path, check(path)), messages)
        for message in messages:
            print(message, file=sys.stderr, flush=True)
        if newest is None:
            return None
        path, about = newest
        checkpoint.compare(path, about, self._about())
        print(f"Resuming from {path}.", file=sys.stderr, flush=True)
        return path


class _Between(TrainerCallback):
    """Between the steps: restores what the Trainer initializes, and handles signals."""

    def __init__(self, trainer: Any, stop: StopSignals | None) -> None:
        self.trainer = trainer
        self.stop = stop

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        if self.trainer._resumed:
            self.trainer._restore_sums()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.stop is not None and self.stop.number:
            control.should_save = control.should_training_stop = True


def check(folder: Path) -> dict[str, Any]:
    """Check all files of a checkpoint; return its `about`. DamageError if one is missing or differs."""
    manifest = checkpoint.read_manifest(folder)
    for name, entry in manifest["files"].items():
        verify(folder / name, entry)
    return manifest["about"]
