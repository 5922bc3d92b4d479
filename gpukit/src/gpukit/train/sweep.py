"""Measures all loader settings, plots them, and finds the fastest: python -m gpukit.train.sweep"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import Dataset

from gpukit.train.batch import Step
from gpukit.train.costs import PREFETCH, Plan, plans
from gpukit.train.data import DataError, Loading, loader
from gpukit.train.device import Device, choose
from gpukit.train.errors import error_message
from gpukit.train.task import Task, load_task
from gpukit.train.timing import Trials, show_progress
from gpukit.train.tuner import Setting, tune


def sweep(
    dataset: Dataset,
    batch_size: int,
    *,
    collate: Callable[[list[Any]], Any] | None = None,
    step_seconds: float | None = None,
    device: torch.device | str | None = None,
    context: str | None = None,
    say: Callable[[str], None] | None = None,
    rounds: int = 3,
    seconds: float = 1.0,
) -> list[Setting]:
    """Measure every setting that fits in memory, `rounds` times for `seconds` each; return the medians.

    Slower than `tune`. The other parameters are those of `tune`.
    """
    with show_progress(say) as report:
        trials = Trials(dataset, collate, context, report)
        costs = trials.costs(batch_size, step_seconds or 0.0, device)
        fitting = plans(costs)
        periods: dict[Plan, list[float]] = {plan: [] for plan in fitting}
        for number, plan in product(range(rounds), fitting):
            trials.say = lambda text, number=number: report(f"round {number + 1} of {rounds}, {text}")
            periods[plan].append(trials.run(plan, costs, seconds).period)
    return [
        Setting(*plan, costs.samples / costs.period(*plan), costs.samples / median(periods[plan])) for plan in fitting
    ]


def bars(settings: list[Setting], chosen: Loading | None = None, width: int = 40) -> str:
    """Samples per second of each setting, as text: thick bars were measured, thin ones are predicted."""
    top = max(max(each.measured or 0, each.predicted or 0) for each in settings)
    lines = [f"{'workers':>7}  {'ahead':>5}  samples/s"]
    for each in settings:
        rate = each.predicted if each.measured is None else each.measured
        bar = ("─" if each.measured is None else "█") * max(1, round(width * rate / top))
        star = "  <- chosen" if chosen and each.workers == chosen.workers and each.prefetch == chosen.prefetch else ""
        ahead = each.prefetch if each.workers else "-"
        lines.append(f"{each.workers:>7}  {ahead:>5}  {rate:>9,.0f}  {bar}{star}")
    return "\n".join(lines)


def picture(settings: list[Setting], file: Path, chosen: Loading | None = None) -> Path | None:
    """Plot samples per second to a PNG file; None if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for number, prefetch in enumerate(PREFETCH):
        some = [each for each in settings if each.prefetch == prefetch or each.workers == 0]
        axes.plot([each.workers for each in some], [each.predicted for each in some], color=f"C{number}", alpha=0.4)
        done = [each for each in some if each.measured is not None]
        label = f"{prefetch} batches ahead"
        axes.plot([each.workers for each in done], [each.measured for each in done], f"C{number}o", label=label)
    if chosen is not None:
        axes.axvline(chosen.workers, color="black", linestyle=":", label="chosen")
    axes.set(xlabel="workers", ylabel="samples/s", ylim=(0, None), title="points: measured, lines: predicted")
    axes.legend()
    axes.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gpukit.train.sweep",
        description="Find the fastest number of data loader workers. Also accepts all options of the training script.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--task", metavar="MODULE:FUNCTION", help="the function that builds the task (default: this project's)"
    )
    parser.add_argument("--batch-size", type=int, metavar="SAMPLES", help="samples per step of this process")
    parser.add_argument(
        "--step-seconds", type=float, metavar="S", help="duration of a training step (default: measured)"
    )
    parser.add_argument(
        "--start-method", choices=["fork", "forkserver", "spawn"], help="start method of workers (default: Python's)"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="measure all settings instead of the most promising; takes minutes"
    )
    parser.add_argument(
        "--picture", type=Path, default=Path("outputs/loader.png"), metavar="FILE", help="plot (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and progress to stderr")
    given, rest = parser.parse_known_args(arguments)
    if given.batch_size is not None and given.batch_size < 1:
        parser.error("--batch-size must be at least 1")
    if given.step_seconds is not None and not given.step_seconds >= 0:
        parser.error("--step-seconds must be at least 0")
    try:
        result, chosen, settings = _find(given, rest)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        message = error_message(error)
        if message is None:
            raise
        print(message, file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"{chosen.reason[0].upper()}{chosen.reason[1:]}.", flush=True)
    try:
        drawn = picture(settings, given.picture, chosen)
    except OSError as error:
        print(f"{given.picture} cannot be written ({error.strerror}): use another --picture.", file=sys.stderr)
        drawn = None
    print(f"Plot: {drawn}" if drawn else bars(settings, chosen))
    return 0


def _find(given: argparse.Namespace, rest: list[str]) -> tuple[dict[str, Any], Loading, list[Setting]]:
    build, settings = load_task(given.task, rest)
    device = choose(device=getattr(settings, "device", "auto"))
    task = build(settings, device)
    size = given.batch_size or getattr(settings, "batch_size", None)
    if not isinstance(size, int):
        raise DataError("The batch size is not a number: set --batch-size.")
    step = given.step_seconds
    if step is None:
        step = _step_seconds(task, size, device)
        print(f"A step with {size} samples takes {step * 1e3:.3g} ms.", file=sys.stderr, flush=True)
    how = {"collate": task.collate, "step_seconds": step, "device": device.device, "context": given.start_method}
    tuned = tune(task.dataset, size, **how)
    settings = sweep(task.dataset, size, **how) if given.sweep else tuned.sweep
    result = {
        "batch_size": size,
        "step_seconds": step,
        "tuned_in_seconds": round(tuned.seconds, 3),
        "loading": asdict(tuned.loading),
        "sweep": [asdict(each) for each in settings],
    }
    return result, tuned.loading, settings


def _step_seconds(task: Task, batch_size: int, device: Device) -> float:
    """The median duration of a training step, without the first one."""
    how = {"loading": Loading(1), "collate": task.collate, "device": device.device}
    batch = next(iter(loader(task.dataset, batch_size, 0, **how)))
    task.model = device.prepare(task.model)
    step, took = Step(task, device), []
    while len(took) < 3 or (len(took) < 20 and sum(took) < 2.0):
        begun = time.perf_counter()
        step(batch, 0).item()  # waits for the GPU
        took.append(time.perf_counter() - begun)
    return median(took[1:])


if __name__ == "__main__":
    sys.exit(main())
