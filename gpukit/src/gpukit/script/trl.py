"""TRL's SFTTrainer in a run folder: exactly resumable steps, smaller parts if memory runs out, FSDP, held-out loss.

    here = start(settings)
    trainer = Trainer(model=model, args=config(here.run.path, here.device, max_steps=300), train_dataset=data, ...,
                      device=here.device, ranks=here.ranks, batch_size=here.batch_size)
    fit(trainer, here, settings)

Unlike `huggingface.exact(SFTTrainer)`, it sees endless batches of any size, one rank's part of each, repeats a step in
smaller parts when memory runs out, and saves only the trained weights (checkpoint.py), with FSDP as whole tensors.
"""

from __future__ import annotations

import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
from exactrun.errors import TrainingError, check_finite, is_oom
from exactrun.folder import Folder, as_json, on_main
from exactrun.metrics import Lines, is_logged
from exactrun.observer import Observers
from exactrun.progress import Progress
from exactrun.ranks import Ranks
from exactrun.run import OFTEN, SHARE
from exactrun.saver import Saver
from exactrun.stop import StopSignals
from gpukit.project.stack import load
from gpukit.script import runs
from gpukit.script.batches import loader
from gpukit.script.device import Device
from gpukit.script.errors import followed
from gpukit.script.memory import Traced
from gpukit.script.probe import Probe
from gpukit.script.settings import RunSettings
from gpukit.script.start import batch_size, choose_folder, join
from gpukit.script.text import is_chat
from gpukit.track.curve import curve
from gpukit.track.monitor import Monitor, flops_per_token
from gpukit.track.profile import Profile
from gpukit.track.trackers import Tracker

TOKENS = ("input_ids", "labels", "seq_lengths")  # columns that TRL's collator reads
EVALUATION_BATCH = 8
WRAPPERS = re.compile(r"_checkpoint_wrapped_module\.|_orig_mod\.")  # in names of modules, not of a state_dict


