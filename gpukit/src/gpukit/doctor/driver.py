"""The NVIDIA driver: installed, loaded, consistent, and new enough."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gpukit.doctor.engine import ENGINE_IS_REMOTE, remote
from gpukit.errors.known import known_cause, lookup
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.cards import Card, cards, jetson
from gpukit.host.driver import FIRST_JETPACK_7
from gpukit.host.facts import WSL_DEVICE
from gpukit.host.process import Result
from gpukit.host.stacks import wheel_for
from gpukit.project.stack import Stack, version

NO_GPU_REQUESTED = "No GPU is requested."
DRIVER_HANGS = "The driver does not respond, so a container with the GPU would hang."
TEGRA = "/etc/nv_tegra_release"
FASTOS = "/etc/fastos-release"  # DGX Spark: DGX OS includes the driver in its own updates

ON_CPU = "pip install torch --index-url https://download.pytorch.org/whl/cpu"

NO_CARD = Cause(
    "no-gpu-here",
    "This machine has no NVIDIA GPU, or is a virtual machine without one.",
    "Use a machine that has one, or run without a GPU: `./launch --cpu verify` checks that.",
    standalone=f"Use a machine that has one, or run on the CPU: `{ON_CPU}`",
)
MAC = Cause(
    "mac-without-gpu",
    "A Mac has no NVIDIA GPU.",
    "Run without one: `./launch --cpu verify` checks that.",
    standalone="Run on the CPU: `pip install torch`",
)
NOT_INSTALLED = Cause(
    "driver-not-installed",
    "The NVIDIA driver is not installed.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
    ("nvidia-smi: command not found", "nvml error: driver not loaded"),
)
NOUVEAU = Cause(
    "nouveau-holds-card",
    "The GPU is in use by the open-source driver nouveau, which cannot run CUDA.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
)
PASSED_THROUGH = Cause(
    "card-given-to-virtual-machine",
    "The GPU is reserved for a virtual machine: the module {module} holds it.",
    "Remove the GPU from vfio-pci.ids on the kernel command line, then reboot.",
)
WSL_NO_GPU = Cause(
    "wsl-windows-driver",
    "This WSL has no GPU: it is WSL 1, or the Windows driver is missing, too old, or in TCC mode.",
    "In Windows: `wsl --update`, and install NVIDIA's current driver",
    ("WSL environment detected but no adapters were found", "GPU access blocked by the operating system"),
)
NO_TOOLS = Cause(
    "driver-tools-not-installed",
    "The driver is loaded, but its tools are not installed; the container gets them from this machine.",
    "Install the package nvidia-utils of the driver's version.",
    status=WARN,
)
NOT_FOUND = Cause(
    "driver-not-found",
    "No NVIDIA driver was found on this machine.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
    status=WARN,
)
HANGS = Cause(
    "driver-hangs", "nvidia-smi hangs, and the driver may hang too.", "`sudo dmesg | grep -iE 'nvrm|xid'`", status=WARN
)
MISMATCH = Cause(
    "driver-updated",
    "The driver was updated, and the old one is still loaded.",
    "`sudo reboot`",
    ("Failed to initialize NVML: Driver/library version mismatch",),
)
NOT_LOADED = Cause(
    "driver-not-loaded",
    "The driver's kernel module is not loaded: it was not built for this kernel, for example after a kernel update.",
    "`sudo modprobe nvidia`; if it finds no module: `sudo dkms autoinstall`, then reboot",
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "nvml error: driver not loaded"),
)
SECURE_BOOT = Cause(
    "module-unsigned",
    "The driver's kernel module is not loaded, and Secure Boot is on: it loads only signed modules.",
    "`sudo mokutil --import /var/lib/shim-signed/mok/MOK.der`, then reboot and enroll the key",
    ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",),
)
NOT_LISTED = Cause(
    "card-not-served-by-driver",
    "The driver runs but does not support the installed GPU: it is too old for the card, or a card of this "
    "generation needs the open kernel modules.",
    "Install NVIDIA driver {floor} or newer with the open kernel modules, then reboot.",
    ("No devices were found",),
)
NONE_FOUND = Cause(
    "driver-finds-no-card",
    "The driver runs but finds no GPU: the card needs the open kernel modules, the firmware gives it too little "
    "address space (Above 4G Decoding), or it has failed.",
    "`sudo dmesg | grep -i nvrm` shows which",
    ("No devices were found",),
)
LOST = Cause(
    "gpu-lost",
    "The GPU has fallen off the bus: power, heat, a loose card or a fault.",
    "Switch the machine off and on again; if it comes back: `sudo dmesg | grep -i xid`",
    (
        "GPU is lost. Reboot the system to recover this GPU",
        "GPU has fallen off the bus",
        "Unable to determine the device handle for GPU",
    ),
)
NOT_PERMITTED = Cause(
    "nvml-permission",
    "This user does not have permission to open the driver's device files.",
    "`ls -l /dev/nvidia*` shows who owns them",
    ("Failed to initialize NVML: Insufficient Permissions",),
)
HALF_INSTALLED = Cause(
    "driver-half-installed",
    "nvidia-smi is installed but the driver's library is not: the driver was only partly installed or removed.",
    "Install the NVIDIA driver again, {floor} or newer, then reboot.",
    ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",),
)
UNKNOWN_ERROR = Cause(
    "driver-stuck",
    "The driver is loaded but does not respond: it is stuck, or its device files are missing.",
    "`sudo reboot`",
    ("Failed to initialize NVML: Unknown Error",),
)
NO_CAPABILITY_QUERY = Cause(
    "driver-without-capability-query",
    "This driver is too old to report a GPU's compute capability.",
    "Install a current NVIDIA driver, {floor} or newer, then reboot.",
    ('Field "compute_cap" is not a valid field to query.',),
)
TOO_OLD = Cause(
    "driver-too-old",
    "{reason} needs a newer driver.",
    "Install NVIDIA driver {floor} or newer, then reboot.",
    (
        "CUDA driver version is insufficient for CUDA runtime version",
        "The NVIDIA driver on your system is too old",
        "requirement error: unsatisfied condition: cuda>=12.8",
        "Error 804: forward compatibility was attempted on non supported HW",
    ),
    standalone="Install NVIDIA driver {floor} or newer, then reboot{older}.",
)
JETPACK = Cause(
    "jetpack-too-old",
    "This Jetson's JetPack includes an older driver than {reason} needs.",
    "Flash JetPack 7 (on Jetson Orin: 7.2) or newer: https://developer.nvidia.com/embedded/jetpack",
)
NEEDS_COMPATIBILITY = Cause(
    "driver-needs-compatibility",
    "This driver is older than the base image's CUDA. On a data-center card, the image's compatibility libraries can "
    "make up for that if NVIDIA's Container Toolkit mounts them.",
    "`./launch verify` checks whether they do; driver {floor} or newer does not need them.",
    status=WARN,
)
UNKNOWN_FAILURE = Cause("nvidia-smi-fails", "nvidia-smi fails with an unknown error.", "`nvidia-smi`")
# On a DGX Spark, the driver comes with DGX OS.
SPARK_REMEDY = "Update DGX OS, by its dashboard or with `sudo apt update && sudo apt full-upgrade`, then reboot."
CURED_BY_INSTALL = (
    NOT_INSTALLED,
    NOT_LISTED,
    NOT_LOADED,
    SECURE_BOOT,
    NO_CAPABILITY_QUERY,
    NOT_FOUND,
    NO_TOOLS,
    TOO_OLD,
)
# Bases with CUDA's compatibility libraries, and the driver branches and GPUs that those support (not GeForce, not RTX):
# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
COMPATIBILITY_BASES = ("ngc", "cuda")
COMPATIBILITY_BRANCHES = (535, 550, 570)
DATA_CENTER = re.compile(r"\b(?:A100|A30|A40|A10G?|A16|A2|T4|V100|H100|H200|H20|L4|L40S?|B200|B300|G[HB]\d00)\b")

# The causes of nvidia-smi's errors, by the id of the rule or cause.
CAUSES_BY_RULE = {
    **{cause.id: cause for cause in (MISMATCH, LOST, NOT_PERMITTED, WSL_NO_GPU, NOT_LOADED, UNKNOWN_ERROR)},
    "gpu-state": LOST,
    "driver-not-installed": HALF_INSTALLED,  # nvidia-smi itself exists
    "wsl-blocked": WSL_NO_GPU,
    "lost-after-reload": UNKNOWN_ERROR,
    "driver-silent": NOT_LOADED,
    "no-devices": NONE_FOUND,
}
UNKNOWN_FIELD = 2  # nvidia-smi's exit status for an unknown query field


@check(
    "driver",
    "NVIDIA driver",
    causes=(
        NO_CARD,
        MAC,
        NOT_INSTALLED,
        NOUVEAU,
        PASSED_THROUGH,
        WSL_NO_GPU,
        NO_TOOLS,
        NOT_FOUND,
        HANGS,
        MISMATCH,
        NOT_LOADED,
        SECURE_BOOT,
        NOT_LISTED,
        NONE_FOUND,
        LOST,
        NOT_PERMITTED,
        HALF_INSTALLED,
        UNKNOWN_ERROR,
        NO_CAPABILITY_QUERY,
        TOO_OLD,
        JETPACK,
        NEEDS_COMPATIBILITY,
        UNKNOWN_FAILURE,
    ),
)
def driver(probes: Any, stack: Stack) -> Finding:
    """It must be new enough for the base's CUDA and for the card.

    On Jetson and DGX Spark it is part of the operating system.
    """
    found = _driver(probes, stack)
    installing = any(cause.found(found) for cause in CURED_BY_INSTALL)
    return replace(found, remedy=SPARK_REMEDY) if installing and probes.text(FASTOS) is not None else found


def _driver(probes: Any, stack: Stack) -> Finding:
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    expected = f"{stack.driver} or newer" if stack.driver else ""
    answer, floor = probes.cards, stack.driver or "a current one"
    if answer.timed_out:
        return HANGS(answer.err, expected)
    tegra = probes.text(TEGRA)
    if tegra is not None:
        return _jetson(tegra, cards(answer.out), stack, expected)
    if answer.code is None:
        return _not_found(probes, expected, floor)
    found = cards(answer.out)
    if not found:
        return _failed(answer, probes, expected, stack)
    versions = sorted({card.driver for card in found if card.driver}, key=version)
    if not versions:
        return skipped("nvidia-smi does not report the driver's version.", expected=expected)
    for card in found:
        least, reason = _floor(card, stack)
        if card.driver and least and version(card.driver) < version(least):
            if least == stack.driver and compatibility_helps(stack.base, card.driver, card.name):
                return NEEDS_COMPATIBILITY(f"{card.driver} ({card.name})", f"{least} or newer", floor=least)
            return TOO_OLD(
                f"{card.driver} ({card.name})",
                f"{least} or newer",
                reason=reason,
                floor=least,
                older=_older_torch(card, stack),
            )
    return passed(", ".join(versions), expected)


def _older_torch(card: Card, stack: Stack) -> str:
    """Outside a project: the PyTorch that this older driver supports."""
    install = wheel_for(stack.targets, card.driver) if stack.standalone else None
    return f"; or keep this driver and use an older build: `{install}`" if install else ""


def compatibility_helps(base: str, driver: str, card: str) -> bool:
    """Whether CUDA's forward compatibility makes up for the older driver of this card."""
    bridges = base in COMPATIBILITY_BASES and version(driver)[0] in COMPATIBILITY_BRANCHES
    return bridges and bool(DATA_CENTER.search(card)) and "GeForce" not in card and "RTX" not in card


