"""Whether it computes, and whether it compiles."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, failed, passed, skipped
from gpukit.stack import Stack
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import DOCTOR, REBUILD
from gpukit.verify.torch_process import TorchError, last_line

# What a failed compilation says: a part of it -> cause, remedy. The first that fits counts.
COMPLAINTS = (
    ("python.h", "Python's headers are missing.", "Add python3-dev to apt.txt, then rebuild the image"),
    ("failed to find c compiler", "There is no C compiler.", "Add gcc to apt.txt, then rebuild the image"),
    ("no working c++ compiler", "There is no C++ compiler.", "Add g++ to apt.txt, then rebuild the image"),
    ("cannot find -lcuda", "The linker does not find the driver's CUDA library.", DOCTOR),
    ("ptxas", "The assembler in this Triton does not know this GPU.", "On the host: copier update --trust"),
    ("cannot find a working triton", "Triton, which compiles for the GPU, is missing or broken.", REBUILD),
    ("uid not found", "This user has no entry in passwd, and torch.compile asks for its name.", REBUILD),
    ("no space left", "The disk is full.", "Make room on the disk that holds /tmp"),
)


def _where(device: str) -> str:
    return f"on {device}"


@check("tensor", "Computation", needs=("import", "gpu", "kernels"))
def tensor(saw: Any, stack: Stack) -> Finding:
    """A product of whole numbers, which every correct device gives exactly."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    for result in saw.tensors:
        if result.error:
            return failed(
                f"{_where(result.device)}: {_said(result.error)}",
                "a matrix product",
                cause="Computing on this device fails.",
                remedy=DOCTOR if result.device != "cpu" else REBUILD,
            )
        if not result.equal:
            return failed(
                f"{_where(result.device)}: a wrong matrix product",
                "the product that whole numbers give",
                cause="This device computes wrongly.",
                remedy="On the host: nvidia-smi -q -d ECC" if result.device != "cpu" else REBUILD,
            )
    return passed(f"right {', '.join(_where(result.device) for result in saw.tensors)}")


@check("compile", "torch.compile", needs=("import", "gpu", "kernels", "tensor"))
def compiles(saw: Any, stack: Stack) -> Finding:
    """It really compiles, in an empty cache: a compiler and Python's headers must be there."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    result = saw.compiled
    where, expected = _where(result.device), "what it gives without compiling"
    if result.error:
        return _complaint(result.error, where, saw)
    if not result.compiled:
        return failed(
            f"{where}: nothing was compiled",
            expected,
            cause="Compilation is switched off.",
            remedy="unset TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE",
        )
    if not result.equal:
        return failed(
            f"{where}: another result than without",
            expected,
            cause="The compiled code is wrong.",
            remedy="On the host: copier update --trust",
        )
    return passed(f"{where}, in {result.seconds:.0f} s")


def _complaint(error: TorchError, where: str, saw: Any) -> Finding:
    said, text = _said(error), f"{error.text} {error.log}".lower()
    expected = "a compiled function"
    if saw.compiler is None:
        return failed(
            f"{where}: no g++",
            expected,
            cause="There is no C++ compiler.",
            remedy="Add g++ to apt.txt, then rebuild the image",
        )
    if not saw.python_header:
        return failed(f"{where}: no Python.h", expected, cause=COMPLAINTS[0][1], remedy=COMPLAINTS[0][2])
    for words, cause, remedy in COMPLAINTS:
        if words in text:
            return failed(f"{where}: {said}", expected, cause=cause, remedy=remedy)
    if error.kind == "Timeout":
        return failed(
            f"{where}: {error.text}", expected, cause="The compiler hangs.", remedy="Look at `top` while it runs."
        )
    return failed(f"{where}: {said}", expected, cause="torch.compile fails, in a way not known here.", remedy=REBUILD)


def _said(error: TorchError) -> str:
    """Death and Timeout say it themselves; of anything else, the last line."""
    if error.kind in ("Death", "Timeout"):
        return f"torch {error.text}"
    return last_line(error.text) or error.kind
