"""The gradient of a step that ran out of memory, compared with other recipes: python benchmarks/gradient.py

The worst case: memory runs out in the middle of a step, in the forward or backward pass, a second time after a part of
the batch has been accumulated, and on one of two ranks only. Sentences padded to one length, whose padding has no
labels, in float64. Batches have 1 to 16 times --rounds samples. Requires torch and accelerate.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import find_executable_batch_size
from harness import Benchmark, say
from torch import Tensor, nn
from torch.nn import functional

from exactrun.ranks import Ranks
from gpukit.script.device import choose
from gpukit.script.step import Step
from gpukit.script.task import Task

PADDING = -100  # the label that cross_entropy ignores
WORDS, LENGTH, CLASSES = 50, 12, 7
Batch = dict[str, Tensor]


class Memory:
    """Simulated memory: each number in `plan` is the event at which an attempt runs out.

    Event 0 is the forward pass of the first part, 1 its backward pass, 2 the forward pass of the second part, and so
    on.
    """

    def __init__(self, *plan: int) -> None:
        self.plan, self.event = list(plan), 0

    def use(self) -> None:
        if self.plan and self.event >= self.plan[0]:
            self.plan.pop(0)
            self.event = 0
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.event += 1


class Watched(torch.autograd.Function):
    """The identity, which uses memory in the backward pass."""

    @staticmethod
    def forward(context: Any, x: Tensor, memory: Memory) -> Tensor:
        context.memory = memory
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.memory.use()
        return gradient, None


class Tagger(nn.Module):
    """Words (batch, 12) to logits (batch, 12, 7): a transformer layer in which sentences are independent."""

    def __init__(self, memory: Memory | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.memory = memory or Memory()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Parameter(torch.randn(LENGTH, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, CLASSES)
        self.double()

    def forward(self, words: Tensor, padding: Tensor) -> Tensor:
        hidden = self.layer(self.words(words) + self.places, src_key_padding_mask=padding)
        self.memory.use()
        return self.head(Watched.apply(hidden, self.memory))


def batch_of(size: int) -> Batch:
    random = torch.Generator().manual_seed(size)
    length = torch.randint(1, LENGTH + 1, (size, 1), generator=random)
    padding = torch.arange(LENGTH) >= length
    labels = torch.randint(0, CLASSES, (size, LENGTH), generator=random)
    labels[padding] = PADDING
    words = torch.randint(0, WORDS, (size, LENGTH), generator=random)
    return {"words": words, "padding": padding, "labels": labels, "number": torch.arange(size)}


def plan_of(size: int) -> list[int]:
    """When memory runs out: in the forward or backward pass, and for half of the batches again in the second half."""
    return [size % 2] if size < 4 or size % 4 < 2 else [size % 2, 2 + size // 4 % 2]


def loss_of(model: nn.Module, batch: Batch, reduction: str) -> Tensor:
    logits = model(batch["words"], batch["padding"]).flatten(0, 1)
    return functional.cross_entropy(logits, batch["labels"].flatten(), ignore_index=PADDING, reduction=reduction)


def rows(batch: Batch, first: int, last: int) -> Batch:
    return {name: value[first:last] for name, value in batch.items()}


def whole(batch: Batch) -> list[Tensor]:
    """The gradient of the mean loss of the whole batch, with enough memory."""
    model = Tagger()
    loss_of(model, batch, "mean").backward()
    return gradients(model)


def gradients(model: nn.Module) -> list[Tensor]:
    return [each.grad.clone() for each in model.parameters()]


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Norm of the difference of two gradients, relative to the norm of `wanted`."""
    difference = torch.cat([(one - other).flatten() for one, other in zip(found, wanted, strict=True)])
    return (difference.norm() / torch.cat([each.flatten() for each in wanted]).norm()).item()


