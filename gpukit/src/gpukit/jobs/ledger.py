"""`./launch jobs compare`: what jobs differ in, and what came of each.

From the queue, and from what their runs wrote: run.json and metrics.jsonl. A job may write anything into these.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpukit.host import copies, frozen
from gpukit.host.git import git
from gpukit.jobs.progress import TAIL, clean, facts_of, number, parse, read, run_folder, run_of
from gpukit.project.location import located
from gpukit.project.messages import some

OUTCOMES = ".launch/jobs/outcomes.json"  # of the runs that were compared
MOST = 1000  # jobs that have ended, if none are named
METRICS_BYTES = 8 << 20  # read of the end of each metrics.jsonl
BETTER = "held_out_loss"  # than "loss", if any of the jobs has it
HIGHEST = re.compile(r"acc|auc|f1|bleu|rouge|reward|score|iou|map\b", re.IGNORECASE)  # metrics of which more is better
VALUE = rb'"%s": (-?\d+\.?\d*(?:e[+-]?\d+)?)[,}]'


def compare(root: Path, jobs: list[dict[str, Any]], metric: str = "") -> dict[str, Any]:
    """`metric` and whether `highest` is best, the names of the options that are `differing`, and a row per job."""
    folders = [run_folder(root, job) for job in jobs]
    if not metric:
        metric = BETTER if any(b'"%s"' % BETTER.encode() in log_of(folder, TAIL) for folder in folders) else "loss"
    highest = bool(HIGHEST.search(metric))
    given = [options(job["command"]) for job in jobs]
    names = dict.fromkeys(name for each in given for name in each if name != "--name")
    differing = [name for name in names if len({each.get(name) for each in given}) > 1]
    changed = changes(root, [job.get("code", "") for job in jobs])
    outcomes = located(OUTCOMES, root)
    known = frozen.remembered(outcomes)
    before = dict(known)
    rows = []
    for job, folder, each in zip(jobs, folders, given):
        row = {name: job[name] for name in ("id", "state", "note", "command", "starts")}
        row.update(run=run_of(job["command"]), code=job.get("code", ""), changed=changed.get(job.get("code", "")))
        row.update(options={name: each.get(name) for name in differing}, gpu_hours=job["ran"] * job["gpus"] / 3600)
        row.update(remembered(root, known, folder, metric, highest))
        row["seed"] = each.get("--seed", row["seed"])
        rows.append(row)
    if known != before:
        there = {key: each for key, each in known.items() if (root / key.partition("\0")[0]).is_dir()}
        frozen.remember(outcomes, there)
    return {"metric": metric, "highest": highest, "differing": differing, "jobs": rows}


def log_of(folder: Path | None, most: int) -> bytes:
    return read(folder / "metrics.jsonl", most)[0] if folder else b""


def remembered(root: Path, known: dict[str, Any], folder: Path | None, metric: str, highest: bool) -> dict[str, Any]:
    """The outcome, which is read again only if the files have changed: a long run's metrics are tens of megabytes."""
    if folder is None:
        return outcome(None, metric, highest)
    key = f"{os.path.relpath(folder, root)}\0{metric}"  # the service has the project elsewhere
    files = [copies.look(folder / file) for file in ("metrics.jsonl", "run.json")]
    if known.get(key, {}).get("files") != files:
        known[key] = {"files": files, "outcome": outcome(folder, metric, highest)}
    return dict(known[key]["outcome"])


def outcome(folder: Path | None, metric: str, highest: bool) -> dict[str, Any]:
    """The last and the best value of the metric, the step, the seed, the memory in GB, and what is `damaged`."""
    log = log_of(folder, METRICS_BYTES)
    values = finite(numbers(log, metric))
    gauge = "gpu_memory_gb" if b'"gpu_memory_gb"' in log else "memory_gb"
    memory = finite({*numbers(log, gauge)})  # the same ones again and again
    whole = log.rpartition(b"\n")[0]
    last = parse(whole.rpartition(b"\n")[2])
    damaged = ["metrics.jsonl"] if log.strip() and number(last, "step") is None else []
    settings: dict[str, Any] = {}
    if folder and (folder / "run.json").exists():
        facts = facts_of(folder)
        settings = facts["settings"]
        damaged += [] if facts.keys() - {"settings"} else ["run.json"]
    step = number(last, "step")
    return {
        "last": values[-1] if values else None,
        "best": (max if highest else min)(values, default=None),
        "step": None if step is None else int(step),
        "seed": settings.get("seed"),
        "memory_gb": max(memory, default=None),
        "damaged": damaged,
    }


