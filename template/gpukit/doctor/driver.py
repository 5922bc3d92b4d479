"""The driver: there, loaded, one and the same everywhere, new enough."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.doctor.cards import Card, cards, jetson
from gpukit.doctor.engine import ELSEWHERE, remote
from gpukit.finding import WARN, Cause, Finding, passed, skipped
from gpukit.stack import Stack, version

NO_GPU_WANTED = "This project is made for machines without a GPU."
TEGRA = "/etc/nv_tegra_release"
ADAPTER = "/dev/dxg"

NO_CARD = Cause(
    "This machine has no NVIDIA GPU, or a virtual machine that was given none.",
    "Work on a machine that has one, or without: `./launch --cpu ...`",
)
MAC = Cause("A Mac has no NVIDIA GPU.", "Work without one: `./launch --cpu ...`")
NOT_INSTALLED = Cause(
    "The NVIDIA driver is not installed.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
    ("nvidia-smi: command not found", "nvml error: driver not loaded"),
)
NOUVEAU = Cause(
    "The open driver nouveau holds the GPU, which cannot run CUDA.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
)
GIVEN_AWAY = Cause(
    "The GPU is reserved for a virtual machine: the module {module} holds it.",
    "Take the GPU out of the reservation for virtual machines (vfio-pci.ids on the kernel's command line), then "
    "reboot.",
)
WSL_BLIND = Cause(
    "Windows gives this WSL no GPU: it is WSL 1, or the driver of Windows is missing, old, or set to TCC.",
    "In Windows: wsl --update, and install NVIDIA's current driver",
    ("WSL environment detected but no adapters were found", "GPU access blocked by the operating system"),
)
NO_TOOLS = Cause(
    "The driver is loaded, and its tools are not installed: the container gets them from here.",
    "Install the package nvidia-utils of the driver's version.",
    status=WARN,
)
ABSENT = Cause(
    "No NVIDIA driver can be seen on this machine.",
    "Install the NVIDIA driver, {floor} or newer, then reboot.",
    status=WARN,
)
HANGS = Cause("nvidia-smi hangs, as the driver may.", "sudo dmesg | grep -iE 'nvrm|xid'", status=WARN)
MISMATCH = Cause(
    "The driver was updated, and the old one is still loaded.",
    "sudo reboot",
    ("Failed to initialize NVML: Driver/library version mismatch",),
)
NOT_LOADED = Cause(
    "The driver's kernel module is not loaded: it was not built for this kernel, as after an update of the kernel.",
    "sudo modprobe nvidia, and where that finds no module: sudo dkms autoinstall, then reboot",
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "nvml error: driver not loaded"),
)
SECURE_BOOT = Cause(
    "The driver's kernel module is not loaded, and Secure Boot is on: it loads only signed modules.",
    "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der, then reboot and enroll the key",
    ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",),
)
NOT_LISTED = Cause(
    "The driver runs and does not take the GPU that is there: it is too old for the card, or a card of this generation "
    "needs the open kernel modules.",
    "Install NVIDIA driver {floor} or newer with the open kernel modules, then reboot.",
    ("No devices were found",),
)
NONE_FOUND = Cause(
    "The driver runs and finds no GPU: a card that needs the open kernel modules, one that the firmware gives "
    "too little "
    "address space (Above 4G Decoding), or one that failed.",
    "sudo dmesg | grep -i nvrm says which",
    ("No devices were found",),
)
LOST = Cause(
    "The GPU has fallen off the bus: power, heat, a loose card or a fault.",
    "Switch the machine off and on again; if it comes back: sudo dmesg | grep -i xid",
    ("GPU is lost. Reboot the system to recover this GPU", "GPU has fallen off the bus"),
)
NOT_PERMITTED = Cause(
    "This user may not open the driver's device files.",
    "ls -l /dev/nvidia* shows to whom they belong",
    ("Failed to initialize NVML: Insufficient Permissions",),
)
UNKNOWN_ERROR = Cause(
    "The driver is loaded and does not answer: it is stuck, or its device files are gone.",
    "sudo reboot",
    ("Failed to initialize NVML: Unknown Error",),
)
ANCIENT = Cause(
    "This driver is too old to name a card's capability.",
    "Install a current NVIDIA driver, {floor} or newer, then reboot.",
    ('Field "compute_cap" is not a valid field to query.',),
)
TOO_OLD = Cause(
    "{reason} needs a newer driver.",
    "Install NVIDIA driver {floor} or newer, then reboot.",
    (
        "CUDA driver version is insufficient for CUDA runtime version",
        "The NVIDIA driver on your system is too old",
        "requirement error: unsatisfied condition: cuda>=12.8",
        "Error 804: forward compatibility was attempted on non supported HW",
    ),
)
JETPACK = Cause(
    "This Jetson's JetPack brings an older driver than {reason} needs.",
    "Flash JetPack 7 or newer: https://developer.nvidia.com/embedded/jetpack",
)
STRANGE = Cause("nvidia-smi fails in a way that is not known here.", "nvidia-smi")
FIRST_JETPACK_7 = 38  # Jetson Linux R38; R36 is JetPack 6, with driver 540

# What nvidia-smi says when it fails. The first that fits counts.
COMPLAINTS = (
    ("driver/library version mismatch", MISMATCH),
    ("fallen off the bus", LOST),
    ("gpu is lost", LOST),
    ("insufficient permissions", NOT_PERMITTED),
    ("not a valid field", ANCIENT),
    ("gpu access blocked by the operating system", WSL_BLIND),
    ("initialize nvml: unknown error", UNKNOWN_ERROR),
)


@check(
    "driver",
    "NVIDIA driver",
    causes=(
        NO_CARD,
        MAC,
        NOT_INSTALLED,
        NOUVEAU,
        GIVEN_AWAY,
        WSL_BLIND,
        NO_TOOLS,
        ABSENT,
        HANGS,
        MISMATCH,
        NOT_LOADED,
        SECURE_BOOT,
        NOT_LISTED,
        NONE_FOUND,
        LOST,
        NOT_PERMITTED,
        UNKNOWN_ERROR,
        ANCIENT,
        TOO_OLD,
        JETPACK,
        STRANGE,
    ),
)
def driver(saw: Any, stack: Stack) -> Finding:
    """It must be new enough for the base's CUDA and for the card."""
    if not stack.gpu:
        return skipped(NO_GPU_WANTED)
    if remote(saw.endpoint):
        return skipped(ELSEWHERE)
    expected = f"{stack.driver} or newer" if stack.driver else ""
    answer, floor = saw.cards, stack.driver or "a current one"
    if answer.late:
        return HANGS(answer.err, expected)
    tegra = saw.text(TEGRA)
    if tegra is not None:
        return _jetson(tegra, stack, expected)
    if answer.code is None:
        return _absent(saw, expected, floor)
    found = cards(answer.out)
    if not found:
        return _complaint(answer.words, saw, expected, stack)
    versions = sorted({card.driver for card in found if card.driver}, key=version)
    if not versions:
        return skipped("nvidia-smi does not say the driver's version here.", expected=expected)
    for card in found:
        least, reason = _floor(card, stack)
        if card.driver and least and version(card.driver) < version(least):
            return TOO_OLD(f"{card.driver} ({card.name})", f"{least} or newer", reason=reason, floor=least)
    return passed(", ".join(versions), expected)


