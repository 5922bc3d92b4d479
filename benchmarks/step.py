"""Time per step, compared with a plain loop and with other engines: python benchmarks/step.py

Requires torch, accelerate, lightning, and transformers. CPU time of one process with one thread. Every engine trains
the same model on the same batches with the same fused AdamW and gradient clipping, a few steps at a time, in turn.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from measure import ROOT, machine, write
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

sys.path.insert(0, str(ROOT / "gpukit/src"))
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}

import lightning
import transformers
from accelerate import Accelerator
from lightning.fabric import Fabric

from gpukit.script.device import choose
from gpukit.script.step import Step
from gpukit.script.task import Task

CLIP = 1.0  # maximum norm of the gradient
SETTLE = 3  # first steps of a run, which are not measured
TURNS = 20  # turns of each engine in a round


class Block(nn.Module):
    """The basic block of ResNet: two convolutions with batch norm."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, out, 3, stride, 1, bias=False),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
        )
        self.norm, self.norm_again = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        change = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.shortcut = change if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm(self.first(x)))
        return functional.relu(self.norm_again(self.second(y)) + self.shortcut(x))


def tiny() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def resnet() -> nn.Module:
    """ResNet-18 for images of 32 x 32 pixels, with half the channels."""
    layers, width = [nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()], 32
    for out, stride in ((32, 1), (64, 2), (128, 2), (256, 2)):
        layers += [Block(width, out, stride), Block(out, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class Kind:
    """A model, its data, the steps in a turn, and the steps in a run of an engine that only offers a complete loop."""

    def __init__(
        self, build: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, turn: int, steps: int
    ) -> None:
        self.build, self.batch, self.turn, self.steps = build, batch, turn, steps
        count = batch * (steps + SETTLE)
        self.data = TensorDataset(torch.randn(count, *shape), torch.randint(0, 10, (count,)))

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return self.build()

    def loader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=self.batch)


KINDS = {
    "small network (width 32, batch 8)": lambda: Kind(tiny, (32,), 8, turn=20, steps=200),
    "ResNet-18 with half the channels (batch 16)": lambda: Kind(resnet, (3, 32, 32), 16, turn=1, steps=6),
}


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


class Clock:
    """CPU time of the measured steps of a run."""

    def __init__(self) -> None:
        self.done, self.begun, self.ended = 0, 0.0, 0.0

    def tick(self) -> None:
        self.done += 1
        self.ended = time.process_time()
        if self.done == SETTLE:
            self.begun = self.ended

    @property
    def per_step(self) -> float:
        """Microseconds."""
        return (self.ended - self.begun) / (self.done - SETTLE) * 1e6


Steps = Iterator[None]  # one step for each `next`
Runs = Iterator[float]  # complete runs, and the microseconds per step of each


def by_hand(kind: Kind) -> Steps:
    model = kind.model()
    optimizer = adamw(model)
    while True:
        for x, labels in kind.loader():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            yield


def gpukit(kind: Kind) -> Steps:
    model = kind.model()

    def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    step, seed = Step(Task(model, adamw(model), kind.data, loss), choose(device="cpu"), clip=CLIP), 0
    while True:
        for batch in kind.loader():
            step(batch, seed)
            seed += 1
            yield


def fabric(kind: Kind) -> Steps:
    engine = Fabric(accelerator="cpu", devices=1)
    model = kind.model()
    model, optimizer = engine.setup(model, adamw(model))
    while True:
        for x, labels in engine.setup_dataloaders(kind.loader()):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            engine.backward(loss)
            engine.clip_gradients(model, optimizer, max_norm=CLIP)
            optimizer.step()
            yield


def accelerate(kind: Kind) -> Steps:
    engine = Accelerator(cpu=True)
    model = kind.model()
    model, optimizer = engine.prepare(model, adamw(model))
    while True:
        for x, labels in engine.prepare_data_loader(kind.loader()):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), labels)
            engine.backward(loss)
            engine.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            yield


class Named(Dataset):
    """The same samples as HF's Trainer wants them."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x, label = self.data[index]
        return {"x": x, "labels": label}


class WithLoss(nn.Module):
    """The same model as HF's Trainer wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(x)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


class Ticks(transformers.TrainerCallback):
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.tick()


