"""The folders that the container mounts, and disk space for the image, checkpoints, and models."""

from __future__ import annotations

import os
import shlex
from typing import Any

from gpukit.doctor.engine import desktop, elsewhere, facts, remote
from gpukit.doctor.host import Folder
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.host.process import hide_home
from gpukit.project.stack import Stack


def quoted(path: str) -> str:
    """A path in a command: quoted for a shell, and without the home directory, which contains the user's name."""
    home = os.environ.get("HOME", "").rstrip("/")
    if home and f"{path}/".startswith(f"{home}/"):
        return f'"$HOME{path[len(home) :]}"'
    return shlex.quote(path)


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
    place = hide_home(folder.source)
    source = quoted(folder.source)
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
        return problem("mount-source-not-creatable", f"{place}: you may not make it", expected, source=source)
    if folder.read_only:
        return problem("mount-source-not-readable", f"{place}: you may not read it", expected, source=source)
    return problem("mount-source-not-yours", f"{place}: you may not write to it", expected, source=source)


REBUILD_GB = 5  # for another layer of packages on an existing image
CACHE_GB = 10  # for a model of ordinary size, downloaded and unpacked
FULL_GB = 0.2


def folder(info: dict[str, Any]) -> str:
    """Where the engine stores images. New installations of Docker 29 use containerd's store."""
    if ["driver-type", "io.containerd.snapshotter.v1"] in (info.get("DriverStatus") or []):
        return "/var/lib/containerd"
    return info.get("DockerRootDir") or "/var/lib/docker"


def least_room(probes: Any, folders: list[str]) -> tuple[float, str] | None:
    """The least free space in gigabytes, and in which of these folders; None if it is unknown."""
    known = [(free, folder) for folder in folders if (free := probes.free_gb(folder)) is not None]
    return min(known, default=None)


@check("disk", "Disk space", needs="engine", causes="image-does-not-fit disk-nearly-full environment-does-not-fit")
def disk(probes: Any, stack: Stack) -> Finding:
    """An image takes many gigabytes, as does a native environment with uv's cache, and a full disk stops a build."""
    info = facts(probes.info)
    if desktop(info):
        return skipped("disk-of-docker-desktop")
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    room = least_room(probes, probes.native_folders if probes.native else [folder(info)])
    if room is None:
        return skipped("free-space-unknown")
    free, place = room
    built = probes.created if probes.native else probes.built
    need = REBUILD_GB if built else stack.size_gb
    seen = f"{free:.0f} GB free in {hide_home(place)}"
    expected = f"{need:g} GB"
    if free >= need:
        return passed(seen, expected)
    if probes.native:
        return problem("environment-does-not-fit", seen, expected, size=need, folder=quoted(place))
    id = "disk-nearly-full" if built and free > FULL_GB else "image-does-not-fit"
    return problem(id, seen, expected, size=stack.size_gb)


@check("caches", "Room for models", needs="mounts", causes="disk-full checkpoint-space-low", skip=elsewhere)
def caches(probes: Any, stack: Stack) -> Finding:
    """Checkpoints and downloaded models are stored in the project's folder and in the mounted caches."""
    written = [folder.source for folder in probes.config.folders if folder.kind == "folder" and not folder.read_only]
    room = least_room(probes, written)
    if room is None:
        return skipped("free-space-unknown")
    free, source = room
    seen = f"{free:.1f} GB free in {hide_home(source)}"
    expected = f"{CACHE_GB} GB"
    if free >= CACHE_GB:
        return passed(seen, expected)
    id = "disk-full" if free <= FULL_GB else "checkpoint-space-low"
    return problem(id, seen, expected, folder=quoted(source))
