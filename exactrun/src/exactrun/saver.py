"""Saving while training continues: a step waits only while its checkpoint is copied to memory; a thread writes it.

The copy consists of the bytes of the files, and checkpoint.write does the rest, as without a thread. It needs as much
host memory as the checkpoint on disk, which is kept for the next copy.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread, main_thread
from typing import Any

from torch import Tensor
from torch.utils.serialization import config

from exactrun import checkpoint
from exactrun.checkpoint import STATE, WEIGHTS, Contents
from exactrun.hashed import Sink, Written
from exactrun.memory import available

# MADV_WIPEONFORK, which Python's mmap does not name: Linux 4.14, include/uapi/asm-generic/mman-common.h (2026-11-26).
WIPE_ON_FORK = 18
RETRY = 5.0  # seconds between two attempts while the disk is full; they take at most 5 % of the time


class Saver:
    """Saves the checkpoints of one run, in one process; call `wait` at the end.

    If the disk is full, training continues, and the last copy is saved as soon as there is space. Any other error is
    raised by the next call. The interpreter does not exit before the last save is complete.

    If memory is too small for a copy, `save` waits until the checkpoint is written (`asynchronous` is then False).
    """

    def __init__(self, run: Path, *, about: dict[str, Any], keep: int = 3) -> None:
        self.run = run
        self.about = about
        self.keep = keep
        self.asynchronous = True
        self._memory = {WEIGHTS: _Memory(), STATE: _Memory()}
        self._thread: Thread | None = None
        self._stop = Event()  # do not try again
        self._error: Exception | None = None  # of the last save
        self._full = self._slow = False  # reported
        self._messages: deque[str] = deque()

    def save(
        self, step: int, weights: Mapping[str, Tensor], state: dict[str, Any], metric: float | None = None
    ) -> None:
        """Save a step as checkpoint.save does; the tensors can change as soon as this returns.

        If the previous step is still being written, this waits. Raises CheckpointError for anything but a full disk:
        of the previous save if `asynchronous`, otherwise of this one.
        """
        contents, needed = checkpoint.prepare(weights, state, self.keep)
        self._finish(last=False)
        if self.asynchronous and not self._copy(contents, needed):
            self.asynchronous = False
            self._memory.clear()
            self._messages.append(
                f"There is too little memory for a copy of the checkpoint ({needed / 1e6:,.0f} MB): training waits "
                "while checkpoints are written."
            )
        if self.asynchronous:
            copies = {name: memory.copy for name, memory in self._memory.items()}
            self._thread = Thread(target=self._write, args=(step, copies, needed, metric, self.about, True))
            self._thread.start()
        else:
            self._write(step, contents, needed, metric, self.about, retry=False)
            self._finish(last=False)

    def wait(self) -> None:
        """Wait until the last save is on disk. Raises CheckpointError if it failed, also because the disk is full."""
        self._finish(last=True)

    def messages(self) -> list[str]:
        """What the user should know since the last call: a full disk, space again, a slow disk."""
        return [self._messages.popleft() for _ in range(len(self._messages))]

    def _copy(self, contents: Contents, needed: int) -> bool:
        """Copy the files to memory; False if it is too small."""
        free = available()
        if free is not None and needed - sum(memory.size for memory in self._memory.values()) > free:
            return False
        try:
            with config.patch({"save.use_pinned_memory_for_d2h": True}):
                for name, put in contents.items():
                    memory = self._memory[name]
                    memory.begin(needed)
                    put(memory)
                    memory.check()
        except (MemoryError, OSError, RuntimeError):  # no page-locked memory, or `ulimit -v`
            return False
        return True

    def _write(
        self, step: int, contents: Contents, needed: int, metric: float | None, about: dict[str, Any], retry: bool
    ) -> None:
        """Save; if the disk is full and `retry`, try again until there is space."""
        while True:
            self._error = None
            started = time.monotonic()
            try:
                checkpoint.write(self.run, step, contents, needed, about=about, keep=self.keep, metric=metric)
            except Exception as error:
                self._error = error
            full = getattr(self._error, "full", "")
            if full and not self._full:
                self._messages.append(
                    f"Step {step} was not saved: {full}. Training continues, and saves as soon as there is space. "
                    f"{checkpoint.UNCHANGED}"
                )
            elif self._full and self._error is None:
                self._messages.append(f"There is space again: step {step} is saved.")
            self._full = bool(full)
            until = time.monotonic() + max(RETRY, 20 * (time.monotonic() - started))
            while full and retry and time.monotonic() < until:
                retry = not self._stop.wait(0.2) and main_thread().is_alive()
            if not full or not retry:
                return

    def _finish(self, last: bool) -> None:
        """Wait for the thread, and raise the error; a full disk only if this is the `last` save."""
        if self._thread is not None:
            started = time.monotonic()
            self._stop.set()
            self._thread.join()
            self._thread = None
            self._stop.clear()
            waited = time.monotonic() - started
            if not last and waited > 0.1 and not self._slow:
                self._slow = True
                self._messages.append(
                    f"Training waited {waited:.1f} s for the previous checkpoint: save less often, or to a faster disk."
                )
        error = self._error
        full = getattr(self._error, "full", "")
        if error is not None and (last or not full):
            self._error = None
            raise error


class _Memory(Sink):
    """A file in memory that is kept for the next file.

    Data loader workers find zeros in its place: otherwise, each of their pages would be duplicated when it is written
    again. Not a hole (MADV_DONTFORK): their own allocations would fill it, and be gone when they collect this object.
    """

    def __init__(self) -> None:
        self.map = _anonymous(mmap.PAGESIZE)

    def begin(self, size: int) -> None:
        """Start again; the file will have about this size."""
        self.size = 0
        self.error = None
        if len(self.map) < size:
            self.map = _anonymous(size + size // 20 + (1 << 20))  # pages that are not written need no memory

    def put(self, data: memoryview) -> None:
        end = self.size + len(data)
        if end > len(self.map):
            smaller = self.map
            self.map = _anonymous(2 * end)
            self.map[: self.size] = memoryview(smaller)[: self.size]
        self.map[self.size : end] = data

    def copy(self, file: Written) -> None:
        """Write the contents to another file."""
        file.write(memoryview(self.map)[: self.size])


def _anonymous(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_DONTFORK"):  # Linux
        with contextlib.suppress(OSError):  # an older kernel
            memory.madvise(WIPE_ON_FORK)
    return memory
