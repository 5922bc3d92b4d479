"""Health of the GPUs: ECC, remapped rows, compute mode, and the driver's errors."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack
from gpukit.verify.device import skipped_without_gpu

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


@check(
    "health",
    "GPU health",
    needs=("gpu",),
    causes=("gpu-memory-fault", "gpu-memory-no-spare-rows", "gpu-memory-rows-pending", "driver-requests-recovery"),
)
def health(probes: Any, stack: Stack) -> Finding:
    """ECC errors, remapped rows, and recovery actions that the driver requests, from nvidia-smi."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if not probes.smi.cards:
        return skipped("nvidia-smi-unusable", message=probes.smi.message or "it lists no GPU")
    for card in probes.smi.cards:
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


@check("mode", "Compute mode", needs=("gpu",), causes=("gpu-mode-exclusive",))
def mode(probes: Any, stack: Stack) -> Finding:
    """Several processes can use a GPU at the same time, such as a notebook and a training run."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    modes = list(dict.fromkeys(card.mode for card in probes.smi.cards if card.mode not in ("", "N/A")))
    if not modes:
        return skipped("not-reported")
    if any(mode.startswith("Exclusive") for mode in modes):
        return problem("gpu-mode-exclusive", ", ".join(modes), "Default")
    return passed(", ".join(modes))


@check("xid", "Xid errors", needs=("gpu",), causes=("gpu-reported",))
def xid(probes: Any, stack: Stack) -> Finding:
    """Xid errors of the driver in the kernel's log, which most containers cannot read."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if probes.xids is None:
        return skipped("kernel-log-unreadable")
    for bus, number in probes.xids:
        if number in XIDS:
            return problem("gpu-reported", f"Xid {number} of {bus}", "no hardware errors", what=XIDS[number])
    return passed(f"no hardware errors{f', {len(probes.xids)} errors of programs' if probes.xids else ''}")
