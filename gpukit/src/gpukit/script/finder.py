"""Finds the largest batch that fits in a GPU's memory, by training with several sizes in separate processes.

    python -m gpukit.script.finder                     # for this project, with the options of train.py
    found = find(build, settings)                     # the same from a script or a notebook

A trial is a process that trains a few steps of the project, compiled if the settings say so, and reads the peak from
PyTorch's allocator. The first begins with the size that gpukit.script.memory computes; two sizes predict the largest,
and a few more correct that. The next verifies it in a fresh process, as training will start: others are not returned.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import default_collate

from exactrun.errors import TrainingError
from exactrun.ranks import Ranks
from gpukit.script import device as devices
from gpukit.script.loader import length
from gpukit.script.memory import largest
from gpukit.script.step import Step, first_line, is_oom
from gpukit.script.task import Task, largest_samples, load_task

TRIALS, SIZES, STEPS, START = 5, 12, 5, 64  # processes; sizes in the first one; steps of a size; first size if untraced
MARGIN = 0.04  # of the memory, left free unless a size takes exactly the same memory twice: covers 2 % of noise
WORTH = 0.9  # if the margin costs more than this of the size, a size without it is verified
CLOSE, BEYOND, LEAP = 0.97, 0.88, 16  # of the prediction; then one larger size is tried; at most this many times larger
GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """Steps with `size` samples; `peak_bytes`: None if they failed."""

    size: int
    peak_bytes: int | None = None
    why: str = ""  # they failed
    memory: bool = True  # was lacking
    ended: bool = False  # and so did the process
    fresh: bool = False  # the first of their process


@dataclass
class Search:
    """Chooses the sizes: at most `ceiling` samples, in `budget` bytes."""

    budget: int = 0
    ceiling: int = 0
    start: int = START
    tried: list[Outcome] = field(default_factory=list)

    @property
    def began(self) -> list[int]:  # the sizes with which trials began
        return [each.size for each in self.tried if each.fresh]

    @property
    def bound(self) -> int:  # the smallest size that failed
        return min((each.size for each in self.tried if each.peak_bytes is None), default=self.ceiling + 1)

    @property
    def peaks(self) -> dict[int, list[int]]:  # of each size below all that failed, ascending
        found: dict[int, list[int]] = {}
        for each in sorted(self.tried, key=lambda each: each.size):
            if each.size < self.bound:
                found.setdefault(each.size, []).append(each.peak_bytes)
        return found

    @property
    def best(self) -> int:
        """The largest size that a trial began with, and that leaves the margin, or took the same memory twice."""
        best = 0
        for size, some in self.peaks.items():
            margin = 0 if len(some) > 1 and _same(some) else MARGIN
            best = size if size in self.began and max(some) <= self.budget * (1 - margin) else best
        return best

    def largest(self, most: float) -> int:
        return max((size for size, some in self.peaks.items() if max(some) <= most), default=0)

    def reach(self, target: float) -> float:
        """The size that is predicted to take `target` bytes, on a line through two sizes."""
        *before, (size, peak) = [(size, max(some)) for size, some in self.peaks.items()]
        other, low = next((each for each in reversed(before) if each[0] <= WORTH * size), (0, 0))
        reached = size + (target - peak) * (size - other) / max(peak - low, 1)
        return max(1, min(reached, LEAP * size, self.bound - 1))

    def aim(self) -> tuple[float, int]:
        """The memory that the batch may take, and the size that is predicted to."""
        most, full = self.budget * (1 - MARGIN), self.reach(self.budget)
        if all(map(_same, self.peaks.values())) and self.reach(most) < WORTH * full:
            return self.budget, int(full + 1e-6)
        above = sum(max(some) > most for some in self.peaks.values())
        return most, int(self.reach(most - (0.005 + 0.01 * above) * self.budget))

    def size(self) -> int:
        """The size with which the next trial begins; 0: there is none."""
        if len(self.began) == TRIALS or (size := self.next()):
            return 0 if len(self.began) == TRIALS else size
        size, top = self.largest(self.budget * (1 - MARGIN)), self.largest(self.budget)
        size = top if size < WORTH * top and all(map(_same, self.peaks.values())) else size
        return size if self.best < size else 0

    def next(self) -> int:
        """The size to try next in a process; 0: the largest is known, or nothing fits."""
        if not self.tried:
            return min(self.start, self.ceiling or self.start)
        bound, peaks = self.bound, self.peaks
        if bound == 1 or len(self.tried) >= SIZES:
            return 0
        if not peaks:
            return max(1, bound // 4)
        size, (most, want) = max(peaks), self.aim()
        if len(peaks) == 1 and (size == 1 < bound - 1 or 2 < size < self.ceiling):
            return 2 if size == 1 else size // 2
        if bound <= self.ceiling and want > max(size, 0.95 * (bound - 1)):  # the prediction has failed
            want = math.isqrt(size * bound) if bound > 2 * size else (size + bound) // 2
        good = self.largest(most)
        if good < CLOSE * want and want not in peaks:
            return want
        want = math.ceil(good / BEYOND)
        return want if size < want < bound else 0

    def reason(self) -> str:
        """One clause: why the batch is not larger."""
        if self.best == self.ceiling:
            return "the data set has no more samples"
        failed = [each.why for each in self.tried if each.size == self.bound <= 1.05 * self.best + 1]
        free = f"it leaves {1 - max(self.peaks[self.best]) / self.budget:.1%} of the memory free"
        return f"{self.bound} samples do not fit: {failed[-1]}" if failed else free


def _same(peaks: list[int]) -> bool:
    return max(peaks) <= 1.00002 * min(peaks)


def find(
    build: Callable[..., Task],
    settings: Any,
    *,
    limit: int | None = None,
    ranks: Ranks | None = None,
    progress: Callable[[str], object] = print,
) -> int:
    """Find the largest number of samples that one step of this process can use on its GPU.

    `build(settings, device)` returns the task. `limit`: use at most this many bytes. `ranks`: all of them must call
    this, and all get the smallest result. `progress` receives a line for each size. Batches repeat the largest of 64
    samples of the data set. TrainingError: none fits, or training fails for another reason.
    """
    ranks, search = ranks or Ranks(), Search(limit or 0)
    say = progress if ranks.main else lambda line: None
    try:
        _search(search, build, settings, ranks, say)
    except TrainingError:
        ranks.least(0)
        raise
    if not (least := ranks.least(search.best)):
        raise TrainingError("Another process of this run found no batch size; its own message says why.")
    why = search.reason() if least == search.best else "another process found no larger one"
    say(f"Batch size {least}{' per process' * (ranks.world > 1)}: {why}.")
    return least


def _search(search: Search, build: Callable[..., Task], settings: Any, ranks: Ranks, say: Callable[[str], Any]) -> None:
    if getattr(settings, "device", "auto") == "cpu" or not devices.GpuMemory.exists():
        raise TrainingError("The batch size can only be found on a GPU: set it to a number, as in `--batch-size 64`.")
    interactive = not hasattr(sys.modules["__main__"], "__file__")
    if "<" in build.__qualname__ or (interactive and build.__module__ == "__main__"):
        raise TrainingError("Other processes import the task: define it and its settings in a module.")
    say("Finding the largest batch that fits: training with several sizes in separate processes.")
    while size := search.size():
        with _process(build, settings, ranks.local_rank, ranks.world, search.budget, not search.tried) as ask:
            answer, fresh = ask(), True
            if isinstance(answer, str):
                raise TrainingError(answer)
            if not search.tried:
                search.budget, search.ceiling, search.start, line = answer
                say(line)
                if not search.ceiling:
                    raise TrainingError("The data set has fewer samples than there are processes: start fewer.")
                size = search.size()
            while size:
                since, one = time.monotonic(), ask(size)
                if isinstance(one, str):
                    one = Outcome(size, None, one, memory="SIGKILL" in one, ended=True)
                less = max(0, search.budget - answer[0])  # is free than for the first process
                search.tried.append(replace(one, peak_bytes=one.peak_bytes and one.peak_bytes + less, fresh=fresh))
                what = f"do not fit: {one.why}" if one.why else f"take {one.peak_bytes / GIB:.2f} GiB"
                how = ", in a fresh process" if len(search.began) > 1 and fresh else ""
                say(f"{size:>9} samples {what}, {time.monotonic() - since:.1f} s{how}")
                size, fresh = 0 if one.ended else search.next(), False
    if not search.best:
        last = search.tried[-1]
        needs = "use a smaller model or smaller samples" if last.memory else "memory is not the cause"
        raise TrainingError(f"Training fails with {last.size} samples ({last.why or 'too little memory'}): {needs}.")


@contextlib.contextmanager
def _process(*request: Any) -> Iterator[Callable[..., Any]]:
    """A fresh process, as a function that asks it; the answer is a text if it cannot continue."""
    spawn = multiprocessing.get_context("spawn")
    pipe, there = spawn.Pipe()
    process = spawn.Process(target=_child, args=(there, *request))

    def ask(size: int = 0) -> Any:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            if size:
                pipe.send(size)
            return pipe.recv()
        process.join()
        how = f"exit status {code}" if (code := process.exitcode) >= 0 else signal.Signals(-code).name
        return f"{'' if size else 'The task cannot be built: '}its process ended with {how}"

    process.start()
    there.close()
    try:
        yield ask
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it started
        process.kill()  # if it has no group yet
        process.join()
        pipe.close()


def _child(pipe: Any, build: Callable[..., Task], settings: Any, rank: int, world: int, most: int, first: bool) -> None:
    """Send the budget, the ceiling, the first size, and a line, then an Outcome for each size; a text if it cannot."""
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the finder
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_RUN_ID"):
        os.environ.pop(name, None)
    try:
        device = devices.from_settings(settings, rank)
        memory = devices.GpuMemory(device, most or None)
        # Before the task: what libraries keep for the whole process, such as accelerate's device, is then the task's.
        start = min(LEAP * START, largest(build, settings, int(memory.budget * (1 - 2 * MARGIN)))) if first else 0
        task = build(settings, device)
        samples, total, task.scheduler = largest_samples(task), length(task.dataset), None  # a scheduler may end
        for group in task.optimizer.param_groups:
            group["lr"] = 1e-12  # so that the losses stay finite
        limits = {name: getattr(settings, name, None) for name in ("clip", "microbatch")}
        collate = task.collate or default_collate
    except (Exception, SystemExit) as error:
        what = "The model does not fit in memory, even without data" if is_oom(error) else "The task cannot be built"
        pipe.send(f"{what}: {first_line(error)}")
        return
    about = f"{memory.budget / GIB:.2f} GiB available ({memory.how}); {total} samples"
    about += f" for {world} processes" * (world > 1)
    pipe.send((memory.budget, total // world, start or START, f"{device.device}: {about}."))

    def peak(size: int) -> int:
        memory.start()
        step, peaks = Step(task, device, check=False, **limits), []
        for seed in range(STEPS):
            # The batch before still exists, as in a loop over a loader.
            batch = collate([samples[number % len(samples)] for number in range(size)])
            step(batch, seed)
            peaks.append(memory.peak())
            if step.retries:
                raise torch.OutOfMemoryError("out of memory")
        return 2 * peaks[-1] - peaks[1]  # what was added since the second step is added once more

    while size := pipe.recv():
        try:
            outcome = Outcome(size, peak(size))
        except (Exception, SystemExit) as error:
            outcome = Outcome(size, None, first_line(error), is_oom(error))
        pipe.send(outcome if outcome.peak_bytes else replace(outcome, ended=not memory.works()))


def main() -> None:
    """Run the command."""
    about = "Find the largest batch that fits in a GPU's memory. Accepts all options of the training script."
    parser = argparse.ArgumentParser("python -m gpukit.script.finder", description=about, allow_abbrev=False)
    parser.add_argument("--task", metavar="MODULE:FUNCTION", help="what builds the task (default: this project's)")
    given, rest = parser.parse_known_args()
    try:
        find(*load_task(given.task, rest), progress=partial(print, flush=True))
    except (TrainingError, KeyboardInterrupt) as error:
        raise SystemExit(str(error) or 130) from None


if __name__ == "__main__":
    from gpukit.script import finder

    finder.main()  # not this module, `__main__`, which its processes would import again
