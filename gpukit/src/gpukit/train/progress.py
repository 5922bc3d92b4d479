"""Progress output: one line that is redrawn on a terminal, or a new line every second elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import torch

REDRAWN = 0.2  # seconds between two drawings of the line
BETWEEN = 1.0  # seconds between two lines without a terminal
WINDOW = 50  # drawings over which the rate is computed
# The first steps compile, and the data loader is tuned after the first 12 (feed.py). They are not timed, unless steps
# take so long that this makes little difference.
WARM_UP, LONG_WARM_UP = 13, (3, 20.0)  # steps; or steps and seconds
ENOUGH = 5, 2.0  # steps and seconds that must be timed before they predict the remaining time
ANNOUNCED = 2.0  # seconds after which the user should know what a start waits for


class Progress:
    """Shows loss, rate, memory, and remaining time. `shown`: False on all ranks but the first, to print nothing.

    `samples`: samples per step.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        *,
        samples: int,
        device: torch.device,
        shown: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.samples, self.device, self.shown = total, samples, device, shown
        self.stream, self.clock = stream or sys.stdout, clock
        self.redrawn = shown and self.stream.isatty()
        self.loss: float | None = None
        self.timed: deque[tuple[float, int]] = deque(maxlen=WINDOW)  # times, and the steps done then
        self.first: tuple[float, int] | None = None
        self.warm = False
        self.next = 0.0

    def step(self, done: int) -> None:
        """Call this after each step. Costs one clock reading, unless the line is redrawn."""
        now = self.clock()
        if not self.warm:
            self._warm_up(now, done)
        if now < self.next:
            return
        self.next = now + REDRAWN
        self.timed.append((now, done))
        if self.redrawn:
            self._draw(self.line(done))

    def _warm_up(self, now: float, done: int) -> None:
        """Start timing after the first step, and again after the warm-up."""
        if self.first is None:
            self.first = (now, done)
            self.timed.append(self.first)
        since, first = self.first
        steps, (few, seconds) = done - first + 1, LONG_WARM_UP
        if steps >= WARM_UP or (steps >= few and now - since >= seconds):
            self.warm = True
            self.timed.clear()
            self.timed.append((now, done))

    def report(self, done: int, loss: float) -> None:
        """Report a loss."""
        if self.loss is None or done == self.total:
            self.printed = -BETWEEN
        self.loss = loss
        if self.shown and not self.redrawn and self.clock() - self.printed >= BETWEEN:
            self.printed = self.clock()
            self.timed.append((self.printed, done))
            self._print(f"{self.line(done)}\n")

    def say(self, text: str) -> None:
        """Print a message above the line."""
        if self.shown:
            self._print(f"{self._clear()}{text}\n")

    @property
    def rate(self) -> float:
        """Steps per second over the last few seconds; 0 before the second step."""
        steps, seconds = self._measured()
        return steps / seconds if seconds else 0.0

    def _measured(self) -> tuple[int, float]:
        """Steps that were timed, and the seconds they took."""
        if not self.timed:
            return 0, 0.0
        (since, first), (until, last) = self.timed[0], self.timed[-1]
        return last - first, until - since

    def line(self, done: int) -> str:
        """The progress line."""
        parts = [f"step {done}/{self.total}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.rate:
            parts.append(f"{self.rate * self.samples:,.0f} samples/s")
        parts.append(memory(self.device))
        steps, seconds = self._measured()
        if self.warm and steps >= ENOUGH[0] and seconds >= ENOUGH[1] and done < self.total:
            parts.append(f"{span((self.total - done) / self.rate)} left")
        return "  ".join(parts)

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        room = min(30, width - len(text) - 2)
        if room >= 5:
            filled = room * self.timed[-1][1] // max(self.total, 1)
            text = f"{'━' * filled}{'╌' * (room - filled)}  {text}"
        self._print(f"\r\033[K{text[:width]}")

    def _print(self, text: str) -> None:
        """If the reader is gone, since Ctrl-C also ends the `tee` of `... | tee log`, training continues and saves.

        Source: https://docs.python.org/3/library/signal.html#note-on-sigpipe
        """
        try:
            print(text, end="", file=self.stream, flush=True)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def _clear(self) -> str:
        return "\r\033[K" if self.redrawn else ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.redrawn:
            self._print(self._clear())


@contextlib.contextmanager
def announce(what: str, shown: bool = True) -> Iterator[None]:
    """Print `what` if the block takes longer than two seconds: "Loading the checkpoint ..."."""
    timer = threading.Timer(ANNOUNCED, print, [f"{what} ..."], {"flush": True})
    timer.daemon = True
    if shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def memory(device: torch.device) -> str:
    """Peak GPU memory that PyTorch has reserved; on the CPU, the current memory of this process."""
    if device.type == "cuda":
        return f"{torch.cuda.max_memory_reserved(device) / 1e9:.1f} GB"
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return f"{pages * 4096 / 1e9:.1f} GB"


def span(seconds: float) -> str:
    """1:05 for 65 seconds, 2:03:00 for two hours and three minutes."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
