"""Checkpoints: kills while saving, flipped bits, and cost, compared with others: python benchmarks/checkpoint.py

The worst case for the cost is the smallest state, 1 MiB, in which hashing and syncing take longest beside writing. For
damage it is a kill during a save. Every writer saves the same training state. gpukit is killed 100 times --rounds, and
as many bits are flipped in its files; writers are killed and read in forks of one process that has imported all
libraries. The cost is measured --rounds times. Requires torch and accelerate.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint
from accelerate import Accelerator
from harness import Benchmark, say
from torch import nn

from exactrun import checkpoint

LAYERS = 8
MIB = 1 << 20
SIZES = (1, 16, 256)  # MiB whose cost is measured


class Training:
    """A model and its AdamW, `size` bytes in total. All numbers in them depend on the step."""

    def __init__(self, size: int) -> None:
        width = max(1, size // (LAYERS * 3 * 4 * 64))
        self.model = nn.Sequential(*(nn.Linear(64, width, bias=False) for _ in range(LAYERS)))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.model.requires_grad_(True)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.base = torch.rand(width, 64, generator=torch.Generator().manual_seed(0))

    def tensors(self) -> Iterator[torch.Tensor]:
        for parameter in self.model.parameters():
            kept = self.optimizer.state[parameter]
            yield from (parameter.data, kept["exp_avg"], kept["exp_avg_sq"])

    def set(self, step: int) -> None:
        for tensor in self.tensors():
            torch.add(self.base, step, out=tensor)

    def step(self) -> int:
        """The step to which all numbers belong; AssertionError if they belong to several."""
        step = round((next(self.tensors()) - self.base).mean().item())
        expected = self.base + step
        assert all(torch.equal(tensor, expected) for tensor in self.tensors()), "numbers of several steps"
        return step

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def take(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


class Ours:
    name = "`exactrun.checkpoint`"

    def __init__(self, folder: Path, training: Training) -> None:
        self.folder = folder
        self.training = training

    def save(self, step: int) -> None:
        state = self.training.state()
        checkpoint.save(self.folder, step, state["model"], {"optimizer": state["optimizer"]}, about={}, keep=3)

    def load(self) -> str:
        """Load the newest checkpoint into the training; return which checkpoints were skipped."""
        loaded = checkpoint.newest(self.folder)
        self.training.take(loaded.weights, loaded.state["optimizer"])
        return " ".join(loaded.passed_over)

    def files(self) -> list[Path]:
        """The files of the newest checkpoint."""
        newest = max(self.folder.glob("checkpoints/step-*"))
        return [path for path in newest.rglob("*") if path.is_file()]


class TorchSave(Ours):
    name = "`torch.save` to the same file"

    def save(self, step: int) -> None:
        torch.save(self.training.state(), self.folder / "checkpoint.pt")


class Synced(Ours):
    name = "`torch.save` with fsync"

    def save(self, step: int) -> None:
        with (self.folder / "checkpoint.pt").open("wb") as file:
            torch.save(self.training.state(), file)
            file.flush()
            os.fsync(file.fileno())


class Distributed(Ours):
    name = "`torch.distributed.checkpoint`, same folder"

    def save(self, step: int) -> None:
        torch.distributed.checkpoint.save(self.training.state(), checkpoint_id=self.folder, no_dist=True)


class Accelerate(Ours):
    name = "accelerate, `save_state`"

    def __init__(self, folder: Path, training: Training) -> None:
        super().__init__(folder, training)
        self.accelerator = Accelerator(cpu=True)
        self.accelerator.prepare(training.model, training.optimizer)

    def save(self, step: int) -> None:
        self.accelerator.save_state(str(self.folder))


class Fork:
    """A child process that calls `work(report)`; what it reports, and whether it succeeded."""

    def __init__(self, work: Callable[[Callable[[str], object]], object]) -> None:
        self.read, end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.read)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            status = 1
            with contextlib.suppress(BaseException):
                work(lambda text: os.write(end, text.encode()))
                status = 0
            os._exit(status)
        os.close(end)

    def received(self) -> str:
        return os.read(self.read, 1 << 16).decode()

    def wait(self) -> bool:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.read)
        return status == 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def load(writer: Ours) -> str | None:
    """Which checkpoints loading skips; None if it fails, or if the numbers do not belong together."""

    def work(report: Callable[[str], object]) -> None:
        message = writer.load()
        assert writer.training.step() >= 0
        report("+" + message)

    writer.training.set(-1)
    child = Fork(work)
    message = child.received()
    return message[1:] if child.wait() and message else None


def begin(writer: Ours) -> None:
    shutil.rmtree(writer.folder, ignore_errors=True)
    writer.folder.mkdir()
    child = Fork(lambda report: save_steps(writer, 0, report, 2))
    if not child.wait():
        sys.exit(f"{writer.name} cannot save here.")


def save_steps(writer: Ours, step: int, report: Callable[[str], object], steps: int = 1000) -> None:
    """Save one step after the other; report before each save."""
    for number in range(step + 1, step + steps + 1):
        writer.training.set(number)
        report(".")
        writer.save(number)


def duration(writer: Ours, step: int) -> float:
    """The median seconds from one save to the next."""
    child = Fork(lambda report: save_steps(writer, step, report, 6))
    times = []
    while child.received():
        times.append(time.perf_counter())
    child.wait()
    return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def kills(writer: Ours, count: int, chance: random.Random) -> tuple[int, int]:
    """How many of `count` kills left no usable checkpoint, and how many happened during a save."""
    begin(writer)
    took = duration(writer, 2)
    step = 8
    broken = 0
    met = 0
    for number in range(count):
        child = Fork(lambda report: save_steps(writer, step, report))  # noqa: B023
        child.received()
        time.sleep(chance.uniform(0, took))
        child.kill()
        more = child.received()
        child.wait()
        step += 1 + len(more)
        met += not more
        if load(writer) is None:
            broken += 1
            begin(writer)
            step = 2
        progress(f"{writer.name}: {number + 1} of {count} kills, {broken} left no usable checkpoint")
    return broken, met


def flips(writer: Ours, count: int, chance: random.Random) -> tuple[int, int]:
    """How many of `count` flipped bits were reported, and after how many an older checkpoint was loaded."""
    begin(writer)
    reported = older = 0
    for number in range(count):
        files = writer.files()
        sizes = [path.stat().st_size for path in files]
        weights = None if number % 2 else sizes  # by size alone, almost all would be in the largest files
        file = chance.choices(files, weights)[0]
        bit = chance.randrange(8 * file.stat().st_size)
        flip(file, bit)
        message = load(writer)
        reported += message is None or file.name in message
        older += message is not None and file.name in message
        flip(file, bit)
        progress(f"{writer.name}: {number + 1} of {count} flipped bits, {reported} reported")
    return reported, older


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        byte = opened.read(1)[0]
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ (1 << (bit % 8))]))


def cost(size: int, times: int, folder: Path) -> dict[str, float]:
    """Median seconds of a save by each writer, in turn; before each, pending writes are flushed to the disk."""
    training = Training(size)
    writers = [kind(folder / kind.__name__, training) for kind in (TorchSave, Synced, Ours, Distributed, Accelerate)]
    seconds: dict[str, list[float]] = {writer.name: [] for writer in writers}
    for writer in writers:
        shutil.rmtree(writer.folder, ignore_errors=True)
        writer.folder.mkdir()
    for number in range(times + 4):
        for writer in writers:
            training.set(number)
            os.sync()
            started = time.perf_counter()
            writer.save(number)
            if number >= 4:  # from then on, each save also removes an old checkpoint
                seconds[writer.name].append(time.perf_counter() - started)
        progress(f"cost at {size / MIB:g} MiB: round {number + 1} of {times + 4}")
    return {name: statistics.median(all_) for name, all_ in seconds.items()}


def progress(text: str) -> None:
    """Print at most every two seconds."""
    if time.monotonic() > progress.last + 2:
        progress.last = time.monotonic()
        say(text)


progress.last = 0.0


def main() -> None:
    packages = ("torch", "accelerate")
    with Benchmark("Checkpoints: kills, damage, and cost", __doc__, rounds=10, packages=packages) as bench:
        torch.set_num_threads(1)  # otherwise, forks wait forever for threads that they do not have
        warnings.simplefilter("ignore")
        damage(bench)
        speed(bench)


def damage(bench: Benchmark) -> None:
    """Kills and flipped bits."""
    chance = random.Random(0)
    count = 100 * bench.rounds
    ours = Ours(bench.spare / "ours", Training(MIB))
    broken, met = kills(ours, count, chance)
    reported, older = flips(ours, count, chance)
    bench.result(f"of {count} kills, those that left no usable checkpoint", broken, at_most=0)
    bench.result("kills during a save", met)
    bench.result("flipped bits reported", reported, at_least=count)
    bench.result("flipped bits after which an older checkpoint was loaded", older, at_least=count)


def speed(bench: Benchmark) -> None:
    """The time of a save."""
    costs = {}
    for size in SIZES:
        costs[size] = cost(size * MIB, bench.rounds, bench.spare)
        for kind in (TorchSave, Synced):
            times = costs[size][Ours.name] / costs[size][kind.name]
            goal = 2 if kind is TorchSave else None
            bench.result(f"{size} MiB: gpukit / {kind.name}", times, "times", at_most=goal)
    bench.columns = ["writer", *(f"saving {size} MiB" for size in SIZES)]
    for name in costs[SIZES[0]]:
        bench.row(name, *(f"{1000 * costs[size][name]:.1f} ms" for size in SIZES))
    bench.notes = [
        "Weights and AdamW's state; 1 MiB for kills and flipped bits. Each kill comes at a random moment during a "
        "save. A checkpoint is usable if loading it gives exactly the numbers of one saved step. Half of the flipped "
        "bits are drawn from all bytes, the others from a random file.",
        "Each library is used as shown first in its documentation. DCP and accelerate would do better with one folder "
        "per step.",
        "gpukit's times include SHA-256 hashes of all data, fsync, and removing the oldest of four checkpoints.",
    ]


if __name__ == "__main__":
    main()
