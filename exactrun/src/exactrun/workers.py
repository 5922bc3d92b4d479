"""The processes that load data: how they start and end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1}


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


def begin() -> None:
    """Let the training process handle signals to the process group: it finishes its step, saves, and ends its workers.
    If they ended first, torch would raise an error in the meantime."""
    if not multiprocessing.parent_process().is_alive():  # killed while this one was spawned: torch would wait forever
        os._exit(0)
    for number in SIGNALS - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS - {signal.SIGTERM})
    threading.Thread(target=_await_end, daemon=True).start()


def _await_end() -> None:
    """End this worker on a SIGTERM from the training process, but from no other process."""
    training = multiprocessing.parent_process()
    if not hasattr(signal, "sigwaitinfo"):  # macOS does not tell who sent a signal
        signal.sigwait({signal.SIGTERM})
    else:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != training.pid:
            pass
    os._exit(0)


def watch_loaders() -> None:
    """From now on, keep the seed of persistent workers off the global generator: a loader draws it once, when they
    start, but a resumed run starts them again."""
    begin = DataLoader.__iter__
    if begin.__module__ == __name__:
        return

    def started(loader: DataLoader) -> Any:
        if loader.persistent_workers and loader.generator is None:
            loader.generator = torch.Generator().manual_seed(torch.initial_seed())
        return begin(loader)

    DataLoader.__iter__ = started
