"""A training step that recovers from running out of memory: it repeats the same global batch in smaller parts.

The method is Composer's (`device_train_microbatch_size="auto"`, https://docs.mosaicml.com/projects/composer): the batch
that the optimizer sees is fixed, and only the part that is on the device at one time shrinks. Unlike in Composer, parts
are weighted by their number of targets, random state and buffers are restored before a retry, and parts grow again.
"""

from __future__ import annotations

import errno
import gc
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.utils._pytree import tree_map_only

from exactrun.checks import WHOLE, Checked, check, place, split_result
from exactrun.parts import Batches, SplitError, even
from exactrun.ranks import Ranks
from exactrun.seeds import seed_all
from gpukit.errors.signs import named
from gpukit.script.device import Device
from gpukit.script.reduction import Reduction, state_buffers
from gpukit.script.task import Task

# The signs of a lack of memory. tests/train/oom-words.txt has texts that they must know, with their origins.
MEMORY = named("gpu-memory-full", "library-memory", "host-memory-refused", "bad-alloc", "memory-out")


def is_oom(error: BaseException) -> bool:
    """Whether an error means that the GPU or the host ran out of memory, judged by its type and its text.

    The text counts only for RuntimeError, which PyTorch raises, and SystemExit, which Step raises. Causes are checked
    too (`raise ... from ...`, torch.compile). A kernel that needs more shared memory than the chip has (Triton's
    OutOfResources) and a launch that is too large ("invalid configuration argument") do not count, since they do not
    depend on the free memory.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(seen, OSError) and seen.errno == errno.ENOMEM:
            return True
        if isinstance(seen, (RuntimeError, SystemExit)) and any(sign.matches(str(seen)) for sign in MEMORY):
            return True
        seen = seen.__cause__
    return False


CHECKS = 3  # batches, if the first ones do not show how their losses add up


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
    batch. `accumulate`: number of parts into which each batch is split at least. `retries`: number of repeated batches.
    `notes`: messages to show; the caller removes them. `metrics`: what the loss function returned beside the loss, for
    each part of this rank's last batch, detached.

    `check`: the first batch shows whether the losses of parts add up as the task declares (checks.check), which takes
    about as long as one step. A task whose loss is a mean declared as a sum, or the reverse, is not trained. Batches
    are not split if the loss compares their samples with one another, as contrastive losses do.

    Random numbers come from torch's generators for the CPU and the device, `random`, and NumPy, seeded in each step.
    Dropout draws as many as a part needs: its masks are the same for the same seed and split, and differ for another.
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
        accumulate: int = 1,
        check: bool = True,
    ) -> None:
        if accumulate < 1 or (microbatch is not None and microbatch < 1):
            raise ValueError(f"microbatch and accumulate must be at least 1, not {microbatch} and {accumulate}")
        self.task, self.device, self.ranks, self.clip = task, device, ranks or Ranks(), clip
        self.reduction = Reduction(self.ranks)
        self.microbatch = self.most = microbatch
        self.accumulate = accumulate
        self.retries, self.notes, self.metrics = 0, list[str](), list[Any]()
        self._checks, self._first = CHECKS * check, True
        self._solid: str | None = None  # why batches are not split
        self.scaler = torch.amp.GradScaler(device.device.type) if device.scaler else None
        self._collect()
        self._batches = Batches(task.dataset, task.collate)
        self._buffers = _Buffers(task.model)
        self._norms = [each for each in task.model.modules() if isinstance(each, _BatchNorm)]
        if self.ranks.world > 1 and any(isinstance(each, SyncBatchNorm) for each in self._norms):
            raise SystemExit("SyncBatchNorm blocks if one rank runs out of memory: use BatchNorm.")
        self._whole = 0  # samples in the batch that ran out
        self._clean, self._wait, self._grown = 0, grow_after, False

    def _collect(self) -> None:
        groups = self.task.optimizer.param_groups
        self.parameters, self._groups = [each for group in groups for each in group["params"]], len(groups)
        self.reduction.reserve(self.parameters)

    def __call__(self, batch: Any, seed: int) -> Tensor:
        """Run the step; return the mean loss over the valid targets of the global batch (0-d, detached, on the device).

        `batch`: from the DataLoader; empty or None if there are fewer samples than ranks. `seed`: for this step and
        this rank. A batch without valid targets changes nothing, and its loss is 0.

        Raises:
            SystemExit: with one sentence, if a single sample or the optimizer state does not fit in memory, if the
                number of samples in the batch cannot be determined, if the loss is not what the task declares, or if it
                is NaN or infinite in the first step.
        """
        total = self._samples(batch)
        mine = self._count(batch, total) if total else 0
        count = self.ranks.sum(mine)
        if not count:
            return torch.zeros((), device=self.device.device)
        if len(self.task.optimizer.param_groups) != self._groups:  # layers were unfrozen
            self._collect()
        if self._checks:
            self._check(batch, total)
        if self._buffers.places:
            self._buffers.keep()
        last_try = False
        while True:
            loss, failure = self._attempt(batch, total, mine, count, seed)
            if not self.ranks.any(failure is not None):
                break
            last_try = self._shrink(total, failure, last_try)
        if self._first:
            self._first = False
            if self.ranks.any(loss is not None and not math.isfinite(loss)):
                value = "NaN or infinite" if loss is None or math.isfinite(loss) else loss.item()
                raise SystemExit(f"The loss of the first step is {value}: check the data, and {place(self.task.loss)}.")
        loss = self._update(loss)
        self._grow()
        return loss

    def _samples(self, batch: Any) -> int:
        try:
            return self._batches.samples(batch)
        except SplitError as error:
            if self.task.targets is not None:  # such as a batch of graphs
                self._solid = str(error)
                return 1
            raise SystemExit(
                f"Cannot train on this data: {error}. `collate` must return tensors, or lists with one entry per "
                "sample, in a tuple, list, or dict; or else the task must define `targets`."
            ) from None

    def _count(self, part: Any, samples: int) -> float:
        """What the loss of a part is a sum or a mean over."""
        if self.task.targets is None:
            return samples
        number = self.task.targets(part)
        return number.item() if isinstance(number, Tensor) else number

    def _check(self, batch: Any, total: int) -> None:
        """Find out whether the loss can be split; until it is known, with each of the first batches."""
        task, found = self.task, Checked("unknown")
        if total and self._solid is None:
            options = {"declared": task.reduction, "targets": task.targets, "most": self.microbatch}
            found = check(task.loss, task.model, batch, batches=self._batches, move=self.device.move, **options)
        sizes, name = [each.numel() for each in self.parameters], place(task.loss).rpartition("/")[2]
        results = self.ranks.gather((found, (name, task.reduction, len(sizes), sum(sizes))))
        if len({about for _, about in results}) > 1:
            raise SystemExit("The processes train different losses or models: build the same task in each of them.")
        by_id = {each.id: each for each, _ in results}
        if wrong := by_id.keys() & {"sum", "mean", "targets"}:
            raise SystemExit(by_id[min(wrong)].text)
        self._checks = self._checks - 1 if by_id.keys() == {"unknown"} else 0
        if whole := by_id.get("mixes") or by_id.get("solid"):
            self._keep_whole(whole.text.removesuffix(WHOLE))
        elif "noise" in by_id:
            self.notes.append(by_id["noise"].text)

    def _keep_whole(self, reason: str) -> None:
        self._solid = reason
        self.notes.append(f"{reason}{WHOLE}")

    def _attempt(
        self, batch: Any, total: int, mine: float, count: float, seed: int
    ) -> tuple[Tensor | None, str | None]:
        failure = None
        try:
            return self._gradients(batch, total, mine, count, seed), None
        except Exception as error:
            if not is_oom(error):
                raise
            failure = first_line(error)
        self.metrics = []
        # Only here, after the handler, nothing references the tensors of the failed attempt.
        self._clear()
        return None, failure

    def _gradients(self, batch: Any, total: int, mine: float, count: float, seed: int) -> Tensor | None:
        """Compute the gradients of this rank's share of the mean loss; return that share, None without samples."""
        seed_all(seed)
        if self.device.device.type == "cuda":
            torch.cuda.default_generators[self.device.device.index or 0].manual_seed(seed)
        for parameter in self.parameters:
            parameter.grad = None
        share, self.metrics = None, []
        for part, number in self._parts(batch, total, mine):
            with self.device.autocast():
                loss, metrics = split_result(self.task.loss(self.task.model, self.device.move(part)))
            if metrics is not None:
                self.metrics.append(tree_map_only(Tensor, Tensor.detach, metrics))
            if loss.dtype in (torch.float16, torch.bfloat16):
                loss = loss.float()  # a sum can exceed their range
            weight = loss.new_full((), (number if self.task.reduction == "mean" else 1) / count)
            loss.backward(weight if self.scaler is None else self.scaler.scale(weight))
            loss = loss.detach() * weight
            share = loss if share is None else share + loss
        if share is None and self.scaler is not None:
            self.scaler.scale(torch.zeros((), device=self.device.device))  # creates the scaler's tensors
        return share

    def _parts(self, batch: Any, total: int, mine: float) -> list[tuple[Any, float]]:
        """The parts that have targets, and how many."""
        sizes = self._sizes(total) if mine else []
        if len(sizes) > 1:
            try:
                parts = self._batches.split(batch, sizes)
            except SplitError as error:
                self._keep_whole(str(error))
                sizes = [total]
        if len(sizes) < 2:
            return [(batch, mine)] * len(sizes)
        numbers = map(self._count, parts, sizes)
        return [(part, number) for part, number in zip(parts, numbers, strict=True) if number]

    def _sizes(self, total: int) -> list[int]:
        if self._solid is not None or (self.accumulate == 1 and total <= (self.microbatch or total)):
            return [total]
        return even(total, self.microbatch or total, self._fewest(), self.accumulate)

    def _fewest(self) -> int:
        """BatchNorm cannot be trained on one value."""
        return 2 if any(norm.training for norm in self._norms) else 1

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
        solid = self.ranks.any(self._solid is not None)
        if solid or tried // 2 < fewest:
            if last_try and solid:
                raise SystemExit(
                    f"Out of memory ({failure}), and the batch cannot be split"
                    f"{f', since {self._solid}' if self._solid else ''}: use a smaller batch, or activation "
                    "checkpointing (torch.utils.checkpoint)."
                )
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
            failure = first_line(error)
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
        self.reduction.reduce(self.parameters, loss)
        if self._buffers.places:
            self.reduction.share_buffers(self.task.model)
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
        size = "the whole batch" if (self.microbatch or self._whole) >= self._whole else f"{self.microbatch} samples"
        self.notes.append(f"No out-of-memory error in {self._wait} steps: trying {size} at a time again.")

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs to split and scale batches in the same way."""
        return {
            "microbatch": self.microbatch,
            "most": self.most,
            "whole": self._whole,
            "clean": self._clean,
            "wait": self._wait,
            "grown": self._grown,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`; a `microbatch` other than the one that the saved Step was created with applies now."""
        if self.most in (None, state.get("most")):
            self.microbatch, self._clean, self._wait = state["microbatch"], state["clean"], state["wait"]
            self._grown = state["grown"]
        self._whole = state["whole"]
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


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
