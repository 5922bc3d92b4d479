"""The causes of errors of torch and CUDA that any check can meet."""

from __future__ import annotations

from collections.abc import Iterable

from gpukit.errors.known import known
from gpukit.findings.finding import Cause, Finding
from gpukit.verify.remedies import DOCTOR, REBUILD, UPDATE
from gpukit.verify.torch_process import TorchError, last_line

MEMORY_TAKEN = Cause(
    "gpu-memory-taken",
    "The GPU's memory is in use by another process.",
    "Run `nvidia-smi` on the host to find the process, or select another GPU with GPUS=...",
    says=("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
NO_KERNEL = Cause(
    "no-kernel",
    "This torch has no kernels for this GPU.",
    UPDATE,
    says=("no kernel image is available for execution on the device",),
)
BUSY = Cause(
    "gpu-busy",
    "Another process uses this GPU exclusively (compute mode EXCLUSIVE_PROCESS).",
    "On the host: sudo nvidia-smi -c DEFAULT",
    says=("CUDA-capable device(s) is/are busy or unavailable",),
)
ECC = Cause(
    "gpu-memory-fault",
    "The GPU's memory has an uncorrectable error.",
    "On the host: nvidia-smi -q -d ECC, then restart the host",
    says=("uncorrectable ECC error encountered",),
)
LOST = Cause(
    "gpu-lost",
    "The GPU does not respond: it fell off the bus, or the driver reset it.",
    "Restart the host; before that, `sudo dmesg | grep Xid` there shows the driver's errors",
    says=("unspecified launch failure", "GPU is lost", "device is not ready"),
)
ILLEGAL = Cause(
    "kernel-crashed",
    "A kernel accessed invalid memory: incompatible libraries, or defective hardware.",
    REBUILD,
    says=("an illegal memory access was encountered", "illegal instruction was encountered", "misaligned address"),
)
CUBLAS = Cause(
    "cublas-does-not-start",
    "cuBLAS does not start: the GPU's memory is in use, or another cuBLAS is found before torch's.",
    "Check the memory with `nvidia-smi` on the host; if it is free: unset LD_LIBRARY_PATH",
    says=("CUBLAS_STATUS_NOT_INITIALIZED", "libcublas.so"),
)
CUDNN = Cause(
    "two-cudnn",
    "Another cuDNN is found before torch's, or torch's is incomplete.",
    "unset LD_LIBRARY_PATH",
    says=(
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
        "Unable to load any of {libcudnn",
    ),
)
HOST_MEMORY = Cause(
    "host-memory-full",
    "The container ran out of memory, and the kernel killed the process.",
    "Give the container more memory: `docker stats` shows its limit, `free -h` the machine's memory",
    says=("was ended by SIGKILL", "is killed by signal: Killed", "Cannot allocate memory"),
)
HANGS = Cause("gpu-hangs", "The GPU hangs, or other processes overload it.", DOCTOR, says=("no answer in ",))
COMMON = (MEMORY_TAKEN, NO_KERNEL, BUSY, ECC, LOST, ILLEGAL, CUBLAS, CUDNN, HOST_MEMORY, HANGS)


def summary(error: TorchError) -> str:
    """One line about an error."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind


def diagnose(error: TorchError, causes: Iterable[Cause], otherwise: Cause, where: str, expected: str) -> Finding:
    """The first cause whose `says` is in the error's text, or else in the process's output before it.

    Without one, the cause that `./launch explain` knows for that text.
    """
    causes = tuple(causes)
    seen = f"{where}: {summary(error)}" if where else summary(error)
    for text in (f"{error.kind}: {error.text}".lower(), error.log.lower()):
        for cause in causes:
            if any(words.lower() in text for words in cause.says):
                return cause(seen, expected)
    return known(f"{error.text}\n{error.log}", otherwise)(seen, expected)
