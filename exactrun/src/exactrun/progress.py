"""Progress output: a bar, drawn by tqdm, on a terminal and in Jupyter; elsewhere, a new line every second."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TextIO

import torch

from exactrun.memory import resident

REDRAWN = 0.2  # seconds between two drawings of the bar
BETWEEN = 1.0  # seconds between two lines without a terminal
ENOUGH = 5, 2.0  # steps and seconds that must be timed before they predict the remaining time
ANNOUNCED = 2.0  # seconds after which the user should know what a start waits for
try:
    from tqdm.auto import tqdm
except ImportError:  # lines instead of a bar
    tqdm = None
# With ipywidgets, tqdm draws a widget in Jupyter.
JUPYTER = tqdm is not None and any(kind.__module__ == "tqdm.notebook" for kind in tqdm.__mro__)


class Progress:
    """Shows the steps done, loss, rate, memory, and remaining time. `total`: steps, None if unknown; `samples`: per
    step. `shown`: False on all ranks but the first, to print nothing.
    """

    def __init__(
        self,
        total: int | None,
        done: int = 0,
        *,
        samples: int,
        device: torch.device,
        shown: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = total
        self.done = done
        self.samples = samples
        self.device = device
        self.shown = shown
        self.stream = stream or sys.stdout
        self.clock = clock
        self.drawn = shown and tqdm is not None and (self.stream.isatty() or JUPYTER)
        self.bar: Any = None
        self.loss: float | None = None
        self.until: float | None = None  # the time at which it ends, whatever is done then
        self.began: tuple[float, int] | None = None  # after the first step, which may compile: the time, and steps done
        self.drawn_at = self.printed_at = -BETWEEN

    def step(self, done: int) -> None:
        """Call this after each step. Costs nothing, unless the bar is drawn."""
        if self.began is None:
            self.began = self.clock(), done
        if self.drawn and (done == self.total or self.clock() - self.drawn_at >= REDRAWN):
            self._draw(done)

    def report(self, done: int, loss: float | None = None) -> None:
        """Report the loss."""
        self.loss = loss
        if self.drawn and done == self.total:
            self._draw(done)
        elif self.shown and not self.drawn and (done == self.total or self.clock() - self.printed_at >= BETWEEN):
            self.printed_at = self.clock()
            self._print(self.line(done))

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        if self.shown:
            self._print(text)

    def line(self, done: int) -> str:
        """The progress as text."""
        parts = [f"step {done}" + (f"/{self.total}" if self.total else "")]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        since, first = self.began or (self.clock(), done)
        steps = done - first
        seconds = self.clock() - since
        if steps and seconds:
            parts.append(f"{steps / seconds * self.samples:,.0f} samples/s")
        parts.append(memory(self.device))
        if self.total and done < self.total and steps >= ENOUGH[0] and seconds >= ENOUGH[1]:
            left = (self.total - done) * seconds / steps
            if self.until is not None:
                left = max(0.0, min(left, self.until - self.clock()))
            parts.append(f"{timedelta(seconds=int(left))} left")
        return "  ".join(parts)

    def _draw(self, done: int) -> None:
        if self.bar is None:
            how = {"bar_format": "{bar}  {desc}" if self.total else "{desc}", "dynamic_ncols": True}
            if self.stream.isatty() and not os.get_terminal_size(self.stream.fileno()).columns:
                how |= {"dynamic_ncols": False, "ncols": 80, "nrows": 24}  # unknown: tqdm would draw nothing
            how |= {"file": self.stream, "leave": not self.stream.isatty()}
            self.bar = _bar(total=self.total, initial=self.done, **how)
        self.drawn_at = self.clock()
        self.bar.n = done
        self.bar.set_description_str(self.line(done))

    def _print(self, text: str) -> None:
        """Training continues without a reader (Ctrl-C also ends the `tee` of `... | tee log`) and on a full disk.

        Source: https://docs.python.org/3/library/signal.html#note-on-sigpipe
        """
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

    return Bar(**how)


def memory(device: torch.device) -> str:
    """Peak GPU memory that PyTorch has reserved; on the CPU, the current memory of this process."""
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_reserved(device) / 1e9:.1f} GB"
    return f"{resident():.1f} GB"
