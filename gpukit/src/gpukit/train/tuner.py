"""Finds the fastest number of data loader workers: measures briefly, predicts from that, and verifies.

    tuned = tune(dataset, batch_size=64, step_seconds=0.02)
    batches = loader(dataset, 64, seed=0, loading=tuned.loading)      # tuned.reason says why

A sweep over all settings takes a minute or more, and mostly measures what can be computed. So a few batches are loaded
in a separate process and timed: how long each takes, how much of that is computing and how much is waiting, and how
large it is. This predicts the speed of any number of workers: they wait in parallel, they share the CPUs, and the
training process takes their batches in order, one at a time. If loading a batch costs less than transferring it from a
worker, nothing else is tried; otherwise the best setting is run briefly, and the result corrects the prediction.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import Dataset

from gpukit.train.costs import ALONE, Costs, Plan, PlanResult, most, plans
from gpukit.train.data import DataError, Loading, explain
from gpukit.train.timing import Trials, describe, show_progress

SPARE = 1.1  # factor on the measured cost of the data, with which workers must still keep up
FEW = 10, 4  # fewer measured batches do not show rare slow ones: then at least so many are prefetched
CLOSE = 1.25  # a smaller factor between loading with and without workers may be noise: both are run
OBJECTS = 2e8  # bytes of Python objects in a data set, above which the user is warned


@dataclass(frozen=True)
class Setting:
    """A plan and its samples per second: predicted, and measured if it was run."""

    workers: int
    prefetch: int
    predicted: float | None
    measured: float | None = None


@dataclass(frozen=True)
class Tuned:
    """The settings to use (`loading.reason` says why), all settings considered, and the seconds that this took."""

    loading: Loading
    sweep: list[Setting] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """The reason for these settings, as the end of a sentence."""
        return self.loading.reason


def _best(costs: Costs, fitting: list[Plan]) -> Plan:
    """The simplest plan that is as fast as any, even if the data costs slightly more than measured."""
    spare = SPARE + 2 * costs.varies / len(costs.waited) ** 0.5  # fewer measurements make the mean less certain
    least = FEW[1] if len(costs.waited) < FEW[0] else 0
    # A second worker evens out irregular batches: up to 13 % faster for text with a GPU step, and never more than 1 %
    # slower (four workloads of benchmarks/loader.py, nine rounds on 2 CPUs, 2026-11-22).
    fewest = min(2, int(costs.cpus), max(fitting)[0])
    periods = {
        plan: costs.period(*plan, spare)
        for plan in fitting
        if plan == ALONE or (plan[0] >= fewest and plan[1] >= least)
    }
    return next(plan for plan in periods if periods[plan] <= 1.005 * min(periods.values()))


def tune(
    dataset: Dataset,
    batch_size: int,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    step_seconds: float | None = None,
    device: torch.device | str | None = None,
    context: str | None = None,
    say: Callable[[str], None] | None = None,
) -> Tuned:
    """Find the fastest way to load batches of `batch_size` samples (this process's part of the global batch).

    `step_seconds`: the duration of a training step; None: no step, so that the loader is as fast as possible.
    `device`: where the step runs; on the CPU, it competes with the workers. `context`: the start method of workers,
    None for Python's default. `say`: receives progress; None: a line on stderr, if that is a terminal.

    Takes almost no time if batches are cheap; otherwise one to three seconds, or a few batches per worker. The data set
    is only used in other processes. Raises DataError if no sample can be read.
    """
    begun = time.monotonic()
    with show_progress(say) as report:
        trials = Trials(dataset, collate, context, report)
        try:
            costs = trials.costs(batch_size, step_seconds or 0.0, device)
        except (DataError, AttributeError, TypeError, pickle.PicklingError) as error:
            reason = explain(error)
            if reason is None:
                raise
            reason = f"0 workers: {reason[0].lower()}{reason[1:].rstrip('.')}"
            return Tuned(Loading(0, pin=_pins(device), reason=reason), [], time.monotonic() - begun)
        fitting, seen = plans(costs), {}
        first, plan, alone = costs, _best(costs, fitting), costs.alone + costs.step
        while plan != ALONE and plan not in seen and len(seen) < 3:
            seen[plan] = trials.run(plan, costs)
            expected = costs.period(*plan)
            costs = costs.corrected(plan, seen[plan])
            better = _best(costs, fitting)
            worth = min(0.95 * seen[plan].period, alone)
            if seen[plan].period > 1.05 * expected and costs.period(*better) < worth:
                plan = better
        periods = {ALONE: alone, **{each: one.period for each, one in seen.items()}}
        if seen and 1 / CLOSE < alone / min(one.period for one in seen.values()) < CLOSE:
            seen[ALONE] = trials.run(ALONE, costs)
            periods[ALONE] = seen[ALONE].period
    plan = _fastest(periods)
    loading = Loading(
        *plan,
        pin=_pins(device),
        persistent=bool(plan[0]) and seen[plan].started - first.alone > 1,
        context=context,
        reason=_why(plan, first, seen, periods, fitting),
    )
    rates = [(each, costs.samples / (first if each == ALONE else costs).period(*each)) for each in fitting]
    sweep = [Setting(*each, rate, costs.samples / seen[each].period if each in seen else None) for each, rate in rates]
    return Tuned(loading, sweep, time.monotonic() - begun)


def _fastest(periods: dict[Plan, float]) -> Plan:
    return next(plan for plan in sorted(periods) if periods[plan] <= 1.02 * min(periods.values()))


def _pins(device: torch.device | str | None) -> bool:
    return torch.device(device or "cpu").type == "cuda"


def _why(
    plan: Plan, costs: Costs, seen: dict[Plan, PlanResult], periods: dict[Plan, float], fitting: list[Plan]
) -> str:
    """The choice and its reason, as the end of a sentence."""
    if plan[0] == 0:
        return f"0 workers: {_why_none(costs, seen, fitting)}"
    how, times = seen[plan], periods[ALONE] / periods[plan]
    text = (
        f"{describe(plan)}: {costs.samples / how.period:,.0f} samples/s, {times:.1f} times as fast as without workers"
    )
    if how.blocked < 0.1:
        text += ", limited by the training step" if costs.step else ", limited by the training process"
    elif how.busy is not None and how.busy * plan[0] > 0.8 * costs.cpus:
        text += f", limited by {costs.cpus:g} CPU{'s' * (costs.cpus > 1)}"
    else:
        text += ", mostly waiting for the data"
    if plan[0] == max(fitting)[0] < most(costs):
        text += ", the most that fit in memory"
    if how.started - costs.alone > 1:
        text += f"; they take {how.started - costs.alone:.0f} s to start"
    if costs.objects > OBJECTS:
        text += (
            f"; each worker copies {costs.objects / 1e9:.1f} GB of Python objects in the data set, while tensors and "
            "NumPy arrays would be shared"
        )
    return text


def _why_none(costs: Costs, seen: dict[Plan, PlanResult], fitting: list[Plan]) -> str:
    made = f"{costs.alone * 1e3:.3g} ms for a batch of {costs.samples}"
    if len(fitting) == 1:
        return "there is not enough memory for a worker, or not enough in /dev/shm for its batches"
    if seen:
        return f"loading batches in the training process ({made}) was faster in a trial"
    if costs.alone <= costs.training:
        return f"loading a batch ({made}) is faster than transferring it from a worker"
    return f"loading batches ({made}) takes little time compared with a step of {costs.step * 1e3:.3g} ms"
