"""Progress output: one line that is redrawn on a terminal, or a new line every second elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch

REDRAWN = 0.2  # seconds between two drawings of the line
BETWEEN = 1.0  # seconds between two lines where there is no terminal
WINDOW = 50  # the rate is that of so many drawings


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
        self.drawn = shown and self.stream.isatty()
        self.loss: float | None = None
        self.seen: deque[tuple[float, int]] = deque([(clock(), done)], maxlen=WINDOW)
        self.next = 0.0

    def step(self, done: int) -> None:
        """Call this after each step. Costs one clock reading, unless the line is redrawn."""
        now = self.clock()
        if now < self.next:
            return
        self.next = now + REDRAWN
        self.seen.append((now, done))
        if self.drawn:
            self._draw(self.line(done))

    def report(self, done: int, loss: float) -> None:
        """Report a loss."""
        if self.loss is None or done == self.total:
            self.printed = -BETWEEN
        self.loss = loss
        if self.shown and not self.drawn and self.clock() - self.printed >= BETWEEN:
            self.printed = self.clock()
            self.seen.append((self.printed, done))
            self._print(f"{self.line(done)}\n")

    def say(self, text: str) -> None:
        """Print a message above the line."""
        if self.shown:
            self._print(f"{self._clear()}{text}\n")

    @property
    def rate(self) -> float:
        """Steps per second over the last few seconds; 0 before the second step."""
        (since, first), (until, last) = self.seen[0], self.seen[-1]
        return (last - first) / (until - since) if until > since else 0.0

    def line(self, done: int) -> str:
        """The progress line."""
        parts = [f"step {done}/{self.total}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.rate:
            parts.append(f"{self.rate * self.samples:,.0f} samples/s")
        parts.append(memory(self.device))
        if self.rate and done < self.total:
            parts.append(f"{span((self.total - done) / self.rate)} left")
        return "  ".join(parts)

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        room = min(30, width - len(text) - 2)
        if room >= 5:
            filled = room * self.seen[-1][1] // max(self.total, 1)
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
        return "\r\033[K" if self.drawn else ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.drawn:
            self._print(self._clear())


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
