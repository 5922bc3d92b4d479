"""Measures what batches cost, and how fast a loader plan delivers them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import torch
from torch.utils.data import Dataset

from gpukit.train.costs import HANDOVER, Costs, Plan, PlanResult, processes
from gpukit.train.data import (
    Collated,
    DataError,
    Keyed,
    Loading,
    Order,
    close,
    length,
    loader,
    signals_later,
    usable_cpus,
)

MEASURE_SECONDS = 0.15  # for measuring what batches cost
RUN_SECONDS = 0.25  # for running a plan
WAITED = 0.001  # seconds: a longer wait means that no batch was ready
PORTION = 0.06  # seconds: if a batch and its step take longer, smaller portions are measured


class Trials:
    """Loads batches with different plans; each trial reads other samples, not those just cached."""

    def __init__(
        self,
        dataset: Dataset,
        collate: Callable[[list[Any]], Any] | None,
        context: str | None,
        say: Callable[[str], None],
    ) -> None:
        self.dataset, self.collate, self.context, self.say = dataset, collate, context, say
        self.seed = 0

    def costs(self, batch_size: int, step: float, device: torch.device | str | None) -> Costs:
        """Measure batches in a separate process: workers would share files that were opened here."""
        size = min(batch_size, length(self.dataset))
        found = self._aside("reading samples", _measure, self.dataset, self.collate, size, step)
        portion, handing = found["samples"] / size, HANDOVER * (1 + found["tensors"])
        moved = found.pop("size")
        return Costs(
            **found,
            size=int(moved / portion),
            step=step * portion,
            step_cpus=torch.get_num_threads() if device is not None and torch.device(device).type == "cpu" else 0.0,
            worker=handing + moved / 4e9,
            training=handing,
            cpus=max(1.0, usable_cpus() / processes()),
        )

    def run(self, plan: Plan, costs: Costs, seconds: float = RUN_SECONDS) -> PlanResult:
        """Load batches with this plan for some seconds, with a simulated step after each."""
        self.seed += 1
        loading = Loading(*plan, pin=False, context=self.context)
        batches = loader(self.dataset, costs.samples, self.seed, loading=loading, collate=self.collate)
        how = (batches, *(plan if plan[0] else (1, 1)), costs.step, costs.step_cpus, seconds)
        self.say(f"trying {describe(plan)}")
        return _run(*how) if plan[0] else self._aside(f"trying {describe(plan)}", _run, *how)

    def _aside(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in another process; return its result. DataError if it fails."""
        context = multiprocessing.get_context(self.context)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(theirs, function, arguments), daemon=True)
        begun = time.monotonic()
        with signals_later():
            process.start()
        theirs.close()
        try:
            while not ours.poll(0.5):
                self.say(f"{what} ({time.monotonic() - begun:.0f} s)")
            good, result = ours.recv()
        except EOFError:
            process.join()
            raise DataError(f"The process that read samples ended with exit code {process.exitcode}.") from None
        finally:
            process.kill()
            process.join()
            ours.close()
        if not good:
            raise DataError(result)
        return result


def describe(plan: Plan) -> str:
    """A plan as text."""
    workers, prefetch = plan
    plural = "" if workers == 1 else "s"
    return f"{workers} worker{plural}" + (f", prefetching {prefetch} batches each" if workers else "")


