"""Mounted folders, the caches of libraries, and space for temporary files."""

from __future__ import annotations

import errno
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack

MIN_FREE_GB = 1.0  # with less, a checkpoint or a compiled kernel may not fit


# The system's error numbers of each.
ERROR_NUMBERS = (
    ("disk-full", (errno.ENOSPC, errno.EDQUOT)),
    ("network-drive", (errno.ENOTCONN, errno.ESTALE, errno.EIO)),
    ("read-only", (errno.EROFS,)),
    ("cache-read-only", (errno.EROFS,)),
)


def _matching(place: Any, *ids: str) -> str:
    return next((id for id, numbers in ERROR_NUMBERS if id in ids and place.error in numbers), "")


@check(
    "mounts",
    "Mounts",
    needs=("user",),
    causes=(
        "folder-not-mounted",
        "disk-full",
        "network-drive",
        "read-only",
        "mount-source-not-yours",
        "folder-not-kept",
        "checkpoint-space-low",
    ),
)
def mounts(probes: Any, stack: Stack) -> Finding:
    """The stack's folders exist, are writable, and are mounted: the container's own folders are lost with it."""
    for place in probes.mounts:
        if not place.there:
            return problem("folder-not-mounted", f"{place.path}: does not exist", "a mounted folder")
        if place.problem:
            id = _matching(place, "disk-full", "network-drive", "read-only")
            id = id or ("read-only" if place.read_only else "mount-source-not-yours")
            whose = "" if place.owner is None else f" (uid {place.owner})"
            return problem(id, f"{place.path}: {place.problem}", "writable", whose=whose)
    for place in probes.mounts:
        if not place.mounted:
            return problem("folder-not-kept", f"{place.path}: not mounted", "mounted")
    for place in probes.mounts:
        if place.free_gb is not None and place.free_gb < MIN_FREE_GB:
            return problem("checkpoint-space-low", f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_FREE_GB:g} GB")
    return passed(f"{count(len(probes.mounts), 'folder')}, writable")


@check(
    "read-only",
    "Read-only mounts",
    needs=("user",),
    causes=("network-drive", "mount-source-not-readable", "data-not-mounted", "data-writable"),
)
def read_only(probes: Any, stack: Stack) -> Finding:
    """Data and credentials: readable, but not writable from the container."""
    if not probes.read_only:
        return skipped("no-read-only-mounts")
    for place in probes.read_only:
        if place.problem:
            id = _matching(place, "network-drive") or "mount-source-not-readable"
            return problem(id, f"{place.path}: {place.problem}", "readable")
    for place in probes.read_only:
        if not place.mounted:
            return problem("data-not-mounted", f"{place.path}: not mounted", "mounted")
        if not place.read_only:
            return problem("data-writable", f"{place.path}: writable", "read-only")
    return passed(f"{count(len(probes.read_only), 'folder')}, readable")


@check(
    "caches",
    "Caches",
    needs=("user",),
    causes=("disk-full", "network-drive", "cache-read-only", "cache-owned-by-root", "cache-owned-by-other"),
)
def caches(probes: Any, stack: Stack) -> Finding:
    """Model hubs, compilers, and plotting libraries can write their folders below ~/.cache."""
    mounted = {place.path for place in probes.mounts}
    for place in probes.caches:
        if place.problem and place.path not in mounted:  # `mounts` checks those
            id = _matching(place, "disk-full", "network-drive", "cache-read-only")
            id = id or ("cache-owned-by-root" if place.owner == 0 else "cache-owned-by-other")
            names = (name for name, value in probes.environment.items() if value == place.path)
            name = next(names, "XDG_CACHE_HOME")
            return problem(id, f"{place.path}: {place.problem}", "writable", owner=place.owner, name=name)
    return passed(", ".join(place.path for place in probes.caches))


@check("room", "Temporary files", causes=("disk-full", "no-temporary-folder", "temporary-space-low"))
def room(probes: Any, stack: Stack) -> Finding:
    """One megabyte can be written to the folder for temporary files."""
    for place in probes.temporary:
        if place.problem:
            id = _matching(place, "disk-full") or "no-temporary-folder"
            return problem(id, f"{place.path}: {place.problem}", "writable")
        if place.free_gb is not None and place.free_gb < MIN_FREE_GB:
            return problem("temporary-space-low", f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_FREE_GB:g} GB")
    return passed(", ".join(f"{place.path}: {place.free_gb or 0:.0f} GB free" for place in probes.temporary))
