"""Special hardware: MIG, several kinds of GPUs, NVSwitch, memory that CPU and GPU share."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.driver import NO_GPU_REQUESTED
from gpukit.doctor.engine import ENGINE_IS_REMOTE, remote
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.host.cards import cards
from gpukit.project.stack import Stack

NO_SLICE = Cause(
    "mig-empty",
    "MIG is enabled but no slice exists, so CUDA finds no device.",
    "`sudo nvidia-smi mig -cgi 19 -C` creates the smallest slices; `sudo nvidia-smi -mig 0` disables MIG.",
    ("No CUDA GPUs are available",),
)
WHOLE_GPU = Cause(
    "mig-whole-gpu",
    "MIG divides this GPU into slices, and GPUS names the whole GPU by its index: CUDA uses only one slice.",
    "`GPUS=MIG-...` with one of the UUIDs that `nvidia-smi -L` lists",
    status=WARN,
)
MIXED = Cause(
    "mixed-gpus",
    "A coherent GPU and an ordinary one in the same container break CUDA on this machine.",
    "`GPUS={index}` in .env, the index of the {name}",
    standalone="Choose one kind: `docker run --gpus device={index}`, or `CUDA_VISIBLE_DEVICES={index}` without a "
    "container",
)
NO_FABRIC = Cause(
    "fabric-manager",
    "The GPUs are connected by NVSwitch, and the fabric manager, which must start them, is not running.",
    "`sudo systemctl enable --now nvidia-fabricmanager`, in exactly the driver's version",
    ("Error 802: system not yet initialized", "CUDA_ERROR_SYSTEM_NOT_READY"),
)
FABRIC_NOT_READY = Cause(
    "fabric-not-ready",
    "The GPUs' fabric is not ready: the fabric manager has not finished, or its version is not the driver's.",
    "`sudo systemctl restart nvidia-fabricmanager`",
    ("Error 802: system not yet initialized",),
)

# Of a memory that CPU and GPU share. Users' reports of frozen machines begin with less than this.
LEAST = 0.2
# The driver may fail to allocate with less than this really free, whatever the page cache could give back.
# Source: https://docs.nvidia.com/dgx/dgx-spark/known-issues.html, which recommends to drop the caches (2026-11-23).
UNCACHED = 0.1
MEMORY_TAKEN = Cause(
    "shared-memory-taken",
    "CPU and GPU share their memory, and other programs use most of it: the machine freezes when the last of it is "
    "used.",
    "Stop other programs: `docker stats` and `ps aux --sort=-rss | head` show the largest.",
    ("NV_ERR_NO_MEMORY",),
    status=WARN,
)
SWAPPING = Cause(
    "shared-memory-swapped",
    "CPU and GPU share their memory, and the machine has begun to swap: it can freeze before the kernel stops a "
    "program.",
    "Stop other programs: `docker stats` and `ps aux --sort=-rss | head` show the largest. Then `sudo swapoff -a && "
    "sudo swapon -a` moves everything back into memory.",
    status=WARN,
)
CACHED = Cause(
    "shared-memory-cached",
    "CPU and GPU share their memory, and cached files fill it: CUDA may report that it is out of memory.",
    "`sudo sh -c 'sync; echo 3 > /proc/sys/vm/drop_caches'`",
    ("NV_ERR_NO_MEMORY", "CUDA out of memory"),
    status=WARN,
)


def _cannot_check(probes: Any, stack: Stack) -> str:
    """Why the GPUs cannot be checked; empty if they can."""
    if not stack.gpu:
        return NO_GPU_REQUESTED
    if remote(probes.endpoint):
        return ENGINE_IS_REMOTE
    return "" if probes.cards.code == 0 else "nvidia-smi does not report it."


@check("mig", "MIG", needs=("driver",), causes=(NO_SLICE, WHOLE_GPU))
def mig(probes: Any, stack: Stack) -> Finding:
    """A GPU in MIG mode can be used only through its slices."""
    unseen = _cannot_check(probes, stack)
    if unseen:
        return skipped(unseen)
    modes = [line.strip() for line in probes.mig.out.splitlines() if line.strip()] if probes.mig.code == 0 else []
    enabled = [index for index, mode in enumerate(modes) if mode == "Enabled"]
    if not enabled:
        return passed("off" if "Disabled" in modes else "not on this machine")
    slices = re.findall(r"^\s+MIG (\S+)\s+Device\s+\d+:", probes.listed.out, re.MULTILINE)
    if probes.listed.code == 0 and not slices and len(enabled) == len(modes):
        return NO_SLICE("on, without a slice", "a slice")
    chosen = probes.gpus or ""
    if chosen.isdigit() and int(chosen) in enabled and len(slices) > 1:
        return WHOLE_GPU(f"GPUS={chosen}, {count(len(slices), 'slice')}", "a slice's UUID")
    return passed(f"on, {count(len(slices), 'slice')}" + (f": {', '.join(slices)}" if slices else ""))


@check("mixed", "Kinds of GPUs", needs=("driver",), causes=(MIXED,))
def mixed(probes: Any, stack: Stack) -> Finding:
    """DGX Station's GB300 must not be given to a container together with its display GPU."""
    unseen = _cannot_check(probes, stack)
    if unseen:
        return skipped(unseen)
    found = cards(probes.cards.out)
    coherent = [index for index, card in enumerate(found) if "GB300" in card.name]
    seen = ", ".join(dict.fromkeys(card.name for card in found)) or "unknown"
    if coherent and len(coherent) < len(found) and probes.gpus in (None, "all"):
        return MIXED(
            f"{seen}; GPUS={probes.gpus or 'all'}", "one kind", index=coherent[0], name=found[coherent[0]].name
        )
    return passed(seen)


