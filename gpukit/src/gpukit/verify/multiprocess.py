"""Processes that work together: a DataLoader's workers by way of shared memory, and ranks by NCCL or gloo."""

from __future__ import annotations

import re
from typing import Any

from gpukit.errors.known import known
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.compute import FAILS
from gpukit.verify.device import on_cpu, without
from gpukit.verify.remedies import DOCTOR, START
from gpukit.verify.torch_errors import COMMON, diagnose

LEAST_GB = 1.0  # where nothing is promised; Docker's own default of 64 MB ends in a bus error
LEAST_FREE_GB = 0.03  # what the check itself, and a small batch, need
UNITS = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}

SMALL = Cause(
    "A DataLoader with workers ends in a bus error when this is full.",
    START,
    says=(
        "It is possible that dataloader's workers are out of shared memory",
        "Unexpected bus error encountered in worker",
    ),
    status=WARN,
)
SHM_FULL = Cause(
    "Shared memory is full: what crashed processes left behind, or others who share it.",
    "Look at `ls -l /dev/shm`, and take away the torch_* files that belong to no running process",
    says=("unable to open shared memory object", "unable to allocate shared memory"),
)
WORKERS_SHM = Cause(
    "Shared memory is full, through which the workers of a DataLoader hand over their batches.",
    START,
    says=(
        "is killed by signal: Bus error",
        "unable to allocate shared memory",
        "unable to open shared memory object",
        "out of shared memory",
    ),
)
WORKERS_MEMORY = Cause(
    "A worker was ended from outside, as the kernel does when the container's memory runs out.",
    "Give the container more memory or take fewer workers: `docker stats` shows its limit",
    says=("is killed by signal: Killed", "was ended by SIGKILL", "Cannot allocate memory"),
)
WORKERS_FILES = Cause(
    "The workers run out of open files.",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json",
    says=("Too many open files", "received 0 items of ancdata"),
)
WORKERS_PROCESSES = Cause(
    "No more processes may be started in this container.",
    "Take `--pids-limit` out of runArgs in devcontainer.json, or raise it",
    says=("Resource temporarily unavailable", "can't start new thread"),
)
WORKERS_CRASH = Cause(
    "A worker crashed: a library that does not bear being forked, or a broken one.",
    "Pass multiprocessing_context='spawn' to the DataLoader, and look which import makes the difference",
    says=("is killed by signal: Segmentation fault", "is killed by signal: Aborted"),
)
WORKERS_GONE = Cause(
    "A worker ended without a word.",
    "Take num_workers=0 once: the error then stands in the program's own output",
    says=("exited unexpectedly",),
)
WORKERS_HANG = Cause(
    "The workers do not answer: a lock was held when they were forked, or the machine is overloaded.",
    "Look at `top` while it runs; multiprocessing_context='spawn' avoids the first",
    says=("DataLoader timed out", "no answer in"),
)
LOADER_FAILS = Cause("A DataLoader with workers fails, in a way not known here.", START)
LOADER_WRONG = Cause("The workers hand over other numbers than they read.", DOCTOR)
LOADING = (WORKERS_SHM, WORKERS_FILES, WORKERS_PROCESSES, WORKERS_MEMORY, WORKERS_CRASH, WORKERS_HANG, WORKERS_GONE)

NO_NETWORK = Cause(
    "The ranks do not reach each other: the container's own name or network card leads nowhere.",
    "export NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo for a single machine",
    says=("Bootstrap : no socket interface found", "Unable to resolve hostname", "Connection refused"),
)
NCCL_SHM = Cause(
    "NCCL does not get the shared memory that it asks for.",
    START,
    says=("Error while creating shared memory segment", "Call to posix_fallocate failed"),
)
NO_PEER = Cause(
    "The GPUs do not reach each other directly, which NCCL takes for granted here.",
    "export NCCL_P2P_DISABLE=1, and on the host look at the IOMMU (ACS) settings",
    says=("peer access is not supported", "CUDA failure 'peer"),
)
NCCL_HANGS = Cause(
    "The ranks wait for each other without end: direct access between the GPUs (IOMMU, ACS) is the usual reason.",
    "export NCCL_P2P_DISABLE=1 and look again; NCCL_DEBUG=INFO says where it stands still",
    says=("Watchdog caught collective operation timeout", "Timed out", "no answer in"),
)
RANKS_FAIL = Cause(
    "The ranks fail, in a way not known here.",
    "Look again with NCCL_DEBUG=INFO",
    says=("NCCL error", "ncclSystemError"),
)
RANKS_WRONG = Cause(
    "The GPUs add up wrongly together: data is damaged on its way between them.",
    "export NCCL_P2P_DISABLE=1, and on the host look at the IOMMU (ACS) settings",
)
PEERS_WRONG = Cause(
    "What one GPU sends to another arrives damaged: the IOMMU comes between them.",
    "export NCCL_P2P_DISABLE=1, and on the host switch the IOMMU or ACS off, in its firmware or with iommu=pt",
)
RANKS = (NCCL_SHM, NO_NETWORK, NO_PEER, NCCL_HANGS)


