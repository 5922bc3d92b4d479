"""A run as its observers see it, without a loop."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from exactrun.metrics import Lines
from exactrun.observer import Observers
from gpukit.track.trackers import Tracker


class Followed(Observers):
    """metrics.jsonl and trackers of a run that has begun; `trackers` as of Tracker."""

    def __init__(self, folder: Path, settings: dict[str, Any], trackers: list[str], project: str, say: Any = print):
        self.tracker = Tracker(trackers, project)
        super().__init__([Lines(), self.tracker])
        self.open(SimpleNamespace(folder=folder, settings=settings, say=say))

    def write(self, step: int, **figures: Any) -> None:
        self.log(step, figures)

    def finish(self, status: str, **patience: float) -> list[str]:
        """What is said at the end."""
        return [*self[0].close(status), *self.tracker.close(status, **patience)]
