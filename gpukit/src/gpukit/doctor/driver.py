"""The NVIDIA driver: installed, loaded, consistent, and new enough."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.engine import without_gpu
from gpukit.errors.known import diagnosed, lookup
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host.cards import Card, cards, jetson
from gpukit.host.facts import FIRST_JETPACK_7, TEGRA, WSL_DEVICE
from gpukit.host.process import Result
from gpukit.host.stacks import wheel_for
from gpukit.project.stack import Stack, version

# Bases with CUDA's compatibility libraries, and the driver branches and GPUs that those support (not GeForce, not RTX):
# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
COMPATIBILITY_BASES = ("ngc", "cuda")
COMPATIBILITY_BRANCHES = (535, 550, 570)
DATA_CENTER = re.compile(r"\b(?:A100|A30|A40|A10G?|A16|A2|T4|V100|H100|H200|H20|L4|L40S?|B200|B300|G[HB]\d00)\b")

# What a sign means if it is nvidia-smi on this machine that prints it.
MEANS = {
    "gpu-state": "gpu-lost",
    "driver-not-installed": "driver-half-installed",  # nvidia-smi itself exists
    "wsl-blocked": "wsl-windows-driver",
    "lost-after-reload": "driver-stuck",
    "driver-silent": "driver-not-loaded",
    "no-devices": "driver-finds-no-card",
}
FAILURES = (
    *("driver-updated", "gpu-lost", "nvml-permission", "wsl-windows-driver", "driver-not-loaded", "driver-stuck"),
    *("driver-half-installed", "driver-finds-no-card"),
)
UNKNOWN_FIELD = 2  # nvidia-smi's exit status for an unknown query field


@check(
    "driver",
    "NVIDIA driver",
    causes=(
        "no-gpu-here mac-without-gpu driver-not-installed nouveau-holds-card card-given-to-virtual-machine "
        "wsl-windows-driver driver-tools-not-installed driver-not-found driver-hangs driver-updated driver-not-loaded "
        "module-unsigned card-not-served-by-driver driver-finds-no-card gpu-lost nvml-permission "
        "driver-half-installed driver-stuck driver-without-capability-query driver-too-old jetpack-too-old "
        "driver-needs-compatibility nvidia-smi-fails"
    ),
    skip=without_gpu,
)
def driver(probes: Any, stack: Stack) -> Finding:
    """It must be new enough for the base's CUDA and for the card.

    On Jetson and DGX Spark it is part of the operating system.
    """
    expected = f"{stack.driver} or newer" if stack.driver else ""
    answer = probes.cards
    floor = stack.driver or "a current one"
    if answer.timed_out:
        return problem("driver-hangs", answer.err, expected)
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
        return skipped("not-reported", expected=expected, who="nvidia-smi", what="the driver's version")
    for card in found:
        least, reason = _floor(card, stack)
        if card.driver and least and version(card.driver) < version(least):
            bridged = least == stack.driver and compatibility_helps(stack.base, card.driver, card.name)
            # Outside a project: the command that installs a PyTorch that this older driver supports.
            older = wheel_for(stack.targets, card.driver) if stack.standalone and not bridged else ""
            id = "driver-needs-compatibility" if bridged else "driver-too-old"
            seen = f"{card.driver} ({card.name})"
            needed = f"{least} or newer"
            return problem(id, seen, needed, reason=reason, floor=least, older=older or "")
    return passed(", ".join(versions), expected)


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
        return problem("jetpack-too-old", seen, expected, reason=f"the base image ({stack.image})")
    return passed(seen, expected)


def _not_found(probes: Any, expected: str, floor: str) -> Finding:
    """Why there is no nvidia-smi."""
    seen = "no nvidia-smi"
    if probes.system == "macos":
        return problem("mac-without-gpu", seen, expected)
    if probes.system == "wsl":
        id = "driver-not-found" if probes.exists(WSL_DEVICE) else "wsl-windows-driver"
        return problem(id, seen, expected, floor=floor)
    if probes.module:
        return problem("driver-tools-not-installed", f"{seen}, module {probes.module}", expected)
    if probes.pci is None:
        return problem("driver-not-found", seen, expected, floor=floor)
    other = _held_by_another(probes, seen, expected, floor)
    return other or problem("driver-not-installed", f"{seen}, and an NVIDIA GPU on the bus", expected, floor=floor)


def _held_by_another(probes: Any, seen: str, expected: str, floor: str) -> Finding | None:
    """The finding if there is no GPU on the bus, or another kernel module than NVIDIA's holds it."""
    holders = sorted({device.driver for device in probes.pci or () if device.kind == "gpu"})
    if probes.pci is not None and not holders:
        return problem("no-gpu-here", f"{seen}, no NVIDIA GPU on the bus", expected)
    if "nouveau" in holders:
        return problem("nouveau-holds-card", f"{seen}, nouveau is loaded", expected, floor=floor)
    if holders and {*holders} <= {"vfio-pci", "pci-stub"}:
        names = ", ".join(holders)
        return problem("card-given-to-virtual-machine", f"{seen}, {names}", expected, module=names)
    return None


def _failed(answer: Result, probes: Any, expected: str, stack: Stack) -> Finding:
    """Why nvidia-smi failed. The kernel module that holds the GPU decides between the causes of its message."""
    output = answer.text
    floor = stack.driver or "a current one"
    id = lookup(output, FAILURES, MEANS)
    if answer.code == UNKNOWN_FIELD:
        id = "driver-without-capability-query"
    if id == "driver-not-loaded":
        other = _held_by_another(probes, output, expected, floor)
        return other or problem("module-unsigned" if probes.secure_boot else id, output, expected)
    holders = {device.driver for device in probes.pci or () if device.kind == "gpu"}
    if id == "driver-finds-no-card" and holders and "nvidia" not in holders:
        return problem("card-not-served-by-driver", output, expected, floor=_highest_floor(stack))
    if id:
        return problem(id, output, expected, floor=floor)
    return diagnosed(output, "nvidia-smi-fails", output or "nothing", expected)


def _highest_floor(stack: Stack) -> str:
    """The oldest driver that supports every target and the base."""
    floors = [stack.driver, *(target.driver for target in stack.targets.values())]
    return max((floor for floor in floors if floor), key=version, default="a current one")


def _floor(card: Card, stack: Stack) -> tuple[str | None, str]:
    """The driver that the base or this GPU needs, whichever is newer, and what needs it."""
    wheel = stack.base == "wheel"
    base = (stack.driver, f"PyTorch for CUDA {stack.cuda}" if wheel else f"the base image ({stack.image})")
    needs = [(t.driver, t.label) for t in stack.targets.values() if t.driver and t.capability == card.capability]
    # Several targets may have this capability: the lowest requirement is the one that rejects none of them.
    card_needs = min(needs, key=lambda need: version(need[0]), default=(None, ""))
    return max((card_needs, base), key=lambda need: version(need[0] or ""))
