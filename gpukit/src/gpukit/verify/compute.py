"""Whether it computes rightly, compiles, and learns."""

from __future__ import annotations

import math
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.device import on_cpu, without
from gpukit.verify.remedies import DOCTOR, REBUILD
from gpukit.verify.torch_errors import COMMON, CUDNN, diagnose
from gpukit.verify.torch_process import TorchError

ECC_STATE = "On the host: nvidia-smi -q -d ECC"
FAILS = Cause("Computing on this device fails.", DOCTOR)
FAILS_ON_CPU = Cause("Computing on the CPU fails.", REBUILD, says=("Illegal instruction", "SIGILL"))
WRONG = Cause("This device computes wrongly.", ECC_STATE)
WRONG_ON_CPU = Cause("The CPU computes wrongly with this torch.", REBUILD)

NO_CPP = Cause(
    "There is no C++ compiler.",
    "Add g++ to apt.txt, then rebuild the image",
    says=("No working C++ compiler found", "InvalidCxxCompiler"),
)
NO_HEADERS = Cause(
    "Python's headers are missing.",
    "Add python3-dev to apt.txt, then rebuild the image",
    says=("Python.h: No such file or directory", "Python.h"),
)
NO_C = Cause(
    "There is no C compiler.",
    "Add gcc to apt.txt, then rebuild the image",
    says=("Failed to find C compiler. Please specify via CC environment variable", "failed to find c compiler"),
)
NO_LINK = Cause("The linker does not find the driver's CUDA library.", DOCTOR, says=("cannot find -lcuda",))
PTXAS = Cause(
    "The assembler in this Triton does not know this GPU.",
    "On the host: copier update --trust",
    says=("ptxas fatal", "PTXASError"),
)
NO_TRITON = Cause(
    "Triton, which compiles for the GPU, is missing or broken.",
    REBUILD,
    says=("Cannot find a working triton installation", "TritonMissing"),
)
NAMELESS = Cause(
    "This user has no entry in passwd, and torch.compile asks for its name.", REBUILD, says=("uid not found",)
)
NO_ROOM = Cause(
    "The disk is full.",
    "Make room on the disk that holds /tmp",
    says=("No space left on device", "Disk quota exceeded"),
)
NO_EXECUTION = Cause(
    "Compiled code may not be run from the folder for temporary files: it is mounted noexec.",
    "Set TORCHINDUCTOR_CACHE_DIR to a folder that is not, such as /workspace/outputs/.inductor",
    says=("failed to map segment from shared object",),
)
COMPILER_HANGS = Cause("The compiler hangs.", "Look at `top` while it runs.", says=("no answer in",))
NOT_COMPILED = Cause("torch.compile fails, in a way not known here.", REBUILD)
SWITCHED_OFF = Cause("Compilation is switched off.", "unset TORCH_COMPILE_DISABLE TORCHDYNAMO_DISABLE")
COMPILED_WRONG = Cause("The compiled code is wrong.", "On the host: copier update --trust")
COMPILING = (NO_HEADERS, NO_C, NO_CPP, NO_LINK, PTXAS, NO_TRITON, NAMELESS, NO_ROOM, NO_EXECUTION)

INEXACT = Cause(
    "A product is further off than this precision's rounding explains: the device computes wrongly.", ECC_STATE
)
FORCED_TF32 = Cause(
    "NVIDIA_TF32_OVERRIDE=1 makes every fp32 product one in TF32: ten bits instead of 23.",
    "unset NVIDIA_TF32_OVERRIDE",
    status=WARN,
)
# How torch and cuBLAS say that they have no fp8 for a card that has it in hardware: no fault of the card's.
NOT_OFFERED = ("CUBLAS_STATUS_NOT_SUPPORTED", "only supported on CUDA devices", "no attribute '_scaled_mm'")
NO_CUDNN = Cause("torch does not find cuDNN, and convolutions are slow or fail.", REBUILD, says=("libcudnn",))
CUDNN_WRONG = Cause("A convolution gives another result than on the CPU.", ECC_STATE)
ATTENTION_WRONG = Cause("Attention gives another result than on the CPU.", ECC_STATE)
NO_LEARNING = Cause("The loss does not fall, or is no number: half precision does not work here.", ECC_STATE)
CHANGED = Cause(
    "The steps after the checkpoint are not those of the run that was not interrupted.", ECC_STATE, status=WARN
)
NOT_AGAIN = Cause(
    "The same steps from the same seed give other numbers: what makes them is chosen anew each time.",
    "Set CUBLAS_WORKSPACE_CONFIG=:4096:8 where runs must be repeatable; where that changes nothing look at the memory: "
    "nvidia-smi -q -d ECC",
    status=WARN,
)
NO_PROGRESS = Cause("The loss is no number.", ECC_STATE)
NO_CHECKPOINT = Cause(
    "The checkpoint cannot be written or read.",
    "Look at `./launch verify --only mounts,room`: it is written in the workspace",
    says=("PytorchStreamWriter failed", "unexpected pos"),
)


