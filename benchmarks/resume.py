"""kill -9 at a random time, resume, and compare every number bit by bit: python benchmarks/resume.py --what project

The worst case of each is first. --rounds is the number of kills of each row.

- project: generated projects, each time resumed with another number of workers: minimal (dropout, augmentation in
  workers) in two gloo processes with bf16 and in one, vision (BatchNorm, image files), and llm, whose loop is TRL's.
- adapters: the loops of other libraries with exactrun (tests/train/library_loops.py, library_loops_more.py), with 2 and
  0 workers, and with and without accumulation.
- others: the same loops as the libraries' documentation resumes them, and one with torchdata's loader.
- streams: loops over streams of every kind (tests/train/stream_kinds.py), whose samples draw random numbers.

Compared are all logged values, the weights, the optimizer, the scheduler, and the generators; of a project the losses
and the weights; of a stream every batch, and the numbers that the loop draws after it. Requires
benchmarks/requirements.txt.
"""

from __future__ import annotations

import json
import multiprocessing.connection
import os
import random
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import library_loops_more as more
from harness import ROOT, Benchmark, say

from tests.train import library_loops as loops

STEPS = 60  # of the project
TITLES = {
    "project": "Resuming a generated project after kill -9",
    "adapters": "Resuming the loops of other libraries after kill -9",
    "others": "Resuming after kill -9 as other libraries do",
    "streams": "Streams: resuming after kill -9",
}
PRELOADED = {
    "project": ["torch"],
    "adapters": loops.LIBRARIES,
    "others": [*loops.LIBRARIES, "torchdata.stateful_dataloader"],
    "streams": ["tests.train.stream_kinds", "datasets", "webdataset", "torchdata"],
}
PACKAGES = {
    "project": ("torch", "numpy"),
    "adapters": ("torch", "transformers", "trl", "accelerate", "lightning"),
    "others": ("torch", "torchdata", "transformers", "accelerate", "lightning"),
    "streams": ("torch", "numpy", "datasets", "webdataset", "torchdata"),
}


@dataclass(frozen=True)
class Subject:
    """A row: what is run, with how many workers, with which others it is resumed, and how its numbers are read."""

    name: str
    script: loops.Script
    workers: int
    accumulate: int = 1
    again: tuple[int, ...] = ()
    read: Callable[[Path], dict[str, Any]] = loops.read


def train(
    project: Path, launcher: list[str], options: dict[str, Any], folder: Path, workers: int, accumulate: int
) -> None:
    """Become the training of the project."""
    options = {"max-steps": STEPS, "save-steps": 10, "log-steps": 1, "workers": workers} | options
    options |= {"output-dir": folder, "name": "run"}
    flags = [word for key, value in options.items() if value is not None for word in (f"--{key}", str(value))]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = os.pathsep.join([str(project / "src"), os.environ["PYTHONPATH"]])
    os.chdir(project)
    os.execve(sys.executable, [sys.executable, *launcher, f"{project.name}.train", *flags], env)


def of_project(folder: Path) -> dict[str, Any]:
    """The loss of each step, and at the end the digest of the weights."""
    from exactrun import checkpoint, metrics

    run = folder / "run"
    rows = metrics.read(run) if (run / "metrics.jsonl").exists() else []
    found = {str(row["step"]): {"loss": row["loss"].hex()} for row in rows if isinstance(row.get("loss"), float)}
    if str(STEPS) in found:
        manifest = json.loads((checkpoint.newest(run).path / "manifest.json").read_text(encoding="utf-8"))
        found["end"] = {"model": manifest["files"]["model.pt"]["sha256"]}
    return found


def subjects(what: str, bench: Benchmark) -> list[Subject]:
    if what == "adapters":
        found = []
        for name, script in more.BY_GPUKIT.items():
            for workers, accumulate in ((2, 2), (2, 1), (0, 2), (0, 1)):
                found.append(Subject(f"{name}, accumulation {accumulate}", script, workers, accumulate))
        return found
    if what == "others":
        return [Subject(name, script, 2) for name, script in more.ALONE.items()]
    two = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    anyway = [str(ROOT / "tests/train/torchvision_anyway.py")]  # also where torchvision is of another torch
    small = {"model": "test_resnet", "image-size": 32, "batch-size": 16}
    tiny = {"model": "tiny", "data": "tiny", "batch-size": 8, "workers": None}
    found = []
    for name, use_case, launcher, options, again in (
        ("two gloo processes, bf16", "minimal", two, {"dtype": "bf16"}, (0, 1, 3)),
        ("one process", "minimal", ["-m"], {}, (0, 1, 3, 4)),
        ("vision", "vision", anyway, small, (0, 1)),
        ("llm", "llm", anyway, tiny, (0,)),
    ):
        project = bench.project(use_case, hardware="cpu", workflow="scripts", use_case=use_case, package_name=use_case)
        script = partial(train, project, launcher, options)
        found.append(Subject(name, script, 2 if "workers" not in options else 0, again=again, read=of_project))
    return found


