"""CPU time per step of a whole loop, with its loader, compared with a hand-written loop: python benchmarks/loading.py

Requires torch, accelerate, lightning, and Pillow. Every loop trains the same model on the same data with torch's
DataLoader, fused AdamW, and gradient clipping; each runs a few steps at a time, in turn, in one thread. The CPU
time of the workers counts: before and after a turn, they have loaded all the batches that they may load ahead.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import torch
from measure import ROOT, machine, write
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(ROOT / "gpukit/src"))
os.environ |= {"HF_HUB_OFFLINE": "1"}

from accelerate import Accelerator
from lightning.fabric import Fabric

from gpukit.script.device import choose
from gpukit.script.loader import Loading, loader
from gpukit.script.step import Step
from gpukit.script.task import Task
from gpukit.train.seeds import seed_step

CLIP = 1.0  # maximum norm of the gradient
BATCHES = 2_000  # of each data set, so that no loop needs a second epoch
KEPT = 512  # samples that the data sets contain; further ones are the same again


class Samples(Dataset):
    def __init__(self, batch: int) -> None:
        self.length, made = batch * BATCHES, torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 256, (KEPT, 3, 32, 32), dtype=torch.uint8, generator=made)
        self.rows = torch.randn(KEPT, 64, generator=made)
        self.labels = torch.randint(0, 10, (KEPT,), generator=made).tolist()

    def __len__(self) -> int:
        return self.length


class Rows(Samples):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.rows[index % KEPT], self.labels[index % KEPT]


class Augmented(Samples):
    """Images of 32 x 32 pixels with 4 of padding, a random crop, a random flip, and noise."""

    def __init__(self, batch: int, draw: str) -> None:
        super().__init__(batch)
        self.draw, self.own = draw, numpy.random.default_rng(0)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.draw == "torch":
            left, top, flip = (*torch.randint(0, 9, (2,)).tolist(), torch.rand(()).item() < 0.5)
            noise = torch.randn(3, 32, 32)
        elif self.draw == "random":
            left, top, flip = random.randint(0, 8), random.randint(0, 8), random.random() < 0.5
            noise = random.gauss(0, 1)
        else:
            drawn = self.own if self.draw == "a Generator" else numpy.random
            left, top, flip = *(int(9 * one) for one in drawn.random(2)), drawn.random() < 0.5
            noise = torch.from_numpy(drawn.standard_normal((3, 32, 32))).float()
        image = functional.pad(self.images[index % KEPT].float().div_(255), (4, 4, 4, 4))
        image = image[:, top : top + 32, left : left + 32]
        return (image.flip(2) if flip else image) + 0.05 * noise, self.labels[index % KEPT]


class Jpeg(Samples):
    """JPEG files of 256 x 256 pixels in memory, decoded and reduced to 32 x 32 pixels, with a random flip."""

    def __init__(self, batch: int) -> None:
        super().__init__(batch)
        self.files = []
        for image in self.images[:32]:
            file = io.BytesIO()
            Image.fromarray(image.permute(1, 2, 0).numpy()).resize((256, 256), Image.Resampling.BICUBIC).save(
                file, "JPEG"
            )
            self.files.append(file.getvalue())

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.open(io.BytesIO(self.files[index % 32])).convert("RGB").resize((32, 32))
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float().div_(255)
        return pixels.flip(2) if torch.rand(()).item() < 0.5 else pixels, self.labels[index % KEPT]


def convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for wide, out in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(wide, out, 3, 2, 1), nn.BatchNorm2d(out), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


class Kind:
    """Data, its batch size, a model, the steps in a turn, and the goal."""

    def __init__(
        self,
        dataset: Callable[[int], Dataset],
        batch: int,
        model: Callable[[], nn.Module],
        turn: int,
        goal: float | None,
    ) -> None:
        self.make, self.batch, self.build, self.turn, self.goal = dataset, batch, model, turn, goal

    def start(self) -> None:
        torch.manual_seed(0)
        self.model, self.dataset = self.build(), self.make(self.batch)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)

    def loader(self, workers: int) -> DataLoader:
        return DataLoader(self.dataset, self.batch, shuffle=True, num_workers=workers)


def augmented(draw: str, goal: float | None = None) -> Kind:
    return Kind(lambda batch: Augmented(batch, draw), 256, convolutions, 1, goal)


KINDS = {
    "batch 256, augmentation with torch": augmented("torch", 1.05),
    "batch 256, augmentation with `random`": augmented("random", 1.05),
    "batch 256, augmentation with numpy.random": augmented("numpy.random", 1.05),
    "batch 256, augmentation with a NumPy Generator": augmented("a Generator", 1.05),
    "batch 32, JPEG": Kind(Jpeg, 32, convolutions, 1, 1.05),
    "batch 256, plain": Kind(Rows, 256, perceptron, 20, 1.15),
    "batch 32, plain": Kind(Rows, 32, perceptron, 60, 1.15),
}
HAND = "hand-written loop"


def by_hand(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    for inputs, labels in kind.loader(workers):
        loss = functional.cross_entropy(kind.model(inputs), labels)
        kind.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(kind.model.parameters(), CLIP)
        kind.optimizer.step()
        yield


def gpukit(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    step = Step(Task(kind.model, kind.optimizer, kind.dataset, loss), choose(device="cpu"), clip=CLIP)
    for number, batch in enumerate(loader(kind.dataset, kind.batch, 0, loading=Loading(workers))):
        step(batch, seed_step(0, number, 0))
        yield


def accelerate(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    engine = Accelerator(cpu=True)
    model, optimizer, batches = engine.prepare(kind.model, kind.optimizer, kind.loader(workers))
    for inputs, labels in batches:
        loss = functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        engine.backward(loss)
        engine.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield


def fabric(kind: Kind, workers: int) -> Iterator[None]:
    kind.start()
    engine = Fabric(accelerator="cpu", devices=1)
    model, optimizer = engine.setup(kind.model, kind.optimizer)
    for inputs, labels in engine.setup_dataloaders(kind.loader(workers)):
        loss = functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        engine.backward(loss)
        engine.clip_gradients(model, optimizer, max_norm=CLIP)
        optimizer.step()
        yield


LOOPS = {HAND: by_hand, "gpukit": gpukit, "accelerate": accelerate, "Fabric": fabric}


def workers_of(pids: set[int]) -> float:
    """CPU time of all threads of these processes, in seconds."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(file.read_text().split()[0])
    return total / 1e9