def config(folder: Path, device: Device, *, fsdp: bool = False, **options: Any) -> SFTConfig:
    """An SFTConfig for `Trainer`; `options` are SFTConfig's own."""
    world = int(torch.distributed.get_world_size()) if torch.distributed.is_initialized() else 1
    if fsdp and world == 1:
        start = "`./launch run --nproc gpu -- python -m PACKAGE.train`"
        raise TrainingError(f"--fsdp needs several processes: start with {start}, or run without it.")
    found = SFTConfig(
        output_dir=str(folder),
        prediction_loss_only=True,
        use_cpu=device.device.type == "cpu",
        bf16=device.dtype == torch.bfloat16,
        fp16=device.scaler,
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
    if world == 1:
        found._n_gpu = min(found.n_gpu, 1)  # otherwise transformers uses DataParallel
    return found


class Trainer(SFTTrainer):
    """SFTTrainer on endless batches of `batch_size` samples over all ranks, from `first_step` to `max_steps`.

    `args`: from `config`. `microbatch`: maximum number of samples processed at once; None: all of this rank's. With
    packing, a part is a number of documents.
    """

    def __init__(
        self,
        *args: Any,
        device: Device,
        batch_size: int,
        ranks: Ranks | None = None,
        microbatch: int | None = None,
        **options: Any,
    ) -> None:
        data, tokenizer = options["train_dataset"], options["processing_class"]
        if is_chat(data) and tokenizer.chat_template is None:
            remedy = "use the chat version of the model, or data with `text`"
            raise TrainingError(f"The data has chats, but {tokenizer.name_or_path} has no chat template: {remedy}.")
        super().__init__(*args, **options)
        self.remove_callback(PrinterCallback)
        self.device, self.ranks, self.batch_size = device, ranks or Ranks(), batch_size
        self.microbatch = microbatch
        self.first_step, self.saved = 0, None  # saved: the checkpoint to resume from
        self.tokens = 0  # of the last step
        self.loss = torch.zeros(())
        self.say: Callable[[str], object] = print
        if device.scaler:  # fp16: the gradient scaler needs fp32 parameters, and QLoRA's adapters are not
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
        return loader(
            self.train_dataset,
            self.batch_size,
            self.args.seed,
            first_step=self.first_step,
            ranks=self.ranks,
            collate=self.data_collator,
            device=self.args.device,
        )

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Forward and backward; if memory runs out, again with half as many samples at once."""
        size, self.tokens = samples(inputs), inputs["input_ids"].numel()
        while True:
            most = min(self.microbatch or size, size)
            try:
                self.loss = self.attempt(model, inputs, num_items_in_batch, most)
                break
            except Exception as error:
                if not is_oom(error):
                    raise
            self.shrink(model, most)  # outside of `except`, where the tensors of the attempt are free
        return self.loss

    def attempt(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | None, most: int) -> Tensor:
        """The loss of the batch, in parts of at most `most` samples; dropout depends only on the seed and the step.

        TRL divides the loss of a part by the number of targets in the whole batch, so losses and gradients add up.
        """
        seed_part(self.args.seed, self.state.global_step, self.ranks.rank)
        losses = []
        for part in split(inputs, most):
            losses.append(super().training_step(model, part, num_items_in_batch))
        return torch.stack(losses).sum()

    def shrink(self, model: nn.Module, size: int) -> None:
        """Halve the number of samples processed at once."""
        if size == 1:
            remedy = "use a smaller --max-length, --four-bit, or a smaller --model"
            raise TrainingError(f"Out of memory with a single sample: {remedy}.")
        if self.ranks.world > 1:  # processes synchronize within a part: a repeated one would block the others
            raise TrainingError(f"Out of memory with {size} samples at once: use --microbatch {(size + 1) // 2}.")
        self.microbatch = (size + 1) // 2
        model.zero_grad()
        torch.cuda.empty_cache()
        self.say(f"Out of memory with {size} samples at once: repeating the step, {self.microbatch} at a time.")

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
            self.microbatch = min(filter(None, (self.saved.state["microbatch"], self.microbatch)), default=None)
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
        state["microbatch"] = self.microbatch
        if self.accelerator.scaler is not None:
            state["scaler"] = self.accelerator.scaler.state_dict()
        state["optimizer"] = shards.whole(self.optimizer.state_dict(), self.ranks.main)
        weights = shards.whole(self.trained(), self.ranks.main)
        on_main(self.ranks, lambda: saver.save(step, weights, state, metric))
        for message in saver.messages():
            self.say(message)

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
        one = torch.ones((), device=self.device.device)

        def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
            return self.compute_loss(model, dict(batch), num_items_in_batch=one)

        return Traced(self.model, self.create_optimizer(), data.select(longest), loss, self.data_collator)


def samples(inputs: dict[str, Any]) -> int:
    """The number of samples in a batch; of documents, if they are packed into one row."""
    return len(inputs["cu_seq_lens_q"]) - 1 if "cu_seq_lens_q" in inputs else len(inputs["input_ids"])


def split(inputs: dict[str, Any], most: int) -> Iterator[dict[str, Any]]:
    """Parts of a batch with at most `most` samples."""
    total, starts = samples(inputs), inputs.get("cu_seq_lens_q")
    for start in range(0, total, most):
        stop = min(start + most, total)
        if stop - start == total:
            yield dict(inputs)
        elif starts is None:
            yield {name: each[start:stop] for name, each in inputs.items()}
        else:
            first, last = int(starts[start]), int(starts[stop])
            part = {name: inputs[name][:, first:last] for name in ("input_ids", "labels", "position_ids", "seq_idx")}
            part["seq_idx"] = part["seq_idx"] - start
            part["cu_seq_lens_q"] = part["cu_seq_lens_k"] = starts[start : stop + 1] - first
            part["max_length_q"] = part["max_length_k"] = int(part["cu_seq_lens_q"].diff().max())
            yield part


class Here(NamedTuple):
    """What a training script is given: its processes, its device, the folder of the run, which it closes, the samples
    of a step over all processes, and the trial that it is."""

    ranks: Ranks
    device: Device
    run: Folder
    batch_size: int
    tried: trial.Trial | None


def start(settings: RunSettings) -> Here:
    """Join the processes of torchrun, choose the device, and open the folder of the run, new or resumed."""
    ranks, device = join(settings, scaled=True)
    if device.device.index not in (None, ranks.local_rank):
        raise TrainingError("TRL uses the first visible GPU: set CUDA_VISIBLE_DEVICES instead of --device.")
    run, tried = choose_folder(settings, ranks), trial.current()
    if tried is None:
        run.begin(asdict(settings))
    else:
        run = Folder.open(tried.folder(run.path), asdict(settings), ranks)
    return Here(ranks, device, run, batch_size(settings, run, ranks), tried)


def fit(trainer: Trainer, here: Here, settings: RunSettings, *, merge: bool = False) -> None:
    """Start or resume the run, train to its last step, and save the adapter; with `merge`, the whole model too.

    Raises SystemExit after a signal, with a checkpoint saved.
    """
    args, ranks, device, run, tried = trainer.args, here.ranks, here.device, here.run, here.tried
    count = len(trainer.train_dataset)
    if trainer.batch_size > count:
        message = f"--batch-size {trainer.batch_size} is larger than the data set ({count} samples): reduce it."
        raise TrainingError(message)
    if isinstance(tried, Probe):  # the most memory: every sample is as long as the longest
        longest = max(range(count), key=lambda index: len(trainer.train_dataset[index]["input_ids"]))
        trainer.train_dataset = trainer.train_dataset.select([longest] * count)
    saved = trainer.newest(run.path)
    step = saved.step if saved else 0
    progress = Progress(args.max_steps, step, samples=trainer.batch_size, device=device.device, shown=ranks.main)
    trainer.say = progress.say
    for message in saved.passed_over if saved else ():
        progress.say(message)
    if step >= args.max_steps and run.facts.get("finished", {}).get("step") == step:
        new = "another --name" if run.facts.get("named") else "--no-resume"
        progress.say(f"{run.path} is finished at step {step}. Use --max-steps {2 * step} to continue, or {new}.")
        return
    progress.say(f"Resuming {run.path} at step {step}." if saved else f"Starting {run.path}.")
    if saved and (changed := runs.changed(run, asdict(settings))):
        values = (f"{name} from {then} to {now}" for name, (then, now) in changed.items())
        progress.say(f"Settings changed: {', '.join(values)}.")
    run.keep(settings=as_json(asdict(settings)))
    progress.say(device.describe())
    parts = f", in parts of at most {trainer.microbatch} samples" if trainer.microbatch else ""
    shared = f", shared by {ranks.world} processes" if ranks.world > 1 else ""
    progress.say(f"Batch size {trainer.batch_size}{shared}{parts}.")
    if args.torch_compile:
        progress.say("The first step compiles the model, which can take minutes.")

    scores = {"held_out_loss": saved.metric} if saved and saved.metric is not None else {}
    stack = load()
    monitor = Monitor(flops_per_token=flops_per_token(trainer.model))
    observers = Observers()
    if ranks.main and tried is None:
        profiles = [Profile()] * settings.profile
        observers.extend([Lines(), Tracker(stack.tracking, stack.project), monitor, *profiles])
    saver = Saver(run.path, about=trainer.about(), keep=settings.keep)
    followed_run = _Followed(run.path, asdict(settings), progress, step, ranks, trainer.get_train_dataloader())
    if tried is not None:
        tried.begin(followed_run)
    observers.open(followed_run)
    with followed(observers), StopSignals() as stop, progress, saver:
        if step < args.max_steps:
            between = _Between(trainer, saver, followed_run, observers, monitor, stop, settings, tried)
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

    folder: Path
    settings: dict[str, Any]
    progress: Progress
    completed: int
    ranks: Ranks
    source: DataLoader
    waited: float = 0.0

    def say(self, text: str) -> None:
        self.progress.say(text)


@dataclass(eq=False)
class _Between(TrainerCallback):
    """Between the steps: signals, metrics, evaluation, checkpoints."""

    trainer: Trainer
    saver: Saver
    run: _Followed
    observers: Observers
    monitor: Monitor
    stop: StopSignals
    settings: RunSettings
    tried: trial.Trial | None
    scores: dict[str, float] = field(default_factory=dict)
    saving: bool = False
    saved_at: float = field(default_factory=time.monotonic)
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
        self.monitor.tokens += self.trainer.tokens
        number = agreed(self.stop, ranks)
        until = self.run.progress.until
        late = until is not None and ranks.any(time.monotonic() > until)
        last = late or step == args.max_steps
        now, every = time.monotonic(), self.settings.save_steps
        due = step % every == 0 if every else ranks.any(now - self.saved_at >= max(OFTEN, SHARE * self.took))
        self.saving = last or due
        evaluating = last or runs.is_evaluated(step, self.settings.eval_steps)
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
        self.observers.log(step, {"loss": value})

    def save(self, held_out_loss: float | None = None) -> None:
        trainer = self.trainer
        check_finite("a weight", shards.local([*trainer.trained().values()]), trainer.state.global_step, trainer.ranks)
        began = time.monotonic()
        trainer.save(self.saver, held_out_loss)
        self.saved_at = time.monotonic()
        self.took = self.saved_at - began


def quiet() -> None:
    """Hide progress bars without a terminal, and warnings that are meant for the developers of the libraries."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|peft|accelerate)\.")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
