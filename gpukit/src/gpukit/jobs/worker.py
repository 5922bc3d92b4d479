"""`./launch jobs run`: processes the queue until Ctrl-C. One worker per project, by a lock that the kernel releases.

A worker that was killed leaves jobs in the state `running`. The next one ends what still lives of them, proves that
nothing does, and puts them back into the queue; training then resumes from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.host import frozen
from gpukit.host.project import Project
from gpukit.host.queue import A_MINUTE, WorkerLock, boot_id, born, fingerprint
from gpukit.jobs import ledger, records
from gpukit.jobs.runners import Container, JobError, Native, Outside, Started, adopt_orphans, adopted
from gpukit.jobs.table import FINAL, Table
from gpukit.project.messages import RefusalError, say

TICK = 0.5
IDLE = 1.0
RETRY = 30.0  # seconds until a start is tried again that failed because of an image or an environment; then doubled
TRIES = 8  # of a start: about an hour
KEEP_RAN = 15.0  # how often the time that a job has run is written down, for --max-hours
MOST_KILLS = 5  # stops of a job's container from outside, after which it is not restarted
LOG_DAYS = 30  # after a job has ended


class Limits(NamedTuple):
    """`hours`: GPU-hours of what the worker starts, without a GPU hours; `free`: bytes of the disk, for a start."""

    hours: float = math.inf
    free: float = 0


NO_LIMITS = Limits()


class Active:
    """A job that runs, as its worker knows it."""

    def __init__(self, job: dict[str, Any], lease: dict[str, Any], started: Started, gpus: list[str]) -> None:
        self.job = job
        self.lease = lease
        self.started = started
        self.gpus = gpus
        self.number = job["id"]
        self.begun = self.counted = time.monotonic()
        self.ending = ""  # the state that it gets because of us; "interrupted": the worker stops
        self.deadline = 0.0
        self.outcome: tuple[str, str, int] | None = None
        self.stuck = False

    @property
    def seconds(self) -> float:
        """How long it has run since that was written down."""
        return time.monotonic() - self.counted

    def promised(self) -> float:
        """The GPU-hours that it may still use by its --max-hours."""
        hours = (self.job["max_hours"] or 0) - self.job["ran"] / 3600 - (time.monotonic() - self.begun) / 3600
        return max(0.0, hours) * len(self.gpus)


class Stopped(BaseException):
    """The worker is to stop, and no job has started yet."""


class Worker:
    def __init__(
        self,
        place: Path,
        table: Table,
        runner: Any,
        gpus: list[str] | None,
        project: Callable[[], Any],
        limits: Limits = NO_LIMITS,
    ) -> None:
        """`gpus`: those to share out, None without GPUs. `project`: the project as its files are now."""
        self.limits = limits
        self.used = 0.0  # GPU-hours of jobs that have ended
        self.refused: set[tuple[int, bool]] = set()  # jobs that were not started, and whether by the budget
        self.place = place
        self.table = table
        self.runner = runner
        self.gpus = gpus
        self.project = project
        self.active: dict[int, Active] = {}
        self.stopping = 0
        self.preparing = False
        self.announced = ""
        self.not_before: dict[int, float] = {}  # jobs that could not start, and when that is tried again
        self.tries: Counter[int] = Counter()  # of these jobs
        self.cleaned = 0.0
        self.grace = A_MINUTE

    # The loop

    def catch_signals(self) -> None:
        """From now on, a signal ends what `run` does, and not this process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._stop)

    def run(self) -> None:
        self.catch_signals()
        adopt_orphans()
        self._patiently(self.recover)
        while not self.stopping or (self.active and self.stopping < 3):  # the next worker ends what is left
            self._patiently(self.tick)
            time.sleep(TICK if self.active else IDLE if not self.stopping else 0)

    def _stop(self, *_: Any) -> None:
        self.stopping += 1
        if self.preparing:  # an image is being built, or an environment created
            self.preparing = False
            raise Stopped

    def _patiently(self, do: Callable[[], None]) -> None:
        """What fails because of the engine or the disk is tried again; only Ctrl-C ends the worker."""
        while True:
            try:
                do()
                self.announced = ""
                return
            except RefusalError as refusal:
                if str(refusal) != self.announced:
                    say(f"{refusal} Trying again until that is done.")
                    self.announced = str(refusal)
                if self.stopping and do == self.recover:
                    return
                if do == self.tick:
                    time.sleep(TICK)
                    return
                time.sleep(5 * TICK)

    def tick(self) -> None:
        if self.stopping:
            for active in self.active.values():
                self._end(active, "interrupted")
        spent = self._spent() >= self.limits.hours
        for active in list(self.active.values()):
            if spent:
                self._end(active, "out of time")
            self._look_after(active)
        if spent and not self.active:
            self.stopping += 1
        if not self.stopping:
            self._put_back()
            self._start_what_fits()
        if time.monotonic() - self.cleaned > 3600 or not self.cleaned:
            self.cleaned = time.monotonic()
            self.remove_old_logs()
            self.remove_old_code()

    # After a worker that was killed

    def recover(self) -> None:
        """End what is left of the jobs that were running, prove that it is gone, and put the jobs back."""
        left = self.table.running()
        kinds = {job["id"]: self._runner_of(job["lease"]) for job in left}
        alive = [job for job in left if kinds[job["id"]].alive(job["lease"])]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for job in alive:
                say(f"Job {job['id']} still runs without its worker: ending it, to resume it.")
                kinds[job["id"]].signal(job["lease"], number)
            until = time.monotonic() + (self.grace if number == signal.SIGTERM else 10)
            while alive and time.monotonic() < until and self.stopping < 2:
                time.sleep(0.1)
                alive = [job for job in alive if kinds[job["id"]].alive(job["lease"])]
        if alive:
            raise RefusalError(f"Processes of job {alive[0]['id']} cannot be ended: restart this machine.")
        for job in left:
            kinds[job["id"]].remove(job["lease"])
            self.table.requeue(job["id"], "interrupted; resumes", 0)
            say(f"Job {job['id']} was interrupted, and is in the queue again.")

    def _runner_of(self, lease: dict[str, Any]) -> Any:
        if lease.get("kind", self.runner.kind) == self.runner.kind:
            return self.runner
        kinds = {kind.kind: kind for kind in (Native, Container, Outside)}
        return kinds[lease["kind"]](self.runner.make)

    # Limits

    def _spent(self) -> float:
        """The GPU-hours of the jobs that this worker has started."""
        now = time.monotonic()
        return self.used + sum((now - each.begun) / 3600 * len(each.gpus) for each in self.active.values())

    def _refused(self, job: dict[str, Any], wanted: int) -> str:
        """Why a job may not start now, by the limits."""
        needed = max(0.0, (job["max_hours"] or 0) - job["ran"] / 3600) * wanted
        left = self.limits.hours - self._spent() - sum(each.promised() for each in self.active.values())
        if left <= 0 or needed > left:
            needs = f"it needs up to {needed:.3g} GPU-hours, and " if needed else ""
            return f"not started: {needs}{max(0.0, left):.3g} of --budget are left"
        disk = next(path for path in (self.place.parents[1] / "outputs", self.place) if path.is_dir())
        free = shutil.disk_usage(disk).free
        if free < self.limits.free:
            least = f"{self.limits.free / 1e9:.3g} GB by --keep-free"
            return f"not started: {free / 1e9:.3g} GB of the disk are free, and not {least}"
        return ""

    def not_started(self) -> None:
        """Say which jobs are left because of a limit."""
        for job in self.table.next():
            refused = self._refused(job, job["gpus"] if self.gpus else 1)
            if refused:
                self.table.update(job["id"], note=refused)
                say(f"Job {job['id']} was {refused}.")

    # Starting

    def _put_back(self) -> None:
        """Jobs that were claimed, and whose start or end could not be written down: the disk was full."""
        for job in self.table.running():
            if job["id"] not in self.active:
                self.table.requeue(job["id"], "interrupted; resumes", 0)

    def _free(self) -> list[str]:
        taken = {gpu for active in self.active.values() for gpu in active.gpus}
        return [gpu for gpu in self.gpus or ["cpu"] if gpu not in taken]

    def _start_what_fits(self) -> None:
        slots = self.gpus or ["cpu"]
        env = None
        jobs = self.table.next()
        over_budget = 0
        for job in jobs:
            wanted = job["gpus"] if self.gpus else 1
            if job["variables"] and env is None:
                env = self.project().env
            missing = [name for name in job["variables"] if name not in (env or {})]
            if bool(missing) != (job["state"] == "waiting"):
                self.table.wait(job["id"], missing)
            if missing or self.stopping or self.not_before.get(job["id"], 0) > time.monotonic():
                continue
            if wanted > len(slots):
                note = f"needs {wanted} GPUs, and this queue has {len(slots)}"
                if job["note"] != note:
                    self.table.update(job["id"], note=note)
                continue
            free = self._free()
            if wanted > len(free):
                return  # so that small jobs do not keep a large one waiting forever
            refused = self._refused(job, wanted)
            if refused:
                by_budget = "--budget" in refused
                if (job["id"], by_budget) not in self.refused:  # once, because the figures change all the time
                    self.refused.add((job["id"], by_budget))
                    self.table.update(job["id"], note=refused)
                    say(f"Job {job['id']} is {refused}.")
                over_budget += by_budget
                continue
            self._start(job, free[:wanted])
        if jobs and over_budget == len(jobs) and not self.active:
            self.stopping += 1

    def _start(self, job: dict[str, Any], gpus: list[str]) -> None:
        number = job["id"]
        lease = {"kind": self.runner.kind, "token": secrets.token_hex(16), "boot": boot_id(), "pid": 0, "born": ""}
        lease.update(self.runner.lease(number))
        note = self.change(job)
        self.runner.remove(lease)
        if not self.table.claim(number, lease, note):
            return
        say(
            f"Job {number} {'resumes' if job['starts'] else 'starts'}"
            + (f" on GPU {','.join(gpus)}." if self.gpus else ".")
        )
        if note:
            say(f"Job {number}: {note}.")
        try:
            self.preparing = True
            try:
                folder = self.code(job)
                command = self.runner.command(lease, job, ",".join(gpus) if self.gpus else "", folder)
            finally:
                self.preparing = False
            started = Started(command[0], command[1], self.log(number), command[2], folder)
        except JobError as error:
            self._fail(number, str(error))
            return
        except Stopped:
            self.table.requeue(number, "", 0)
            return
        except RefusalError as refusal:  # its image or its environment: other jobs may have other ones
            pause = RETRY * 2 ** self.tries[number]
            self.tries[number] += 1
            if self.tries[number] == TRIES:
                self._fail(number, str(refusal).rstrip("."))
                return
            self.not_before[number] = time.monotonic() + pause
            self.table.requeue(number, str(refusal), 0)
            say(f"Job {number} cannot start: {refusal} Trying again in {pause:.0f} seconds.")
            return
        self.active[number] = Active(job, lease, started, gpus)
        lease.update(pid=started.process.pid, born=born(started.process.pid))
        self.table.update(number, lease=lease)

    def _fail(self, number: int, why: str) -> None:
        """Record that a job could not start."""
        self.table.end(number, "failed", 0, why, 127)
        self.remove_code(number)
        say(f"Job {number} failed: {why}.")

    def code(self, job: dict[str, Any]) -> Path:
        """The folder in which a job runs: a checkout of its code, or the project for one of `submit --latest`."""
        root = self.place.parents[1]
        folder = self.place / str(job["id"])
        if not job["code"]:
            return root
        try:
            # again for one without credentials: it may have written commands into devcontainer.json that the host runs
            frozen.check_out(root, job["code"], folder, self.runner.links, fresh=bool(job["sealed"]))
        except RefusalError as refusal:
            raise JobError(str(refusal).rstrip(".")) from None
        return folder

    def remove_code(self, number: int) -> None:
        """Remove the checkout of a job that has ended."""
        left = frozen.remove(self.place.parents[1], self.place / str(number), f"job-{number}-files")
        note = self.table.get(number)["note"]
        if left and left not in note:
            self.table.update(number, note="; ".join(filter(None, (note, left))))
            say(f"Job {number}: {left}.")

    def remove_old_code(self) -> None:
        """Remove the checkouts that a killed worker has left, and let git remove the code that no job needs."""
        frozen.remove_drafts(self.place)
        for path in self.place.iterdir():
            number = int(path.name) if path.name.isdecimal() and path.is_dir() else 0
            if number and self.table.ended_before(number, math.inf):
                self.remove_code(number)
        records.forget_old_code(self.place.parents[1])

    def change(self, job: dict[str, Any]) -> str:
        """What to report if a job does not run with the environment that the project had at its `submit`."""
        changed = not job["code"] and job["project"] and job["project"] != fingerprint(self.project().root)
        return "the project's environment has changed since `submit`, and the job uses the new one" if changed else ""

    # Running

    def _look_after(self, active: Active) -> None:
        job = self.table.get(active.number)
        if job["state"] in FINAL:  # it was recorded, and then the disk was full
            self.active.pop(active.number)
            return
        if active.started.process.poll() is not None:
            self._finish(active)
            return
        if active.seconds > KEEP_RAN:
            self.table.update(active.number, ran=job["ran"] + active.seconds)
            job["ran"] = job["ran"] + active.seconds
            active.counted = time.monotonic()
        if job["wanted"]:
            self._end(active, job["wanted"])
        elif job["max_hours"] and job["ran"] + active.seconds > job["max_hours"] * 3600:
            self._end(active, "out of time")
        if active.ending and (time.monotonic() > active.deadline or self.stopping > 1):
            self.runner.signal(active.lease, signal.SIGKILL)
            active.deadline = time.monotonic() + 5

    def _end(self, active: Active, state: str) -> None:
        """Send SIGTERM, once: training saves and exits. The first reason counts."""
        if active.ending:
            return
        active.ending = state
        active.deadline = time.monotonic() + self.grace
        say(f"Job {active.number}: {state}; it has {self.grace:.0f} seconds to save.")
        self.runner.signal(active.lease, signal.SIGTERM)

    def _finish(self, active: Active) -> None:
        """The job's first process has ended: end what it left, prove that it is gone, and record the outcome."""
        number = active.number
        lease = active.lease
        code = active.started.process.returncode
        if active.outcome is None:  # once: the container is removed below, and writing that down may fail
            active.outcome = self.runner.outcome(lease, code)
        state, note, status = active.outcome
        self._sweep(active)
        if self.runner.alive(lease):
            if not active.stuck:
                active.stuck = True
                say(f"Processes of job {number} cannot be ended: it keeps its GPU until they have.")
            return
        active.started.close()
        self.runner.remove(lease)
        if active.ending == "interrupted":
            # also after exit status 0, which a program may return for SIGTERM before its work is done
            self.table.requeue(number, "interrupted; resumes", active.seconds)
            state = "interrupted, and in the queue again"
        elif active.ending:
            state = active.ending
            self.table.end(number, state, active.seconds, "", status)
        elif state == "interrupted" and self.table.get(number)["kills"] < MOST_KILLS:
            self.table.requeue(number, f"{note}; resumes", active.seconds, killed=True)
            state = "interrupted, and in the queue again"
        else:
            state = "failed" if state == "interrupted" else state
            self.table.end(number, state, active.seconds, note, status)
        self.active.pop(number)
        self.used += (time.monotonic() - active.begun) / 3600 * len(active.gpus)
        say(f"Job {number}: {state}" + (f" ({note})." if note else "."))
        job = self.table.get(number)
        if job["state"] in FINAL:
            self.remove_code(number)
            with contextlib.suppress(RefusalError):  # so that `jobs compare` need not read the metrics of all jobs
                ledger.compare(self.place.parents[1], [job])

    def _sweep(self, active: Active) -> None:
        """End the processes that the job left behind."""
        self.runner.signal(active.lease, signal.SIGKILL)
        if not isinstance(self.runner, Native):
            return
        known = self.children()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            orphans = adopted(known)
            if len(self.active) == 1:  # whose they are is certain
                for pid in orphans:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            if not self.runner.alive(active.lease) and not (orphans and len(self.active) == 1):
                return
            self.runner.signal(active.lease, signal.SIGKILL)
            time.sleep(0.02)

    def children(self) -> set[int]:
        """The processes that the worker has started itself."""
        known = {each.started.process.pid for each in self.active.values()}
        return known | {each.started.logger.pid for each in self.active.values()}

    # Logs

    def log(self, number: int) -> Path:
        return self.place / f"{number}.log"

    def remove_old_logs(self) -> None:
        """By the files: they are fewer than the jobs, of which the table keeps every one."""
        oldest = time.time() - LOG_DAYS * 86400
        with os.scandir(self.place) as entries:
            logs = [entry for entry in entries if re.fullmatch(r"\d+\.log(\.1)?", entry.name)]
        for log in logs:
            with contextlib.suppress(FileNotFoundError):  # it was rotated
                if log.stat().st_mtime < oldest and self.table.ended_before(int(log.name.partition(".")[0]), oldest):
                    Path(log.path).unlink()


