"""The processes that load data: how they start and end, and why they fail."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpukit.errors.rules import cause, named

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}
# The cause of a failure to load data, by the rule that matches its text; the first one that does counts.
CAUSES = {
    "open-files": "open-files",
    **dict.fromkeys(("shared-memory", "shared-object", "shared-object-gone", "bus-error"), "shared-memory"),
    "worker-killed": "host-memory-full",
    "worker-crashed": "library-crashed",
    **dict.fromkeys(("worker-gone", "worker-ended"), "worker-crashed"),
    "worker-slow": "loader-timeout",
    "fork-after-cuda": "cuda-after-fork",
    "not-picklable": "not-picklable",
}
RULES = {rule.id: rule for rule in named(*CAUSES, "worker-raised")}


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


def _await_end() -> None:
    """End this worker on a SIGTERM from the training process, but from no other process."""
    training = multiprocessing.parent_process()
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training.pid:
        pass
    os._exit(0)


def explain(error: BaseException) -> str | None:
    """Why the data loader failed, and the remedy; None for any other error, such as the data set's own.

    Use this for every error that the loop raises: torch reports the death of a worker by a signal, during a step.
    """
    if (id := failure(error)) is None:
        return None
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    return f"Loading data failed ({text[:160]}). {cause(id).why} {cause(id).remedy}"


def stays(error: BaseException) -> bool:
    """Whether only workers fail with this error, so that loading in the training process may succeed."""
    return failure(error) in ("shared-memory", "cuda-after-fork", "not-picklable")


def failure(error: BaseException) -> str | None:
    """The id of the cause, if the data loader failed; None if the error is not the loader's."""
    text, each = str(error), error
    while each := each.__cause__:
        text += f"\n{each}"
    raised = RULES["worker-raised"].matches(text)
    if isinstance(error, MemoryError) or (raised and raised[1] == "MemoryError"):
        return "host-memory-full"
    for id in CAUSES:
        whose = "DataLoader worker" in text or not id.startswith("worker-") or id == "worker-slow"
        if whose and RULES[id].matches(text) and not (id == "not-picklable" and raised):
            return CAUSES[id]
    if isinstance(error, ConnectionError | EOFError | FileNotFoundError):
        frames = traceback.extract_tb(error.__traceback__)  # of the sockets through which workers send their tensors
        if any(frame.filename.endswith("torch/multiprocessing/reductions.py") for frame in frames):
            return "worker-crashed"
    return None
