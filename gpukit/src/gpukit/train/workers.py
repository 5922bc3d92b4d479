"""The processes that load data: the CPUs they can use, how they start and end, and why they fail."""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from gpukit.errors.rules import named

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
# The rules for how loading can fail.
RULES = named(
    "bus-error",
    "fork-after-cuda",
    "not-picklable",
    "open-files",
    "shared-memory",
    "shared-object",
    "shared-object-gone",
    "worker-crashed",
    "worker-ended",
    "worker-gone",
    "worker-killed",
    "worker-raised",
    "worker-slow",
)
ENDED = {"worker-crashed", "worker-ended", "worker-gone", "worker-killed"}
SHOWN = "use `--workers 0` to see where the data set fails"


@contextmanager
def signals_later() -> Iterator[None]:
    """Defer signals. Processes that are started inside inherit the mask until they install their handlers.

    SIGINT needs a handler too: another thread may receive it, and the main thread would then raise KeyboardInterrupt.
    """
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    replaced = handler is not None and threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if replaced:
        signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        if replaced:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if came:
            # Call the handler: another signal would be counted again (StopSignals).
            handler(signal.SIGINT, None) if callable(handler) else signal.raise_signal(signal.SIGINT)


@contextmanager
def frozen() -> Iterator[None]:
    """Exclude this process's objects from garbage collection in forked workers: the collector writes to each object,
    so workers would copy them all. Source: https://docs.python.org/3/library/gc.html#gc.freeze"""
    already = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        if not already:
            gc.unfreeze()


def close(iterator: Iterator[Any]) -> None:
    """End the workers of a loader's iterator now. They also end with its last reference, but an interrupt during that
    would be lost."""
    end = getattr(iterator, "_shutdown_workers", None)  # absent without workers
    if end is not None:
        end()


def begin(worker: int) -> None:
    """Let the training process handle signals to the process group: it finishes its step, saves, and ends its workers.
    If they ended first, torch would raise an error in the meantime."""
    for number in SIGNALS - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS - {signal.SIGTERM})
    threading.Thread(target=_await_end, daemon=True).start()
    sys.excepthook = _unless_left


def _unless_left(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Do not print a traceback if the training process ended while it received a batch."""
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def _await_end() -> None:
    """End this worker on a SIGTERM from the training process, but from no other process."""
    training = multiprocessing.parent_process()
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training.pid:
        pass
    os._exit(0)


class Failure(NamedTuple):
    """Why loading failed: its id, and one sentence for the user."""

    id: str
    sentence: str


def explain(error: BaseException) -> str | None:
    """One sentence for an error in the data loader itself; None for any other, such as the data set's own.

    Use this for every error that the loop raises: torch reports the death of a worker by a signal, during a step.
    """
    found = failure(error)
    return found.sentence if found else None


def stays(error: BaseException) -> bool:
    """Whether only workers fail with this error, so that loading in the training process may succeed."""
    found = failure(error)
    return found is not None and found.id in ("shared-memory", "fork-after-cuda", "not-picklable")


def failure(error: BaseException) -> Failure | None:
    """Why the data loader failed, by the rules for error texts; None if the error is not the loader's."""
    text = "\n".join(str(each) for each in _causes(error))
    known = {rule.id: found for rule in RULES if (found := rule.matches(text))}
    if "open-files" in known:
        return Failure(
            "open-files",
            "Too many open files while loading data: raise the limit with `ulimit -n 65535`, or use fewer workers.",
        )
    if known.keys() & {"shared-memory", "shared-object", "shared-object-gone", "bus-error"}:
        remedy = "raise `--shm-size` of the container, or use fewer workers or a smaller batch"
        return Failure("shared-memory", f"A data loader worker ran out of shared memory ({_shm_size()}): {remedy}.")
    if isinstance(error, MemoryError) or ("worker-raised" in known and known["worker-raised"][1] == "MemoryError"):
        return Failure("host-memory-full", "Out of memory while loading data: use fewer workers or a smaller batch.")
    if known.keys() & ENDED and (process := re.search(r"\(pid[()s]* ([\d, ]+)\)", text)):
        return _ended(process[1], text, known.keys())
    if isinstance(error, ConnectionError | EOFError | FileNotFoundError) and _in_queue(error):
        return Failure("worker-gone", f"A data loader worker ended unexpectedly: {SHOWN}.")
    if known.keys() & {"worker-slow", "worker-gone"}:
        return Failure("worker-slow", f"Data loading stopped ({text.splitlines()[0].rstrip('.')}): {SHOWN}.")
    if "fork-after-cuda" in known:
        return Failure(
            "fork-after-cuda",
            "The data set uses the GPU in a worker: keep its samples on the CPU, or use `--workers 0`.",
        )
    if "not-picklable" in known and "worker-raised" not in known:
        return Failure(
            "not-picklable",
            f"The data set cannot be sent to a worker ({text.splitlines()[0].rstrip('.')}): define its classes and "
            "functions at the top level of a module, or use `--workers 0`.",
        )
    return None


def _ended(process: str, text: str, known: Collection[str]) -> Failure:
    """A worker has ended; torch's message names the signal, if there was one."""
    signalled = re.search(r"signal: ([\w ]+)", text)
    if "worker-gone" in known or not signalled:
        return Failure("worker-gone", f"A data loader worker (process {process}) ended unexpectedly: {SHOWN}.")
    start = f"A data loader worker (process {process}) was killed by a signal ({signalled[1]})"
    if "worker-killed" in known:
        remedy = "use fewer workers or a smaller batch"
        return Failure("worker-killed", f"{start}, most likely by the kernel because of low memory: {remedy}.")
    return Failure("worker-crashed", f"{start}: {SHOWN}.")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _in_queue(error: BaseException) -> bool:
    """Whether it came from the sockets through which workers send their tensors."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.endswith("torch/multiprocessing/reductions.py") for frame in frames)


def _shm_size() -> str:
    try:
        there = os.statvfs("/dev/shm")
    except OSError:
        return "there is no /dev/shm"
    return f"/dev/shm has {there.f_frsize * there.f_blocks / 1e6:,.0f} MB"


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that this process may use: its affinity and the CPU quotas of its control groups, v1 and v2, rounded up.

    `docker run --cpus 2` sets a quota, which affinity does not show. The groups above this process's own count too.
    `root`: the folder that contains proc and sys.
    """
    quotas = [float(len(os.sched_getaffinity(0)))]
    for folder in _groups(root):
        try:  # v2: "max 100000" or "200000 100000"
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            try:
                quota = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            except OSError:
                continue
        if quota.strip() not in ("max", "-1") and int(period) > 0:
            quotas.append(int(quota) / int(period))
    return max(1, math.ceil(min(quotas)))


def _groups(root: Path) -> list[Path]:
    """The folders of this process's control groups and of those above, from /proc/self/cgroup.

    In a container, the path is often the host's and does not exist; the top of the mount is then the container's group.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for name in [controllers, "cpu,cpuacct", "cpu"] if controllers else ["", "unified"]:
            top = root / "sys/fs/cgroup" / name
            within = Path(path.lstrip("/"))
            folders += [top / part for part in (within, *within.parents) if ".." not in part.parts]
    return folders
