"""Whether the GPUs are sound and free, before anything is downloaded to this machine: a rented one may be neither."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.engine import without_gpu
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.host import health as judge
from gpukit.host.cards import cards
from gpukit.project.stack import Stack

# Of a GPU's memory. An idle GPU without a display uses some MiB of it; in a pod, nvidia-smi may list no process.
BUSY = 0.05


def unreadable(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if nvidia-smi does not describe the GPUs; `health` reports that it did not answer."""
    found = without_gpu(probes, stack)
    return found or (None if probes.smi.cards else skipped("nvidia-smi-unusable", message=probes.smi.message))


health = check("health", "GPU health", needs="driver", causes=judge.HEALTH, skip=without_gpu)(judge.health)
xid = check("xid", "Xid errors", needs="driver", causes=judge.XID, skip=without_gpu)(judge.xid)


@check("busy", "GPU in use", needs="driver", causes="gpu-busy", skip=unreadable)
def busy(probes: Any, stack: Stack) -> Finding:
    """No other program computes on the GPU or holds its memory; what a display needs is not counted."""
    used = []
    for card in probes.smi.cards:
        held = bool(card.used and card.memory) and card.used > BUSY * card.memory and not card.display and not card.mig
        if held or card.computing:
            memory = "memory unknown" if card.used is None else f"{card.used} MiB"
            used.append(f"{card.name}: {memory}, programs listed: {card.computing}")
    return problem("gpu-busy", "; ".join(used), "nothing else") if used else passed("free")


@check("lost", "GPUs present", needs="driver", causes="gpu-missing", skip=without_gpu)
def lost(probes: Any, stack: Stack) -> Finding:
    """nvidia-smi lists every GPU that this machine has on its bus, or that a container or job was given."""
    found = len(cards(probes.cards.out))
    there = probes.given
    if found < there:
        return problem("gpu-missing", f"{found} of {there}", count(there, "GPU"), missing=there - found)
    return passed(count(found, "GPU"))


@check("link", "PCIe link", needs="driver", causes="link-narrow", skip=unreadable)
def link(probes: Any, stack: Stack) -> Finding:
    """Each GPU uses all lanes that it can have here. The generation says nothing: it drops while a GPU is idle."""
    known = [card for card in probes.smi.cards if card.width and card.widest]
    for card in known:
        if card.width < card.widest:
            return problem("link-narrow", f"{card.name}: x{card.width}", f"x{card.widest}")
    return passed(", ".join(f"x{card.width}" for card in known)) if known else skipped("not-reported")


@check("clocks", "Clocks", needs="driver", causes=judge.SLOWED, skip=unreadable)
def clocks(probes: Any, stack: Stack) -> Finding:
    """What reduces the clocks now, other than the power limit: heat, or too little power."""
    found = (judge.slowed(card.slowed) for card in probes.smi.cards)
    return next(filter(None, found), None) or passed("not reduced")
