"""CPU time per step of a loop with exactrun's Run, compared with the same loop by hand: python benchmarks/step.py

Small images in small batches, so that what Run adds counts most; plain, and with augmentation that draws from torch,
numpy.random, `random`, or all three; with seeds for each batch and for each sample.

The loops train the same model on the same data, a few steps at a time, in turn, in one process and one thread. The
first step of a turn does not count: it finds the processor's caches filled by another loop, which nothing but this
program does. The CPU time of workers counts: before and after a turn, they have loaded all the batches that they may
load ahead. The minimum of all turns is taken, since other programs only add time. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy
import torch
from harness import Benchmark, load
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from exactrun.run import Run

BATCHES = 2_000  # of each data set, so that no loop needs a second epoch
KEPT = 512  # samples that the data sets contain; further ones are the same again
SETTLE = 30  # first steps, which are not measured
GOALS = {32: 1.10, 256: 1.05}  # by the batch size
Drawn = tuple[int, int, bool, Any]  # left, top, flip, and noise


def by_torch() -> Drawn:
    left, top = torch.randint(0, 5, (2,)).tolist()
    return left, top, torch.rand(()).item() < 0.5, torch.randn(3, 16, 16)


def by_numpy() -> Drawn:
    left, top = numpy.random.randint(0, 5, 2).tolist()
    noise = torch.from_numpy(numpy.random.standard_normal((3, 16, 16))).float()
    return left, top, numpy.random.rand() < 0.5, noise


def by_random() -> Drawn:
    return random.randint(0, 4), random.randint(0, 4), random.random() < 0.5, random.gauss(0, 1)


def by_all() -> Drawn:
    return random.randint(0, 4), random.randint(0, 4), numpy.random.rand() < 0.5, torch.randn(3, 16, 16)


KINDS: dict[str, Callable[[], Drawn] | None] = {
    "plain": None,
    "torch": by_torch,
    "numpy.random": by_numpy,
    "`random`": by_random,
    "all three": by_all,
}


class Images(Dataset):
    """Images of 3 x 16 x 16 values, perhaps with 2 of padding, a random crop, a random flip, and noise."""

    def __init__(self, length: int, draw: Callable[[], Drawn] | None) -> None:
        made = torch.Generator().manual_seed(0)
        self.length = length
        self.draw = draw
        self.images = torch.randn(KEPT, 3, 16, 16, generator=made)
        self.labels = torch.randint(0, 10, (KEPT,), generator=made).tolist()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index % KEPT]
        label = self.labels[index % KEPT]
        if self.draw is None:
            return image, label
        left, top, flip, noise = self.draw()
        image = functional.pad(image, (2, 2, 2, 2))[:, top : top + 16, left : left + 16]
        return (image.flip(2) if flip else image) + 0.05 * noise, label


def parts(batch: int, draw: Any, workers: int) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, 128), nn.ReLU(), nn.Linear(128, 10))
    loader = DataLoader(Images(batch * BATCHES, draw), batch, shuffle=True, num_workers=workers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), loader


def by_hand(batch: int, draw: Any, workers: int, spare: Path) -> Iterator[None]:
    model, optimizer, loader = parts(batch, draw, workers)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        yield


def by_run(seeds: str) -> Callable[..., Iterator[None]]:
    def loop(batch: int, draw: Any, workers: int, spare: Path) -> Iterator[None]:
        model, optimizer, loader = parts(batch, draw, workers)
        with Run(tempfile.mkdtemp(dir=spare), seeds=seeds, save_steps=10 * BATCHES, progress=False) as run:
            run.keep(model=model, optimizer=optimizer)
            for _, (inputs, labels) in run.enumerate(loader):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                run.step(loss=loss)
                yield

    return loop


HAND = "by hand"
AGAIN = "by hand, again"  # how far apart two equal loops are
LOOPS = {HAND: by_hand, AGAIN: by_hand, "seeds per batch": by_run("batch"), "seeds per sample": by_run("sample")}


def threads_of(pids: set[int]) -> float:
    """CPU time of all threads of these processes, in seconds."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(file.read_text().split()[0])
    return total / 1e9


def settled(pids: set[int]) -> float:
    """The CPU time of these processes, once they wait."""
    before = 0.0
    same = 0
    while pids and same < 3:
        time.sleep(0.04)
        now = threads_of(pids)
        same = same + 1 if now - before < 1e-4 else 0
        before = now
    return before


def workers_now() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def measured(batch: int, draw: Any, workers: int, rounds: int, spare: Path) -> dict[str, float]:
    """CPU seconds per step of each loop: the minimum of all rounds."""
    loops = {}
    pids = {}
    for name, loop in LOOPS.items():
        others = workers_now()
        loops[name] = loop(batch, draw, workers, spare)
        for _ in range(SETTLE):
            next(loops[name])
        pids[name] = workers_now() - others
    turn = (640 if workers else 64) // batch or 1
    found: dict[str, list[float]] = {name: [] for name in loops}
    gc.collect()
    for number in range(rounds):
        for name in list(loops) if number % 2 else list(reversed(loops)):
            next(loops[name])
            before = settled(pids[name])
            begun = time.process_time()
            for _ in range(turn):
                next(loops[name])
            took = time.process_time() - begun
            found[name].append((took + settled(pids[name]) - before) / turn)
    for loop in reversed(loops.values()):  # a run gives back the signal handlers that it found
        loop.close()
    return {name: min(seconds) for name, seconds in found.items()}


def main() -> None:
    with Benchmark(
        "A loop with exactrun", __doc__, rounds=20, packages=("torch", "numpy"), workers="0,2", only=""
    ) as bench:
        torch.set_num_threads(1)
        bench.columns = ["batch", "samples draw from", "workers", "by hand, ms", *list(LOOPS)[1:]]
        for batch, goal in GOALS.items():
            for name, draw in KINDS.items():
                for workers in map(int, bench.given.workers.split(",")) if bench.given.only in name else ():
                    # A turn without workers takes milliseconds.
                    found = measured(batch, draw, workers, bench.rounds * (1 if workers else 20), bench.spare)
                    ratios = {loop: found[loop] / found[HAND] for loop in list(LOOPS)[1:]}
                    shown = [f"{one:.3f}" for one in ratios.values()]
                    bench.row(batch, name, workers, f"{1e3 * found[HAND]:.2f}", *shown)
                    aimed = None if (batch, name) == (32, "`random`") else goal
                    what = f"batch {batch}, {name}, {workers} workers, seeds per batch"
                    bench.result(what, ratios["seeds per batch"], "times", at_most=aimed, digits=3)
        bench.notes = [
            "CPU time per step of the process and its workers: the minimum of "
            f"{bench.rounds} turns with workers, and of {20 * bench.rounds} without, relative to the loop by hand, "
            "whose augmentation cannot be repeated. Images of 3 x 16 x 16 values, a model of two linear layers.",
            f"The load of the machine (processes that run or want to) was {bench.load} before, and {load()} after.",
        ]


if __name__ == "__main__":
    main()
