"""Whether training fits the memory of the target's cards, from a trace that `gpukit.train.memory` makes elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.location import root
from gpukit.project.stack import Stack

SECONDS = 300  # for the trace, which builds the model
UNTRACEABLE = 3  # its exit status, and that of `plan`
# Of a card's nominal memory. A T4 with 16 GB reports 15360 MiB, as ECC takes 1/16; the driver takes some more.
USABLE = 0.93
TOO_SMALL = Cause(
    "card-too-small",
    "Training at batch size {batch} needs {need:.1f} GB, and {card} has {memory:.0f} GB.",
    "Use a smaller batch: `{option}`",
)
SOME_TOO_SMALL = Cause(
    "some-cards-too-small",
    "Training at batch size {batch} needs {need:.1f} GB: too much for {cards}.",
    "On those cards, use a smaller batch: `{option}`",
    status=WARN,
)


def trace(batch_size: int | None) -> dict[str, Any]:
    """What the trace prints; {"why"} if there is none, with "untraceable" if the model is the reason."""
    command = [sys.executable, "-m", "gpukit.train.memory", "--json"]
    command += [f"--batch-size={batch_size}"] if batch_size else []
    try:
        done = subprocess.run(command, cwd=root(), capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"why": f"The trace took longer than {SECONDS} s."}
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {"why": f"The trace failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"}
    return {**found, "untraceable": True} if done.returncode == UNTRACEABLE else found


@check("memory", "Memory of the GPU", causes=(TOO_SMALL, SOME_TOO_SMALL), project=True)
def memory(probes: Any, stack: Stack) -> Finding:
    """Weights, gradients, optimizer state, and activations of a training step must fit the card, beside CUDA itself."""
    if not probes.target.capability:
        return skipped("The target has no GPU.")
    if find_spec("torch") is None:
        return skipped(
            "PyTorch is not installed in this Python, and the trace needs it.", remedy="`./launch --native --cpu plan`"
        )
    found = probes.trace
    if "why" in found:
        return skipped(found["why"])
    cards = probes.cards
    need, fixed, each = found["bytes"], found["fixed"], max(1, found["per_sample"])
    batch = found["batch_size"]
    room = {name: size * 2**30 * share(stack) for name, size in cards.items()}
    small = {name: (room[name], cards[name]) for name in cards if room[name] < need}
    fits = {name: int((room[name] - fixed) // each) for name in cards}
    most = ", ".join(f"{limit} in {cards[name]:g} GB" for name, limit in sorted(fits.items(), key=lambda item: item[1]))
    most = ", ".join(dict.fromkeys(most.split(", ")))
    seen = f"batch size {batch} needs {need / 2**30:.1f} GB; the largest that fits: {most}"
    smallest = min(fits, key=lambda name: fits[name], default="")
    option = f"--batch-size {max(1, fits[smallest])}" if smallest else ""
    if small and len(small) == len(cards):
        name = max(cards, key=lambda each: cards[each])
        option = f"--batch-size {max(1, fits[name])}"
        return TOO_SMALL(seen, batch=batch, need=need / 2**30, card=name, memory=cards[name], option=option)
    if small:
        return SOME_TOO_SMALL(seen, batch=batch, need=need / 2**30, cards=", ".join(small), option=option)
    return passed(seen)


def share(stack: Stack) -> float:
    """How much of a card's memory training can use; where it is the CPU's too, what the stack allows."""
    return stack.memory.fraction or USABLE
