"""Causes of errors of torch and CUDA that can occur in any check."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from gpukit.errors.known import diagnosed, sign_ids
from gpukit.findings.finding import Finding, problem
from gpukit.verify.torch_process import TorchError, last_line

COMMON = (
    "gpu-memory-taken",
    "no-kernel",
    "gpu-exclusive",
    "gpu-memory-fault",
    "gpu-lost",
    "kernel-crashed",
    "gpu-memory-or-libraries",
    "two-cudnn",
    "host-memory-full",
    "gpu-hangs",
)


# The causes of verify for other rules, and for exceptions.
CAUSE_OF_RULE = {
    "gpu-memory-full": "gpu-memory-taken",
    "count-memory": "gpu-memory-taken",
    "forward-compatibility": "cuda-compat-geforce",
    "cuda-unknown": "container-lost-gpu",
    "lost-after-reload": "container-lost-gpu",
    "no-gpu-inside": "gpu-not-started",
    "no-such-gpu": "gpu-not-started",
    "nccl-aborted": "ranks-hang",
    "save-failed": "checkpoint-fails",
    "link-library": "libcuda-not-listed",
}
EXCEPTIONS = {
    "BlockingIOError": ("process-limit",),
    "MemoryError": ("host-memory-full", "worker-killed"),
    "PTXASError": ("ptxas-too-old",),
    "TritonMissing": ("triton-mismatch",),
    "Timeout": ("gpu-hangs", "loader-timeout", "ranks-hang"),
}
KILLED = ("host-memory-full", "worker-killed")


def summary(error: TorchError) -> str:
    """One line about an error."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind


def diagnose(error: TorchError, ids: Iterable[str], fallback: str, where: str, expected: str) -> Finding:
    """The first of these causes that matches the error's kind, its text, or the process's output before it.

    If none matches, the most likely cause of that text according to all rules.
    """
    ids = set(ids)
    seen = f"{where}: {summary(error)}" if where else summary(error)
    killed = KILLED if error.status == -signal.SIGKILL else ()
    for names in (
        (*killed, *EXCEPTIONS.get(error.kind, ())),
        cause_ids(f"{error.kind}: {error.text}"),
        cause_ids(error.log),
    ):
        for name in names:
            if name in ids:
                return problem(name, seen, expected)
    return diagnosed(f"{error.kind}: {error.text}\n{error.log}", fallback, seen, expected)


def cause_ids(text: str) -> list[str]:
    """The ids of verify's causes that a text can have, the most likely first."""
    return [CAUSE_OF_RULE.get(id, id) for id in sign_ids(text)] if text.strip() else []
