"""python -m exactrun rehearse [--steps N] -- train.py ...: does this script resume exactly?

It runs the script for a few steps, without and with interruptions, and compares all numbers, bit for bit. The run's
folder is another one, and what the script writes besides is put back.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactrun.rehearse import compare
from exactrun.rehearse.compare import Difference, Row
from exactrun.rehearse.files import Written
from exactrun.rehearse.process import Life, Script, UsageError, live
from exactrun.rehearse.recorder import BATCH, MODULES

STEPS = 14  # of a life
SHORT = 3  # batches of a pass that is cut short
NAMED = 5  # variables that are named
PATIENCE = 60.0  # seconds for a life, besides ten times what the first one took
SEED = 7  # of a script that seeds nothing
FOREVER = 7 * 24 * 3600.0
Kills = dict[int, str]  # the steps after which the script is killed, in order, and where each is in its pass


class FailedError(Exception):
    """The script cannot be rehearsed; the message says why."""


@dataclass
class Found:
    """What was found with passes of one length: how a life differs that was resumed after the step `kill`; `failed`: it
    could not be resumed."""

    kills: Kills
    kill: int = 0
    difference: Difference = field(default_factory=Difference)
    failed: Life | None = None


@dataclass
class Rehearsal:
    """Lives of a script, in a scratch folder."""

    script: Script
    scratch: Path
    steps: int
    written: Written = field(default_factory=Written)
    lives: int = 0
    patience: float = FOREVER

    def live(self, name: str, seed: int = SEED, last: bool = True, **settings: Any) -> tuple[Life, list[list[Row]]]:
        """A life in the folder `name`, and the rows of each rank."""
        self.lives += 1
        print(f"Rehearsing {self.script.name}: run {self.lives} ...", file=sys.stderr, flush=True)
        settings = {"folder": str(self.scratch / name), "steps": self.steps, "saves": [], **settings}
        try:
            life = live(self.script, self.scratch, self.lives, seed, settings, self.patience)
        finally:
            if last or sys.exc_info()[0]:
                self.written.put_back(self.scratch / "written")
        ranks = sorted(int(path.suffix[1:]) for path in self.scratch.glob(f"rows-{self.lives}.*"))
        return life, [compare.rows(life.out, rank) for rank in ranks]

    def whole(self, most: int) -> list[list[Row]]:
        """An uninterrupted life. FailedError if it fails before its last step."""
        life, found = self.live(f"whole-{most}", most=most)
        self.patience = PATIENCE + 10 * life.seconds
        _preload(self.scratch / f"whole-{most}" / MODULES)
        if any(life.codes) and not (found and len(compare.steps(found[0])) >= self.steps):
            raise FailedError(f"{self.script.name} fails: exit code {max(life.codes, key=abs)}\n\n{life.last_words()}")
        if not found or not compare.steps(found[0]):
            raise FailedError(
                f"{self.script.name} made no step: nothing is created with `Run`, or `run.step` is never called.\n\n"
                + life.last_words()
            )
        return found

    def rehearse(self, whole: list[list[Row]], kills: Kills, most: int = 0) -> Found:
        """Kill the script after each of `kills`, resume it, and compare it with the whole life. `most`: batches of its
        passes; 0: as they are."""
        found = Found(kills)
        steps = max(compare.steps(whole[0]))
        resumed: list[tuple[int, list[list[Row]]]] = []
        before = 0
        for number, kill in enumerate([*kills, 0]):
            seed = SEED + number  # a resumed script that seeds nothing begins with other numbers
            saves = [before + 1, kill]  # the first one for scripts that act on saving
            life, ranks = self.live(f"killed-{most}", seed, last=not kill, saves=saves, kill=kill, most=most)
            if number:
                resumed.append((before, ranks))
            if not ranks or any(max(compare.steps(rows), default=0) < (kill or steps) for rows in ranks):
                if not number:
                    raise FailedError(f"{self.script.name} did not come to step {kill} again:\n\n{life.last_words()}")
                found.failed = life
                break
            if number and _difference(whole, ranks).step:
                break
            before = kill
        self.written.put_back(self.scratch / "written")
        if found.failed or any(_difference(whole, ranks) for _, ranks in resumed):
            noises = self.noises(whole, list(kills), most)
            differences = [(kill, _difference(whole, ranks, noises)) for kill, ranks in resumed]
            found.kill, found.difference = next((one for one in differences if one[1].step), differences[-1])
            if not (found.failed or found.difference.step):
                found.difference.named = [each for _, one in reversed(differences) for each in one.named]
                found.difference.named = self.seeded(whole, found.difference.named, most)
        return found

    def noises(self, whole: list[list[Row]], saves: list[int], most: int) -> list[set[str]]:
        """Of each rank, the variables that differ in another uninterrupted life. FailedError if its training does."""
        _, ranks = self.live(f"again-{most}", most=most, saves=saves)
        for rows, again in zip(whole, ranks or [[]], strict=False):
            found = compare.training(compare.steps(again), compare.steps(rows))
            if found.step:
                raise FailedError(
                    f"{self.script.name} cannot resume exactly: without any interruption, two runs of it differ from "
                    f"step {found.step} on ({_some(found.what)}). It draws from a generator that nothing seeds, such "
                    "as numpy.random.default_rng() without a seed; or it uses an operation that is not deterministic; "
                    "or it draws random numbers or changes the model when a checkpoint is saved, which depends on the "
                    "clock."
                )
        return [compare.noise(rows, again) for rows, again in zip(whole, ranks, strict=False)]

    def seeded(self, whole: list[list[Row]], named: list[compare.Named], most: int) -> list[compare.Named]:
        """Without what a script draws that seeds nothing, which is another number in each of its lives."""
        if not named:
            return []
        _, ranks = self.live(f"unseeded-{most}", SEED - 1, most=most)
        drawn = set[str]().union(*(compare.noise(rows, other) for rows, other in zip(whole, ranks, strict=False)))
        return _without(named, drawn)


def _difference(whole: list[list[Row]], ranks: list[list[Row]], noises: list[set[str]] | None = None) -> Difference:
    """That of the rank that differs first."""
    found = [
        compare.resumed(rows, after, noise)
        for rows, after, noise in zip(whole, ranks, noises or [set()] * len(whole), strict=False)
    ]
    found.sort(key=lambda one: (not one.step, one.step, not one.named))
    return found[0] if found else Difference()


def _without(named: list[compare.Named], names: set[str]) -> list[compare.Named]:
    """Leave out variables of these names, and what is in them."""
    parts = tuple(f"{name}{mark}" for name in names for mark in ".[")
    return [one for one in named if one.name not in names and not one.name.startswith(parts)]


def planned(rows: list[Row]) -> tuple[Kills, bool]:
    """Where to kill: in the middle, at the end, and at the start of a pass, so that a resumed life sees the end of one;
    or, if passes are too long for that, in the middle of what there is, and False."""
    found = compare.steps(rows)
    every = sorted(found)
    passes: list[list[int]] = []
    for step in every:
        if not passes or found[step]["done"] == 1:
            passes.append([])
        passes[-1].append(step)
    free = [[step for step in one if found[step]["settled"] and step < every[-1]] for one in passes]
    wanted = {
        "in the middle of a pass": [step for one in free for step in one[1:-1]],
        "at the end of a pass": [one[-1] for one in free[:-1] if one],
        "at the start of a pass": [one[0] for one in free[1:] if len(one) > 1],
    }
    kills: Kills = {}
    after = 0
    for place, steps in wanted.items():
        if step := next((one for one in steps if one > after), 0):
            kills[step] = place
            after = next(one[-1] for one in passes if one[-1] >= step)
    if len(passes) > 2 and len(kills) == sum(map(bool, wanted.values())):
        return kills, True
    some = [step for one in free for step in one]
    if not any(row["kind"] == BATCH for row in rows):  # no pass of a loader that could be cut short
        return dict.fromkeys([some[len(some) // 3], some[2 * len(some) // 3]] if some else [], ""), True
    return ({some[len(some) // 2]: ""} if some else {}), False


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _preload(names: Path) -> None:
    """Import the libraries that the script imports, so that later lives have them."""
    for name in names.read_text(encoding="utf-8").split() if names.exists() else ():
        if name not in sys.modules:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


def report(script: Script, found: list[Found]) -> tuple[int, str]:
    """The exit code, and what was found, in sentences."""
    worst = sorted(found, key=lambda one: (not one.difference.step, not one.failed))
    chosen = next((one for one in worst if one.difference or one.failed), None)
    if chosen is None:
        kills = [", ".join(_where(one, kill) for kill in one.kills) for one in found]
        after = " and, with passes cut short, after step ".join(kills)
        return 0, f"exact: {script.name}, killed after step {after}, resumes with the same numbers."
    difference = chosen.difference
    text = f"{script.name}, killed after step {_where(chosen, chosen.kill)}"
    if difference.step:
        text += f" and resumed: training differs from step {difference.step} on ({_some(difference.what)})."
    elif chosen.failed:
        text += f", cannot be resumed:\n\n{chosen.failed.last_words()}\n"
    else:
        text = f"{script.name} resumes with the same losses and weights; only variables differ."
    firsts = list({one.remedy: one for one in reversed(difference.named)}.values())[::-1]
    lines = [text, *(f"  {one}" for one in firsts[:NAMED])]
    if len(firsts) > NAMED:
        lines.append(f"  and {len(firsts) - NAMED} more")
    return 1, "\n".join(lines)


def _where(found: Found, kill: int) -> str:
    return f"{kill} ({found.kills[kill]})" if found.kills[kill] else str(kill)


def found_in(rehearsal: Rehearsal) -> list[Found]:
    """What is found with passes as they are and, if they are long, cut short."""
    whole = rehearsal.whole(0)
    kills, enough = planned(whole[0])
    if not kills:
        raise FailedError(
            f"None of the first {rehearsal.steps} steps of {rehearsal.script.name} can be saved and resumed, since "
            "the script ends there or accumulates gradients: rehearse more steps with --steps."
        )
    found = [rehearsal.rehearse(whole, kills)]
    if not (enough or found[0].failed or found[0].difference.step):
        rows = compare.steps(whole[0]).values()
        every = -(-len(rows) // max(1, sum(row["settled"] for row in rows)))  # steps between two that can be saved
        rehearsal.steps *= every
        with contextlib.suppress(FailedError):  # of a script that needs its whole passes
            whole = rehearsal.whole(SHORT * every)
            found.append(rehearsal.rehearse(whole, planned(whole[0])[0], SHORT * every))
    return found


def rehearse(script: Script, steps: int, ignored: set[str]) -> int:
    """Rehearse, print what was found except the `ignored` variables, and return the exit code."""
    scratch = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    rehearsal = Rehearsal(script, scratch, steps)
    code = 1
    text = ""
    try:
        found = found_in(rehearsal)
        for one in found:
            one.difference.named = _without(one.difference.named, ignored)
        code, text = report(script, found)
    except FailedError as error:
        text = str(error)
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            rehearsal.written.put_back(scratch / "written")
            rehearsal.written.finish()
        shutil.rmtree(scratch, ignore_errors=True)
    print(text)
    if names := rehearsal.written.names():
        print(
            f"It also wrote {_some(names)}: put back as before the rehearsal, unless it says otherwise.",
            file=sys.stderr,
        )
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m exactrun rehearse", description=__doc__.partition(":")[2])
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of each run (default: {STEPS})")
    parser.add_argument("--ignore", action="append", default=[], metavar="NAME", help="a variable that may differ")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="-- train.py ...", help="the script, as you start it"
    )
    given = parser.parse_args(arguments)
    try:
        script = Script.of(given.command[1:] if given.command[:1] == ["--"] else given.command)
    except UsageError as error:
        parser.error(str(error))
    if given.steps < 4:
        parser.error("--steps needs at least 4")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return rehearse(script, given.steps, set(given.ignore))
    except KeyboardInterrupt:
        print("The rehearsal was interrupted; nothing of it is left.", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
