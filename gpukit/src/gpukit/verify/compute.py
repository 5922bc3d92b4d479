"""Whether results are correct, and whether loading, torch.compile, training, and resuming work."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.project.stack import Stack
from gpukit.verify.gpu import without_device, without_gpu
from gpukit.verify.torch_process import COMMON, TorchError, diagnose, torch_check

# The errors of torch and cuBLAS without fp8 support for a GPU that has it in hardware: not a fault of the GPU.
FP8_NOT_SUPPORTED = ("CUBLAS_STATUS_NOT_SUPPORTED", "only supported on CUDA devices", "no attribute '_scaled_mm'")


@check(
    "tensor",
    "Tensors",
    needs="import gpu kernels",
    causes=(*COMMON, "cpu-computing-fails", "gpu-results-wrong", "cpu-results-wrong"),
    skip=without_device,
)
def tensor(probes: Any, stack: Stack) -> Finding:
    """A kernel runs: a matrix product of integers, which is exact on every correct device."""
    for result in probes.tensors:
        cpu = result.device == "cpu"
        if result.error:
            fallback = "cpu-computing-fails" if cpu else "gpu-computing-fails"
            return diagnose(result.error, () if cpu else COMMON, fallback, f"on {result.device}", "a matrix product")
        if not result.answer["equal"]:
            wrong = "cpu-results-wrong" if cpu else "gpu-results-wrong"
            return problem(wrong, f"on {result.device}: a wrong matrix product", "the exact product")
    return passed(f"correct on {', '.join(result.device for result in probes.tensors)}")


@torch_check(
    "matmul", "Matrix products", needs="tensor", causes=("matmul-inexact", "tf32-forced", *COMMON), skip=without_gpu
)
def matmul(probes: Any, stack: Stack) -> Finding:
    """Products in fp32, TF32, bf16, fp16, and fp8, if the GPU supports them, against fp64 on the CPU. exercises.py has
    the tolerances and the reasons for them."""
    answer = probes.matmuls.result()
    right = []
    forced = None
    for result in answer["results"]:
        name = result["name"]
        if result.get("message"):
            if name == "fp8" and any(words in result["message"] for words in FP8_NOT_SUPPORTED):
                right.append("fp8 not supported by this torch")
                continue
            kind, _, text = result["message"].partition(": ")
            raise TorchError(kind, text, device=f"{answer['device']} in {name}")
        seen = f"{name}: error {result['error']:.1e}"
        if not result["error"] <= result["tolerance"]:
            expected = f"at most {result['tolerance']:.1e}"
            if name == "fp32" and result["error"] <= 4e-3:
                if probes.environment.get("NVIDIA_TF32_OVERRIDE") == "1":
                    forced = problem("tf32-forced", seen, expected)
                    continue
                if probes.environment.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
                    right.append("fp32 (TF32, set by the base)")
                    continue
            return problem("matmul-inexact", f"on {answer['device']}: {seen}", expected)
        right.append(name)
    return forced or passed(f"correct in {', '.join(right)}")


@torch_check(
    "convolution",
    "Convolution",
    needs="tensor",
    causes=("cudnn-not-found", "convolution-results-wrong", *COMMON),
    skip=without_gpu,
)
def convolution(probes: Any, stack: Stack) -> Finding:
    """Forward and backward with cuDNN, against fp64 on the CPU."""
    answer = probes.convolution.result()
    if not answer["cudnn"] or not answer["enabled"]:
        return problem("cudnn-not-found", "no cuDNN", "cuDNN")
    version = answer["cudnn"]
    text = f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}"
    if not answer["error"] <= answer["tolerance"]:
        return problem(
            "convolution-results-wrong", f"{text}, error {answer['error']:.1e}", f"at most {answer['tolerance']:.1e}"
        )
    return passed(f"{text}, correct forward and backward")


@torch_check("attention", "Attention", needs="tensor", causes=("attention-results-wrong", *COMMON), skip=without_gpu)
def attention(probes: Any, stack: Stack) -> Finding:
    """scaled_dot_product_attention in half precision: torch's choice and each of its implementations."""
    answer = probes.attention.result()
    for way, error in {"torch's choice": answer["error"], **answer["ways"]}.items():
        if not error <= answer["tolerance"]:
            return problem(
                "attention-results-wrong",
                f"{answer['kind']}, {way}: error {error:.1e}",
                f"at most {answer['tolerance']:.1e}",
            )
    return passed(f"correct in {answer['kind']}: {', '.join(answer['ways']) or 'the default'}")


@torch_check(
    "loader",
    "DataLoader",
    "loader-fails",
    needs="import shm room",
    causes=(
        "shared-memory open-files process-limit worker-killed library-crashed loader-timeout worker-gone loader-fails "
        "loader-results-wrong"
    ),
    level="full",
)
def loader(probes: Any, stack: Stack) -> Finding:
    """Two workers pass sixteen batches."""
    answer = probes.loader.result()
    if not answer["equal"]:
        return problem("loader-results-wrong", "a different sum than without workers", "the same sum")
    return passed(f"{answer['workers']} workers, sixteen batches in {answer['seconds']:.1f} s")


@torch_check(
    "compile",
    "torch.compile",
    "torch-compile-fails",
    needs="import room gpu kernels tensor",
    causes=(
        "no-compiler no-cpp-compiler no-python-headers libcuda-not-listed ptxas-too-old triton-mismatch no-such-user "
        "disk-full temporary-folder-noexec compiler-hangs torch-compile-fails compile-disabled compiled-results-wrong"
    ),
    level="full",
    skip=without_device,
)
def compiles(probes: Any, stack: Stack) -> Finding:
    """A function is compiled, with an empty cache: this needs a C++ compiler and Python's headers."""
    outcome = probes.compiled
    expected = "a compiled function"
    where = f"on {outcome.device}"
    if outcome.error and probes.compiler is None:
        return problem("no-cpp-compiler", f"{where}: no g++", expected)
    if outcome.error and not probes.python_header:
        return problem("no-python-headers", f"{where}: no Python.h", expected)
    if outcome.error and outcome.error.kind == "Timeout":
        return problem("compiler-hangs", f"{where}: {outcome.error.text}", expected)
    answer = outcome.result()
    if not answer["compiled"]:
        return problem("compile-disabled", f"{where}: nothing was compiled", expected)
    if not answer["equal"]:
        return problem("compiled-results-wrong", f"{where}: a different result", "the result without compiling")
    return passed(f"{where}, in {answer['seconds']:.0f} s")


@torch_check(
    "training",
    "Training and resuming",
    "checkpoint-fails",
    needs="tensor mounts",
    causes=("checkpoint-fails", "check-loss-not-finite", "resumed-run-differs", *COMMON),
    level="full",
    skip=without_device,
)
def training(probes: Any, stack: Stack) -> Finding:
    """Ten steps with a checkpoint after the fifth; the last five again in another process."""
    device = probes.training[0].device
    whole, resumed = (outcome.result() for outcome in probes.training)
    losses = whole["losses"]
    again = resumed["losses"]
    if not all(math.isfinite(loss) for loss in losses):
        return problem("check-loss-not-finite", f"on {device}: loss {losses[-1]}", "a finite loss")
    # The same operations in the same order: bitwise equal on the CPU, nearly equal where sums are parallel.
    if resumed["start"] != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(losses[5:], again)):
        return problem("resumed-run-differs", f"on {device}: loss {again[-1]:.6g} after resuming", f"{losses[-1]:.6g}")
    return passed(f"on {device}: ten steps, checkpoint, resumed with the same losses")
