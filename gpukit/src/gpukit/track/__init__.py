"""What follows a run while it trains, and shows it.

trackers    experiment trackers
monitor     utilization, memory, power, and time spent waiting for data
"""

from __future__ import annotations

from collections.abc import Iterable

from exactrun.observer import Observer
from gpukit.project.stack import load
from gpukit.track.monitor import Monitor
from gpukit.track.trackers import Tracker


def observers(trackers: Iterable[str] | None = None) -> list[Observer]:
    """For `Run(..., observers=observers())`: trackers, and the monitor of the machine.

    `trackers`: tensorboard, wandb, mlflow; None: those of the project (stack.json).
    """
    project = ""
    if trackers is None:
        stack = load()
        trackers = stack.tracking
        project = stack.project
    return [*(Tracker(name, project) for name in trackers), Monitor()]
