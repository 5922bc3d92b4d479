"""Whether results are correct, and whether loading, torch.compile, training, and resuming work."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack
from gpukit.verify.gpu import on_cpu, skipped_without_gpu
from gpukit.verify.torch_process import COMMON, TorchError, diagnose

COMPILING = (
    "no-compiler",
    "no-cpp-compiler",
    "no-python-headers",
    "libcuda-not-listed",
    "ptxas-too-old",
    "triton-mismatch",
    "no-such-user",
    "disk-full",
    "temporary-folder-noexec",
)

# The errors of torch and cuBLAS without fp8 support for a GPU that has it in hardware: not a fault of the GPU.
FP8_NOT_SUPPORTED = ("CUBLAS_STATUS_NOT_SUPPORTED", "only supported on CUDA devices", "no attribute '_scaled_mm'")


def _where(device: str) -> str:
    return f"on {device}"


@check(
    "tensor",
    "Tensors",
    needs=("import", "gpu", "kernels"),
    causes=(*COMMON, "gpu-computing-fails", "cpu-computing-fails", "gpu-results-wrong", "cpu-results-wrong"),
)
def tensor(probes: Any, stack: Stack) -> Finding:
    """A kernel runs: a matrix product of integers, which is exact on every correct device."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("no-gpu-visible")
    for result in probes.tensors:
        cpu = result.device == "cpu"
        if result.error:
            fallback = "cpu-computing-fails" if cpu else "gpu-computing-fails"
            return diagnose(result.error, () if cpu else COMMON, fallback, _where(result.device), "a matrix product")
        if not result.equal:
            wrong = "cpu-results-wrong" if cpu else "gpu-results-wrong"
            return problem(wrong, f"{_where(result.device)}: a wrong matrix product", "the exact product")
    return passed(f"correct {', '.join(_where(result.device) for result in probes.tensors)}")


ON_GPU = ("tensor",)  # what the checks below need


def _outcome(
    probes: Any, stack: Stack, read: str, wrong: tuple[str, ...] = (), fallback: str = "gpu-computing-fails"
) -> Any:
    """SKIP without a GPU, FAIL after an error, otherwise the worker's answer."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    outcome = getattr(probes, read)
    if outcome.error:
        return diagnose(outcome.error, (*wrong, *COMMON), fallback, _where(outcome.device), "")
    return outcome.answer


@check(
    "matmul", "Matrix products", needs=ON_GPU, causes=("matmul-inexact", "tf32-forced", *COMMON, "gpu-computing-fails")
)
def matmul(probes: Any, stack: Stack) -> Finding:
    """Products in fp32, TF32, bf16, fp16, and fp8, if the GPU supports them, against fp64 on the CPU. exercises.py has
    the tolerances and the reasons for them."""
    answer = _outcome(probes, stack, "matmuls")
    if isinstance(answer, Finding):
        return answer
    right = []
    forced = None
    for result in answer["results"]:
        name = result["name"]
        if result.get("message"):
            if name == "fp8" and any(words in result["message"] for words in FP8_NOT_SUPPORTED):
                right.append("fp8 not supported by this torch")
                continue
            kind, _, text = result["message"].partition(": ")
            return diagnose(
                TorchError(kind, text), COMMON, "gpu-computing-fails", f"{name} {_where(answer['device'])}", "a product"
            )
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
            return problem("matmul-inexact", f"{_where(answer['device'])}: {seen}", expected)
        right.append(name)
    return forced or passed(f"correct in {', '.join(right)}")


@check(
    "convolution",
    "Convolution",
    needs=ON_GPU,
    causes=("cudnn-not-found", "convolution-results-wrong", *COMMON, "gpu-computing-fails"),
)
def convolution(probes: Any, stack: Stack) -> Finding:
    """Forward and backward with cuDNN, against fp64 on the CPU."""
    answer = _outcome(probes, stack, "convolution", ("two-cudnn",))
    if isinstance(answer, Finding):
        return answer
    if not answer["cudnn"] or not answer["enabled"]:
        return problem("cudnn-not-found", "no cuDNN", "cuDNN")
    version = answer["cudnn"]
    text = (
        f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}" if version >= 90000 else f"cuDNN {version}"
    )
    if not answer["error"] <= answer["tolerance"]:
        return problem(
            "convolution-results-wrong", f"{text}, error {answer['error']:.1e}", f"at most {answer['tolerance']:.1e}"
        )
    return passed(f"{text}, correct forward and backward")


@check("attention", "Attention", needs=ON_GPU, causes=("attention-results-wrong", *COMMON, "gpu-computing-fails"))
def attention(probes: Any, stack: Stack) -> Finding:
    """scaled_dot_product_attention in half precision: torch's choice and each of its implementations."""
    answer = _outcome(probes, stack, "attention")
    if isinstance(answer, Finding):
        return answer
    for way, error in {"torch's choice": answer["error"], **answer["ways"]}.items():
        if not error <= answer["tolerance"]:
            return problem(
                "attention-results-wrong",
                f"{answer['kind']}, {way}: error {error:.1e}",
                f"at most {answer['tolerance']:.1e}",
            )
    return passed(f"correct in {answer['kind']}: {', '.join(answer['ways']) or 'the default'}")


