"""Options and values of `docker run` and Compose, in every notation."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpukit.project.specification import LETTERS, SWITCHES


def options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """docker run's options as (long name, value), in any notation."""
    rest = iter(arguments)
    for argument in rest:
        while not argument.startswith("--") and f"--{LETTERS.get(argument[1:2])}" in SWITCHES:  # as in -it
            yield f"--{LETTERS[argument[1]]}", "true"
            argument = f"-{argument[2:]}"
        if argument == "-":
            continue
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
        else:
            name, equals, value = argument[:2], argument[2:], argument[2:].removeprefix("=")
            name = f"--{LETTERS.get(name[1:], name)}"
        name = "--network" if name == "--net" else name
        if name in SWITCHES:
            yield name, value or "true"
        else:
            yield name, value if equals else next(rest, "")


def gpus(value: str) -> str:
    """The GPUs that --gpus requests: "all", ids separated by commas, or a number of GPUs as "3 of them"."""
    ids = ""
    for part in next(csv.reader([value]), []):
        key, equals, text = part.partition("=")
        if key == "device":
            ids = text
        elif key == "count" or not equals:
            ids = "all" if (text or key) == "all" else f"{text or key} of them"
    return ids


def ulimit(value: Any) -> str:
    """A limit as soft:hard, from 5, "5:6" or {soft: 5, hard: 6}."""
    if isinstance(value, Mapping):
        return f"{value['soft']}:{value['hard']}"
    soft, _, hard = str(value).partition(":")
    return f"{soft}:{hard or soft}"


def size(value: Any) -> int | None:
    if value in (None, ""):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?", str(value).lower())
    if not match:
        raise ValueError(f"{value} is not a size")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def mount_fields(text: str) -> dict[str, Any]:
    names = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
    mount: dict[str, Any] = {"type": "volume", "source": "", "target": "", "readonly": False}
    for part in next(csv.reader([text]), []):
        key, equals, value = part.partition("=")
        mount[names.get(key, key)] = value if equals else True
    return mount


def short_volume(text: str) -> dict[str, Any]:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not target:
        source, target = "", source
    kind = "bind" if source.startswith(("/", ".", "~")) else "volume"
    return {"type": kind, "source": source, "target": target, "readonly": "ro" in mode.split(",")}


def as_mapping(entries: Any) -> dict[str, str | None]:
    """Compose's environment or args, written as a mapping or as a list; the value is None if only the name is given."""
    if isinstance(entries, Mapping):
        return {str(name): None if value is None else scalar(value) for name, value in entries.items()}
    pairs = (str(entry).partition("=") for entry in entries or [])
    return {name: value if equals else None for name, equals, value in pairs}


def scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
