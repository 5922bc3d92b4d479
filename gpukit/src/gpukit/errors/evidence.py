"""What decides between the causes of an error text: facts about the machine, and numbers in the text.

Testing an `Evidence` gives True (it supports the cause), False (it rules the cause out), or None (unknown). A cause has
one in `given`; `&`, `|`, and `~` combine them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gpukit.errors.machine import Machine, at_least
from gpukit.project.stack import version


@dataclass(frozen=True)
class Case:
    """An error text, and the known facts about the machine that it comes from."""

    text: str
    machine: Machine


@dataclass(frozen=True)
class Evidence:
    """`yes` and `no`: the reason if the test is True or False. A combination uses the reasons of its `parts`."""

    test: Callable[[Case], bool | None]
    yes: str = ""
    no: str = ""
    parts: tuple[Evidence, ...] = ()

    def reason(self, case: Case) -> str:
        """Why the test is True or False; empty if it is unknown."""
        if self.parts:
            return " and ".join(filter(None, (part.reason(case) for part in self.parts)))
        return {True: self.yes, False: self.no, None: ""}[self.test(case)]

    def __and__(self, other: Evidence) -> Evidence:
        def both(case: Case) -> bool | None:
            one, two = self.test(case), other.test(case)
            return False if False in (one, two) else None if None in (one, two) else True

        return Evidence(both, parts=(self, other))

    def __or__(self, other: Evidence) -> Evidence:
        def either(case: Case) -> bool | None:
            one, two = self.test(case), other.test(case)
            return True if True in (one, two) else None if None in (one, two) else False

        return Evidence(either, parts=(self, other))

    def __invert__(self) -> Evidence:
        def inverse(case: Case) -> bool | None:
            found = self.test(case)
            return None if found is None else not found

        return Evidence(inverse, parts=(self,))


def text_has(*patterns: str) -> Evidence:
    """True if the text matches one of these patterns; otherwise unknown."""
    pattern = re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE | re.MULTILINE)
    return Evidence(lambda case: True if pattern.search(case.text) else None, "the text names it")


def unless_text_has(*patterns: str) -> Evidence:
    """False if the text matches one of these patterns; otherwise unknown."""
    pattern = re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE | re.MULTILINE)
    return Evidence(lambda case: False if pattern.search(case.text) else None, "", "the text shows another cause")


def only(evidence: Evidence) -> Evidence:
    """False if the evidence is unknown: for causes that occur only on special machines."""
    return Evidence(lambda case: bool(evidence.test(case)), evidence.yes)


def _is(look: Callable[[Machine], bool | None], yes: str, no: str) -> Evidence:
    return Evidence(lambda case: look(case.machine), yes, no)


def _equal(value: str | None, wanted: str) -> bool | None:
    return None if value is None else value == wanted


WSL = _is(lambda m: _equal(m.system, "wsl"), "this is WSL", "this is not WSL")
WINDOWS = _is(lambda m: _equal(m.system, "windows"), "this is Windows", "this is not Windows")
ARM64 = _is(lambda m: _equal(m.arch, "arm64"), "the processor is arm64", "the processor is not arm64")
JETSON = _is(lambda m: None if m.jetson is None else bool(m.jetson), "this is a Jetson", "this is not a Jetson")
UNIFIED = _is(lambda m: m.unified_memory, "GPU and processor share their memory", "the GPU has memory of its own")
CONTAINER = _is(lambda m: m.container, "it ran in a container", "it did not run in a container")
WORKED_BEFORE = _is(lambda m: m.worked_before, "it worked before on this machine", "it never worked on this machine")
NO_DRIVER = _is(
    lambda m: None if m.driver is None else not m.driver, "no NVIDIA driver is installed", "an NVIDIA driver is loaded"
)
NO_CARD = _is(
    lambda m: None if m.gpus is None else not m.gpus, "the machine has no NVIDIA GPU", "the machine has a GPU"
)
SECURE_BOOT = _is(lambda m: m.secure_boot, "Secure Boot is on", "Secure Boot is off")
SELINUX = _is(
    lambda m: _equal(m.selinux.lower() if m.selinux else None, "enforcing"),
    "SELinux is enforcing",
    "SELinux is not enforcing",
)
PODMAN = _is(lambda m: _equal(m.engine.name, "podman"), "the engine is Podman", "the engine is not Podman")
ROOTLESS = _is(lambda m: m.engine.rootless, "the engine is rootless", "the engine runs as root")
DESKTOP = _is(lambda m: m.engine.desktop, "the engine is Docker Desktop", "the engine is not Docker Desktop")
SNAP = _is(lambda m: m.engine.snap, "Docker is installed as a snap", "Docker is not a snap")
NO_TOOLKIT = _is(
    lambda m: None if m.engine.toolkit is None else not m.engine.toolkit,
    "NVIDIA's Container Toolkit is not installed",
    "NVIDIA's Container Toolkit is installed",
)
CPU_TORCH = _is(
    lambda m: None if m.torch.cuda is None else not m.torch.cuda,
    "this torch is a build without CUDA",
    "this torch is a build for CUDA",
)


def driver_below(floor: str) -> Evidence:
    return ~_is(
        lambda m: at_least(m.driver, floor), f"the driver is {floor} or newer", f"the driver is older than {floor}"
    )


def capability_below(number: str) -> Evidence:
    """Whether all known GPUs have a lower compute capability."""

    def look(machine: Machine) -> bool | None:
        known = machine.capabilities
        return all(version(each) < version(number) for each in known) if known else None

    return _is(
        look, f"the card's compute capability is below {number}", f"the card's compute capability is {number} or more"
    )


def capability_from(number: str) -> Evidence:
    return ~capability_below(number)


def torch_below(number: str) -> Evidence:
    return ~_is(
        lambda m: at_least(m.torch.version, number), f"torch is {number} or newer", f"torch is older than {number}"
    )


def _cuda_above_driver(case: Case) -> bool | None:
    """Whether torch's CUDA has a higher major version than the driver supports."""
    torch, driver = case.machine.torch.cuda, case.machine.cuda
    return version(torch)[:1] > version(driver)[:1] if torch and driver else None


