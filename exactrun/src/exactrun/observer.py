"""What follows a run: an experiment tracker, a monitor of the machine."""

from __future__ import annotations

from typing import Any


class Observer:
    """Base class of what follows a run, in its first process; a method that is not needed is left out.

    `run` has `folder`, `settings`, `completed` (steps), `waited` (seconds in which the loop waited for data), `tokens`
    (if the script counts them), `progress` (with `device`, and `samples` per step), and `say`, which prints a message.
    """

    def open(self, run: Any) -> None:
        """The folder is open, and its newest checkpoint is loaded."""

    def begin(self, run: Any) -> None:
        """The first step ends."""

    def values(self) -> dict[str, float]:
        """Values that are logged together with the loss."""
        return {}

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Figures of a step are logged."""

    def close(self, status: str) -> list[str]:
        """The run is "finished", "stopped", or "failed"; returns messages for the user."""
        return []


class Observers(list[Observer]):
    """Several observers, which are called one after the other."""

    def open(self, run: Any) -> None:
        for one in self:
            one.open(run)

    def begin(self, run: Any) -> None:
        for one in self:
            one.begin(run)

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Log the figures of a step, and what the observers add to them."""
        for one in self:
            figures = figures | one.values()
        for one in self:
            one.log(step, figures)

    def close(self, status: str) -> list[str]:
        return [message for one in self for message in one.close(status)]
