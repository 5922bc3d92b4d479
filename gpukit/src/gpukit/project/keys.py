"""Keys that a file's specification does not have, and what each was probably meant to be."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gpukit.project.messages import alike
from gpukit.project.specification import DEVCONTAINER, ELSEWHERE, KINDS


class Unknown(NamedTuple):
    """A key that the specification does not have.

    `meant` is the key beside it, or the place, that it was probably meant to be; it is empty if there is none.
    """

    place: str  # a JSON pointer
    meant: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place} is not in the specification of dev containers; {self.remedy}"


def unknown(content: Any, keys: Mapping[str, str] = DEVCONTAINER) -> list[tuple[str, str]]:
    """The object and the key, for each key that is not in `keys`. Compose's extensions begin with x-."""
    found = []
    for pattern, names in keys.items():
        for place, value in objects(content, pattern.split("/")[1:]):
            known = names.split()
            found += [(place, str(key)) for key in value if key not in known and not str(key).startswith("x-")]
    return found


def objects(value: Any, steps: list[str], place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects at a pattern of keys, each with its place."""
    if not steps:
        if isinstance(value, Mapping):
            yield place, value
    elif isinstance(value, Mapping):
        for key in list(value) if steps[0] == "*" else [steps[0]]:
            yield from objects(value.get(key), steps[1:], f"{place}/{key}")
    elif isinstance(value, list) and steps[0] == "*":
        for position, item in enumerate(value):
            yield from objects(item, steps[1:], f"{place}/{position}")


def values(content: Any, pattern: str) -> list[str]:
    """The keys, or the values, at a pattern of places, as texts."""
    found: list[str] = []
    reached = [content]
    for step in pattern.split("/")[1:]:
        inner: list[Any] = []
        for each in reached:
            if isinstance(each, Mapping):
                inner += each.values() if step == "*" else [each[step]] if step in each else []
            elif isinstance(each, list) and step == "*":
                inner += each
        reached = [each for each in inner if each is not None]
    for each in reached:
        found += [str(key) for key in each] if isinstance(each, (Mapping, list)) else [str(each)]
    return found


def mistakes(content: Any, keys: Mapping[str, str] = DEVCONTAINER) -> list[Unknown]:
    """The unknown keys, those that resemble nothing last."""
    found = [Unknown(f"{place}/{key}", *explain(place, key, keys)) for place, key in unknown(content, keys)]
    return sorted(found, key=lambda each: not each.meant)


def explain(place: str, key: str, keys: Mapping[str, str] = DEVCONTAINER) -> tuple[str, str]:
    """The key that an unknown one was probably meant to be, or its place, and the remedy; nothing if there is none."""
    meant = alike(key, next(names for pattern, names in keys.items() if matches(place, pattern)).split())
    top_level = keys is DEVCONTAINER and not place
    if top_level and key in ELSEWHERE:
        return ELSEWHERE[key], f"write it as `{ELSEWHERE[key]}`"
    if meant:
        return meant, f"did you mean `{meant}`?"
    if top_level and (flag := alike(key, " ".join(KINDS.values()).split(), 1)):
        return "runArgs", f"it is a flag of docker run, so add `--{flag}=VALUE` to `runArgs`"
    beside = [other for other in inside(posixpath.dirname(place), keys) if other.count("/") == place.count("/")]
    for other in [*beside, *around(place), *inside(place, keys)]:
        names = next((names for pattern, names in keys.items() if matches(other, pattern)), "")
        if key in names.split():
            where = f"an entry of {other[:-2]}" if other.endswith("/*") else other or "the top level of the file"
            return f"{other}/{key}", f"move it to {where}"
    return "", ""


def around(place: str) -> list[str]:
    """The places that a place is in, the nearest first."""
    steps = place.split("/")
    return ["/".join(steps[:count]) for count in range(len(steps) - 1, 0, -1)]


def inside(place: str, keys: Mapping[str, str]) -> list[str]:
    """The places in a place, of those that have a table of keys, the nearest first; * stands for any key."""
    depth = place.count("/") + 1
    split = [pattern.split("/") for pattern in keys]
    found = [place + "/" + "/".join(steps[depth:]) for steps in split if matches(place, "/".join(steps[:depth]))]
    return sorted((other for other in found if other != f"{place}/"), key=lambda other: other.count("/"))


def matches(place: str, pattern: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]+"), place))
