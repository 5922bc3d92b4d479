"""Limits, processors, memory, and clock."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import START

MIN_OPEN_FILES = 1024  # Linux's default, which a DataLoader with workers and a large data set can exceed

LOW_MEMLOCK = Cause(
    "memlock-limit",
    "The limit of locked memory is low: NCCL over InfiniBand and RDMA fail.",
    START,
    error_texts=("Cannot allocate memory", "ibv_reg_mr", "memlock"),
    status=WARN,
)
LOW_STACK = Cause(
    "stack-limit-low",
    "The stack is smaller than devcontainer.json requests: deep recursion in native code crashes.",
    START,
    error_texts=("Segmentation fault",),
    status=WARN,
)
LOW_FILES = Cause(
    "open-files-limit-low",
    "The limit of open files is low: a DataLoader with workers can exceed it.",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json",
    error_texts=("Too many open files",),
    status=WARN,
)
OTHER_SOCKET = Cause(
    "cpus-far-from-gpu",
    "This container runs on the CPUs of another socket than the GPU's, which makes copies to the GPU slower.",
    "Add `--cpuset-cpus={near}` to runArgs in devcontainer.json",
    status=WARN,
)
MIN_FREE_GB = 2.0  # torch itself uses half of it, and each DataLoader worker a few hundred megabytes
LITTLE_MEMORY = Cause(
    "memory-low",
    "Little memory is free: the kernel kills processes when none is left.",
    "Check `free -h` on the host and `docker stats`; stop other programs, or raise `--memory` in runArgs",
    error_texts=("Killed", "exit code 137"),
    status=WARN,
)
WRONG_CLOCK = Cause(
    "clock-wrong",
    "This machine's clock is behind: certificates are rejected, and files have dates in the future.",
    "On the host: `sudo hwclock -s`, or `wsl --shutdown` in Windows",
    error_texts=("certificate is not yet valid",),
    status=WARN,
)
THROTTLED = Cause(
    "cpu-quota-small",
    "torch starts one thread per CPU, but the container's CPU quota is much smaller.",
    "`export OMP_NUM_THREADS={number}`",
    status=WARN,
)


def _size(value: int) -> str:
    return "unlimited" if value < 0 else f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


def _less_than(value: int, least: int) -> bool:
    """-1 is unlimited."""
    return value >= 0 and (least < 0 or value < least)


@check("limits", "Limits", causes=(LOW_MEMLOCK, LOW_STACK, LOW_FILES))
def limits(probes: Any, stack: Stack) -> Finding:
    """Limits of locked memory, stack, and open files, against those in devcontainer.json."""
    found, asked = probes.limits, stack.memory.ulimits
    for name, what, cause in (("memlock", "locked memory", LOW_MEMLOCK), ("stack", "stack", LOW_STACK)):
        if name in asked and _less_than(found[name], asked[name]):
            return cause(f"{what}: {_size(found[name])}", _size(asked[name]))
    least = asked.get("nofile", MIN_OPEN_FILES)
    if _less_than(found["nofile"], least):
        return LOW_FILES(f"open files: {found['nofile']}", f"at least {least}")
    files = "unlimited" if found["nofile"] < 0 else str(found["nofile"])
    return passed(f"locked memory {_size(found['memlock'])}, stack {_size(found['stack'])}, {files} open files")


@check("cpus", "CPUs", causes=(THROTTLED, OTHER_SOCKET))
def cpus(probes: Any, stack: Stack) -> Finding:
    """The CPUs that this process can run on, and the container's CPU quota."""
    has = probes.processors
    usable = has.allowed if has.quota is None else min(has.quota, has.allowed)
    seen = f"{usable:g} of {has.machine}"
    threads = int(has.threads) if has.threads.isdigit() else has.allowed
    # Twice as many threads as CPUs do little harm. torch counts the CPUs that it can run on, not the quota.
    if threads > 4 * max(1, usable):
        return THROTTLED(f"{seen}, with {threads} threads", "about as many threads as CPUs", number=max(1, int(usable)))
    far = [near for near in has.near if not has.ours & processors(near)]
    if far and len(far) == len(has.near):
        return OTHER_SOCKET(f"{seen}; the GPU's socket has {far[0]}", "CPUs of the GPU's socket", near=far[0])
    return passed(seen)


def processors(listed: str) -> set[int]:
    """The numbers in the kernel's notation 0-3,8."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


@check("ram", "Memory", causes=(LITTLE_MEMORY,))
def ram(probes: Any, stack: Stack) -> Finding:
    """Free memory of the machine, within the container's limit."""
    has = probes.ram
    if has.free_gb is None:
        return skipped("The kernel does not report it.")
    seen = f"{has.free_gb:.1f} of {has.total_gb:.0f} GB free"
    if has.limit_gb is not None:
        seen += f", limited to {has.limit_gb:.1f} GB"
    seen += f", swap {has.swap_gb:.0f} GB" if has.swap_gb else ", no swap"
    if has.free_gb < MIN_FREE_GB:
        return LITTLE_MEMORY(seen, f"at least {MIN_FREE_GB:g} GB free")
    return passed(seen)


@check("clock", "Clock", causes=(WRONG_CLOCK,))
def clock(probes: Any, stack: Stack) -> Finding:
    """The clock is not behind the dates of the project's files."""
    now, newest = probes.clock
    seen = now.date().isoformat()
    if newest is not None and (newest - now).days >= 1:
        return WRONG_CLOCK(seen, f"{newest.date().isoformat()} (the date of this project's files) or later")
    return passed(seen)
