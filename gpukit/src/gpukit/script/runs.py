"""The runs of a project: which one a start of its script resumes, and where a new one goes.

Existing runs are never overwritten: a start resumes a run or creates a new folder.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from exactrun import checkpoint
from exactrun.checkpoint import CheckpointError
from exactrun.errors import TrainingError
from exactrun.folder import FACTS, Folder, as_json, read, writable
from gpukit.project.stack import Stack

# Settings that a later start does not take over.
OF_A_START = {"name", "output_dir", "resume", "profile", "max_minutes", "other_processes"}
OF_STACK = ("project", "use_case", "base", "release", "image", "torch", "cuda", "python")


def choose(output_dir: Path, name: str, resume: bool, stack: Stack) -> Folder:
    """The run to resume, or a new one; no other process can train in it while it is open.

    With a name, it is the folder of that name, created if it does not exist. Without one, it is the latest run without
    a name; if there is none, if it is in use, or without `resume`, a new folder is named after the time.

    Raises:
        TrainingError: the named run exists and `resume` is false, another process trains in it, the folder cannot be
            written, or the latest run has checkpoints but no readable run.json.
    """
    with writable(output_dir):
        output_dir.mkdir(parents=True, exist_ok=True)
        run = _named(output_dir / name, resume) if name else _unnamed(output_dir, resume)
        of_stack = {**{each: getattr(stack, each) for each in OF_STACK}, "targets": list(stack.targets)}
        run.facts.setdefault("stack", of_stack)
        others = [read(path).get("number", 0) for path in output_dir.glob(f"*/{FACTS}")]
        run.keep(number=1 + max(others, default=0))  # of this start: a clock may be set back
    return run


def _named(folder: Path, resume: bool) -> Folder:
    if checkpoint.exists(folder) and not resume:
        raise TrainingError(f"{folder} already has a run: resume it without --no-resume, or use another --name.")
    folder.mkdir(parents=True, exist_ok=True)
    run = Folder.claimed(folder)
    run.facts.setdefault("named", True)
    return run


def _unnamed(output_dir: Path, resume: bool) -> Folder:
    if resume and (last := latest(output_dir)):
        with contextlib.suppress(CheckpointError):  # in use: create a new run
            return Folder.claimed(last)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in count(1):
        folder = output_dir / (stamp if number == 1 else f"{stamp}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            run = Folder.claimed(folder)
            run.facts["named"] = False
            return run
    raise AssertionError


def latest(output_dir: Path) -> Path | None:
    """The run without a name that was started last, None if there is none; TrainingError if it cannot be known."""
    known = {path.parent: read(path) for path in output_dir.glob(f"*/{FACTS}")}
    ours = [folder for folder, facts in known.items() if facts.get("named") is False and facts.get("starts")]
    lost = [folder for folder, facts in known.items() if not facts and checkpoint.exists(folder)]
    last = max((*ours, *lost), key=lambda folder: (folder / FACTS).stat().st_mtime, default=None)
    if last in lost:
        raise TrainingError(
            f"{last} has checkpoints, but its {FACTS} cannot be read: resume it with --name {last.name}, or start a "
            "new run with --no-resume."
        )
    return max(ours, key=lambda folder: known[folder].get("number", 0), default=None)


def resumed(output_dir: Path, name: str) -> dict[str, Any]:
    """The contents of run.json of the run that `start` would resume; empty if it would create one."""
    folder = output_dir / name if name else latest(output_dir)
    if folder is None or not checkpoint.exists(folder) or (not name and checkpoint.claimed(folder)):
        return {}
    return read(folder / FACTS)


def record(run: Folder, settings: dict[str, Any], say: Callable[[str], object]) -> None:
    """Write the settings of this start into run.json, and say which ones an earlier start had differently."""
    then = run.facts["settings"]
    now = as_json(settings)
    names = [name for name in now if name in then and name not in OF_A_START and then[name] != now[name]]
    if names:
        say(f"Settings changed: {', '.join(f'{name} from {then[name]} to {now[name]}' for name in names)}.")
    run.keep(settings=now)


def finished(run: Folder, step: int) -> str:
    """How to continue a run that was finished at this step before; "" if it was not."""
    if run.facts.get("finished", {}).get("step") != step:
        return ""
    new = "another --name" if run.facts.get("named") else "--no-resume"
    return f"{run.path} is finished at step {step}. Use --max-steps {2 * step} to continue, or {new}."
