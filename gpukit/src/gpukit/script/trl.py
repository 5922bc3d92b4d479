"""TRL's SFTTrainer in a run folder: exactly resumable steps, FSDP, held-out loss.

    here = start(settings, scaled=True)
    trainer = Trainer(here, model=model, args=config(here, max_steps=300), train_dataset=data, ...)
    fit(trainer, settings)

Unlike `huggingface.exact(SFTTrainer)`, it sees endless batches, one rank's part of each, so that any number of
processes resumes a run exactly, and it saves only the trained weights (checkpoint.py), with FSDP as whole tensors.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from accelerate import DistributedType, FullyShardedDataParallelPlugin
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForCausalLM,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from exactrun import checkpoint, shards, trial
from exactrun.adapters.huggingface import seed_part
from exactrun.checkpoint import Loaded
from exactrun.data import Keyed, shared
from exactrun.errors import TrainingError, check_finite
from exactrun.folder import Folder, on_main
from exactrun.metrics import Lines, is_logged
from exactrun.observer import Observers
from exactrun.progress import Progress
from exactrun.ranks import Ranks
from exactrun.run import OFTEN, SHARE
from exactrun.saver import Saver
from exactrun.stop import StopSignals
from gpukit.script import runs
from gpukit.script.batches import Order
from gpukit.script.errors import followed
from gpukit.script.memory import Traced
from gpukit.script.probe import Probe
from gpukit.script.settings import RunSettings
from gpukit.script.start import Start
from gpukit.script.text import is_chat
from gpukit.track.curve import curve

TOKENS = ("input_ids", "labels", "seq_lengths")  # columns that TRL's collator reads
EVALUATION_BATCH = 8
WRAPPERS = re.compile(r"_checkpoint_wrapped_module\.|_orig_mod\.")  # in names of modules, not of a state_dict


def config(here: Start, *, fsdp: bool = False, **options: Any) -> SFTConfig:
    """An SFTConfig for `Trainer`; `options` are SFTConfig's own."""
    if here.device.index not in (None, int(os.environ.get("LOCAL_RANK", "0"))):
        raise TrainingError("TRL uses the first visible GPU: set CUDA_VISIBLE_DEVICES instead of --device.")
    if fsdp and here.world == 1:
        begin = "`./launch run --nproc gpu -- python -m PACKAGE.train`"
        raise TrainingError(f"--fsdp needs several processes: start with {begin}, or run without it.")
    found = SFTConfig(
        output_dir=str(here.folder),
        prediction_loss_only=True,
        use_cpu=here.device.type == "cpu",
        bf16=here.dtype == torch.bfloat16,
        fp16=here.dtype == torch.float16,
        ddp_find_unused_parameters=False,
        fsdp=fsdp or None,
        fsdp_config={"version": 2} if fsdp else None,  # with version 1, PEFT does not find the adapter
        ignore_data_skip=True,  # get_train_dataloader does this
        logging_strategy="no",  # `fit` does this
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **options,
    )
    if here.world == 1:
        found._n_gpu = min(found.n_gpu, 1)  # otherwise transformers uses DataParallel
    return found


