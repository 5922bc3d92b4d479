"""Whether training fits the memory of the target's cards, from a trace that `gpukit.script.memory` makes elsewhere."""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host.memory import usual
from gpukit.project.location import root
from gpukit.project.stack import Stack, minor

SECONDS = 300  # for the trace, which builds the model
UNTRACEABLE = 3  # the exit code of the program that computes the memory
# Of a card's nominal memory, in GiB. A T4 with 16 GB reports 15360 MiB, as ECC takes 1/16; the driver takes some more.
USABLE = 0.93
CAUSES = ("model-too-large", "card-too-small", "model-too-large-for-some-cards", "some-cards-too-small")


@functools.lru_cache
def trace(dtype: str, batch_size: int | None) -> dict[str, Any]:
    """What the trace prints; {"why"} if there is none, with "untraceable" if the model is the reason."""
    command = [sys.executable, "-m", "gpukit.script.memory", f"--autocast={dtype}"]
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


@check("memory", "Memory of the GPU", causes=CAUSES, project=True)
def memory(probes: Any, stack: Stack) -> Finding:
    """Weights, gradients, optimizer state, and activations of a training step must fit the card, beside CUDA's own."""
    if not probes.target.capability:
        return skipped("target-without-gpu")
    if find_spec("torch") is None:
        return skipped("memory-needs-pytorch")
    found = probes.trace
    if "why" in found:
        return skipped("memory-not-computed", reason=found["why"])
    share = stack.memory.fraction or usual() if probes.target.unified_memory else USABLE
    fixed = found["fixed"] + found["context"]
    each = max(1, found["per_sample"])
    batch = found["batch_size"]
    need = fixed + each * batch
    fits = {size: max(0, int((size * 2**30 * share - fixed) // each)) for size in sorted(probes.cards)}
    seen = f"batch size {batch:,} needs {gb(need)} GB in {found['dtype']}; the largest batch that fits: "
    seen += ", ".join(f"{most:,} on {size} GB" for size, most in fits.items())
    small = [size for size, most in fits.items() if most < batch]
    if not small:
        return passed(seen)
    if none := [size for size in small if not fits[size]]:
        id = "model-too-large" if len(none) == len(fits) else "model-too-large-for-some-cards"
        if id == "model-too-large" or len(small) < len(fits):
            return problem(id, seen, need=gb(fixed + each), cards=sizes_of(none))
    id = "some-cards-too-small"
    fit = fits[small[0]]
    if len(small) == len(fits):
        id = "card-too-small"
        fit = max(fits.values())
    return problem(id, seen, batch=batch, need=gb(need), cards=sizes_of(small), fits=fit)


@check("rent", "To rent")
def rent(probes: Any, stack: Stack) -> Finding:
    """The four values that providers of machines filter by: without the capability, a CUDA version alone also gives
    cards that this PyTorch has no kernels for. Data and checkpoints need disk space of their own."""
    target = probes.target
    found = vars(probes).get("trace", {})
    if not (target.capability and stack.cuda):
        return skipped("target-without-gpu")
    least = min(probes.cards)  # unless the memory was computed
    if "fixed" in found:
        need = found["fixed"] + found["context"] + found["per_sample"] * found["batch_size"]
        least = math.ceil(need / USABLE / 2**30)
    seen = f"CUDA {minor(stack.cuda)} or newer, compute capability {target.capability} or newer"
    return passed(f"{seen}, {least} GB of GPU memory, {math.ceil(stack.size_gb)} GB of disk")


def sizes_of(cards: list[int]) -> str:
    return f"{' or '.join(map(str, cards))} GB"


def gb(size: int) -> str:
    """In the unit of the cards' own sizes, which are 2**30 bytes."""
    return f"{size / 2**30:.1f}"
