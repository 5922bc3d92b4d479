"""The number of workers that training chooses, compared with a sweep, for several kinds of data and steps:
python benchmarks/loader.py

Every round measures each number of workers for `--seconds`; the minimum of `--times` rounds counts, because other load
on the machine only makes loading slower. The choice is made as in training, by Feed, while it delivers batches to
simulated steps: three times on the idle machine, and three times beside two busy processes.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import ROOT, machine, write

sys.path.insert(0, str(ROOT / "gpukit/src"))

import torch
from loader_kinds import KINDS, MEMORY, Kind

from gpukit.host.limits import usable_cpus
from gpukit.script.loader import Loading, loader
from gpukit.script.tuner import Feed
from gpukit.train.workers import close

COUNTS = (0, 1, 2, 3, 4, 8)
STEPS = {"no step": (0.0, None), "GPU step of 10 ms": (0.01, None), "CPU step of 10 ms": (0.01, "cpu")}


def simulated_step(seconds: float, device: str | None) -> Callable[[], None]:
    """A step: sleep, as the training process does while a GPU works, or compute on one CPU for as long."""
    if device is None:
        return lambda: time.sleep(seconds) if seconds else None
    matrix, number, started = torch.ones(192, 192), 0, time.perf_counter()
    while time.perf_counter() - started < 0.5:
        matrix @ matrix
        number += 1
    number = round(number * seconds / 0.5)

    def step() -> None:
        for _ in range(number):
            matrix @ matrix

    return step


def period(made: Kind, dataset: Any, loading: Loading, step: Callable[[], None], seconds: float) -> float:
    """Seconds per batch of loader and step, without the batches that were prefetched while workers started."""
    _, size, collate = made
    batches = iter(loader(dataset, size, 0, loading=loading, collate=collate))
    for _ in range(max(2, loading.workers * loading.prefetch)):
        next(batches)
        step()
    number, started = 0, time.perf_counter()
    while number < 3 or number % max(1, loading.workers) or time.perf_counter() - started < seconds:
        next(batches)
        step()
        number += 1
    passed = time.perf_counter() - started
    close(batches)
    return passed / number


def choice(made: Kind, dataset: Any, step: Callable[[], None]) -> tuple[Loading, float]:
    """The settings that training uses after its first steps, and the seconds until then."""
    _, size, collate = made
    feed, started = Feed(dataset, size, 0, collate=collate, say=lambda text: None), time.perf_counter()
    batches = iter(feed)
    while not feed.tuned:
        next(batches)
        step()
    passed = time.perf_counter() - started
    batches.close()
    return feed.loading, passed


@contextmanager
def busy(number: int = 2) -> Iterator[None]:
    """Other programs that compute."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def case(name: str, what: str, dataset: Any, given: argparse.Namespace) -> dict[str, Any]:
    seconds, device = STEPS[what]
    made, step = KINDS[name], simulated_step(seconds, device)
    chosen, tuning = zip(*(choice(made, dataset, step) for _ in range(3)), strict=True)
    with busy():
        loaded = [choice(made, dataset, step)[0].workers for _ in range(3)]
    found: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(given.times):
        for count in COUNTS:
            found[count].append(period(made, dataset, Loading(count, prefetch=4), step, given.seconds))
    periods = {count: min(each) for count, each in found.items()}
    best = min(periods, key=periods.__getitem__)
    workers = [each.workers for each in chosen]
    return {
        "kind": name,
        "step": what,
        "best": best,
        "chosen": workers,
        "loaded": loaded,
        "share": round(min(periods[best] / periods[each] for each in workers), 3),
        "habits": {label: round(periods[best] / periods[count], 3) for label, count in habits().items()},
        "tuning": round(max(tuning), 2),
        "reason": chosen[0].reason,
        "swept": {count: round(1e3 * each, 2) for count, each in periods.items()},
        "spread": round(statistics.median(max(each) / min(each) for each in found.values()), 2),
    }


def habits() -> dict[str, int]:
    """Numbers of workers that are commonly used."""
    return {"0 workers": 0, "1 worker per CPU": min(usable_cpus(), 8), "4 workers": 4}


def row(one: dict[str, Any]) -> list[Any]:
    runs = [", ".join(map(str, dict.fromkeys(one[key]))) for key in ("chosen", "loaded")]
    shares = [f"{share:.0%}" for share in (one["share"], *one["habits"].values())]
    return [one["kind"], one["step"], one["best"], *runs, *shares, f"{one['tuning']:.1f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="rounds (3)")
    parser.add_argument("--seconds", type=float, default=0.2, help="seconds per setting in each round (0.2)")
    parser.add_argument("--kinds", default="", help="only those whose name contains this")
    parser.add_argument("--steps", default="", help="only those whose name contains this")
    parser.add_argument("--dry", action="store_true", help="write no result (needed with --kinds)")
    given = parser.parse_args()
    load, cases = machine()["load"], []
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        for name in (name for name in KINDS if given.kinds in name):
            dataset = KINDS[name][0](Path(spare))
            for what in (what for what in STEPS if given.steps in what):
                cases.append(case(name, what, dataset, given))
                print(*row(cases[-1]), sep=" | ", file=sys.stderr, flush=True)
    if given.dry:
        return
    write(
        "loader",
        load,
        engine=False,
        packages=("torch", "numpy", "pillow"),
        title="Tuning the data loader",
        repeats=given.times,
        table={
            "columns": [
                *("data", "step", "best", "chosen", "chosen under load", "chosen / best"),
                *("0 workers", "1 per CPU", "4 workers", "time until chosen"),
            ],
            "rows": [row(one) for one in cases],
        },
        cases=cases,
        results=[
            {
                "what": f"cases, of {len(cases)}, in which the chosen number reaches 90 % of the best speed",
                "value": round(100 * statistics.fmean(one["share"] >= 0.9 for one in cases), 1),
                "unit": "%",
                "at_least": 90,
            },
            {
                "what": f"cases, of {len(cases)}, in which three runs choose the same number",
                "value": round(100 * statistics.fmean(len(set(one["chosen"])) == 1 for one in cases), 1),
                "unit": "%",
                "at_least": 90,
            },
            {
                "what": "workers for tensors in memory, also under load",
                "value": max(max(one["chosen"] + one["loaded"]) for one in cases if one["kind"] == MEMORY),
                "at_most": 0,
            },
        ],
        notes=[
            "Numbers of workers, with 4 batches prefetched by each. Percentages are speeds relative to the best number "
            "of the sweep (minimum of all rounds); `chosen` is the slowest of three choices. `0 workers` is "
            "DataLoader's default; `1 per CPU` and `4 workers` are common choices. The load is two busy processes.",
            "GPU steps are simulated by sleeping, CPU steps by multiplying matrices in one thread: with "
            "more, a step beside other programs can take 10 times as long. Training continues until the number is "
            "chosen, with one worker.",
            "Mean speed relative to the best: "
            + ", ".join(
                f"{label} {statistics.fmean(values):.0%}"
                for label, values in {
                    "chosen": [one["share"] for one in cases],
                    **{label: [one["habits"][label] for one in cases] for label in habits()},
                }.items()
            )
            + f". Spread of the rounds (maximum / minimum), median: "
            f"{statistics.median(one['spread'] for one in cases):.2f}.",
        ],
    )


if __name__ == "__main__":
    main()
