"""`submit --on slurm`: jobs that a cluster runs with the project's cluster/train.sbatch.

.launch/slurm has a file for each of them, because SQLite does not work on a network file system. Slurm reports a job
for some minutes after its end; train.sbatch writes its exit status to cluster/ID.status.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

from gpukit.host import frozen
from gpukit.jobs import records
from gpukit.jobs.table import FINAL, find, refuse_ended, refuse_open
from gpukit.project.location import located
from gpukit.project.messages import RefusalError, say

SCRIPT = records.FILES["slurm"]
# Of squeue(1), "JOB STATE CODES"; those that are not here are running.
STATES = {"PENDING": "queued", "REQUEUED": "queued", "REQUEUE_HOLD": "held", "SPECIAL_EXIT": "held"}
STATES |= {"COMPLETED": "finished", "CANCELLED": "canceled", "TIMEOUT": "out of time", "DEADLINE": "out of time"}
STATES |= dict.fromkeys(("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED"), "failed")
NEVER = "DependencyNeverSatisfied"


def folder(root: Path) -> Path:
    return located(records.PLACES["slurm"], root)


def submit(root: Path, command: list[str], package: str, env: dict[str, str], code: str = "", **facts: Any) -> str:
    """Hand a job to sbatch; its ID in the table, such as s12. `env`: with the values of its variables."""
    script = root / SCRIPT
    if not script.is_file():
        raise records.lacking(root, "slurm")
    if command[1:3] != ["-m", f"{package}.train"] or not re.fullmatch(r"python[\d.]*", command[0]):
        raise RefusalError(f"{SCRIPT} runs `python -m {package}.train`, with your arguments: submit that command.")
    name, arguments = records.run_and_arguments(command[3:])
    after = facts["after"]
    hours = facts["max_hours"]
    if after is not None and not str(after).startswith("s"):
        raise RefusalError("A job on Slurm can wait only for a job on Slurm, such as --after s12.")
    options = ["--parsable", "--nodes=1"]
    if "--gpus-per-node" in script.read_text(encoding="utf-8"):
        options += [f"--gpus-per-node={facts['gpus']}", f"--cpus-per-task={8 * facts['gpus']}"]
    elif facts["gpus"] > 1:
        raise RefusalError(f"--gpus has no effect: {SCRIPT} requests no GPUs.")
    if after:  # without the second option, Slurm may remove a job that can never start
        options += [f"--dependency=afterok:{get(root, after)['slurm']}", "--kill-on-invalid-dep=no"]
    options += [f"--time={math.ceil(hours * 60)}"] if hours else []
    env = {key: value for key, value in env.items() if key not in ("RUN_NAME", "REQUEUE")}
    env.update({"RUN_NAME": name} if name else {}, **({"REQUEUE": "no"} if hours else {}))
    place = check_out(root, code, env) if code else root
    options += [f"--chdir={place}", f"--output={root}/cluster/%j.log"]
    try:
        number = ask(["sbatch", *options, str(place / SCRIPT), *arguments], root, env).strip().partition(";")[0]
    except RefusalError:
        if code:
            frozen.remove(root, place, place.name)
        raise
    command = [*command[:3], f"--name={name or number}", *arguments]
    own = {"slurm": number, "log": f"cluster/{number}.log", "code": code}
    own["folder"] = str(place.relative_to(root)) if code else ""
    records.write(folder(root), records.new(f"s{number}", command, **own, **facts))
    return f"s{number}"


def check_out(root: Path, code: str, env: dict[str, str]) -> Path:
    """The folder of a job's code, for all nodes; `env` says where in it the project's own folders are."""
    place = folder(root) / f"code-{secrets.token_hex(4)}"
    folder(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    native = env.get("RUN_IN", "native") == "native"
    frozen.check_out(root, code, place, links=native)
    for image in root.glob("cluster/image.*"):
        (place / "cluster" / image.name).symlink_to(image)
    env.setdefault("OUTPUTS", str(root / "outputs"))
    if not native:
        shared = {frozen.borrowed(root, place): ".git/shared", **{root / name: name for name in frozen.SHARED}}
        env["SHARED"] = ",".join(f"{source}:/workspace/{target}" for source, target in shared.items())
    return place


def ask(command: list[str], root: Path, env: dict[str, str] | None = None, seconds: float = 60) -> str:
    try:
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise RefusalError(f"There is no {command[0]} here: use a login node of the cluster.") from None
    except subprocess.TimeoutExpired:
        raise RefusalError(f"Slurm has not answered for {seconds:.0f} s: try again later.") from None
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RefusalError(f"Slurm refused: {why.partition('error: ')[2] or why}.")
    return done.stdout


def jobs(root: Path) -> list[dict[str, Any]]:
    """This project's jobs on Slurm, as they are now."""
    found = records.read(folder(root))
    if any(job["state"] not in FINAL for job in found):
        try:
            query = ["squeue", "--noheader", "--states=all", f"--user={os.getuid()}", "--format=%i|%T|%M|%r"]
            listed = ask(query, root, seconds=10)
        except RefusalError as refusal:
            return [job if job["state"] in FINAL else {**job, "note": f"{refusal}"} for job in found]
        rows = {row[0]: row for row in (line.split("|") for line in listed.splitlines())}
        for job in found:
            if job["state"] not in FINAL:
                before = dict(job)
                refresh(root, job, rows.get(job["slurm"]))
                if job["state"] in FINAL and job.get("folder"):
                    left = frozen.remove(root, root / job["folder"], f"{job['slurm']}-files")
                    job["note"] = "; ".join(filter(None, (job["note"], left)))
                if job != before:
                    records.refreshed(folder(root), job)
    return found