def _jetson(text: str, found: list[Card], stack: Stack, expected: str) -> Finding:
    """A Jetson's driver is part of its system, and nvidia-smi is missing or reports little.

    An IGX with a discrete GPU has that GPU's driver.
    """
    own = [card.driver for card in found if card.driver and "nvgpu" not in card.name]
    if own and version(own[0]) >= version(stack.driver or ""):
        return passed(own[0], expected)
    release = jetson(text)
    seen = f"Jetson Linux R{'.'.join(str(part) for part in release)}" if release else "a Jetson"
    if release and release[0] < FIRST_JETPACK_7 and version(stack.driver or "") >= (580,):
        return JETPACK(seen, expected, reason=f"the base image ({stack.image})")
    return passed(seen, expected)


def _not_found(probes: Any, expected: str, floor: str) -> Finding:
    """Why there is no nvidia-smi."""
    seen = "no nvidia-smi"
    if probes.system == "macos":
        return MAC(seen, expected)
    if probes.system == "wsl":
        return WSL_NO_GPU(seen, expected) if not probes.exists(WSL_DEVICE) else NOT_FOUND(seen, expected, floor=floor)
    if probes.module:
        return NO_TOOLS(f"{seen}, module {probes.module}", expected)
    if probes.pci is None:
        return NOT_FOUND(seen, expected, floor=floor)
    holders = {device.driver for device in probes.pci if device.kind == "gpu"}
    if not holders:
        return NO_CARD(f"{seen}, no NVIDIA GPU on the bus", expected)
    if "nouveau" in holders:
        return NOUVEAU(f"{seen}, nouveau is loaded", expected, floor=floor)
    if holders <= {"vfio-pci", "pci-stub"}:
        return PASSED_THROUGH(f"{seen}, {', '.join(sorted(holders))}", expected, module=", ".join(sorted(holders)))
    return NOT_INSTALLED(f"{seen}, and an NVIDIA GPU on the bus", expected, floor=floor)


