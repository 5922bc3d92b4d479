"""Whether results are correct, torch.compile works, and a training run resumes."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.device import on_cpu, skipped_without_gpu
from gpukit.verify.remedies import DOCTOR, REBUILD
from gpukit.verify.torch_errors import COMMON, CUDNN, diagnose
from gpukit.verify.torch_process import TorchError

ECC_STATE = "On the host: `nvidia-smi -q -d ECC`"
FAILS = Cause("gpu-computing-fails", "Computing on this device fails.", DOCTOR)
FAILS_ON_CPU = Cause(
    "cpu-computing-fails", "Computing on the CPU fails.", REBUILD, error_texts=("Illegal instruction", "SIGILL")
)
WRONG = Cause("gpu-results-wrong", "This device computes wrong results.", ECC_STATE)
WRONG_ON_CPU = Cause("cpu-results-wrong", "The CPU computes wrong results with this torch.", REBUILD)

NO_CPP_COMPILER = Cause(
    "no-cpp-compiler",
    "There is no C++ compiler.",
    "Add g++ to apt.txt, then rebuild the image",
    error_texts=("No working C++ compiler found", "InvalidCxxCompiler"),
)
NO_HEADERS = Cause(
    "no-python-headers",
    "Python's headers are missing.",
    "Add python3-dev to apt.txt, then rebuild the image",
    error_texts=("Python.h: No such file or directory", "Python.h"),
)
NO_C_COMPILER = Cause(
    "no-compiler",
    "There is no C compiler.",
    "Add gcc to apt.txt, then rebuild the image",
    error_texts=("Failed to find C compiler. Please specify via CC environment variable", "failed to find c compiler"),
)
NO_LIBCUDA = Cause(
    "libcuda-not-listed",
    "The linker does not find the driver's CUDA library (libcuda).",
    DOCTOR,
    error_texts=("cannot find -lcuda",),
)
PTXAS = Cause(
    "ptxas-too-old",
    "This Triton's assembler (ptxas) does not support this GPU.",
    "On the host: `./launch update`, for a base whose Triton supports it",
    error_texts=("ptxas fatal", "PTXASError"),
)
NO_TRITON = Cause(
    "triton-mismatch",
    "Triton, which compiles for the GPU, is missing or broken.",
    REBUILD,
    error_texts=("Cannot find a working triton installation", "TritonMissing"),
)
NO_USER_NAME = Cause(
    "no-such-user",
    "This user has no name (no entry in /etc/passwd), which torch.compile requires.",
    REBUILD,
    error_texts=("uid not found",),
)
DISK_FULL = Cause(
    "disk-full",
    "The disk is full.",
    "Free space on the disk of /tmp",
    error_texts=("No space left on device", "Disk quota exceeded"),
)
NOEXEC = Cause(
    "temporary-folder-noexec",
    "Compiled code cannot be loaded from the temporary folder: it is mounted noexec.",
    "Set TORCHINDUCTOR_CACHE_DIR to another folder, such as /workspace/outputs/.inductor",
    error_texts=("failed to map segment from shared object",),
)
COMPILER_HANGS = Cause(
    "compiler-hangs", "The compiler hangs.", "Watch `top` while this check runs.", error_texts=("no answer in",)
)
NOT_COMPILED = Cause("torch-compile-fails", "torch.compile fails for an unknown reason.", REBUILD)
COMPILE_DISABLED = Cause(
    "compile-disabled", "Compilation is disabled.", "`unset TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE`"
)
COMPILED_WRONG = Cause(
    "compiled-results-wrong", "The compiled code gives wrong results.", "On the host: `./launch update`"
)
COMPILING = (NO_C_COMPILER, NO_CPP_COMPILER, NO_HEADERS, NO_LIBCUDA, PTXAS, NO_TRITON, NO_USER_NAME, DISK_FULL, NOEXEC)

INEXACT = Cause(
    "matmul-inexact",
    "A matrix product has a larger error than rounding explains: the device computes wrong results.",
    ECC_STATE,
)
FORCED_TF32 = Cause(
    "tf32-forced",
    "NVIDIA_TF32_OVERRIDE=1 computes every fp32 product in TF32: with 10 bits of mantissa instead of 23.",
    "`unset NVIDIA_TF32_OVERRIDE`",
    status=WARN,
)
# The errors of torch and cuBLAS without fp8 support for a GPU that has it in hardware: not a fault of the GPU.
FP8_NOT_SUPPORTED = ("CUBLAS_STATUS_NOT_SUPPORTED", "only supported on CUDA devices", "no attribute '_scaled_mm'")
NO_CUDNN = Cause(
    "cudnn-not-found", "torch does not find cuDNN: convolutions are slow or fail.", REBUILD, error_texts=("libcudnn",)
)
CUDNN_WRONG = Cause("convolution-results-wrong", "A convolution gives a different result than on the CPU.", ECC_STATE)
ATTENTION_WRONG = Cause("attention-results-wrong", "Attention gives a different result than on the CPU.", ECC_STATE)
LOSS_NOT_DECREASING = Cause(
    "half-precision-fails",
    "The loss does not decrease, or is NaN or infinite: half precision does not work on this GPU.",
    ECC_STATE,
)
RESUME_DIFFERS = Cause(
    "resumed-run-differs",
    "The steps after resuming differ from those of the uninterrupted run.",
    ECC_STATE,
    status=WARN,
)
NOT_DETERMINISTIC = Cause(
    "not-deterministic",
    "The same steps with the same seed give different results: the kernels are not deterministic.",
    "Set `CUBLAS_WORKSPACE_CONFIG=:4096:8` if runs must be repeatable; if that does not help, check the memory: "
    "`nvidia-smi -q -d ECC`",
    status=WARN,
)
LOSS_NOT_FINITE = Cause("loss-not-finite", "The loss is NaN or infinite.", ECC_STATE)
CHECKPOINT_FAILS = Cause(
    "checkpoint-fails",
    "The checkpoint cannot be written or read.",
    "It is written to the workspace: follow the checks `mounts` and `room`, and free space with `df -h . /tmp`",
    error_texts=("PytorchStreamWriter failed", "unexpected pos"),
)


def _where(device: str) -> str:
    return f"on {device}"


@check(
    "tensor",
    "Tensors",
    needs=("import", "gpu", "kernels"),
    causes=(*COMMON, FAILS, FAILS_ON_CPU, WRONG, WRONG_ON_CPU),
)
def tensor(probes: Any, stack: Stack) -> Finding:
    """A kernel runs: a matrix product of integers, which is exact on every correct device."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("There is no GPU.")
    for result in probes.tensors:
        cpu = result.device == "cpu"
        if result.error:
            fallback = FAILS_ON_CPU if cpu else FAILS
            return diagnose(result.error, () if cpu else COMMON, fallback, _where(result.device), "a matrix product")
        if not result.equal:
            wrong = WRONG_ON_CPU if cpu else WRONG
            return wrong(f"{_where(result.device)}: a wrong matrix product", "the exact product")
    return passed(f"correct {', '.join(_where(result.device) for result in probes.tensors)}")