def hf_trainer(kind: Kind) -> Runs:
    model = WithLoss(kind.model())
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        arguments = transformers.TrainingArguments(
            folder,
            max_steps=kind.steps + SETTLE,
            per_device_train_batch_size=kind.batch,
            max_grad_norm=CLIP,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        while True:
            clock, data = Clock(), Named(kind.data)
            trainer = transformers.Trainer(
                model, arguments, train_dataset=data, optimizers=(optimizer, schedule), callbacks=[Ticks(clock)]
            )
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
            yield clock.per_step


class Module(lightning.LightningModule):
    """The same model as a LightningModule."""

    def __init__(self, model: nn.Module, clock: Clock) -> None:
        super().__init__()
        self.model, self.clock = model, clock

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return functional.cross_entropy(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return adamw(self.model)

    def on_train_batch_end(self, *_: Any) -> None:
        self.clock.tick()


def lightning_trainer(kind: Kind) -> Runs:
    model = kind.model()
    while True:
        clock = Clock()
        lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=kind.steps + SETTLE,
            gradient_clip_val=CLIP,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(Module(model, clock), kind.loader())
        yield clock.per_step


STEPPED = {"plain loop": by_hand, "gpukit": gpukit, "Fabric": fabric, "accelerate": accelerate}
TRAINERS = {"HF Trainer": hf_trainer, "Lightning": lightning_trainer}


def measured(kind: Kind, times: int) -> dict[str, list[float]]:
    """Microseconds per step of each engine in each round; the first round is a warm-up."""
    stepped, trainers = ({name: make(kind) for name, make in group.items()} for group in (STEPPED, TRAINERS))
    found: dict[str, list[float]] = {name: [] for name in (*stepped, *trainers)}
    for number in range(times + 1):
        took: dict[str, list[float]] = {name: [] for name in stepped}
        gc.collect()
        for turn in range(TURNS):
            for name in list(stepped)[:: 1 if turn % 2 else -1]:  # alternate the order
                begun = time.process_time()
                for _ in range(kind.turn):
                    next(stepped[name])
                took[name].append((time.process_time() - begun) / kind.turn * 1e6)
        medians = {name: statistics.median(one) for name, one in took.items()}
        for name, one in [*medians.items(), *((name, next(run)) for name, run in trainers.items())]:
            if number:
                found[name].append(one)
        print(f"round {number} of {times}" + " (not counted)" * (not number), file=sys.stderr, flush=True)
    return found


def rows(name: str, found: dict[str, list[float]]) -> Iterator[list[Any]]:
    base = found["plain loop"]
    for engine, times in found.items():
        more = statistics.median(one - other for one, other in zip(times, base, strict=True))
        share = statistics.median(one / other - 1 for one, other in zip(times, base, strict=True))
        yield [name, engine, f"{statistics.median(times):,.0f} µs", f"{more:+,.0f} µs", f"{share:+.1%}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=15, help="measured rounds (15)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    load, table, results = machine()["load"], [], []
    for name, make in KINDS.items():
        found = measured(make(), given.times)
        table += rows(name, found)
        pairs = list(zip(found["gpukit"], found["plain loop"], strict=True))
        more = statistics.median(one - other for one, other in pairs)
        share = 100 * statistics.median(one / other - 1 for one, other in pairs)
        unit, value, most = ("µs", more, 20) if statistics.median(found["gpukit"]) < 2000 else ("%", share, 1)
        results.append(
            {"what": f"gpukit over the plain loop, {name}", "value": round(value, 2), "unit": unit, "at_most": most}
        )
    write(
        "step",
        load,
        engine=False,
        packages=("torch", "accelerate", "lightning", "transformers"),
        title="Time per step",
        repeats=given.times,
        table={"columns": ["model", "engine", "CPU time per step", "over the plain loop", "relative"], "rows": table},
        results=results,
        notes=[
            "Medians over all rounds of the differences within each round. Each engine has "
            f"{TURNS} turns per round. HF Trainer and Lightning only offer a complete training loop, so they have one "
            "run. One thread. The goal is 20 µs, or 1 % for a large model.",
            "Every engine uses the same DataLoader without workers; logging, checkpoints, and progress bars are off. "
            "gpukit's time includes seeding every step, which the others do not do.",
        ],
    )


if __name__ == "__main__":
    main()
