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
from itertools import permutations
from pathlib import Path
from typing import Any

from exactrun.rehearse import compare
from exactrun.rehearse.compare import Difference, Named, Row
from exactrun.rehearse.files import Written
from exactrun.rehearse.process import Life, Script, UsageError, live
from exactrun.rehearse.recorder import MODULES

STEPS = 14  # of a life
SHORT = 3  # batches of a pass that is cut short
PATIENCE = 60.0  # seconds for a life, besides ten times what the first one took
SEED = 7  # of a script that seeds nothing
FOREVER = 7 * 24 * 3600.0


class FailedError(Exception):
    """The script cannot be rehearsed; the message says why."""


@dataclass
class Plan:
    """The steps after which the script is killed, in order, and what each is in its pass."""

    kills: list[int]
    places: dict[int, str]
    whole: bool  # whether all kinds of places are among them
    every: int = 1  # steps between two that can be saved: gradients are accumulated


@dataclass
class Found:
    """What was found of passes of one length."""

    steps: int
    plan: Plan
    kill: int = 0  # the last one, or the one after which training differs
    step: int = 0  # from this step on; 0: it does not
    what: list[str] = field(default_factory=list)
    causes: list[Named] = field(default_factory=list)  # variables that may be why
    lasting: dict[str, Named] = field(default_factory=dict)  # variables that differ after a step
    failed: Life | None = None  # after that kill

    def add(self, kill: int, one: Difference) -> None:
        """What a rank differs in after a kill."""
        self.lasting |= {each.name: each for each in one.lasting if each.name not in self.lasting}
        if (one.step and (not self.step or one.step < self.step)) or (not self.step and one.causes):
            self.kill = kill
            self.step = one.step
            self.what = one.what
            self.causes = one.causes

    def without(self, names: set[str]) -> None:
        """Leave out variables of these names, and what is in them."""
        parts = tuple(f"{name}{mark}" for name in names for mark in ".[")
        self.lasting = {
            name: one for name, one in self.lasting.items() if name not in names and not name.startswith(parts)
        }


