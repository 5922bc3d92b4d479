"""Causes in words: why something fails and what helps, each stated once in knowledge/ of the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from gpukit.project.data import data
from gpukit.project.location import EXTRA, find_root, is_adopted, named
from gpukit.project.versions import version

PROJECT = "project"
NATIVE = "native"
STANDALONE = "standalone"
# What our commands are called in each place: on the host, in the environment, and to add a package.
COMMANDS = {
    PROJECT: {"gpukit": "./launch", "launch": "./launch", "add": "./launch add"},
    NATIVE: {"gpukit": "./launch", "launch": "./launch --native", "add": "./launch --native add"},
    STANDALONE: {"gpukit": "gpukit", "launch": "gpukit", "add": "pip install"},
}
REQUIREMENTS = "requirements"  # the placeholder for the files that have them
# `{name}`, `{name|filter}`, `{name:default}`; and `{?with a {name}?:with {another}?:otherwise?}`, of which the first
# part counts whose names are known.
PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_.]*)(?:\|([a-z_]+))?(?::([^{}]*))?\}")
OPTIONAL = re.compile(r"\{\?(.*?)\?\}")

Forms = Any  # a sentence, or one for each place where it differs


class Cause(NamedTuple):
    """One thing that can be wrong. Code uses only `id`; the sentences are for users.

    `check`: how to distinguish it from other causes of the same error text. `when`: the condition that supports it or
    rules it out, see gpukit.errors.conditions. `status`: of a check that finds it. `host`: only another
    host helps in a container.
    """

    id: str
    why: Forms
    remedy: Forms = ""
    check: Forms = ""
    when: Any = None
    status: str = "FAIL"
    host: bool = False


def cause(id: str, **differing: Any) -> Cause:
    """A cause by its id, with the fields that differ.

    Raises:
        KeyError: there is none
    """
    return Cause(id, **{**data("knowledge")["causes"][id], **differing})


def driver_for(cuda: str) -> str:
    """The first NVIDIA driver that supports a version of CUDA; the newest known one if there is none yet."""
    known = sorted(data("stacks")["cuda_drivers"].items(), key=lambda item: version(item[0]))
    return next((driver for each, driver in known if version(each) >= version(cuda)), known[-1][1])


FILTERS: dict[str, Callable[[str], str]] = {"driver": driver_for}


def worded(text: Forms, place: str, values: Mapping[str, Any] | None = None, special: Iterable[str] = ()) -> str:
    """A text of a cause in its context: the form for this place, with the values filled in.

    Args:
        special: places that come first, such as podman or slurm
    """
    if not isinstance(text, str):
        text = next((text[each] for each in (*special, place) if each in text), text.get("default", ""))
    text = text if place == STANDALONE else named(text)
    given = {name: str(value) for name, value in (values or {}).items() if value not in ("", None)}
    known = {**COMMANDS[place], **given}
    if REQUIREMENTS in text:
        known[REQUIREMENTS] = requirements(place)

    def filled(found: re.Match[str]) -> str:
        name, filter, default = found.groups()
        if name not in known:
            return found[0] if default is None else default
        return FILTERS[filter](known[name]) if filter else known[name]

    def optional(found: re.Match[str]) -> str:
        return next((part for part in found[1].split("?:") if names_of(part) <= known.keys()), "")

    return PLACEHOLDER.sub(filled, OPTIONAL.sub(optional, text))


def requirements(place: str) -> str:
    """The files with the project's requirements."""
    root = None if place == STANDALONE else find_root()
    if root is None or not is_adopted(root):
        return "pyproject.toml"
    from gpukit.project import dependencies  # imported here because it is slow

    own = dict.fromkeys(source.partition("#")[0] for source in dependencies.sources(root))
    return f"{', '.join(own)} or {EXTRA}" if own else EXTRA


def names_of(text: str) -> set[str]:
    """The names of the placeholders that need a value."""
    return {found[1] for found in PLACEHOLDER.finditer(OPTIONAL.sub("", text)) if found[3] is None}


def shown(text: Forms, place: str) -> str:
    """A text of a cause without values, for documentation: each unknown value by its name, as <driver>."""
    return PLACEHOLDER.sub(r"<\1>", worded(text, place))
