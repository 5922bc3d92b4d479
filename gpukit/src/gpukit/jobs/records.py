"""Jobs that a cluster runs: .launch/ has a file for each, because SQLite does not work on a network file system."""

from __future__ import annotations

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

from gpukit.host import frozen
from gpukit.jobs.progress import split
from gpukit.jobs.table import Table
from gpukit.project import pyproject
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError

# The answers to the question `cluster`, in its order, and their files.
FILES = {"slurm": "cluster/train.sbatch", "kubernetes": "cluster/job.yaml", "skypilot": "cluster/sky.yaml"}
PLACES = {"slurm": ".launch/slurm", "kubernetes": ".launch/kubernetes"}


def write(folder: Path, job: dict[str, Any]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    pyproject.write(folder / f"{job['id']}.json", json.dumps(job))


def refreshed(folder: Path, job: dict[str, Any]) -> None:
    """Write what a cluster said of a job; that it is to be canceled may have been written meanwhile, and stays."""
    with contextlib.suppress(OSError, ValueError):
        now = json.loads((folder / f"{job['id']}.json").read_text(encoding="utf-8"))
        write(folder, {**job, "wanted": now["wanted"]})


def read(folder: Path) -> list[dict[str, Any]]:
    """All jobs; a damaged file is left out."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found


def stored(root: Path) -> list[dict[str, Any]]:
    """This project's jobs on clusters, as they were when the cluster was last asked."""
    return [job for place in PLACES.values() for job in read(located(place, root))]


def forget_old_code(root: Path) -> None:
    """Let git remove the code of jobs that ended long ago, here and on clusters."""
    since = time.time() - frozen.DAYS * 86400

    def needed() -> set[str]:
        found = {job.get("code", "") for job in stored(root) if (job["ended"] or math.inf) >= since}
        place = located(frozen.PLACE, root)
        if not (place / "queue.sqlite").exists():  # it cannot be on a network file system
            return found
        with Table(place) as table:
            return found | table.codes(since)

    frozen.forget(root, needed)


def new(id: str, command: list[str], **facts: Any) -> dict[str, Any]:
    """A job that waits, with the fields that the table of jobs shows."""
    now = time.time()
    job = {"id": id, "state": "queued", "command": command, "submitted": now, "position": now}
    job |= {"note": "", "status": None, "started": None, "ended": None, "ran": 0, "starts": 0, "wanted": ""}
    return {**job, "after": None, "priority": 0, **facts}


def run_and_arguments(arguments: list[str]) -> tuple[str, list[str]]:
    """The value of --name, and the other arguments of the project's training."""
    if "--no-resume" in arguments:
        raise RefusalError(
            "Omit --no-resume: a job has its own run, so it starts from scratch, and resumes if interrupted."
        )
    return split(arguments)


def lacking(root: Path, answer: str) -> RefusalError:
    """The refusal if the project has no file for a cluster, with the answers that add it."""
    if is_adopted(root):
        return RefusalError("An adopted repository has no files for a cluster: submit without --on, to this machine.")
    chosen = [name for name, file in FILES.items() if name == answer or (root / file).is_file()]
    update = f"./launch update --to current --answers cluster='[{', '.join(chosen)}]'"
    return RefusalError(f"This project has no {FILES[answer]}: `{update}` adds it.")
