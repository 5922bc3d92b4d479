"""Mounted folders, the caches of libraries, and space for temporary files."""

from __future__ import annotations

import errno
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import DOCTOR, REBUILD, START

MIN_FREE_GB = 1.0  # with less, a checkpoint or a compiled kernel may not fit

FULL = Cause(
    "disk-full",
    "Its disk is full.",
    "Free space: on the host `./launch clean`, then `docker system df`",
    error_texts=("No space left on device", "Disk quota exceeded"),
)
NOT_RESPONDING = Cause(
    "network-drive",
    "The mounted file system does not respond.",
    START,
    error_texts=("Transport endpoint is not connected", "Stale file handle", "Input/output error"),
)
NOT_MOUNTED = Cause("folder-not-mounted", "It is not mounted.", START)
READ_ONLY = Cause("read-only", "It is mounted read-only.", START, error_texts=("Read-only file system",))
OTHER_OWNER = Cause(
    "mount-source-not-yours",
    "Another user{whose} owns its source on the host.",
    DOCTOR,
    error_texts=("Permission denied", "Operation not permitted"),
)
NOT_KEPT = Cause("folder-not-kept", "Its content is lost when the container is removed.", START, status=WARN)
LOW_SPACE = Cause(
    "checkpoint-space-low", "Little space is left for checkpoints and downloaded models.", FULL.remedy, status=WARN
)
UNREADABLE = Cause(
    "mount-source-not-readable",
    "On the host, only another user can read it.",
    DOCTOR,
    error_texts=("Permission denied",),
)
DATA_NOT_MOUNTED = Cause("data-not-mounted", "It is not mounted.", START, status=WARN)
WRITABLE = Cause(
    "data-writable",
    "The mount lacks `readonly`: changes in it change the host's files.",
    "Add `readonly` to it in devcontainer.json, then rebuild.",
    status=WARN,
)
CACHE_OF_ROOT = Cause(
    "cache-owned-by-root",
    "root owns it: a program that ran as root created it.",
    "Recreate the container: `./launch stop`, `./launch up`; for a folder of the host, run `sudo chown -R $USER` on it",
    error_texts=("Permission denied", "There was a problem when trying to write in your cache folder"),
)
CACHE_OF_OTHER = Cause(
    "cache-owned-by-other", "Another user (uid {owner}) owns it.", REBUILD, error_texts=("Permission denied",)
)
READ_ONLY_CACHE = Cause(
    "read-only",
    "It is on a read-only file system.",
    "Mount it writable, or set {name} to a writable folder",
    error_texts=("Read-only file system",),
)
NO_TEMPORARY = Cause(
    "no-temporary-folder",
    "The folder for temporary files is not writable: compilers, DataLoaders, and pip need one.",
    "Set TMPDIR to a writable folder, such as /workspace/outputs",
    error_texts=("No usable temporary directory found", "Permission denied", "Read-only file system"),
)
TEMPORARY_LOW = Cause(
    "temporary-space-low",
    "Little space is left for temporary files of compilers and downloads.",
    FULL.remedy,
    status=WARN,
)


# The system's error numbers of each.
ERROR_NUMBERS = (
    (FULL, (errno.ENOSPC, errno.EDQUOT)),
    (NOT_RESPONDING, (errno.ENOTCONN, errno.ESTALE, errno.EIO)),
    (READ_ONLY, (errno.EROFS,)),
    (READ_ONLY_CACHE, (errno.EROFS,)),
)


def _matching(place: Any, *causes: Cause) -> Cause | None:
    return next((cause for cause, numbers in ERROR_NUMBERS if cause in causes and place.error in numbers), None)


@check(
    "mounts",
    "Mounts",
    needs=("user",),
    causes=(NOT_MOUNTED, FULL, NOT_RESPONDING, READ_ONLY, OTHER_OWNER, NOT_KEPT, LOW_SPACE),
)
def mounts(probes: Any, stack: Stack) -> Finding:
    """The stack's folders exist, are writable, and are mounted: the container's own folders are lost with it."""
    for place in probes.mounts:
        if not place.there:
            return NOT_MOUNTED(f"{place.path}: does not exist", "a mounted folder")
        if place.problem:
            cause = _matching(place, FULL, NOT_RESPONDING, READ_ONLY) or (READ_ONLY if place.read_only else OTHER_OWNER)
            whose = "" if place.owner is None else f" (uid {place.owner})"
            return cause(f"{place.path}: {place.problem}", "writable", whose=whose)
    for place in probes.mounts:
        if not place.mounted:
            return NOT_KEPT(f"{place.path}: not mounted", "mounted")
    for place in probes.mounts:
        if place.free_gb is not None and place.free_gb < MIN_FREE_GB:
            return LOW_SPACE(f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_FREE_GB:g} GB")
    return passed(f"{count(len(probes.mounts), 'folder')}, writable")


@check(
    "read-only", "Read-only mounts", needs=("user",), causes=(NOT_RESPONDING, UNREADABLE, DATA_NOT_MOUNTED, WRITABLE)
)
def read_only(probes: Any, stack: Stack) -> Finding:
    """Data and credentials: readable, but not writable from the container."""
    if not probes.read_only:
        return skipped("This project mounts nothing read-only.")
    for place in probes.read_only:
        if place.problem:
            return (_matching(place, NOT_RESPONDING) or UNREADABLE)(f"{place.path}: {place.problem}", "readable")
    for place in probes.read_only:
        if not place.mounted:
            return DATA_NOT_MOUNTED(f"{place.path}: not mounted", "mounted")
        if not place.read_only:
            return WRITABLE(f"{place.path}: writable", "read-only")
    return passed(f"{count(len(probes.read_only), 'folder')}, readable")


@check(
    "caches", "Caches", needs=("user",), causes=(FULL, NOT_RESPONDING, READ_ONLY_CACHE, CACHE_OF_ROOT, CACHE_OF_OTHER)
)
def caches(probes: Any, stack: Stack) -> Finding:
    """Model hubs, compilers, and plotting libraries can write their folders below ~/.cache."""
    mounted = {place.path for place in probes.mounts}
    for place in probes.caches:
        if place.problem and place.path not in mounted:  # `mounts` checks those
            cause = _matching(place, FULL, NOT_RESPONDING, READ_ONLY_CACHE)
            cause = cause or (CACHE_OF_ROOT if place.owner == 0 else CACHE_OF_OTHER)
            names = (name for name, value in probes.environment.items() if value == place.path)
            name = next(names, "XDG_CACHE_HOME")
            return cause(f"{place.path}: {place.problem}", "writable", owner=place.owner, name=name)
    return passed(", ".join(place.path for place in probes.caches))


@check("room", "Temporary files", causes=(FULL, NO_TEMPORARY, TEMPORARY_LOW))
def room(probes: Any, stack: Stack) -> Finding:
    """One megabyte can be written to the folder for temporary files."""
    for place in probes.temporary:
        if place.problem:
            cause = _matching(place, FULL) or NO_TEMPORARY
            return cause(f"{place.path}: {place.problem}", "writable")
        if place.free_gb is not None and place.free_gb < MIN_FREE_GB:
            return TEMPORARY_LOW(f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_FREE_GB:g} GB")
    return passed(", ".join(f"{place.path}: {place.free_gb or 0:.0f} GB free" for place in probes.temporary))
