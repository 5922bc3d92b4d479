"""The table of jobs, in SQLite.

States: queued, held (the job that it waits for did not finish), waiting (variables are missing), running; and the final
ones: finished, failed, canceled, out of time. A job gets exactly one final state; `retry` adds a new job.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpukit.project.messages import RefusalError

try:
    import sqlite3
except ImportError:  # some builds of Python
    raise RefusalError("This Python has no sqlite3, which the queue needs: `uv python install 3.13` has it.") from None

FINAL = ("finished", "failed", "canceled", "out of time")
OPEN = ("queued", "held", "waiting")
ALIVE = (*OPEN, "running")  # an index finds these; with `NOT IN {FINAL}`, SQLite would read every job
# Each brings the schema from one version (PRAGMA user_version) to the next; never edit one that was released.
MIGRATIONS = [
    # `code`: a commit, or nothing: the project as it is at the start. `sealed`: what the job has to do without, such as
    # "credentials network". Few jobs are open and many have ended: no request may read the rows of all of them. The
    # first index has all that `totals` needs.
    """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        state TEXT NOT NULL DEFAULT 'queued',
        command TEXT NOT NULL,
        code TEXT NOT NULL DEFAULT '',
        sealed TEXT NOT NULL DEFAULT '',
        gpus INTEGER NOT NULL DEFAULT 1,
        priority INTEGER NOT NULL DEFAULT 0,
        position REAL NOT NULL DEFAULT 0,
        after INTEGER REFERENCES jobs (id),
        max_hours REAL,
        variables TEXT NOT NULL DEFAULT '[]',
        project TEXT NOT NULL DEFAULT '',
        wanted TEXT NOT NULL DEFAULT '',
        lease TEXT NOT NULL DEFAULT '',
        note TEXT NOT NULL DEFAULT '',
        status INTEGER,
        starts INTEGER NOT NULL DEFAULT 0,
        kills INTEGER NOT NULL DEFAULT 0,
        ran REAL NOT NULL DEFAULT 0,
        submitted REAL NOT NULL,
        started REAL,
        ended REAL
    );
    CREATE INDEX jobs_state ON jobs (state, submitted, started, ended, ran);
    CREATE INDEX jobs_ended ON jobs (ended);
    """,
]


class Table:
    """`with Table(folder) as table`; every method is one transaction. Errors of SQLite become a RefusalError."""

    def __init__(self, place: Path, seconds: float = 10.0) -> None:
        self.path = place / "queue.sqlite"
        with self._explained():
            self.base = sqlite3.connect(self.path, timeout=seconds, isolation_level=None)
            self.base.row_factory = sqlite3.Row
            self.base.execute("PRAGMA journal_mode = WAL")
            self.base.execute("PRAGMA synchronous = FULL")
            self._migrate()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.base.close()

    def _migrate(self) -> None:
        (version,) = self.base.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise RefusalError(f"{self.path} was written by a newer gpukit: `./launch update` brings it.")
        while version < len(MIGRATIONS):
            with self.change():
                (version,) = self.base.execute("PRAGMA user_version").fetchone()  # another process may have been first
                if version < len(MIGRATIONS):
                    for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                        self.base.execute(statement)
                    version += 1
                    self.base.execute(f"PRAGMA user_version = {version}")

    @contextlib.contextmanager
    def change(self) -> Iterator[Any]:
        """One transaction that writes: all or nothing, on disk at its end."""
        with self._explained():
            self.base.execute("BEGIN IMMEDIATE")
            try:
                yield self.base
                self.base.execute("COMMIT")
            finally:
                if self.base.in_transaction:
                    self.base.execute("ROLLBACK")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RefusalError(f"{self.path} cannot be used ({error}): {_remedy(str(error))}.", kind="queue") from None
        except sqlite3.DatabaseError as error:
            raise RefusalError(
                f"{self.path} is damaged ({error}): rename it to start a new queue; runs and logs are not affected.",
                kind="queue",
            ) from None

    def _rows(self, condition: str = "1", values: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        with self._explained():
            found = self.base.execute(f"SELECT * FROM jobs WHERE {condition}", values).fetchall()
        return [_job(row) for row in found]

    # Reading

    def recent(self, most: int) -> list[dict[str, Any]]:
        """The jobs that have not ended, and the `most` last ones that have, in the order of their numbers."""
        return self._rows(
            f"id IN (SELECT id FROM jobs WHERE state IN {ALIVE} UNION ALL SELECT id FROM"
            " (SELECT id FROM jobs WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT ?)) ORDER BY id",
            (most,),
        )

    def counts(self) -> dict[str, int]:
        """How many jobs that have not ended are in each state."""
        with self._explained():
            found = self.base.execute(f"SELECT state, COUNT(*) FROM jobs WHERE state IN {ALIVE} GROUP BY state")
            return dict(found.fetchall())

    def totals(self) -> dict[str, tuple[int, float, float]]:
        """By state: jobs, the seconds that they waited until they started first, and those that they ran; of all."""
        with self._explained():
            found = self.base.execute(
                "SELECT state, COUNT(*), TOTAL(MAX(0, COALESCE(started, ended, ?) - submitted)), TOTAL(ran) FROM jobs"
                " GROUP BY state",
                (time.time(),),
            )
            return {row[0]: tuple(row[1:]) for row in found.fetchall()}

    def codes(self, since: float) -> set[str]:
        """The code of the jobs that have not ended, or not before that moment."""
        with self._explained():
            found = self.base.execute(
                f"SELECT code FROM jobs WHERE state IN {ALIVE} UNION SELECT code FROM jobs WHERE ended >= ?", (since,)
            )
            return {row[0] for row in found.fetchall()}

    def ended_before(self, number: int, moment: float) -> bool:
        return bool(self._rows("id = ? AND ended < ?", (number, moment)))

    def last_started(self) -> dict[str, Any] | None:
        """A job that runs, or else the one that ran last."""
        found = self._rows("state = 'running' ORDER BY id DESC LIMIT 1")
        found = found or self._rows("starts > 0 ORDER BY ended DESC, id DESC LIMIT 1")
        return found[0] if found else None

    def get(self, number: int) -> dict[str, Any]:
        return find(self._rows("id = ?", (number,)), number)

    def running(self) -> list[dict[str, Any]]:
        return self._rows("state = 'running' ORDER BY id")

    def next(self) -> list[dict[str, Any]]:
        """Jobs that may start, in order."""
        return self._rows(
            "state IN ('queued', 'waiting') AND (after IS NULL OR (SELECT state FROM jobs AS first WHERE"
            " first.id = jobs.after) = 'finished') ORDER BY priority DESC, position, id"
        )

    # Changes from the command line

    def submit(self, command: list[str], **facts: Any) -> int:
        """Add a job; its number. `{job}` in the command becomes that number."""
        with self.change() as base:
            return _add(base, command, **facts)

    def submit_all(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any] | RefusalError]:
        """Add several jobs in one transaction: their ids and notes, or why one of them is refused."""
        found: list[dict[str, Any] | RefusalError] = []
        with self.change() as base:
            for job in jobs:
                try:
                    number = _add(base, **job)
                except RefusalError as refusal:
                    found.append(refusal)
                    continue
                (note,) = base.execute("SELECT note FROM jobs WHERE id = ?", (number,)).fetchone()
                found.append({"id": number, "note": note})
        return found

    def cancel(self, number: int) -> str:
        """The job's state: canceled, or running while the worker ends it."""
        self.get(number)
        with self.change() as base:
            job = base.execute("SELECT id, state FROM jobs WHERE id = ?", (number,)).fetchone()
            refuse_ended(job)
            if job["state"] == "running":
                base.execute("UPDATE jobs SET wanted = 'canceled' WHERE id = ?", (number,))
                return "running"
            _end(base, number, "canceled", None, "")
        return "canceled"

    def retry(self, number: int, project: str) -> int:
        """Add a job with the same command, code, and run; jobs that are held because of the old one wait for it."""
        job = self.get(number)
        refuse_open(job)
        same = {name: job[name] for name in ("gpus", "priority", "max_hours", "variables", "code", "sealed")}
        new = self.submit(job["command"], project=project, note=f"retry of job {number}", **same)
        with self.change() as base:
            base.execute("UPDATE jobs SET after = ? WHERE after = ? AND state = 'held'", (new, number))
            _settle(base)
        return new

    def move(self, number: int) -> None:
        """Let a job be the next one."""
        job = self.get(number)
        if job["state"] not in OPEN:
            raise RefusalError(f"Job {number} is not in the queue: it is {job['state']}.")
        with self.change() as base:
            base.execute(
                f"UPDATE jobs SET priority = (SELECT MAX(priority) FROM jobs WHERE state IN {OPEN}),"
                f" position = (SELECT MIN(position) FROM jobs WHERE state IN {ALIVE}) - 1 WHERE id = ?",
                (number,),
            )

    # Changes by the worker

    def claim(self, number: int, lease: dict[str, Any], note: str) -> bool:
        """Whether the job is now ours to start: it was still in the queue."""
        with self.change() as base:
            changed = base.execute(
                "UPDATE jobs SET state = 'running', lease = ?, note = ?, started = COALESCE(started, ?),"
                " starts = starts + 1 WHERE id = ? AND state IN ('queued', 'waiting')",
                (json.dumps(lease), note, time.time(), number),
            )
            return bool(changed.rowcount == 1)

    def update(self, number: int, **facts: Any) -> None:
        """Write facts about a job, except its state."""
        values = [json.dumps(one) if isinstance(one, dict) else one for one in facts.values()]
        with self.change() as base:
            base.execute(
                f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in facts)} WHERE id = ?", (*values, number)
            )

    def wait(self, number: int, missing: list[str]) -> None:
        """A job that variables are missing for, or no longer."""
        note = f"{', '.join(missing)} not set: add to .env, or set where `jobs run` is started" if missing else ""
        with self.change() as base:
            base.execute(
                "UPDATE jobs SET state = ?, note = ? WHERE id = ? AND state IN ('queued', 'waiting') AND state != ?",
                ("waiting" if missing else "queued", note, number, "waiting" if missing else "queued"),
            )

    def requeue(self, number: int, note: str, ran: float, killed: bool = False) -> None:
        """An interrupted job, of which no process lives, goes back to its place; if it is to be canceled, it ends."""
        with self.change() as base:
            wanted = base.execute("SELECT wanted FROM jobs WHERE id = ?", (number,)).fetchone()["wanted"]
            if wanted:
                _end(base, number, wanted, ran, "")
                return
            base.execute(
                "UPDATE jobs SET state = 'queued', lease = '', note = ?, ran = ran + ?, kills = kills + ? WHERE id = ?"
                " AND state = 'running'",
                (note, ran, int(killed), number),
            )

    def end(self, number: int, state: str, ran: float, note: str = "", status: int | None = None) -> None:
        with self.change() as base:
            _end(base, number, state, ran, note, status)