def _where(device: str) -> str:
    return f"on {device}"


@check(
    "tensor",
    "Computation",
    needs=("import", "gpu", "kernels"),
    causes=(*COMMON, FAILS, FAILS_ON_CPU, WRONG, WRONG_ON_CPU),
)
def tensor(saw: Any, stack: Stack) -> Finding:
    """A kernel really runs: a product of whole numbers, which every correct device gives exactly."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    for result in saw.tensors:
        cpu = result.device == "cpu"
        if result.error:
            otherwise = FAILS_ON_CPU if cpu else FAILS
            return diagnose(result.error, () if cpu else COMMON, otherwise, _where(result.device), "a matrix product")
        if not result.equal:
            wrong = WRONG_ON_CPU if cpu else WRONG
            return wrong(f"{_where(result.device)}: a wrong matrix product", "the product that whole numbers give")
    return passed(f"right {', '.join(_where(result.device) for result in saw.tensors)}")


ON_GPU = ("tensor",)  # what the checks below stand on


def _outcome(saw: Any, stack: Stack, read: str, wrong: tuple[Cause, ...] = (), otherwise: Cause = FAILS) -> Any:
    """A SKIP without a GPU, a FAIL where it broke, else what the worker answer."""
    if missing := without(saw, stack):
        return missing
    outcome = getattr(saw, read)
    if outcome.error:
        return diagnose(outcome.error, (*wrong, *COMMON), otherwise, _where(outcome.device), "")
    return outcome.answer


@check("matmul", "Matrix products", needs=ON_GPU, causes=(INEXACT, FORCED_TF32, *COMMON, FAILS))
def matmul(saw: Any, stack: Stack) -> Finding:
    """In fp32, TF32, bf16, fp16 and fp8, as far as the card has them, against the CPU in fp64. How far off each may be
    stands with its reason in gpukit/verify/exercises.py."""
    answer = _outcome(saw, stack, "matmuls")
    if isinstance(answer, Finding):
        return answer
    right = []
    forced = None
    for result in answer["results"]:
        name = result["name"]
        if result.get("message"):
            if name == "fp8" and any(words in result["message"] for words in NOT_OFFERED):
                right.append("no fp8 in this torch")
                continue
            kind, _, text = result["message"].partition(": ")
            return diagnose(TorchError(kind, text), COMMON, FAILS, f"{name} {_where(answer['device'])}", "a product")
        seen = f"{name} off by {result['error']:.1e}"
        if not result["error"] <= result["tolerance"]:
            expected = f"at most {result['tolerance']:.1e}"
            if name == "fp32" and result["error"] <= 4e-3:
                if saw.environment.get("NVIDIA_TF32_OVERRIDE") == "1":
                    forced = FORCED_TF32(seen, expected)
                    continue
                if saw.environment.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1":
                    right.append("fp32 (as TF32, which the base sets)")
                    continue
            return INEXACT(f"{_where(answer['device'])}: {seen}", expected)
        right.append(name)
    return forced or passed(f"right in {', '.join(right)}")


@check("convolution", "Convolution", needs=ON_GPU, causes=(NO_CUDNN, CUDNN_WRONG, *COMMON, FAILS))
def convolution(saw: Any, stack: Stack) -> Finding:
    """Forward and backward through cuDNN, against the CPU in fp64."""
    answer = _outcome(saw, stack, "convolution", (CUDNN,))
    if isinstance(answer, Finding):
        return answer
    if not answer["cudnn"] or not answer["enabled"]:
        return NO_CUDNN("no cuDNN", "cuDNN")
    version = answer["cudnn"]
    text = (
        f"cuDNN {version // 10000}.{version // 100 % 100}.{version % 100}" if version >= 90000 else f"cuDNN {version}"
    )
    if not answer["error"] <= answer["tolerance"]:
        return CUDNN_WRONG(f"{text}, off by {answer['error']:.1e}", f"at most {answer['tolerance']:.1e}")
    return passed(f"{text}, right forward and backward")


@check("attention", "Attention", needs=ON_GPU, causes=(ATTENTION_WRONG, *COMMON, FAILS))
def attention(saw: Any, stack: Stack) -> Finding:
    """scaled_dot_product_attention in half precision, as torch chooses and in each of its implementations."""
    answer = _outcome(saw, stack, "attention")
    if isinstance(answer, Finding):
        return answer
    for way, error in {"as torch chooses": answer["error"], **answer["ways"]}.items():
        if not error <= answer["tolerance"]:
            return ATTENTION_WRONG(f"{answer['kind']}, {way}: off by {error:.1e}", f"at most {answer['tolerance']:.1e}")
    return passed(f"right in {answer['kind']}: {', '.join(answer['ways']) or 'as torch chooses'}")


@check("amp", "Mixed precision", needs=ON_GPU, causes=(NO_LEARNING, *COMMON, FAILS))
def amp(saw: Any, stack: Stack) -> Finding:
    """Twenty steps with autocast in fp16 and GradScaler: the loss falls."""
    answer = _outcome(saw, stack, "amp")
    if isinstance(answer, Finding):
        return answer
    seen = f"loss {answer['first']:.3g} to {answer['last']:.3g} in 20 steps, scale {answer['scale']:g}"
    if not (math.isfinite(answer["last"]) and answer["last"] < answer["first"]):
        return NO_LEARNING(seen, "a loss that falls")
    return passed(seen)


@check(
    "compile",
    "torch.compile",
    needs=("import", "room", "gpu", "kernels", "ptxas", "tensor"),
    causes=(*COMPILING, COMPILER_HANGS, NOT_COMPILED, SWITCHED_OFF, COMPILED_WRONG),
    level="full",
)
def compiles(saw: Any, stack: Stack) -> Finding:
    """It really compiles, in an empty cache: a compiler and Python's headers must be there."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    result = saw.compiled
    where, expected = _where(result.device), "what it gives without compiling"
    if result.error:
        return _compile_error(result.error, where, saw)
    if not result.compiled:
        return SWITCHED_OFF(f"{where}: nothing was compiled", expected)
    if not result.equal:
        return COMPILED_WRONG(f"{where}: another result than without", expected)
    return passed(f"{where}, in {result.seconds:.0f} s")