def uninterrupted(subject: Subject, folder: Path) -> dict[str, Any]:
    process = loops.started(subject.script, folder, subject.workers, subject.accumulate)
    loops.finished(process, folder)
    return subject.read(folder)


def compare(subject: Subject, kills: int, spare: Path) -> list[Any]:
    """A row of the table. Each run is killed once or twice."""
    spare = spare / f"{subject.name} {subject.workers}".replace(" ", "-").replace(",", "")
    whole = uninterrupted(subject, spare / "whole")
    twice = uninterrupted(subject, spare / "again")
    draw = random.Random(subject.name)
    done = equal = 0
    different: set[str] = set()
    while done < kills:
        folder = spare / f"after-{done}"
        given = (subject.script, folder, subject.workers, subject.accumulate, len(whole) - 1, draw)
        count = loops.killed(*given, again=subject.again, read=subject.read)
        found = subject.read(folder)
        wrong = set()
        for step, values in whole.items():
            wrong |= {part for part, value in values.items() if found.get(step, {}).get(part) != value}
        different |= wrong
        done += count
        equal += 0 if wrong else count
        say(f"{subject.name}, {subject.workers} workers: {done} kills, {sorted(wrong) or 'equal'}")
    same = "yes" if twice == whole else "no"
    return [subject.name, subject.workers, same, f"{equal} of {done}", ", ".join(sorted(different)) or "-"]


def run_stream(kind: str, workers: int, folder: Path, kill_after: int | None = None) -> int | None:
    """The exit code of a run, which starts or resumes in the folder, and kills itself after some batches."""
    from tests.train import stream_kinds

    folder.mkdir(parents=True, exist_ok=True)
    process = loops.PROCESSES.Process(target=stream_kinds.run, args=(kind, workers, folder, kill_after))
    with loops.POLLING:
        process.start()
    multiprocessing.connection.wait([process.sentinel], loops.PATIENCE)
    if loops.exit_code(process) is None:
        process.kill()
    return loops.exit_code(process)


def compare_stream(kind: str, workers: int, kills: int, spare: Path) -> list[Any]:
    """A row of the table. Every run is killed twice."""
    from tests.train.stream_kinds import read

    run_stream(kind, workers, spare / "whole")
    run_stream(kind, workers, spare / "again")
    whole = read(spare / "whole")[0]
    twice = read(spare / "again")[0]
    draw = random.Random(f"{kind} {workers}")
    done = equal = 0
    while done < kills:
        folder = spare / str(done)
        plan = [draw.randrange(4, len(whole) * 3 // 4), draw.randrange(4, len(whole) // 4), None]
        codes = [run_stream(kind, workers, folder, after) for after in plan]
        right = codes == [-signal.SIGKILL, -signal.SIGKILL, 0] and read(folder) == (whole, True)
        done += 2
        equal += 2 if right else 0
        say(f"{kind}, {workers} workers: {done} kills, {'equal' if right else f'NOT equal, {codes}'}")
    same = "yes" if twice == whole else "no"
    return [kind, workers, same, f"{equal} of {done}"]


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
    paths = [ROOT, ROOT / "gpukit/src", ROOT / "exactrun/src", *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, paths))  # for the processes
    with Benchmark("", __doc__, rounds=10, packages=("torch",), what="project") as bench:
        what = bench.given.what
        bench.name = f"resume_{what}"
        bench.title = TITLES[what]
        bench.packages = PACKAGES[what]
        bench.versions()  # fails now if a library is missing
        loops.PROCESSES.set_forkserver_preload(PRELOADED[what])
        bench.columns = ["loop", "workers", "two uninterrupted runs are equal", "kills with a bit-identical result"]
        if what != "streams":
            bench.columns.append("different")
        with ThreadPoolExecutor(2) as pool:
            if what == "streams":
                from tests.train.stream_kinds import ALONE, KINDS

                settings = [(kind, workers) for workers in (2, 0) for kind in KINDS] + [(kind, 0) for kind in ALONE]
                places = [bench.spare / str(number) for number in range(len(settings))]
                jobs = [pool.submit(compare_stream, *one, bench.rounds, place) for one, place in zip(settings, places)]
            else:
                jobs = [pool.submit(compare, one, bench.rounds, bench.spare) for one in subjects(what, bench)]
            bench.rows = [job.result() for job in jobs]
        equal = sum(int(row[3].split()[0]) for row in bench.rows)
        kills = sum(int(row[3].split()[2]) for row in bench.rows)
        goal = None if what == "others" else kills
        bench.result(f"of {kills} kills, those after which all is equal", equal, "kills", at_least=goal)
        bench.notes = ["Each run is killed once or twice at random times, also while it saves."]
        if what == "adapters":
            lines = ", ".join(f"{name} {count}" for name, count in more.LINES.items())
            bench.notes.append(f"Lines for gpukit besides the import: {lines}.")
        if what == "others":
            bench.notes.append("Additional code of your own can do better than the documentation of each library.")


if __name__ == "__main__":
    main()