def settled(pids: set[int]) -> float:
    """The CPU time of these processes, once they wait."""
    before, same = 0.0, 0
    while pids and same < 3:
        time.sleep(0.04)
        now = workers_of(pids)
        before, same = now, same + 1 if now - before < 1e-4 else 0
    return before


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def measure(kind: Kind, workers: int, times: int) -> dict[str, list[float]]:
    """CPU time per step, in ms: one value for each round."""
    loops, pids, found = {}, {}, {name: list[float]() for name in LOOPS}
    for name, loop in LOOPS.items():
        others = children()
        loops[name] = loop(kind, workers)
        for _ in range(max(3, kind.turn)):
            next(loops[name])
        pids[name] = children() - others
    for _ in range(times):
        for name, loop in loops.items():
            before, begun = settled(pids[name]), time.process_time()
            for _ in range(kind.turn):
                next(loop)
            took = time.process_time() - begun
            found[name].append((took + settled(pids[name]) - before) / kind.turn * 1e3)
    for loop in loops.values():
        loop.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=30, help="rounds (30)")
    parser.add_argument("--kinds", default="", help="only those whose name contains this")
    parser.add_argument("--dry", action="store_true", help="write no result")
    given = parser.parse_args()
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    load, rows, results = machine()["load"], [], []
    for name, kind in KINDS.items():
        for workers in (0, 2) if given.kinds in name else ():
            found = measure(kind, workers, given.times)
            best = {loop: min(values) for loop, values in found.items()}
            spread = {loop: statistics.median(values) / best[loop] - 1 for loop, values in found.items()}
            ratio = {loop: best[loop] / best[HAND] for loop in LOOPS}
            rows.append(
                [name, workers, round(best[HAND], 2)]
                + [f"{ratio[loop]:.2f}" for loop in LOOPS if loop != HAND]
                + [f"{max(spread.values()):.0%}"]
            )
            goal = {"at_most": kind.goal} if kind.goal else {}
            results.append({"what": f"{name}, {workers} workers", "value": round(ratio["gpukit"], 3)} | goal)
            print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    if given.dry:
        return
    write(
        "loading",
        load,
        engine=False,
        packages=("torch", "numpy", "pillow", "accelerate", "lightning"),
        title="A loop with its loader",
        repeats=given.times,
        table={
            "columns": ["loop", "workers", "hand-written, ms", "gpukit", "accelerate", "Fabric", "spread"],
            "rows": rows,
        },
        results=results,
        notes=[
            "CPU time per step of the process and its workers, minimum of all rounds; the loops run in turn. The other "
            "columns are relative to the hand-written loop, whose augmentation cannot be repeated. Spread: the "
            "largest difference between the median and the minimum of a loop.",
            "gpukit: `loader` and `Step`. Images have 32 x 32 pixels, and the model three convolutions; plain samples "
            "have 64 numbers, and the model three layers of 256.",
        ],
    )


if __name__ == "__main__":
    main()
