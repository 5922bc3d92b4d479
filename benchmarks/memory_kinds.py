"""Models of memory use, with which the batch finder is tested as with a device.

A model defines how much memory a batch uses: proportional, rounded, in steps, with noise, nonlinear, and so on, with
random parameters from a seed. The true maximum is the largest size that fits in every step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exactrun.errors import TrainingError
from gpukit.script.finder import search
from gpukit.script.probe import Measured

GB = 1e9
MIB = 2**20
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
    source: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.source = random.Random(f"{self.model.name} {self.seed}")

    def run(self, size: int, steps: int = 3) -> int:
        """The peak in bytes; RuntimeError, as raised by PyTorch, if this is too much."""
        model = self.model
        self.trials = self.trials + 1
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
        count = s.choice([1, 2, 3, 5, 7, 8, 50, 100, 200, 1000, 3000, 5000, 8100, 10000])
        base = s.choice([0, 4 * GB])
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
        at = s.uniform(0.05, 0.95) * count
        high = s.uniform(0.2, 0.5) * budget
        return {"budget": budget, "demand": lambda b: base + one * b + high * (b > at)}

    def dropping(s: random.Random) -> dict[str, Any]:
        budget, base, one, count = line(s, 8, 2e4)
        at = s.uniform(0.2, 0.9) * count
        high = s.uniform(0.02, 0.15) * budget
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
        at = s.uniform(1, count)
        high = s.uniform(0.01, 0.1) * budget
        bend = s.uniform(0, 0.3) * one / count
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
    source = random.Random(seed)
    made = []
    for kind, draw in kinds():
        count = 0
        while count < of_each:
            model = Model(kind, f"{kind} {count}", **draw(source))
            if model.largest(model.noise) >= 1:
                made.append(model)
                count += 1
    return made


def ours(device: Simulated) -> int:
    budget = int(device.model.budget)

    def trial(size: int) -> Measured:
        try:
            return Measured(5, peak=device.run(size, 5), budget=budget)
        except RuntimeError as error:
            return Measured(why=str(error), memory=True)

    try:
        return search(trial)
    except TrainingError:
        return 0


@dataclass(frozen=True)
class Answer:
    """`share` of the true maximum, `mild` of the largest size that fits without noise; both 0 if the finder failed."""

    share: float
    mild: float
    trials: int


def race(model: Model, find: Callable[[Simulated], int], seeds: int) -> list[Answer]:
    """One answer, or with noise one for each seed."""
    truth = model.largest(model.noise)
    mild = model.largest(0.0)
    answers = []
    for seed in range(seeds if model.noise or model.spurious else 1):
        device = Simulated(model, seed)
        try:
            size = find(device)
        except RuntimeError:  # an error other than out of memory, or no size was found
            size = 0
        answers.append(Answer(size / truth, size / mild, device.trials))
    return answers
