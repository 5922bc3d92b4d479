"""Compare this machine's GPUs with the project's targets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpukit.doctor.engine import remote
from gpukit.errors import machine
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host.cards import Card, cards, hardware
from gpukit.host.facts import FASTOS, MODEL, TEGRA
from gpukit.host.kernels import runs
from gpukit.host.stacks import update_answers
from gpukit.project.stack import Stack


@check(
    "card",
    "GPU supported",
    needs="driver",
    causes="card-not-a-target no-kernel card-not-supported wrong-architecture card-not-listed",
)
def card(probes: Any, stack: Stack) -> Finding:
    """The image has compiled kernels only for the targets' compute capabilities.

    Outside a project: whether PyTorch has kernels for the GPU.
    """
    if not stack.gpu:
        return _cpu_project(probes, stack)
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    found = [card for card in _cards(probes) if card.capability]
    expected = "compute capability " + " or ".join(stack.capabilities)
    if not found:
        return skipped("not-reported", expected=expected, who="nvidia-smi", what="the GPU's compute capability")
    seen = ", ".join(dict.fromkeys(f"{card.name} ({card.capability})" for card in found))
    ids = [id for id in (hardware(card, probes.arch) for card in found) if id]
    if any(id in stack.targets for id in ids):
        return passed(seen, expected)
    kernels = stack.kernels.get(probes.arch)
    serves = kernels and any(runs(card.capability, kernels.sass, kernels.ptx) for card in found)
    if stack.standalone:
        return problem("card-not-listed" if serves else "card-not-supported", seen, "" if serves else expected)
    answer = next(filter(None, (update_answers(stack, id) for id in ids)), "")
    if not kernels:
        if not answer:
            return problem("card-not-supported", seen, expected)
        processors = " or ".join(sorted(stack.kernels))
        return problem("wrong-architecture", f"{seen} on {probes.arch}", f"{expected} on {processors}", answers=answer)
    if any(card.capability in stack.capabilities for card in found):
        return passed(seen, expected)
    if serves:
        return problem("card-not-a-target" if answer else "card-not-listed", seen, expected, answers=answer)
    return problem("no-kernel" if answer else "card-not-supported", seen, expected, answers=answer)


def not_supported(found: Iterable[machine.Card]) -> Finding:
    """The finding for GPUs that no build of PyTorch supports, outside a project."""
    return problem(
        "card-not-supported",
        ", ".join(f"{card.name} ({card.capability})" for card in found),
        "a GPU that PyTorch has a build for",
    )


def _cpu_project(probes: Any, stack: Stack) -> Finding:
    """The finding for a project without a GPU, on a machine that may have one."""
    for card in [] if stack.standalone else cards(probes.cards.out):
        answer = update_answers(stack, hardware(card, probes.arch))
        if answer:
            return skipped("no-gpu-requested", card.name, answers=answer)
    return skipped("no-gpu-requested")


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
