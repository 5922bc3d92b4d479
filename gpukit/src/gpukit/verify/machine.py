"""Limits, processors, memory, and clock."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack

MIN_OPEN_FILES = 1024  # Linux's default, which a DataLoader with workers and a large data set can exceed

MIN_FREE_GB = 2.0  # torch itself uses half of it, and each DataLoader worker a few hundred megabytes


def _size(value: int) -> str:
    return "unlimited" if value < 0 else f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


def _less_than(value: int, least: int) -> bool:
    """-1 is unlimited."""
    return value >= 0 and (least < 0 or value < least)


@check("limits", "Limits", causes=("memlock-limit", "stack-limit-low", "open-files-limit-low"))
def limits(probes: Any, stack: Stack) -> Finding:
    """Limits of locked memory, stack, and open files, against those in devcontainer.json."""
    found, asked = probes.limits, stack.memory.ulimits
    for name, what, id in (("memlock", "locked memory", "memlock-limit"), ("stack", "stack", "stack-limit-low")):
        if name in asked and _less_than(found[name], asked[name]):
            return problem(id, f"{what}: {_size(found[name])}", _size(asked[name]))
    least = asked.get("nofile", MIN_OPEN_FILES)
    if _less_than(found["nofile"], least):
        return problem("open-files-limit-low", f"open files: {found['nofile']}", f"at least {least}")
    files = "unlimited" if found["nofile"] < 0 else str(found["nofile"])
    return passed(f"locked memory {_size(found['memlock'])}, stack {_size(found['stack'])}, {files} open files")


@check("cpus", "CPUs", causes=("cpu-quota-small", "cpus-far-from-gpu"))
def cpus(probes: Any, stack: Stack) -> Finding:
    """The CPUs that this process can run on, and the container's CPU quota."""
    has = probes.processors
    usable = has.allowed if has.quota is None else min(has.quota, has.allowed)
    seen = f"{usable:g} of {has.machine}"
    threads = int(has.threads) if has.threads.isdigit() else has.allowed
    # Twice as many threads as CPUs do little harm. torch counts the CPUs that it can run on, not the quota.
    if threads > 4 * max(1, usable):
        return problem(
            "cpu-quota-small",
            f"{seen}, with {threads} threads",
            "about as many threads as CPUs",
            number=max(1, int(usable)),
        )
    far = [near for near in has.near if not has.ours & processors(near)]
    if far and len(far) == len(has.near):
        return problem(
            "cpus-far-from-gpu", f"{seen}; the GPU's socket has {far[0]}", "CPUs of the GPU's socket", near=far[0]
        )
    return passed(seen)


def processors(listed: str) -> set[int]:
    """The numbers in the kernel's notation 0-3,8."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


@check("ram", "Memory", causes=("memory-low",))
def ram(probes: Any, stack: Stack) -> Finding:
    """Free memory of the machine, within the container's limit."""
    has = probes.ram
    if has.free_gb is None:
        return skipped("not-reported", who="the kernel")
    seen = f"{has.free_gb:.1f} of {has.total_gb:.0f} GB free"
    if has.limit_gb is not None:
        seen += f", limited to {has.limit_gb:.1f} GB"
    seen += f", swap {has.swap_gb:.0f} GB" if has.swap_gb else ", no swap"
    if has.free_gb < MIN_FREE_GB:
        return problem("memory-low", seen, f"at least {MIN_FREE_GB:g} GB free")
    return passed(seen)


@check("clock", "Clock", causes=("clock-wrong",))
def clock(probes: Any, stack: Stack) -> Finding:
    """The clock is not behind the dates of the project's files."""
    now, newest = probes.clock
    seen = now.date().isoformat()
    if newest is not None and (newest - now).days >= 1:
        return problem("clock-wrong", seen, f"{newest.date().isoformat()} (the date of this project's files) or later")
    return passed(seen)
