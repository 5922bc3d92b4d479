"""kill -9 at a random step, resume, and compare every loss and parameter bit by bit: python benchmarks/resume.py

A generated project (`minimal`: dropout, augmentation in two workers) is killed and resumed with another number of
workers, in one process and in two gloo processes. Then the same is done with other libraries, with the same number of
workers. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from measure import ROOT, clone, generate, machine, write

STEPS, SAVE, BATCH = 60, 10, 256
PATIENCE = 300  # seconds for one run of 60 steps
sys.path.insert(0, str(ROOT / "gpukit/src"))


@dataclass(frozen=True)
class Trained:
    """The result of a run: the last loss of each step, and a digest of its parameters."""

    losses: dict[int, str]
    parameters: str


@dataclass(frozen=True)
class Subject:
    """`start(folder, workers)` returns the command, `read(folder)` what it has written so far."""

    name: str
    start: Callable[[Path, int], list[str]]
    read: Callable[[Path], Trained]
    resumed_with: tuple[int, ...]


def read_project(folder: Path) -> Trained:
    from gpukit.track import metrics as track
    from gpukit.train import checkpoint

    run = folder / "run"
    rows = track.read(run) if (run / "metrics.jsonl").exists() else []
    losses = {row["step"]: row["loss"].hex() for row in rows if isinstance(row.get("loss"), float)}
    if STEPS not in losses:
        return Trained(losses, "")
    manifest = json.loads((checkpoint.newest(run).path / "manifest.json").read_text(encoding="utf-8"))
    return Trained(losses, manifest["files"]["model.pt"]["sha256"])


def read_library(folder: Path) -> Trained:
    file = folder / "losses.txt"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    losses = {int(step): loss for step, loss in (pair for pair in words if len(pair) == 2 and pair[0].isdigit())}
    return Trained(losses, next((pair[1] for pair in words if pair[0] == "parameters" and len(pair) == 2), ""))


def begin(command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen:
    with log.open("a") as file:
        return subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def uninterrupted(subject: Subject, folder: Path, env: dict[str, str]) -> Trained:
    process = begin(subject.start(folder, 2), env, folder / "log")
    try:
        if process.wait(timeout=PATIENCE):
            sys.exit(f"{subject.name}: {(folder / 'log').read_text()[-2000:]}")
    finally:
        end(process)
    return subject.read(folder)


def killed(subject: Subject, folder: Path, env: dict[str, str], at: int, again: int) -> Trained:
    """Start with 2 workers, kill as soon as step `at` is logged, and resume with `again` workers."""
    process = begin(subject.start(folder, 2), env, folder / "log")
    until = time.monotonic() + PATIENCE
    while max(subject.read(folder).losses, default=0) < at and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    end(process)
    process = begin(subject.start(folder, again), env, folder / "log")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=PATIENCE)
    end(process)
    return subject.read(folder)


def compare(subject: Subject, spare: Path, env: dict[str, str], kills: int) -> list[object]:
    """A row of the table: kills after which all losses and the parameters are equal, and the equal steps after them."""
    print(f"{subject.name}: {kills} kills", file=sys.stderr, flush=True)

    def folder(name: str) -> Path:
        path = spare / subject.name.replace(" ", "-") / name
        path.mkdir(parents=True)
        return path

    whole = uninterrupted(subject, folder("uninterrupted"), env)
    twice = "yes" if uninterrupted(subject, folder("again"), env) == whole else "no"
    draw = random.Random(2026)
    plan = [(draw.randrange(SAVE + 1, STEPS - 2), draw.choice(subject.resumed_with)) for _ in range(kills)]

    def one(number: int) -> tuple[bool, int, int]:
        at, again = plan[number]
        found = killed(subject, folder(str(number)), env, at, again)
        after = [step for step in whole.losses if step > at]
        equal = sum(found.losses.get(step) == whole.losses[step] for step in after)
        same = found == whole
        print(f"  {number + 1}: killed at {at}, {'equal' if same else 'NOT equal'}", file=sys.stderr, flush=True)
        return same, equal, len(after)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, range(kills)))
    right = sum(same for same, _, _ in found)
    steps = f"{sum(equal for _, equal, _ in found)} of {sum(after for _, _, after in found)}"
    return [subject.name, twice, f"{right} of {kills}", steps]


def subjects(project: Path) -> tuple[Subject, Subject, list[Subject]]:
    """The project in one process, the project in two, and the libraries."""
    from loops import LIBRARIES

    def ours(launcher: list[str]) -> Callable[[Path, int], list[str]]:
        def start(folder: Path, workers: int) -> list[str]:
            options = {"name": "run", "max-steps": STEPS, "save-steps": SAVE, "log-steps": 1, "batch-size": BATCH}
            options |= {"workers": workers, "output-dir": folder}
            flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
            return [*launcher, "-m", f"{project.name}.train", *flags]

        return start

    def library(name: str) -> Callable[[Path, int], list[str]]:
        loops = str(Path(__file__).with_name("loops.py"))

        def start(folder: Path, workers: int) -> list[str]:
            options = {"package": project.name, "steps": STEPS, "save": SAVE, "workers": workers}
            flags = [word for key, value in options.items() for word in (f"--{key}", str(value))]
            return [sys.executable, loops, name, str(folder), *flags]

        return start

    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return (
        Subject("a generated project", ours([sys.executable]), read_project, (0, 1, 3, 4)),
        Subject("a generated project, 2 gloo processes", ours(two), read_project, (0, 1, 3)),
        [Subject(name, library(name), read_library, (2,)) for name in LIBRARIES],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kills", type=int, default=100, help="kills of the project (100); with 0, only the others are measured"
    )
    parser.add_argument("--kills-of-two", type=int, default=20, help="kills of the project in two processes (20)")
    parser.add_argument("--kills-of-others", type=int, default=10, help="kills of each library (10)")
    given = parser.parse_args()
    load = machine()["load"]
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        spare = Path(name)
        project = generate(
            clone(spare / "template"), spare / "bench", hardware="cpu", workflow="scripts", package_name="bench"
        )
        path = os.pathsep.join([str(project / "src"), str(ROOT / "gpukit/src")])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        one, two, others = subjects(project)
        rows = []
        for subject, kills in (
            (one, given.kills),
            (two, given.kills_of_two),
            *((o, given.kills_of_others) for o in others),
        ):
            if kills:
                rows.append(compare(subject, spare, env, kills))
                report(rows, load, {one.name: given.kills, two.name: given.kills_of_two})


def report(rows: list[list[object]], load: float, wanted: dict[str, int]) -> None:
    """Write the results so far: a complete run takes an hour, so an interrupted one should leave a result."""
    right = {row[0]: int(str(row[2]).split()[0]) for row in rows}
    one, two = ({"value": right.get(name), "unit": "kills", "at_least": kills} for name, kills in wanted.items())
    alone = not one["at_least"]  # --kills 0: the others, in a separate file
    write(
        "resume_others" if alone else "resume",
        load,
        engine=False,
        packages=("torch", "numpy", "torchdata", "accelerate", "transformers", "lightning"),
        title="Resuming after kill -9" + (": two processes, and other libraries" if alone else ""),
        table={
            "columns": [
                "training loop",
                "two uninterrupted runs are equal",
                "kills with a bit-identical result",
                "bit-identical steps after the kill",
            ],
            "rows": rows,
        },
        results=[
            *([] if alone else [{"what": "one process, resumed with another number of workers", **one}]),
            {"what": "two gloo processes", **two},
            *([] if alone else [{"what": "one GPU", "value": None}]),
        ],
        notes=[
            f"{STEPS} steps of {BATCH} samples, a checkpoint every {SAVE} steps, killed at a random step after the "
            "first checkpoint. Dropout in the model, augmentation in 2 workers.",
            "The project was resumed with 0, 1, 3, or 4 workers, the libraries again with 2. Each library saves and "
            "resumes as shown in its documentation; additional code of your own can do better.",
        ],
    )


if __name__ == "__main__":
    main()
