"""Compare this machine's GPUs with the project's targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpukit.doctor.driver import FASTOS, NO_GPU_REQUESTED, ON_CPU, TEGRA
from gpukit.doctor.engine import ENGINE_IS_REMOTE, remote
from gpukit.errors import machine
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.cards import Card, cards, hardware
from gpukit.host.kernels import runs
from gpukit.host.stacks import update_answers
from gpukit.project.stack import Stack

MODEL = "/proc/device-tree/model"
NOT_A_TARGET = Cause(
    "card-not-a-target",
    "This card is not among the project's targets. The image has kernels for it; nothing else was checked.",
    "`./launch update {answers}`",
    status=WARN,
    standalone="Install PyTorch and run `./launch verify`, which computes on the card: `{install}`",
)
NOT_LISTED = Cause(
    "card-not-listed",
    "This card is not in gpukit's list. PyTorch has kernels for it; nothing else was checked.",
    "`./launch verify` tests it.",
    status=WARN,
    standalone="Install PyTorch and run `./launch verify`, which computes on the card: `{install}`",
)
NO_KERNELS = Cause(
    "no-kernel",
    "This card is not among the project's targets, and the image has no kernels for it.",
    "`./launch update {answers}`",
    (
        "CUDA error: no kernel image is available for execution on the device",
        "is not compatible with the current PyTorch installation",
    ),
    standalone="Install a PyTorch that has them: `{install}`",
)
NOT_SUPPORTED = Cause(
    "card-not-supported",
    "PyTorch's builds do not support this card: it is too old, or newer than they are.",
    "Choose another GPU with GPUS, or run without one: `./launch --cpu verify` checks that.",
    standalone=f"Use another GPU, or run on the CPU: `{ON_CPU}`",
)
WRONG_ARCHITECTURE = Cause(
    "wrong-architecture",
    "The project is for machines with a different CPU architecture.",
    "`./launch update {answers}`",
    ("exec format error",),
    standalone="Install a PyTorch for this machine: `{install}`",
)


@check(
    "card",
    "GPU supported",
    needs=("driver",),
    causes=(NOT_A_TARGET, NO_KERNELS, NOT_SUPPORTED, WRONG_ARCHITECTURE, NOT_LISTED),
)
def card(probes: Any, stack: Stack) -> Finding:
    """The image has compiled kernels only for the targets' compute capabilities.

    Outside a project: whether PyTorch has kernels for the GPU.
    """
    if not stack.gpu:
        return _cpu_project(probes, stack)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    found = [card for card in _cards(probes) if card.capability]
    expected = "compute capability " + " or ".join(stack.capabilities)
    if not found:
        return skipped("nvidia-smi does not report the GPU's compute capability.", expected=expected)
    seen = ", ".join(dict.fromkeys(f"{card.name} ({card.capability})" for card in found))
    ids = [id for id in (hardware(card, probes.arch) for card in found) if id]
    if any(id in stack.targets for id in ids):
        return passed(seen, expected)
    kernels = stack.kernels.get(probes.arch)
    serves = kernels and any(runs(card.capability, kernels.sass, kernels.ptx) for card in found)
    if stack.standalone:
        return NOT_LISTED(seen) if serves else NOT_SUPPORTED(seen, expected)
    answer = next(filter(None, (update_answers(stack, id) for id in ids)), "")
    if not kernels:
        if not answer:
            return NOT_SUPPORTED(seen, expected)
        processors = " or ".join(sorted(stack.kernels))
        return WRONG_ARCHITECTURE(f"{seen} on {probes.arch}", f"{expected} on {processors}", answers=answer)
    if any(card.capability in stack.capabilities for card in found):
        return passed(seen, expected)
    if serves and answer:
        return NOT_A_TARGET(seen, expected, answers=answer)
    if serves:
        return NOT_LISTED(seen, expected)
    return NO_KERNELS(seen, expected, answers=answer) if answer else NOT_SUPPORTED(seen, expected)


def not_supported(found: Iterable[machine.Card]) -> Finding:
    """The finding for GPUs that no build of PyTorch supports, outside a project."""
    return NOT_SUPPORTED(
        ", ".join(f"{card.name} ({card.capability})" for card in found), "a GPU that PyTorch has a build for"
    )


def _cpu_project(probes: Any, stack: Stack) -> Finding:
    """The finding for a project without a GPU, on a machine that may have one."""
    for card in [] if stack.standalone else cards(probes.cards.out):
        answer = update_answers(stack, hardware(card, probes.arch))
        if answer:
            return skipped(NO_GPU_REQUESTED, card.name, remedy=f"To use this GPU: `./launch update {answer}`")
    return skipped(NO_GPU_REQUESTED)


def _cards(probes: Any) -> list[Card]:
    """nvidia-smi's rows. On a Jetson or DGX Spark, the GPU follows from the system if nvidia-smi does not report it."""
    found = cards(probes.cards.out)
    if any(card.capability for card in found):
        return found
    if "spark" in (probes.text(FASTOS) or "").lower():
        return [Card("DGX Spark", "", "12.1")]
    if probes.text(TEGRA) is None:
        return found
    model = probes.text(MODEL) or ""
    capability = "8.7" if "Orin" in model else "11.0" if "Thor" in model else "7.2" if "Xavier" in model else ""
    return [Card(model, "", capability)]
