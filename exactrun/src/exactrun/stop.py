"""Ctrl-C and other signals that stop a run: recorded until the end of the step, when the loop saves a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
ONCE_MORE = "; press Ctrl-C again to stop immediately without saving"
AT_ONCE = (
    "\nCtrl-C pressed twice: stopped without saving. Run the same command again to resume from the last checkpoint.\n"
)


class StopSignals:
    """In this context, SIGINT, SIGTERM, and SIGUSR1 (a scheduler's warning) only set `number`.

    A second SIGINT ends the process at once with exit code 130; in interactive use, such as a notebook, it raises
    KeyboardInterrupt instead. Outside the main thread, which alone can handle signals, it does nothing.
    """

    def __init__(self) -> None:
        self.number = 0
        self.before: dict[int, Any] = {}
        self.interrupted = False
        self.interactive = hasattr(sys, "ps1")

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._remember) for number in SIGNALS}
            _entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if not self.before:
            return
        _entered.remove(self)
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ending(self) -> BaseException:
        """The exception to raise after saving: SystemExit with 128 + signal, or KeyboardInterrupt in a notebook."""
        if self.interactive and self.number == signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + self.number)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.interrupted:
            if self.interactive:
                raise KeyboardInterrupt
            with contextlib.suppress(OSError):
                os.write(2, AT_ONCE.encode())
            os._exit(128 + signal.SIGINT)
        self.interrupted |= number == signal.SIGINT
        if not self.number and os.environ.get("RANK", "0") == "0":
            more = ONCE_MORE if number == signal.SIGINT else ""
            # Not print: the signal may have interrupted one.
            with contextlib.suppress(OSError):  # stderr is closed
                os.write(2, f"\n{signal.Signals(number).name}: saving after this step{more}.\n".encode())
        self.number = self.number or number


_entered: list[StopSignals] = []


def _in_child() -> None:
    """In a data loader worker: ignore Ctrl-C, which the training process handles; other signals end the worker."""
    if _entered:
        for number, handler in _entered[0].before.items():
            signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else handler)


os.register_at_fork(after_in_child=_in_child)
