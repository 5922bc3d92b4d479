"""Compares what a script recorded in two lives: its steps, what is kept, and its variables."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactrun.rehearse.recorder import STEP
from exactrun.rehearse.seen import Value

Row = dict[str, Any]


def rows(out: str, rank: int) -> list[Row]:
    """What a rank has recorded; the last row may be missing if it was killed."""
    found = []
    try:
        with Path(f"{out}.{rank}").open("rb") as file:
            while True:
                found.append(pickle.load(file))
    except (EOFError, FileNotFoundError, pickle.UnpicklingError):
        return found


def steps(found: Iterable[Row]) -> dict[int, Row]:
    """The rows of steps; of one that was made again, the last."""
    return {row["step"]: row for row in found if row["kind"] == STEP}


@dataclass
class Named:
    """A variable that differs: where, what it was, what it is, and how it is kept."""

    name: str
    was: str
    now: str
    remedy: str

    def __str__(self) -> str:
        short = all(len(one) < 40 and "#" not in one for one in (self.was, self.now))
        how = f"was {self.was}, and is {self.now}" if short else "has other values"
        return f"`{self.name}` {how}. Keep it: {self.remedy}."


@dataclass
class Difference:
    """How a life differs: in training from step `step` on (0: it does not), in `what`; and in variables, those that may
    be the cause."""

    step: int = 0
    what: list[str] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.step or self.named)


def training(known: dict[int, Row], other: dict[int, Row]) -> Difference:
    """The first of the other's steps in which training differs, and in what."""
    for step, row in other.items():
        if step not in known:
            return Difference(step, ["the number of steps"])
        one = _numbers(known[step])
        two = _numbers(row)
        if what := [name for name, value in one.items() if name in two and two[name].text != value.text]:
            return Difference(step, what)
    return Difference()


def noise(one: list[Row], other: list[Row]) -> set[str]:
    """The variables that differ between two uninterrupted lives."""
    first = steps(one)
    second = steps(other)
    found: set[str] = set()
    for step in first.keys() & second.keys():
        was = first[step]["variables"]
        now = second[step]["variables"]
        found.update(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    return found


def resumed(whole: list[Row], after: list[Row], noise: set[str]) -> Difference:
    """How a life that was resumed differs from the whole one, except for variables that are noise."""
    known = steps(whole)
    then = steps(after)
    found = training(known, then)
    noisy = _noisy(known, noise)
    late: dict[str, Named] = {}
    for step in sorted(known.keys() & then.keys()):
        if not found.step or step <= found.step:
            for one in _variables(known[step], then[step], noisy):
                late.setdefault(one.name, one)
    begun = _begun(whole, after, noisy) if found.step or not then else []
    found.named = [one for one in begun if one.name in late] or begun or list(late.values())
    return found


def _numbers(row: Row) -> dict[str, Value]:
    """What training consists of."""
    return {"the loss": Value(row["loss"]), **row["kept"], **row["generators"]}


def _begun(whole: list[Row], after: list[Row], noisy: Callable[[str], bool]) -> list[Named]:
    """What differs where the resumed life begins to read; nothing was computed from it yet."""
    row = next(iter(after), None)
    if row is None or row["kind"] == STEP:
        return []
    same = [one for one in whole if all(one[name] == row[name] for name in ("kind", "step", "done"))]
    return _variables(same[0], row, noisy) if same else []


def _variables(was: Row, now: Row, noisy: Callable[[str], bool]) -> list[Named]:
    one = was["variables"]
    other = now["variables"]
    names = [name for name in one if name in other and other[name].text != one[name].text and not noisy(name)]
    return [Named(name, one[name].text, other[name].text, one[name].remedy) for name in names]


def _noisy(known: dict[int, Row], noise: set[str]) -> Callable[[str], bool]:
    """Whether a variable is noise: it differs without a resume, or most of its object does, such as a meter of time. Or
    it is the length of a container, and everything in that differs, such as a list of times."""
    owned: dict[str, set[str]] = {}
    for row in known.values():
        for name in row["variables"]:
            owned.setdefault(name.rpartition(".")[0], set()).add(name)
    clocks = {owner for owner, names in owned.items() if owner and 2 * len(names & noise) >= len(names)}

    def noisy(name: str) -> bool:
        if name in noise or name.rpartition(".")[0] in clocks:
            return True
        held = name.removeprefix("len(").removesuffix(")")
        inside = {one for names in owned.values() for one in names if one == held or one.startswith(f"{held}[")}
        return name == f"len({held})" and bool(inside) and inside <= noise

    return noisy
