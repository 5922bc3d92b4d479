"""The cost of seeding samples and of an order, compared with torch.manual_seed: python benchmarks/seeding.py"""

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

from gpukit.script.loader import Order
from gpukit.train.data import Keyed
from gpukit.train.seeds import mix

LOOPS, ROUNDS = 20, 20  # many short rounds, most of which are not interrupted by other processes
BATCH = 64
LARGE = 100_000_000
GENERATOR = numpy.random.default_rng()
DRAWS: dict[str, Callable[[], object]] = {
    "no random numbers": lambda: None,
    "torch": lambda: torch.rand(()),
    "`random`": random.random,
    "numpy.random": numpy.random.random,
    "a NumPy Generator": GENERATOR.random,
    "torch, `random`, and numpy.random": lambda: (torch.rand(()), random.random(), numpy.random.random()),
}


class Drawing(Dataset):
    """Samples that cost nothing else, so that only the seeding is measured."""

    def __init__(self, draw: Callable[[], object]) -> None:
        self.draw = draw

    def __getitem__(self, index: int) -> object:
        return self.draw()


def seconds(what: Callable[[], object], loops: int) -> float:
    begun = time.process_time()
    for _ in range(loops):
        what()
    return (time.process_time() - begun) / loops


def order() -> float:
    """CPU seconds for the order of an epoch of LARGE samples."""
    return seconds(lambda: Order(LARGE, BATCH, 0).epoch(1), 1)


def main() -> None:
    given = options(__doc__)
    load = machine()["load"]
    torch.set_num_threads(1)
    pairs = [(1, index) for index in range(BATCH)]
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
    for name, draw in DRAWS.items():
        plain, keyed = Drawing(draw), Keyed(Drawing(draw))
        ways[name] = (
            lambda plain=plain: [plain[index] for _, index in pairs],
            lambda keyed=keyed: keyed.__getitems__(pairs),
        )
    plain = Drawing(DRAWS["torch"])

    def by_hand() -> None:
        for key, index in pairs:
            torch.manual_seed(mix(key, index))
            plain[index]

    ways["`torch.manual_seed` for each sample"] = ways["torch"][0], by_hand
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(given.times * ROUNDS + 1):
        for name, (without, seeded) in ways.items():
            cost = seconds(seeded, LOOPS) - seconds(without, LOOPS)
            if number:
                found[name].append(cost)
    medians = {name: statistics.median(values) / BATCH * 1e6 for name, values in found.items()}
    orders = [order() for _ in range(3)]
    write(
        "seeding",
        load,
        engine=False,
        packages=("torch", "numpy"),
        title="Seeding samples",
        repeats=given.times * ROUNDS,
        table={
            "columns": ["samples draw from", f"µs for each, median of {given.times * ROUNDS}"],
            "rows": [[name, round(value, 2)] for name, value in medians.items()],
        },
        results=[
            {
                "what": "seeding torch, random, and NumPy for a sample",
                "value": round(medians["torch, `random`, and numpy.random"], 1),
                "unit": "µs",
                "at_most": 10,
            },
            {"what": "a sample that draws nothing", "value": round(medians["no random numbers"], 2), "unit": "µs"},
            {"what": "an order of 1e8 samples", "value": round(min(orders), 2), "unit": "s", "at_most": 5},
        ],
        notes=[
            f"CPU time of `Keyed` for a sample in a batch of {BATCH}, without workers, minus that of `dataset[index]`.",
            f"The order: minimum of {len(orders)} ({', '.join(f'{one:.2f}' for one in orders)} s).",
        ],
    )


if __name__ == "__main__":
    main()
