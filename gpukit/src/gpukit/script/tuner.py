"""The batches of a training loop, with the number of data loader workers chosen during the first steps.

One worker loads the first batches. How long it computes (CPU time, so that other programs do not count) and waits (for
a disk or network), what passing a batch to this process costs, and how long a step takes bound the speed with any
number of workers: each loads one batch at a time, all share the CPUs, and this process takes every batch for a step.
The smallest number that is as fast as any other is used. The batches do not depend on it (data.py). Until then, only
the worker reads the data set: workers forked later would share the position of any file that this process had opened.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import worker

from exactrun.ranks import Ranks
from exactrun.workers import close
from gpukit.host.limits import usable_cpus
from gpukit.script.loader import Loading, explain, loader, stays
from gpukit.script.task import Task

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # numbers of workers to choose from
SKIPPED = 2  # first batches, which open files and fill caches
LEAST, MOST, SECONDS = 3, 30, 0.5  # batches to time after them: for so long, within these numbers
# Workers are used if they make loading at least this much faster, even if a step on the CPU then takes twice the CPU
# time: its threads wait for one another (2 CPUs, 4 workers, steps of 10 ms: up to 700 ms; 2026-11-23).
CLOSE, GAIN, CROWDED = 1.05, 1.1, 2.0


@dataclass(frozen=True)
class Costs:
    """Seconds per batch: a worker's CPU time to load it (and at `best`), its waiting, its CPU time to `send` it, and
    how long this process takes to receive it. `step`, `busy`: a step, and its CPU time. `size`: bytes of a batch."""

    load: float
    best: float
    wait: float = 0.0
    send: float = 0.0
    take: float = 0.0
    step: float = 0.0
    busy: float = 0.0
    size: int = 0

    def period(self, workers: int, cpus: float, crowded: float = 1.0) -> float:
        """Seconds per batch with workers: the slowest of this process, the workers, and all CPUs together."""
        work = self.load + self.send
        return max(self.step + self.take, (work + self.wait) / workers, (work + crowded * self.busy) / cpus)


def choose(costs: Costs, batch_size: int) -> Loading:
    """The smallest number of workers that is as fast as any other, and that fits in /dev/shm."""
    shared = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes that train on this machine
    cpus = max(1.0, usable_cpus() / shared)
    room = (
        0.8 * shutil.disk_usage("/dev/shm").free / shared / max(costs.size, 1) - 2
    )  # one batch is used, one on its way
    periods = {each: costs.period(each, cpus) for each in COUNTS if each <= max(8, 2 * cpus)}
    wanted = next(each for each in periods if periods[each] <= CLOSE * min(periods.values()))
    workers = max((each for each in periods if each <= wanted and 2 * each <= room), default=0)
    if costs.best + costs.wait + costs.step <= GAIN * costs.period(wanted, cpus, CROWDED):
        wanted = workers = 0
    load = (costs.load if workers else costs.best) + costs.wait
    reason = f"{workers} worker{'s' * (workers != 1)}: a batch of {batch_size} takes {_ms(load)} to load"
    reason += f", {_ms(costs.send + costs.take)} to pass on from a worker"
    if costs.step:
        reason += f", and a step {_ms(costs.step)}"
    if workers < wanted:
        reason += "; /dev/shm has no room for more workers"
    return Loading(workers, prefetch=4 if 4 * workers <= room else 2, reason=reason)


class Feed:
    """Endless batches from `first_step` for one loop: this rank's part of `batch_size` samples each.

    `source`: a data set, or a task with its data set and `collate`. `workers`: a number, or "auto". `loading`: the
    current settings of the loader; `say` reports them once they are chosen. Raises the errors of `loader`.
    """

    def __init__(
        self,
        source: Task | Dataset,
        batch_size: int,
        seed: int,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        first_step: int = 0,
        workers: int | Literal["auto"] = "auto",
        ranks: Ranks | None = None,
        device: torch.device | str = "cpu",
        say: Callable[[str], object] = print,
    ) -> None:
        dataset, collate = (source.dataset, source.collate) if isinstance(source, Task) else (source, collate)
        self.batches = partial(loader, dataset, batch_size, seed, ranks=ranks, collate=collate, device=device)
        self.mine = max(1, batch_size // (ranks.world if ranks else 1))
        self.step, self.device, self.say = first_step, torch.device(device), say
        self.tuned = workers != "auto"
        self.loading = Loading(workers if self.tuned else 1)

    def __iter__(self) -> Iterator[Any]:
        if not self.tuned:
            yield from self._first()
        yield from self.batches(first_step=self.step, loading=self.loading)

    def _first(self) -> Iterator[Any]:
        """The batches of the first steps, from one worker."""
        trial, steps = Trial(self.batches(first_step=self.step, loading=self.loading)), []
        with closing(iter(trial)) as batches:  # its worker would take CPUs from those that follow
            while not trial.enough:
                try:
                    batch = next(batches)
                except Exception as error:
                    if not stays(error):
                        raise
                    reason = explain(error)
                    self.loading = Loading(0, reason=f"0 workers: {reason[0].lower()}{reason[1:].rstrip('.')}")
                    break
                wall, work = time.perf_counter(), time.process_time()
                yield batch
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                steps.append((time.perf_counter() - wall, time.process_time() - work))
                self.step += 1
            else:
                costs = trial.costs(*(median(each) for each in zip(*steps, strict=True)))
                self.loading = choose(costs, self.mine)
        self.tuned = True
        self.say(f"Loading data with {self.loading.reason}.")


class Trial:
    """The batches of a loader, from one worker, each of which is timed until there are `enough`."""

    def __init__(self, batches: DataLoader) -> None:
        timed = _Timed(batches.dataset, batches.collate_fn)
        names = ("batch_sampler", "pin_memory", "worker_init_fn", "generator")
        same = {name: getattr(batches, name) for name in names}
        self.batches = type(batches)(timed, num_workers=1, collate_fn=timed.collated, **same)
        self.seen: list[tuple[float, ...]] = []
        self.size, self.enough = 0, False

    def __iter__(self) -> Iterator[Any]:
        batches, began = iter(self.batches), time.perf_counter()
        try:
            while True:
                asked = time.perf_counter()
                (*costs, ready), batch = next(batches)
                now = time.perf_counter()
                self.seen.append((*costs, now - max(asked, ready)))
                self.size = max(self.size, _size(batch))
                number = len(self.seen) - SKIPPED
                self.enough = number >= MOST or (number >= LEAST and now - began >= SECONDS)
                yield batch
                del batch  # only the loop holds it now, so that its release counts as part of the step
        finally:
            close(batches)

    def costs(self, step: float = 0.0, busy: float = 0.0) -> Costs:
        """The costs of the batches so far, with those of a step."""
        load, wait, total, take = zip(*self.seen[SKIPPED:], strict=True)
        send = max(0.0, median(total) - median(load))
        soon = sorted(take)[len(take) // 4]  # a busy machine delays the others
        return Costs(median(load), min(load), median(wait), send, soon, step, busy, self.size)


class _Timed(Dataset):
    """A loader's data set and `collate_fn`: with each batch come the seconds that it computed and waited, the CPU time
    of this worker since the batch before, and when it was ready."""

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
        """The user's `collate`, as without workers: torch's would allocate shared memory, which takes longer."""
        info, worker._worker_info = worker._worker_info, None
        try:
            return self.inner(samples)
        finally:
            worker._worker_info, self.ended = info, _clocks()

    def collated(self, samples: list[Any]) -> Any:
        batch = self.collate(samples)
        wall, work, queued = (end - begin for begin, end in zip(self.began, self.ended, strict=True))
        before, self.before = self.before, time.process_time()
        return (work, max(0.0, wall - work - queued), self.before - before, time.perf_counter()), batch


def _clocks() -> tuple[float, float, float]:
    """Seconds of this thread: passed, running, and ready to run while other programs had the CPUs (0 if unknown)."""
    try:
        queued = int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        queued = 0.0
    return time.perf_counter(), time.thread_time(), queued


def _size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return sum(_size(part) for part in parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.0f} ms"
