"""Kills while two processes save in shards, and flipped bits, beside plain DCP: python benchmarks/sharded.py

Needs torch and numpy. Every writer saves the same tensors, by two ranks on gloo, forked from one process.
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

from gpukit.train import sharded
from gpukit.train.ranks import Ranks

WORLD = 2
TENSORS = 8
MIB = 1 << 20


def tensors(step: int, size: int) -> dict[str, torch.Tensor]:
    """`size` bytes in shards of the two ranks; whatever number is in them belongs to one step."""
    mesh, rows = init_device_mesh("cpu", (WORLD,)), size // (TENSORS * 64 * 4)
    whole = torch.arange(rows * 64.0).view(rows, 64) % 1000 + step
    return {f"t{number}": distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None) for number in range(TENSORS)}


class Ours:
    name = "`gpukit.train.sharded`"

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size

    def save(self, ranks: Ranks, step: int) -> None:
        sharded.save(self.folder, step, tensors(step, self.size), {}, ranks=ranks, about={})

    def load(self, ranks: Ranks, into: dict[str, torch.Tensor]) -> str:
        """Fill from the newest; what was passed over."""
        found = sharded.newest(self.folder, ranks=ranks)
        found.fill(into, ranks=ranks)
        return " ".join(found.passed_over)

    def files(self) -> list[Path]:
        """Those of the newest checkpoint."""
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
    """As its tutorials do it: a folder named after the step, and the newest is taken. The last three are kept."""

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
    """Two ranks that do `work(ranks, tell)`; what rank 0 tells."""

    def __init__(self, work: Callable[[Ranks, Callable[[str], object]], object]) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.read, self.told = os.pipe()
        sys.stdout.flush()
        self.children = [self._fork(work, rank, port) for rank in range(WORLD)]
        os.close(self.told)

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
                work(ranks, lambda text: ranks.main and os.write(self.told, text.encode()))
            status = 0
        finally:
            os._exit(status)

    def said(self) -> str:
        return os.read(self.read, 1 << 16).decode()

    def wait(self) -> bool:
        """Whether both came to their end."""
        codes = [os.waitpid(child, 0)[1] for child in self.children]
        os.close(self.read)
        return not any(codes)

    def kill(self) -> None:
        for child in self.children:
            os.kill(child, signal.SIGKILL)


def go_on(writer: Ours, step: int, steps: int = 1000) -> Two:
    """Save one step after the other; each time tell before."""

    def work(ranks: Ranks, tell: Callable[[str], object]) -> None:
        for number in range(step + 1, step + steps + 1):
            tell(".")
            writer.save(ranks, number)
        tell(".")

    return Two(work)


def loads(writer: Ours) -> str | None:
    """What loading passes over; None where it fails, or brings numbers that were not saved together."""

    def work(ranks: Ranks, tell: Callable[[str], object]) -> None:
        into = tensors(-1, writer.size)
        said = writer.load(ranks, into)
        step = round((sharded.local(into["t0"]) - sharded.local(tensors(0, writer.size)["t0"])).flatten()[0].item())
        expected = tensors(step, writer.size)
        same = all(torch.equal(sharded.local(into[name]), sharded.local(one)) for name, one in expected.items())
        if ranks.any(not same) or ranks.least(step) != step:
            raise AssertionError("numbers of several steps")
        tell("+" + said)

    both = Two(work)
    said = both.said()
    return said[1:] if both.wait() and said else None


def begin(writer: Ours) -> None:
    shutil.rmtree(writer.folder, ignore_errors=True)
    writer.folder.mkdir()
    if not go_on(writer, 0, 2).wait():
        sys.exit(f"{writer.name} cannot save here.")


def duration(writer: Ours, step: int, steps: int) -> float:
    """Seconds of a save: from one to the next."""
    both, times = go_on(writer, step, steps), []
    while both.said():
        times.append(time.perf_counter())
    both.wait()
    return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def kills(writer: Ours, count: int, chance: random.Random) -> tuple[int, int, float]:
    """How many of `count` kills left what does not resume, how many met a save, and the seconds of one."""
    begin(writer)
    took, step, broken, met = duration(writer, 2, 20), 22, 0, 0
    for number in range(count):
        both = go_on(writer, step)
        both.said()
        time.sleep(chance.uniform(0, took))
        both.kill()
        more = both.said()
        both.wait()
        step += 1 + len(more)
        met += not more
        if loads(writer) is None:
            broken += 1
            begin(writer)
            step = 2
        progress(f"{writer.name}: {number + 1} of {count} kills, {broken} left what does not resume")
    return broken, met, took


def flips(writer: Ours, count: int, chance: random.Random) -> int:
    """How many of `count` flipped bits were reported: by an error, or by name, and an older checkpoint taken."""
    begin(writer)
    reported = 0
    for number in range(count):
        file = chance.choice(writer.files())
        flip(file, bit := chance.randrange(8 * file.stat().st_size))
        said = loads_anything(writer)
        reported += said is None or file.name in said
        flip(file, bit)
        progress(f"{writer.name}: {number + 1} of {count} flipped bits, {reported} reported")
    return reported


def loads_anything(writer: Ours) -> str | None:
    """What loading passes over, whatever numbers it brings: what comes back in silence is no report."""
    both = Two(lambda ranks, tell: tell("+" + writer.load(ranks, tensors(-1, writer.size))))
    said = both.said()
    return said[1:] if both.wait() and said else None


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        byte = opened.read(1)[0]
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


def progress(text: str) -> None:
    """At most every two seconds."""
    if time.monotonic() > progress.last + 2:
        progress.last = time.monotonic()
        print(text, file=sys.stderr, flush=True)


progress.last = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--kills", type=int, default=200, help="kills of both ranks while ours saves (200)")
    parser.add_argument("--flips", type=int, default=200, help="bits flipped in ours (200)")
    parser.add_argument("--beside", type=int, default=50, help="kills and flips for each other writer (50)")
    parser.add_argument("--size", type=float, default=16, help="MiB that are saved (16)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and bits (0)")
    given, load = parser.parse_args(), machine()["load"]
    torch.set_num_threads(1)  # forks would wait for others for ever
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
        title="Checkpoints in shards: killed and damaged",
        repeats=given.kills,
        table={
            "columns": ["writer", "SIGKILL left what does not resume", "flipped bits reported", "a save"],
            "rows": rows,
        },
        results=[
            {"what": "kills that left what does not resume", "value": broken, "at_most": 0},
            {"what": "kills that met a save", "value": met},
            {"what": "flipped bits that were reported", "value": reported, "at_least": given.flips},
            {
                "what": "ours / DCP, a new folder for each step",
                "value": round(took / found["NewFolder"][2], 2),
                "unit": "times",
            },
        ],
        notes=[
            f"{given.size:g} MiB in shards of two ranks on gloo. Both are killed at a moment drawn from the measured "
            "time of a save; what is then loaded has to be one of the steps saved, in every number.",
            "DCP as its tutorials show it, once into the same folder and once into a new one of which the newest is "
            "taken; whoever looks for an older one by hand finds it there.",
            "Ours holds a SHA-256 of every byte, and is forced to the disk, files and names; DCP forces its files.",
        ],
    )


if __name__ == "__main__":
    main()
