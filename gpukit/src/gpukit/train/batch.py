"""A training step that recovers from running out of memory: it repeats the same global batch in smaller parts.

The method is Composer's (`device_train_microbatch_size="auto"`, https://docs.mosaicml.com/projects/composer): the batch
that the optimizer sees is fixed, and only the part that is on the device at one time shrinks. Unlike in Composer, parts
are weighted by their number of targets, random state and buffers are restored before a retry, and parts grow again.
"""

from __future__ import annotations

import errno
import gc
import random
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm

from gpukit.errors.rules import named
from gpukit.train.device import Device
from gpukit.train.parts import Batches, SplitError, even
from gpukit.train.ranks import Ranks, state_buffers
from gpukit.train.task import Task

# The rules for errors of a lack of memory. tests/train/oom-words.txt has texts that they must know, with their origins.
MEMORY = named("gpu-memory-full", "library-memory", "cudnn-no-plan", "host-memory-refused", "bad-alloc", "memory-out")


def is_oom(error: BaseException) -> bool:
    """Whether an error means that the GPU or the host ran out of memory, judged by its type and its text.

    Its causes are checked too (`raise ... from ...`, torch.compile). A kernel that needs more shared memory than the
    chip has (Triton's OutOfResources) and a launch that is too large ("invalid configuration argument") do not count,
    since they do not depend on the free memory.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(seen, OSError) and seen.errno == errno.ENOMEM:
            return True
        text = str(seen)
        if any(rule.matches(text) for rule in MEMORY):
            return True
        seen = seen.__cause__
    return False


class Step:
    """One optimizer step on this rank's part of the global batch, split into smaller parts if memory runs out.

    The gradient is that of the mean loss over all valid targets of the global batch: a sum over all parts on all ranks,
    divided by the number of valid targets (why not a mean of means: https://huggingface.co/blog/gradient_accumulation).
    It does not depend on the split, except for rounding and for layers that mix samples: BatchNorm sees one part at a
    time.

    If forward or backward runs out of memory on any rank, all ranks discard their gradients, restore the random state
    and the model's buffers, halve `microbatch`, and repeat the batch. After `grow_after` steps without an error it
    doubles again, up to its initial value; after a failed increase it waits twice as long. Parameters change only after
    every part has succeeded.

    `clip`: maximum gradient norm. `microbatch`: maximum number of samples on the device at one time; None: the whole
    batch. `retries`: number of repeated batches. `notes`: messages to show; the caller removes them.

    Random numbers come from torch's generators for the CPU and the device, seeded in each step. Dropout draws as many
    as a part needs: its masks are the same for the same seed and split, and differ for another split.
    """

    def __init__(
        self,
        task: Task,
        device: Device,
        ranks: Ranks | None = None,
        *,
        clip: float | None = None,
        microbatch: int | None = None,
        grow_after: int = 200,
    ) -> None:
        if microbatch is not None and microbatch < 1:
            raise ValueError(f"microbatch must be at least 1, not {microbatch}")
        self.task, self.device, self.ranks, self.clip = task, device, ranks or Ranks(), clip
        self.microbatch = self.most = microbatch
        self.retries, self.notes = 0, list[str]()
        self.scaler = torch.amp.GradScaler(device.device.type) if device.scaler else None
        self._collect()
        self._batches = Batches(task.dataset, task.collate)
        self._buffers = _Buffers(task.model)
        self._norms = [each for each in task.model.modules() if isinstance(each, _BatchNorm)]
        if self.ranks.world > 1 and any(isinstance(each, SyncBatchNorm) for each in self._norms):
            raise SystemExit("SyncBatchNorm blocks if one rank runs out of memory: use BatchNorm.")
        self._generators = [torch.default_generator]
        if device.device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[device.device.index or 0])
        self._weight = torch.ones(())
        self._weighs: tuple[Any, ...] = ()
        self._whole = 0  # samples in the batch that ran out
        self._clean, self._wait, self._grown = 0, grow_after, False

    def _collect(self) -> None:
        groups = self.task.optimizer.param_groups
        self.parameters, self._groups = [each for group in groups for each in group["params"]], len(groups)
        self.ranks.reserve(self.parameters)

    def __call__(self, batch: Any, seed: int) -> Tensor:
        """Run the step; return the mean loss over the valid targets of the global batch (0-d, detached, on the device).

        `batch`: from the DataLoader; empty or None if there are fewer samples than ranks. `seed`: for this step and
        this rank. A batch without valid targets changes nothing, and its loss is 0.

        Raises:
            SystemExit: with one sentence, if a single sample or the optimizer state does not fit in memory, or if the
                number of samples in the batch cannot be determined.
        """
        total = self._samples(batch)
        targets = self.task.targets
        count = self.ranks.sum(_number(targets(batch)) if targets is not None and total else total)
        if not count:
            return torch.zeros((), device=self.device.device)
        if len(self.task.optimizer.param_groups) != self._groups:  # layers were unfrozen
            self._collect()
        if self._buffers.places:
            self._buffers.keep()
        last_try = False
        while True:
            loss, failure = self._attempt(batch, total, count, seed)
            if not self.ranks.any(failure is not None):
                break
            last_try = self._shrink(total, failure, last_try)
        loss = self._update(loss)
        self._grow()
        return loss

    def _samples(self, batch: Any) -> int:
        try:
            return self._batches.samples(batch)
        except SplitError as error:
            raise SystemExit(
                f"Cannot train on this data: {error}. `collate` must return tensors, or lists with one entry per "
                "sample, in a tuple, list, or dict."
            ) from None

    def _attempt(self, batch: Any, total: int, count: float, seed: int) -> tuple[Tensor | None, str | None]:
        failure = None
        try:
            return self._gradients(batch, total, count, seed), None
        except Exception as error:
            if not is_oom(error):
                raise
            failure = _first_line(error)
        # Only here, after the handler, nothing references the tensors of the failed attempt.
        self._clear()
        return None, failure

    def _gradients(self, batch: Any, total: int, count: float, seed: int) -> Tensor | None:
        """Compute the gradients of this rank's share of the mean loss; return that share, None without samples."""
        for generator in self._generators:
            generator.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed & 0xFFFF_FFFF)
        for parameter in self.parameters:
            parameter.grad = None
        share = None
        for part in self._parts(batch, total):
            with self.device.autocast():
                loss = self.task.loss(self.task.model, self.device.move(part))
            if loss.dtype in (torch.float16, torch.bfloat16):
                loss = loss.float()  # a sum can exceed their range
            weight = self._weight_of(loss, count)
            loss.backward(weight if self.scaler is None else self.scaler.scale(weight))
            loss = loss.detach() * weight
            share = loss if share is None else share + loss
        if share is None and self.scaler is not None:
            self.scaler.scale(torch.zeros((), device=self.device.device))  # creates the scaler's tensors
        return share

    def _parts(self, batch: Any, total: int) -> list[Any]:
        if not total:
            return []
        sizes = self._sizes(total)
        if len(sizes) == 1:
            return [batch]
        try:
            parts = self._batches.split(batch, sizes)
        except SplitError as error:
            raise SystemExit(f"The batch does not fit in memory and cannot be split: {error}. Reduce it.") from None
        targets = self.task.targets
        return parts if targets is None else [part for part in parts if _number(targets(part))]

    def _sizes(self, total: int) -> list[int]:
        if self.microbatch is None or total <= self.microbatch:
            return [total]
        return even(total, self.microbatch, self._fewest())

    def _fewest(self) -> int:
        """BatchNorm cannot be trained on one value."""
        return 2 if any(norm.training for norm in self._norms) else 1

    def _weight_of(self, loss: Tensor, count: float) -> Tensor:
        kind = (count, loss.dtype)
        if kind != self._weighs:
            self._weight, self._weighs = loss.new_full((), 1 / count), kind
        return self._weight

    def _clear(self) -> None:
        """Free everything that an attempt allocated."""
        for parameter in self.parameters:
            parameter.grad = None
        self._buffers.put_back()
        gc.collect()
        if self.device.device.type == "cuda":
            torch.cuda.empty_cache()

    def _shrink(self, total: int, failure: str | None, last_try: bool) -> bool:
        """Halve the parts on all ranks; True if that is not possible: then the same size is tried once more."""
        if failure is None:  # another rank ran out
            self._clear()
        self.retries += 1
        tried = -int(self.ranks.least(-max(self._sizes(total), default=0)))
        self._whole = -int(self.ranks.least(-total))
        fewest = self._fewest()
        failure = failure or "on another rank"
        if tried // 2 < fewest:
            if last_try:
                norm = ", and BatchNorm needs 2" if fewest > 1 and tried > 1 else ""
                raise SystemExit(
                    f"Out of memory with {tried} sample{'s' * (tried > 1)} at a time{norm} ({failure}): use a smaller "
                    "model, smaller samples, or activation checkpointing (torch.utils.checkpoint)."
                )
            return True
        self.microbatch = tried // 2
        if self._grown:
            self._wait *= 2
        self._clean, self._grown = 0, False
        self.notes.append(
            f"Out of memory with {tried} samples ({failure}): repeating the batch, {self.microbatch} at a time."
        )
        if fewest > 1:
            self.notes.append(
                f"BatchNorm now computes its statistics over {self.microbatch} samples instead of the batch."
            )
        return False

    def _update(self, share: Tensor | None) -> Tensor:
        """Update the parameters; return the loss of the global batch."""
        task, failure = self.task, None
        try:
            if self.ranks.world > 1:
                share = self._reduced(share)
            if self.scaler is not None:
                self.scaler.unscale_(task.optimizer)
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
            self._step()
        except Exception as error:
            if not is_oom(error):
                raise
            failure = _first_line(error)
        if failure is not None:  # some parameters may have changed already, so the step cannot be repeated
            raise SystemExit(
                f"Out of memory in the optimizer ({failure}), whose memory does not depend on the batch: use an "
                "optimizer with less state, a smaller model, or free memory on the device."
            )
        return share

    def _step(self) -> None:
        optimizer, scheduler, scaler = self.task.optimizer, self.task.scheduler, self.scaler
        if scaler is None:
            optimizer.step()
        else:
            before = scaler.get_scale() if scheduler else 0.0
            scaler.step(optimizer)
            scaler.update()
            if scheduler and scaler.get_scale() < before:  # gradients overflowed: the optimizer made no step
                return
        if scheduler is not None:
            scheduler.step()

    def _reduced(self, share: Tensor | None) -> Tensor:
        # In float64 on every rank: one without samples does not know the loss's type, which is most likely this.
        loss = torch.zeros((), device=self.device.device, dtype=torch.float64)
        if share is not None:
            loss += share
        self.ranks.reduce(self.parameters, loss)
        if self._buffers.places:
            self.ranks.share_buffers(self.task.model)
        likely = torch.promote_types(self.parameters[0].dtype, torch.float32)
        return loss.to(likely if share is None else share.dtype)

    def _grow(self) -> None:
        self._clean += 1
        if self._clean < self._wait:
            return
        self._clean, self._grown = 0, False
        if self.microbatch == self.most:
            return
        bigger = 2 * self.microbatch
        self.microbatch = self.most if bigger >= (self.most or self._whole) else bigger
        self._grown = True
        size = "the whole batch" if self.microbatch is None else f"{self.microbatch} samples"
        self.notes.append(f"No out-of-memory error in {self._wait} steps: trying {size} at a time again.")

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs to split and scale batches in the same way."""
        return {
            "microbatch": self.microbatch,
            "whole": self._whole,
            "clean": self._clean,
            "wait": self._wait,
            "grown": self._grown,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`, with at most the `microbatch` that this Step was created with."""
        self.microbatch = state["microbatch"]
        if self.most is not None:
            self.microbatch = min(self.most, self.microbatch or self.most)
        self._whole, self._clean, self._wait = state["whole"], state["clean"], state["wait"]
        self._grown = state["grown"]
        if self.scaler is not None and state["scaler"] is not None:
            self.scaler.load_state_dict(state["scaler"])