def find(jobs: list[dict[str, Any]], number: int | str) -> dict[str, Any]:
    for job in jobs:
        if job["id"] == number:
            return job
    raise RefusalError(f"There is no job {number}: `./launch jobs` lists the jobs.")


def refuse_ended(job: Any) -> None:
    if job["state"] in FINAL:
        raise RefusalError(f"Job {job['id']} has ended already: it is {job['state']}.")


def refuse_open(job: Any) -> None:
    if job["state"] not in FINAL:
        raise RefusalError(f"Job {job['id']} has not ended: it is {job['state']}.")


def _add(base: Any, command: list[str], after: int | None = None, **facts: Any) -> int:
    if after is not None and not base.execute("SELECT 1 FROM jobs WHERE id = ?", (after,)).fetchone():
        raise RefusalError(f"There is no job {after} to wait for: `./launch jobs` lists the jobs.")
    names = ["command", "submitted", "after", *facts]
    values = [json.dumps(one) if isinstance(one, list) else one for one in facts.values()]
    marks = ", ".join("?" * len(names))
    added = base.execute(f"INSERT INTO jobs ({', '.join(names)}) VALUES ({marks})", ("", time.time(), after, *values))
    number = int(added.lastrowid)
    command = [word.replace("{job}", str(number)) if word == "--name=job-{job}" else word for word in command]
    base.execute("UPDATE jobs SET command = ?, position = ? WHERE id = ?", (json.dumps(command), number, number))
    if after is not None:
        _settle(base)
    return number


