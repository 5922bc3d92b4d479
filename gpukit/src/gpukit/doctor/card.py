"""This machine's GPUs: the project's targets, MIG, several kinds, NVSwitch, memory that CPU and GPU share."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.engine import remote, without_gpu
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.host.cards import Card, cards, hardware
from gpukit.host.facts import FASTOS, MODEL, TEGRA
from gpukit.host.kernels import runs
from gpukit.host.stacks import update_answers
from gpukit.project.stack import Stack


@check(
    "card",
    "GPU supported",
    needs="driver",
    causes="card-not-a-target no-kernel card-not-supported wrong-architecture card-not-listed",
)
def card(probes: Any, stack: Stack) -> Finding:
    """The image has compiled kernels only for the targets' compute capabilities.

    Outside a project: whether PyTorch has kernels for the GPU.
    """
    if not stack.gpu:
        return _cpu_project(probes, stack)
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    found = [card for card in _cards(probes) if card.capability]
    expected = "compute capability " + " or ".join(stack.capabilities)
    if not found:
        return skipped("not-reported", expected=expected, who="nvidia-smi", what="the GPU's compute capability")
    seen = ", ".join(dict.fromkeys(f"{card.name} ({card.capability})" for card in found))
    ids = [id for id in (hardware(card, probes.arch) for card in found) if id]
    if any(id in stack.targets for id in ids):
        return passed(seen, expected)
    kernels = stack.kernels.get(probes.arch)
    serves = kernels and any(runs(card.capability, kernels.sass, kernels.ptx) for card in found)
    if stack.standalone:
        return problem("card-not-listed" if serves else "card-not-supported", seen, "" if serves else expected)
    answer = next(filter(None, (update_answers(stack, id) for id in ids)), "")
    if not kernels:
        if not answer:
            return problem("card-not-supported", seen, expected)
        processors = " or ".join(sorted(stack.kernels))
        return problem("wrong-architecture", f"{seen} on {probes.arch}", f"{expected} on {processors}", answers=answer)
    if any(card.capability in stack.capabilities for card in found):
        return passed(seen, expected)
    if serves:
        return problem("card-not-a-target" if answer else "card-not-listed", seen, expected, answers=answer)
    return problem("no-kernel" if answer else "card-not-supported", seen, expected, answers=answer)


def _cpu_project(probes: Any, stack: Stack) -> Finding:
    """The finding for a project without a GPU, on a machine that may have one."""
    for card in [] if stack.standalone else cards(probes.cards.out):
        answer = update_answers(stack, hardware(card, probes.arch))
        if answer:
            return skipped("no-gpu-requested", card.name, answers=answer)
    return skipped("no-gpu-requested")


def _cards(probes: Any) -> list[Card]:
    """nvidia-smi's rows. On a Jetson or DGX Spark, the GPU follows from the system if nvidia-smi does not report it."""
    found = cards(probes.cards.out)
    if any(card.capability for card in found):
        return found
    if "spark" in (probes.text(FASTOS) or "").lower():
        return [Card("DGX Spark", "", "12.1")]
    if probes.text(TEGRA) is None:
        return found
    model = probes.text(MODEL) or ""
    capability = "8.7" if "Orin" in model else "11.0" if "Thor" in model else "7.2" if "Xavier" in model else ""
    return [Card(model, "", capability)]


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
    service = probes.fabric_manager
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
