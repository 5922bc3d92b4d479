"""`gpukit speed`: times a training script with options that may make it faster, and compares its losses.

    gpukit speed                                                        # of this project
    gpukit speed --try "--amp" --try "--workers 8" -- python train.py   # of any script that uses exactrun's Run

Each candidate is the script itself, in a process of its own, for its first steps (probe.py). Options are tried one
after the other, on top of those that made it faster with the same losses, and last larger batches.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain

from tqdm import tqdm

from exactrun.errors import TrainingError
from gpukit.script.finder import OPTION, option_of, project_command
from gpukit.script.probe import Measured, measure, with_option

# Tried where the script's --help has them.
TRIED = ("--dtype fp32", "--dtype fp16", "--dtype bf16", "--tf32 True", "--channels-last True", "--compile")
TOLERANCE = 4 * 2**-7  # the largest relative difference of losses: four times the spacing of bf16's numbers at 1
SECONDS = 3.0  # of steps after the warm-up
FASTER = 1.05  # what gains less is left out
TIMES = (2, 4)  # the batch size


@dataclass
class Row:
    """A candidate: the options that were added to the command. `difference`: the largest relative one to the losses
    without them. `problem`: why it cannot be used, or is not the same."""

    options: list[list[str]]
    found: Measured
    difference: float | None = None
    problem: str = ""

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.found.batch / self.found.seconds if self.found.seconds else 0.0

    @property
    def added(self) -> str:
        return shlex.join(chain(*self.options))

    def __str__(self) -> str:
        return self.added or "as it is"


class _OverError(Exception):
    """The time limit."""


def speed(
    command: list[str],
    tried: list[str],
    *,
    option: str = OPTION,
    seconds: float = 180.0,
    say: Callable[[str], object] = print,
) -> tuple[list[Row], Row | None, str]:
    """Measure the command, with each of these options, and with larger batches, until all is measured, `seconds` are
    over, or Ctrl-C is pressed.

    Returns the rows, the fastest with the same losses and batch size (None: the command fails), and why it ended early.
    `say` receives a line before each candidate. TrainingError: the script cannot be measured.
    """
    rows, best, begun = list[Row](), None, time.monotonic()

    def measured(*new: list[str], compared: bool = True) -> Row:
        names = [one[0] for one in new]
        row = Row([*(one for one in (best.options if best else ()) if one[0] not in names), *new], Measured())
        spent = time.monotonic() - begun
        say(f"[{tqdm.format_interval(spent)} of {tqdm.format_interval(seconds)}] {row} ...")
        whole = reduce(with_option, row.options, command)
        row.found = measure(whole, seconds=SECONDS, most=max(0.0, seconds - spent))
        if not row.found.seconds and time.monotonic() - begun >= seconds:
            raise _OverError
        row.problem = row.found.why or ("" if row.found.seconds else "too few steps")
        if not row.problem and compared:
            row.difference = difference(row.found.losses, (rows[0] if rows else row).found.losses)
            if row.difference is not None and not row.difference <= TOLERANCE:
                row.problem = "other losses"
        rows.append(row)
        return row

    try:
        best = measured()
        for options in tried if not best.problem else ():
            row = measured(shlex.split(options))
            best = row if not row.problem and row.rate > FASTER * best.rate else best
        for times in TIMES if not best.problem else ():
            measured(option_of(option, times * best.found.batch), compared=False)
    except (_OverError, KeyboardInterrupt) as stopped:
        return rows, best, "Ctrl-C" if isinstance(stopped, KeyboardInterrupt) else "the time limit"
    return rows, best, ""


def difference(losses: tuple[float, ...], known: tuple[float, ...]) -> float | None:
    """The largest relative difference; infinite if a loss is NaN or infinite, None if there are none."""
    if not all(map(math.isfinite, losses)):
        return math.inf
    return max((abs(one - other) / max(abs(other), 1e-12) for one, other in zip(losses, known)), default=None)


def known(command: list[str], options: Iterable[str]) -> list[str]:
    """Those of the options that the script's --help names."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, errors="replace", check=False)
    return [one for one in options if re.search(rf"{one.split()[0]}\b", done.stdout)] if not done.returncode else []


def table(rows: list[Row]) -> str:
    """A line per candidate, the fastest first; those without a speed last."""
    lines = [("options", "samples/s", "x", "memory", "loss difference", "")]
    for row in sorted(rows, key=lambda row: -row.rate):
        memory = "-" if row.found.peak is None else f"{row.found.peak / 1e9:.2f} GB"
        apart = "-" if row.difference is None else f"{row.difference:.1e}"
        rate, times = (f"{row.rate:,.0f}", f"{row.rate / rows[0].rate:.2f}") if row.rate else ("-", "-")
        lines.append((str(row), rate, times, memory, apart, row.problem))
    first, *widths = (max(len(line[place]) for line in lines) for place in range(5))
    cells = ([line[0].ljust(first), *map(str.rjust, line[1:5], widths), line[5]] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in cells)


def report(rows: list[Row], best: Row, ended: str) -> str:
    """The table, and what to use."""
    lines = [table(rows)]
    if ended:
        lines.append(f"Ended by {ended}: other candidates were not measured.")
    if best.problem:
        return "\n".join([*lines, f"The script's first steps cannot be measured: {best.problem}."])
    if best.difference is None:
        lines.append("Losses were not compared, since the script gives none to run.step.")
    lines.append(f"Fastest with the same losses: {best}")
    larger = max((row for row in rows if not row.problem), key=lambda row: row.rate)
    if larger.rate > FASTER * best.rate:
        times = larger.rate / best.rate
        lines.append(f"{times:.2f} times as fast: {larger}. A larger batch changes training: adjust the learning rate.")
    return "\n".join(lines)


def main(command: list[str], tried: list[str], option: str, minutes: float, as_json: bool) -> int:
    """Run the command; return its exit status. `command`: `--` and what starts the script; or options of train.py."""
    begin, end = ("\r\033[K", "") if sys.stderr.isatty() else ("", "\n")

    def say(text: str) -> None:
        print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)

    try:
        command = command[1:] if command[:1] == ["--"] else project_command(command)
        tried = tried or known(command, TRIED)
        rows, best, ended = speed(command, tried, option=option, seconds=60 * minutes, say=say)
    except TrainingError as error:
        print(f"{begin}{error}", file=sys.stderr)
        return 1
    print(begin, end="", file=sys.stderr, flush=True)
    if as_json:
        lines = [{"options": row.added, "samples_per_second": row.rate, "memory": row.found.peak} for row in rows]
        lines = [each | {"difference": row.difference, "problem": row.problem} for each, row in zip(lines, rows)]
        print(json.dumps({"rows": lines, "options": best.added if best else "", "ended_by": ended}, indent=2))
    elif best:
        print(report(rows, best, ended))
    return 130 if ended == "Ctrl-C" else 0 if best and not best.problem else 1
