"""The folders of this machine that the container mounts."""

from __future__ import annotations

import os
import shlex
from typing import Any

from gpukit.doctor.engine import facts, remote
from gpukit.doctor.host import Folder
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.host.process import hide_home
from gpukit.project.stack import Stack


def shown(path: str, command: bool = False) -> str:
    """A path with ~ for the home directory, which contains the user's name; with `command`, quoted for a shell."""
    home = os.environ.get("HOME", "").rstrip("/")
    inside = bool(home) and (path == home or path.startswith(f"{home}/"))
    rest = path[len(home) :] if inside else path
    if not command:
        return f"~{rest}" if inside else path
    return f'"$HOME{rest}"' if inside else shlex.quote(path)


@check(
    "mounts",
    "Mount sources",
    needs="merge",
    causes=(
        "engine-on-other-machine devcontainer-unreadable comma-in-path mount-source-dangling mount-source-is-file "
        "mount-source-missing mount-source-not-creatable mount-source-not-yours mount-source-not-readable "
        "network-drive"
    ),
    project=True,
)
def mounts(probes: Any, stack: Stack) -> Finding:
    """Each folder must exist or be possible to create.

    This user must be able to read it and, unless the mount is read-only, to write it.
    """
    if remote(probes.endpoint):
        if not facts(probes.info):
            return skipped("engine-elsewhere")
        return problem("engine-on-other-machine", "an engine on another machine", "an engine on this machine")
    if probes.config.error:
        return problem("devcontainer-unreadable", hide_home(probes.config.error), "a devcontainer.json")
    ours = {*stack.mounts, *stack.read_only}
    for folder in probes.config.folders:
        found = _problem(folder, folder.target in ours)
        if found:
            return found
    return passed(f"{count(len(probes.config.folders), 'folder')}, all usable")


def _problem(folder: Folder, ours: bool) -> Finding | None:
    """The problem of one mount source. `ours`: it must be a folder, and is created before the first start."""
    place = shown(folder.source)
    source = shown(folder.source, command=True)
    expected = f"a folder, for {folder.target}"
    if "," in folder.source:
        return problem("comma-in-path", place, "a path without a comma")
    if folder.kind == "silent":
        return problem("network-drive", f"{place}: no answer", expected)
    if folder.kind == "dangling":
        return problem("mount-source-dangling", f"{place}: a link to nothing", expected, source=source)
    if folder.kind == "file" and ours:
        return problem("mount-source-is-file", f"{place}: a file", expected, source=source)
    if folder.kind == "missing" and not ours:
        return problem("mount-source-missing", f"{place}: not there", expected, name=source)
    if folder.usable:
        return None
    if folder.kind == "missing":
        return problem(
            "mount-source-not-creatable", f"{place}: not there, and you may not make it", expected, source=source
        )
    if folder.read_only:
        return problem("mount-source-not-readable", f"{place}: you may not read it", expected, source=source)
    return problem("mount-source-not-yours", f"{place}: you may not write to it", expected, source=source)
