"""The folders of this machine that the container mounts."""

from __future__ import annotations

import os
import shlex
from typing import Any

from gpukit.doctor.engine import ENGINE_IS_REMOTE, facts, remote
from gpukit.doctor.host import Folder
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.host.process import hide_home
from gpukit.project.stack import Stack

REMOTE_FILES = Cause(
    "engine-sees-other-files",
    "The engine is on another machine and mounts that machine's folders, not this one's.",
    "Work on that machine: ssh, or VS Code's Remote - SSH.",
    ("bind source path does not exist",),
    status=WARN,
)
UNREADABLE = Cause(
    "devcontainer-unreadable",
    "devcontainer.json defines how the container runs, but it cannot be read.",
    "`git diff .devcontainer`",
)
COMMA = Cause(
    "comma-in-path",
    "VS Code cannot mount it; `./launch` can.",
    "Move the folder to a path without a comma.",
    status=WARN,
)
DANGLING = Cause("mount-source-dangling", "The link points to a path that does not exist.", "`rm {source}`")
IS_FILE = Cause("mount-source-is-file", "This is a file, and it must be a folder.", "`mv {source} {source}.old`")
MISSING = Cause(
    "mount-source-missing",
    "It does not exist, and Docker mounts only existing folders.",
    "`mkdir -p {source}`",
    ("bind source path does not exist",),
)
NOT_CREATABLE = Cause(
    "mount-source-not-creatable", "The folder above it is not yours.", '`sudo install -d -o "$USER" {source}`'
)
NOT_YOURS = Cause(
    "mount-source-not-yours",
    "It belongs to another user, often root after a container ran as root.",
    '`sudo chown -R "$USER" {source}`',
    ("PermissionError: [Errno 13] Permission denied",),
)
NOT_READABLE = Cause(
    "mount-source-not-readable",
    "You do not have permission to read it.",
    "`ls -ld {source}` shows its owner: ask for read access",
)
NOT_RESPONDING = Cause(
    "network-drive",
    "It is on a network drive that does not respond; a container that mounts it would hang.",
    "`mount | grep nfs` shows which; mount it again",
    ("Stale file handle",),
)


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
    needs=("merge",),
    causes=(
        REMOTE_FILES,
        UNREADABLE,
        COMMA,
        DANGLING,
        IS_FILE,
        MISSING,
        NOT_CREATABLE,
        NOT_YOURS,
        NOT_READABLE,
        NOT_RESPONDING,
    ),
    project=True,
)
def mounts(probes: Any, stack: Stack) -> Finding:
    """Each folder must exist or be possible to create.

    This user must be able to read it and, unless the mount is read-only, to write it.
    """
    if remote(probes.endpoint):
        if not facts(probes.info):
            return skipped(ENGINE_IS_REMOTE)
        return REMOTE_FILES("an engine on another machine", "an engine on this machine")
    if probes.config.error:
        return UNREADABLE(hide_home(probes.config.error), "a devcontainer.json")
    ours = {*stack.mounts, *stack.read_only}
    for folder in probes.config.folders:
        problem = _problem(folder, folder.target in ours)
        if problem:
            return problem
    return passed(f"{count(len(probes.config.folders), 'folder')}, all usable")


def _problem(folder: Folder, ours: bool) -> Finding | None:
    """The problem of one mount source. `ours`: it must be a folder, and is created before the first start."""
    place, source = shown(folder.source), shown(folder.source, command=True)
    expected = f"a folder, for {folder.target}"
    if "," in folder.source:
        return COMMA(place, "a path without a comma")
    if folder.kind == "silent":
        return NOT_RESPONDING(f"{place}: no answer", expected)
    if folder.kind == "dangling":
        return DANGLING(f"{place}: a link to nothing", expected, source=source)
    if folder.kind == "file" and ours:
        return IS_FILE(f"{place}: a file", expected, source=source)
    if folder.kind == "missing" and not ours:
        return MISSING(f"{place}: not there", expected, source=source)
    if folder.usable:
        return None
    if folder.kind == "missing":
        return NOT_CREATABLE(f"{place}: not there, and you may not make it", expected, source=source)
    if folder.read_only:
        return NOT_READABLE(f"{place}: you may not read it", expected, source=source)
    return NOT_YOURS(f"{place}: you may not write to it", expected, source=source)