class Seen:
    """The samples that contribute to a step."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, batch: Batch) -> None:
        self.numbers += batch["number"].tolist()


def gpukit(batch: Batch, memory: Memory, seen: Seen) -> list[Tensor]:
    model = Tagger(memory)

    def loss(model: nn.Module, part: Batch) -> Tensor:
        if part["number"][0] == 0:
            seen.numbers.clear()  # a new attempt starts
        seen(part)
        return loss_of(model, part, "sum")

    step_for(model, loss)(batch, seed=0)
    return gradients(model)


def step_for(model: nn.Module, loss: Callable[..., Tensor], ranks: Ranks | None = None, lr: float = 0.0) -> Step:
    task = Task(model, torch.optim.SGD(model.parameters(), lr), None, loss, lambda part: valid(part["labels"]))
    return Step(task, choose(device="cpu"), ranks, check=False)  # which would use up the plan


def valid(labels: Tensor) -> int:
    return int((labels != PADDING).sum())


def halve_and_double(batch: Batch, memory: Memory, seen: Seen) -> list[Tensor] | None:
    """The recipe of many guides: half the batch, twice the accumulation steps, the loss divided by their number."""
    model, total = Tagger(memory), len(batch["number"])
    size, steps = total, 1
    for _ in range(4):  # three times at most
        model.zero_grad()
        seen.numbers.clear()
        try:
            for number in range(steps):
                part = rows(batch, number * size, (number + 1) * size)
                seen(part)
                (loss_of(model, part, "mean") / steps).backward()
        except torch.OutOfMemoryError:
            size, steps = size // 2, steps * 2
            if not size:
                return None
            continue
        return gradients(model)
    return None


def accelerate(batch: Batch, memory: Memory, seen: Seen) -> list[Tensor] | None:
    """As in accelerate's examples/by_feature/automatic_gradient_accumulation.py."""
    total = len(batch["number"])

    @find_executable_batch_size(starting_batch_size=total)
    def loop(size: int) -> list[Tensor]:
        model, steps = Tagger(memory), total // size
        seen.numbers.clear()
        for number in range(steps):
            part = rows(batch, number * size, (number + 1) * size)
            seen(part)
            (loss_of(model, part, "mean") / steps).backward()
        return gradients(model)

    try:
        return loop()
    except RuntimeError as failure:
        if "No executable batch size found" not in str(failure):
            raise
        return None


METHODS = {"gpukit": gpukit, "halve the batch, double accumulation": halve_and_double, "accelerate": accelerate}


def compare(largest: int) -> dict[str, dict[str, Any]]:
    """Each method with each batch size: the error of the gradient, omitted samples, and batches without a step."""
    found = {name: {"errors": [], "dropped": 0, "none": 0} for name in METHODS}
    for size in range(1, largest + 1):
        batch = batch_of(size)
        wanted = whole(batch)
        for name, method in METHODS.items():
            seen = Seen()
            gradient = method(batch, Memory(*plan_of(size)), seen)
            kept = found[name]
            if gradient is None:
                kept["none"] += 1
                kept["dropped"] += size
                continue
            kept["errors"].append(error(gradient, wanted))
            kept["dropped"] += size - len(set(seen.numbers))
        if size % 16 == 0:
            say(f"batches of {size}")
    return found


def rank_main(largest: int) -> None:
    """One of two processes: steps in which one of them runs out of memory. Prints one line of JSON."""
    torch.set_num_threads(1)
    with Ranks.start("cpu") as ranks:
        worst, differ = 0.0, 0
        for size in range(1, largest + 1):
            batch = batch_of(size)
            memory = Memory(*(plan_of(size) if ranks.rank == size % 2 else []))
            model = Tagger(memory)
            step = step_for(model, lambda model, part: loss_of(model, part, "sum"), ranks, lr=0.1)
            mine = {name: value[ranks.rank :: 2] for name, value in batch.items()}
            step(mine if len(mine["number"]) else None, seed=0)
            worst = max(worst, error(gradients(model), whole(batch)))
            digest = [each.detach().sum().item().hex() for each in model.parameters()]
            differ += digest != ranks.share(digest)
        print(json.dumps({"worst": worst, "differ": differ}))


def two_ranks(largest: int) -> list[dict[str, Any]]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(largest)],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=1800)[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("One of the two processes failed.")
    return [json.loads(output) for output in outputs]


def main() -> None:
    packages = ("torch", "accelerate")
    with Benchmark("The gradient after running out of memory", __doc__, rounds=8, packages=packages) as bench:
        largest = 16 * bench.rounds
        found = compare(largest)
        ranks = two_ranks(largest)
        sizes = f"batches of 1 to {largest}"
        bench.columns = [sizes, "largest error", "median error", "samples left out", "batches without a step"]
        for name, one in found.items():
            errors = one["errors"]
            bench.row(name, f"{max(errors):.1e}", f"{statistics.median(errors):.1e}", one["dropped"], one["none"])
        ours = found["gpukit"]
        worst = max(one["worst"] for one in ranks)
        what = "on 2 ranks, one of which runs out of memory: largest error"
        bench.result(what, worst, at_most=1e-12, digits=None)
        differ = sum(one["differ"] for one in ranks)
        bench.result("steps after which the ranks' parameters differ", differ, at_most=0)
        bench.result(f"gpukit, {sizes}: largest error", max(ours["errors"]), at_most=1e-12, digits=None)
        bench.result("samples left out", ours["dropped"] + ours["none"], at_most=0)
        bench.notes = [
            "Error: norm of the difference to the gradient of the whole batch, relative to the norm of that gradient, "
            "in float64.",
            "Padded sentences of 1 to 12 words. Memory runs out in the forward or backward pass, and for half of the "
            "batches a second time, after a part of the batch has been accumulated.",
            "accelerate's finder reduces the batch size to 90 % and restarts its function, which omits samples if the "
            "sizes do not divide. It does not coordinate ranks, so it is not run on two.",
        ]


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank_main(int(sys.argv[1]))
    else:
        main()
