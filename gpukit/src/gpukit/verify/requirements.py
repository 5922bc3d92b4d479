"""What the project requires, and which of it is not installed. Reads only metadata.

`packaging` compares versions. gpukit's wheel is installed without dependencies, so that it never changes a package of
the base: `packaging` is installed with pytest, which every project's tools include; otherwise pip's copy is used. uv
has no such copy, and `uv pip check` does not read pyproject.toml.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from gpukit.image.guard import normalised
from gpukit.project import dependencies
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError

NO_PACKAGING = "Neither packaging nor pip is installed, so versions cannot be compared."
CONFLICT = re.compile(r"The package `([^`]+)` requires `([^`]+)`, but (?:`([^`]+)`|it's not)")
PACKAGE = re.compile(r"The package `([^`]+)`")


@dataclass(frozen=True)
class Unmet:
    """A requirement, and the version that is installed instead; None: none is. `tool`: only the extra `dev` has it."""

    requirement: str
    file: str
    package: str
    seen: str | None
    tool: bool = False


@dataclass(frozen=True)
class Requirements:
    """Of the project: how many, those not met, and the packages that the project needs, also indirectly.

    `reason`: why they could not be compared.
    """

    count: int = 0
    unmet: tuple[Unmet, ...] = ()
    needed: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()  # its dependencies, without its tools
    reason: str = ""


@dataclass(frozen=True)
class Conflict:
    """A requirement of one package for another. `wanted` is empty if uv reports another problem with the package."""

    package: str
    wanted: str
    seen: str | None
    line: str

    @property
    def wanted_name(self) -> str:
        return re.match(r"[\w.-]*", self.wanted)[0]  # type: ignore[index]


def distributions(path: list[str] | None = None) -> dict[str, metadata.Distribution]:
    """The installed distributions by name; of two with the same name, the one that Python imports."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions(**({} if path is None else {"path": path})):
        if distribution.metadata["Name"]:
            found.setdefault(normalised(distribution.metadata["Name"]), distribution)
    return found


@cache
def packaging(module: str) -> Any:
    """A module of `packaging`; raises ImportError."""
    try:
        return importlib.import_module(f"packaging.{module}")
    except ImportError:
        return importlib.import_module(f"pip._vendor.packaging.{module}")


def read(project: Path, there: dict[str, metadata.Distribution]) -> Requirements:
    """Compare pyproject.toml, and requirements.txt if the project is pinned, with what is installed.

    Of an adopted repository: what its own files and extra.txt require.
    """
    if not is_adopted(project) and not (project / "pyproject.toml").is_file():
        return Requirements(reason="There is no pyproject.toml.")
    try:
        lines = _lines(project)
    except ImportError:
        return Requirements(reason="Reading pyproject.toml needs Python 3.11 or newer.")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return Requirements(reason=f"pyproject.toml cannot be read: {type(error).__name__}: {error}")
    except RefusalError as error:
        return Requirements(reason=str(error))
    try:
        parsed = [
            (each, Unmet(line, file, normalised(each.name), None, tool))
            for line, file, tool in lines
            if (each := _parsed(line)) is not None
        ]
    except ImportError:
        return Requirements(reason=NO_PACKAGING)
    unmet = []
    for each, found in parsed:
        distribution = there.get(found.package)
        if distribution is None:
            unmet.append(found)
        elif not _meets(each.specifier, distribution.version):
            unmet.append(replace(found, seen=distribution.version))
    needed = _needed([each for each, _ in parsed], there)
    direct = frozenset(found.package for _, found in parsed if not found.tool)
    return Requirements(len(parsed), tuple(sorted(unmet, key=lambda each: each.tool)), needed, direct)


def _lines(project: Path) -> list[tuple[str, str, bool]]:
    """Each requirement that the image installs, the file that has it, and whether it is a tool."""
    if is_adopted(project):
        found = dependencies.lines(project, dependencies.sources(project))
        return [(line.text, line.file, False) for line in found if not line.unfit]
    import tomllib

    from gpukit.image.layers import extra, name, wanted

    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    own = table.get("dependencies", [])
    tools = extra(table, "dev")
    names = {name(line) for line in own}
    lines = [(line, "pyproject.toml", False) for line in own]
    lines += [(line, "pyproject.toml", True) for line in tools if name(line) not in names]
    known = {line for line, _, _ in lines}
    tooling = {name(line) for line in tools} - names
    return lines + [(line, "requirements.txt", name(line) in tooling) for line in wanted(project) if line not in known]


def _parsed(line: str, extras: Iterable[str] = ()) -> Any:
    """A requirement; None if it does not apply here, or is a path or an address without a name."""
    requirements = packaging("requirements")
    try:
        found = requirements.Requirement(line)
    except requirements.InvalidRequirement:
        return None
    applies = found.marker is None or any(found.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    return found if applies else None


def _meets(specifier: Any, seen: str) -> bool:
    """Whether a version is in a range. A pre-release build of NVIDIA's counts as its release, as in the catalogue."""
    try:
        version = packaging("version").Version(seen)
    except ValueError:  # Debian's versions are not Python's
        return True
    if specifier.contains(version, prereleases=True):
        return True
    return bool(version.is_prerelease and version.local and specifier.contains(version.base_version))


def _needed(requirements: list[Any], there: dict[str, metadata.Distribution]) -> frozenset[str]:
    """The installed packages that these requirements lead to."""
    left = [(normalised(each.name), frozenset(each.extras)) for each in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        name, extras = found = left.pop()
        if found in seen or name not in there:
            continue
        seen.add(found)
        for line in there[name].requires or ():
            if (each := _parsed(line, extras)) is not None:
                left.append((normalised(each.name), frozenset(each.extras)))
    return frozenset(name for name, _ in seen)


def conflicts(lines: list[str], base: list[str]) -> tuple[Conflict, ...]:
    """What `uv pip check` reports, without what the base had: the version that is there instead does not matter."""
    known = {(each.package, each.wanted) for each in map(_conflict, base)}
    return tuple(each for each in map(_conflict, lines) if (each.package, each.wanted) not in known)


def _conflict(line: str) -> Conflict:
    if found := CONFLICT.match(line):
        return Conflict(found[1], found[2], found[3], line)
    name = PACKAGE.match(line)
    return Conflict(name[1] if name else "", "", None, line)
