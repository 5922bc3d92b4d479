"""Several processes: DataLoader workers with shared memory, ranks with NCCL or gloo."""

from __future__ import annotations

import re
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack
from gpukit.verify.device import on_cpu, skipped_without_gpu
from gpukit.verify.torch_errors import COMMON, diagnose
from gpukit.verify.torch_process import TorchError

MIN_GB = 1.0  # if the stack sets no size; Docker's default of 64 MB leads to a bus error
MIN_FREE_GB = 0.03  # for this check and a small batch
UNITS = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}

LOADING = (
    "shared-memory",
    "open-files",
    "process-limit",
    "worker-killed",
    "library-crashed",
    "loader-timeout",
    "worker-gone",
)

RANKS = ("shared-memory", "ranks-interface", "peer-access", "ranks-hang")


def gigabytes(size: str) -> float:
    """A size as Docker writes it: 16gb, 512m."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([bkmgt]?)i?b?", size.strip().lower()).groups()
    return float(number) * UNITS[unit or "b"]


@check("shm", "Shared memory", causes=("shared-memory-leftovers", "shared-memory-small"))
def shm(probes: Any, stack: Stack) -> Finding:
    """The size of /dev/shm, which DataLoader workers use to pass batches."""
    if probes.shm_gb is None:
        return skipped("no-shared-memory")
    promised = stack.memory.shm_size
    least = gigabytes(promised) if promised else MIN_GB
    whose = "the host's, " if stack.memory.ipc == "host" else ""
    seen, expected = f"{probes.shm_gb:.2g} GB", promised or f"{whose}at least {MIN_GB:g} GB"
    if probes.shm_free_gb is not None and probes.shm_free_gb < MIN_FREE_GB:
        return problem("shared-memory-leftovers", f"{seen}, {probes.shm_free_gb * 1024:.0f} MB free", expected)
    if probes.shm_gb >= 0.95 * least:
        return passed(seen, expected)
    return problem("shared-memory-small", seen, expected)


@check(
    "loader",
    "DataLoader",
    needs=("import", "shm", "room"),
    causes=(*LOADING, "loader-fails", "loader-results-wrong"),
    level="full",
)
def loader(probes: Any, stack: Stack) -> Finding:
    """Two workers pass sixteen batches."""
    outcome = probes.loader
    if outcome.error:
        return diagnose(outcome.error, LOADING, "loader-fails", "", "two workers, sixteen batches")
    if not outcome.answer["equal"]:
        return problem("loader-results-wrong", "a different sum than without workers", "the same sum")
    return passed(f"{outcome.answer['workers']} workers, sixteen batches in {outcome.answer['seconds']:.1f} s")


@check(
    "peers",
    "GPU-GPU copies",
    needs=("tensor",),
    causes=("peer-copies-wrong", *COMMON, "gpu-computing-fails"),
    level="full",
)
def peers(probes: Any, stack: Stack) -> Finding:
    """Copies from each GPU to each other GPU are correct, with peer-to-peer access or through host memory."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if len(probes.devices.found) < 2:
        return skipped("one-gpu")
    if probes.peers.error:
        return diagnose(probes.peers.error, COMMON, "gpu-computing-fails", "", "copies between the GPUs")
    answer = probes.peers.answer
    if answer["wrong"]:
        first, second = answer["wrong"][0]
        return problem("peer-copies-wrong", f"from {first} to {second}: wrong values", "the values sent")
    way = "directly" if answer["direct"] == answer["pairs"] else "through the host" if not answer["direct"] else "mixed"
    return passed(f"correct, {way}")


@check(
    "collective",
    "Ranks",
    needs=("import", "room", "gpu", "kernels", "tensor", "peers"),
    causes=(*RANKS, "ranks-fail", "collective-results-wrong"),
    level="full",
)
def collective(probes: Any, stack: Stack) -> Finding:
    """all_reduce over all GPUs with NCCL; with fewer than two GPUs, over two processes on the CPU with gloo."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("no-gpu-visible")
    outcome = probes.collective
    if outcome.error:
        return diagnose(outcome.error, RANKS, "ranks-fail", "", "a sum over all ranks")
    result = outcome.answer
    ranks = f"{result['ranks']} {'GPUs' if result['kind'] == 'nccl' else 'processes on the CPU'}, {result['kind']}"
    if result["message"]:
        return diagnose(TorchError("", result["message"]), RANKS, "ranks-fail", ranks, "a sum over all ranks")
    if result["silent"]:
        return problem("ranks-hang", f"{ranks}: no response from {result['silent']}", "a sum over all ranks")
    if result["wrong"]:
        return problem("collective-results-wrong", f"{ranks}: a wrong sum at {result['wrong']}", "a sum over all ranks")
    if any(result["ended"]):
        return problem("ranks-fail", f"{ranks}: ended with {result['ended']}", "a sum over all ranks")
    return passed(f"{ranks}: correct sum")
