"""Options and values of `docker run` and Compose, in every notation."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpukit.project.messages import alike
from gpukit.project.specification import KINDS, LONG, PODMAN

KIND = {f"--{name}": kind for kinds in (PODMAN, KINDS) for kind, names in kinds.items() for name in names.split()}
ALL = {*KIND, *(name for name in LONG if name.startswith("--"))}


class Option(NamedTuple):
    """An option as docker reads it: its long name, its value, and the argument in which it was found."""

    name: str
    value: str
    argument: str
    wrong: str = ""  # why docker does not read it


def read(arguments: Iterable[str]) -> Iterator[Option]:
    """docker run's options in any notation: `--ipc=host`, `--ipc host`, `-eA=1`, `-it`."""
    rest = list(arguments)
    while rest:
        yield take(rest)


def take(rest: list[str]) -> Option:
    """Remove the first option from these arguments, with its value."""
    argument = rest.pop(0)
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
    else:
        name = argument[:2]
        equals = argument[2:]
        value = argument[2:].removeprefix("=")
    name = LONG.get(name, name)
    if not argument.startswith("-"):
        return Option(argument, "", argument, "is not an option, so docker would take it for the image")
    if name not in KIND:
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        return Option(name, value, argument, f"docker run has no option `{name}`")
    if KIND[name]:
        missing = not equals and not rest
        value = value if equals or missing else rest.pop(0)
        return Option(name, value, argument, f"`{name}` needs a value" if missing else "")
    if equals and not argument.startswith("--"):  # one-letter switches can stand together
        rest.insert(0, f"-{value}")
    return Option(name, value if argument.startswith("--") and equals else "true", argument)


def options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """docker run's options as (long name, value)."""
    return ((option.name, option.value) for option in read(arguments))


def mistakes(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What docker refuses before it starts anything, and the remedy: an option that does not exist, or has no value."""
    for option in read(arguments):
        if not option.wrong:
            continue
        word = re.split(r"[=\s]", option.argument)[0]
        meant = alike(word, ALL)
        if not option.argument.startswith("-"):
            fits = f"--{word}" in ALL and "=" in option.argument
            remedy = f"write `--{option.argument}`" if fits else "write an option and its value as --NAME=VALUE"
            yield f"`{option.argument}` {option.wrong}", remedy
        elif " " in option.argument and word in ALL:
            yield option.wrong, f"write `{word}=VALUE`, or two strings"
        elif option.name in KIND:
            yield option.wrong, f"write `{option.name}=VALUE`, or remove it"
        else:
            yield option.wrong, f"did you mean `{meant}`?" if meant else "remove it, or correct its name"


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


def mount(parts: Iterable[str]) -> dict[str, Any]:
    """A mount from its fields in the notation of --mount: type, source, target, readonly, and the others as options."""
    parsed: dict[str, Any] = {"type": "volume", "source": "", "target": "", "readonly": False, "options": []}
    names = {"src": "source", "dst": "target", "destination": "target"}
    for part in parts:
        key, _, value = part.partition("=")
        key = names.get(key, key)
        if key in ("type", "source", "target"):
            parsed[key] = value
        elif key in ("readonly", "ro"):
            parsed["readonly"] = value.lower() in ("", "true", "1")
        else:
            parsed["options"].append(f"{key}={value}" if value else key)
    return parsed


def long_mount(text: str) -> dict[str, Any]:
    """A mount as --mount takes it: the fields are separated as in CSV."""
    return mount(next(csv.reader([text]), []))


def short_mount(text: str) -> dict[str, Any]:
    """A mount as --volume and Compose's short notation have it: SOURCE:TARGET:MODES."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not target:
        source, target = "", source
    kind = "bind" if source.startswith(("/", ".", "~")) else "volume"
    return {"type": kind, "source": source, "target": target, "readonly": "ro" in mode.split(","), "options": []}


def as_mapping(entries: Any) -> dict[str, str | None]:
    """Compose's environment or args, written as a mapping or as a list; the value is None if only the name is given."""
    if isinstance(entries, Mapping):
        return {str(name): None if value is None else scalar(value) for name, value in entries.items()}
    pairs = (str(entry).partition("=") for entry in entries or [])
    return {name: value if equals else None for name, equals, value in pairs}


def scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
