"""The loader's tuner beside a sweep of all settings, over kinds of data and steps: python benchmarks/loader.py

Each setting is run `--times` times for `--seconds`, one after the other in every round. The fastest by median and the
tuner's are then run once more in turn, in `--finals` rounds, since the fastest of many noisy figures looks faster than
it is; shares are of the better of the two in that second run. What people set by habit is run again beside them.
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
WAITED = 0.002  # seconds that taking a batch which is there never takes
STEPS = {"no step": (0.0, None), "a GPU's step of 10 ms": (0.01, None), "a CPU's step of 10 ms": (0.01, "cpu")}


def plans() -> list[Plan]:
    """What an exhaustive sweep tries: up to twice the CPUs, at least 8 workers, and 2 to 8 batches ahead for each."""
    workers = sorted({*range(1, 2 * usable_cpus() + 1), 8})
    return [(0, 2), *((count, prefetch) for count in workers for prefetch in (2, 4, 8))]


def pretended(seconds: float, device: str | None) -> Callable[[], None]:
    """A step: sleep, as the training process does while a GPU works, or an amount of work that takes as long alone."""
    if device is None:
        return lambda: time.sleep(seconds) if seconds else None
    matrix, number, begun = torch.ones(192, 192), 0, time.perf_counter()
    while time.perf_counter() - begun < 0.5:
        matrix @ matrix
        number += 1
    number = round(number * seconds / 0.5)

    def step() -> None:
        for _ in range(number):
            matrix @ matrix

    return step


def rate(made: Kind, dataset: Any, plan: Plan, step: Callable[[], None], seconds: float, computes: bool) -> float:
    """Samples per second that get through loader and step, once all that was made while workers started is taken.

    That is when one had to be waited for, or after as many as may be ahead; with a step that `computes` only after as
    many: until batches lie ready workers take its CPUs, and that passes.
    """
    _, size, collate = made
    batches = iter(loader(dataset, size, 0, loading=Loading(*plan), collate=collate))
    for number in range(max(1, plan[0] * plan[1])):
        begun = time.perf_counter()
        next(batches)
        waited = time.perf_counter() - begun > WAITED
        step()
        if waited and number + 1 >= plan[0] and not computes:
            break
    number, begun = 0, time.perf_counter()
    while number < 3 or number % max(1, plan[0]) or time.perf_counter() - begun < seconds:
        next(batches)
        step()
        number += 1
    passed = time.perf_counter() - begun
    del batches
    return number * size / passed


def rounds(these: list[Plan], times: int, one: Callable[[Plan], float]) -> dict[Plan, float]:
    """Medians; every round runs all of them."""
    rates: dict[Plan, list[float]] = {plan: [] for plan in these}
    for _ in range(times):
        for plan in these:
            rates[plan].append(one(plan))
    return {plan: statistics.median(found) for plan, found in rates.items()}


def case(name: str, what: str, dataset: Any, given: argparse.Namespace) -> dict[str, Any]:
    seconds, device = STEPS[what]
    made, step = KINDS[name], pretended(seconds, device)
    _, size, collate = made

    def one(plan: Plan) -> float:
        return rate(made, dataset, plan, step, given.seconds, device is not None)

    begun = time.perf_counter()
    swept = rounds(plans(), given.times, one)
    sweeping = (time.perf_counter() - begun) / given.times
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
    parser.add_argument("--seconds", type=float, default=0.5, help="for which each setting is run in a round (0.5)")
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
    share = f"cases in which the tuner's setting has 97 % of the best one's speed, of {len(cases)}"
    write(
        "loader",
        load,
        engine=False,
        packages=("torch", "numpy", "pillow"),
        title="Tuning the data loader",
        repeats=given.times,
        table={
            "columns": ["data", "step", "best", "tuned", "share", "0 workers", "as CPUs", "4", "tuning", "sweep"],
            "rows": [row(one) for one in cases],
        },
        cases=cases,
        results=[
            {"what": share, "value": round(100 * statistics.fmean(good), 1), "unit": "%", "at_least": 90},
            {"what": "time of the tuner / one round of the sweep", "value": round(total, 3), "at_most": 0.1},
            {"what": "the same, in the worst case", "value": round(max(costs), 3), "at_most": 0.1},
            {"what": "workers for tensors in memory", "value": workers, "at_most": 0},
        ],
        notes=[
            "Settings are workers x batches ahead for each. Shares are of the speed of the best setting of the sweep; "
            "`0 workers` is DataLoader's default, `as CPUs` and `4` (with 2 batches ahead) are common habits.",
            "A GPU's step is pretended by sleeping, a CPU's by multiplying matrices with all CPUs.",
            "Mean share of the best: "
            + ", ".join(
                f"{label} {statistics.fmean(values):.0%}"
                for label, values in {
                    "tuner": [one["share"] for one in cases],
                    "0 workers": [one["habits"]["default"] for one in cases],
                    "as many as CPUs": [one["habits"]["CPUs"] for one in cases],
                    "4 workers": [one["habits"]["four"] for one in cases],
                }.items()
            )
            + ".",
        ],
    )


if __name__ == "__main__":
    main()