class Trainer(SFTTrainer):
    """SFTTrainer on endless batches, from `first_step` to `max_steps`, in the run of `here`.

    `args`: from `config`. `microbatch`: maximum number of samples processed at once; None: all of this process's.
    """

    def __init__(self, here: Start, *, microbatch: int | None = None, **options: Any) -> None:
        data, tokenizer = options["train_dataset"], options["processing_class"]
        if is_chat(data) and tokenizer.chat_template is None:
            remedy = "use the chat version of the model, or data with `text`"
            raise TrainingError(f"The data has chats, but {tokenizer.name_or_path} has no chat template: {remedy}.")
        super().__init__(**options)
        if microbatch and self.args.packing:
            raise TrainingError("--packing makes one row of a batch, which --microbatch cannot divide.")
        self.remove_callback(PrinterCallback)
        self.here, self.ranks, self.microbatch = here, Ranks.joined(), microbatch
        self.batch_size = here.batch_size * here.world  # of a step
        self.first_step, self.saved = 0, None  # saved: the checkpoint to resume from
        self.tokens = 0  # since the last report
        self.loss = torch.zeros(())
        if here.dtype == torch.float16:  # the gradient scaler needs fp32 parameters, and QLoRA's adapters are not
            for one in self.trained().values():
                one.data = one.data.float()

    def create_accelerator_and_postprocess(self) -> None:
        """Enable FSDP on CPUs too, where accelerate ignores the option."""
        super().create_accelerator_and_postprocess()
        if self.args.fsdp and not self.is_fsdp_enabled:
            state = self.accelerator.state
            state.distributed_type = DistributedType.FSDP
            state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True

    def get_train_dataloader(self) -> DataLoader:
        """Batches that depend only on the seed and the step, so that a resumed run repeats them."""
        data, ranks = self.train_dataset, self.ranks
        return DataLoader(
            Keyed(data, self.data_collator),
            batch_sampler=Order(len(data), self.batch_size, self.args.seed, self.first_step, ranks.rank, ranks.world),
            collate_fn=shared,
            pin_memory=self.args.device.type == "cuda",
            generator=torch.Generator(),  # the loader draws a seed when it starts: keep it off the global generator
        )

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Forward and backward, in parts of at most `microbatch` samples; dropout follows from the seed and the step.

        TRL divides the loss of a part by the number of targets in the whole batch, so losses and gradients add up.
        """
        self.tokens += inputs["input_ids"].numel()
        seed_part(self.args.seed, self.state.global_step, self.ranks.rank)
        parts = split(inputs, self.microbatch) if self.microbatch else [inputs]
        self.loss = torch.stack([super(Trainer, self).training_step(model, part, num_items_in_batch) for part in parts])
        self.loss = self.loss.sum()
        return self.loss

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained, by name: those of the adapter."""
        named = self.model.named_parameters()
        return {WRAPPERS.sub("", name): one for name, one in named if one.requires_grad}

    def evaluate(self, *args: Any, **options: Any) -> dict[str, float]:
        """Also without a training step: FSDP prepares the model and the optimizer together."""
        if self.is_fsdp_enabled and self.optimizer is None:
            self.model, self.optimizer = self.accelerator.prepare(self.model, self.create_optimizer())
        self.args.per_device_eval_batch_size = min(EVALUATION_BATCH, self.microbatch or EVALUATION_BATCH)
        return super().evaluate(*args, **options)

    # Checkpoints

    def about(self) -> dict[str, Any]:
        """What must not change between two starts of a run."""
        name = self.model.config.name_or_path
        return {
            "model": Path(name).name if Path(name).is_dir() else name,
            "adapter": {name: f"{str(one.dtype)[6:]} {list(one.shape)}" for name, one in self.trained().items()},
            "samples": len(self.train_dataset),
            "batch_size": self.batch_size,
            "max_length": self.args.max_length,
            "packing": self.args.packing,
            "seed": self.args.seed,
        }

    def newest(self, run: Path) -> Loaded | None:
        """Load the weights of the newest valid checkpoint; `restore` loads the rest."""
        about = self.about()
        self.saved = on_main(self.ranks, lambda: checkpoint.newest(run, about=about))
        if self.saved:
            self.model.load_state_dict(self.saved.weights, strict=False)  # FSDP shards the model later
            self.first_step = self.saved.step
        return self.saved

    def restore(self) -> None:
        """Restore the optimizer and the scheduler, once TRL has created them."""
        if not self.saved:
            return
        state, optimizer = self.saved.state, self.optimizer.optimizer
        optimizer.load_state_dict(shards.spread(optimizer, state["optimizer"]))
        change = self.args.learning_rate / state["lr"]  # a new --lr applies from here
        for group in optimizer.param_groups:
            group["lr"] *= change
        scheduler = state["scheduler"]
        self.lr_scheduler.load_state_dict(scheduler | {"base_lrs": [lr * change for lr in scheduler["base_lrs"]]})
        if self.accelerator.scaler is not None and "scaler" in state:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.state.global_step = self.saved.step

    def save(self, saver: Saver, metric: float | None = None) -> None:
        """Save a checkpoint, on all ranks together; training continues meanwhile."""
        step = self.state.global_step
        state = {"scheduler": self.lr_scheduler.state_dict(), "lr": self.args.learning_rate}
        if self.accelerator.scaler is not None:
            state["scaler"] = self.accelerator.scaler.state_dict()
        state["optimizer"] = shards.whole(self.optimizer.state_dict(), self.ranks.main)
        weights = shards.whole(self.trained(), self.ranks.main)
        on_main(self.ranks, lambda: saver.save(step, weights, state, metric))

    def export(self, run: Path, merge: bool = False) -> list[Path]:
        """Save the adapter, and with `merge` the whole model with it; return their folders, for `from_pretrained`."""
        adapter = shards.whole(self.trained(), self.ranks.main) if self.is_fsdp_enabled else None
        if not self.ranks.main:
            return []
        self.model.save_pretrained(run / "adapter", state_dict=adapter)
        folders = [run / "adapter"]
        if merge:  # into the original weights, even if training used 4 bits
            base = self.model.config.name_or_path
            whole = AutoModelForCausalLM.from_pretrained(base, dtype="auto", device_map="cpu")
            PeftModel.from_pretrained(whole, run / "adapter").merge_and_unload().save_pretrained(run / "merged")
            folders.append(run / "merged")
        for folder in folders:
            self.processing_class.save_pretrained(folder)
        return folders

    def traced(self) -> Traced:
        """What the memory that training needs follows from, with the longest samples first."""
        if self.args.packing:
            raise TrainingError("The memory of packed rows cannot be traced.")
        self.model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
        self.model.train()
        data = self.train_dataset
        data = data.select_columns([name for name in TOKENS if name in data.column_names])
        longest = sorted(range(len(data)), key=lambda index: len(data[index]["input_ids"]), reverse=True)
        one = torch.ones((), device=self.here.device)

        def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return self.compute_loss(model, dict(batch), num_items_in_batch=one)

        return Traced(self.model, self.create_optimizer(), data.select(longest), loss, self.data_collator)