CUDA_ABOVE_DRIVER = Evidence(
    _cuda_above_driver, "torch's CUDA is newer than the driver supports", "the driver supports torch's CUDA"
)


def gigabytes(text: str, pattern: str) -> float | None:
    """An amount of memory in GiB, from a pattern with two groups (number, unit)."""
    found = re.search(pattern, text, re.IGNORECASE)
    unit = {"k": 2**-20, "m": 2**-10, "g": 1.0, "t": 2.0**10, "b": 2**-30}
    return float(found[1]) * unit[found[2][0].lower()] if found else None


AMOUNT = r"([\d.]+) ?([KMGT]i?B|bytes)"


def _others_hold(case: Case) -> bool | None:
    """Whether torch's out-of-memory message shows that other processes use a tenth of the GPU or more."""

    def gib(pattern: str) -> float | None:
        return gigabytes(case.text, pattern)

    total = gib(rf"total capacity of {AMOUNT}") or gib(rf"{AMOUNT} total capacity")
    free = gib(rf"of which {AMOUNT} is free") or gib(rf"already allocated; {AMOUNT} free")
    mine = gib(rf"this process has {AMOUNT}") or gib(rf"{AMOUNT} (?:reserved in total|cached)")
    others = [
        gigabytes(each, AMOUNT) or 0.0
        for each in re.findall(r"Process \d+ has [^.]*?[\d.]+ \w+ memory in use", case.text)
    ]
    if total and free is not None and mine is not None:
        others.append(total - free - mine)
    return max(others) > 0.1 * total if total and others else None


OTHERS_HOLD = Evidence(
    _others_hold,
    "by the figures in the text, other processes hold much of the GPU's memory",
    "by the figures in the text, no other process holds much of the GPU's memory",
)


def _fragmented(case: Case) -> bool | None:
    """Whether the memory that torch has reserved but not allocated would have been enough."""
    tried = gigabytes(case.text, rf"Tried to allocate {AMOUNT}")
    reserved = gigabytes(case.text, rf"{AMOUNT} is reserved by PyTorch but unallocated")
    return reserved > 2 * tried if tried and reserved is not None else None


FRAGMENTED = Evidence(
    _fragmented,
    "by the figures in the text, torch has reserved enough memory, in pieces that are too small",
    "by the figures in the text, the memory is in use and not fragmented",
)


def python_from(number: str) -> Evidence:
    return _is(
        lambda m: at_least(m.python, number), f"this Python is {number} or newer", f"this Python is older than {number}"
    )


def text_must_have(*patterns: str) -> Evidence:
    """True if the text matches one of these patterns; otherwise False."""
    found = text_has(*patterns)
    return Evidence(lambda case: bool(found.test(case)), found.yes, "the text does not name it")
