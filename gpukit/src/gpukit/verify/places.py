"""The folders that the container is given, the caches that libraries fill, and the room for what is temporary."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import DOCTOR, REBUILD, START

LEAST_GB = 1.0  # where less is free a checkpoint or a compiled kernel may not fit

FULL = Cause(
    "The disk that holds it is full.",
    "Make room: on the host `./launch clean`, then `docker system df`",
    says=("No space left on device", "Disk quota exceeded"),
)
GONE = Cause(
    "What was mounted there does not answer any more.",
    START,
    says=("Transport endpoint is not connected", "Stale file handle", "Input/output error"),
)
NOT_MOUNTED = Cause("It was not mounted.", START)
PROTECTED = Cause("It is mounted read-only.", START, says=("Read-only file system",))
NOT_MINE = Cause(
    "Its source on the host belongs to somebody else{whose}.",
    DOCTOR,
    says=("Permission denied", "Operation not permitted"),
)
LOST = Cause("What is written there is lost with the container.", START, status=WARN)
NARROW = Cause("Little room is left for checkpoints and downloaded models.", FULL.remedy, status=WARN)
UNREADABLE = Cause("On the host it may be read by somebody else only.", DOCTOR, says=("Permission denied",))
ABSENT = Cause("It was not mounted.", START, status=WARN)
WRITABLE = Cause(
    "The mount lacks `readonly`: what is changed there is changed on the host.",
    "Add `readonly` to it in devcontainer.json, then rebuild.",
    status=WARN,
)
ROOTS_CACHE = Cause(
    "It is root's: something that ran as root made it.",
    "Start afresh: `./launch stop`, `./launch up`; where it is a folder of the host, `sudo chown -R $USER` it there",
    says=("Permission denied", "There was a problem when trying to write in your cache folder"),
)
ELSES_CACHE = Cause("It belongs to somebody else (uid {owner}).", REBUILD, says=("Permission denied",))
READ_ONLY_CACHE = Cause(
    "It lies on a read-only file system.",
    "Mount it writable, or set {name} to a folder that is",
    says=("Read-only file system",),
)
NO_TEMPORARY = Cause(
    "No folder for temporary files can be written: compilers, DataLoaders and pip need one.",
    "Set TMPDIR to a folder that can be written, such as /workspace/outputs",
    says=("No usable temporary directory found", "Permission denied", "Read-only file system"),
)
TIGHT = Cause("Little room is left where compilers and downloads put what is temporary.", FULL.remedy, status=WARN)


def _trouble(place: Any, *causes: Cause) -> Cause | None:
    problem = place.problem.lower()
    return next((cause for cause in causes if any(words.lower() in problem for words in cause.says)), None)


@check("mounts", "Mounts", needs=("user",), causes=(NOT_MOUNTED, FULL, GONE, PROTECTED, NOT_MINE, LOST, NARROW))
def mounts(saw: Any, stack: Stack) -> Finding:
    """There, writable, and really mounted: what is written into a folder of the container is lost with it."""
    for place in saw.mounts:
        if not place.there:
            return NOT_MOUNTED(f"{place.path}: not there", "a mounted folder")
        if place.problem:
            cause = _trouble(place, FULL, GONE, PROTECTED) or (PROTECTED if place.read_only else NOT_MINE)
            whose = "" if place.owner is None else f" (uid {place.owner})"
            return cause(f"{place.path}: {place.problem}", "writable", whose=whose)
    for place in saw.mounts:
        if not place.mounted:
            return LOST(f"{place.path}: a folder of the container", "mounted")
    for place in saw.mounts:
        if place.free_gb is not None and place.free_gb < LEAST_GB:
            return NARROW(f"{place.path}: {place.free_gb:.2g} GB free", f"{LEAST_GB:g} GB")
    return passed(f"{count(len(saw.mounts), 'folder')}, writable")


@check("read-only", "Read-only mounts", needs=("user",), causes=(GONE, UNREADABLE, ABSENT, WRITABLE))
def read_only(saw: Any, stack: Stack) -> Finding:
    """Data and credentials: readable, and not to be spoilt from in here."""
    if not saw.read_only:
        return skipped("This project mounts nothing read-only.")
    for place in saw.read_only:
        if place.problem:
            return (_trouble(place, GONE) or UNREADABLE)(f"{place.path}: {place.problem}", "readable")
    for place in saw.read_only:
        if not place.mounted:
            return ABSENT(f"{place.path}: not mounted", "mounted")
        if not place.read_only:
            return WRITABLE(f"{place.path}: writable", "read-only")
    return passed(f"{count(len(saw.read_only), 'folder')}, readable")


@check("caches", "Caches", needs=("user",), causes=(FULL, GONE, READ_ONLY_CACHE, ROOTS_CACHE, ELSES_CACHE))
def caches(saw: Any, stack: Stack) -> Finding:
    """Model hubs, compilers and plotting fill folders below ~/.cache; one that is root's stops them."""
    mounted = {place.path for place in saw.mounts}
    for place in saw.caches:
        if place.problem and place.path not in mounted:  # a mount is the business of the check before
            cause = _trouble(place, FULL, GONE, READ_ONLY_CACHE)
            cause = cause or (ROOTS_CACHE if place.owner == 0 else ELSES_CACHE)
            names = (name for name, value in saw.environment.items() if value == place.path)
            name = next(names, "XDG_CACHE_HOME")
            return cause(f"{place.path}: {place.problem}", "writable", owner=place.owner, name=name)
    return passed(", ".join(place.path for place in saw.caches))


@check("room", "Temporary files", causes=(FULL, NO_TEMPORARY, TIGHT))
def room(saw: Any, stack: Stack) -> Finding:
    """A megabyte is written where temporary files go."""
    for place in saw.temporary:
        if place.problem:
            cause = _trouble(place, FULL) or NO_TEMPORARY
            return cause(f"{place.path}: {place.problem}", "writable")
        if place.free_gb is not None and place.free_gb < LEAST_GB:
            return TIGHT(f"{place.path}: {place.free_gb:.2g} GB free", f"{LEAST_GB:g} GB")
    return passed(", ".join(f"{place.path}: {place.free_gb or 0:.0f} GB free" for place in saw.temporary))
