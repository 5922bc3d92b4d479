"""The driver, the card, and whether the engine hands it to a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpukit.checks import check
from gpukit.doctor.engine import remote
from gpukit.finding import Finding, failed, passed, skipped, warned
from gpukit.kernels import runs
from gpukit.stack import Stack, version

NO_GPU_WANTED = "This project is made for machines without a GPU."

# What nvidia-smi says when it fails: a part of it -> cause, remedy. The first that fits counts.
COMPLAINTS = (
    (
        "driver/library version mismatch",
        "The driver was updated, and the old one is still loaded.",
        "sudo reboot",
    ),
    (
        "couldn't communicate with the nvidia driver",
        "The driver's kernel module is not loaded: absent, not built for this kernel, or refused by Secure Boot.",
        "sudo modprobe nvidia",
    ),
    (
        "no devices were found",
        "The driver runs and finds no GPU.",
        "sudo dmesg | grep -iE 'nvrm|nvidia'",
    ),
    (
        "not a valid field",
        "This driver is too old to name a card's capability.",
        "Install a current NVIDIA driver, then reboot.",
    ),
)


@dataclass(frozen=True)
class Card:
    name: str
    driver: str  # empty where nvidia-smi does not say, as on some integrated GPUs
    capability: str


def cards(text: str) -> list[Card]:
    """The rows of nvidia-smi's CSV. A name may hold a comma; the last two fields never do."""
    rows = (line.rsplit(",", 2) for line in text.splitlines())
    return [Card(row[0].strip(), _number(row[1]), _number(row[2])) for row in rows if len(row) == 3]


def _number(field: str) -> str:
    field = field.strip()
    return field if version(field) else ""


@check("driver", "NVIDIA driver")
def driver(saw: Any, stack: Stack) -> Finding:
    """It must be new enough for the base's CUDA and for the card."""
    if not stack.gpu:
        return skipped(NO_GPU_WANTED)
    if remote(saw.endpoint):
        return skipped(f"The engine is on another machine: {saw.endpoint}")
    expected = f"{stack.driver} or newer" if stack.driver else ""
    answer = saw.cards
    if answer.late:
        return warned(answer.err, expected, cause="nvidia-smi hangs, as the driver may.", remedy="nvidia-smi")
    if answer.code is None:
        return warned(
            "no nvidia-smi",
            expected,
            cause="No NVIDIA driver on this machine, unless the engine gets its GPU from elsewhere.",
            remedy=f"Install the NVIDIA driver, {stack.driver or 'a current one'} or newer, then reboot.",
        )
    found = cards(answer.out)
    if not found:
        return _complaint((answer.out + answer.err).strip(), expected)
    versions = sorted({card.driver for card in found if card.driver}, key=version)
    if not versions:
        return skipped("nvidia-smi does not say the driver's version here.", expected=expected)
    for card in found:
        floor, reason = _floor(card, stack)
        if card.driver and floor and version(card.driver) < version(floor):
            return failed(
                f"{card.driver} ({card.name})",
                f"{floor} or newer",
                cause=f"{reason} needs a newer driver.",
                remedy=f"Install NVIDIA driver {floor} or newer, then reboot.",
            )
    return passed(", ".join(versions), expected)


def _floor(card: Card, stack: Stack) -> tuple[str | None, str]:
    """The higher one of what the base and what this card need, and which of them it is."""
    base = (stack.driver, f"The base image ({stack.image})")
    needs = [(t.driver, t.label) for t in stack.targets.values() if t.driver and t.capability == card.capability]
    # Targets may share a capability, and which one this card is cannot be told: the lower floor refuses none of them.
    card_needs = min(needs, key=lambda need: version(need[0]), default=(None, ""))
    return max((card_needs, base), key=lambda need: version(need[0] or ""))


def _complaint(said: str, expected: str) -> Finding:
    for words, cause, remedy in COMPLAINTS:
        if words in said.lower():
            return failed(said, expected, cause=cause, remedy=remedy)
    return failed(
        said or "nothing", expected, cause="nvidia-smi fails in a way that is not known here.", remedy="nvidia-smi"
    )


@check("card", "GPU is a target", needs=("driver",))
def card(saw: Any, stack: Stack) -> Finding:
    """The image carries compiled kernels for the targets' capabilities, and for no others."""
    if not stack.gpu:
        return skipped(NO_GPU_WANTED)
    if remote(saw.endpoint):
        return skipped(f"The engine is on another machine: {saw.endpoint}")
    found = [card for card in cards(saw.cards.out) if card.capability]
    expected = "compute capability " + " or ".join(stack.capabilities)
    if not found:
        return skipped("nvidia-smi does not name a card with its capability here.", expected=expected)
    seen = ", ".join(f"{card.name} ({card.capability})" for card in found)
    if any(card.capability in stack.capabilities for card in found):
        return passed(seen, expected)
    kernels = stack.kernels.get(saw.arch)
    if kernels and any(runs(card.capability, kernels.sass, kernels.ptx) for card in found):
        return warned(
            seen,
            expected,
            cause="This card is not among the project's targets. The image has kernels for it; the rest is untried.",
            remedy="copier update --trust, and add this card to `also_on`",
        )
    return failed(
        seen,
        expected,
        cause="This card is not among the project's targets, and the image has no kernels for it.",
        remedy="copier update --trust, and add this card to `also_on`",
    )


@check("gpu", "GPU granted", needs=("engine", "driver"))
def gpu(saw: Any, stack: Stack) -> Finding:
    """Asked of the engine itself: `docker info` does not tell, since Docker may serve GPUs by CDI."""
    if not stack.gpu:
        return skipped(NO_GPU_WANTED)
    grant = saw.grant
    if grant.granted is None:
        return skipped(grant.cause, grant.seen, remedy=grant.remedy)
    if grant.granted:
        return passed(grant.seen)
    return failed(grant.seen, "a container with the GPU", cause=grant.cause, remedy=grant.remedy)
