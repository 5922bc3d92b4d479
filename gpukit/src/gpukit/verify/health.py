"""Health of the GPUs: ECC, remapped rows, compute mode, and the driver's errors."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
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

UNCORRECTABLE = Cause(
    "gpu-memory-fault",
    "ECC found uncorrectable memory errors: results since then may be wrong.",
    "Restart the host; if they occur again, replace the GPU",
    error_texts=("uncorrectable ECC error encountered", "Xid 48"),
)
NO_SPARE_ROWS = Cause(
    "gpu-memory-no-spare-rows",
    "A defective row of the GPU's memory could not be remapped: no spare row is left.",
    "Replace the GPU.",
    error_texts=("Xid 64",),
)
PENDING = Cause(
    "gpu-memory-rows-pending",
    "Defective rows of the GPU's memory will be remapped at the next reset.",
    "Restart the host, or reset the GPU there: `sudo nvidia-smi --gpu-reset`",
    status=WARN,
    error_texts=("Xid 63",),
)
RECOVERY = Cause(
    "driver-requests-recovery",
    "The driver requests a recovery action: {action}.",
    "Restart the host, or reset the GPU there: `sudo nvidia-smi --gpu-reset`",
    status=WARN,
)
XID = Cause(
    "gpu-reported",
    "The driver reported a hardware error: {what}.",
    "On the host: `sudo dmesg | grep Xid`, then restart it",
    status=WARN,
    error_texts=("NVRM: Xid",),
)
EXCLUSIVE = Cause(
    "gpu-mode-exclusive",
    "Only one process at a time can use this GPU: a notebook and a training run exclude each other.",
    "On the host: `sudo nvidia-smi -c DEFAULT`",
    status=WARN,
    error_texts=("CUDA-capable device(s) is/are busy or unavailable",),
)
NO_SMI = "nvidia-smi does not work here"


@check("health", "GPU health", needs=("gpu",), causes=(UNCORRECTABLE, NO_SPARE_ROWS, PENDING, RECOVERY))
def health(probes: Any, stack: Stack) -> Finding:
    """ECC errors, remapped rows, and recovery actions that the driver requests, from nvidia-smi."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if not probes.smi.cards:
        return skipped(f"{NO_SMI}: {probes.smi.message or 'it lists no GPU'}.")
    for card in probes.smi.cards:
        if card.failure:
            return NO_SPARE_ROWS(f"{card.name}: no spare row left", "none failed")
        if card.uncorrected:
            return UNCORRECTABLE(f"{card.name}: {count(card.uncorrected, 'uncorrected error')}", "none")
    for card in probes.smi.cards:
        if card.pending:
            return PENDING(f"{card.name}: rows or pages pending", "none")
        if card.recovery:
            return RECOVERY(f"{card.name}: {card.recovery}", "none", action=card.recovery)
    ecc = {0: "no memory errors", None: "memory without ECC, or unknown"}
    states = dict.fromkeys(ecc[card.uncorrected] for card in probes.smi.cards)
    heat = [str(card.temperature) for card in probes.smi.cards if card.temperature is not None]
    return passed(", ".join(states) + (f"; {', '.join(heat)} °C" if heat else ""))


@check("mode", "Compute mode", needs=("gpu",), causes=(EXCLUSIVE,))
def mode(probes: Any, stack: Stack) -> Finding:
    """Several processes can use a GPU at the same time, such as a notebook and a training run."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    modes = list(dict.fromkeys(card.mode for card in probes.smi.cards if card.mode not in ("", "N/A")))
    if not modes:
        return skipped("nvidia-smi does not report it.")
    if any(mode.startswith("Exclusive") for mode in modes):
        return EXCLUSIVE(", ".join(modes), "Default")
    return passed(", ".join(modes))


@check("xid", "Xid errors", needs=("gpu",), causes=(XID,))
def xid(probes: Any, stack: Stack) -> Finding:
    """Xid errors of the driver in the kernel's log, which most containers cannot read."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if probes.xids is None:
        return skipped("The kernel's log cannot be read here; on the host: sudo dmesg | grep Xid.")
    for bus, number in probes.xids:
        if number in XIDS:
            return XID(f"Xid {number} of {bus}", "no hardware errors", what=XIDS[number])
    return passed(f"no hardware errors{f', {len(probes.xids)} errors of programs' if probes.xids else ''}")
