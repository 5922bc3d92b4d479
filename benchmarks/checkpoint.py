"""Checkpoints: kills while saving, flipped bits, and cost, compared with others: python benchmarks/checkpoint.py

Requires torch, numpy, transformers, and accelerate. Every writer saves the same training state. Writers are killed and
read in forks of one process that has imported all libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint
from measure import ROOT, machine, write
from torch import nn

sys.path.insert(0, str(ROOT / "gpukit/src"))
os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}

from gpukit.train import checkpoint
from gpukit.train.saver import Saver

LAYERS = 8
MIB = 1 << 20


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
    name = "`gpukit.train.checkpoint`"

    def __init__(self, folder: Path, training: Training) -> None:
        self.folder, self.training = folder, training

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


class Background(Ours):
    name = "`gpukit.train.saver`, asynchronous"

    def __init__(self, folder: Path, training: Training) -> None:
        super().__init__(folder, training)
        self.saver = Saver(folder, about={}, keep=3)

    def save(self, step: int) -> None:
        state = self.training.state()
        self.saver.save(step, state["model"], {"optimizer": state["optimizer"]})


class TorchSave(Ours):
    name = "`torch.save` to the same file"

    def save(self, step: int) -> None:
        torch.save(self.training.state(), self.folder / "checkpoint.pt")

    def load(self) -> str:
        self.training.take(**torch.load(self.folder / "checkpoint.pt"))
        return ""

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


class Synced(TorchSave):
    name = "`torch.save` with fsync"

    def save(self, step: int) -> None:
        with (self.folder / "checkpoint.pt").open("wb") as file:
            torch.save(self.training.state(), file)
            file.flush()
            os.fsync(file.fileno())


class Distributed(TorchSave):
    name = "`torch.distributed.checkpoint`, same folder"

    def save(self, step: int) -> None:
        torch.distributed.checkpoint.save(self.training.state(), checkpoint_id=self.folder, no_dist=True)

    def load(self) -> str:
        state = self.training.state()
        torch.distributed.checkpoint.load(state, checkpoint_id=self.folder, no_dist=True)
        self.training.take(**state)
        return ""


class Accelerate(TorchSave):
    name = "accelerate, `save_state`"

    def __init__(self, folder: Path, training: Training) -> None:
        from accelerate import Accelerator

        super().__init__(folder, training)
        self.accelerator = Accelerator(cpu=True)
        self.accelerator.prepare(training.model, training.optimizer)

    def save(self, step: int) -> None:
        self.accelerator.save_state(str(self.folder))

    def load(self) -> str:
        self.accelerator.load_state(str(self.folder))
        return ""


class Trainer(TorchSave):
    """Runs its own training loop: saves at every step, and resumes with resume_from_checkpoint=True."""

    name = "HF Trainer, `resume_from_checkpoint=True`"

    def run(self, steps: int, saving: Callable[[], object] = lambda: None) -> None:
        """`saving` is called before each save."""
        from transformers import Trainer, TrainerCallback, TrainingArguments

        class Model(nn.Module):
            def __init__(self, layers: nn.Module) -> None:
                super().__init__()
                self.layers = layers

            def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
                return {"loss": sum(layer(x).square().mean() for layer in self.layers)}

        class Report(TrainerCallback):
            def on_step_end(self, *_: object, **__: object) -> None:
                saving()

        resume = any(self.folder.glob("checkpoint-*"))
        arguments = TrainingArguments(
            output_dir=str(self.folder),
            max_steps=steps,
            save_strategy="steps",
            save_steps=1,
            save_total_limit=3,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        data = [{"x": torch.ones(64)}] * 64
        trainer = Trainer(Model(self.training.model), arguments, train_dataset=data, callbacks=[Report()])
        trainer.train(resume_from_checkpoint=True if resume else None)

    def load(self) -> str:
        self.run(max(int(path.name[11:]) for path in self.folder.glob("checkpoint-*")))
        return ""

    def files(self) -> list[Path]:
        newest = max(self.folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
        return [path for path in newest.rglob("*") if path.is_file()]


class Fork:
    """A child process that calls `work(report)`; what it reports, and whether it succeeded."""

    def __init__(self, work: Callable[[Callable[[str], object]], object]) -> None:
        self.read, end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.read)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1), os.dup2(quiet, 2)
            status = 1
            with contextlib.suppress(BaseException):  # DCP's errors do not derive from Exception
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


def load(writer: Ours, whole: bool) -> str | None:
    """Which checkpoints loading skips; None if it fails or, with `whole`, if the numbers do not belong together."""

    def work(report: Callable[[str], object]) -> None:
        message = writer.load()
        if whole and not isinstance(writer, Trainer):
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
    if isinstance(writer, Trainer):
        writer.run(step + steps, saving=lambda: report("."))
        return
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
    took, step, broken, met = duration(writer, 2), 8, 0, 0
    for number in range(count):
        child = Fork(lambda report: save_steps(writer, step, report))  # noqa: B023
        child.received()
        time.sleep(chance.uniform(0, took))
        child.kill()
        more = child.received()
        child.wait()
        step += 1 + len(more)
        met += not more
        if load(writer, whole=True) is None:
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
        file = chance.choices(files := writer.files(), [path.stat().st_size for path in files])[0]
        if number % 2:  # otherwise, almost all would be in the largest files
            file = chance.choice(files)
        flip(file, bit := chance.randrange(8 * file.stat().st_size))
        message = load(writer, whole=type(writer) is Ours)  # the others report nothing if they load wrong numbers
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
        opened.write(bytes([byte ^ 1 << bit % 8]))


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


def stall(size: int, times: int, folder: Path) -> dict[str, list[float]]:
    """Seconds that a save takes from a training loop, in turn: one save, and 400 steps with a save at the 20th."""
    training = Training(size)
    ours, background = (kind(folder / kind.__name__, training) for kind in (Ours, Background))
    numbers = torch.rand(640, 640)
    seconds: dict[str, list[float]] = {}

    def measure(what: str, do: Callable[[], object]) -> float:
        os.sync()
        started = time.perf_counter()
        do()
        seconds.setdefault(what, []).append(time.perf_counter() - started)
        return seconds[what][-1]

    def steps(save: Callable[[int], object] = lambda number: None, number: int = 0) -> None:
        for step in range(400):
            torch.mm(numbers, numbers)
            if step == 20:
                save(number)

    for number in range(times + 2):
        training.set(number)
        measure("synchronous", lambda: ours.save(number))  # noqa: B023
        measure("stall", lambda: background.save(number))  # noqa: B023
        background.saver.wait()
        without = measure("steps", steps)
        for what, writer in (("synchronous", ours), ("asynchronous", background)):
            took = measure("steps with a save", lambda: steps(writer.save, number))  # noqa: B023
            background.saver.wait()
            seconds.setdefault(f"lost, {what}", []).append(took - without)
        progress(f"stall at {size / MIB:g} MiB: round {number + 1} of {times + 2}")
    return {what: all_[-times:] for what, all_ in seconds.items()}  # the first rounds allocate memory


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    quarter = len(ordered) // 4
    low, high = ordered[quarter], ordered[-1 - quarter]
    return f"{1000 * statistics.median(seconds):.0f} ms ({1000 * low:.0f} to {1000 * high:.0f})"


def progress(text: str) -> None:
    """Print at most every two seconds."""
    if time.monotonic() > progress.last + 2:
        progress.last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


progress.last = 0.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--kills", type=int, default=1000, help="kills while gpukit saves (1000)")
    parser.add_argument("--background", type=int, default=500, help="kills while gpukit saves asynchronously (500)")
    parser.add_argument("--flips", type=int, default=1000, help="bits flipped in gpukit's files (1000)")
    parser.add_argument("--beside", type=int, default=100, help="kills and flips for each other writer (100); 0: none")
    parser.add_argument("--times", type=int, default=15, help="measured rounds of the cost (15)")
    parser.add_argument("--size", type=float, default=16, help="MiB saved for kills and flipped bits (16)")
    parser.add_argument(
        "--sizes", type=float, nargs="*", default=[1, 4, 16, 64, 256], help="MiB saved to measure the cost (1 to 256)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed for the moments of kills and the flipped bits (0)")
    parser.add_argument("--folder", type=Path, help="where to write (the folder for temporary files)")
    return parser.parse_args()


def main() -> None:
    given, load = options(), machine()["load"]
    torch.set_num_threads(1)  # otherwise, forks wait forever for threads that they do not have
    warnings.simplefilter("ignore")
    chance = random.Random(given.seed)
    rows: dict[str, list[Any]] = {}
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=given.folder) as spare:
        for kind in (Ours, Background, *((TorchSave, Trainer, Distributed, Accelerate) if given.beside else ())):
            counts = {Ours: (given.kills, given.flips), Background: (given.background, given.beside or 5)}
            count, bits = counts.get(kind, (given.beside, given.beside))
            writer = kind(Path(spare, kind.__name__), Training(round(given.size * MIB)))
            broken, met = kills(writer, count, chance)
            reported, older = flips(writer, bits, chance)
            rows[kind.name] = [f"{broken} of {count}", f"{reported} of {bits}"]
            print(
                f"{kind.name}: {broken} of {count} kills left no usable checkpoint, {reported} of {bits} flipped bits"
            )
            shutil.rmtree(writer.folder)
            if kind is Background:
                results.append({"what": "asynchronous: unusable after a kill", "value": broken, "at_most": 0})
            if kind is Ours:
                results += [
                    {"what": "kills that left no usable checkpoint", "value": broken, "at_most": 0},
                    {"what": "kills during a save", "value": met},
                    {"what": "flipped bits reported", "value": reported, "at_least": bits},
                    {
                        "what": "flipped bits after which an older checkpoint was loaded",
                        "value": older,
                        "at_least": bits,
                    },
                ]
        costs = {size: cost(round(size * MIB), given.times, Path(spare)) for size in given.sizes}
        for path in Path(spare).iterdir():
            shutil.rmtree(path)
        large = max(given.sizes)
        waits = stall(round(large * MIB), given.times, Path(spare))
    ratios = [stalled / saved for stalled, saved in zip(waits["stall"], waits["synchronous"], strict=True)]
    ratio, lost = statistics.median(ratios), statistics.median(waits["lost, asynchronous"])
    results += [
        {
            "what": f"{large:g} MiB: asynchronous / synchronous wait",
            "value": round(ratio, 2),
            "unit": "times",
            "at_most": 0.2,
        },
        {
            "what": f"{large:g} MiB: asynchronous / synchronous total time lost",
            "value": round(lost / statistics.median(waits["lost, synchronous"]), 2),
            "unit": "times",
        },
    ]
    for size, seconds in costs.items():
        for beside, goal in ((TorchSave, {"at_most": 2}), (Synced, {})):
            ratio = round(seconds[Ours.name] / seconds[beside.name], 2)
            results.append({"what": f"{size:g} MiB: gpukit / {beside.name}", "value": ratio, "unit": "times", **goal})
    for name in dict.fromkeys([*rows, *(name for seconds in costs.values() for name in seconds)]):
        row = rows.setdefault(name, ["", ""])
        row += [f"{1000 * seconds[name]:.1f} ms" if name in seconds else "" for seconds in costs.values()]
    write(
        "checkpoint",
        load,
        engine=False,
        packages=("torch", "transformers", "accelerate"),
        title="Checkpoints: kills, damage, and cost",
        repeats=given.times,
        table={
            "columns": [
                "writer",
                "kills that left no usable checkpoint",
                "flipped bits reported",
                *(f"saving {size:g} MiB" for size in given.sizes),
            ],
            "rows": [[name, *row] for name, row in rows.items()],
        },
        results=results,
        notes=[
            f"Weights and AdamW's state; {given.size:g} MiB for kills and flipped bits. Each kill comes at a random "
            "moment during a save. A checkpoint is usable if loading it gives exactly the numbers of one saved step "
            "(for HF Trainer: if training continues). Half of the flipped bits are drawn from all bytes, the others "
            "from a random file.",
            "Each library is used as shown first in its documentation. DCP and accelerate would do better with one "
            "folder per step.",
            f"Waits at {large:g} MiB, median and quartiles: synchronous {spread(waits['synchronous'])}, asynchronous "
            f"{spread(waits['stall'])}. Time lost by a loop of 400 matrix products in one thread, in which one "
            f"checkpoint is saved: synchronous {spread(waits['lost, synchronous'])}, asynchronous "
            f"{spread(waits['lost, asynchronous'])}; the loop takes {spread(waits['steps'])}.",
            "gpukit's times include SHA-256 hashes of all data, fsync, and removing the oldest of four checkpoints.",
        ],
    )


if __name__ == "__main__":
    main()
