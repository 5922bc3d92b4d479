"""Finds the largest batch that fits in a GPU's memory: runs the training script for a few steps with several sizes.

    python -m gpukit.script.finder                                            # of this project
    python -m gpukit.script.finder -- python train.py --lr 0.1                # of any script that uses exactrun's Run
    python -m gpukit.script.finder --option bs= -- python train.py            # its option is bs=64, not --batch-size 64

Each size is tried in a process of its own, as training will start (probe.py), so what is returned has been tried. Two
sizes predict the largest, and a few more correct that. A script's first batches are measured: if later ones are larger,
as those of texts of different lengths are, leave more room, or use exactrun.fits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from exactrun.errors import TrainingError
from exactrun.ranks import Ranks
from gpukit.project.stack import StackError, load
from gpukit.script.probe import Measured, measure, with_option

TRIALS = 9  # sizes
START = 32  # the first size
LEAP = 16  # a size is at most this many times the one before
MARGIN = 0.02  # of the memory, which is left free for noise
CLOSE = 0.95  # of the prediction: close enough
OPTION = "--batch-size"
GIB = 2**30


@dataclass(frozen=True)
class Outcome:
    """Steps with `size` samples; `peak`: the bytes that they took, None if they failed, and `why`."""

    size: int
    peak: int | None = None
    why: str = ""


@dataclass
class Search:
    """Chooses the sizes: at most `ceiling` samples, in `budget` bytes."""

    budget: int = 0
    ceiling: int = 2**40
    tried: list[Outcome] = field(default_factory=list)

    @property
    def bound(self) -> int:
        """The smallest size that failed, or left too little memory."""
        room = self.budget * (1 - MARGIN)
        return min(
            (each.size for each in self.tried if each.peak is None or each.peak > room), default=self.ceiling + 1
        )

    @property
    def peaks(self) -> dict[int, int]:
        """Of the sizes below all that failed, ascending."""
        found = sorted((each.size, each.peak) for each in self.tried if each.size < self.bound)
        return dict(found)

    @property
    def best(self) -> int:
        """The largest size that leaves the margin; without one, a single sample may take all."""
        return max(self.peaks, default=int(any(each.size == 1 and each.peak is not None for each in self.tried)))

    def next(self) -> int:
        """The size to try next; 0: the search has ended."""
        peaks = self.peaks
        bound = self.bound
        if not self.tried:
            return min(START, self.ceiling)
        if len(self.tried) == TRIALS or bound == 1:
            return 0
        if not peaks:
            return max(1, bound // 4)
        best = self.best
        want = min(int(self._predicted()), LEAP * best, bound - 1)
        if bound <= self.ceiling and want > CLOSE * bound:  # the prediction has failed
            want = (best + bound) // 2
        return want if want > best / CLOSE else 0

    def _predicted(self) -> float:
        """The size that leaves the margin, on a line through two sizes; with one, twice as large a size."""
        *before, (size, peak) = self.peaks.items()
        other, low = next((each for each in reversed(before) if each[0] <= 0.9 * size), (0, 0))
        if not other:
            return 2 * size
        return size + (self.budget * (1 - MARGIN) - peak) * (size - other) / max(peak - low, 1)

    def reason(self) -> str:
        """One clause: why the batch is not larger."""
        if self.best == self.ceiling:
            return "the data set has no more samples"
        tried = {each.size: each for each in self.tried}
        if self.bound in tried and tried[self.bound].why and self.bound <= 1.05 * self.best + 1:
            return f"{self.bound} samples do not fit ({tried[self.bound].why})"
        return f"it leaves {1 - tried[self.best].peak / self.budget:.1%} of the memory free"


def find(
    command: list[str] | None = None,
    *,
    option: str = OPTION,
    limit: int | None = None,
    ranks: Ranks | None = None,
    say: Callable[[str], object] = print,
) -> int:
    """Find the largest batch, in samples per step of one process, with which a training script fits in its GPU.

    `command`: what starts the script; None: what started this process. `option`: its option for the batch size; one
    that ends with `=` is joined with the number. `limit`: use at most this many bytes. `ranks`: all of them must call
    this; each tries its own GPU, and all get the smallest result.

    Raises:
        TrainingError: the script cannot be measured, or no batch fits.
    """
    ranks = ranks or Ranks()
    search = Search(limit or 0)
    say = say if ranks.main else lambda line: None
    try:
        _search(search, command or own_command(), option, limit, ranks, say)
    except TrainingError:
        ranks.least(0)
        raise
    if not (least := ranks.least(search.best)):
        raise TrainingError("Another process of this run found no batch size; its own message says why.")
    why = search.reason() if least == search.best else "another process found no larger one"
    say(f"Batch size {least}{' per process' * (ranks.world > 1)}: {why}.")
    return least


def _search(
    search: Search, command: list[str], option: str, limit: int | None, ranks: Ranks, say: Callable[[str], object]
) -> None:
    say("Finding the largest batch that fits: the script makes its first steps with several sizes.")
    while size := search.next():
        begun = time.monotonic()
        whole = with_option(command, option_of(option, size))
        found = measure(whole, limit=limit, gpu=ranks.local_rank if ranks.world > 1 else None)
        if not found.why and found.peak is None:
            raise TrainingError(
                f"The script trains on {found.device}: the largest batch can only be found on a GPU; set it to a "
                f"number, as in `{' '.join(option_of(option, 64))}`."
            )
        _learn(search, found, ranks.world, say)
        size = min(size, search.ceiling)  # a batch has no more
        search.tried.append(Outcome(size, None if found.why else found.peak, found.why))
        what = f"fail: {found.why}" if found.why else f"take {found.peak / GIB:.2f} GiB"
        say(f"{size:>9} samples {what}, {time.monotonic() - begun:.1f} s")
        if found.why and not found.memory and not search.best and (size == 1 or len(search.tried) == 1):
            given = " ".join(option_of(option, size))
            raise TrainingError(f"The script fails with `{given}` ({found.why}), and memory is not the cause.")
    if not search.best:
        last = search.tried[-1]
        raise TrainingError(
            f"Even {last.size} sample{'s' * (last.size > 1)} do not fit ({last.why or 'too little memory is left'}): "
            "use a smaller model or smaller samples."
        )


def _learn(search: Search, found: Measured, world: int, say: Callable[[str], object]) -> None:
    """The memory and the data set, which the first trial that reaches its steps reports."""
    if found.samples:
        search.ceiling = max(1, found.samples // world)
    if found.budget and not search.budget:
        search.budget = found.budget
        say(f"{found.device}: {found.budget / GIB:.2f} GiB available ({found.how}).")


def own_command() -> list[str]:
    """The command that started this process."""
    if not hasattr(sys.modules["__main__"], "__file__") or "-c" in sys.orig_argv[1:3]:
        raise TrainingError("The batch size can only be found for a script: set it to a number, as in `64`.")
    return [sys.executable, *sys.orig_argv[1:]]


def option_of(name: str, value: int) -> list[str]:
    """An option with its value: `--batch-size 64`, or `bs=64` if the name ends with `=`."""
    return [f"{name}{value}"] if name.endswith("=") else [name, str(value)]


def project_command(arguments: list[str]) -> list[str]:
    """What starts the project's script with these options."""
    try:
        return [sys.executable, "-m", f"{load().package}.train", *arguments]
    except StackError as error:
        raise TrainingError(f"{error}: give the command that starts the script, after `--`.") from None


def main() -> None:
    """Run the command."""
    arguments = sys.argv[1:]
    place = arguments.index("--") if "--" in arguments else len(arguments)
    about = "Find the largest batch that fits in a GPU's memory."
    usage = "%(prog)s [--option NAME] [--limit GIB] [OPTIONS OF THE PROJECT'S train.py | -- COMMAND]"
    parser = argparse.ArgumentParser("python -m gpukit.script.finder", usage, about, allow_abbrev=False)
    parser.add_argument("--option", default=OPTION, metavar="NAME", help="the script's option for its batch size")
    parser.add_argument("--limit", type=float, metavar="GIB", help="use at most this much memory")
    given, rest = parser.parse_known_args(arguments[:place])
    limit = int(given.limit * GIB) if given.limit else None
    try:
        command = arguments[place + 1 :] or project_command(rest)
        find(command, option=given.option, limit=limit, say=lambda line: print(line, flush=True))
    except (TrainingError, KeyboardInterrupt) as error:
        raise SystemExit(str(error) or 130) from None


if __name__ == "__main__":
    main()