def _jetson(text: str, stack: Stack, expected: str) -> Finding:
    """A Jetson's driver comes with its system, and nvidia-smi tells little or is not there."""
    release = jetson(text)
    seen = f"Jetson Linux R{'.'.join(str(part) for part in release)}" if release else "a Jetson"
    if release and release[0] < FIRST_JETPACK_7 and version(stack.driver or "") >= (580,):
        return JETPACK(seen, expected, reason=f"the base image ({stack.image})")
    return passed(seen, expected)


def _absent(saw: Any, expected: str, floor: str) -> Finding:
    """There is no nvidia-smi: why."""
    seen = "no nvidia-smi"
    if saw.system == "macos":
        return MAC(seen, expected)
    if saw.system == "wsl":
        return WSL_BLIND(seen, expected) if not saw.exists(ADAPTER) else ABSENT(seen, expected, floor=floor)
    if saw.module:
        return NO_TOOLS(f"{seen}, module {saw.module}", expected)
    if saw.pci is None:
        return ABSENT(seen, expected, floor=floor)
    holders = {device.driver for device in saw.pci if device.kind == "gpu"}
    if not holders:
        return NO_CARD(f"{seen}, no NVIDIA GPU on the bus", expected)
    if "nouveau" in holders:
        return NOUVEAU(f"{seen}, nouveau is loaded", expected, floor=floor)
    if holders <= {"vfio-pci", "pci-stub"}:
        return GIVEN_AWAY(f"{seen}, {', '.join(sorted(holders))}", expected, module=", ".join(sorted(holders)))
    return NOT_INSTALLED(f"{seen}, and an NVIDIA GPU on the bus", expected, floor=floor)


def _complaint(said: str, saw: Any, expected: str, stack: Stack) -> Finding:
    text, floor = said.lower(), stack.driver or "a current one"
    for words, cause in COMPLAINTS:
        if words in text:
            return cause(said, expected, floor=floor)
    holders = {device.driver for device in saw.pci or () if device.kind == "gpu"}
    if "couldn't communicate with the nvidia driver" in text:
        if "nouveau" in holders:
            return NOUVEAU(said, expected, floor=floor)
        if holders and holders <= {"vfio-pci", "pci-stub"}:
            return GIVEN_AWAY(said, expected, module=", ".join(sorted(holders)))
        if saw.pci is not None and not holders:
            return NO_CARD(said, expected)
        return (SECURE_BOOT if saw.secure_boot else NOT_LOADED)(said, expected)
    if "no devices were found" in text:
        if holders and "nvidia" not in holders:
            return NOT_LISTED(said, expected, floor=_highest(stack))
        return NONE_FOUND(said, expected)
    return STRANGE(said or "nothing", expected)


def _highest(stack: Stack) -> str:
    """The floor that serves every target and the base."""
    floors = [stack.driver, *(target.driver for target in stack.targets.values())]
    return max((floor for floor in floors if floor), key=version, default="a current one")


def _floor(card: Card, stack: Stack) -> tuple[str | None, str]:
    """The higher one of what the base and what this card need, and which of them it is."""
    base = (stack.driver, f"The base image ({stack.image})")
    needs = [(t.driver, t.label) for t in stack.targets.values() if t.driver and t.capability == card.capability]
    # Targets may share a capability, and which one this card is cannot be told: the lower floor refuses none of them.
    card_needs = min(needs, key=lambda need: version(need[0]), default=(None, ""))
    return max((card_needs, base), key=lambda need: version(need[0] or ""))