def split(inputs: dict[str, Any], most: int) -> Iterator[dict[str, Any]]:
    """Parts of a batch with at most `most` samples."""
    for start in range(0, len(inputs["input_ids"]), most):
        yield {name: each[start : start + most] for name, each in inputs.items()}


def fit(trainer: Trainer, settings: RunSettings, *, merge: bool = False) -> None:
    """Start or resume the run, train to its last step, and save the adapter; with `merge`, the whole model too.

    Raises SystemExit after a signal, with a checkpoint saved.
    """
    here, ranks, tried = trainer.here, trainer.ranks, trial.current()
    folder = here.folder if tried is None else tried.folder(here.folder)
    with ranks, Folder.open(folder, asdict(settings), ranks) as run:
        _fit(trainer, run, settings, tried, merge)


def _fit(trainer: Trainer, run: Folder, settings: RunSettings, tried: trial.Trial | None, merge: bool) -> None:
    args, here, ranks = trainer.args, trainer.here, trainer.ranks
    count = len(trainer.train_dataset)
    if trainer.batch_size > count:
        message = f"--batch-size {trainer.batch_size} is larger than the data set ({count} samples): reduce it."
        raise TrainingError(message)
    if isinstance(tried, Probe):  # the most memory: every sample is as long as the longest
        longest = max(range(count), key=lambda index: len(trainer.train_dataset[index]["input_ids"]))
        trainer.train_dataset = trainer.train_dataset.select([longest] * count)
    saved = trainer.newest(run.path)
    step = saved.step if saved else 0
    progress = Progress(args.max_steps, step, samples=trainer.batch_size, device=here.device, shown=ranks.main)
    for message in saved.passed_over if saved else ():
        progress.say(message)
    if step >= args.max_steps and (finished := runs.finished(run, step)):
        progress.say(finished)
        return
    progress.say(f"Resuming {run.path} at step {step}." if saved else f"Starting {run.path}.")
    parts = f", in parts of at most {trainer.microbatch} samples" if trainer.microbatch else ""
    shared = f", shared by {ranks.world} processes" if ranks.world > 1 else ""
    progress.say(f"Batch size {trainer.batch_size}{shared}{parts}.")
    if args.torch_compile:
        progress.say("The first step compiles the model, which can take minutes.")

    scores = {"held_out_loss": saved.metric} if saved and saved.metric is not None else {}
    observers = Observers([Lines(), *here.options["observers"]] if ranks.main and tried is None else [])
    saver = Saver(run.path, about=trainer.about(), keep=settings.keep)
    followed_run = _Followed(run, asdict(settings), progress, step, ranks, trainer.get_train_dataloader())
    if tried is not None:
        tried.begin(followed_run)
    observers.open(followed_run)
    with followed(observers), StopSignals() as stop, progress, saver:
        if step < args.max_steps:
            between = _Between(trainer, saver, followed_run, observers, stop, settings, tried)
            trainer.add_callback(between)
            trainer.train()
            on_main(ranks, saver.wait)
            step, scores = trainer.state.global_step, between.scores
            if number := agreed(stop, ranks):
                name = signal.Signals(number).name
                progress.say(f"{name}: saved step {step}; run the same command again to resume.")
                raise stop.ending()
        scores = scores or {"held_out_loss": trainer.evaluate()["eval_loss"]}
        folders = trainer.export(run.path, merge)
        run.keep(finished={"step": step, **scores})
        values = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in scores.items())
        progress.say(f"Done: step {step}, {values}, in {run.path}")
        if ranks.main:
            progress.say(f"Saved the adapter{' and the merged model' * merge}: {', '.join(map(str, folders))}")
            if picture := curve(run.path):
                observers.artifact(picture)
                progress.say(f"Plot of the loss: {picture}")