@check("amp", "Mixed precision", needs=ON_GPU, causes=("half-precision-fails", *COMMON, "gpu-computing-fails"))
def amp(probes: Any, stack: Stack) -> Finding:
    """The loss decreases in twenty steps with autocast in fp16 and GradScaler."""
    answer = _outcome(probes, stack, "amp")
    if isinstance(answer, Finding):
        return answer
    seen = f"loss {answer['first']:.3g} to {answer['last']:.3g} in 20 steps, scale {answer['scale']:g}"
    if not (math.isfinite(answer["last"]) and answer["last"] < answer["first"]):
        return problem("half-precision-fails", seen, "a decreasing loss")
    return passed(seen)


LOADING = (
    "shared-memory",
    "open-files",
    "process-limit",
    "worker-killed",
    "library-crashed",
    "loader-timeout",
    "worker-gone",
)


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
    "compile",
    "torch.compile",
    needs=("import", "room", "gpu", "kernels", "ptxas", "tensor"),
    causes=(*COMPILING, "compiler-hangs", "torch-compile-fails", "compile-disabled", "compiled-results-wrong"),
    level="full",
)
def compiles(probes: Any, stack: Stack) -> Finding:
    """A function is compiled, with an empty cache: this needs a C++ compiler and Python's headers."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("no-gpu-visible")
    result = probes.compiled
    where, expected = _where(result.device), "the result without compiling"
    if result.error:
        return _compile_error(result.error, where, probes)
    if not result.compiled:
        return problem("compile-disabled", f"{where}: nothing was compiled", expected)
    if not result.equal:
        return problem("compiled-results-wrong", f"{where}: a different result", expected)
    return passed(f"{where}, in {result.seconds:.0f} s")


def _compile_error(error: TorchError, where: str, probes: Any) -> Finding:
    expected = "a compiled function"
    if probes.compiler is None:
        return problem("no-cpp-compiler", f"{where}: no g++", expected)
    if not probes.python_header:
        return problem("no-python-headers", f"{where}: no Python.h", expected)
    if error.kind == "Timeout":
        return problem("compiler-hangs", f"{where}: {error.text}", expected)
    return diagnose(error, COMPILING, "torch-compile-fails", where, expected)


@check(
    "training",
    "Training and resuming",
    needs=("tensor", "mounts"),
    causes=("checkpoint-fails", "check-loss-not-finite", "resumed-run-differs", "not-deterministic", *COMMON),
    level="full",
)
def training(probes: Any, stack: Stack) -> Finding:
    """Ten steps with a checkpoint after the fifth, twice with the same seed; the last five again in another process."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("no-gpu-visible")
    whole, resumed = probes.training
    for outcome in filter(None, (whole, resumed)):
        if outcome.error:
            return diagnose(
                outcome.error, COMMON, "checkpoint-fails", _where(outcome.device), "ten steps and a checkpoint"
            )
    losses, again = whole.answer["losses"], resumed.answer["losses"]
    if not all(math.isfinite(loss) for loss in losses):
        return problem("check-loss-not-finite", f"{_where(whole.device)}: loss {losses[-1]}", "a finite loss")
    # The same operations in the same order: bitwise equal on the CPU, nearly equal where sums are parallel.
    if resumed.answer["start"] != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(losses[5:], again)):
        return problem(
            "resumed-run-differs", f"{_where(whole.device)}: loss {again[-1]:.6g} after resuming", f"{losses[-1]:.6g}"
        )
    if losses != whole.answer["again"]:
        return problem(
            "not-deterministic",
            f"{_where(whole.device)}: loss {whole.answer['again'][-1]:.9g} again",
            f"{losses[-1]:.9g}",
        )
    return passed(f"{_where(whole.device)}: ten steps, checkpoint, resumed with the same losses")
