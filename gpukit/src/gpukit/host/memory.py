"""Memory that the CPU and the GPU share, as on a DGX Spark or a Jetson, and how much of it PyTorch may use.

Too large an allocation there freezes the whole machine, and Docker's memory limit does not count CUDA's allocations. So
PYTORCH_ALLOC_CONF sets a cap for each process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MEMINFO = Path("/proc/meminfo")

CAP = "per_process_memory_fraction"  # its key in PYTORCH_ALLOC_CONF
VARIABLE = "GPUKIT_MEMORY_FRACTION"  # what devcontainer.json and compose.yaml set the cap to
RESERVE = 0.05  # of the memory stays free: the kernel kills programs when the last of it is used


def meminfo() -> dict[str, int]:
    """/proc/meminfo in bytes; empty where there is none."""
    try:
        return parse(MEMINFO.read_text(encoding="utf-8"))
    except OSError:
        return {}


def parse(text: str) -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}


def shared(targets: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether this machine's CPU and GPU share their memory; where all targets agree, they decide."""
    kinds = {target["unified_memory"] for target in targets.values() if target["capability"]}
    return kinds == {True} or (True in kinds and unified())


def unified() -> bool:
    """The same by the files that the system and the driver provide, without starting a program."""
    from gpukit.errors.machine import Machine
    from gpukit.host import cards, facts  # seldom needed, and every command of launch would import them

    machine = Machine(arch=facts.arch(), jetson=facts.jetson())
    ids = facts.hardware(machine._replace(gpus=tuple(facts.named(machine))))
    return bool(machine.jetson) or any(cards.data("cards")[id]["unified_memory"] for id in ids)


def usual() -> float:
    """The most that the catalogue gives PyTorch of such a memory, for a machine that is no target of the project."""
    from gpukit.host.cards import data

    return min(found["memory"]["fraction"] or 1.0 for found in data("stacks")["stacks"].values())


def fraction(stack: Mapping[str, Any]) -> float | None:
    """What one process may use of the memory now: at most the stack's fraction; None if there is nothing to cap.

    A second container gets what the first has left.
    """
    most = (stack.get("memory") or {}).get("fraction")
    here = meminfo()
    if not most or "MemAvailable" not in here:
        return None
    if not shared(stack["targets"]):
        return 1.0
    free = here["MemAvailable"] / here["MemTotal"] - RESERVE
    return max(0.01, int(min(most, free) * 100) / 100)
