"""What programs rely on: a job as JSON (docs/jobs.schema.json), why it failed, and the exit codes of `jobs wait`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpukit.jobs.progress import clean, progress, read, run_of

FIELDS = ("id", "state", "note", "command", "code", "gpus", "priority", "after", "max_hours", "variables")
FIELDS += ("submitted", "started", "ended", "ran", "starts", "status")
TIMED_OUT = 124  # as of timeout(1)
# Of `jobs wait`; for several jobs, the first of these that applies. 1 and 2 are errors of the command itself.
EXIT = {"failed": 3, "out of time": 3, "canceled": 4, "held": 5, "finished": 0}
LOG_BYTES = 64 << 10


def job_as_json(root: Path, job: dict[str, Any], detailed: bool = False) -> dict[str, Any]:
    """`detailed`: with the cause of a failure, which takes a while to find."""
    found = {name: job.get(name, "") for name in FIELDS}
    found.update(run=run_of(job["command"]), progress=progress(root, job), log=log_of(job))
    if detailed:
        found["cause"] = cause(root, job)
    return found


def log_of(job: dict[str, Any]) -> str:
    """The path of its log in the project; empty if it has not started."""
    return job.get("log", f".launch/jobs/{job['id']}.log") if job["starts"] else ""


def cause(root: Path, job: dict[str, Any]) -> dict[str, str] | None:
    """The likely cause of a failure by the end of the log: id, message, and remedy; as `./launch explain` finds it."""
    if job["state"] != "failed":
        return None
    from gpukit.errors.diagnose import diagnose  # imported here because they are slow
    from gpukit.findings.causes import PROJECT
    from gpukit.findings.private import mask

    text = read(root / log_of(job), LOG_BYTES)[0].decode(errors="replace") if job["starts"] else ""
    found = diagnose(text).causes[:1]
    if not found:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), job["note"])
        return {"id": "unknown", "message": clean(last), "remedy": f"Read its log: ./launch jobs logs {job['id']}"}
    words = found[0].words(PROJECT, mask(root))
    return {"id": found[0].cause.id, "message": words.why, "remedy": words.remedy or words.check or words.more}


def exit_code(states: list[str]) -> int:
    return next(EXIT[state] for state in EXIT if state in states)
