"""Causes of errors of torch and CUDA that can occur in any check."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from gpukit.errors.known import known_cause, sign_ids
from gpukit.findings.finding import Cause, Finding
from gpukit.verify.remedies import DOCTOR, REBUILD, UPDATE
from gpukit.verify.torch_process import TorchError, last_line

MEMORY_TAKEN = Cause(
    "gpu-memory-taken",
    "The GPU's memory is in use by another process.",
    "Run `nvidia-smi` on the host to find the process, or select another GPU with GPUS=...",
    error_texts=("CUDA out of memory", "CUDA error: out of memory"),
)
NO_KERNEL = Cause(
    "no-kernel",
    "This torch has no kernels for this GPU.",
    UPDATE,
    error_texts=("no kernel image is available for execution on the device",),
)
BUSY = Cause(
    "gpu-exclusive",
    "Another process uses this GPU exclusively (compute mode EXCLUSIVE_PROCESS).",
    "On the host: `sudo nvidia-smi -c DEFAULT`",
    error_texts=("CUDA-capable device(s) is/are busy or unavailable",),
)
ECC = Cause(
    "gpu-memory-fault",
    "The GPU's memory has an uncorrectable error.",
    "On the host: `nvidia-smi -q -d ECC`, then restart the host",
    error_texts=("uncorrectable ECC error encountered",),
)
LOST = Cause(
    "gpu-lost",
    "The GPU does not respond: it fell off the bus, or the driver reset it.",
    "Restart the host; before that, `sudo dmesg | grep Xid` there shows the driver's errors",
    error_texts=("GPU has fallen off the bus", "GPU is lost"),
)
ILLEGAL = Cause(
    "kernel-crashed",
    "A kernel accessed invalid memory: incompatible libraries, or defective hardware.",
    REBUILD,
    error_texts=("an illegal memory access was encountered", "unspecified launch failure", "misaligned address"),
)
LIBRARIES = Cause(
    "gpu-memory-or-libraries",
    "cuBLAS or cuDNN does not start: the GPU's memory is in use, or another copy is found before torch's.",
    "Check the memory with `nvidia-smi` on the host; if it is free: `unset LD_LIBRARY_PATH`",
    error_texts=("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_ALLOC_FAILED"),
)
CUDNN = Cause(
    "two-cudnn",
    "Another cuDNN is found before torch's, or torch's is incomplete.",
    "`unset LD_LIBRARY_PATH`",
    error_texts=(
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
        "Unable to load any of {libcudnn",
    ),
)
HOST_MEMORY = Cause(
    "host-memory-full",
    "The container ran out of memory, and the kernel killed the process.",
    "Give the container more memory: `docker stats` shows its limit, `free -h` the machine's memory",
    error_texts=("was ended by SIGKILL", "MemoryError", "Cannot allocate memory"),
)
HANGS = Cause("gpu-hangs", "The GPU hangs, or other processes overload it.", DOCTOR, error_texts=("no answer in ",))
COMMON = (MEMORY_TAKEN, NO_KERNEL, BUSY, ECC, LOST, ILLEGAL, LIBRARIES, CUDNN, HOST_MEMORY, HANGS)


# The causes of verify for other rules, and for exceptions.
CAUSE_OF_RULE = {
    "gpu-memory-full": MEMORY_TAKEN.id,
    "count-memory": MEMORY_TAKEN.id,
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
    "Timeout": (HANGS.id, "loader-timeout", "ranks-hang"),
}
KILLED = ("host-memory-full", "worker-killed")


def summary(error: TorchError) -> str:
    """One line about an error."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind


def diagnose(error: TorchError, causes: Iterable[Cause], fallback: Cause, where: str, expected: str) -> Finding:
    """The first of these causes that matches the error's kind, its text, or the process's output before it.

    If none matches, the most likely cause of that text according to all rules.
    """
    table = {cause.id: cause for cause in causes}
    seen = f"{where}: {summary(error)}" if where else summary(error)
    killed = KILLED if error.status == -signal.SIGKILL else ()
    for names in (
        (*killed, *EXCEPTIONS.get(error.kind, ())),
        cause_ids(f"{error.kind}: {error.text}"),
        cause_ids(error.log),
    ):
        for name in names:
            if name in table:
                return table[name](seen, expected)
    return known_cause(f"{error.kind}: {error.text}\n{error.log}", fallback)(seen, expected)


def cause_ids(text: str) -> list[str]:
    """The ids of verify's causes that a text can have, the most likely first."""
    return [CAUSE_OF_RULE.get(id, id) for id in sign_ids(text)] if text.strip() else []