ON_GPU = ("tensor",)  # what the checks below need


def _outcome(probes: Any, stack: Stack, read: str, wrong: tuple[Cause, ...] = (), fallback: Cause = FAILS) -> Any:
    """SKIP without a GPU, FAIL after an error, otherwise the worker's answer."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    outcome = getattr(probes, read)
    if outcome.error:
        return diagnose(outcome.error, (*wrong, *COMMON), fallback, _where(outcome.device), "")
    return outcome.answer


@check("matmul", "Matrix products", needs=ON_GPU, causes=(INEXACT, FORCED_TF32, *COMMON, FAILS))
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
            return diagnose(TorchError(kind, text), COMMON, FAILS, f"{name} {_where(answer['device'])}", "a product")
        seen = f"{name}: error {result['error']:.1e}"
        if not result["error"] <= result["tolerance"]:
            expected = f"at most {result['tolerance']:.1e}"
            if name == "fp32" and result["error"] <= 4e-3:
                if probes.environment.get("NVIDIA_TF32_OVERRIDE") == "1":
                    forced = FORCED_TF32(seen, expected)
                    continue
                if probes.environment.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
                    right.append("fp32 (TF32, set by the base)")
                    continue
            return INEXACT(f"{_where(answer['device'])}: {seen}", expected)
        right.append(name)
    return forced or passed(f"correct in {', '.join(right)}")


@check("convolution", "Convolution", needs=ON_GPU, causes=(NO_CUDNN, CUDNN_WRONG, *COMMON, FAILS))
def convolution(probes: Any, stack: Stack) -> Finding:
    """Forward and backward with cuDNN, against fp64 on the CPU."""
    answer = _outcome(probes, stack, "convolution", (CUDNN,))
    if isinstance(answer, Finding):
        return answer
    if not answer["cudnn"] or not answer["enabled"]:
        return NO_CUDNN("no cuDNN", "cuDNN")
    version = answer["cudnn"]
    text = (
        f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}" if version >= 90000 else f"cuDNN {version}"
    )
    if not answer["error"] <= answer["tolerance"]:
        return CUDNN_WRONG(f"{text}, error {answer['error']:.1e}", f"at most {answer['tolerance']:.1e}")
    return passed(f"{text}, correct forward and backward")


@check("attention", "Attention", needs=ON_GPU, causes=(ATTENTION_WRONG, *COMMON, FAILS))
def attention(probes: Any, stack: Stack) -> Finding:
    """scaled_dot_product_attention in half precision: torch's choice and each of its implementations."""
    answer = _outcome(probes, stack, "attention")
    if isinstance(answer, Finding):
        return answer
    for way, error in {"torch's choice": answer["error"], **answer["ways"]}.items():
        if not error <= answer["tolerance"]:
            return ATTENTION_WRONG(f"{answer['kind']}, {way}: error {error:.1e}", f"at most {answer['tolerance']:.1e}")
    return passed(f"correct in {answer['kind']}: {', '.join(answer['ways']) or 'the default'}")