def numbers(log: bytes, name: str) -> list[bytes]:
    """All values of a figure; by a pattern, because parsing the lines takes twenty times as long."""
    return re.findall(VALUE % re.escape(name).encode(), log)


def finite(texts: Iterable[bytes]) -> list[float]:
    return [*filter(math.isfinite, map(float, texts))]


def options(command: list[str]) -> dict[str, str]:
    """A command's options: --lr 1, --lr=1, and lr=1 as names with values, and the rest of it as `command`."""
    found: dict[str, str] = {}
    rest = []
    at = 0
    while at < len(command):
        name, given, value = command[at].partition("=")
        following = command[at + 1 : at + 2]
        at += 1
        if not (name.startswith("--") or (given and re.fullmatch(r"[\w.+~]+", name))):
            rest.append(command[at - 1])
        elif name.startswith("--") and not given and following and not re.match(r"-(?!\d)", following[0]):
            found[name] = following[0]
            at += 1
        else:
            found[name] = value if given else "yes"
    return {**found, "command": " ".join(rest)}


def changes(root: Path, codes: list[str]) -> dict[str, list[dict[str, Any]]]:
    """For each code, the files in which it differs from the first one; a code that git has removed is left out."""
    wanted = list(dict.fromkeys(filter(None, codes)))
    copied = {code: copy for code in wanted if (copy := frozen.copy_of(root, code))}
    if copied:
        first = next(iter(copied.values()))
        return {code: copies.changes(first, copy) for code, copy in copied.items()}
    for repository in frozen.repositories(root) if wanted else ():
        env = {"GIT_DIR": str(repository)}
        listed = git(
            root, "cat-file", "--batch-check=%(objectname) %(objecttype)", data="\n".join(wanted) + "\n", **env
        )
        there = [line.split()[0] for line in listed.splitlines() if line.endswith(" commit")]
        if there:
            pairs = "".join(f"{code} {there[0]}\n" for code in there)
            command = ["-c", "core.quotePath=false", "diff-tree", "--stdin", "-r", "--numstat"]
            return {code: [] for code in there} | changed_files(git(root, *command, data=pairs, **env))
    return {}


def changed_files(output: str) -> dict[str, list[dict[str, Any]]]:
    """The output of `git diff-tree --stdin --numstat`: a commit, and a line for each of its files."""
    found: dict[str, list[dict[str, Any]]] = {}
    code = ""
    for line in output.splitlines():
        if "\t" not in line:
            code = line
            found[code] = []
            continue
        added, removed, path = line.split("\t", 2)
        counts = {"added": added, "removed": removed}
        found[code].append(
            {"path": path, **{name: int(text) if text != "-" else None for name, text in counts.items()}}
        )
    return found


# The table


def table(found: dict[str, Any]) -> list[list[str]]:
    """Its cells, with a header."""
    metric = found["metric"]
    names = [name.lstrip("-") for name in found["differing"]]
    best = "highest" if found["highest"] else "lowest"
    titles = {"last": metric, "best": best, "step": "STEP", "seed": "SEED", "gpu_hours": "GPU-H", "memory_gb": "GB"}
    if "seed" in names:
        del titles["seed"]
    rows = [["ID", "STATE", *names, "CODE", *titles.values(), "NOTE"]]
    for job in found["jobs"]:
        damaged = [f"{name} is damaged" for name in job["damaged"]]
        empty = ["no metrics"] if job["step"] is None and job["starts"] and not damaged else []
        note = "; ".join([*damaged, *empty, *filter(None, [job["note"]])])
        chosen = ["" if value is None else value for value in job["options"].values()]
        figures = [shown(job[name]) for name in titles]
        rows.append([str(job["id"]), job["state"], *chosen, code(job), *figures, note])
    return rows


def aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
    return [clean(line) for line in lines]


def code(job: dict[str, Any]) -> str:
    """In what a job's code differs from the first one's, in short."""
    if not job["code"]:
        return "latest"
    if job["changed"] is None:
        return job["code"][:7]
    files = [f"{one['path']} +{one['added']}-{one['removed']}" for one in job["changed"]]
    return some(files, 2)


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else ""
    return "" if value is None else str(value)
