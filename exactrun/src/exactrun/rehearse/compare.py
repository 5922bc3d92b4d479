"""Compares what a script recorded in two lives: its steps, what is kept, and its variables."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exactrun.rehearse.recorder import STEP
from exactrun.rehearse.seen import Value

Row = dict[str, Any]
NAMED = 5  # variables that are named


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


def numbers(row: Row) -> dict[str, Value]:
    """What training consists of."""
    return {"the loss": Value(row["loss"]), **row["kept"], **row["generators"]}


def differing(one: dict[str, Value], other: dict[str, Value], missing: bool = False) -> list[str]:
    """The names of values that differ; with `missing`, also those that only one has."""
    names = [name for name, value in one.items() if name in other and other[name].text != value.text]
    return [*names, *(one.keys() ^ other.keys())] if missing else names


@dataclass
class Named:
    """A variable that differs: where, what it was, what it is, and how it is kept."""

    name: str
    was: str
    now: str
    remedy: str
    times: int = 1

    def __str__(self) -> str:
        short = all(len(one) < 40 and "#" not in one for one in (self.was, self.now))
        return f"`{self.name}` was {self.was}, and is {self.now}" if short else f"`{self.name}` has other values"


@dataclass
class Difference:
    """How a resumed life differs from the uninterrupted one: in training from step `step` on (0: it does not), in
    `what`; and in variables."""

    step: int = 0
    what: list[str] = field(default_factory=list)
    causes: list[Named] = field(default_factory=list)
    lasting: list[Named] = field(default_factory=list)


def uninterrupted(one: list[Row], other: list[Row]) -> tuple[int, list[str], set[str]]:
    """Of two uninterrupted lives: the first step in which their training differs (0: none), in what; and the variables
    that differ."""
    first = steps(one)
    second = steps(other)
    noise: set[str] = set()
    for step in first.keys() & second.keys():
        noise.update(differing(first[step]["variables"], second[step]["variables"], missing=True))
    for step in sorted(first.keys() | second.keys()):
        if step not in first or step not in second:
            return step, ["the number of steps"], noise
        if what := differing(numbers(first[step]), numbers(second[step])):
            return step, what, noise
    return 0, [], noise


def resumed(whole: list[Row], after: list[Row], noise: set[str]) -> Difference:
    """How a life that was resumed differs from the whole one."""
    found = Difference()
    known = steps(whole)
    noisy = _noisy(known, noise)
    for step, row in steps(after).items():
        if what := differing(numbers(known[step]), numbers(row)) if step in known else ["the number of steps"]:
            found.step = step
            found.what = what
            break
    begun = _begun(whole, after)
    late: dict[str, Named] = {}
    for step, row in steps(after).items():
        if found.step and step > found.step:
            break
        if step in known:
            for one in _variables(known[step], row, noisy):
                late.setdefault(one.name, one).times += 1
    lasting = sorted(late.values(), key=lambda one: -one.times)
    found.causes = [one for one in begun if one.name in late] or begun or lasting
    found.lasting = lasting
    return found


def _begun(whole: list[Row], after: list[Row]) -> list[Named]:
    """What differs where the resumed life begins to read; nothing was computed from it yet."""
    row = next(iter(after), None)
    if row is None or row["kind"] == STEP:
        return []
    same = [one for one in whole if all(one[name] == row[name] for name in ("kind", "step", "done"))]
    return _variables(same[0], row, lambda _: False) if same else []


def _variables(was: Row, now: Row, noisy: Any) -> list[Named]:
    one = was["variables"]
    other = now["variables"]
    names = [name for name in differing(one, other) if not noisy(name)]
    return [Named(name, one[name].text, other[name].text, one[name].remedy) for name in names]


def _noisy(known: dict[int, Row], noise: set[str]) -> Any:
    """Whether a variable is noise: it differs without a resume, or most of its object does, such as a meter of time."""
    owned: dict[str, set[str]] = {}
    for row in known.values():
        for name in row["variables"]:
            owned.setdefault(name.rpartition(".")[0], set()).add(name)
    clocks = {owner for owner, names in owned.items() if owner and 2 * len(names & noise) >= len(names)}
    return lambda name: name in noise or name.rpartition(".")[0] in clocks


def by_remedy(named: Iterable[Named]) -> list[Named]:
    """The first of those that are kept in the same way."""
    found: dict[str, Named] = {}
    for one in named:
        found.setdefault(one.remedy or one.name, one)
    return list(found.values())
