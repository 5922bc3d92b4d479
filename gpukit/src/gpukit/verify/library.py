"""What gpukit.script does on a GPU that it cannot do without one."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, passed
from gpukit.project.stack import Stack
from gpukit.verify.compute import FAILS
from gpukit.verify.device import skipped_without_gpu
from gpukit.verify.hardware import NOT_PINNED
from gpukit.verify.torch_errors import COMMON, diagnose

REPORT_REMEDY = "Open an issue of gpu-template with the file that `--report` writes"
TOLERANCE = 1e-4  # of the parameters' change: sums in another order differ by about 1e-6
NO_REPLAY = Cause(
    "replay-did-not-happen",
    "A batch larger than the limited memory did not run out of memory: the limit of torch has no effect.",
    REPORT_REMEDY,
)
REPLAY_DIFFERS = Cause(
    "replay-differs",
    "After an out-of-memory error, the batch was repeated in parts, but the parameters differ from the whole batch's.",
    REPORT_REMEDY,
)
LOADER_DIFFERS = Cause(
    "pinned-batches-wrong",
    "Batches that were copied from pinned memory have other values on the GPU.",
    REPORT_REMEDY,
)
SCALER_WRONG = Cause(
    "loss-scaling-wrong",
    "fp16 training with loss scaling does not learn, or does not skip a step whose gradients overflow.",
    REPORT_REMEDY,
)


@check(
    "train",
    "Training step",
    needs=("tensor", "shm"),
    causes=(NO_REPLAY, REPLAY_DIFFERS, NOT_PINNED, LOADER_DIFFERS, SCALER_WRONG, *COMMON, FAILS),
    level="full",
)
def train(probes: Any, stack: Stack) -> Finding:
    """On the GPU: a step that runs out of memory is repeated in parts with the same result, batches are loaded through
    pinned memory, and fp16 training scales the loss and skips a step whose gradients overflow."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    for outcome in probes.library:
        if outcome.error:
            return diagnose(outcome.error, (NOT_PINNED, *COMMON), FAILS, f"on {outcome.device}", "")
    replay, pinned, scaler = (outcome.answer for outcome in probes.library)
    if not replay["retries"]:
        return NO_REPLAY("no out-of-memory error", "at least one")
    if not replay["difference"] <= TOLERANCE:
        return REPLAY_DIFFERS(f"a difference of {replay['difference']:.1e}", f"at most {TOLERANCE:.0e}")
    if not pinned["pinned"]:
        return NOT_PINNED("batches in pageable memory", "pinned memory")
    if not pinned["equal"]:
        return LOADER_DIFFERS("other values", "each sample once in each epoch")
    first, last, (before, after, resumed) = scaler["first"], scaler["last"], scaler["scales"]
    seen = f"loss {first:.3g} to {last:.3g}, scale {before:g}, {after:g} after an overflow"
    learned = math.isfinite(last) and last < first
    if not learned or not scaler["kept"] or after != before / 2 or resumed != after:
        return SCALER_WRONG(seen, f"a decreasing loss, and a scale of {before / 2:g} after an overflow")
    return passed(
        f"{replay['retries']} replays with the same result, pinned batches, fp16 scale {before:g} to {after:g}"
    )
