"""Progress output: tqdm's bar on a terminal and in Jupyter; elsewhere, a new line every second."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

import torch

BETWEEN = 1.0  # seconds between two lines without a terminal
ANNOUNCED = 2.0  # seconds after which the user should know what a start waits for
try:
    from tqdm.auto import tqdm
except ImportError:  # lines instead of a bar
    tqdm = None
# With ipywidgets, tqdm draws a widget in Jupyter.
JUPYTER = tqdm is not None and any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)


class Progress:
    """Shows the steps done, the loss, and the rate. `total`: steps, None if unknown; `samples`: per step. `shown`:
    False on all ranks but the first, to print nothing. `device`: of the model, for observers."""

    def __init__(
        self, total: int | None, *, samples: int = 1, shown: bool = True, stream: TextIO | None = None
    ) -> None:
        self.total = total
        self.samples = samples
        self.device = torch.device("cpu")
        self.shown = shown
        self.stream = stream or sys.stdout
        self.drawn = shown and tqdm is not None and (self.stream.isatty() or JUPYTER)
        self.bar: Any = None
        self.printed: tuple[int, float] | None = None  # the steps done at the last line or the first step, and the time

    def step(self, done: int) -> None:
        """Call this after each step."""
        if self.printed is None:
            self.printed = done, time.monotonic()  # the first step may compile, and what was before it does not count
        if self.drawn:
            if self.bar is None:
                self.bar = _bar(total=self.total, initial=done - 1, unit="step", file=self.stream, leave=JUPYTER)
            self.bar.update(done - self.bar.n)

    def report(self, done: int, loss: float | None = None) -> None:
        """Report the loss."""
        now = time.monotonic()
        before, printed_at = self.printed
        shown = "" if loss is None else f"loss {loss:.4f}"
        if self.bar is not None:
            self.bar.set_postfix_str(shown, refresh=False)
        elif self.shown and (done == self.total or now - printed_at >= BETWEEN):
            self.printed = done, now
            steps = f"step {done}/{self.total}" if self.total else f"step {done}"
            rate = (done - before) * self.samples / max(now - printed_at, 1e-9)
            self.say("  ".join(filter(None, (steps, shown, f"{rate:,.0f} samples/s" if rate else ""))))

    def say(self, text: str) -> None:
        """Print a message, above the bar. Training continues without a reader (Ctrl-C also ends the `tee` of
        `... | tee log`) and on a full disk.

        Source: https://docs.python.org/3/library/signal.html#note-on-sigpipe
        """
        if not self.shown:
            return
        try:
            if self.bar is not None:
                self.bar.write(text, file=self.stream)
            else:
                print(text, file=self.stream, flush=True)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)
        except OSError:
            pass

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


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


def _bar(**how: Any) -> Any:
    class Bar(tqdm):
        monitor_interval = 0  # no thread, beside which workers would be forked

    stream = how["file"]
    known = not stream.isatty() or os.get_terminal_size(stream.fileno()).columns  # otherwise, tqdm draws nothing
    size = {"dynamic_ncols": True} if known else {"ncols": 80, "nrows": 24}
    # Without that thread, the number of steps between two drawings would not fall when the steps become slower.
    return Bar(miniters=1, **size, **how)
