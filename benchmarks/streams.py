"""Kill a run over a stream, resume it, and compare every batch and random number: python benchmarks/streams.py

Streams of every kind (tests/train/stream_kinds.py): Hugging Face with and without a shuffle buffer, webdataset, data
sets with and without state; their samples draw random numbers. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing.connection
import os
import random
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapters import POLLING
from measure import ROOT, machine, write

PATIENCE = 120  # seconds for one run
PROCESSES = multiprocessing.get_context("forkserver")
sys.path[:0] = [str(ROOT), str(ROOT / "gpukit/src")]


def run(kind: str, workers: int, folder: Path, kill_after: int | None = None) -> int | None:
    """The exit code of a run, which starts or resumes in the folder."""
    from tests.train import stream_kinds

    folder.mkdir(exist_ok=True)
    process = PROCESSES.Process(target=stream_kinds.run, args=(kind, workers, folder, kill_after))
    with POLLING:
        process.start()
    multiprocessing.connection.wait([process.sentinel], PATIENCE)
    with POLLING:
        if process.exitcode is None:
            process.kill()
        return process.exitcode


def compare(kind: str, workers: int, spare: Path, kills: int) -> list[object]:
    """A row of the table. Every run is killed twice."""
    from tests.train.stream_kinds import read

    run(kind, workers, spare / "whole")
    run(kind, workers, spare / "again")
    whole, twice = read(spare / "whole")[0], read(spare / "again")[0]
    draw = random.Random(f"{kind} {workers}")
    plan = [[draw.randrange(4, len(whole) * 3 // 4), draw.randrange(4, len(whole) // 4)] for _ in range(kills // 2)]

    def one(number: int) -> int:
        folder = spare / str(number)
        codes = [run(kind, workers, folder, after) for after in [*plan[number], None]]
        equal = codes == [-signal.SIGKILL, -signal.SIGKILL, 0] and read(folder) == (whole, True)
        if not equal:
            print(f"  killed after {plan[number]} batches: NOT equal, {codes}", file=sys.stderr, flush=True)
        return 2 * equal

    with ThreadPoolExecutor(2) as pool:
        right = sum(pool.map(one, range(kills // 2)))
    logs = [(spare / str(number) / "log").read_text().splitlines() for number in range(kills // 2)]
    by_state, resumed = (sum(lines.count(word) for lines in logs) for word in ("by state", "resumed"))
    print(f"{kind}, {workers} workers: {right} of {kills}", file=sys.stderr, flush=True)
    return [kind, workers, "yes" if twice == whole else "no", f"{right} of {kills}", f"{by_state} of {resumed}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="kills per kind and number of workers (10)")
    given = parser.parse_args()
    load = machine()["load"]
    os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path[:2]), "OMP_NUM_THREADS": "1", "HF_DATASETS_OFFLINE": "1"}
    libraries = ("datasets", "webdataset", "torchdata")
    for name in libraries:
        importlib.import_module(name)
    PROCESSES.set_forkserver_preload(["tests.train.stream_kinds", *libraries])
    from tests.train.stream_kinds import ALONE, KINDS

    rows = []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as name:
        for kind in {**KINDS, **ALONE}:
            for workers in (0, 2) if kind in KINDS else (0,):
                spare = Path(name) / f"{len(rows)}"
                spare.mkdir()
                rows.append(compare(kind, workers, spare, given.kills))
    write(
        "streams",
        load,
        engine=False,
        packages=("torch", "numpy", *libraries),
        title="Streams: resuming after kill -9",
        table={
            "columns": [
                "stream",
                "workers",
                "two uninterrupted runs are equal",
                "kills with a bit-identical result",
                "passes resumed by state, not read again",
            ],
            "rows": rows,
        },
        results=[
            {
                "what": "all kinds",
                "value": sum(int(str(row[3]).split()[0]) for row in rows),
                "unit": "kills",
                "at_least": given.kills * len(rows),
            }
        ],
        notes=[
            "Two passes over 58 samples in 3 shards of unequal size, a checkpoint every 3 batches, each run killed "
            "twice after a random number of batches and resumed with the same number of workers.",
            "Compared: the contents of every batch, and the numbers that the training loop draws after it. Every "
            "sample draws from the generators of Python, NumPy, and torch.",
        ],
    )


if __name__ == "__main__":
    main()
