"""Progress output: a bar, drawn by tqdm, on a terminal and in Jupyter; elsewhere, a new line every second."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import torch

from exactrun.memory import resident

REDRAWN = 0.2  # seconds between two drawings of the bar
BETWEEN = 1.0  # seconds between two lines without a terminal
WINDOW = 30.0  # seconds over which the rate is computed
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
        self.total, self.done, self.samples, self.device, self.shown = total, done, samples, device, shown
        self.stream, self.clock = stream or sys.stdout, clock
        self.drawn = shown and tqdm is not None and (self.stream.isatty() or JUPYTER)
        self.bar: Any = None
        self.loss: float | None = None
        self.values: dict[str, float] = {}
        self.until: float | None = None  # the time at which it ends, whatever is done then
        self.timed: deque[tuple[float, int]] = deque()  # times, and the steps done then
        self.next, self.printed = -REDRAWN, -BETWEEN

    def step(self, done: int) -> None:
        """Call this after each step. Costs one clock reading, unless the bar is drawn."""
        now = self.clock()
        if now < self.next and done != self.total:
            return
        self.next = now + REDRAWN
        self.timed.append((now, done))  # the first time: after the first step, which may compile
        while len(self.timed) > ENOUGH[0] + 1 and now - self.timed[0][0] > WINDOW:
            self.timed.popleft()
        if self.drawn:
            self._draw(done)

    def report(self, done: int, loss: float | None = None, **values: float) -> None:
        """Report the loss, and other values to show with it."""
        if done == self.total:
            self.printed = -BETWEEN
        self.loss, self.values = loss, values
        if self.drawn and done == self.total:
            self._draw(done)
        elif self.shown and not self.drawn and self.clock() - self.printed >= BETWEEN:
            self.printed = self.clock()
            self._print(self.line(done))

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        if self.shown:
            self._print(text)

    @property
    def rate(self) -> float:
        """Steps per second over the last half minute; 0 before the second step."""
        steps, seconds = self._measured()
        return steps / seconds if seconds else 0.0

    def _measured(self) -> tuple[int, float]:
        """Steps that were timed, and the seconds they took."""
        (since, first), (until, last) = (self.timed[0], self.timed[-1]) if self.timed else ((0.0, 0), (0.0, 0))
        return last - first, until - since

    def line(self, done: int) -> str:
        """The progress as text."""
        parts = [f"step {done}" + (f"/{self.total}" if self.total else "")]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.rate:
            parts.append(f"{self.rate * self.samples:,.0f} samples/s")
        parts.append(memory(self.device))
        steps, seconds = self._measured()
        if self.total and done < self.total and steps >= ENOUGH[0] and seconds >= ENOUGH[1]:
            left = (self.total - done) / self.rate
            if self.until is not None:
                left = max(0.0, min(left, self.until - self.clock()))
            parts.append(f"{_in_words(left)} left")
        return "  ".join(parts + [f"{name.replace('_', ' ')} {value:.3g}" for name, value in self.values.items()])

    def _draw(self, done: int) -> None:
        if self.bar is None:
            how = {"bar_format": "{bar}  {desc}" if self.total else "{desc}", "dynamic_ncols": True}
            if self.stream.isatty() and not os.get_terminal_size(self.stream.fileno()).columns:
                how |= {"dynamic_ncols": False, "ncols": 80, "nrows": 24}  # unknown: tqdm would draw nothing
            how |= {"file": self.stream, "leave": not self.stream.isatty()}
            self.bar = _bar(total=self.total, initial=self.done, **how)
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


def _in_words(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def memory(device: torch.device) -> str:
    """Peak GPU memory that PyTorch has reserved; on the CPU, the current memory of this process."""
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_reserved(device) / 1e9:.1f} GB"
    return f"{resident():.1f} GB"
