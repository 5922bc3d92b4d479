"""The health of the GPUs, from nvidia-smi and the kernel's log: for doctor on the host, and for verify beside torch."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from typing import Any

from gpukit.errors.known import lookup
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack

# The ids of the causes that each judgment can report.
HEALTH = (
    "driver-hangs gpu-lost gpu-memory-fault gpu-memory-no-spare-rows gpu-memory-rows-pending driver-requests-recovery"
)
LOST = ("gpu-lost", "gpu-state")  # signs in what nvidia-smi prints
XID = "gpu-reported"
SLOWED = ("gpu-heat", "gpu-power-brake")
# What reduces clocks beyond a power cap, which is normal at the limit.
SLOW_HEAT = ("hw_thermal_slowdown", "sw_thermal_slowdown")
SLOW_POWER = ("hw_power_brake_slowdown", "hw_slowdown")
# Those that NVIDIA's list attributes to hardware; errors of programs (13, 31, 43, 45) are not among them.
XIDS = {
    48: "an uncorrectable memory error",
    63: "memory rows were remapped or retired",
    64: "a memory row could not be remapped or retired",
    74: "an NVLink error",
    79: "the GPU fell off the bus",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "the GPU's system processor (GSP) does not respond",
    120: "an error of the GPU's system processor (GSP)",
}
XID_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([\w:.]+)\): (\d+)")


def health(probes: Any, stack: Stack) -> Finding:
    """ECC errors, remapped rows, and recovery actions that the driver requests, from nvidia-smi."""
    if probes.smi.late:
        return problem("driver-hangs", probes.smi.message)
    if lookup(probes.smi.message, LOST):
        return problem("gpu-lost", probes.smi.message)
    if not probes.smi.cards:
        return skipped("nvidia-smi-unusable", message=probes.smi.message or "it lists no GPU")
    for card in probes.smi.cards:
        if card.lost:
            return problem("gpu-lost", f"{card.name}: GPU is lost", "none is lost")
        if card.failure:
            return problem("gpu-memory-no-spare-rows", f"{card.name}: no spare row left", "none failed")
        if card.uncorrected:
            return problem("gpu-memory-fault", f"{card.name}: {count(card.uncorrected, 'uncorrected error')}", "none")
    for card in probes.smi.cards:
        if card.pending:
            return problem("gpu-memory-rows-pending", f"{card.name}: rows or pages pending", "none")
        if card.recovery:
            return problem("driver-requests-recovery", f"{card.name}: {card.recovery}", "none", action=card.recovery)
    ecc = {0: "no memory errors", None: "memory without ECC, or unknown"}
    states = dict.fromkeys(ecc[card.uncorrected] for card in probes.smi.cards)
    heat = [str(card.temperature) for card in probes.smi.cards if card.temperature is not None]
    return passed(", ".join(states) + (f"; {', '.join(heat)} °C" if heat else ""))


def xid(probes: Any, stack: Stack) -> Finding:
    """Xid errors of the driver in the kernel's log, which most containers cannot read."""
    if probes.xids is None:
        return skipped("kernel-log-unreadable")
    for bus, number in probes.xids:
        if number in XIDS:
            return problem("gpu-reported", f"Xid {number} of {bus}", "no hardware errors", what=XIDS[number])
    return passed(f"no hardware errors{f', {len(probes.xids)} errors of programs' if probes.xids else ''}")


def slowed(reasons: Iterable[str]) -> Finding | None:
    """The finding for what reduces the clocks, other than the power limit."""
    for names, id in zip((SLOW_HEAT, SLOW_POWER), SLOWED):
        if active := [name for name in names if name in reasons]:
            return problem(id, ", ".join(active), "none")
    return None


def kernel_log() -> str | None:
    """The kernel's log since it started, as far as it is kept; None if this user cannot read it."""
    parts = []
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        while True:
            with contextlib.suppress(BrokenPipeError):  # lines were overwritten meanwhile; the next ones follow
                if not (part := os.read(log, 8192)):  # some containers have /dev/null in its place
                    return None
                parts.append(part.decode(errors="replace"))
    except BlockingIOError:  # the end
        pass
    except OSError:
        return None
    finally:
        os.close(log)
    return "".join(parts)


def xids(log: str | None) -> tuple[tuple[str, int], ...] | None:
    """The Xid errors in the kernel's log: bus and number; None if there is no log."""
    return None if log is None else tuple(dict.fromkeys((bus, int(number)) for bus, number in XID_LINE.findall(log)))
