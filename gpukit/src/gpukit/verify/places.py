"""Mounted folders, the caches of libraries, and space for temporary files."""

from __future__ import annotations

import errno
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import DOCTOR, REBUILD, START

LEAST_GB = 1.0  # with less, a checkpoint or a compiled kernel may not fit

FULL = Cause(
    "disk-full",
    "Its disk is full.",
    "Free space: on the host `./launch clean`, then `docker system df`",
    error_texts=("No space left on device", "Disk quota exceeded"),
)
GONE = Cause(
    "network-drive",
    "The mounted file system does not respond.",
    START,
    error_texts=("Transport endpoint is not connected", "Stale file handle", "Input/output error"),
)
NOT_MOUNTED = Cause("folder-not-mounted", "It is not mounted.", START)
PROTECTED = Cause("read-only", "It is mounted read-only.", START, error_texts=("Read-only file system",))
NOT_MINE = Cause(
    "mount-source-not-yours",
    "Another user{whose} owns its source on the host.",
    DOCTOR,
    error_texts=("Permission denied", "Operation not permitted"),
)
LOST = Cause("folder-not-kept", "Its content is lost when the container is removed.", START, status=WARN)
NARROW = Cause(
    "checkpoint-space-low", "Little space is left for checkpoints and downloaded models.", FULL.remedy, status=WARN
)
UNREADABLE = Cause(
    "mount-source-not-readable",
    "On the host, only another user can read it.",
    DOCTOR,
    error_texts=("Permission denied",),
)
ABSENT = Cause("data-not-mounted", "It is not mounted.", START, status=WARN)
WRITABLE = Cause(
    "data-writable",
    "The mount lacks `readonly`: changes in it change the host's files.",
    "Add `readonly` to it in devcontainer.json, then rebuild.",
    status=WARN,
)
ROOTS_CACHE = Cause(
    "cache-owned-by-root",
    "root owns it: a program that ran as root created it.",
    "Recreate the container: `./launch stop`, `./launch up`; for a folder of the host, run `sudo chown -R $USER` on it",
    error_texts=("Permission denied", "There was a problem when trying to write in your cache folder"),
)
ELSES_CACHE = Cause(
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
TIGHT = Cause(
    "temporary-space-low",
    "Little space is left for temporary files of compilers and downloads.",
    FULL.remedy,
    status=WARN,
)


# The system's error numbers of each.
NUMBERS = (
    (FULL, (errno.ENOSPC, errno.EDQUOT)),
    (GONE, (errno.ENOTCONN, errno.ESTALE, errno.EIO)),
    (PROTECTED, (errno.EROFS,)),
    (READ_ONLY_CACHE, (errno.EROFS,)),
)


def _matching(place: Any, *causes: Cause) -> Cause | None:
    return next((cause for cause, numbers in NUMBERS if cause in causes and place.error in numbers), None)


@check("mounts", "Mounts", needs=("user",), causes=(NOT_MOUNTED, FULL, GONE, PROTECTED, NOT_MINE, LOST, NARROW))
def mounts(probes: Any, stack: Stack) -> Finding:
    """The stack's folders exist, are writable, and are mounted: the container's own folders are lost with it."""
    for place in probes.mounts:
        if not place.there:
            return NOT_MOUNTED(f"{place.path}: does not exist", "a mounted folder")
        if place.problem:
            cause = _matching(place, FULL, GONE, PROTECTED) or (PROTECTED if place.read_only else NOT_MINE)
            whose = "" if place.owner is None else f" (uid {place.owner})"
            return cause(f"{place.path}: {place.problem}", "writable", whose=whose)
    for place in probes.mounts:
        if not place.mounted:
            return LOST(f"{place.path}: not mounted", "mounted")
    for place in probes.mounts:
        if place.free_gb is not None and place.free_gb < LEAST_GB:
            return NARROW(f"{place.path}: {place.free_gb:.2g} GB free", f"{LEAST_GB:g} GB")
    return passed(f"{count(len(probes.mounts), 'folder')}, writable")


@check("read-only", "Read-only mounts", needs=("user",), causes=(GONE, UNREADABLE, ABSENT, WRITABLE))
def read_only(probes: Any, stack: Stack) -> Finding:
    """Data and credentials: readable, but not writable from the container."""
    if not probes.read_only:
        return skipped("This project mounts nothing read-only.")
    for place in probes.read_only:
        if place.problem:
            return (_matching(place, GONE) or UNREADABLE)(f"{place.path}: {place.problem}", "readable")
    for place in probes.read_only:
        if not place.mounted:
            return ABSENT(f"{place.path}: not mounted", "mounted")
        if not place.read_only:
            return WRITABLE(f"{place.path}: writable", "read-only")
    return passed(f"{count(len(probes.read_only), 'folder')}, readable")


@check("caches", "Caches", needs=("user",), causes=(FULL, GONE, READ_ONLY_CACHE, ROOTS_CACHE, ELSES_CACHE))
def caches(probes: Any, stack: Stack) -> Finding:
    """Model hubs, compilers, and plotting libraries can write their folders below ~/.cache."""
    mounted = {place.path for place in probes.mounts}
    for place in probes.caches:
        if place.problem and place.path not in mounted:  # `mounts` checks those
            cause = _matching(place, FULL, GONE, READ_ONLY_CACHE)
            cause = cause or (ROOTS_CACHE if place.owner == 0 else ELSES_CACHE)
            names = (name for name, value in probes.environment.items() if value == place.path)
            name = next(names, "XDG_CACHE_HOME")
            return cause(f"{place.path}: {place.problem}", "writable", owner=place.owner, name=name)
    return passed(", ".join(place.path for place in probes.caches))


@check("room", "Temporary files", causes=(FULL, NO_TEMPORARY, TIGHT))
def room(probes: Any, stack: Stack) -> Finding:
    """One megabyte can be written to the folder for temporary files."""
    for place in probes.temporary:
        if place.problem:
            cause = _matching(place, FULL) or NO_TEMPORARY
            return cause(f"{place.path}: {place.problem}", "writable")
        if place.free_gb is not None and place.free_gb < LEAST_GB:
            return TIGHT(f"{place.path}: {place.free_gb:.2g} GB free", f"{LEAST_GB:g} GB")
    return passed(", ".join(f"{place.path}: {place.free_gb or 0:.0f} GB free" for place in probes.temporary))
