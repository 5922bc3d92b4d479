"""The GPU: whether torch sees it, whether the project is made for it, whether torch has kernels for it."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, failed, passed, skipped, warned
from gpukit.kernels import from_arch_list, runs
from gpukit.stack import Stack
from gpukit.verify.remedies import DOCTOR, UPDATE

WITHOUT = "This is the container without a GPU."

# What CUDA says when it does not start: a part of it -> cause, remedy. The first that fits counts.
COMPLAINTS = (
    (
        "error 802",
        "The switch that joins this machine's GPUs is not ready: its Fabric Manager is not running.",
        "On the host: sudo systemctl start nvidia-fabricmanager",
    ),
    (
        "error 803",
        "The driver was updated, and this container or the host's kernel still has the old one.",
        "Restart the container; if that does not help, restart the host.",
    ),
    (
        "error 804",
        "CUDA's forward-compatibility libraries are in use, and this card does not support them.",
        "On the host: install the driver that `./launch doctor` names",
    ),
    (
        "driver on your system is too old",
        "The host's driver is too old for the CUDA of this torch.",
        "On the host: install the driver that `./launch doctor` names",
    ),
    (
        "unknown error",
        "The container has lost its GPU, as after a reload of systemd on the host, or the driver is in trouble.",
        "Restart the container.",
    ),
    (
        "no cuda-capable device",
        "CUDA finds no GPU that it may use.",
        DOCTOR,
    ),
)


def on_cpu(saw: Any, stack: Stack) -> bool:
    """Whether this container is meant to run without a GPU."""
    return saw.environment.get("GPUKIT_DEVICE") == "cpu" or stack.cuda is None or not stack.gpu


@check("gpu", "GPU visible", needs=("import", "cuda"))
def gpu(saw: Any, stack: Stack) -> Finding:
    if on_cpu(saw, stack):
        return skipped(WITHOUT)
    found = saw.devices.found
    if found:
        return passed(", ".join(device.name for device in found))
    complaint = saw.devices.complaint
    chosen = saw.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and (not chosen.strip() or chosen.strip().startswith("-")):
        return failed(
            f"CUDA_VISIBLE_DEVICES={chosen!r}",
            "a GPU",
            cause="This variable hides every GPU.",
            remedy="unset CUDA_VISIBLE_DEVICES",
        )
    if not saw.gpu_nodes:
        return failed("no GPU device in /dev", "a GPU", cause="The container was started without a GPU.", remedy=DOCTOR)
    if not saw.cuda_library:
        return failed(
            "libcuda.so.1 does not load",
            "a GPU",
            cause="The container has the device but not the driver's CUDA library: `compute` is not among "
            "NVIDIA_DRIVER_CAPABILITIES, or the Container Toolkit is half configured.",
            remedy=DOCTOR,
        )
    for words, cause, remedy in COMPLAINTS:
        if words in complaint.lower():
            return failed(complaint, "a GPU", cause=cause, remedy=remedy)
    return failed(complaint or "none", "a GPU", cause="CUDA does not start, in a way not known here.", remedy=DOCTOR)


@check("card", "GPU is a target", needs=("gpu",))
def card(saw: Any, stack: Stack) -> Finding:
    if not saw.devices.found:
        return skipped(WITHOUT if on_cpu(saw, stack) else "There is no GPU.")
    seen = ", ".join(f"{device.name} ({device.capability})" for device in saw.devices.found)
    expected = "compute capability " + " or ".join(stack.capabilities)
    if all(device.capability in stack.capabilities for device in saw.devices.found):
        return passed(seen, expected)
    return warned(
        seen,
        expected,
        cause="The project is not made for this GPU; what is tried and set for its targets may not fit.",
        remedy=UPDATE,
    )


@check("kernels", "Kernels for it", needs=("gpu",))
def kernels(saw: Any, stack: Stack) -> Finding:
    """Compiled code runs as it is; PTX is compiled by the driver at first use; anything else does not run at all."""
    if not saw.devices.found:
        return skipped(WITHOUT if on_cpu(saw, stack) else "There is no GPU.")
    sass, ptx = from_arch_list(list(saw.devices.arch_list))
    seen = " ".join(saw.devices.arch_list) or "none"
    how = {device: runs(device.capability, sass, ptx) for device in saw.devices.found}
    for device, kind in how.items():
        if kind is None:
            return failed(
                seen,
                f"kernels for {device.capability} ({device.name})",
                cause="This torch has no kernels for this GPU: the first one ends with 'no kernel image is available'.",
                remedy=UPDATE,
            )
    for device, kind in how.items():
        if kind == "ptx":
            return warned(
                seen,
                f"compiled kernels for {device.capability} ({device.name})",
                cause="There is only PTX for this GPU: the driver compiles each kernel at first use, for minutes.",
                remedy=UPDATE,
            )
    return passed(seen)
