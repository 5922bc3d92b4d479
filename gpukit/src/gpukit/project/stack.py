"""stack.json: what this project expects of its machine and its container. No other code derives these values."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpukit.project.location import find_root, located
from gpukit.project.versions import version

FILE = "stack.json"
SCHEMA = 1


class StackError(Exception):
    """The file is missing, or this version cannot read it; the message is for the user."""


@dataclass(frozen=True)
class Target:
    label: str
    capability: str | None
    arch: str
    driver: str | None
    unified_memory: bool
    precisions: tuple[str, ...]
    # Missing in files of older templates: then no driver branch is the last, and both kinds of modules work.
    last_driver: str | None = field(default_factory=lambda: None)
    modules: str | None = field(default_factory=lambda: "either")

    @property
    def autocast(self) -> str:
        """What `--dtype auto` trains in."""
        return next((name for name in ("bf16", "fp16") if name in self.precisions), "fp32")


@dataclass(frozen=True)
class Kernels:
    sass: tuple[str, ...]
    ptx: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    ipc: str
    shm_size: str | None
    fraction: float | None  # of memory that the CPU and the GPU share: the most that torch may take
    allocator_cap: bool = field(default_factory=lambda: False)  # whether torch reads it from PYTORCH_ALLOC_CONF
    ulimits: dict[str, int] = field(default_factory=dict)  # -1: unlimited


@dataclass(frozen=True)
class Stack:
    project: str
    package: str  # the folder in src/, and the name to import
    use_case: str
    tracking: tuple[str, ...]  # where metrics are logged in addition to metrics.jsonl
    targets: dict[str, Target]
    base: str
    release: str
    channel: str
    image: str
    python: str
    torch: str
    cuda: str | None
    kernels: dict[str, Kernels]
    driver: str | None
    end_of_life: str | None
    protected: tuple[str, ...]
    memory: Memory
    size_gb: float
    user: str
    mounts: tuple[str, ...]
    read_only: tuple[str, ...]
    digest: str | None = field(default_factory=lambda: None)  # of the base image; None: not recorded
    native: dict[str, Any] = field(default_factory=dict)  # what replaces the base without a container

    @property
    def standalone(self) -> bool:
        """Whether this describes the machine's hardware, outside a project."""
        return not self.project

    @property
    def gpu(self) -> bool:
        """Whether any target has a GPU."""
        return any(target.capability for target in self.targets.values())

    @property
    def capabilities(self) -> list[str]:
        return sorted({target.capability for target in self.targets.values() if target.capability}, key=version)


def load(path: Path | None = None) -> Stack:
    """The stack in a file, by default the project's.

    validate/schemas/stack.schema.json validates the values; here they only have to exist.

    Raises:
        StackError: the file is missing, or this version cannot read it.
    """
    if path is None and find_root() is None:
        raise StackError(
            "this is not a generated project: no folder from here upward has stack.json and .devcontainer/"
        )
    path = path or located(FILE)
    data = read(path)
    if data.get("schema") != SCHEMA:
        raise StackError(f"{path} has schema {data.get('schema')!r}; this version of gpukit reads {SCHEMA}")
    data = {
        **data,
        "targets": _objects(path, data, "targets", Target),
        "kernels": _objects(path, data, "kernels", Kernels),
    }
    data["memory"] = _object(path, data.get("memory"), "memory", Memory)
    return _object(path, data, "", Stack)


def read(path: Path) -> dict[str, Any]:
    """The file's object.

    Raises:
        StackError: it is missing, or is not a JSON object.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise StackError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        newer = "--theirs " if re.search("^>>>>>>> ", text, re.MULTILINE) else ""  # of an unfinished merge or update
        raise StackError(f"{path} is not JSON: restore it with `git checkout {newer}{path.name}`") from error
    if not isinstance(data, dict):
        raise StackError(f"{path} is not a JSON object: restore it with `git checkout {path.name}`")
    return data


def minor(text: str) -> str:
    """Major and minor: 2.14 of 2.14.1+cu130."""
    return ".".join(str(part) for part in version(text)[:2])


def _objects(path: Path, data: dict[str, Any], key: str, kind: type) -> dict[str, Any]:
    values = data.get(key)
    if not isinstance(values, dict):
        raise StackError(f"{path} lacks `{key}`")
    return {name: _object(path, value, f"{key}.{name}", kind) for name, value in values.items()}


def _object(path: Path, data: Any, place: str, kind: type) -> Any:
    if not isinstance(data, dict):
        raise StackError(f"{path} lacks `{place}`")
    values = {}
    for each in fields(kind):
        if each.name not in data:
            if each.default_factory is not MISSING:
                continue
            raise StackError(f"{path} lacks `{f'{place}.' if place else ''}{each.name}`")
        value = data[each.name]
        values[each.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
