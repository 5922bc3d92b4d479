"""Progress output: a line with the steps done, the loss, and the rate."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator

import torch

BETWEEN = (1.0, 60.0)  # seconds between two lines, at least and at most
SHARE = 20  # they are this part of the time since the first step
ANNOUNCED = 2.0  # seconds after which the user should know what a start waits for


class Progress:
    """Prints the steps done, the loss, and the rate. `total`: steps, None if unknown. `shown`: False to print nothing,
    as on all ranks but the first. `samples`: per step; `device`: of the model, for observers."""

    def __init__(self, total: int | None, shown: bool = True) -> None:
        self.total = total
        self.shown = shown
        self.samples = 1
        self.device = torch.device("cpu")

    def begin(self, done: int) -> None:
        """The first step has ended. It may compile, and what was before it does not count."""
        self.began = time.monotonic()
        self.printed = done, self.began  # the steps done at the last line, and its time

    def report(self, done: int, loss: float | None = None) -> None:
        """Print a line if it is time, or if this is the last step."""
        now = time.monotonic()
        before, printed_at = self.printed
        least, most = BETWEEN
        if done != self.total and now - printed_at < min(most, max(least, (now - self.began) / SHARE)):
            return
        self.printed = done, now
        steps = f"step {done}/{self.total}" if self.total else f"step {done}"
        shown = "" if loss is None else f"loss {loss:.4f}"
        rate = (done - before) * self.samples / max(now - printed_at, 1e-9)
        self.say("  ".join(filter(None, (steps, shown, f"{rate:,.0f} samples/s" if rate else ""))))

    def say(self, text: str) -> None:
        """Print a message. Training continues without a reader (Ctrl-C also ends the `tee` of `... | tee log`) and on a
        full disk.

        Source: https://docs.python.org/3/library/signal.html#note-on-sigpipe
        """
        if not self.shown:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        except OSError:
            pass


@contextlib.contextmanager
def announce(what: str, shown: bool = True) -> Iterator[None]:
    """Print `what` to stderr if the block takes longer than two seconds: "Loading the checkpoint ..."."""
    timer = threading.Timer(ANNOUNCED, print, [f"{what} ..."], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
