"""Make an adopted package known to Python without building it: its folder, its name and version, and its commands.

An editable installation would run the package's build, with compilers and settings of its own. Its wheel, though, holds
no code: this module writes the same from what pyproject.toml, setup.cfg, or setup.py says.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

from gpukit.project import dependencies

# A line that Python runs. GPUKIT_PROJECT is the repository, or the checkout of a job.
PATH = "import os, sys; root = os.getenv('GPUKIT_PROJECT') or {root!r}; sys.path += [{places}]\n"
# Of a package whose build names no folder: src/ if the package is in it, otherwise the repository's own.
PLACE = (
    "root + '/src' if os.path.isdir(root + '/src') and not os.path.exists(root + '/src/__init__.py')"
    " and not os.path.exists(root + {module!r}) else root"
)
UNKNOWN = "0"  # the version, where the package computes it


def package(folder: Path, sources: list[str]) -> dict[str, Any]:
    """The package's name, version, folders, and entry points by group; nothing if the repository is none."""
    for file in dict.fromkeys(source.partition("#")[0] for source in sources):
        if file == dependencies.PYPROJECT:
            project = dependencies.Project(folder, file)
            if project.is_package:
                facts = {"name": project.name, "version": project.version, "folders": project.folders}
                return {**facts, "entries": entries(project)}
        elif file in ("setup.cfg", "setup.py"):
            found = dependencies.setuptools(folder, file)
            if found.get("name"):
                groups = found.get("entry_points", {})
                groups = groups if isinstance(groups, dict) else {}
                named = {group: dict(map(entry, lines_of(lines))) for group, lines in groups.items()}
                facts = {"name": found["name"], "version": found.get("version", ""), "folders": found["folders"]}
                return {**facts, "entries": named}
    return {}


def entries(project: dependencies.Project) -> dict[str, dict[str, str]]:
    table = project.project
    poetry = project.poetry
    found = {"console_scripts": table.get("scripts") or poetry.get("scripts", {})}
    found.update(gui_scripts=table.get("gui-scripts", {}), **table.get("entry-points", {}), **poetry.get("plugins", {}))
    texts = {
        group: {name: each for name, each in named.items() if isinstance(each, str)} for group, named in found.items()
    }
    return {group: named for group, named in texts.items() if named}


def lines_of(lines: Any) -> list[str]:
    listed = lines.splitlines() if isinstance(lines, str) else lines
    return [line for line in listed if "=" in line]


def entry(line: str) -> tuple[str, str]:
    name, _, target = line.partition("=")
    return name.strip(), target.strip()


def write(folder: Path, to: Path, workspace: str) -> Path | None:
    """Write the wheel, and return its path; None if the repository is no package.

    `workspace`: the path of the repository where the wheel is installed. Which folders exist is looked at when Python
    starts: a build has only the files that name dependencies.
    """
    found = package(folder, dependencies.sources(folder))
    if not found:
        return None
    name = re.sub(r"[-_.]+", "_", found["name"])
    version = found["version"] if re.fullmatch(r"\d[\w.!+]*", found["version"]) else UNKNOWN
    info = f"{name}-{version}.dist-info"
    groups = "\n".join(
        "".join([f"[{group}]\n", *(f"{each} = {target}\n" for each, target in named.items())])
        for group, named in found["entries"].items()
    )
    places = [f"os.path.normpath(os.path.join(root, {folder!r}))" for folder in found["folders"]]
    path = PATH.format(root=workspace, places=", ".join(places or [PLACE.format(module=f"/{name}")]))
    members = {
        f"__editable__.{name}.pth": path,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {found['name']}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: gpukit\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": groups,
    }
    members[f"{info}/RECORD"] = "".join(f"{member},,\n" for member in [*members, f"{info}/RECORD"])
    to.mkdir(parents=True, exist_ok=True)
    wheel = to / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member, text in members.items():
            archive.writestr(zipfile.ZipInfo(member), text)  # dated 1980-01-01, so that the same is the same file
    return wheel
