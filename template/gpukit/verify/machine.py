"""What the container is given of the machine: processors and limits."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import WARN, Cause, Finding, passed
from gpukit.stack import Stack
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


@check("cpus", "Processors", causes=(THROTTLED,))
def cpus(saw: Any, stack: Stack) -> Finding:
    """How many may be used: those this process may run on, and the share of time that the container is given."""
    has = saw.processors
    usable = has.allowed if has.quota is None else min(has.quota, has.allowed)
    seen = f"{usable:g} of {has.machine}"
    threads = int(has.threads) if has.threads.isdigit() else has.allowed
    # Twice as many threads as processors do little harm; torch itself counts those it may run on, not its share.
    if threads > 4 * max(1, usable):
        return THROTTLED(f"{seen}, for {threads} threads", "about as many", number=max(1, int(usable)))
    return passed(seen)