def gigabytes(size: str) -> float:
    """Docker's way to write a size: 16gb, 512m."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([bkmgt]?)i?b?", size.strip().lower()).groups()
    return float(number) * UNITS[unit or "b"]


@check("shm", "Shared memory", causes=(SHM_FULL, SMALL))
def shm(saw: Any, stack: Stack) -> Finding:
    """/dev/shm, through which the workers of a DataLoader hand over their batches."""
    if saw.shm_gb is None:
        return skipped("There is no /dev/shm here.")
    promised = stack.memory.shm_size
    least = gigabytes(promised) if promised else LEAST_GB
    whose = "the host's, " if stack.memory.ipc == "host" else ""
    seen, expected = f"{saw.shm_gb:.2g} GB", promised or f"{whose}at least {LEAST_GB:g} GB"
    if saw.shm_free_gb is not None and saw.shm_free_gb < LEAST_FREE_GB:
        return SHM_FULL(f"{seen}, {saw.shm_free_gb * 1024:.0f} MB of it free", expected)
    if saw.shm_gb >= 0.95 * least:
        return passed(seen, expected)
    return SMALL(seen, expected)


@check(
    "loader",
    "DataLoader",
    needs=("import", "shm", "room"),
    causes=(*LOADING, LOADER_FAILS, LOADER_WRONG),
    level="full",
)
def loader(saw: Any, stack: Stack) -> Finding:
    """Two workers hand over sixteen batches."""
    outcome = saw.loader
    if outcome.error:
        return diagnose(outcome.error, LOADING, LOADER_FAILS, "", "two workers, sixteen batches")
    if not outcome.answer["equal"]:
        return LOADER_WRONG("another sum than without workers", "the same sum")
    return passed(f"{outcome.answer['workers']} workers, sixteen batches in {outcome.answer['seconds']:.1f} s")


@check("peers", "Between GPUs", needs=("tensor",), causes=(PEERS_WRONG, *COMMON, FAILS), level="full")
def peers(saw: Any, stack: Stack) -> Finding:
    """Each GPU sends to each other one: what arrives is what was sent, directly or by way of the host's memory."""
    if missing := without(saw, stack):
        return missing
    if len(saw.devices.found) < 2:
        return skipped("There is one GPU.")
    if saw.peers.error:
        return diagnose(saw.peers.error, COMMON, FAILS, "", "copies between the GPUs")
    answer = saw.peers.answer
    if answer["wrong"]:
        first, second = answer["wrong"][0]
        return PEERS_WRONG(f"from {first} to {second}: other numbers arrive", "what was sent")
    way = (
        "directly" if answer["direct"] == answer["pairs"] else "by way of the host" if not answer["direct"] else "mixed"
    )
    return passed(f"right, {way}")


@check(
    "collective",
    "Ranks",
    needs=("import", "room", "gpu", "kernels", "tensor", "peers"),
    causes=(*RANKS, RANKS_FAIL, RANKS_WRONG),
    level="full",
)
def collective(saw: Any, stack: Stack) -> Finding:
    """all_reduce over all GPUs by NCCL where there is more than one, else over two processes on the CPU by gloo."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    outcome = saw.collective
    if outcome.error:
        return diagnose(outcome.error, RANKS, RANKS_FAIL, "", "a sum over all ranks")
    result = outcome.answer
    ranks = f"{result['ranks']} {'GPUs' if result['kind'] == 'nccl' else 'processes on the CPU'}, {result['kind']}"
    if result["message"]:
        for cause in RANKS:
            if any(words.lower() in result["message"].lower() for words in cause.says):
                return cause(f"{ranks}: {result['message']}", "a sum over all ranks")
        return known(result["message"], RANKS_FAIL)(f"{ranks}: {result['message']}", "a sum over all ranks")
    if result["silent"]:
        return NCCL_HANGS(f"{ranks}: no answer from {result['silent']}", "a sum over all ranks")
    if result["wrong"]:
        return RANKS_WRONG(f"{ranks}: a wrong sum at {result['wrong']}", "a sum over all ranks")
    if any(result["ended"]):
        return RANKS_FAIL(f"{ranks}: ended with {result['ended']}", "a sum over all ranks")
    return passed(f"{ranks}: the right sum")
