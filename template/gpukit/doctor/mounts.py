"""The folders of this machine that the container mounts."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.doctor.engine import remote
from gpukit.doctor.host import Folder
from gpukit.finding import Finding, count, failed, passed, skipped, warned
from gpukit.stack import Stack


@check("mounts", "Mount sources")
def mounts(saw: Any, stack: Stack) -> Finding:
    """Folders, there or about to be made, that this user may read and, where the mount is writable, write."""
    if remote(saw.endpoint):
        return skipped(f"The engine is on another machine: {saw.endpoint}")
    if saw.config.error:
        return failed(
            saw.config.error,
            "a devcontainer.json",
            cause="It says how the container runs, and cannot be read.",
            remedy="git diff .devcontainer",
        )
    ours = {*stack.mounts, *stack.read_only}
    for folder in saw.config.folders:
        problem = _problem(folder, folder.target in ours)
        if problem:
            return problem
    return passed(f"{count(len(saw.config.folders), 'folder')}, all usable")


def _problem(folder: Folder, ours: bool) -> Finding | None:
    """What keeps one source from being mounted. `ours` are folders, and made before the first start."""
    source, expected = folder.source, f"a folder, for {folder.target}"
    if "," in source:
        return warned(
            source,
            "a path without a comma",
            cause="VS Code cannot mount it; `./launch` can.",
            remedy="Move the folder to a path without a comma.",
        )
    if folder.kind == "dangling":
        return failed(
            f"{source}: a link to nothing", expected, cause="What the link points to is gone.", remedy=f"rm '{source}'"
        )
    if folder.kind == "file" and ours:
        return failed(
            f"{source}: a file",
            expected,
            cause="A file stands where a folder must be.",
            remedy=f"mv '{source}' '{source}.old'",
        )
    if folder.kind == "missing" and not ours:
        return failed(
            f"{source}: not there", expected, cause="Docker mounts only what exists.", remedy=f"mkdir -p '{source}'"
        )
    if folder.usable:
        return None
    if folder.kind == "missing":
        return failed(
            f"{source}: not there, and you may not make it",
            expected,
            cause="The folder above it is not yours.",
            remedy=f"sudo install -d -o \"$USER\" '{source}'",
        )
    wanted = "read" if folder.read_only else "write to"
    return failed(
        f"{source}: you may not {wanted} it",
        expected,
        cause="It belongs to somebody else, often root after a container ran as root.",
        remedy=f"sudo chown -R \"$USER\" '{source}'",
    )
