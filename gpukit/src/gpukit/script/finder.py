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
import os
import sys
import time
from collections.abc import Callable

from exactrun.errors import TrainingError
from gpukit.project.stack import StackError, load
from gpukit.script.probe import Measured, measure

TRIALS = 9  # sizes
START = 32  # the first size
LEAP = 16  # a size is at most this many times the one before
MARGIN = 0.02  # of the memory, which is left free for noise
CLOSE = 0.95  # of the prediction: close enough
OPTION = "--batch-size"
GIB = 2**30


def find(
    command: list[str] | None = None,
    *,
    option: str = OPTION,
    limit: int | None = None,
    say: Callable[[str], object] = print,
) -> int:
    """Find the largest batch, in samples per step, with which a training script fits in its GPU.

    `command`: what starts the script; None: what started this process. `option`: its option for the batch size; one
    that ends with `=` is joined with the number. `limit`: use at most this many bytes.

    Raises:
        TrainingError: the script cannot be measured, or no batch fits.
    """
    if (world := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        raise TrainingError(
            "The largest batch is measured in a single process: find it with `python -m gpukit.script.finder`, without "
            f"torchrun, and set {option} to {world} times that."
        )
    command = command or own_command()
    say("Finding the largest batch that fits: the script makes its first steps with several sizes.")

    def trial(size: int) -> Measured:
        begun = time.monotonic()
        found = measure([*command, *option_of(option, size)], limit=limit)  # the last one counts
        if not found.why and found.peak is None:
            raise TrainingError(
                f"The script trains on {found.device}: the largest batch can only be found on a GPU; set it to a "
                f"number, as in `{' '.join(option_of(option, 64))}`."
            )
        what = f"fail: {found.why}" if found.why else f"take {found.peak / GIB:.2f} of {found.budget / GIB:.2f} GiB"
        say(f"{size:>9} samples {what}, {time.monotonic() - begun:.1f} s")
        return found

    best = search(trial)
    say(f"Batch size {best}.")
    return best


def search(trial: Callable[[int], Measured]) -> int:
    """The largest size that fits with a margin, from at most TRIALS trials; TrainingError if none does."""
    peaks = dict[int, int]()  # of the sizes that fit, ascending
    failed = 2**40  # the smallest size that does not
    most = failed  # samples of the data set
    room = 0.0
    size = START
    for _ in range(TRIALS):
        found = trial(size)
        if found.samples:
            most = found.samples
        if found.budget:
            room = found.budget * (1 - MARGIN)
        if not found.why and (found.peak <= room or size == 1):
            peaks[min(size, most)] = found.peak
        elif found.why and not found.memory and not peaks:
            raise TrainingError(f"The script fails with a batch of {size} ({found.why}), and memory is not the cause.")
        else:
            failed = size
        size = next_size(peaks, failed, most, room)
        if not size:
            break
    if not peaks:
        why = found.why or "too little memory is left"
        raise TrainingError(f"Not even a batch of {failed} fits ({why}): use a smaller model or smaller samples.")
    return max(peaks)


def next_size(peaks: dict[int, int], failed: int, most: int, room: float) -> int:
    """The size to try next; 0: the search has ended.

    The line through two sizes that fit predicts the largest; after one, twice as many samples are tried.
    """
    if not peaks:
        return failed // 4 or int(failed > 1)
    best = max(peaks)
    predicted = 2.0 * best
    if smaller := [size for size in peaks if size <= 0.9 * best]:
        other = max(smaller)
        predicted = best + (room - peaks[best]) * (best - other) / max(peaks[best] - peaks[other], 1)
    size = min(int(predicted), LEAP * best, most)
    if size >= min(CLOSE * failed, failed - 1):  # the prediction has failed
        size = (best + failed) // 2
    return size if size > best / CLOSE or size == most > best else 0


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