def describe_batch(batch_size: int, ranks: Ranks, microbatch: int | None) -> str:
    """One line for the user: the samples per step, per process, and on the device at one time."""
    mine = -(-batch_size // ranks.world)
    text = f"Batch size {batch_size}"
    if ranks.world > 1:
        text += f": {mine} on each of {ranks.world} processes"
    if microbatch is not None and microbatch < mine:
        parts = len(even(mine, microbatch))
        text += f", in {parts} parts of at most {microbatch} whose gradients are accumulated"
    return f"{text}."


class _Buffers:
    """A copy of a model's buffers before an attempt, since running statistics must count each sample once."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.places = state_buffers(model)
        self.kept = [modules[name] for modules, name in self.places]
        self.copies = [torch.empty_like(buffer) for buffer in self.kept]

    @torch.no_grad()
    def keep(self) -> None:
        self.kept = [modules[name] for modules, name in self.places]
        torch._foreach_copy_(self.copies, self.kept)

    @torch.no_grad()
    def put_back(self) -> None:
        for (modules, name), buffer, copy in zip(self.places, self.kept, self.copies, strict=True):
            modules[name] = buffer  # a module may have put another tensor in its place
            buffer.copy_(copy)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _number(value: Any) -> float:
    return value.item() if isinstance(value, Tensor) else value
