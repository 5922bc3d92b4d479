"""What follows a run: an experiment tracker, a monitor of the machine, a profiler."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

HUNG: list[Observer] = []  # observers that did not respond at the end: the process must exit with `end`
OBSERVER_FAILED = 3  # its exit code if training finished, but an observer did not


class Observer:
    """Base class of what follows a run, in its first process; a method that is not needed is left out.

    `run` has `folder`, `settings`, `completed` (steps), `waited` (seconds in which the loop waited for data),
    `progress` (with `device`, and `samples` per step), and `say`, which prints a message. `hung`: it did not respond to
    `close`.
    """

    hung = False

    def open(self, run: Any) -> None:
        """The folder is open, and its newest checkpoint is loaded."""

    def begin(self, run: Any) -> None:
        """The first step ends."""

    def step(self) -> None:
        """A step ends."""

    def values(self) -> dict[str, float]:
        """Values that are logged together with the loss."""
        return {}

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Figures of a step are logged."""

    def artifact(self, path: Path) -> None:
        """The run has written a file that belongs to its results."""

    def close(self, status: str) -> list[str]:
        """The run is "finished", "stopped", or "failed"; returns messages for the user."""
        return []


class Observers(list[Observer]):
    """Several observers, which are called one after the other."""

    def open(self, run: Any) -> None:
        try:
            for one in self:
                one.open(run)
        except BaseException:
            HUNG.extend(one for one in self if one.hung)
            raise

    def begin(self, run: Any) -> None:
        for one in self:
            one.begin(run)
        self.steppers = [one for one in self if type(one).step is not Observer.step]

    def step(self) -> None:
        for one in self.steppers:
            one.step()

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Log the figures of a step, and what the observers add to them; tensors of one element become numbers."""
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        for one in self:
            plain.update(one.values())
        for one in self:
            one.log(step, plain)

    def artifact(self, path: Path) -> None:
        for one in self:
            one.artifact(path)

    def close(self, status: str) -> list[str]:
        messages = [message for one in self for message in one.close(status)]
        HUNG.extend(one for one in self if one.hung)
        return messages


def end(code: int) -> NoReturn:
    """Exit although an observer hangs: Python's normal exit would wait for its threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
