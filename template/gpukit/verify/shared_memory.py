"""Shared memory, through which the workers of a DataLoader hand over their batches."""

from __future__ import annotations

import re
from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, passed, skipped, warned
from gpukit.stack import Stack
from gpukit.verify.remedies import START

LEAST_GB = 1.0  # where nothing is promised; Docker's own default of 64 MB ends in a bus error
UNITS = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}


def gigabytes(size: str) -> float:
    """Docker's way to write a size: 16gb, 512m."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([bkmgt]?)i?b?", size.strip().lower()).groups()
    return float(number) * UNITS[unit or "b"]


@check("shm", "Shared memory")
def shm(saw: Any, stack: Stack) -> Finding:
    if saw.shm_gb is None:
        return skipped("There is no /dev/shm here.")
    promised = stack.memory.shm_size
    least = gigabytes(promised) if promised else LEAST_GB
    whose = "the host's, " if stack.memory.ipc == "host" else ""
    seen, expected = f"{saw.shm_gb:.2g} GB", promised or f"{whose}at least {LEAST_GB:g} GB"
    if saw.shm_gb >= 0.95 * least:
        return passed(seen, expected)
    return warned(
        seen,
        expected,
        cause="A DataLoader with workers ends in a bus error when this is full.",
        remedy=START,
    )
