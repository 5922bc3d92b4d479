"""Saving while training continues: a step waits only while its checkpoint is copied to memory; a thread writes it.

The copy consists of the bytes of the files, and checkpoint.write does the rest, as without a thread. Until it is
written, it takes as much host memory as the checkpoint on disk.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from torch import Tensor
from torch.utils.serialization import config

from exactrun import checkpoint
from exactrun.checkpoint import Contents
from exactrun.memory import available


class Saver:
    """Saves the checkpoints of one run, in one process; call `wait` at the end.

    If the disk is full, training continues, and the next save tries again. Any other error is raised by the next call.
    The interpreter does not exit before the last save is complete.

    If memory is too small for a copy, `save` waits until the checkpoint is written (`asynchronous` is then False).
    """

    def __init__(self, run: Path, *, about: dict[str, Any], keep: int = 3) -> None:
        self.run = run
        self.about = about
        self.keep = keep
        self.asynchronous = True
        self._thread: Thread | None = None
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
        if self.asynchronous and (copies := self._copied(contents, needed)) is None:
            self.asynchronous = False
            self._messages.append(
                f"There is too little memory for a copy of the checkpoint ({needed / 1e6:,.0f} MB): training waits "
                "while checkpoints are written."
            )
        if self.asynchronous:
            self._thread = Thread(target=self._write, args=(step, copies, needed, metric, self.about))
            self._thread.start()
        else:
            self._write(step, contents, needed, metric, self.about)
            self._finish(last=False)

    def wait(self) -> None:
        """Wait until the last save is on disk. Raises CheckpointError if it failed, also because the disk is full."""
        self._finish(last=True)

    def messages(self) -> list[str]:
        """What the user should know since the last call: a full disk, space again, a slow disk."""
        return [self._messages.popleft() for _ in range(len(self._messages))]

    def _copied(self, contents: Contents, needed: int) -> Contents | None:
        """The files, copied to memory; None if it is too small."""
        free = available()
        if free is not None and needed > free:
            return None
        copies = {name: io.BytesIO() for name in contents}
        try:
            with config.patch({"save.use_pinned_memory_for_d2h": True}):
                for name, put in contents.items():
                    put(copies[name])
        except (MemoryError, OSError, RuntimeError):  # no page-locked memory, or `ulimit -v`
            return None
        return {name: partial(_write_all, one) for name, one in copies.items()}

    def _write(self, step: int, contents: Contents, needed: int, metric: float | None, about: dict[str, Any]) -> None:
        self._error = None
        try:
            checkpoint.write(self.run, step, contents, needed, about=about, keep=self.keep, metric=metric)
        except Exception as error:
            self._error = error
        full = getattr(self._error, "full", "")
        if full and not self._full:
            self._messages.append(
                f"Step {step} was not saved: {full}. Training continues, and the next save tries again. "
                f"{checkpoint.UNCHANGED}"
            )
        elif self._full and self._error is None:
            self._messages.append(f"There is space again: step {step} is saved.")
        self._full = bool(full)

    def _finish(self, last: bool) -> None:
        """Wait for the thread, and raise the error; a full disk only if this is the `last` save."""
        if self._thread is not None:
            started = time.monotonic()
            self._thread.join()
            self._thread = None
            waited = time.monotonic() - started
            if not last and waited > 0.1 and not self._slow:
                self._slow = True
                self._messages.append(
                    f"Training waited {waited:.1f} s for the previous checkpoint: save less often, or to a faster disk."
                )
        error = self._error
        if error is not None and (last or not getattr(error, "full", "")):
            self._error = None
            raise error


def _write_all(copy: io.BytesIO, file: Any) -> None:
    file.write(copy.getbuffer())