@check("amp", "Mixed precision", needs=ON_GPU, causes=(LOSS_NOT_DECREASING, *COMMON, FAILS))
def amp(probes: Any, stack: Stack) -> Finding:
    """The loss decreases in twenty steps with autocast in fp16 and GradScaler."""
    answer = _outcome(probes, stack, "amp")
    if isinstance(answer, Finding):
        return answer
    seen = f"loss {answer['first']:.3g} to {answer['last']:.3g} in 20 steps, scale {answer['scale']:g}"
    if not (math.isfinite(answer["last"]) and answer["last"] < answer["first"]):
        return LOSS_NOT_DECREASING(seen, "a decreasing loss")
    return passed(seen)


@check(
    "compile",
    "torch.compile",
    needs=("import", "room", "gpu", "kernels", "ptxas", "tensor"),
    causes=(*COMPILING, COMPILER_HANGS, NOT_COMPILED, COMPILE_DISABLED, COMPILED_WRONG),
    level="full",
)
def compiles(probes: Any, stack: Stack) -> Finding:
    """A function is compiled, with an empty cache: this needs a C++ compiler and Python's headers."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("There is no GPU.")
    result = probes.compiled
    where, expected = _where(result.device), "the result without compiling"
    if result.error:
        return _compile_error(result.error, where, probes)
    if not result.compiled:
        return COMPILE_DISABLED(f"{where}: nothing was compiled", expected)
    if not result.equal:
        return COMPILED_WRONG(f"{where}: a different result", expected)
    return passed(f"{where}, in {result.seconds:.0f} s")


def _compile_error(error: TorchError, where: str, probes: Any) -> Finding:
    expected = "a compiled function"
    if probes.compiler is None:
        return NO_CPP_COMPILER(f"{where}: no g++", expected)
    if not probes.python_header:
        return NO_HEADERS(f"{where}: no Python.h", expected)
    if error.kind == "Timeout":
        return COMPILER_HANGS(f"{where}: {error.text}", expected)
    return diagnose(error, COMPILING, NOT_COMPILED, where, expected)


@check(
    "training",
    "Training and resuming",
    needs=("tensor", "mounts"),
    causes=(CHECKPOINT_FAILS, LOSS_NOT_FINITE, RESUME_DIFFERS, NOT_DETERMINISTIC, *COMMON),
    level="full",
)
def training(probes: Any, stack: Stack) -> Finding:
    """Ten steps with a checkpoint after the fifth, twice with the same seed; the last five again in another process."""
    if not probes.devices.found and not on_cpu(probes, stack):
        return skipped("There is no GPU.")
    whole, resumed = probes.training
    for outcome in filter(None, (whole, resumed)):
        if outcome.error:
            return diagnose(
                outcome.error, COMMON, CHECKPOINT_FAILS, _where(outcome.device), "ten steps and a checkpoint"
            )
    losses, again = whole.answer["losses"], resumed.answer["losses"]
    if not all(math.isfinite(loss) for loss in losses):
        return LOSS_NOT_FINITE(f"{_where(whole.device)}: loss {losses[-1]}", "a finite loss")
    # The same operations in the same order: bitwise equal on the CPU, nearly equal where sums are parallel.
    if resumed.answer["start"] != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(losses[5:], again)):
        return RESUME_DIFFERS(f"{_where(whole.device)}: loss {again[-1]:.6g} after resuming", f"{losses[-1]:.6g}")
    if losses != whole.answer["again"]:
        return NOT_DETERMINISTIC(
            f"{_where(whole.device)}: loss {whole.answer['again'][-1]:.9g} again", f"{losses[-1]:.9g}"
        )
    return passed(f"{_where(whole.device)}: ten steps, checkpoint, resumed with the same losses")
