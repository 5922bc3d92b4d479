"""A trial of the user's own script in another process: a rehearsal of its resume, or a measurement.

The environment variable EXACTRUN_TRIAL names what `Run` calls, as `module:function`, and EXACTRUN_TRIAL_SETTINGS its
keyword arguments, in JSON. The function returns a Trial.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

NAME = "EXACTRUN_TRIAL"
SETTINGS = "EXACTRUN_TRIAL_SETTINGS"


class Trial:
    """Base class of trials; a method that is not needed is left out. Steps are saved only where `step` says so."""

    def folder(self, path: Path) -> Path:
        """The folder of the run, instead of `path`, which the script asks for."""
        return path

    def begin(self, run: Any) -> None:
        """The run exists, and its newest checkpoint is loaded."""

    def batch(self, run: Any, done: int | None) -> bool:
        """The next batch of a pass is about to be read, after `done` of them (None: the next item of `run.epochs`);
        False ends the pass."""
        return True

    def step(self, run: Any, loss: Any) -> bool | None:
        """A step ends; True saves it."""

    def saved(self, run: Any) -> None:
        """A step is saved, or is being saved by the run's thread."""


def current() -> Trial | None:
    """The trial that this process is; None if it is none."""
    if NAME not in os.environ:
        return None
    module, _, function = os.environ[NAME].partition(":")
    return getattr(importlib.import_module(module), function)(**json.loads(os.environ.get(SETTINGS, "{}")))