def _failed(answer: Result, probes: Any, expected: str, stack: Stack) -> Finding:
    """Why nvidia-smi failed. The kernel module that holds the GPU decides between the causes of its message."""
    output, floor = answer.text, stack.driver or "a current one"
    cause = NO_CAPABILITY_QUERY if answer.code == UNKNOWN_FIELD else lookup(output, CAUSES_BY_RULE)
    holders = {device.driver for device in probes.pci or () if device.kind == "gpu"}
    if cause is NOT_LOADED:
        if "nouveau" in holders:
            return NOUVEAU(output, expected, floor=floor)
        if holders and holders <= {"vfio-pci", "pci-stub"}:
            return PASSED_THROUGH(output, expected, module=", ".join(sorted(holders)))
        if probes.pci is not None and not holders:
            return NO_CARD(output, expected)
        return (SECURE_BOOT if probes.secure_boot else NOT_LOADED)(output, expected)
    if cause is NONE_FOUND and holders and "nvidia" not in holders:
        return NOT_LISTED(output, expected, floor=_highest_floor(stack))
    if cause:
        return cause(output, expected, floor=floor)
    return known_cause(output, UNKNOWN_FAILURE)(output or "nothing", expected)


def _highest_floor(stack: Stack) -> str:
    """The oldest driver that supports every target and the base."""
    floors = [stack.driver, *(target.driver for target in stack.targets.values())]
    return max((floor for floor in floors if floor), key=version, default="a current one")


def _base(stack: Stack) -> str:
    return (
        f"PyTorch for CUDA {stack.cuda}"
        if stack.standalone and stack.base == "wheel"
        else f"The base image ({stack.image})"
    )


def _floor(card: Card, stack: Stack) -> tuple[str | None, str]:
    """The driver that the base or this GPU needs, whichever is newer, and what needs it."""
    base = (stack.driver, _base(stack))
    needs = [(t.driver, t.label) for t in stack.targets.values() if t.driver and t.capability == card.capability]
    # Several targets may have this capability: the lowest requirement is the one that rejects none of them.
    card_needs = min(needs, key=lambda need: version(need[0]), default=(None, ""))
    return max((card_needs, base), key=lambda need: version(need[0] or ""))