def _compile_error(error: TorchError, where: str, saw: Any) -> Finding:
    expected = "a compiled function"
    if saw.compiler is None:
        return NO_CPP(f"{where}: no g++", expected)
    if not saw.python_header:
        return NO_HEADERS(f"{where}: no Python.h", expected)
    if error.kind == "Timeout":
        return COMPILER_HANGS(f"{where}: {error.text}", expected)
    return diagnose(error, COMPILING, NOT_COMPILED, where, expected)


@check(
    "training",
    "Training, resumed",
    needs=("tensor", "mounts"),
    causes=(NO_CHECKPOINT, NO_PROGRESS, CHANGED, NOT_AGAIN, *COMMON),
    level="full",
)
def training(saw: Any, stack: Stack) -> Finding:
    """Ten steps with a checkpoint after the fifth, twice from one seed, and the last five in another process."""
    if not saw.devices.found and not on_cpu(saw, stack):
        return skipped("There is no GPU.")
    whole, resumed = saw.training
    for outcome in filter(None, (whole, resumed)):
        if outcome.error:
            return diagnose(outcome.error, COMMON, NO_CHECKPOINT, _where(outcome.device), "ten steps and a checkpoint")
    losses, again = whole.answer["losses"], resumed.answer["losses"]
    if not all(math.isfinite(loss) for loss in losses):
        return NO_PROGRESS(f"{_where(whole.device)}: loss {losses[-1]}", "a number")
    # The same operations in the same order: equal to the last bit on the CPU, nearly so where sums are in parallel.
    if resumed.answer["start"] != 5 or any(abs(a - b) > 1e-5 * abs(a) for a, b in zip(losses[5:], again)):
        return CHANGED(f"{_where(whole.device)}: loss {again[-1]:.6g} after resuming", f"{losses[-1]:.6g}")
    if losses != whole.answer["again"]:
        return NOT_AGAIN(f"{_where(whole.device)}: loss {whole.answer['again'][-1]:.9g} again", f"{losses[-1]:.9g}")
    return passed(f"{_where(whole.device)}: ten steps, checkpoint, resumed with the same losses")
