"""The machine and the container's share of it: user, folders, shared memory, limits, processors, memory, clock."""

from __future__ import annotations

import errno
import re
from typing import Any

from gpukit.errors.conditions import UNITS
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack


@check("user", "User", causes="runs-as-root user-other-uid no-such-user files-mapped", project=True, container=True)
def user(probes: Any, stack: Stack) -> Finding:
    """The container's user owns the workspace, so that files created here belong to the same user on the host."""
    me = probes.user
    seen = f"{me.name or 'no name'} (uid {me.uid})"
    expected = f"{'root' if me.owner == 0 else stack.user} (uid {me.owner}), the owner of {me.workspace}"
    if me.uid != me.owner:
        return problem("runs-as-root" if me.uid == 0 else "user-other-uid", seen, expected)
    if me.name is None:
        return problem("no-such-user", seen, expected)
    if me.written not in (None, me.uid):
        return problem("files-mapped", f"{seen} creates files of uid {me.written}", expected)
    return passed(f"{seen}, the owner of {me.workspace}")


MIN_DISK_GB = 1.0  # with less, a checkpoint or a compiled kernel may not fit
# What the system's error numbers mean.
ERRORS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "disk-full"),
    **dict.fromkeys((errno.ENOTCONN, errno.ESTALE, errno.EIO), "network-drive"),
    errno.EROFS: "read-only",
}


@check(
    "mounts",
    "Mounts",
    needs="user",
    causes=(
        "folder-not-mounted disk-full network-drive read-only mount-source-not-yours folder-not-kept "
        "checkpoint-space-low mount-source-not-readable data-not-mounted data-writable"
    ),
    project=True,
    container=True,
)
def mounts(probes: Any, stack: Stack) -> Finding:
    """The stack's folders exist, are writable, and are mounted: the container's own folders are lost with it. Data and
    credentials are readable, but not writable from the container."""
    for place in probes.mounts:
        if not place.there:
            return problem("folder-not-mounted", f"{place.path}: does not exist", "a mounted folder")
        if place.problem:
            id = ERRORS.get(place.error, "read-only" if place.read_only else "mount-source-not-yours")
            whose = "" if place.owner is None else f" (uid {place.owner})"
            return problem(id, f"{place.path}: {place.problem}", "writable", whose=whose)
    for place in probes.read_only:
        if place.problem:
            id = ERRORS.get(place.error, "mount-source-not-readable")
            return problem(id, f"{place.path}: {place.problem}", "readable")
    for place in (*probes.mounts, *probes.read_only):
        if not place.mounted:
            id = "folder-not-kept" if place in probes.mounts else "data-not-mounted"
            return problem(id, f"{place.path}: not mounted", "mounted")
    for place in probes.mounts:
        if place.free_gb is not None and place.free_gb < MIN_DISK_GB:
            return problem("checkpoint-space-low", f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_DISK_GB:g} GB")
    for place in probes.read_only:
        if not place.read_only:
            return problem("data-writable", f"{place.path}: writable", "read-only")
    others = f", {len(probes.read_only)} readable" if probes.read_only else ""
    return passed(f"{count(len(probes.mounts), 'folder')}, writable{others}")


@check(
    "caches",
    "Caches",
    needs="user",
    causes="disk-full network-drive cache-read-only cache-owned-by-root cache-owned-by-other",
    project=True,
)
def caches(probes: Any, stack: Stack) -> Finding:
    """Model hubs, compilers, and plotting libraries can write their folders below ~/.cache."""
    mounted = {place.path for place in probes.mounts}
    for place in probes.caches:
        if place.problem and place.path not in mounted:  # `mounts` checks those
            id = ERRORS.get(place.error, "cache-owned-by-root" if place.owner == 0 else "cache-owned-by-other")
            id = "cache-read-only" if id == "read-only" else id
            names = (name for name, value in probes.environment.items() if value == place.path)
            name = next(names, "XDG_CACHE_HOME")
            return problem(id, f"{place.path}: {place.problem}", "writable", owner=place.owner, name=name)
    return passed(", ".join(place.path for place in probes.caches))


@check("room", "Temporary files", causes="disk-full no-temporary-folder temporary-space-low", project=True)
def room(probes: Any, stack: Stack) -> Finding:
    """One megabyte can be written to the folder for temporary files."""
    for place in probes.temporary:
        if place.problem:
            id = "disk-full" if ERRORS.get(place.error) == "disk-full" else "no-temporary-folder"
            return problem(id, f"{place.path}: {place.problem}", "writable")
        if place.free_gb is not None and place.free_gb < MIN_DISK_GB:
            return problem("temporary-space-low", f"{place.path}: {place.free_gb:.2g} GB free", f"{MIN_DISK_GB:g} GB")
    return passed(", ".join(f"{place.path}: {place.free_gb or 0:.0f} GB free" for place in probes.temporary))