def agreed(stop: StopSignals, ranks: Ranks) -> int:
    """The signal that any of the ranks received, on all of them; 0 if there was none."""
    number = -int(ranks.least(-stop.number))
    stop.number = stop.number or number
    return number


@dataclass
class _Followed:
    """The run, as observers and a trial see it. `waited` stays 0: the trainer does not tell."""

    files: Folder
    settings: dict[str, Any]
    progress: Progress
    completed: int
    ranks: Ranks
    source: DataLoader
    waited: float = 0.0

    @property
    def folder(self) -> Path:
        return self.files.path

    def say(self, text: str) -> None:
        self.progress.say(text)


@dataclass(eq=False)
class _Between(TrainerCallback):
    """Between the steps: signals, metrics, evaluation, checkpoints."""

    trainer: Trainer
    saver: Saver
    run: _Followed
    observers: Observers
    stop: StopSignals
    settings: RunSettings
    tried: trial.Trial | None
    scores: dict[str, float] = field(default_factory=dict)
    saving: bool = False
    saved_at: float = field(default_factory=time.monotonic)
    reported_at: float = field(default_factory=time.monotonic)
    took: float = 0.0  # seconds, the last save

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.restore()
        self.observers.begin(self.run)
        if most := self.settings.max_minutes:
            self.run.progress.until = time.monotonic() + 60 * most

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        step = state.global_step
        self.run.progress.step(step)
        self.run.completed = step
        self.observers.step()
        if self.tried is not None:
            self.tried.step(self.run, self.trainer.loss)
        ranks = self.trainer.ranks
        number = agreed(self.stop, ranks)
        until = self.run.progress.until
        late = until is not None and ranks.any(time.monotonic() > until)
        last = late or step == args.max_steps
        now, every = time.monotonic(), self.settings.save_steps
        due = step % every == 0 if every else ranks.any(now - self.saved_at >= max(OFTEN, SHARE * self.took))
        self.saving = last or due
        evaluating = last or step % self.settings.eval_steps == 0
        if number or evaluating or is_logged(step, self.settings.log_steps):
            self.report(step)
        control.should_training_stop |= late
        if number and not last:
            control.should_training_stop = True
            self.save()
        elif evaluating:
            control.should_evaluate = True  # and then calls `on_evaluate`
        elif self.saving:
            self.save()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: Any,
    ) -> None:
        self.scores = {"held_out_loss": metrics["eval_loss"]}
        self.observers.log(state.global_step, self.scores)
        if self.saving:
            self.save(**self.scores)

    def report(self, step: int) -> None:
        trainer = self.trainer
        check_finite("the loss", [trainer.loss], step, trainer.ranks)
        value = trainer.ranks.sum(trainer.loss.item()) / trainer.ranks.world
        self.run.progress.report(step, value)
        now = time.monotonic()
        self.observers.log(step, {"loss": value, "tokens_per_second": trainer.tokens / (now - self.reported_at)})
        self.reported_at, trainer.tokens = now, 0

    def save(self, held_out_loss: float | None = None) -> None:
        trainer = self.trainer
        check_finite("a weight", shards.local([*trainer.trained().values()]), trainer.state.global_step, trainer.ranks)
        began = time.monotonic()
        trainer.save(self.saver, held_out_loss)
        for message in self.saver.messages():
            self.run.say(message)
        self.saved_at = time.monotonic()
        self.took = self.saved_at - began


def quiet() -> None:
    """Hide progress bars without a terminal, and warnings that are meant for the developers of the libraries."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|peft|accelerate)\.")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