@dataclass
class Rehearsal:
    """Lives of a script, in a scratch folder."""

    script: Script
    scratch: Path
    steps: int
    written: Written = field(default_factory=Written)
    lives: int = 0
    patience: float = FOREVER

    def live(self, name: str, seed: int, last: bool = True, **settings: Any) -> tuple[Life, list[list[Row]]]:
        """A life in the folder `name`, and the rows of each rank."""
        self.lives += 1
        _progress(f"Rehearsing {self.script.name}: run {self.lives} ...")
        settings = {"folder": str(self.scratch / name), "steps": self.steps, "saves": [], **settings}
        try:
            life = live(self.script, self.scratch, self.lives, seed, settings, self.patience)
        finally:
            if last or sys.exc_info()[0]:
                self.written.put_back(self.scratch / "written")
        ranks = sorted(int(path.suffix[1:]) for path in self.scratch.glob(f"rows-{self.lives}.*"))
        return life, [compare.rows(life.out, rank) for rank in ranks]

    def whole(self, name: str, most: int) -> tuple[list[list[Row]], Life]:
        """An uninterrupted life. FailedError if it fails before its last step."""
        life, found = self.live(name, SEED, most=most)
        if any(life.codes) and not (found and len(compare.steps(found[0])) >= self.steps):
            raise FailedError(f"{self.script.name} fails: exit code {max(life.codes, key=abs)}\n\n{life.last_words()}")
        if not found or not compare.steps(found[0]):
            raise FailedError(
                f"{self.script.name} made no step: nothing is created with `Run`, or `run.step` is never called.\n\n"
                + life.last_words()
            )
        return found, life

    def rehearse(self, most: int = 0) -> Found:
        """Run, kill, resume, and compare, with passes as they are, or cut short."""
        whole, life = self.whole(f"whole-{most}", most)
        self.patience = PATIENCE + 10 * life.seconds
        first = whole[0]
        plan = planned(first, bool(most))
        made = compare.steps(first)
        found = Found(len(made), plan)
        _preload(self.scratch / f"whole-{most}" / MODULES)
        if not plan.kills:
            raise FailedError(
                f"{self.script.name} made {found.steps} step{'s' * (found.steps != 1)}, which is too few to resume it: "
                "give it more."
            )
        resumed = self.resumed(found, whole, most)
        for kill, ranks in resumed:
            for rows, after in zip(whole, ranks, strict=False):
                found.add(kill, compare.resumed(rows, after, set()))
        if not (found.failed or found.step or found.lasting):
            return found
        noises = self.noise(whole, plan, most)
        found = Found(len(made), plan, kill=found.kill, failed=found.failed)
        for kill, ranks in resumed:
            for rows, after, noise in zip(whole, ranks, noises, strict=False):
                found.add(kill, compare.resumed(rows, after, noise))
        if found.lasting and not (found.failed or found.step):
            # What a script draws that seeds nothing is another number in each of its lives.
            _, ranks = self.live(f"unseeded-{most}", SEED - 1, most=most)
            drawn = [compare.uninterrupted(one, other)[2] for one, other in zip(whole, ranks, strict=False)]
            found.without(set().union(*drawn))
        return found

    def resumed(self, found: Found, whole: list[list[Row]], most: int) -> list[tuple[int, list[list[Row]]]]:
        """Kill and resume as planned, until training differs: each kill, and the rows of each rank after it."""
        lives = []
        kills = found.plan.kills
        for number, kill in enumerate([*kills, 0]):
            seed = SEED + number  # a resumed script that seeds nothing begins with other numbers
            before = kills[number - 1] if number else 0
            saves = [before + 1, kill]  # the first one for scripts that act on saving
            life, ranks = self.live(f"killed-{most}", seed, last=not kill, saves=saves, kill=kill, most=most)
            if number:
                lives.append((before, ranks))
            until = kill or found.steps
            if not ranks or any(max(compare.steps(rows), default=0) < until for rows in ranks):
                if not number:
                    raise FailedError(f"{self.script.name} did not come to step {kill} again:\n\n{life.last_words()}")
                found.failed = life
                found.kill = before
                break
            if any(compare.resumed(*pair, set()).step for pair in zip(whole, ranks, strict=False) if number):
                break
        self.written.put_back(self.scratch / "written")
        return lives

    def noise(self, whole: list[list[Row]], plan: Plan, most: int) -> list[set[str]]:
        """The variables that differ between two uninterrupted lives. FailedError if their training does."""
        differs = self.again("again", whole, most, saves=plan.kills)
        if not any(step for step, _, _ in differs):
            return [names for _, _, names in differs]
        if step := next(((step, what) for step, what, _ in self.again("third", whole, most) if step), None):
            raise FailedError(
                f"{self.script.name} cannot resume exactly: without any interruption, two runs of it differ from step "
                f"{step[0]} on ({_some(step[1])}). It draws from a generator that nothing seeds, such as "
                "numpy.random.default_rng() without a seed, or it uses an operation that is not deterministic."
            )
        step, what = next((step, what) for step, what, _ in differs if step)
        raise FailedError(
            f"{self.script.name} cannot resume exactly: it trains with other numbers from step {step} on "
            f"({_some(what)}) when a checkpoint is saved. Saves depend on the clock: let nothing that draws random "
            "numbers or changes the model depend on them."
        )

    def again(
        self, name: str, whole: list[list[Row]], most: int, **settings: Any
    ) -> list[tuple[int, list[str], set[str]]]:
        """For each rank, how another uninterrupted life differs."""
        _, ranks = self.live(f"{name}-{most}", SEED, most=most, **settings)
        return [compare.uninterrupted(one, other) for one, other in zip(whole, ranks or [[]], strict=False)]


