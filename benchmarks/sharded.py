"""Sharded checkpoints: kills while two processes save, and flipped bits, compared with plain DCP:
python benchmarks/sharded.py

Requires torch and numpy. Every writer saves the same tensors, on two gloo ranks forked from one process.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from measure import ROOT, machine, write
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

sys.path.insert(0, str(ROOT / "gpukit/src"))

from gpukit.train.adapters import sharded
from gpukit.train.ranks import Ranks

WORLD = 2
TENSORS = 8
MIB = 1 << 20


def tensors(step: int, size: int) -> dict[str, torch.Tensor]:
    """`size` bytes, sharded over the two ranks. All numbers in them depend on the step."""
    mesh, rows = init_device_mesh("cpu", (WORLD,)), size // (TENSORS * 64 * 4)
    whole = torch.arange(rows * 64.0).view(rows, 64) % 1000 + step
    return {f"t{number}": distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None) for number in range(TENSORS)}


class Ours:
    name = "`gpukit.train.adapters.sharded`"

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size

    def save(self, ranks: Ranks, step: int) -> None:
        sharded.save(self.folder, step, tensors(step, self.size), {}, ranks=ranks, about={})

    def load(self, ranks: Ranks, into: dict[str, torch.Tensor]) -> str:
        """Fill `into` from the newest checkpoint; return which checkpoints were skipped."""
        found = sharded.newest(self.folder, ranks=ranks)
        found.fill(into, ranks=ranks)
        return " ".join(found.passed_over)

    def files(self) -> list[Path]:
        """The files of the newest checkpoint."""
        return list(max(self.folder.glob("checkpoints/step-*")).iterdir())


class SameFolder(Ours):
    name = "DCP, the same folder"

    def save(self, ranks: Ranks, step: int) -> None:
        dcp.save(tensors(step, self.size), checkpoint_id=self.folder / "checkpoint")

    def load(self, ranks: Ranks, into: dict[str, torch.Tensor]) -> str:
        dcp.load(into, checkpoint_id=self.folder / "checkpoint")
        return ""

    def files(self) -> list[Path]:
        return list((self.folder / "checkpoint").iterdir())


class NewFolder(Ours):
    """As in its tutorials: a folder for each step, of which the newest is loaded. The last three are kept."""

    name = "DCP, a new folder for each step"

    def save(self, ranks: Ranks, step: int) -> None:
        dcp.save(tensors(step, self.size), checkpoint_id=self.folder / f"step-{step:08d}")
        if ranks.main and step > 3:
            shutil.rmtree(self.folder / f"step-{step - 3:08d}", ignore_errors=True)

    def load(self, ranks: Ranks, into: dict[str, torch.Tensor]) -> str:
        dcp.load(into, checkpoint_id=max(self.folder.glob("step-*")))
        return ""

    def files(self) -> list[Path]:
        return list(max(self.folder.glob("step-*")).iterdir())


class Two:
    """Two ranks that call `work(ranks, report)`; what rank 0 reports."""

    def __init__(self, work: Callable[[Ranks, Callable[[str], object]], object]) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.read, self.end = os.pipe()
        sys.stdout.flush()
        self.children = [self._fork(work, rank, port) for rank in range(WORLD)]
        os.close(self.end)

    def _fork(self, work: Callable[[Ranks, Callable[[str], object]], object], rank: int, port: int) -> int:
        child = os.fork()
        if child:
            return child
        signal.alarm(120)
        quiet, status = os.open(os.devnull, os.O_WRONLY), 1
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(WORLD)}
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        try:
            with Ranks.start("cpu") as ranks:
                work(ranks, lambda text: ranks.main and os.write(self.end, text.encode()))
            status = 0
        finally:
            os._exit(status)

    def received(self) -> str:
        return os.read(self.read, 1 << 16).decode()

    def wait(self) -> bool:
        """Whether both succeeded."""
        codes = [os.waitpid(child, 0)[1] for child in self.children]
        os.close(self.read)
        return not any(codes)

    def kill(self) -> None:
        for child in self.children:
            os.kill(child, signal.SIGKILL)


def save_steps(writer: Ours, step: int, steps: int = 1000) -> Two:
    """Save one step after the other; report before each save."""

    def work(ranks: Ranks, report: Callable[[str], object]) -> None:
        for number in range(step + 1, step + steps + 1):
            report(".")
            writer.save(ranks, number)
        report(".")

    return Two(work)


def load(writer: Ours) -> str | None:
    """Which checkpoints loading skips; None if it fails, or loads numbers that were not saved together."""

    def work(ranks: Ranks, report: Callable[[str], object]) -> None:
        into = tensors(-1, writer.size)
        message = writer.load(ranks, into)
        step = round((sharded.local(into["t0"]) - sharded.local(tensors(0, writer.size)["t0"])).flatten()[0].item())
        expected = tensors(step, writer.size)
        same = all(torch.equal(sharded.local(into[name]), sharded.local(one)) for name, one in expected.items())
        if ranks.any(not same) or ranks.least(step) != step:
            raise AssertionError("numbers of several steps")
        report("+" + message)

    both = Two(work)
    message = both.received()
    return message[1:] if both.wait() and message else None


def begin(writer: Ours) -> None:
    shutil.rmtree(writer.folder, ignore_errors=True)
    writer.folder.mkdir()
    if not save_steps(writer, 0, 2).wait():
        sys.exit(f"{writer.name} cannot save here.")


def duration(writer: Ours, step: int, steps: int) -> float:
    """The median seconds from one save to the next."""
    both, times = save_steps(writer, step, steps), []
    while both.received():
        times.append(time.perf_counter())
    both.wait()
    return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def kills(writer: Ours, count: int, chance: random.Random) -> tuple[int, int, float]:
    """How many of `count` kills left no usable checkpoint, how many came during a save, and the seconds of a save."""
    begin(writer)
    took, step, broken, met = duration(writer, 2, 20), 22, 0, 0
    for number in range(count):
        both = save_steps(writer, step)
        both.received()
        time.sleep(chance.uniform(0, took))
        both.kill()
        more = both.received()
        both.wait()
        step += 1 + len(more)
        met += not more
        if load(writer) is None:
            broken += 1
            begin(writer)
            step = 2
        progress(f"{writer.name}: {number + 1} of {count} kills, {broken} left no usable checkpoint")
    return broken, met, took


def flips(writer: Ours, count: int, chance: random.Random) -> int:
    """How many of `count` flipped bits were reported, by an error or by skipping to an older checkpoint."""
    begin(writer)
    reported = 0
    for number in range(count):
        file = chance.choice(writer.files())
        flip(file, bit := chance.randrange(8 * file.stat().st_size))
        message = load_anything(writer)
        reported += message is None or file.name in message
        flip(file, bit)
        progress(f"{writer.name}: {number + 1} of {count} flipped bits, {reported} reported")
    return reported


def load_anything(writer: Ours) -> str | None:
    """Which checkpoints loading skips, whatever numbers it loads; None if it fails."""
    both = Two(lambda ranks, report: report("+" + writer.load(ranks, tensors(-1, writer.size))))
    message = both.received()
    return message[1:] if both.wait() and message else None


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        byte = opened.read(1)[0]
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


def progress(text: str) -> None:
    """Print at most every two seconds."""
    if time.monotonic() > progress.last + 2:
        progress.last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


progress.last = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--kills", type=int, default=200, help="kills of both ranks while gpukit saves (200)")
    parser.add_argument("--flips", type=int, default=200, help="bits flipped in gpukit's files (200)")
    parser.add_argument("--beside", type=int, default=50, help="kills and flips for each other writer (50)")
    parser.add_argument("--size", type=float, default=16, help="MiB saved (16)")
    parser.add_argument("--seed", type=int, default=0, help="seed for the moments of kills and the flipped bits (0)")
    given, load = parser.parse_args(), machine()["load"]
    torch.set_num_threads(1)  # otherwise, forks wait forever for threads that they do not have
    warnings.simplefilter("ignore")
    chance, rows, found = random.Random(given.seed), [], dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        for kind in (Ours, SameFolder, NewFolder):
            count, bits = (given.kills, given.flips) if kind is Ours else (given.beside, given.beside)
            writer = kind(Path(spare, kind.__name__), round(given.size * MIB))
            broken, met, took = kills(writer, count, chance)
            reported = flips(writer, bits, chance)
            rows.append([writer.name, f"{broken} of {count}", f"{reported} of {bits}", f"{1000 * took:.0f} ms"])
            found[kind.__name__] = (broken, met, took, reported)
            shutil.rmtree(writer.folder)
    broken, met, took, reported = found["Ours"]
    write(
        "sharded",
        load,
        engine=False,
        packages=("torch",),
        title="Checkpoints in shards: kills and damage",
        repeats=given.kills,
        table={
            "columns": ["writer", "kills that left no usable checkpoint", "flipped bits reported", "saving"],
            "rows": rows,
        },
        results=[
            {"what": "kills that left no usable checkpoint", "value": broken, "at_most": 0},
            {"what": "kills during a save", "value": met},
            {"what": "flipped bits reported", "value": reported, "at_least": given.flips},
            {
                "what": "gpukit / DCP, a new folder for each step",
                "value": round(took / found["NewFolder"][2], 2),
                "unit": "times",
            },
        ],
        notes=[
            f"{given.size:g} MiB, sharded over two gloo ranks. Both are killed at a random moment during a save. A "
            "checkpoint is usable if loading it gives exactly the numbers of one saved step.",
            "DCP is used as in its tutorials: with the same folder, and with a new folder for each step, of which the "
            "newest is loaded. In the second case, an older checkpoint can be selected by hand.",
            "gpukit hashes all data with SHA-256, and syncs files and directories to the disk; DCP syncs its files.",
        ],
    )


if __name__ == "__main__":
    main()