def refresh(root: Path, job: dict[str, Any], row: list[str] | None) -> None:
    """`row`: ID, state, time, and reason by squeue; None if it no longer lists the job."""
    state = ""
    note = ""
    if row:
        state = STATES.get(row[1], "running")
        job["ran"] = elapsed(row[2]) or job["ran"]
        if state == "queued":
            state = "held" if row[3] == NEVER else "queued"
            note = "" if row[3] == "None" else row[3]
        if state == "running" and not job["starts"]:
            job.update(starts=1, started=time.time() - job["ran"])
    if not row or state in FINAL:
        path = root / job.get("folder", "") / f"cluster/{job['slurm']}.status"
        with contextlib.suppress(OSError, ValueError):
            text = path.read_text(encoding="utf-8").strip()
            job["status"] = int(text) if text.isdecimal() else None
            if not row or text == "out of time":
                state = {"0": "finished", "out of time": text}.get(text, "failed" if job["status"] else "")
        if job["status"] and state == "failed":
            note = f"exit status {job['status']}"
        if job["wanted"] and state != "finished":
            state = job["wanted"]
            note = ""
        if not state:
            state = "failed"
            note = "killed: Slurm no longer lists it, and it has not reported its end"
        ended = path.stat().st_mtime if path.exists() else time.time()
        job.update(ended=ended, starts=job["starts"] or int((root / job["log"]).exists()))
    job.update(state=state, note=note)


def elapsed(text: str) -> float:
    """Seconds of [days-][hours:]minutes:seconds."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0, 0)
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


# The commands


def get(root: Path, number: str) -> dict[str, Any]:
    return find(jobs(root), number)


def cancel(root: Path, number: str) -> int:
    job = get(root, number)
    refuse_ended(job)
    ask(["scancel", job["slurm"]], root)
    records.write(folder(root), {**job, "wanted": "canceled"})
    say(f"Job {number} is being canceled.")
    return 0


def retry(root: Path, number: str, package: str, env: dict[str, str]) -> str:
    """Submit the same command and run again."""
    job = get(root, number)
    refuse_open(job)
    same = {name: job[name] for name in ("gpus", "max_hours", "variables")}
    same["code"] = job.get("code", "")
    if same["code"]:
        frozen.keep(root, same["code"])
    return submit(root, job["command"], package, env, after=None, **same)
