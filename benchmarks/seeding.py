"""The cost of seeding a sample, compared with torch.manual_seed: python benchmarks/seeding.py"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable

from measure import ROOT, machine, options, write

sys.path.insert(0, str(ROOT / "gpukit/src"))

import numpy
import torch
from torch.utils.data import Dataset

from gpukit.train.data import Seeded, mix

LOOPS, ROUNDS = 200, 20  # many short rounds, most of which are not interrupted by other processes
BATCH = 64


class Nothing(Dataset):
    """Samples that cost nothing, so that only the seeding is measured."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> int:
        return index


def seconds(what: Callable[[int], object], loops: int) -> float:
    begun = time.perf_counter()
    for index in range(loops):
        what(index)
    return (time.perf_counter() - begun) / loops


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    plain = Nothing()
    seeded, batches = Seeded(plain, seed=0), Seeded(plain, seed=0)
    keys = [(1, index) for index in range(BATCH)]
    batches.__getitems__(keys)

    def by_hand(index: int) -> int:
        torch.manual_seed(mix(0, 1, index))
        return plain[index]

    def all_by_hand(index: int) -> int:
        torch.manual_seed(mix(0, 1, index))
        random.seed(index)
        numpy.random.seed(index)
        return plain[index]

    ways = {
        "nothing": (lambda index: plain[index], LOOPS),
        "`Seeded`: torch, random, and NumPy": (lambda index: seeded[1, index], LOOPS),
        "`torch.manual_seed`": (by_hand, LOOPS),
        "`torch.manual_seed`, `random.seed`, `numpy.random.seed`": (all_by_hand, LOOPS),
        "a batch, nothing seeded": (lambda index: [plain[index] for _, index in keys], LOOPS // 10),
        "Seeded: a batch whose samples use no random numbers": (lambda index: batches.__getitems__(keys), LOOPS // 10),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(given.times * ROUNDS + 1):
        for name, (what, loops) in ways.items():
            if number:
                found[name].append(seconds(what, loops))
            else:
                what(0)
    medians = {name: statistics.median(values) * 1e6 for name, values in found.items()}
    cost = {name: medians[name] - medians["nothing"] for name in ways if "batch" not in name and name != "nothing"}
    quiet = medians["Seeded: a batch whose samples use no random numbers"] - medians["a batch, nothing seeded"]
    ours, torchs, hand = cost.values()
    write(
        "seeding",
        load,
        engine=False,
        packages=("torch", "numpy"),
        title="Seeding samples",
        repeats=given.times * ROUNDS,
        table={
            "columns": ["method", f"µs, median of {given.times * ROUNDS}"],
            "rows": [[name, round(value, 1)] for name, value in cost.items()]
            + [[f"`Seeded`, in a batch of {BATCH} whose samples use no random numbers", round(quiet / BATCH, 2)]],
        },
        results=[
            {
                "what": "seeding torch, random, and NumPy for a sample",
                "value": round(ours, 1),
                "unit": "µs",
                "at_most": 10,
            },
            {"what": "`torch.manual_seed` / `Seeded`", "value": round(torchs / ours, 1), "unit": "times"},
            {"what": "all three functions / `Seeded`", "value": round(hand / ours, 1), "unit": "times"},
        ],
        notes=[f"Time per sample, minus the time of an empty `dataset[index]`; {LOOPS} samples in each round."],
    )


if __name__ == "__main__":
    main()
