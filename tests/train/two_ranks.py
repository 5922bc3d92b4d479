"""What each of two processes does for test_ranks.py; prints one line of JSON."""

from __future__ import annotations

import json
import os

import torch
from torch import nn
from torch.nn import functional

from exactrun.ranks import Ranks
from gpukit.script.device import choose
from gpukit.script.reduction import Reduction
from gpukit.script.step import Step
from gpukit.script.task import Task

CPU = choose(device="cpu")


class Model(nn.Module):
    """Rows of 6 numbers to 5 logits; `hungry`: how often its forward still runs out of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)
        self.unused = nn.Linear(2, 2)
        self.hungry = 0
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        if self.training and len(x) > 1:
            self.norm(hidden.detach())  # counts, and has no part in the loss: that does not depend on the split
        if self.hungry:
            self.hungry -= 1
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.last(hidden)


def loss(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], ignore_index=-100, reduction="sum")


def targets(batch: list[torch.Tensor]) -> int:
    return int((batch[1] != -100).sum())


def batch_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(size)
    labels = torch.randint(0, 5, (size,), generator=random)
    labels[torch.rand(size, generator=random) < 0.3] = -100
    labels[0] = 1
    return torch.randn(size, 6, dtype=torch.float64, generator=random), labels


def step_of(ranks: Ranks | None = None, lr: float = 0.0) -> Step:
    torch.manual_seed(4)
    model = Model()
    return Step(Task(model, torch.optim.AdamW(model.parameters(), lr), None, loss, targets), CPU, ranks)


def steps(ranks: Ranks) -> dict[str, object]:
    """Steps in which one rank runs out, and what one process makes of the same batches."""
    worst, microbatches, losses = 0.0, [], []
    for size in (1, 2, 3, 8, 13, 64):
        x, labels = batch_of(size)
        step, alone = step_of(ranks), step_of()
        alone.task.model.norm.eval()
        step.task.model.hungry = int(ranks.rank == size % 2)
        part = slice(ranks.rank, None, ranks.world)
        here = None if len(x[part]) == 0 else [x[part], labels[part]]
        difference = abs(step(here, seed=ranks.rank) - alone([x, labels], seed=0)).item()
        for one, other in zip(step.parameters, alone.parameters, strict=True):
            if one.grad is None or other.grad is None:
                assert one.grad is other.grad is None
            else:
                difference = max(difference, (one.grad - other.grad).abs().max().item())
        worst = max(worst, difference)
        microbatches.append(step.microbatch)
        losses.append(step.retries)
    return {"worst": worst, "microbatches": microbatches, "retries": losses}


def training(ranks: Ranks) -> dict[str, object]:
    """Ten steps, rank 1 out of memory in two of them."""
    step = step_of(ranks, lr=0.01)
    with torch.no_grad():
        for parameter in step.parameters:
            parameter += ranks.rank  # not the same start
    Reduction(ranks).same_start(step.task.model)
    for number in range(10):
        x, labels = batch_of(20 + number)
        step.task.model.hungry = int(ranks.rank == 1 and number in (3, 6))
        step([x[ranks.rank :: 2], labels[ranks.rank :: 2]], seed=number)
    state = step.task.model.state_dict()
    return {"microbatch": step.microbatch, "state": [value.double().sum().item().hex() for value in state.values()]}


def scaled(ranks: Ranks) -> dict[str, object]:
    """fp16 with a loss scale: the gradient overflows on rank 1, and in the next step rank 1 has no sample."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    task = Task(model, optimizer, None, lambda model, x: model(x).float().square().sum())
    step, weights = Step(task, choose(device="cpu", dtype="fp16"), ranks), []
    x = torch.full((4, 4), 60000.0 if ranks.rank else 1.0)
    for batch in (x, torch.ones(2, 4) if ranks.main else None):
        step(batch, seed=0)
        weights.append(model.weight.detach().sum().item())
    return {"weights": weights, "scale": step.scaler.get_scale()}


def agreements(ranks: Ranks) -> dict[str, object]:
    parameters = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    parameters[0].grad = torch.full((2,), 1.0 + ranks.rank)
    parameters[1].grad = torch.ones(2) if ranks.main else None
    large = nn.Parameter(torch.zeros(9 << 20))  # more than a bucket
    large.grad = torch.full_like(large, 2.0)
    also = torch.tensor(0.5 + ranks.rank)
    Reduction(ranks).reduce([*parameters, large], also)
    return {
        "any": ranks.any(ranks.rank == 1),
        "none": ranks.any(False),
        "sum": [ranks.sum(3 + ranks.rank), ranks.sum(0.5)],
        "least": ranks.least(5 - ranks.rank),
        "shared": ranks.share({"rank": ranks.rank}),
        "gradients": [None if each.grad is None else each.grad.tolist() for each in parameters],
        "large": large.grad.unique().tolist(),
        "also": also.item(),
    }


def ending(ranks: Ranks) -> str:
    step = step_of(ranks)
    step.task.model.hungry = 1000 * ranks.rank
    x, labels = batch_of(8)
    try:
        step([x, labels], seed=0)
    except SystemExit as end:
        return str(end)
    return "it fitted"


def disagreeing(ranks: Ranks) -> str:
    """Another loss on one of them."""
    step, (x, labels) = step_of(ranks), batch_of(8)
    if not ranks.main:
        step.task.loss = lambda model, batch: model(batch[0]).sum()
    try:
        step([x, labels], seed=0)
    except SystemExit as end:
        return str(end)
    return "they agreed"


def main() -> None:
    torch.set_num_threads(1)
    with Ranks.start("cpu") as ranks:
        found = {each.__name__: each(ranks) for each in (agreements, steps, training, scaled, ending, disagreeing)}
        print(json.dumps({"rank": ranks.rank, "main": ranks.main, **found}), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # as a training run ends with several ranks (gpukit/script/errors.py): gloo may abort the exit
