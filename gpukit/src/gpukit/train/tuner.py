"""The number of data loader workers, from what a few batches cost.

    loading = tune(dataset, batch_size=64, step_seconds=0.02)           # loading.reason says why
    seconds = measure(dataset, batch_size=64)                           # seconds per batch, by number of workers

One worker loads a few batches. How long it computes (CPU time, so that other programs do not count) and waits (for a
disk or network), and what passing a batch to this process costs, bound the speed of any number of workers: each loads
one batch at a time, all processes share the CPUs, and this process takes every batch for its next step. The smallest
number that is as fast as any other is used. Until then, only the worker reads the data set: workers forked later would
share the position of any file that this process had opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import worker

from gpukit.train.data import Loading, loader
from gpukit.train.progress import announce
from gpukit.train.workers import close, explain, stays, usable_cpus

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of workers to choose from
SKIPPED = 2  # first batches, which are not counted: they open files and fill caches
ENOUGH = 1.05  # a number of workers is as fast as another if it takes at most so much longer
# Workers are used if they make loading at least this much faster, even if they make a step on the CPU take twice as much
# CPU time: its threads wait for one another (benchmarks/loader.py, 2 CPUs, 2026-11-23).
GAIN, CROWDED = 1.1, 2.0
SECONDS = 0.5  # how long batches are timed, at least 3


@dataclass(frozen=True)
class Costs:
    """Seconds per batch: `load`, the CPU time of a worker to load it, at `best`, and the time that it `wait`s; `send`,
    the worker's CPU time to pass it on; `take`, how long this process takes to receive it. `step`: duration of a step;
    `busy`: its CPU time. `size`: bytes of the batch's tensors.
    """

    load: float
    best: float
    wait: float = 0.0
    send: float = 0.0
    take: float = 0.0
    step: float = 0.0
    busy: float = 0.0
    size: int = 0

    @property
    def alone(self) -> float:
        """Seconds per batch without workers."""
        return self.best + self.wait + self.step

    def period(self, workers: int, cpus: float, crowded: float = 1.0) -> float:
        """Seconds per batch with workers: the slowest of this process, the workers, and all CPUs together.

        `crowded`: a factor on the CPU time of a step.
        """
        work = self.load + self.send
        return max(self.step + self.take, (work + self.wait) / workers, (work + crowded * self.busy) / cpus)


def choose(costs: Costs, batch_size: int) -> Loading:
    """The smallest number of workers that is as fast as any other, and that fits in /dev/shm."""
    shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes that train on this machine
    cpus = max(1.0, usable_cpus() / shared)
    room = _shm() / shared / max(costs.size, 1) - 2  # batches; one is in use, and one on its way
    counts = [each for each in COUNTS if each <= max(8, 2 * cpus)]
    fitting = [each for each in counts if 2 * each <= room]
    periods = {each: costs.period(each, cpus) for each in fitting}
    workers = next((each for each in fitting if periods[each] <= ENOUGH * min(periods.values())), 0)
    if workers and costs.alone <= GAIN * costs.period(workers, cpus, CROWDED):
        workers = 0
    load, hand = costs.best if workers == 0 else costs.load, costs.send + costs.take
    reason = f"{workers} worker{'s' * (workers != 1)}: a batch of {batch_size} takes {_ms(load + costs.wait)} to load"
    reason += f", {_ms(hand)} to pass on from a worker" + f", and a step {_ms(costs.step)}" * (costs.step > 0)
    if fitting != counts and workers == max(fitting, default=0):
        reason += "; more workers do not fit in /dev/shm"
    return Loading(workers, prefetch=4 if 4 * workers <= room else 2, reason=reason)


def tune(
    dataset: Dataset,
    batch_size: int,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    step_seconds: float = 0.0,
    device: torch.device | str = "cpu",
) -> Loading:
    """The settings with which batches of `batch_size` samples load fastest; `reason` says why. Takes a few batches.

    `step_seconds`: how long a training step on `device` takes, so that no more workers are used than it needs.
    """
    trial = Trial(loader(dataset, batch_size, 0, loading=Loading(1), collate=collate))
    busy = step_seconds * (torch.get_num_threads() if torch.device(device).type == "cpu" else 1)
    with announce("Tuning the data loader"):
        try:
            for _ in trial:
                if trial.enough:
                    break
        except Exception as error:
            return alone(error)
    return choose(trial.costs(step_seconds, busy), batch_size)


def alone(error: Exception) -> Loading:
    """The settings without workers, if only workers fail with this error; otherwise, raise it."""
    if not stays(error):
        raise error
    reason = explain(error)
    return Loading(0, reason=f"0 workers: {reason[0].lower()}{reason[1:].rstrip('.')}")


class Trial:
    """The batches of a loader, from one worker, each of which is timed."""

    def __init__(self, batches: DataLoader) -> None:
        timed = _Timed(batches.dataset, batches.collate_fn)
        self.batches = type(batches)(
            timed,
            batch_sampler=batches.batch_sampler,
            num_workers=1,
            collate_fn=timed.collated,
            pin_memory=batches.pin_memory,
            worker_init_fn=batches.worker_init_fn,
            generator=batches.generator,
        )
        self.seen: list[tuple[float, ...]] = []
        self.size, self.enough = 0, False

    def __iter__(self) -> Iterator[Any]:
        batches, began = iter(self.batches), time.perf_counter()
        try:
            while True:
                asked = time.perf_counter()
                (*costs, ended), batch = next(batches)
                now = time.perf_counter()
                self.seen.append((*costs, now - max(asked, ended)))
                self.size = max(self.size, _size(batch))
                number = len(self.seen) - SKIPPED
                self.enough = number >= 3 and now - began >= SECONDS
                yield batch
                del batch  # so that only the loop holds it, and its release is part of the loop's step
        finally:
            close(batches)

    def costs(self, step: float, busy: float) -> Costs:
        """The costs of the batches so far, with those of a step."""
        load, wait, total, take = zip(*self.seen[SKIPPED:], strict=True)
        send = max(0.0, median(total) - median(load))
        return Costs(median(load), min(load), median(wait), send, median(take), step, busy, self.size)


class _Timed(Dataset):
    """A loader's data set and `collate_fn`: each batch comes with the seconds that it computed and waited, the CPU time
    of this worker since the batch before, and the time at which it was ready."""

    def __init__(self, dataset: Dataset, collate: Any) -> None:
        self.dataset, self.collate, self.inner = dataset, collate, collate.collate
        collate.collate = self._inner
        self.before = 0.0

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, keys: list[Any]) -> Any:
        self.began = _clocks()
        return self.dataset.__getitems__(keys)

    def _inner(self, samples: list[Any]) -> Any:
        """The user's `collate`, as without workers: in one, torch's would allocate shared memory, which takes longer."""
        info, worker._worker_info = worker._worker_info, None
        try:
            return self.inner(samples)
        finally:
            worker._worker_info = info
            self.ended = _clocks()

    def collated(self, samples: list[Any]) -> Any:
        batch = self.collate(samples)
        wall, work, queued = (end - begin for begin, end in zip(self.began, self.ended, strict=True))
        before, self.before = self.before, time.process_time()
        return (work, max(0.0, wall - work - queued), self.before - before, time.perf_counter()), batch


def _clocks() -> tuple[float, float, float]:
    """Seconds of this thread: passed, running, and ready to run while other programs had the CPUs (0 if unknown)."""
    try:
        queued = int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        queued = 0.0
    return time.perf_counter(), time.thread_time(), queued


def measure(
    dataset: Dataset,
    batch_size: int,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: Iterable[int] = (),
    seconds: float = 1.0,
) -> dict[int, float]:
    """Seconds per batch, measured for each number of workers (default: 0, 1, 2, 4, ... up to twice the CPUs).

    The last one measured is 0, so that the files that this process opens are not shared with workers.
    """
    counts = sorted(set(workers) or {0, *(each for each in COUNTS if each <= 2 * usable_cpus())}, reverse=True)
    found = {}
    with announce(f"Measuring data loading with {', '.join(map(str, counts))} workers"):
        for count in counts:
            batches = iter(loader(dataset, batch_size, 0, loading=Loading(count, prefetch=2), collate=collate))
            try:
                for _ in range(max(SKIPPED, 2 * count)):  # those that were loaded while the workers started
                    next(batches)
                number, began = 0, time.perf_counter()
                while number < 3 or number % max(1, count) or time.perf_counter() - began < seconds:
                    next(batches)
                    number += 1
                found[count] = (time.perf_counter() - began) / number
            finally:
                close(batches)
    return dict(sorted(found.items()))


def _shm() -> float:
    """Bytes of /dev/shm that batches may use."""
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return 0.0
    return 0.8 * shm.f_bavail * shm.f_frsize


def _size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return sum(_size(part) for part in parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"
