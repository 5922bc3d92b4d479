"""The run that a start of a project's script begins or resumes: the folder of its name, which is never overwritten."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from exactrun import checkpoint
from exactrun.folder import FACTS, Folder, as_json, read
from gpukit.project.stack import Stack

# Settings that a later start does not take over.
OF_A_START = {"name", "output_dir", "resume", "max_minutes", "other_processes"}
OF_STACK = ("project", "use_case", "base", "release", "image", "torch", "cuda", "python")


def choose(output_dir: Path, name: str, resume: bool, stack: Stack) -> Folder:
    """The folder of the run; no other process can train in it while it is open. Without `resume`, it is a new one.

    Raises:
        CheckpointError: another process trains in it, or it cannot be written.
    """
    folder = output_dir / (name if resume else f"{name}-{datetime.now():%Y%m%d-%H%M%S-%f}")
    with checkpoint.file_errors(folder):
        folder.mkdir(parents=True, exist_ok=resume)
        run = Folder.claimed(folder)
        of_stack = {**{each: getattr(stack, each) for each in OF_STACK}, "targets": list(stack.targets)}
        run.keep(stack=run.facts.get("stack", of_stack))
    return run


def resumed(output_dir: Path, name: str) -> dict[str, Any]:
    """The settings of the run that a start would resume; empty if it would begin one."""
    folder = output_dir / name
    return read(folder / FACTS).get("settings", {}) if checkpoint.exists(folder) else {}


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
    return f"{run.path} is finished at step {step}. Use --max-steps {2 * step} to continue, or another --name."