@check("fabric", "NVSwitch", needs=("driver",), causes=(NO_FABRIC, FABRIC_NOT_READY))
def fabric(probes: Any, stack: Stack) -> Finding:
    """On GPUs connected by NVSwitch, CUDA starts only after the fabric manager."""
    unseen = _cannot_check(probes, stack)
    if unseen:
        return skipped(unseen)
    states = {line.strip() for line in probes.fabric.out.splitlines()} if probes.fabric.code == 0 else set()
    service = probes.units.get("nvidia-fabricmanager", "")
    switches = sum(device.kind == "switch" for device in probes.pci or ())
    expected = "the fabric manager runs"
    if (switches or states & {"In Progress", "Not Started"}) and service in ("inactive", "failed"):
        return NO_FABRIC(f"nvidia-fabricmanager is {service}", expected)
    if states & {"In Progress", "Not Started"}:
        return FABRIC_NOT_READY(f"fabric: {', '.join(sorted(states))}", expected)
    if "Completed" in states or switches:
        return passed("ready")
    return passed("none")


@check("memory", "Unified memory", causes=(MEMORY_TAKEN, SWAPPING, CACHED))
def memory(probes: Any, stack: Stack) -> Finding:
    """Where CPU and GPU share their memory: how much is free, how much holds cached files, and how much is swapped."""
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    targets = [target.unified_memory for target in stack.targets.values() if target.capability]
    if not all(targets) and not (any(targets) and probes.local.unified_memory):
        return skipped("The GPU has its own memory.")
    here = probes.meminfo
    if "MemAvailable" not in here:
        return skipped("The kernel does not report it.")
    total, swap = here["MemTotal"], here.get("SwapTotal", 0)
    swapped = swap - here.get("SwapFree", swap)
    seen = f"{here['MemAvailable'] / 1e9:.0f} of {total / 1e9:.0f} GB free"
    seen += f", {swapped / 1e9:.0f} of {swap / 1e9:.0f} GB swap used" if swap else ", no swap"
    if here["MemAvailable"] < LEAST * total:
        return MEMORY_TAKEN(seen, f"at least {LEAST * total / 1e9:.0f} GB free")
    if swapped > swap / 2:
        return SWAPPING(seen, "little swap used")
    if here["MemFree"] < UNCACHED * total:
        return CACHED(f"{seen}, of which {(here['MemAvailable'] - here['MemFree']) / 1e9:.0f} GB are cached files", "")
    return passed(seen)
