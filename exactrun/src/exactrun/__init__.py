"""Exact resume for any training loop.

    run         a run of a training loop, which resumes exactly (passes, streams, state, shards, settings)
    data        batches and samples whose random numbers depend only on a key (seeds, vector_math, workers)
    checkpoint  checkpoints that are verified when they are loaded (hashed)
    folder      the folder of a run, its settings and versions
    metrics     the metrics of a run, as JSON lines
    observer    what follows a run: trackers, a monitor
    progress    progress output
    ranks       one process or several
    stop        signals that stop a run at the end of a step
    trial       whether this process rehearses the script
    fits        a batch that does not fit in memory, in smaller parts
    errors      the error of a run that cannot continue

The package adapters has the same for the training loops of Hugging Face, TRL, and Lightning; rehearse kills a script,
resumes it, and compares every number. In parentheses: modules that the module uses internally.
"""

from exactrun.checkpoint import CheckpointError, load_weights
from exactrun.data import DataError
from exactrun.errors import TrainingError
from exactrun.fits import Fits
from exactrun.metrics import read as read_metrics
from exactrun.observer import Observer
from exactrun.run import Run

__all__ = [
    "CheckpointError",
    "DataError",
    "Fits",
    "Observer",
    "Run",
    "TrainingError",
    "load_weights",
    "read_metrics",
]
