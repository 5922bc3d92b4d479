"""The batch finder on memory models, compared with accelerate and Lightning: python benchmarks/finder_models.py

A model defines how much memory a batch uses: proportional, rounded, in steps, with noise, nonlinear, and so on, with
random parameters from a seed. Each finder runs its own code. The true maximum is the largest size that fits in every
step. Requires benchmarks/requirements.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import math
import random
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from measure import ROOT, machine, write

sys.path.insert(0, str(ROOT / "gpukit/src"))

GB, MIB = 1e9, 2**20
HUGE = 2**24  # larger than any model's maximum
Demand = Callable[[np.ndarray], np.ndarray]  # bytes used by batches of these sizes, without noise


@dataclass(frozen=True)
class Model:
    """A model of memory use.

    `draw` returns the noise relative to `demand`, at most `noise`. `each`: noise is drawn for each step, or once for
    all steps of a trial. `spurious`: the share of trials that fail at random.
    """

    kind: str
    name: str
    budget: float
    demand: Demand
    noise: float = 0.0
    draw: Callable[[random.Random], float] = lambda source: 0.0
    each: str = "step"
    ceiling: int = HUGE
    spurious: float = 0.0

    def largest(self, noise: float) -> int:
        """The largest size that fits if every batch uses `noise` more memory, as a share."""
        top = min(self.ceiling, HUGE)
        sizes = np.arange(1, min(top, 4096) + 1, dtype=np.float64)
        while True:
            fits = np.flatnonzero(self.demand(sizes) * (1 + noise) <= self.budget)
            if len(fits) < len(sizes) / 4 or len(sizes) == top:  # memory use never drops that far again
                return int(fits[-1]) + 1 if len(fits) else 0
            sizes = np.arange(1, min(top, 4 * len(sizes)) + 1, dtype=np.float64)


@dataclass
class Simulated:
    """A device with the memory use of a model, as finders see it."""

    model: Model
    seed: int
    trials: int = 0
    processes: int = 0
    source: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.source = random.Random(f"{self.model.name} {self.seed}")

    def run(self, size: int, steps: int = 3) -> int:
        """The peak in bytes; RuntimeError, as raised by PyTorch, if this is too much."""
        model, self.trials = self.model, self.trials + 1
        if size > model.ceiling:
            raise RuntimeError("CUDA error: invalid configuration argument")
        demand = float(model.demand(np.array([float(size)]))[0])
        draws = [model.draw(self.source) for _ in range(steps if model.each == "step" else 1)]
        if demand * (1 + max(draws)) > model.budget or self.source.random() < model.spurious:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return int(demand * (1 + max(draws)))


def up(value: Any, grain: float) -> Any:
    return np.ceil(value / grain) * grain


def kinds() -> Iterator[tuple[str, Callable[[random.Random], dict[str, Any]]]]:
    """Each kind of memory use, and a function that draws the parameters of a model."""

    def line(source: random.Random, least: float, most: float, fixed: float = 0.6) -> tuple[float, float, float, float]:
        """The budget, the fixed part, the bytes per sample, and the number of samples that fit."""
        count = math.exp(source.uniform(math.log(least), math.log(most)))
        budget = source.choice([2, 8, 16, 24, 80, 140]) * GB
        base = source.uniform(0.01, fixed) * budget
        return budget, base, (budget - base) / count, count

    def exact(s: random.Random) -> dict[str, Any]:
        count, base = s.choice([1, 2, 3, 5, 7, 8, 50, 100, 200, 1000, 3000, 5000, 8100, 10000]), s.choice([0, 4 * GB])
        return {"budget": base + count * MIB, "demand": lambda b: base + b * MIB}

    def linear(s: random.Random, least: float = 1, most: float = 2e4) -> dict[str, Any]:
        budget, base, one, _ = line(s, least, most)
        return {"budget": budget, "demand": lambda b: base + one * b}

    def tiny(s: random.Random) -> dict[str, Any]:
        return linear(s, 1, 9)

    def huge(s: random.Random) -> dict[str, Any]:
        return linear(s, 1e5, 5e6)

    def rounded(s: random.Random) -> dict[str, Any]:
        budget, base, one, _ = line(s, 1, 2e4)
        grain = s.choice([512, 2 * MIB, 2 * MIB, 20 * MIB, 64 * MIB])
        return {"budget": budget, "demand": lambda b: up(base + one * b, grain)}

    def tensors(s: random.Random) -> dict[str, Any]:
        budget, base, one, _ = line(s, 1, 2e4)
        parts = [s.random() for _ in range(s.randint(3, 30))]
        shares = [part / sum(parts) for part in parts]
        return {"budget": budget, "demand": lambda b: base + sum(up(one * b * share, 2 * MIB) for share in shares)}

    def padded(s: random.Random) -> dict[str, Any]:
        budget, base, one, _ = line(s, 8, 2e4)
        grain = s.choice([8, 16, 32, 64])
        return {"budget": budget, "demand": lambda b: base + one * up(b, grain)}

    def workspace(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 8, 2e4)
        powers = [2 ** s.randint(1, max(2, int(math.log2(count)))) for _ in range(s.randint(1, 3))]
        places = s.choice([powers, [s.uniform(1, count) for _ in powers]])
        steps = [(place, s.uniform(0.01, 0.2) * budget) for place in places]
        return {"budget": budget, "demand": lambda b: base + one * b + sum(high * (b > at) for at, high in steps)}

    def cliff(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 4, 2e4)
        at, high = s.uniform(0.05, 0.95) * count, s.uniform(0.2, 0.5) * budget
        return {"budget": budget, "demand": lambda b: base + one * b + high * (b > at)}

    def dropping(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 8, 2e4)
        at, high = s.uniform(0.2, 0.9) * count, s.uniform(0.02, 0.15) * budget
        return {"budget": budget, "demand": lambda b: base + one * b + high * (b < at)}

    def doubling(s: random.Random) -> dict[str, Any]:
        budget, base, one, _ = line(s, 4, 2e4)
        power = s.uniform(0.1, 1) * one
        return {"budget": budget, "demand": lambda b: base + (one - power) * b + power * 2 ** np.ceil(np.log2(b))}

    def rough(s: random.Random) -> dict[str, Any]:
        budget, base, one, _ = line(s, 16, 2e4)
        most = s.uniform(0.002, 0.02)
        return {
            "budget": budget,
            "demand": lambda b: base + one * b * (1 + most * np.modf(np.sin(b * 12.9898) * 43758.5453)[0] ** 2),
        }

    def curved(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 4, 2e4)
        power = s.choice([0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 3])
        return {"budget": budget, "demand": lambda b: base + one * count * (b / count) ** power}

    def square(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 4, 2e4)
        bend = s.uniform(0.05, 3) * one / count
        return {"budget": budget, "demand": lambda b: up(base + one * b + bend * b * b, 2 * MIB)}

    def heavy(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 8, 2e4)
        base = s.uniform(0.7, 0.97) * budget
        one = (budget - base) / count
        return {"budget": budget, "demand": lambda b: up(base + one * b, 2 * MIB)}

    def ceiling(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 100, 2e5)
        most = 65535 if count > 65535 else max(2, int(count * s.uniform(0.05, 0.9)))
        return {"budget": budget, "demand": lambda b: up(base + one * b, 2 * MIB), "ceiling": most}

    def noise(s: random.Random) -> dict[str, Any]:
        most = s.choice([0.001, 0.003, 0.01, 0.02])
        draw = s.choice(
            [
                lambda source: source.uniform(-most, most),
                lambda source: source.uniform(0, most),
                lambda source: most * max(-1.0, min(1.0, source.gauss(0, 1 / 3))),
            ]
        )
        return {**rounded(s), "noise": most, "draw": draw, "each": s.choice(["step", "trial"])}

    def mixed(s: random.Random) -> dict[str, Any]:
        given = noise(s)
        budget, base, one, count = line(s, 8, 2e4, fixed=0.4)
        at, high, bend = s.uniform(1, count), s.uniform(0.01, 0.1) * budget, s.uniform(0, 0.3) * one / count
        demand = lambda b: up(base + one * b + bend * b * b + high * (b > at), 2 * MIB)  # noqa: E731
        return {**given, "budget": budget, "demand": demand}

    def spurious(s: random.Random) -> dict[str, Any]:
        return {**rounded(s), "spurious": s.choice([0.01, 0.03])}

    yield "exactly proportional, the maximum fills the memory", exact
    yield "proportional", linear
    yield "proportional, at most 8 samples", tiny
    yield "proportional, over 100,000 samples", huge
    yield "rounded up", rounded
    yield "many tensors, each rounded up", tensors
    yield "batch padded to a multiple of 8 to 64", padded
    yield "batch partly padded to a power of 2", doubling
    yield "workspaces above some size", workspace
    yield "a large workspace above some size", cliff
    yield "a workspace below some size", dropping
    yield "fragmentation that varies with the size", rough
    yield "a power of the batch size", curved
    yield "an additional quadratic term", square
    yield "70 to 97 % used without a batch", heavy
    yield "kernels with a maximum size", ceiling
    yield "noise up to 2 %", noise
    yield "noise, a workspace, and a quadratic term", mixed
    yield "1 to 3 % of trials fail at random", spurious


def models(of_each: int, seed: int) -> list[Model]:
    """`of_each` models of each kind, in each of which at least one sample fits."""
    source, made = random.Random(seed), []
    for kind, draw in kinds():
        count = 0
        while count < of_each:
            model = Model(kind, f"{kind} {count}", **draw(source))
            if model.largest(model.noise) >= 1:
                made.append(model)
                count += 1
    return made


def ours(device: Simulated) -> int:
    from gpukit.script.finder import Outcome, Search

    search = Search(int(device.model.budget), 2**40)
    while size := search.size():
        fresh = True
        while size:
            try:
                one = Outcome(size, device.run(size, 5), fresh=fresh)
            except RuntimeError as error:
                one = Outcome(size, None, str(error), memory="memory" in str(error), fresh=fresh)
            search.tried.append(one)
            size, fresh = search.next(), False
    device.processes = len(search.began)
    return search.best


def of_accelerate(start: int) -> Callable[[Simulated], int]:
    def find(device: Simulated) -> int:
        from accelerate.utils import find_executable_batch_size

        def train(batch_size: int) -> int:
            device.run(batch_size)
            return batch_size

        return find_executable_batch_size(train, starting_batch_size=start)()

    return find


def of_lightning(mode: str) -> Callable[[Simulated], int]:
    def find(device: Simulated) -> int:
        import torch
        from lightning.pytorch import LightningModule, Trainer
        from lightning.pytorch.tuner import Tuner
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self) -> int:
                return HUGE

            def __getitems__(self, indices: list[int]) -> list[int]:
                return indices[:1]

        class Module(LightningModule):
            batch_size = 2
            ran = 0

            def __init__(self) -> None:
                super().__init__()
                self.one = torch.nn.Parameter(torch.zeros(()))

            def train_dataloader(self) -> DataLoader:
                self.ran = 0
                return DataLoader(Numbers(), batch_size=self.batch_size, collate_fn=torch.tensor)

            def training_step(self, batch: Any, index: int) -> Any:
                if index == 0:  # all steps of a trial at once, so that it counts as one
                    device.run(self.batch_size)
                return self.one * 0

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                default_root_dir=folder,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                max_steps=3,
            )
            return Tuner(trainer).scale_batch_size(Module(), mode=mode)

    return find


FINDERS: dict[str, Callable[[Simulated], int]] = {
    "gpukit": ours,
    "accelerate from 128": of_accelerate(128),
    "accelerate from 8192": of_accelerate(8192),
    "Lightning, power": of_lightning("power"),
    "Lightning, binsearch": of_lightning("binsearch"),
}


@dataclass(frozen=True)
class Answer:
    """`share` of the true maximum, `mild` of the largest size that fits without noise; both 0 if the finder failed."""

    share: float
    mild: float
    trials: int
    processes: int


def race(model: Model, find: Callable[[Simulated], int], seeds: int) -> list[Answer]:
    """One answer, or with noise one for each seed."""
    truth, mild, answers = model.largest(model.noise), model.largest(0.0), []
    for seed in range(seeds if model.noise or model.spurious else 1):
        device = Simulated(model, seed)
        try:
            size = find(device)
        except RuntimeError:  # an error other than out of memory, or no size was found
            size = 0
        answers.append(Answer(size / truth, size / mild, device.trials, device.processes))
    return answers


def cell(answers: list[Answer]) -> str:
    above = sum(each.share > 1 for each in answers)
    share, trials = (statistics.mean(row) for row in zip(*((min(each.share, 1), each.trials) for each in answers)))
    return f"{share:.1%}, {trials:.1f}" + (f", **{above}** above" if above else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of-each", type=int, default=10, help="models of each of the 19 kinds (10)")
    parser.add_argument("--seeds", type=int, default=3, help="runs on each model with noise (3)")
    parser.add_argument("--seed", type=int, default=0, help="seed for drawing the models (0)")
    parser.add_argument("--only-ours", action="store_true", help="only gpukit, without the libraries; write no result")
    given = parser.parse_args()
    load, made = machine()["load"], models(given.of_each, given.seed)
    finders = {"gpukit": ours} if given.only_ours else FINDERS
    if not given.only_ours:
        import accelerate  # noqa: F401
        import lightning.pytorch  # noqa: F401

        for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)
        gc.freeze()  # both collect garbage around each trial, which would include all of PyTorch's objects
    answers: dict[str, dict[str, list[Answer]]] = {name: {} for name in finders}
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        for number, model in enumerate(made, 1):
            for name, find in finders.items():
                answers[name].setdefault(model.kind, []).extend(race(model, find, given.seeds))
            if number % 10 == 0:
                print(f"{number} of {len(made)} models", flush=True)
    every = {name: [answer for some in of.values() for answer in some] for name, of in answers.items()}
    rows = [[kind, *(cell(answers[name][kind]) for name in finders)] for kind in answers["gpukit"]]
    rows.append(["**all**", *(cell(every[name]) for name in finders)])
    if given.only_ours:
        print(*(f"{kind:45} {ours}" for kind, ours in rows), sep="\n")
        return
    found = every["gpukit"]
    write(
        "finder_models",
        load,
        engine=False,
        packages=("accelerate", "lightning", "torch", "numpy"),
        title="The batch finder on memory models",
        table={"columns": ["memory use of a batch", *finders], "rows": rows},
        results=[
            {"what": "mean share of the true maximum", "unit": "%", "at_least": 85}
            | {"value": round(100 * statistics.mean(each.share for each in found), 2)},
            {"what": "answers above the true maximum", "at_most": 0, "value": sum(each.share > 1 for each in found)},
            {"what": "answers of at least 85 % of it", "unit": "%"}
            | {"value": round(100 * statistics.mean(each.share >= 0.85 for each in found), 1)},
            {"what": "most processes, each of which tries one size or more", "at_most": 5}
            | {"value": max(each.processes for each in found)},
            {"what": "mean number of processes"}
            | {"value": round(statistics.mean(each.processes for each in found), 2)},
            {"what": "mean number of sizes"} | {"value": round(statistics.mean(each.trials for each in found), 2)},
        ],
        notes=[
            "Each cell: mean share of the true maximum, mean number of sizes that were tried, and how many answers are "
            f"above it, if any (these count as 100 %). {len(made)} models; those with noise are run {given.seeds} "
            f"times: {len(found)} answers of each finder.",
            "The true maximum is the largest size that fits even with the highest possible noise. Compared with the "
            "largest size that fits without noise, gpukit's answers reach "
            f"{statistics.mean(each.mild for each in found):.1%} on average, and "
            f"{sum(each.mild > 1 for each in found)} of them are above it.",
            "Sizes include gpukit's final one, in a fresh process. A finder that ends with an error "
            "counts as 0 %, as the libraries do if a kernel has a maximum size. All finders use their defaults: "
            "Lightning tries at most 8192; accelerate starts at the given size.",
        ],
    )


if __name__ == "__main__":
    main()
