"""Special hardware: MIG, several kinds of GPUs, NVSwitch, memory that CPU and GPU share."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.engine import without_gpu
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.host.cards import cards
from gpukit.project.stack import Stack

# Of a memory that CPU and GPU share. Users' reports of frozen machines begin with less than this.
LEAST = 0.2
# The driver may fail to allocate with less than this really free, whatever the page cache could give back.
# Source: https://docs.nvidia.com/dgx/dgx-spark/known-issues.html, which recommends to drop the caches (2026-11-23).
UNCACHED = 0.1
# The driver's line when an allocation fails: https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1358 (2026-11-25)
FAILED = "_memdescAllocInternal"


def _unreadable(probes: Any, stack: Stack) -> Finding | None:
    return without_gpu(probes, stack) or (None if probes.cards.code == 0 else skipped("not-reported"))


@check("mig", "MIG", needs="driver", causes="mig-empty mig-whole-gpu", skip=_unreadable)
def mig(probes: Any, stack: Stack) -> Finding:
    """A GPU in MIG mode can be used only through its slices."""
    modes = [line.strip() for line in probes.mig.out.splitlines() if line.strip()] if probes.mig.code == 0 else []
    enabled = [index for index, mode in enumerate(modes) if mode == "Enabled"]
    if not enabled:
        return passed("off" if "Disabled" in modes else "not on this machine")
    slices = re.findall(r"^\s+MIG (\S+)\s+Device\s+\d+:", probes.listed.out, re.MULTILINE)
    if probes.listed.code == 0 and not slices and len(enabled) == len(modes):
        return problem("mig-empty", "on, without a slice", "a slice")
    chosen = probes.gpus or ""
    if chosen.isdigit() and int(chosen) in enabled and len(slices) > 1:
        return problem("mig-whole-gpu", f"GPUS={chosen}, {count(len(slices), 'slice')}", "a slice's UUID")
    return passed(f"on, {count(len(slices), 'slice')}" + (f": {', '.join(slices)}" if slices else ""))


@check("mixed", "Kinds of GPUs", needs="driver", causes="mixed-gpus", skip=_unreadable)
def mixed(probes: Any, stack: Stack) -> Finding:
    """DGX Station's GB300 must not be given to a container together with its display GPU."""
    found = cards(probes.cards.out)
    coherent = [index for index, card in enumerate(found) if "GB300" in card.name]
    seen = ", ".join(dict.fromkeys(card.name for card in found)) or "unknown"
    if coherent and len(coherent) < len(found) and probes.gpus in (None, "all"):
        return problem(
            "mixed-gpus",
            f"{seen}; GPUS={probes.gpus or 'all'}",
            "one kind",
            index=coherent[0],
            name=found[coherent[0]].name,
        )
    return passed(seen)


@check("fabric", "NVSwitch", needs="driver", causes="fabric-manager fabric-not-ready", skip=_unreadable)
def fabric(probes: Any, stack: Stack) -> Finding:
    """On GPUs connected by NVSwitch, CUDA starts only after the fabric manager."""
    states = {line.strip() for line in probes.fabric.out.splitlines()} if probes.fabric.code == 0 else set()
    service = probes.units.get("nvidia-fabricmanager", "")
    switches = sum(device.kind == "switch" for device in probes.pci or ())
    expected = "the fabric manager runs"
    if (switches or states & {"In Progress", "Not Started"}) and service in ("inactive", "failed"):
        return problem("fabric-manager", f"nvidia-fabricmanager is {service}", expected)
    if states & {"In Progress", "Not Started"}:
        return problem("fabric-not-ready", f"fabric: {', '.join(sorted(states))}", expected)
    if "Completed" in states or switches:
        return passed("ready")
    return passed("none")


@check(
    "memory",
    "Unified memory",
    causes="shared-memory-taken shared-memory-swapped shared-memory-refused shared-memory-cached",
    skip=without_gpu,
)
def memory(probes: Any, stack: Stack) -> Finding:
    """Where CPU and GPU share their memory: how much is free, how much holds cached files, and how much is swapped."""
    targets = [target.unified_memory for target in stack.targets.values() if target.capability]
    if not all(targets) and not (any(targets) and probes.local.unified_memory):
        return skipped("gpu-has-own-memory")
    here = probes.meminfo
    if "MemAvailable" not in here:
        return skipped("not-reported", who="the kernel")
    total = here["MemTotal"]
    swap = here.get("SwapTotal", 0)
    swapped = swap - here.get("SwapFree", swap)
    seen = f"{here['MemAvailable'] / 1e9:.0f} of {total / 1e9:.0f} GB free"
    seen += f", {swapped / 1e9:.0f} of {swap / 1e9:.0f} GB swap used" if swap else ", no swap"
    if here["MemAvailable"] < LEAST * total:
        return problem("shared-memory-taken", seen, f"at least {LEAST * total / 1e9:.0f} GB free")
    if swapped > swap / 2:
        return problem("shared-memory-swapped", seen, "little swap used")
    if failed := (probes.log or "").count(FAILED):
        return problem("shared-memory-refused", f"{seen}; {count(failed, 'failed allocation')} of the driver", "none")
    if here["MemFree"] < UNCACHED * total:
        return problem(
            "shared-memory-cached",
            f"{seen}, of which {(here['MemAvailable'] - here['MemFree']) / 1e9:.0f} GB are cached files",
            "",
        )
    return passed(seen)