def _end(base: Any, number: int, state: str, ran: float | None, note: str, status: int | None = None) -> None:
    base.execute(
        "UPDATE jobs SET state = ?, ended = ?, ran = ran + ?, status = ?, lease = '',"
        " note = CASE WHEN ? = '' AND state = 'running' THEN note ELSE ? END WHERE id = ?"
        f" AND state NOT IN {FINAL}",
        (state, time.time(), ran or 0, status, note, note, number),
    )
    _settle(base)


def _settle(base: Any) -> None:
    """Hold the jobs whose job before them did not finish, and release those for which it may again."""
    bad = (
        "(SELECT state FROM jobs AS first WHERE first.id = jobs.after) IN ('failed', 'canceled', 'out of time', 'held')"
    )
    while True:
        changed = base.execute(
            "UPDATE jobs SET state = 'held', note = 'job ' || after || ' did not finish; retrying it releases this one'"
            f" WHERE state IN ('queued', 'waiting') AND {bad}"
        ).rowcount
        changed += base.execute(
            f"UPDATE jobs SET state = 'queued', note = '' WHERE state = 'held' AND NOT {bad}"
        ).rowcount
        if not changed:
            return


def _job(row: Any) -> dict[str, Any]:
    job = dict(row)
    job.update(command=json.loads(job["command"]), variables=json.loads(job["variables"]))
    job["lease"] = json.loads(job["lease"]) if job["lease"] else {}
    return job


def _remedy(error: str) -> str:
    if "readonly" in error or "unable to open" in error or "attempt to write" in error:
        return "make it and its folder writable for this user"
    if "full" in error:
        return "free space on this disk"
    if "locked" in error:
        return "another process has kept it locked for too long; try again"
    return "check this disk"
