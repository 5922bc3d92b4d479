"""What the container is given of the machine: processors and limits."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import START

FILES = 1024  # what Linux starts with; a DataLoader with workers and a large data set come to it

LOW_MEMLOCK = Cause(
    "Little memory may be locked: NCCL over InfiniBand and RDMA fail.",
    START,
    says=("Cannot allocate memory", "ibv_reg_mr", "memlock"),
    status=WARN,
)
LOW_STACK = Cause(
    "The stack is smaller than the project asks for: deep recursion in native code ends in a crash.",
    START,
    says=("Segmentation fault",),
    status=WARN,
)
LOW_FILES = Cause(
    "Few files may be open at a time: a DataLoader with workers runs out of them.",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json",
    says=("Too many open files",),
    status=WARN,
)
FAR_AWAY = Cause(
    "This container runs on processors of another socket than the GPU's: each copy to it takes the long way.",
    "Add `--cpuset-cpus={near}` to runArgs in devcontainer.json",
    status=WARN,
)
LEAST_GB = 2.0  # torch itself takes half of it, and each worker of a DataLoader some hundred megabytes
LITTLE_MEMORY = Cause(
    "Little memory is left: the kernel ends processes without a word when it runs out.",
    "Look at `free -h` on the host and at `docker stats`; end what is not needed, or raise `--memory` in runArgs",
    says=("Killed", "exit code 137"),
    status=WARN,
)
WRONG_CLOCK = Cause(
    "This machine's clock is behind: certificates are refused, and files seem to come from the future.",
    "On the host: sudo hwclock -s, or `wsl --shutdown` in Windows",
    says=("certificate is not yet valid",),
    status=WARN,
)
THROTTLED = Cause(
    "torch starts a thread for each processor that it sees, and the container may use the time of far fewer.",
    "export OMP_NUM_THREADS={number}",
    status=WARN,
)


def _size(value: int) -> str:
    return "unlimited" if value < 0 else f"{value >> 20} MiB" if value >= 1 << 20 else f"{value >> 10} KiB"


def _below(value: int, least: int) -> bool:
    """-1 is unlimited."""
    return value >= 0 and (least < 0 or value < least)


@check("limits", "Limits", causes=(LOW_MEMLOCK, LOW_STACK, LOW_FILES))
def limits(saw: Any, stack: Stack) -> Finding:
    """Locked memory, stack and open files, against what devcontainer.json asks for."""
    found, asked = saw.limits, stack.memory.ulimits
    for name, what, cause in (("memlock", "locked memory", LOW_MEMLOCK), ("stack", "stack", LOW_STACK)):
        if name in asked and _below(found[name], asked[name]):
            return cause(f"{what}: {_size(found[name])}", _size(asked[name]))
    least = asked.get("nofile", FILES)
    if _below(found["nofile"], least):
        return LOW_FILES(f"open files: {found['nofile']}", f"at least {least}")
    files = "unlimited" if found["nofile"] < 0 else str(found["nofile"])
    return passed(f"locked memory {_size(found['memlock'])}, stack {_size(found['stack'])}, {files} open files")


@check("cpus", "Processors", causes=(THROTTLED, FAR_AWAY))
def cpus(saw: Any, stack: Stack) -> Finding:
    """How many may be used: those this process may run on, and the share of time that the container is given."""
    has = saw.processors
    usable = has.allowed if has.quota is None else min(has.quota, has.allowed)
    seen = f"{usable:g} of {has.machine}"
    threads = int(has.threads) if has.threads.isdigit() else has.allowed
    # Twice as many threads as processors do little harm; torch itself counts those it may run on, not its share.
    if threads > 4 * max(1, usable):
        return THROTTLED(f"{seen}, for {threads} threads", "about as many", number=max(1, int(usable)))
    far = [near for near in has.near if not has.ours & processors(near)]
    if far and len(far) == len(has.near):
        return FAR_AWAY(f"{seen}; the GPU's are {far[0]}", "some of the GPU's", near=far[0])
    return passed(seen)


def processors(listed: str) -> set[int]:
    """What the kernel writes as 0-3,8."""
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


@check("ram", "Memory", causes=(LITTLE_MEMORY,))
def ram(saw: Any, stack: Stack) -> Finding:
    """What the machine has free, and what the container's limit leaves of it."""
    has = saw.ram
    if has.free_gb is None:
        return skipped("The machine does not tell.")
    seen = f"{has.free_gb:.1f} of {has.total_gb:.0f} GB free"
    if has.limit_gb is not None:
        seen += f", limited to {has.limit_gb:.1f} GB"
    seen += f", swap {has.swap_gb:.0f} GB" if has.swap_gb else ", no swap"
    if has.free_gb < LEAST_GB:
        return LITTLE_MEMORY(seen, f"at least {LEAST_GB:g} GB free")
    return passed(seen)


@check("clock", "Clock", causes=(WRONG_CLOCK,))
def clock(saw: Any, stack: Stack) -> Finding:
    """Not behind the files that it has itself written."""
    now, newest = saw.clock
    seen = now.date().isoformat()
    if newest is not None and (newest - now).days >= 1:
        return WRONG_CLOCK(seen, f"{newest.date().isoformat()}, as this project's files say, or later")
    return passed(seen)
