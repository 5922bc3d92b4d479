"""TRL's SFTTrainer with `Run`: exact resume, FSDP, held-out loss.

    here = start(settings, scaled=True)
    trainer = Trainer(here, model=model, args=config(here, max_steps=300), train_dataset=data, ...)
    fit(trainer, settings)

Unlike `huggingface.exact(SFTTrainer)`, it saves only the weights that are trained, with FSDP as whole tensors.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import torch
import torch.distributed as dist
import transformers
from peft import PeftModel
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (
    AutoModelForCausalLM,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from trl import SFTConfig, SFTTrainer, is_conversational

from exactrun import shards
from exactrun.errors import TrainingError
from exactrun.fits import even, split
from exactrun.run import Run
from exactrun.state import generators_now, set_generators
from gpukit.script import runs
from gpukit.script.memory import Traced
from gpukit.script.settings import RunSettings
from gpukit.script.start import Start, finish

TOKENS = ("input_ids", "labels", "seq_lengths")  # columns that TRL's collator reads
EVALUATION_BATCH = 8
WRAPPERS = re.compile(r"_checkpoint_wrapped_module\.|_orig_mod\.")  # in names of modules, not of a state_dict


def config(here: Start, *, fsdp: bool = False, **options: Any) -> SFTConfig:
    """An SFTConfig for `Trainer`; `options` are SFTConfig's own."""
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
    """SFTTrainer on endless batches, whose position `Run` keeps.

    `args`: from `config`. `microbatch`: maximum number of samples processed at once; None: all of this process's.
    """

    run: Run  # these are set by `fit`
    kept: SimpleNamespace
    lr: float

    def __init__(self, here: Start, *, microbatch: int | None = None, **options: Any) -> None:
        data = options["train_dataset"]
        tokenizer = options["processing_class"]
        if is_conversational(data[0]) and tokenizer.chat_template is None:
            remedy = "use the chat version of the model, or data with `text`"
            raise TrainingError(f"The data has chats, but {tokenizer.name_or_path} has no chat template: {remedy}.")
        super().__init__(**options)
        if microbatch and self.args.packing:
            raise TrainingError("--packing makes one row of a batch, which --microbatch cannot divide.")
        samples = len(self.train_dataset)
        size = here.batch_size * here.world
        if size > samples:
            raise TrainingError(f"--batch-size {size} is larger than the data set ({samples} samples): reduce it.")
        self.remove_callback(PrinterCallback)
        self.args.per_device_eval_batch_size = min(EVALUATION_BATCH, microbatch or EVALUATION_BATCH)
        self.here = here
        self.microbatch = microbatch
        self.loss = torch.zeros(())
        if here.dtype == torch.float16:  # the gradient scaler needs fp32 parameters, and QLoRA's adapters are not
            for one in self.trained().values():
                one.data = one.data.float()

    def get_train_dataloader(self) -> Iterator[dict[str, Tensor]]:
        """Endless batches: two processes together get the samples that one would get."""
        data = self.train_dataset
        here = self.here
        sampler = DistributedSampler(data, here.world, here.rank, seed=self.args.seed, drop_last=True)
        loader = DataLoader(
            data,
            here.batch_size,
            sampler=sampler,
            collate_fn=self.data_collator,
            drop_last=True,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.device.type == "cuda",
        )
        self.batches = self._batches(loader, sampler)
        return self.batches

    def _batches(self, loader: DataLoader, sampler: DistributedSampler) -> Iterator[dict[str, Tensor]]:
        for epoch in self.run.epochs(count()):
            sampler.set_epoch(epoch)
            for _, batch in self.run.enumerate(loader):
                self._set_lr()
                yield batch

    def _set_lr(self) -> None:
        """A new --lr applies from the checkpoint that is resumed."""
        change = self.lr / self.kept.lr
        if change != 1:
            for group in self.optimizer.param_groups:
                group["lr"] *= change
            self.lr_scheduler.base_lrs = [lr * change for lr in self.lr_scheduler.base_lrs]
            self.kept.lr = self.lr

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        """Forward and backward, in parts of at most `microbatch` samples.

        TRL divides the loss of a part by the number of targets in the whole batch, so losses and gradients add up.
        """
        self.run.tokens += inputs["input_ids"].numel() * self.here.world
        parts = [inputs]
        if self.microbatch:
            parts = split(dict(inputs), even(len(inputs["input_ids"]), self.microbatch))
        self.loss = torch.stack([super(Trainer, self).training_step(model, part, num_items_in_batch) for part in parts])
        self.loss = self.loss.sum()
        return self.loss

    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that are trained, by name: those of the adapter."""
        named = self.model.named_parameters()
        return {WRAPPERS.sub("", name): one for name, one in named if one.requires_grad}

    def export(self, run: Path, merge: bool = False) -> list[Path]:
        """Save the adapter, and with `merge` the whole model with it; return their folders, for `from_pretrained`."""
        main = self.here.rank == 0
        adapter = shards.whole(self.trained(), main) if self.is_fsdp_enabled else None
        if not main:
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


def fit(trainer: Trainer, settings: RunSettings, *, merge: bool = False) -> None:
    """Start or resume the run, train to its last step, and save the adapter; with `merge`, the whole model too.

    Raises SystemExit after a signal, with a checkpoint saved.
    """
    here = trainer.here
    args = trainer.args
    with Run(here.folder, settings=asdict(settings), best="held_out_loss", **here.options) as run:
        trainer.run = run
        trainer.lr = settings.lr
        name = trainer.model.config.name_or_path
        base = Path(name).name if Path(name).is_dir() else name
        trainer.kept = run.state(lr=settings.lr, base=base)
        if trainer.kept.base != base:
            raise TrainingError(
                f"{run.folder} trains an adapter of {trainer.kept.base}: use --model, or another --name."
            )
        args.learning_rate = trainer.kept.lr
        run.keep(model=_Adapter(trainer))
        if run.completed < settings.max_steps:
            if args.torch_compile:
                run.say("The first step compiles the model, which can take minutes.")
            trainer.add_callback(_Between(trainer, settings.eval_steps))
            trainer.train()
            next(trainer.batches, None)  # the loops end
        run.check_saved()
        if not runs.finished(run.files, run.completed):
            folders = trainer.export(run.folder, merge)
            run.say(f"Saved the adapter{' and the merged model' * merge}: {', '.join(map(str, folders))}")
        finish(run)


class _Adapter(nn.Module):
    """The weights that are trained, as the model has them now: FSDP replaces them when training starts."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.trained = trainer.trained

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.trained().items()

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Tensor]:
        return {name: one.detach() for name, one in self.named_parameters()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Tensor], *_: Any, **__: Any) -> None:
        for name, one in self.named_parameters():
            one.copy_(state[name])


class _Between(TrainerCallback):
    """Before the first step, and after each."""

    def __init__(self, trainer: Trainer, eval_steps: int) -> None:
        self.trainer = trainer
        self.eval_steps = eval_steps

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        trainer = self.trainer
        kept = {"optimizer": trainer.optimizer.optimizer, "scheduler": trainer.lr_scheduler}
        if trainer.accelerator.scaler is not None:
            kept["scaler"] = trainer.accelerator.scaler
        trainer.run.keep(**kept)
        state.global_step = trainer.run.completed
        set_seed(args.seed + trainer.here.rank)  # each process has its own dropout

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        trainer = self.trainer
        run = self.trainer.run
        scores = {}
        if state.global_step % self.eval_steps == 0 or state.global_step == run.last:
            generators = generators_now()
            scores = {"held_out_loss": trainer.evaluate()["eval_loss"]}
            set_generators(generators)
        loss = trainer.loss.detach().clone()
        if trainer.here.world > 1:
            dist.all_reduce(loss)
        run.step(loss=loss / trainer.here.world, **scores)
        control.should_training_stop |= state.global_step == run.last


def quiet() -> None:
    """Hide progress bars without a terminal, and warnings that are meant for the developers of the libraries."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|peft|accelerate)\.")
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
