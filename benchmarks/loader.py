"""The data loader's tuner compared with a sweep of all settings, for several kinds of data and steps:
python benchmarks/loader.py

The sweep runs each setting `--times` times for `--seconds`, in turn. Because the fastest of many noisy figures looks
faster than it is, the fastest setting and the tuner's setting are then run again in turn, in `--finals` rounds; shares
are relative to the better of the two. Settings that are commonly chosen by habit are also run again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import ROOT, machine, write

sys.path.insert(0, str(ROOT / "gpukit/src"))

import torch
from loader_kinds import KINDS, MEMORY, Kind

from gpukit.train.data import Loading, loader, usable_cpus
from gpukit.train.tuner import tune

Plan = tuple[int, int]
WAITED = 0.002  # seconds; fetching a batch that is ready takes less
STEPS = {"no step": (0.0, None), "GPU step of 10 ms": (0.01, None), "CPU step of 10 ms": (0.01, "cpu")}


def plans() -> list[Plan]:
    """The settings of the sweep: up to twice the CPUs, at least 8 workers, prefetching 2 to 8 batches each."""
    workers = sorted({*range(1, 2 * usable_cpus() + 1), 8})
    return [(0, 2), *((count, prefetch) for count in workers for prefetch in (2, 4, 8))]


def simulated_step(seconds: float, device: str | None) -> Callable[[], None]:
    """A step: sleep, as the training process does while a GPU works, or compute on the CPU for as long."""
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


def rate(made: Kind, dataset: Any, plan: Plan, step: Callable[[], None], seconds: float, computes: bool) -> float:
    """Samples per second of loader and step, without the batches that were prefetched while workers started.

    Measuring starts once a batch was not ready, or after as many batches as can be prefetched. If the step `computes`,
    it always starts after that many, because workers compete with it for CPUs until their prefetched batches are ready.
    """
    _, size, collate = made
    batches = iter(loader(dataset, size, 0, loading=Loading(*plan), collate=collate))
    for number in range(max(1, plan[0] * plan[1])):
        started = time.perf_counter()
        next(batches)
        waited = time.perf_counter() - started > WAITED
        step()
        if waited and number + 1 >= plan[0] and not computes:
            break
    number, started = 0, time.perf_counter()
    while number < 3 or number % max(1, plan[0]) or time.perf_counter() - started < seconds:
        next(batches)
        step()
        number += 1
    passed = time.perf_counter() - started
    del batches
    return number * size / passed


def rounds(these: list[Plan], times: int, one: Callable[[Plan], float]) -> dict[Plan, float]:
    """The median rate of each setting; every round runs all of them."""
    rates: dict[Plan, list[float]] = {plan: [] for plan in these}
    for _ in range(times):
        for plan in these:
            rates[plan].append(one(plan))
    return {plan: statistics.median(found) for plan, found in rates.items()}


def case(name: str, what: str, dataset: Any, given: argparse.Namespace) -> dict[str, Any]:
    seconds, device = STEPS[what]
    made, step = KINDS[name], simulated_step(seconds, device)
    _, size, collate = made

    def one(plan: Plan) -> float:
        return rate(made, dataset, plan, step, given.seconds, device is not None)

    started = time.perf_counter()
    swept = rounds(plans(), given.times, one)
    sweeping = (time.perf_counter() - started) / given.times
    best = max(swept, key=swept.__getitem__)
    tuned = tune(dataset, size, collate=collate, step_seconds=seconds, device=device)
    chosen = (tuned.loading.workers, tuned.loading.prefetch)
    habits = {"default": (0, 2), "CPUs": (usable_cpus(), 2), "four": (4, 2)}
    final = rounds(list(dict.fromkeys([best, chosen])), given.finals if best != chosen else given.times, one)
    final |= rounds([plan for plan in dict.fromkeys(habits.values()) if plan not in final], given.times, one)
    top = max(final[best], final[chosen])
    return {
        "kind": name,
        "step": what,
        "best": best,
        "chosen": chosen,
        "share": round(final[chosen] / top, 3),
        "habits": {habit: round(final[plan] / top, 3) for habit, plan in habits.items()},
        "tuning": round(tuned.seconds, 2),
        "sweeping": round(sweeping, 1),
        "reason": tuned.reason,
        "swept": [[*plan, round(found, 1)] for plan, found in swept.items()],
    }


def row(one: dict[str, Any]) -> list[Any]:
    settings = ["{} x {}".format(*one[key]) if one[key][0] else "0" for key in ("best", "chosen")]
    shares = [f"{share:.0%}" for share in (one["share"], *one["habits"].values())]
    return [one["kind"], one["step"], *settings, *shares, f"{one['tuning']:.1f} s", f"{one['sweeping']:.0f} s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="rounds (3)")
    parser.add_argument("--finals", type=int, default=9, help="rounds of the second run (9)")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per setting in each round (0.5)")
    parser.add_argument("--kinds", default="", help="only those whose name contains this")
    parser.add_argument("--steps", default="", help="only those whose name contains this")
    parser.add_argument("--dry", action="store_true", help="write no result")
    given = parser.parse_args()
    load, cases = machine()["load"], []
    with tempfile.TemporaryDirectory(prefix="benchmark-") as spare:
        for name in (name for name in KINDS if given.kinds in name):
            dataset = KINDS[name][0](Path(spare))
            for what in (what for what in STEPS if given.steps in what):
                cases.append(case(name, what, dataset, given))
                print(*row(cases[-1]), sep=" | ", file=sys.stderr, flush=True)
    if given.dry:
        return
    good = [one["share"] >= 0.97 for one in cases]
    costs = [one["tuning"] / one["sweeping"] for one in cases]
    total = sum(one["tuning"] for one in cases) / sum(one["sweeping"] for one in cases)
    workers = max(one["chosen"][0] for one in cases if one["kind"] == MEMORY)
    share = f"cases, of {len(cases)}, in which the tuned setting reaches 97 % of the best speed"
    write(
        "loader",
        load,
        engine=False,
        packages=("torch", "numpy", "pillow"),
        title="Tuning the data loader",
        repeats=given.times,
        table={
            "columns": [
                *("data", "step", "best", "tuned", "tuned / best", "0 workers", "1 per CPU", "4 workers"),
                *("tuning time", "sweep time"),
            ],
            "rows": [row(one) for one in cases],
        },
        cases=cases,
        results=[
            {"what": share, "value": round(100 * statistics.fmean(good), 1), "unit": "%", "at_least": 90},
            {"what": "tuning time / time of one sweep", "value": round(total, 3), "at_most": 0.1},
            {"what": "the same, worst case", "value": round(max(costs), 3), "at_most": 0.1},
            {"what": "workers for tensors in memory", "value": workers, "at_most": 0},
        ],
        notes=[
            "A setting is the number of workers x batches prefetched per worker. Percentages are speeds relative to "
            "the best setting of the sweep. `0 workers` is DataLoader's default; `1 per CPU` and `4 workers` (with 2 "
            "batches prefetched) are common choices.",
            "GPU steps are simulated by sleeping, CPU steps by multiplying matrices on all CPUs.",
            "Mean speed relative to the best: "
            + ", ".join(
                f"{label} {statistics.fmean(values):.0%}"
                for label, values in {
                    "tuner": [one["share"] for one in cases],
                    "0 workers": [one["habits"]["default"] for one in cases],
                    "1 worker per CPU": [one["habits"]["CPUs"] for one in cases],
                    "4 workers": [one["habits"]["four"] for one in cases],
                }.items()
            )
            + ".",
        ],
    )


if __name__ == "__main__":
    main()
