"""What follows the runs of a project."""

from __future__ import annotations

from collections.abc import Iterable

from exactrun.observer import Observer
from gpukit.project.stack import load
from gpukit.track.monitor import Monitor
from gpukit.track.profile import Profile
from gpukit.track.trackers import Tracker


def observers(trackers: Iterable[str] | None = None, *, profile: bool = False) -> list[Observer]:
    """For `Run(..., observers=observers())`: trackers, the monitor of the machine, and a profiler if `profile`.

    `trackers`: tensorboard, wandb, mlflow; None: those of the project (stack.json).
    """
    if trackers is None:
        stack = load()
        tracker = Tracker(stack.tracking, stack.project)
    else:
        tracker = Tracker(trackers)
    return [tracker, Monitor(), *[Profile()] * profile]
