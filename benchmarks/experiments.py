"""A queue whose results can be trusted, in large numbers: uv run python benchmarks/experiments.py

`submit` in a repository of 10,000 files with 1 GB of ignored data; `jobs compare` with 1,000 jobs, of which 10 are
damaged or without metrics, after their metrics were read once, as the worker does at the end of a job; kill -9 of
`submit` and of the worker, --rounds times; and the time until a job's first line, with its code frozen and with
--latest. Jobs are plain processes, as in tests/jobs.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

from harness import Benchmark, children, commit, in_turn, run

from gpukit.host import frozen, queue
from gpukit.jobs.table import Table
from tests.jobs import small

FILES = 10_000
IGNORED = 1 << 30
JOBS = 1000
DAMAGED = 10
STEPS = 500  # lines of each metrics.jsonl


def repository(folder: Path) -> Path:
    folder.mkdir()
    small.project(folder)
    (folder / ".gitignore").write_text("/outputs/\n/data/\n/.launch/\n", encoding="utf-8")
    (folder / "src").mkdir()
    (folder / "src/code.py").write_text("print(0)\n", encoding="utf-8")
    commit(folder)
    run("git", "config", "gc.auto", "0", cwd=folder)  # in the background, it would remove files that are counted
    return folder


def launch(folder: Path, *words: str) -> str:
    return run(sys.executable, "-m", "gpukit", *words, cwd=folder, env=small.environment(folder))


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def submissions(folder: Path, rounds: int) -> tuple[list[float], float]:
    """CPU time of `submit`, each after an edit; and the bytes that one adds to .git and .launch."""
    for number in range(FILES):
        path = folder / f"src/part{number % 100}/module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 20, encoding="utf-8")
    commit(folder)
    (folder / "data").mkdir(exist_ok=True)
    with (folder / "data/ignored.bin").open("wb") as file:
        for _ in range(IGNORED >> 20):
            file.write(os.urandom(1 << 20))
    seconds = []
    launch(folder, "submit", "--", "true")
    before = size(folder / ".git") + size(folder / ".launch")
    for number in range(rounds):
        (folder / "src/part0/module0.py").write_text(f"value = {number}\n", encoding="utf-8")
        begun = children()
        launch(folder, "submit", "--", "true")
        seconds.append(children() - begun)
    return seconds, (size(folder / ".git") + size(folder / ".launch") - before) / rounds


def ledger(folder: Path, rounds: int) -> tuple[float, list[float], int]:
    """CPU time of the first `compare`, which reads all metrics; of later ones; and how many damaged jobs it names."""
    place = queue.folder(folder)
    codes = []
    for number in range(20):
        (folder / "src/code.py").write_text(f"print({number})\n", encoding="utf-8")
        codes.append(frozen.freeze(folder))
    with Table(place) as table:
        for number in range(1, JOBS + 1):
            command = ["python", "-m", "small.train", "--name=job-{job}", f"--lr={number}"]
            table.submit(command, code=codes[number % 20])
    with Table(place) as table, table.change() as base:
        base.execute("UPDATE jobs SET starts = 1, state = 'finished', ended = submitted + 60, ran = 60")
    for number in range(1, JOBS + 1):
        run_folder = folder / f"outputs/job-{number}"
        run_folder.mkdir(parents=True)
        rows = [
            {"step": step, "loss": 1 / step, "held_out_loss": 2 / step, "memory_gb": 1.0} for step in range(1, STEPS)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        if number <= DAMAGED // 2:
            lines = "\0damaged\n"
        if not DAMAGED // 2 < number <= DAMAGED:
            (run_folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
        (run_folder / "run.json").write_text(json.dumps({"settings": {"seed": 0}, "starts": [{}]}), encoding="utf-8")
    seconds = []
    for _ in range(rounds + 1):
        begun = children()
        output = launch(folder, "jobs", "compare")
        seconds.append(children() - begun)
    return seconds[0], seconds[1:], output.count("is damaged") + output.count("no metrics")


def first_lines(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds from `submit` to the first line of a job, by a worker that waits for it."""
    place = queue.folder(folder)
    one = small.worker(folder)

    def started(*options: str) -> None:
        number = int(launch(folder, "submit", *options, "--", "echo", "line").splitlines()[0])
        log = place / f"{number}.log"
        while not log.exists() or not log.stat().st_size:
            time.sleep(0.005)

    seconds = in_turn({"frozen": started, "--latest": lambda: started("--latest")}, rounds)
    seconds["added"] = []
    for number in range(rounds):
        (folder / "src/code.py").write_text(f"print({number})\n", encoding="utf-8")
        begun = children() + time.process_time()
        frozen.check_out(folder, frozen.freeze(folder), place / f"run-{number}")
        seconds["added"].append(children() + time.process_time() - begun)
    one.terminate()
    one.wait()
    return seconds


def main() -> None:
    with Benchmark("Experiments overnight", __doc__, rounds=50) as bench:
        few = min(bench.rounds, 7)
        seconds, added = submissions(repository(bench.spare / "large"), few)
        bench.figure("`submit`, 10,000 files and 1 GB of ignored data, CPU time", seconds)
        first, compared, named = ledger(repository(bench.spare / "ledger"), few)
        bench.figure("`jobs compare`, 1,000 jobs, CPU time", compared)
        lines = first_lines(repository(bench.spare / "lines"), few)
        for name in ("frozen", "--latest"):
            bench.figure(f"from `submit` to the first line, {name}", lines[name])
        bench.result("`submit`, CPU time, median", statistics.median(seconds), "s", at_most=0.5)
        bench.result("added to the disk by a submission", added / 1e6, "MB", at_most=2)
        bench.result("`jobs compare` of jobs that no worker has read, CPU time", first, "s")
        bench.result("`jobs compare`, CPU time, median", statistics.median(compared), "s", at_most=1)
        bench.result("damaged jobs that it does not name", DAMAGED - named, at_most=0)
        added = statistics.median(lines["added"])
        bench.result("freezing and checking out before the first line, CPU time, median", added, "s", at_most=0.3)
        for what, count in small.kills(repository(bench.spare / "kills"), bench.rounds).items():
            bench.result(what, count, at_most=0)
        bench.notes = [
            f"{bench.rounds} kills of `submit`, each after an edit, and as many of the worker, at random moments.",
            "CPU time, with git's, because the machine had other work, as its load shows; the times until the first "
            "line are by the clock. Jobs are processes without a container.",
        ]


if __name__ == "__main__":
    main()
