"""What gpukit.script does on a GPU that it cannot do without one."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.project.stack import Stack
from gpukit.verify.device import skipped_without_gpu
from gpukit.verify.torch_errors import COMMON, diagnose

REPORT_REMEDY = "Open an issue of gpu-template with the file that `--report` writes"
TOLERANCE = 1e-4  # of the parameters' change: sums in another order differ by about 1e-6


@check(
    "train",
    "Training step",
    needs=("tensor", "shm"),
    causes=(
        "replay-did-not-happen",
        "replay-differs",
        "os-refused-cuda",
        "pinned-batches-wrong",
        "loss-scaling-wrong",
        *COMMON,
        "gpu-computing-fails",
    ),
    level="full",
)
def train(probes: Any, stack: Stack) -> Finding:
    """On the GPU: a step that runs out of memory is repeated in parts with the same result, batches are loaded through
    pinned memory, and fp16 training scales the loss and skips a step whose gradients overflow."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    for outcome in probes.library:
        if outcome.error:
            return diagnose(
                outcome.error, ("os-refused-cuda", *COMMON), "gpu-computing-fails", f"on {outcome.device}", ""
            )
    replay, pinned, scaler = (outcome.answer for outcome in probes.library)
    if not replay["retries"]:
        return problem("replay-did-not-happen", "no out-of-memory error", "at least one")
    if not replay["difference"] <= TOLERANCE:
        return problem("replay-differs", f"a difference of {replay['difference']:.1e}", f"at most {TOLERANCE:.0e}")
    if not pinned["pinned"]:
        return problem("os-refused-cuda", "batches in pageable memory", "pinned memory")
    if not pinned["equal"]:
        return problem("pinned-batches-wrong", "other values", "each sample once in each epoch")
    first, last, (before, after, resumed) = scaler["first"], scaler["last"], scaler["scales"]
    seen = f"loss {first:.3g} to {last:.3g}, scale {before:g}, {after:g} after an overflow"
    learned = math.isfinite(last) and last < first
    if not learned or not scaler["kept"] or after != before / 2 or resumed != after:
        return problem(
            "loss-scaling-wrong", seen, f"a decreasing loss, and a scale of {before / 2:g} after an overflow"
        )
    return passed(
        f"{replay['retries']} replays with the same result, pinned batches, fp16 scale {before:g} to {after:g}"
    )