def _child(to: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    torch.set_num_threads(1)
    try:
        to.send((True, function(*arguments)))
    except Exception as error:
        to.send((False, f"A sample cannot be read: {type(error).__name__}: {error}."))


def _measure(
    dataset: Dataset, collate: Callable[[list[Any]], Any] | None, batch_size: int, step: float
) -> dict[str, Any]:
    """Measure what batches cost, as fields of Costs; slow batches in smaller portions."""
    seeded, together = Keyed(dataset), Collated(collate)
    keys = chain.from_iterable(Order(len(seeded), batch_size, 0))

    def made(number: int) -> Any:
        return together(seeded.__getitems__(list(islice(keys, number))))

    made(1)  # the first opens files and fills caches
    samples, each = 1, 0.0
    while each * samples < 0.03 and samples < batch_size:
        samples = min(4 * samples, batch_size)
        begun = time.perf_counter()
        made(samples)
        each = (time.perf_counter() - begun) / samples
    samples = max(1, min(batch_size, round(PORTION / (each + step / batch_size))))
    waited, computed, times, before, begun = [], [], [], _busy([os.getpid()]), time.perf_counter()
    while len(waited) < 3 or (
        len(waited) < 100 and time.perf_counter() - begun < MEASURE_SECONDS * (1 + 2 * _unequal(times))
    ):
        wall, work = time.perf_counter(), time.process_time()
        batch = made(samples)
        work, wall = time.process_time() - work, time.perf_counter() - wall
        times.append(wall)
        computed.append(min(work, wall))  # other threads of this process may have worked too
        waited.append(wall - computed[-1])
    queued = min(1.0, max(0.0, _busy([os.getpid()]) - before - sum(computed)) / max(sum(waited), 1e-9))
    size, tensors = _size(batch)
    return {
        "samples": samples,
        "waited": tuple(wait * (1 - queued) for wait in waited),
        "computed": tuple(work + wait * queued for wait, work in zip(waited, computed, strict=True)),
        "size": size,
        "tensors": tensors,
        "memory": _private(),
        "objects": int(_objects(dataset)),
    }


def _unequal(times: list[float]) -> bool:
    """Whether these batches are too few and too different to predict others."""
    return pstdev(times) > 0.15 * fmean(times) * len(times) ** 0.5


def _run(batches: Any, workers: int, ahead: int, step: float, step_cpus: float, seconds: float) -> PlanResult:
    pretend = _pretended(step, step_cpus)
    others = multiprocessing.active_children()
    begun = time.perf_counter()
    iterator = iter(batches)
    try:
        pids = [process.pid for process in multiprocessing.active_children() if process not in others]
        next(iterator)
        started = time.perf_counter() - begun
        for number in range(1, workers * ahead):  # batches loaded during the start do not show the workers' speed
            pretend()
            wall, work = time.perf_counter(), time.thread_time()
            next(iterator)
            waited = time.perf_counter() - wall - (time.thread_time() - work)
            if number + 1 >= workers and waited > WAITED and step_cpus == 0:
                break  # with a step on the CPU, workers slow it down until all have prefetched; wait for that
        pretend()
        before, number, took, blocked = _busy(pids), 0, 0.0, 0.0
        begun = time.perf_counter()
        while number < 2 * workers or number % workers or time.perf_counter() - begun < seconds:
            wall, work = time.perf_counter(), time.thread_time()
            next(iterator)
            work = time.thread_time() - work
            took += work
            blocked += time.perf_counter() - wall - work
            pretend()
            number += 1
        passed = time.perf_counter() - begun
        busy = _busy(pids) - before
    finally:
        close(iterator)
    busy = min(1.0, busy / (workers * passed)) if busy else None
    return PlanResult(passed / number, started, took / number, blocked / passed, busy)


def _pretended(step: float, step_cpus: float) -> Callable[[], None]:
    """A function that takes as long as a training step: it sleeps, as for a GPU, or computes."""
    if step_cpus == 0:
        return lambda: time.sleep(step)
    matrix = torch.zeros(128, 128)
    took = []
    for _ in range(20):
        begun = time.perf_counter()
        matrix @ matrix
        took.append(time.perf_counter() - begun)
    number = round(step / median(took))

    def compute() -> None:
        for _ in range(number):
            matrix @ matrix

    return compute


def _busy(pids: list[int]) -> float:
    """Seconds that all threads of these processes ran or waited for a CPU (Linux: schedstat); 0 if unknown."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError, ValueError):
                ran, queued, _ = file.read_text().split()
                total += int(ran) + int(queued)
    return total / 1e9


def _private() -> int:
    """Private bytes of this process."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def _size(batch: Any) -> tuple[int, int]:
    """Bytes and number of the tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size(), 1
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    sizes = [_size(part) for part in parts]
    return sum(size for size, _ in sizes), sum(count for _, count in sizes)


def _objects(value: Any, depth: int = 6) -> float:
    """Estimated bytes of the Python objects in containers and attributes, which every worker will copy.

    A forked worker copies a memory page as soon as it changes the reference count of an object in it.
    """
    if isinstance(value, torch.Tensor | type) or callable(value) or depth == 0:
        return 0.0
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    some = list(islice(parts, 0, None, max(1, len(parts) // 20))) if parts else []
    within = len(parts) * fmean(_objects(each, depth - 1) for each in some) if some else 0.0
    own = 0.0 if type(value).__module__ == "numpy" else sys.getsizeof(value)
    return own + within + sum(_objects(each, depth - 1) for each in getattr(value, "__dict__", {}).values())


@contextlib.contextmanager
def show_progress(say: Callable[[str], None] | None) -> Iterator[Callable[[str], None]]:
    """Progress on one line of a terminal, cleared at the end; without a terminal, one line after two seconds."""
    main = say is None and os.environ.get("RANK", "0") == "0"
    shown, begun, reported = main and sys.stderr.isatty(), time.monotonic(), False

    def report(text: str) -> None:
        nonlocal reported
        if say is not None:
            say(text)
        elif shown:
            print(f"\r\033[KTuning the data loader: {text} ...", end="", file=sys.stderr, flush=True)
        elif main and not reported and time.monotonic() - begun > 2:
            reported = True
            print("Tuning the data loader ...", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
