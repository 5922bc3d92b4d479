"""How far a job's training has come, by what its run wrote: run.json, the end of metrics.jsonl, and checkpoints/.

A job may write anything into these files, so nothing here raises, follows a path out of outputs/, or reads more than a
fixed number of bytes.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from gpukit.host.frozen import PLACE
from gpukit.project.location import is_adopted, located

TAIL = 64 << 10  # bytes read of metrics.jsonl
WHOLE = 2 << 20  # bytes of the largest run.json that is read; each start of the run adds about 1 KB
ROWS = 20  # of metrics.jsonl
ENTRIES = 10_000  # of checkpoints/
RUN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
CHECKPOINT = re.compile(r"step-(\d{8,12})", re.ASCII)


def run_of(command: list[str]) -> str:
    """The name of a command's run, if it is one that can be a folder in outputs/."""
    name, _ = split(command)
    return name if RUN.fullmatch(name) else ""


def split(words: list[str]) -> tuple[str, list[str]]:
    """The last value of --name, and the other words."""
    name = ""
    others = []
    rest = iter(words)
    for word in rest:
        if word == "--name":
            name = next(rest, "")
        elif word.startswith("--name="):
            name = word.removeprefix("--name=")
        else:
            others.append(word)
    return name, others


def run_folder(root: Path, job: dict[str, Any]) -> Path | None:
    """The folder of a job's run; None if it has none yet, if it is in a cluster's volume, or a link out of outputs/."""
    name = run_of(job["command"]) if "namespace" not in job else ""
    folder = root / "outputs" / name
    if name and not folder.is_symlink() and not is_adopted(root):
        return folder if folder.is_dir() else None
    for outputs in places(root, job) if name else []:
        with contextlib.suppress(OSError, RuntimeError):  # a link to itself
            folder = (outputs / name).resolve()
            own = {root.resolve(), (root / "outputs").resolve()}  # outputs/ may be on another disk
            inside = own.intersection(folder.parents)
            if folder.parent == outputs.resolve() and inside and folder.is_dir():
                return folder
    return None


def places(root: Path, job: dict[str, Any]) -> list[Path]:
    """Where a job's outputs/ can be. In an adopted repository: its checkout, then what was left of it, and its own."""
    if not is_adopted(root):
        return [root / "outputs"]
    kept = located("outputs", root) / f"job-{job['id']}-files"
    return [each / "outputs" for each in (located(PLACE, root) / str(job["id"]), kept, root)]


def progress(root: Path, job: dict[str, Any]) -> dict[str, Any] | None:
    """Step, total, loss, speed, and age of the last checkpoint; None if its run has not logged or saved anything."""
    folder = run_folder(root, job) if job["starts"] else None
    if folder is None:
        return None
    rows, updated = _rows(folder / "metrics.jsonl")
    saved, saved_step = _newest_checkpoint(folder / "checkpoints")
    step = int(number(rows[0], "step") or 0) if rows else saved_step
    if step is None:
        return None
    settings = facts_of(folder)["settings"]
    total = int(number(settings, "max_steps") or 0) or None
    # Speeds of an earlier job with this run, such as the one that was retried, say nothing about this one.
    current = rows if updated >= (job["started"] or 0) else []
    rates = sorted(rate for rate in (number(row, "samples_per_second") for row in current) if rate and rate > 0)
    now = job["ended"] or time.time()
    eta = None
    size = number(settings, "batch_size")
    if total and size and rates and job["state"] == "running":
        eta = max(0.0, max(0, total - step) * size / rates[len(rates) // 2] - max(0.0, now - updated))
    return {
        "step": step,
        "total": total,
        "fraction": min(1.0, max(0.0, step / total)) if total else None,
        "eta_seconds": eta if eta is not None and math.isfinite(eta) else None,
        "loss": _newest(rows, "loss"),
        "samples_per_second": _newest(current, "samples_per_second"),
        "loader_wait": _newest(current, "waiting_for_data"),
        "checkpoint_age": max(0.0, now - saved) if saved else None,
        "updated": max(updated, saved),
    }


def training_since(root: Path, job: dict[str, Any]) -> float | None:
    """When the job's training started or resumed; None if it has no run."""
    folder = run_folder(root, job)
    if folder is None:
        return None
    try:
        started = datetime.fromisoformat(facts_of(folder)["starts"][-1]["at"]).timestamp()
    except (LookupError, TypeError, ValueError, OverflowError, OSError):
        started = 0.0
    return max(started, job["started"] or 0.0)


def short(found: dict[str, Any] | None) -> str:
    """Progress for a table: the step, the remaining time, and the loss."""
    if not found:
        return ""
    text = f"step {found['step']}" + (f"/{found['total']}" if found["total"] else "")
    if found["eta_seconds"] is not None:
        minutes = math.ceil(found["eta_seconds"] / 60)
        text += f", {minutes // 60}:{minutes % 60:02} h left" if minutes >= 60 else f", {minutes} min left"
    return text + (f", loss {found['loss']:.4g}" if found["loss"] is not None else "")


def clean(text: str) -> str:
    """Without what a terminal would interpret: control characters, escape codes, changes of direction."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def read(path: Path, most: int) -> tuple[bytes, float, bool]:
    """The last bytes of a regular file, when it was written, and whether that is all of it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # O_NONBLOCK: a FIFO would hang
        try:
            about = os.fstat(file)
            if not stat.S_ISREG(about.st_mode):
                return b"", 0.0, False
            begin = max(0, about.st_size - most)
            return os.pread(file, most, begin), about.st_mtime, begin == 0
        finally:
            os.close(file)
    except OSError:
        return b"", 0.0, False


def parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # cut off by a kill or a full disk
        return {}
    return found if isinstance(found, dict) else {}


def _rows(path: Path) -> tuple[list[dict[str, Any]], float]:
    """The last rows that have a step, newest first, and when the last one was written."""
    text, written, _ = read(path, TAIL)
    found = (row for row in map(parse, reversed(text.split(b"\n"))) if number(row, "step") is not None)
    rows = list(islice(found, ROWS))
    return rows, written if rows else 0.0


def facts_of(folder: Path) -> dict[str, Any]:
    text, _, whole = read(folder / "run.json", WHOLE)
    facts = parse(text) if whole else {}
    return {**facts, "settings": facts["settings"] if isinstance(facts.get("settings"), dict) else {}}


def _newest_checkpoint(folder: Path) -> tuple[float, int | None]:
    """When the newest one was saved, and its step."""
    found: list[tuple[float, int | None]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, ENTRIES):
                match = CHECKPOINT.fullmatch(entry.name)
                if match:
                    found.append((entry.stat(follow_symlinks=False).st_mtime, int(match[1])))
    except OSError:
        pass
    return max(found, default=(0.0, None))


def number(row: dict[str, Any], name: str) -> float | None:
    """A finite number; None for anything else."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an int without a float
        return None


def _newest(rows: list[dict[str, Any]], name: str) -> float | None:
    """Its newest value: not every row has a loss, and where it is NaN, the row has null."""
    return next((number(row, name) for row in rows if name in row), None)
