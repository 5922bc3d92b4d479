"""The cards of this machine against the project's targets."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.driver import FASTOS, NO_GPU_WANTED, TEGRA
from gpukit.doctor.engine import ELSEWHERE, remote
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.cards import Card, answer_with, cards, hardware
from gpukit.host.kernels import runs
from gpukit.project.stack import Stack

MODEL = "/proc/device-tree/model"
UNTRIED = Cause(
    "card-not-a-target",
    "This card is not among the project's targets. The image has kernels for it; nothing else was checked.",
    "`copier update --trust --data {answer}`",
    status=WARN,
)
NO_KERNELS = Cause(
    "no-kernel",
    "This card is not among the project's targets, and the image has no kernels for it.",
    "`copier update --trust --data {answer}`",
    (
        "CUDA error: no kernel image is available for execution on the device",
        "is not compatible with the current PyTorch installation",
    ),
)
UNSERVED = Cause(
    "card-not-supported",
    "The template does not know this card: it is older or newer than what PyTorch's builds support.",
    "Choose another GPU with GPUS, or run without one: `./launch --cpu ...`",
)
OTHER_PROCESSOR = Cause(
    "wrong-architecture",
    "The project is for machines with a different CPU architecture.",
    "`copier update --trust --data {answer}`",
    ("exec format error",),
)


@check("card", "GPU is a target", needs=("driver",), causes=(UNTRIED, NO_KERNELS, UNSERVED, OTHER_PROCESSOR))
def card(saw: Any, stack: Stack) -> Finding:
    """The image has compiled kernels only for the targets' compute capabilities."""
    if not stack.gpu:
        return skipped(NO_GPU_WANTED)
    if remote(saw.endpoint):
        return skipped(ELSEWHERE)
    found = [card for card in _cards(saw) if card.capability]
    expected = "compute capability " + " or ".join(stack.capabilities)
    if not found:
        return skipped("nvidia-smi does not name a card with its capability here.", expected=expected)
    seen = ", ".join(dict.fromkeys(f"{card.name} ({card.capability})" for card in found))
    ids = [id for id in (hardware(card, saw.arch) for card in found) if id]
    if any(id in stack.targets for id in ids):
        return passed(seen, expected)
    answer = answer_with(stack, ids[0]) if ids else ""
    if saw.arch not in stack.kernels:
        if not answer:
            return UNSERVED(seen, expected)
        processors = " or ".join(sorted(stack.kernels))
        return OTHER_PROCESSOR(f"{seen} on {saw.arch}", f"{expected} on {processors}", answer=answer)
    if any(card.capability in stack.capabilities for card in found):
        return passed(seen, expected)
    kernels = stack.kernels[saw.arch]
    if any(runs(card.capability, kernels.sass, kernels.ptx) for card in found):
        return UNTRIED(seen, expected, answer=answer or "'also_on=[...]'")
    return NO_KERNELS(seen, expected, answer=answer) if answer else UNSERVED(seen, expected)


def _cards(saw: Any) -> list[Card]:
    """nvidia-smi's rows; a Jetson's or a DGX Spark's from its system's name, where nvidia-smi does not tell."""
    found = cards(saw.cards.out)
    if any(card.capability for card in found):
        return found
    if "spark" in (saw.text(FASTOS) or "").lower():
        return [Card("DGX Spark", "", "12.1")]
    if saw.text(TEGRA) is None:
        return found
    model = saw.text(MODEL) or ""
    capability = "8.7" if "Orin" in model else "11.0" if "Thor" in model else "7.2" if "Xavier" in model else ""
    return [Card(model, "", capability)]
