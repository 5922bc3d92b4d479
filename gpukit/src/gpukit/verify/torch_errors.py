"""What torch and CUDA say when something fails, wherever that is: the cause, and the one thing to do."""

from __future__ import annotations

from collections.abc import Iterable

from gpukit.errors.known import known
from gpukit.findings.finding import Cause, Finding
from gpukit.verify.remedies import DOCTOR, REBUILD, UPDATE
from gpukit.verify.torch_process import TorchError, last_line

MEMORY_TAKEN = Cause(
    "The GPU's memory is taken: another process holds it.",
    "Look who holds it with `nvidia-smi` on the host, or choose another GPU with GPUS=...",
    says=("CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
)
NO_KERNEL = Cause(
    "This torch has no kernels for this GPU.",
    UPDATE,
    says=("no kernel image is available for execution on the device",),
)
BUSY = Cause(
    "Another process has this GPU to itself (compute mode EXCLUSIVE_PROCESS).",
    "On the host: sudo nvidia-smi -c DEFAULT",
    says=("CUDA-capable device(s) is/are busy or unavailable",),
)
ECC = Cause(
    "The GPU's memory has an error that it cannot correct.",
    "On the host: nvidia-smi -q -d ECC, then restart the host",
    says=("uncorrectable ECC error encountered",),
)
LOST = Cause(
    "The GPU does not answer any more: it fell off the bus, or its driver reset it.",
    "Restart the host; `sudo dmesg | grep Xid` there says what came before",
    says=("unspecified launch failure", "GPU is lost", "device is not ready"),
)
ILLEGAL = Cause(
    "A kernel read or wrote where it must not: libraries that do not fit each other, or broken hardware.",
    REBUILD,
    says=("an illegal memory access was encountered", "illegal instruction was encountered", "misaligned address"),
)
CUBLAS = Cause(
    "cuBLAS does not start: mostly since the GPU's memory is taken, else since another cuBLAS is found before torch's.",
    "Look at the memory with `nvidia-smi` on the host; where it is free: unset LD_LIBRARY_PATH",
    says=("CUBLAS_STATUS_NOT_INITIALIZED", "libcublas.so"),
)
CUDNN = Cause(
    "Another cuDNN than torch's is found first, or the one here is incomplete.",
    "unset LD_LIBRARY_PATH",
    says=(
        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
        "Unable to load any of {libcudnn",
    ),
)
HOST_MEMORY = Cause(
    "The container's memory ran out, and the kernel ended the process.",
    "Give the container more memory: `docker stats` shows its limit, `free -h` what the machine has",
    says=("was ended by SIGKILL", "is killed by signal: Killed", "Cannot allocate memory"),
)
HANGS = Cause("The GPU does not come to an end: it hangs, or is overloaded by others.", DOCTOR, says=("no answer in ",))
COMMON = (MEMORY_TAKEN, NO_KERNEL, BUSY, ECC, LOST, ILLEGAL, CUBLAS, CUDNN, HOST_MEMORY, HANGS)


def summary(error: TorchError) -> str:
    """Death and Timeout say it themselves; of anything else, the last line."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind


def diagnose(error: TorchError, causes: Iterable[Cause], otherwise: Cause, where: str, expected: str) -> Finding:
    """The first cause whose words the error holds. Its own text counts before what was printed along the way; what none
    of them knows may be among the words that doctor knows."""
    causes = tuple(causes)
    seen = f"{where}: {summary(error)}" if where else summary(error)
    for text in (f"{error.kind}: {error.text}".lower(), error.log.lower()):
        for cause in causes:
            if any(words.lower() in text for words in cause.says):
                return cause(seen, expected)
    return known(f"{error.text}\n{error.log}", otherwise)(seen, expected)