def gpus_of(project: Project) -> list[str] | None:
    """The GPUs to share out to jobs: those that GPUS chooses, or all of this machine; None without a GPU."""
    project.gpu_is_chosen()
    if project.gpus is None:
        return None
    if project.gpus != "all":
        return project.gpus.split(",")
    query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False, env=project.env)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    found = done.stdout.split() if done and done.returncode == 0 else []
    if not found:
        say("nvidia-smi does not list the GPUs, so one job at a time gets all of them; `--gpus 0,1` names them.")
    return found or ["all"]


def process(
    project: Project, native: bool, make: Callable[..., Project], place: Path, limits: Limits = NO_LIMITS
) -> int:
    """Process the queue in this terminal."""
    lock = WorkerLock(place)
    if not lock.take():
        raise RefusalError(f"The queue is already being processed, by {lock.name()}: `./launch stop` stops it.")
    try:
        lock.sign()
        project.refuse_another_gpukit()
        with Table(place) as table:
            worker = Worker(
                place, table, (Native if native else Container)(make), gpus_of(project), lambda: make(""), limits
            )
            worker.catch_signals()
            say("Processing the queue; Ctrl-C stops, and jobs that run resume the next time.")
            worker.run()
            worker.not_started()
            left = len(table.next())
            say(f"Stopped; jobs in the queue: {left}." if left else "Stopped: the queue is empty.")
    finally:
        lock.release()
    return 0