def planned(rows: list[Row], cut: bool) -> Plan:
    """Where to kill: at the start, in the middle, and at the end of a pass, where each resumed life sees the end of
    one. If passes are too long for that, once; if there are none, twice. `cut`: they are cut short."""
    found = compare.steps(rows)
    every = sorted(found)
    passes = list[list[int]]()
    for step in every:
        if not passes or found[step]["done"] == 1:
            passes.append([])
        passes[-1].append(step)
    free = [[step for step in one if found[step]["settled"] and step < every[-1]] for one in passes]
    starts = [one[0] for one in free[1:] if len(one) > 1]
    middles = [step for one in free for step in one[1:-1]]
    ends = [one[-1] for one in free[:-1] if one]
    kills = list[int]()
    for order in permutations((starts, middles, ends)):
        chosen = list[int]()
        after = 0
        for wanted in order:
            if step := next((one for one in wanted if one > after), 0):
                chosen.append(step)
                after = next(one[-1] for one in passes if one[-1] >= step)
        kills = chosen if len(chosen) > len(kills) else kills
    places = dict.fromkeys(middles, "in the middle of a pass") | dict.fromkeys(starts, "at the start of a pass")
    places |= dict.fromkeys(ends, "at the end of a pass")
    if len(passes) > 2 and len(kills) == sum(map(bool, (starts, middles, ends))):
        return Plan(kills, places, whole=True)
    passing = any(row["done"] is not None for row in found.values())
    some = [step for one in free for step in one]
    if not cut:
        parts = (0.5,) if passing else (0.34, 0.67)
        kills = sorted({some[int(len(some) * part)] for part in parts}) if some else []
    return Plan(kills, places if passing else {}, whole=not passing, every=-(-len(every) // max(1, len(some) + 1)))


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _preload(names: Path) -> None:
    """Import the libraries that the script imports, so that later lives have them."""
    for name in names.read_text(encoding="utf-8").split() if names.exists() else ():
        if name not in sys.modules:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def report(script: Script, found: list[Found]) -> tuple[int, str]:
    """The exit code, and what was found, in sentences."""
    failed = next((one for one in found if one.failed), None)
    if trained := next((one for one in found if one.step), None):
        where = f"{script.name}, killed after step {_where(trained, trained.kill)} and resumed"
        text = f"{where}: training differs from step {trained.step} on ({_some(trained.what)})."
        return 1, _with_names(text, trained.causes)
    if failed:
        where = f"{script.name}, killed after step {_where(failed, failed.kill)}, cannot be resumed"
        return 1, _with_names(f"{where}:\n\n{failed.failed.last_words()}\n", failed.causes)
    if lasting := {name: one for each in reversed(found) for name, one in each.lasting.items()}:
        text = f"{script.name} resumes with the same losses and weights; only variables differ."
        return 1, _with_names(text, list(lasting.values()))
    kills = [_where(one, kill) for one in found for kill in one.plan.kills]
    return 0, f"exact: {script.name}, killed after step {', '.join(kills)}, resumes with the same numbers."


def _where(found: Found, kill: int) -> str:
    place = found.plan.places.get(kill)
    return f"{kill} ({place})" if place else str(kill)


def _with_names(text: str, named: list[Named]) -> str:
    firsts = compare.by_remedy(named)
    shown = firsts[: compare.NAMED]
    lines = [text, *(f"  {one}. Keep it: {one.remedy}." for one in shown)]
    if len(firsts) > len(shown):
        lines.append(f"  and {len(firsts) - len(shown)} more")
    return "\n".join(lines)


def rehearse(script: Script, steps: int, ignored: set[str]) -> int:
    """Rehearse, print what was found except the `ignored` variables, and return the exit code."""
    scratch = Path(tempfile.mkdtemp(prefix="rehearsal-"))
    rehearsal = Rehearsal(script, scratch, steps)
    code = 1
    text = ""
    try:
        found = [rehearsal.rehearse()]
        if not (found[0].plan.whole or found[0].failed or found[0].step):
            rehearsal.steps *= found[0].plan.every
            with contextlib.suppress(FailedError):  # of a script that needs its whole passes
                found.append(rehearsal.rehearse(most=SHORT * found[0].plan.every))
        for one in found:
            one.without(ignored)
        code, text = report(script, found)
    except FailedError as error:
        text = str(error)
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            rehearsal.written.put_back(scratch / "written")
            rehearsal.written.finish()
        shutil.rmtree(scratch, ignore_errors=True)
        _progress("")
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
