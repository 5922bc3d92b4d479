"""Several processes: DataLoader workers with shared memory, ranks with NCCL or gloo."""

from __future__ import annotations

import re
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.compute import FAILS
from gpukit.verify.device import on_cpu, skipped_without_gpu
from gpukit.verify.remedies import DOCTOR, START
from gpukit.verify.torch_errors import COMMON, diagnose
from gpukit.verify.torch_process import TorchError

MIN_GB = 1.0  # if the stack sets no size; Docker's default of 64 MB leads to a bus error
MIN_FREE_GB = 0.03  # for this check and a small batch
UNITS = {"b": 2**-30, "k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0}

SHM_SMALL = Cause(
    "shared-memory-small",
    "A DataLoader with workers fails with a bus error when shared memory is full.",
    START,
    error_texts=(
        "It is possible that dataloader's workers are out of shared memory",
        "Unexpected bus error encountered in worker",
    ),
    status=WARN,
)
SHM_FULL = Cause(
    "shared-memory-leftovers",
    "Shared memory is full: of files of crashed processes, or because other programs use it.",
    "Run `ls -l /dev/shm`, and remove the torch_* files of processes that no longer run",
    error_texts=("unable to open shared memory object", "unable to allocate shared memory"),
)
WORKERS_SHM = Cause(
    "shared-memory",
    "Shared memory, which DataLoader workers use to pass batches, is full.",
    START,
    error_texts=(
        "is killed by signal: Bus error",
        "unable to allocate shared memory",
        "unable to open shared memory object",
        "out of shared memory",
    ),
)
WORKERS_MEMORY = Cause(
    "worker-killed",
    "A worker was killed; the kernel does this when the container runs out of memory.",
    "Give the container more memory or use fewer workers: `docker stats` shows its limit",
    error_texts=("is killed by signal: Killed", "was ended by SIGKILL", "Cannot allocate memory"),
)
WORKERS_FILES = Cause(
    "open-files",
    "The workers exceed the limit of open files.",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json",
    error_texts=("Too many open files", "received 0 items of ancdata"),
)
WORKERS_PROCESSES = Cause(
    "process-limit",
    "The container's limit of processes is reached.",
    "Remove `--pids-limit` from runArgs in devcontainer.json, or raise it",
    error_texts=("Resource temporarily unavailable", "can't start new thread"),
)
WORKERS_CRASH = Cause(
    "library-crashed",
    "A worker crashed: a library is broken, or does not support fork.",
    "Pass multiprocessing_context='spawn' to the DataLoader, and find the import that makes the difference",
    error_texts=("is killed by signal: Segmentation fault", "is killed by signal: Aborted"),
)
WORKERS_GONE = Cause(
    "worker-gone",
    "A worker exited without an error message.",
    "Run once with num_workers=0: the error is then in the program's own output",
    error_texts=("exited unexpectedly",),
)
WORKERS_HANG = Cause(
    "loader-timeout",
    "The workers do not respond: a lock was held during fork, or the machine is overloaded.",
    "Watch `top` while this check runs; multiprocessing_context='spawn' avoids the problem with locks",
    error_texts=("DataLoader timed out", "no answer in"),
)
LOADER_FAILS = Cause("loader-fails", "A DataLoader with workers fails for an unknown reason.", START)
LOADER_WRONG = Cause("loader-results-wrong", "The workers return other values than they read.", DOCTOR)
LOADING = (WORKERS_SHM, WORKERS_FILES, WORKERS_PROCESSES, WORKERS_MEMORY, WORKERS_CRASH, WORKERS_HANG, WORKERS_GONE)

NO_NETWORK = Cause(
    "ranks-interface",
    "The ranks cannot connect: the container's host name or network interface is not usable.",
    "On a single machine: `export NCCL_SOCKET_IFNAME=lo GLOO_SOCKET_IFNAME=lo`",
    error_texts=("Bootstrap : no socket interface found", "Unable to resolve hostname", "Connection refused"),
)
NCCL_SHM = Cause(
    "shared-memory",
    "NCCL cannot allocate shared memory.",
    START,
    error_texts=("Error while creating shared memory segment", "Call to posix_fallocate failed"),
)
NO_PEER = Cause(
    "peer-access",
    "NCCL expects peer-to-peer access between the GPUs, which does not work.",
    "`export NCCL_P2P_DISABLE=1`, and check the IOMMU (ACS) settings on the host",
    error_texts=("peer access is not supported", "CUDA failure 'peer"),
)
NCCL_HANGS = Cause(
    "ranks-hang",
    "The ranks hang: the usual cause is peer-to-peer access between the GPUs (IOMMU, ACS).",
    "`export NCCL_P2P_DISABLE=1` and run this check again; NCCL_DEBUG=INFO shows where it hangs",
    error_texts=("Watchdog caught collective operation timeout", "Timed out", "no answer in"),
)
RANKS_FAIL = Cause(
    "ranks-fail",
    "The ranks fail for an unknown reason.",
    "Run this check again with NCCL_DEBUG=INFO",
    error_texts=("NCCL error", "ncclSystemError"),
)
RANKS_WRONG = Cause(
    "collective-results-wrong",
    "all_reduce over the GPUs gives a wrong sum: transfers between them corrupt data.",
    "`export NCCL_P2P_DISABLE=1`, and check the IOMMU (ACS) settings on the host",
)
PEERS_WRONG = Cause(
    "peer-copies-wrong",
    "Copies between GPUs corrupt data: the IOMMU interferes.",
    "`export NCCL_P2P_DISABLE=1`, and disable the IOMMU or ACS on the host, in its firmware or with iommu=pt",
)
RANKS = (NCCL_SHM, NO_NETWORK, NO_PEER, NCCL_HANGS)


def gigabytes(size: str) -> float:
    """A size as Docker writes it: 16gb, 512m."""
    number, unit = re.fullmatch(r"([\d.]+)\s*([bkmgt]?)i?b?", size.strip().lower()).groups()
    return float(number) * UNITS[unit or "b"]


@check("shm", "Shared memory", causes=(SHM_FULL, SHM_SMALL))
def shm(probes: Any, stack: Stack) -> Finding:
    """The size of /dev/shm, which DataLoader workers use to pass batches."""
    if probes.shm_gb is None:
        return skipped("There is no /dev/shm.")
    promised = stack.memory.shm_size
    least = gigabytes(promised) if promised else MIN_GB
    whose = "the host's, " if stack.memory.ipc == "host" else ""
    seen, expected = f"{probes.shm_gb:.2g} GB", promised or f"{whose}at least {MIN_GB:g} GB"
    if probes.shm_free_gb is not None and probes.shm_free_gb < MIN_FREE_GB:
        return SHM_FULL(f"{seen}, {probes.shm_free_gb * 1024:.0f} MB free", expected)
    if probes.shm_gb >= 0.95 * least:
        return passed(seen, expected)
    return SHM_SMALL(seen, expected)


@check(
    "loader",
    "DataLoader",
    needs=("import", "shm", "room"),
    causes=(*LOADING, LOADER_FAILS, LOADER_WRONG),
    level="full",
)
def loader(probes: Any, stack: Stack) -> Finding:
    """Two workers pass sixteen batches."""
    outcome = probes.loader
    if outcome.error:
        return diagnose(outcome.error, LOADING, LOADER_FAILS, "", "two workers, sixteen batches")
    if not outcome.answer["equal"]:
        return LOADER_WRONG("a different sum than without workers", "the same sum")
    return passed(f"{outcome.answer['workers']} workers, sixteen batches in {outcome.answer['seconds']:.1f} s")


@check("peers", "GPU-GPU copies", needs=("tensor",), causes=(PEERS_WRONG, *COMMON, FAILS), level="full")
def peers(probes: Any, stack: Stack) -> Finding:
    """Copies from each GPU to each other GPU are correct, with peer-to-peer access or through host memory."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if len(probes.devices.found) < 2:
        return skipped("There is one GPU.")
    if probes.peers.error:
        return diagnose(probes.peers.error, COMMON, FAILS, "", "copies between the GPUs")
    answer = probes.peers.answer
    if answer["wrong"]:
        first, second = answer["wrong"][0]
        return PEERS_WRONG(f"from {first} to {second}: wrong values", "the values sent")
    way = "directly" if answer["direct"] == answer["pairs"] else "through the host" if not answer["direct"] else "mixed"
    return passed(f"correct, {way}")


@check(
    "collective",
    "Ranks",
    needs=("import", "room", "gpu", "kernels", "tensor", "peers"),
    causes=(*RANKS, RANKS_FAIL, RANKS_WRONG),
    level="full",
)
def collective(probes: Any, stack: Stack) -> Finding:
    """all_reduce over all GPUs with NCCL; with fewer than two GPUs, over two processes on the CPU with gloo."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("There is no GPU.")
    outcome = probes.collective
    if outcome.error:
        return diagnose(outcome.error, RANKS, RANKS_FAIL, "", "a sum over all ranks")
    result = outcome.answer
    ranks = f"{result['ranks']} {'GPUs' if result['kind'] == 'nccl' else 'processes on the CPU'}, {result['kind']}"
    if result["message"]:
        return diagnose(TorchError("", result["message"]), RANKS, RANKS_FAIL, ranks, "a sum over all ranks")
    if result["silent"]:
        return NCCL_HANGS(f"{ranks}: no response from {result['silent']}", "a sum over all ranks")
    if result["wrong"]:
        return RANKS_WRONG(f"{ranks}: a wrong sum at {result['wrong']}", "a sum over all ranks")
    if any(result["ended"]):
        return RANKS_FAIL(f"{ranks}: ended with {result['ended']}", "a sum over all ranks")
    return passed(f"{ranks}: correct sum")