MIN_SHM_GB = 1.0  # if the stack sets no size; Docker's default of 64 MB leads to a bus error
MIN_FREE_SHM_GB = 0.03  # for this check and a small batch


def gigabytes(size: str) -> float:
    """A size as Docker writes it: 16gb, 512m."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([bkmgt]?)i?b?", size.strip().lower()).groups()
    return float(number) * UNITS[unit or "b"]


@check("shm", "Shared memory", causes="shared-memory-leftovers shared-memory-small")
def shm(probes: Any, stack: Stack) -> Finding:
    """The size of /dev/shm, which DataLoader workers use to pass batches."""
    if probes.shm_gb is None:
        return skipped("no-shared-memory")
    size, free = probes.shm_gb
    promised = stack.memory.shm_size
    least = gigabytes(promised) if promised else MIN_SHM_GB
    whose = "the host's, " if stack.memory.ipc == "host" else ""
    seen = f"{size:.2g} GB"
    expected = promised or f"{whose}at least {MIN_SHM_GB:g} GB"
    if free < MIN_FREE_SHM_GB:
        return problem("shared-memory-leftovers", f"{seen}, {free * 1024:.0f} MB free", expected)
    if size >= 0.95 * least:
        return passed(seen, expected)
    return problem("shared-memory-small", seen, expected)


MIN_OPEN_FILES = 1024  # Linux's default, which a DataLoader with workers and a large data set can exceed
MIN_RAM_GB = 2.0  # torch itself uses half of it, and each DataLoader worker a few hundred megabytes


def _size(value: int) -> str:
    return "unlimited" if value < 0 else f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


def _less_than(value: int, least: int) -> bool:
    """-1 is unlimited."""
    return value >= 0 and (least < 0 or value < least)


@check("limits", "Limits", causes="memlock-limit stack-limit-low open-files-limit-low", project=True, container=True)
def limits(probes: Any, stack: Stack) -> Finding:
    """Limits of locked memory, stack, and open files, against those in devcontainer.json."""
    found = probes.limits
    asked = stack.memory.ulimits
    for name, what, id in (("memlock", "locked memory", "memlock-limit"), ("stack", "stack", "stack-limit-low")):
        if name in asked and _less_than(found[name], asked[name]):
            return problem(id, f"{what}: {_size(found[name])}", _size(asked[name]))
    least = asked.get("nofile", MIN_OPEN_FILES)
    if _less_than(found["nofile"], least):
        return problem("open-files-limit-low", f"open files: {found['nofile']}", f"at least {least}")
    files = "unlimited" if found["nofile"] < 0 else str(found["nofile"])
    return passed(f"locked memory {_size(found['memlock'])}, stack {_size(found['stack'])}, {files} open files")


@check("cpus", "CPUs", causes="cpu-quota-small")
def cpus(probes: Any, stack: Stack) -> Finding:
    """The CPUs that this process can run on, and the container's CPU quota."""
    has = probes.processors
    usable = has.allowed if has.quota is None else min(has.quota, has.allowed)
    seen = f"{usable:g} of {has.machine}"
    threads = int(has.threads) if has.threads.isdigit() else has.allowed
    # Twice as many threads as CPUs do little harm. torch counts the CPUs that it can run on, not the quota.
    if threads > 4 * max(1, usable):
        seen += f", with {threads} threads"
        return problem("cpu-quota-small", seen, "about as many threads as CPUs", number=max(1, int(usable)))
    return passed(seen)


@check("ram", "Memory", causes="memory-low")
def ram(probes: Any, stack: Stack) -> Finding:
    """Free memory of the machine, within the container's limit."""
    has = probes.ram
    if has.free_gb is None:
        return skipped("not-reported", who="the kernel")
    seen = f"{has.free_gb:.1f} of {has.total_gb:.0f} GB free"
    if has.limit_gb is not None:
        seen += f", limited to {has.limit_gb:.1f} GB"
    seen += f", swap {has.swap_gb:.0f} GB" if has.swap_gb else ", no swap"
    if has.free_gb < MIN_RAM_GB:
        return problem("memory-low", seen, f"at least {MIN_RAM_GB:g} GB free")
    return passed(seen)
