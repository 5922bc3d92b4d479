"""Kills while saving, flipped bits and the cost of a checkpoint, beside others': python benchmarks/checkpoint.py

Needs torch, numpy, transformers and accelerate. Every writer saves the same training, and is killed and read in forks
of one process that has loaded all of them.
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

LAYERS = 8
MIB = 1 << 20


class Training:
    """A model and its AdamW, `size` bytes together: whatever number is in them belongs to one step."""

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
        """The one to which every number in it belongs; AssertionError where they are of several."""
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
        """Put the newest into the training; what was passed over."""
        loaded = checkpoint.newest(self.folder)
        self.training.take(loaded.weights, loaded.state["optimizer"])
        return " ".join(loaded.passed_over)

    def files(self) -> list[Path]:
        """Those of the newest checkpoint."""
        newest = max(self.folder.glob("checkpoints/step-*"))
        return [path for path in newest.rglob("*") if path.is_file()]


class TorchSave(Ours):
    name = "`torch.save` in place"

    def save(self, step: int) -> None:
        torch.save(self.training.state(), self.folder / "checkpoint.pt")

    def load(self) -> str:
        self.training.take(**torch.load(self.folder / "checkpoint.pt"))
        return ""

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


class Synced(TorchSave):
    name = "`torch.save`, forced to the disk"

    def save(self, step: int) -> None:
        with (self.folder / "checkpoint.pt").open("wb") as file:
            torch.save(self.training.state(), file)
            file.flush()
            os.fsync(file.fileno())


class Distributed(TorchSave):
    name = "`torch.distributed.checkpoint`, same id"

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
    """Trains by itself: saves at every step, and goes on with resume_from_checkpoint=True."""

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

        class Tell(TrainerCallback):
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
        trainer = Trainer(Model(self.training.model), arguments, train_dataset=data, callbacks=[Tell()])
        trainer.train(resume_from_checkpoint=True if resume else None)

    def load(self) -> str:
        self.run(max(int(path.name[11:]) for path in self.folder.glob("checkpoint-*")))
        return ""

    def files(self) -> list[Path]:
        newest = max(self.folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
        return [path for path in newest.rglob("*") if path.is_file()]


class Fork:
    """A child that does `work(tell)`; what it tells, and whether it came to its end."""

    def __init__(self, work: Callable[[Callable[[str], object]], object]) -> None:
        self.read, told = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self.read)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1), os.dup2(quiet, 2)
            status = 1
            with contextlib.suppress(BaseException):  # DCP's errors are no Exceptions
                work(lambda text: os.write(told, text.encode()))
                status = 0
            os._exit(status)
        os.close(told)

    def said(self) -> str:
        return os.read(self.read, 1 << 16).decode()

    def wait(self) -> bool:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.read)
        return status == 0

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def loads(writer: Ours, whole: bool) -> str | None:
    """What loading passes over; None where it fails or, with `whole`, brings numbers that were not saved together."""

    def load(tell: Callable[[str], object]) -> None:
        said = writer.load()
        if whole and not isinstance(writer, Trainer):
            assert writer.training.step() >= 0
        tell("+" + said)

    writer.training.set(-1)
    child = Fork(load)
    said = child.said()
    return said[1:] if child.wait() and said else None


def begin(writer: Ours) -> None:
    shutil.rmtree(writer.folder, ignore_errors=True)
    writer.folder.mkdir()
    child = Fork(lambda tell: go_on(writer, 0, tell, 2))
    if not child.wait():
        sys.exit(f"{writer.name} cannot save here.")


def go_on(writer: Ours, step: int, tell: Callable[[str], object], steps: int = 1000) -> None:
    """Save one step after the other; each time tell before."""
    if isinstance(writer, Trainer):
        writer.run(step + steps, saving=lambda: tell("."))
        return
    for number in range(step + 1, step + steps + 1):
        writer.training.set(number)
        tell(".")
        writer.save(number)


def duration(writer: Ours, step: int) -> float:
    """Seconds of a save: from one to the next."""
    child = Fork(lambda tell: go_on(writer, step, tell, 6))
    times = []
    while child.said():
        times.append(time.perf_counter())
    child.wait()
    return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def kills(writer: Ours, count: int, chance: random.Random) -> tuple[int, int]:
    """How many of `count` kills left what does not resume, and how many met a save."""
    begin(writer)
    took, step, broken, met = duration(writer, 2), 8, 0, 0
    for number in range(count):
        child = Fork(lambda tell: go_on(writer, step, tell))  # noqa: B023
        child.said()
        time.sleep(chance.uniform(0, took))
        child.kill()
        more = child.said()
        child.wait()
        step += 1 + len(more)
        met += not more
        if loads(writer, whole=True) is None:
            broken += 1
            begin(writer)
            step = 2
        progress(f"{writer.name}: {number + 1} of {count} kills, {broken} left what does not resume")
    return broken, met


def flips(writer: Ours, count: int, chance: random.Random) -> tuple[int, int]:
    """How many of `count` flipped bits were reported, and after how many an older checkpoint was taken."""
    begin(writer)
    reported = older = 0
    for number in range(count):
        file = chance.choices(files := writer.files(), [path.stat().st_size for path in files])[0]
        if number % 2:  # large files would have them all
            file = chance.choice(files)
        flip(file, bit := chance.randrange(8 * file.stat().st_size))
        said = loads(writer, whole=type(writer) is Ours)  # what the others bring back in silence is no report
        reported += said is None or file.name in said
        older += said is not None and file.name in said
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
    """Median seconds of a save by each writer, in turn; between two of them the disk gets to rest."""
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
            begun = time.perf_counter()
            writer.save(number)
            if number >= 4:  # by then there are old ones to be removed
                seconds[writer.name].append(time.perf_counter() - begun)
        progress(f"cost at {size / MIB:g} MiB: round {number + 1} of {times + 4}")
    return {name: statistics.median(all_) for name, all_ in seconds.items()}


def progress(text: str) -> None:
    """At most every two seconds."""
    if time.monotonic() > progress.last + 2:
        progress.last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


progress.last = 0.0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--kills", type=int, default=1000, help="kills while ours saves (1000)")
    parser.add_argument("--flips", type=int, default=1000, help="bits flipped in ours (1000)")
    parser.add_argument("--beside", type=int, default=100, help="kills and flips for each other writer (100)")
    parser.add_argument("--times", type=int, default=15, help="rounds of the cost that count (15)")
    parser.add_argument("--size", type=float, default=16, help="MiB that are saved while killed and flipped (16)")
    parser.add_argument(
        "--sizes", type=float, nargs="*", default=[1, 4, 16, 64, 256], help="MiB of the cost (1 to 256)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of moments and bits (0)")
    parser.add_argument("--folder", type=Path, help="where to write (the folder for temporary files)")
    return parser.parse_args()


def main() -> None:
    given, load = options(), machine()["load"]
    torch.set_num_threads(1)  # forks would wait for others for ever
    warnings.simplefilter("ignore")
    chance = random.Random(given.seed)
    rows: dict[str, list[Any]] = {}
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=given.folder) as spare:
        for kind in (Ours, TorchSave, Trainer, Distributed, Accelerate):
            count, bits = (given.kills, given.flips) if kind is Ours else (given.beside, given.beside)
            writer = kind(Path(spare, kind.__name__), Training(round(given.size * MIB)))
            broken, met = kills(writer, count, chance)
            reported, older = flips(writer, bits, chance)
            rows[kind.name] = [f"{broken} of {count}", f"{reported} of {bits}"]
            print(
                f"{kind.name}: {broken} of {count} kills left what does not resume, {reported} of {bits} flipped bits"
            )
            shutil.rmtree(writer.folder)
            if kind is Ours:
                results += [
                    {"what": "kills that left what does not resume", "value": broken, "at_most": 0},
                    {"what": "kills that met a save", "value": met},
                    {"what": "flipped bits that were reported", "value": reported, "at_least": bits},
                    {"what": "of those, the older checkpoint was taken", "value": older, "at_least": bits},
                ]
        costs = {size: cost(round(size * MIB), given.times, Path(spare)) for size in given.sizes}
    for size, seconds in costs.items():
        for beside, goal in ((TorchSave, {"at_most": 2}), (Synced, {})):
            ratio = round(seconds[Ours.name] / seconds[beside.name], 2)
            results.append({"what": f"{size:g} MiB: ours / {beside.name}", "value": ratio, "unit": "times", **goal})
    for name in dict.fromkeys([*rows, *(name for seconds in costs.values() for name in seconds)]):
        row = rows.setdefault(name, ["", ""])
        row += [f"{1000 * seconds[name]:.1f} ms" if name in seconds else "" for seconds in costs.values()]
    write(
        "checkpoint",
        load,
        engine=False,
        packages=("torch", "transformers", "accelerate"),
        title="Checkpoints: killed, damaged, and what they cost",
        repeats=given.times,
        table={
            "columns": [
                "writer",
                "SIGKILL left what does not resume",
                "flipped bits reported",
                *(f"a save of {size:g} MiB" for size in given.sizes),
            ],
            "rows": [[name, *row] for name, row in rows.items()],
        },
        results=results,
        notes=[
            f"Weights and AdamW's state, {given.size:g} MiB for kills and flips. A kill comes at a moment drawn from "
            "the measured time of a save; what is then loaded has to be one of the steps saved, in every number "
            "(for HF Trainer: training has to go on). Half of the bits are drawn from all, half from one file.",
            "Each library as its documentation shows it first; one folder per step would help DCP and accelerate.",
            "Ours holds a SHA-256 of every byte, is forced to the disk, and removes the checkpoint before the last "
            "three within the time shown.",
        ],
    )


if __name__ == "__main__":
    main()
