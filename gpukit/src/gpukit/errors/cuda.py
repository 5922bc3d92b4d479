"""What CUDA, its libraries and the compilers for kernels say."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import (
    CDI_STALE,
    CPU_BUILD,
    CUDA_AFTER_FORK,
    CUDA_COMPAT,
    DEVICE_FILES,
    DRIVER_NOT_INSTALLED,
    DRIVER_TOO_OLD,
    DRIVER_UPDATED,
    EARLIER_KERNEL,
    GPU_FULL,
    GPU_HIDDEN,
    GPU_NOT_GIVEN,
    GPU_TAKEN,
    JETPACK_TOO_OLD,
    JETSON_TORCH,
    LIBRARIES_MIXED,
    MIG_EMPTY,
    NO_GPU_HERE,
    OLD_WINDOWS_DRIVER,
    TORCH_TOO_OLD,
    UVM_STUCK,
    WSL_DRIVER_TOO_OLD,
)
from gpukit.errors.evidence import (
    CONTAINER,
    CUDA_ABOVE_DRIVER,
    JETSON,
    NO_CARD,
    WINDOWS,
    WORKED_BEFORE,
    WSL,
    Case,
    Evidence,
    capability_below,
    capability_from,
    only,
    text_has,
    text_must_have,
)
from gpukit.errors.machine import at_least
from gpukit.errors.memory import TORCH_BUILD
from gpukit.errors.ranks import TOO_MANY_RANKS
from gpukit.errors.rule import BROAD, CARD, DRIVER, GENERAL, GRANT, NOTE, TRACE, VERIFY, Rule
from gpukit.findings.finding import Cause

UPDATE_BASE = "Update to a newer base with `./launch update`; in an environment of your own, install a newer PyTorch."
ATTENTION = 'Use PyTorch\'s own attention: `attn_implementation="sdpa"` in transformers.'
LOWER_PRECISION = Cause(
    "card-lacks-precision",
    "This GPU does not support that precision or kernel: bf16 needs compute capability 8.0 (Ampere), fp8 needs 8.9 "
    "(Ada).",
    "Use fp16 on older cards, and PyTorch's own attention (`sdpa`) in place of kernels for newer ones.",
    tell="`nvidia-smi --query-gpu=name,compute_cap --format=csv` shows a lower number than needed",
    given=capability_below("9.0"),
)
PACKAGE_TOO_OLD = Cause(
    "package-older-than-card",
    "This release of the package does not know the GPU yet.",
    "Install the newest release of the package that the text names; until there is one, turn its kernels off.",
    tell="the GPU is newer than the package",
    given=capability_from("9.0"),
)
SHAPE = Cause(
    "unsupported-shape",
    "The library does not support these tensors: their shape, precision, or memory layout.",
    "Print shapes and dtypes at that line; try `.contiguous()`, another precision, or sizes that are multiples of 16.",
    tell="only this layer fails, and `./launch verify` passes",
)
PACKAGE_KERNELS = Cause(
    "package-without-kernel",
    "A package with CUDA code of its own (such as flash-attn, xformers, or an extension) was built "
    "without kernels for this GPU; PyTorch itself has them.",
    "Install the newest release of that package. If it has none for this GPU, rebuild it with "
    "`TORCH_CUDA_ARCH_LIST` set to the card's compute capability, or turn its kernels off.",
    tell="`./launch verify` passes, and the traceback ends in that package",
    given=text_has(
        r"flash_attn|flashinfer|deep_gemm|No supported CUDA architectures "
        "found|xformers|bitsandbytes|_ext|mamba|causal_conv|apex|third_party"
    ),
)

OTHER_GPU = Cause(
    "other-gpu-current",
    "A stream, module, or tensor belongs to another GPU than the current one, or to the process before it was forked.",
    "Call `torch.cuda.set_device(...)` at the start of each process and keep all tensors on that GPU.",
    given=text_has(r"\bcuda:[1-9]\b|multi_tensor_apply"),
    tell="it works with one GPU: `CUDA_VISIBLE_DEVICES=0`",
)


def _built_for_blackwell(case: Case) -> bool | None:
    """Whether torch has kernels for the newest cards, so that the ones that are missing are another package's."""
    torch = case.machine.torch
    return at_least(torch.version, "2.7") and at_least(torch.cuda, "12.8")


BUILT_FOR_BLACKWELL = Evidence(_built_for_blackwell, "torch has kernels for this GPU", "torch has none for new GPUs")

RULES = (
    Rule(
        "wsl-toolkit-old",
        "Unexpected error from cudaGetDeviceCount(). Error 500: named symbol not found",
        (
            r"\berror:? 500\b[^\n]{0,4}:? *named symbol not found",
            r"(?:cudaGetDeviceCount|cuInit|\bWSL)[\s\S]{0,400}named symbol not found",
        ),
        (
            Cause(
                "wsl-toolkit-old",
                "In WSL, the NVIDIA Container Toolkit is older than the Windows driver and does not mount all of its "
                "libraries into the container.",
                "Update Docker Desktop (4.31 or newer), or `nvidia-container-toolkit` (1.15 or newer) in WSL, and "
                "restart it.",
            ),
        ),
        more="./launch doctor --only engine,gpu",
    ),
    Rule(
        "nvls",
        "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'",
        (
            r"transport/nvls\.cc[^\n]{0,80}(?:Cuda failure|error|fail)",
            r"Failed to (?:bind|create|set up) NVLink ?SHARP",
            r"NVLS[^\n]{0,40}(?:multicast|Multicast)[^\n]{0,60}(?:fail|error)",
        ),
        (
            Cause(
                "nvls",
                "NCCL cannot use NVLink SHARP: the fabric manager was restarted while GPUs were in use, has another "
                "version than the driver, or the container lacks access to it.",
                "Set `NCCL_NVLS_ENABLE=0`; to use it again, restart the machine after the fabric manager was changed.",
            ),
        ),
        more="`./launch doctor --only fabric`",
    ),
    Rule(
        "nccl-memory",
        "NCCL WARN Cuda failure 801 'operation not supported'",
        (r"NCCL[^\n]{0,120}Cuda failure (?:801 )?'operation not supported'",),
        (
            Cause(
                "nccl-memory",
                "The driver does not support the kind of memory that NCCL allocates: common on virtual GPUs, in WSL, "
                "and in restricted containers.",
                "Set `NCCL_CUMEM_ENABLE=0` and `NCCL_NVLS_ENABLE=0`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "not-supported-here",
        "CUDA error: operation not supported",
        (
            r"CUDA error: operation not supported",
            r"cudaErrorNotSupported|CUDA_ERROR_NOT_SUPPORTED",
            r"Error (?:invalid device ordinal|operation not supported) at line \d+ in file \S*pythonInterface",
        ),
        (
            Cause(
                "not-supported-here",
                "The driver does not support this call here: virtual GPUs, Windows, and WSL lack parts of CUDA, such "
                "as unified memory or sharing memory between processes.",
                "Remove `expandable_segments` from `PYTORCH_CUDA_ALLOC_CONF` and set `NCCL_CUMEM_ENABLE=0`; on a "
                "virtual GPU, choose a profile with unified memory.",
            ),
            Cause(
                "no-inter-process-memory",
                "Sharing GPU memory between processes (CUDA IPC) is not supported on this machine.",
                "Move tensors to the CPU before they are sent to another process, or use one process.",
                tell="the traceback shows `reductions.py`, `_share_cuda_`, or a multiprocessing queue",
                given=text_has(r"reductions\.py|_share_cuda_|cudaIpc|multiprocessing"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "peer-access",
        "peer access is not supported between these two devices",
        (r"peer access is not supported between these two devices", r"peer mapping resources exhausted"),
        (Cause("peer-access", "These GPUs cannot access each other's memory directly.", "Set `NCCL_P2P_DISABLE=1`."),),
        more=VERIFY,
    ),
    Rule(
        "forward-compatibility",
        "Error 804: forward compatibility was attempted on non supported HW",
        (r"forward compatibility was attempted on non.?supported HW", r"COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        (
            DRIVER_UPDATED,
            Cause(
                "cuda-compat-geforce",
                "The image is newer than the driver and uses cuda-compat libraries, which work only on data-center "
                "cards.",
                "Install a newer NVIDIA driver on the host: 580 or newer for CUDA 13, 525 or newer for CUDA 12.",
                tell="`nvidia-smi` on the host shows a lower CUDA version than the image's",
                given=CUDA_ABOVE_DRIVER,
            ),
            CUDA_COMPAT,
        ),
        more=DRIVER,
        level=BROAD,
    ),
    Rule(
        "mps",
        "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        (r"MPS client failed to connect", r"cudaErrorMps\w+|CUDA_ERROR_MPS_\w+", r"MPS server is not ready"),
        (
            Cause(
                "mps",
                "The GPU is shared through MPS, and its server cannot be reached from here.",
                "Start `nvidia-cuda-mps-control -d` on the host and mount its pipe directory, or unset "
                "`CUDA_MPS_PIPE_DIRECTORY`.",
            ),
        ),
        more="`nvidia-smi`",
    ),
    Rule(
        "driver-combination",
        "Error 803: system has unsupported display driver / cuda driver combination",
        (
            r"unsupported display driver */ *cuda driver combination",
            r"kernel version \S+ does not match DSO version",
            r"SYSTEM_DRIVER_MISMATCH",
            r"cudaGetDeviceCount[^\n]{0,30}\b803\b",
        ),
        (
            DRIVER_UPDATED,
            CUDA_COMPAT,
            replace(CDI_STALE, given=CONTAINER),
        ),
        more="`./launch doctor --only driver,gpu`",
    ),
    Rule(
        "ptx-too-new",
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        (r"provided PTX was compiled with an unsupported toolchain", r"UNSUPPORTED_PTX_VERSION|UnsupportedPtxVersion"),
        (
            Cause(
                "driver-older-than-kernels",
                "The NVIDIA driver is older than the CUDA toolkit that compiled these kernels.",
                "Install a newer NVIDIA driver, or a build of the package for an older CUDA.",
            ),
        ),
        certain=True,
        more=DRIVER,
    ),
    Rule(
        "driver-too-old",
        "The NVIDIA driver on your system is too old (found version 11040).",
        (
            r"The NVIDIA driver on your system is too old",
            r"unsatisfied condition: ?(?:cuda|driver|brand)",
            r"unsupported CUDA version: driver [\d.]+ < image",
            r"Driver does not support the required nvenc API version",
            r"API call is not supported in the installed CUDA driver|cudaErrorCallRequiresNewerDriver",
            r"ERROR: This container was built for NVIDIA Driver Release [\d.]+ or later",
            r"CUDA Driver version found is \d+\. Minimum requirement",
            r"requires? (?:NVIDIA |GPU )?driver (?:version )?(?:>=|\d+[\d.]* or (?:newer|later|higher))",
        ),
        (JETPACK_TOO_OLD, WSL_DRIVER_TOO_OLD, DRIVER_TOO_OLD),
        more=DRIVER,
        kind="gpu",
    ),
    Rule(
        "flash-attention-card",
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        (
            r"FlashAttention(?:-?\d)? only supports (?:Ampere|Ada|Hopper)",
            r"FlashAttention[^\n]{0,60}requires A100",
            r"Expected is_sm[89]\w+(?: \|\| is_sm\w+)* to be true",
        ),
        (
            Cause(
                "flash-attention-old-card",
                "FlashAttention needs a GPU with compute capability 8.0 (Ampere) or newer.",
                ATTENTION,
                given=capability_below("8.0"),
            ),
            Cause(
                "flash-attention-new-card",
                "This release of FlashAttention does not know the GPU, which is newer than the release.",
                "Install the newest release of flash-attn, or use PyTorch's own attention (`sdpa`).",
                tell="the GPU is an RTX 50, a GB10, or a B200",
                given=capability_from("10.0"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "driver-insufficient",
        "CUDA driver version is insufficient for CUDA runtime version",
        (
            r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver",
            r"cudaGetDeviceCount returned 35\b",
        ),
        (JETPACK_TOO_OLD, WSL_DRIVER_TOO_OLD, DRIVER_TOO_OLD, GPU_NOT_GIVEN, DRIVER_NOT_INSTALLED),
        more="`./launch doctor --only driver,gpu`",
    ),
    Rule(
        "sdpa-no-kernel",
        "RuntimeError: No available kernel. Aborting execution.",
        (
            r"No available kernel\.\s+Aborting execution",
            r"No operator found for `memory_efficient_attention",
            r"No viable backend for scaled_dot_product_attention",
            r"cutlass[FB]: no kernel found to launch",
            r"attn_bias_ptr is not correctly aligned",
        ),
        (
            Cause(
                "no-attention-kernel",
                "None of the allowed attention kernels supports these tensors on this GPU: their precision, head "
                "size, or mask, or the GPU is too old.",
                'Let PyTorch choose: remove `sdpa_kernel(...)`, or set `attn_implementation="sdpa"` (or `"eager"`) '
                "in transformers.",
            ),
            Cause(
                "xformers-without-cuda",
                "xformers was built without CUDA kernels, for another torch, or not for this GPU.",
                "Install the xformers release for the installed torch, or uninstall it: PyTorch's own attention is "
                "then used.",
                tell="`python -m xformers.info` shows memory_efficient_attention as unavailable",
                given=text_has(r"xformers|memory_efficient_attention|cutlass[FB]"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "bf16-not-here",
        "ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0",
        (
            r"Your setup doesn't support bf16",
            r"bf16[^\n]{0,60}(?:requires|not supported|isn't supported)",
            r"need (?:an )?Ampere\+? ",
            r"(?:GPU|device|card|hardware)s?[^\n]{0,40}(?:does not|doesn't|do not|don't) support[^\n]{0,20}(?:bf16|"
            r"bfloat16)",
        ),
        (LOWER_PRECISION, CPU_BUILD, GPU_HIDDEN),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "card-too-old-for",
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        (
            r"Bfloat16 is only supported on GPUs with compute capability[^\n]*",
            r"(?:GPU|device|card|hardware)s?[^\n]{0,40}(?:does not|doesn't|do not|don't) support[^\n]{0,20}(?:bf16|"
            r"bfloat16|fp8|tf32|float8)",
            r"fp8e\w+ not supported in this architecture",
            r"Feature '[^']+' (?:requires|not supported on) \.target '?sm_\w+'?",
            r"only supported (?:on|for) (?:CUDA )?(?:devices|GPUs) with compute capability",
            r"requires? (?:a )?(?:device|GPU)s?(?: with)? (?:compute )?capability (?:>|of at least|at least)",
            r"too old to be supported by the triton GPU compiler",
            r"(?:FP8|NVFP4|MXFP4)[^\n]{0,40}(?:requires|only supported)[^\n]{0,40}"
            r"(?:capability|Hopper|Ada|Blackwell|sm_?\d+|H100)",
        ),
        (LOWER_PRECISION, PACKAGE_TOO_OLD),
        more=VERIFY,
    ),
    Rule(
        "triton-too-old",
        "RuntimeError: Triton only support CUDA 10.0 or higher, but got CUDA version: 13.0",
        (r"Triton only supports? CUDA 10\.0 or higher, but got CUDA version: ?([\d.]+)",),
        (
            Cause(
                "triton-too-old",
                "This Triton does not know CUDA {0}, whose `ptxas` it found: it is older than that CUDA.",
                "Install the Triton that belongs to the installed torch (`./launch build` in a project), or set "
                "`TRITON_PTXAS_PATH` to an older `ptxas`.",
                standalone="Install the Triton that belongs to the installed torch, or set `TRITON_PTXAS_PATH` to an "
                "older `ptxas`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "no-triton",
        "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.",
        (
            r"Cannot find a working triton installation",
            r"TritonMissing",
            r"cannot import name '[^']+' from '(?:torch\._inductor\.runtime\.)?triton",
            r"module 'triton[\w.]*' has no attribute",
            r"Triton installation not found",
            r"AttributeError: '?CompiledKernel'? object has no attribute",
            r"No module named 'triton\.[\w.]+'",
        ),
        (
            Cause(
                "triton-mismatch",
                "Triton is missing, or has another version than the installed torch (or the package that imports it) "
                "needs.",
                "Reinstall torch, which brings its Triton; in a project, remove triton from pyproject.toml and run "
                "`./launch build`.",
                standalone="Reinstall torch, which brings its Triton.",
            ),
            Cause(
                "triton-windows",
                "Triton has no official build for Windows.",
                "Install `triton-windows`, or work in WSL 2 or a container.",
                tell="this is Windows without WSL",
                given=WINDOWS,
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "ptxas-too-old",
        "ptxas fatal : Value 'sm_121a' is not defined for option 'gpu-name'",
        (
            r"Value '(sm_\w+)' is not defined for option 'gpu-name'",
            r"ptxas[^\n]{0,40}(?:Unsupported|is not a recognized)[^\n]{0,20}(sm_\w+)",
            r"PTXAS error[^\n]{0,80}(sm_\d+a?)",
            r"'(sm_\d+a?)' is not a recognized processor",
            r"--gpu-name=(sm_1[0-3]\d[af]?)[\s\S]{0,400}(?:ptxas fatal|returned non-zero)",
            r"ptxas fatal[^\n]{0,40}Unsupported \.version",
        ),
        (
            Cause(
                "ptxas-too-old",
                "The compiler `ptxas` that Triton uses does not know this GPU ({0}). Only `torch.compile` and Triton "
                "kernels fail.",
                "Install a newer PyTorch, or set `TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas` if CUDA 12.9 or newer "
                "is installed there.",
            ),
            Cause(
                "ptxas-path",
                "`TRITON_PTXAS_PATH` or `CUDA_HOME` names an older CUDA toolkit than the GPU needs.",
                "Run `unset TRITON_PTXAS_PATH CUDA_HOME`, or set them to CUDA 12.9 or newer.",
                tell="`echo $TRITON_PTXAS_PATH $CUDA_HOME` prints a path, and `ptxas --version` there is older",
                given=text_has(r"TRITON_PTXAS_PATH|/usr/local/cuda[^\n ]*/bin/ptxas"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "nvrtc-too-old",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        (r"nvrtc: error: invalid value for --gpu-architecture", r"NVRTC_ERROR_INVALID_OPTION"),
        (
            Cause(
                "nvrtc-older-than-card",
                "The run-time compiler NVRTC is older than the GPU and does not know its architecture.",
                UPDATE_BASE,
                given=capability_from("8.9"),
                standalone="Install a newer PyTorch.",
            ),
            Cause(
                "nvrtc-newer-than-card",
                "The run-time compiler NVRTC is newer than the GPU, whose architecture it no longer supports.",
                "Install a PyTorch or CuPy build for CUDA 12 or older.",
                tell="the GPU is older than compute capability 7.5",
                given=capability_below("7.5"),
            ),
        ),
        more=CARD,
    ),
    Rule(
        "nvrtc-missing",
        "nvrtc: error: failed to open libnvrtc-builtins.so.12.8.",
        (
            r"failed to open libnvrtc-builtins",
            r"Could not load library libcudnn\w*\.so\.\d+\. Error: libnvrtc\.so",
            r"libnvrtc\.so: cannot open shared object file",
        ),
        (
            LIBRARIES_MIXED,
            Cause(
                "nvrtc-missing",
                "The run-time compiler NVRTC or one of its parts is not installed, or is not on the library path.",
                "Reinstall torch with its nvidia packages (`./launch build` in a project); for CuPy or cuDNN outside "
                "of torch, install `nvidia-cuda-nvrtc-cu12`.",
                tell="`pip list` does not show nvidia-cuda-nvrtc",
                standalone="Reinstall torch with its nvidia packages; for CuPy or cuDNN outside of torch, install "
                "`nvidia-cuda-nvrtc-cu12`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "kernel-refused",
        "Triton Error [CUDA]: device kernel image is invalid",
        (r"device kernel image is invalid", r"cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_IMAGE"),
        (
            Cause(
                "driver-older-than-kernels",
                "The NVIDIA driver is older than the CUDA toolkit that compiled these kernels.",
                "Install a newer NVIDIA driver, or a build of the package for an older CUDA.",
            ),
            Cause(
                "kernel-cache-stale",
                "A cached kernel was compiled for another GPU or another version.",
                "Delete the cache with `rm -r ~/.triton/cache ~/.nv/ComputeCache` and run again.",
                tell="machines with other GPUs share the home directory, or the GPU or driver was replaced",
            ),
            PACKAGE_KERNELS,
        ),
        more=DRIVER,
    ),
    Rule(
        "launch-resources",
        "OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376",
        (
            r"LAUNCH_OUT_OF_RESOURCES|cudaErrorLaunchOutOfResources",
            r"too many resources requested for launch",
            r"out of resources?: (?:shared memory|threads|registers|tensor memory)",
            r"No valid triton configs",
            r"Entry function '?\S*'? ?uses too much shared data",
        ),
        (
            Cause(
                "kernel-too-large",
                "A kernel needs more shared memory or registers than this GPU has: it was tuned for a larger GPU, or "
                "its block size is too large.",
                "Install a newer release of the package that contains the kernel; in your own Triton kernel, reduce "
                "block sizes and `num_stages`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "cudnn-no-plan",
        "cuDNN Frontend error: No valid execution plans built",
        (
            r"No (?:valid )?execution plans (?:built|support)",
            r"Unable to find an engine to execute this computation",
            r"no valid engine configs",
            r"(?:GET was|FIND was) unable to find an engine",
            r"CUDNN_STATUS_NOT_SUPPORTED",
        ),
        (GPU_FULL, SHAPE, LIBRARIES_MIXED),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "two-cudnn",
        "RuntimeError: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        (
            r"CUDNN_STATUS_SUBLIBRARY_(?:VERSION_MISMATCH|LOADING_FAILED)|CUDNN_STATUS_VERSION_MISMATCH",
            r"cuDNN version incompatibility",
            r"Loaded runtime CuDNN library",
            r"Unable to load any of \{?libcudnn",
            r"Cannot load symbol cudnn\w+",
        ),
        (
            Cause(
                "two-cudnn",
                "Two versions of cuDNN are mixed, or one of its libraries is missing.",
                "Run `unset LD_LIBRARY_PATH`, uninstall any second nvidia-cudnn package, and reinstall torch "
                "(`./launch build` in a project).",
                standalone="Run `unset LD_LIBRARY_PATH`, uninstall any second nvidia-cudnn package, and reinstall "
                "torch.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "triton-no-driver",
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        (r"\b0 active drivers\b", r"libcuda\.so cannot found", r"0 active driver\(s\) found"),
        (
            GPU_NOT_GIVEN,
            Cause(
                "driver-library-not-found",
                "Triton does not find the driver's library libcuda.so.",
                "Run `sudo ldconfig`, or set `TRITON_LIBCUDA_PATH` to the folder of libcuda.so (in WSL: "
                "/usr/lib/wsl/lib).",
                tell="`ldconfig -p | grep libcuda` prints nothing, and torch sees the GPU",
                given=text_has(r"libcuda\.so cannot found"),
            ),
            Cause(
                "used-before-gpu",
                "The program uses Triton where no GPU is active, for example at import time or in a process that "
                "sees none.",
                "Check `torch.cuda.is_available()` in the same process; unset `CUDA_VISIBLE_DEVICES`.",
                tell="`./launch verify` passes",
            ),
        ),
        more="`./launch verify --only gpu,compile`",
    ),
    Rule(
        "compile-python",
        "RuntimeError: Dynamo is not supported on Python 3.12+",
        (r"Dynamo is not supported on Python", r"torch\.compile is not (?:yet )?supported on Python"),
        (
            Cause(
                "torch-older-than-python",
                "This PyTorch is older than the Python version, for which it does not support torch.compile.",
                UPDATE_BASE + " Or use an older Python.",
                standalone="Install a newer PyTorch, or use an older Python.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "nvcc-too-old",
        "nvcc fatal : Unsupported gpu architecture 'compute_120'",
        (r"Unsupported gpu architecture '?(compute[_ ]\d+[af]?)", r"nvcc fatal\s+: Value '(sm_\w+)' is not defined"),
        (
            Cause(
                "nvcc-older-than-card",
                "The CUDA compiler does not know this GPU ({0}): the CUDA toolkit is older than the GPU.",
                "Install a newer CUDA toolkit (12.8 or newer for compute_120), or set `TORCH_CUDA_ARCH_LIST` to "
                "architectures that it knows.",
                given=text_has(r"(?:compute|sm)_?(?:89|9\d|1[0-2]\d)"),
            ),
            Cause(
                "nvcc-newer-than-arch",
                "The CUDA toolkit no longer supports this old architecture ({0}).",
                "Set `TORCH_CUDA_ARCH_LIST` (or `CUDAARCHS`) to your GPU's compute capability, or use an older CUDA "
                "toolkit.",
                tell="the architecture in the text is older than your GPU",
                given=text_has(r"(?:compute|sm)_?(?:[2-7]\d)\b"),
            ),
        ),
        more=CARD,
    ),
    Rule(
        "arch-unknown-to-torch",
        "ValueError: Unknown CUDA arch (12.0) or GPU not supported",
        (r"Unknown CUDA arch \(([^)]*)\) or GPU not supported",),
        (
            Cause(
                "torch-older-than-arch",
                "This torch cannot compile for architecture {0}: it is older than the GPU.",
                UPDATE_BASE,
                standalone="Install a newer PyTorch.",
            ),
            Cause(
                "arch-list-wrong",
                "`TORCH_CUDA_ARCH_LIST` names an architecture that does not exist.",
                "Run `unset TORCH_CUDA_ARCH_LIST`.",
                tell="`echo $TORCH_CUDA_ARCH_LIST` prints it",
                given=text_has("TORCH_CUDA_ARCH_LIST"),
            ),
        ),
        more=CARD,
    ),
    Rule(
        "no-kernel",
        "CUDA error: no kernel image is available for execution on the device",
        (
            r"no kernel image is available for execution",
            r"(?<!GB10 with CUDA capability sm_121 )is not compatible with the current PyTorch installation",
            r"cudaErrorNoKernelImageForDevice",
            r"which is of cuda capability (?!12\.1)[\d.]+\.\s+(?:PyTorch no longer supports|Minimum and Maximum)",
            r"sm_\d+ is not supported by this",
            r"no longer supports this GPU because it is too old",
            r"CUDA_ERROR_NO_BINARY_FOR_GPU",
            r"CUDA error:? (?:98|209)?:? ?invalid device function|runtime error \(8\) : invalid device function|"
            r"cudaErrorInvalidDeviceFunction",
            r"(?:Error Code \d+: )?Cuda Runtime \(no kernel image",
            r"CUDA error \([^)\n]*flash-attention/hopper/[^)\n]*\): invalid argument",
            r"No supported CUDA architectures found for",
            r"(?:Unsupported|unknown|not supported) (?:(?:CUDA|GPU) arch\w*|compute capability):? ?(?:sm_?)?\d+",
        ),
        (
            Cause(
                "no-kernel-newer-card",
                "The GPU is newer than this PyTorch (or the package that failed): it has no kernels for it.",
                "Install a build that has them: for sm_120 (RTX 50) and sm_121 (GB10), PyTorch for CUDA 12.8 or "
                "newer. In a project: `./launch update`; `./launch doctor --only card` names the target.",
                tell="the card's compute capability is higher than all in `torch.cuda.get_arch_list()`",
                given=capability_from("10.0") & ~only(BUILT_FOR_BLACKWELL),
                standalone="Install a build that has them: for sm_120 (RTX 50) and sm_121 (GB10), PyTorch for CUDA "
                "12.8 "
                "or newer. `./launch doctor` prints the command for this card.",
            ),
            PACKAGE_KERNELS,
            Cause(
                "no-kernel-older-card",
                "The GPU is older than what this PyTorch (or the package that failed) still supports.",
                "Install an older build: PyTorch for CUDA 12.6 has kernels for cards from 5.0 on. In a project, add "
                "the card as a target: `./launch doctor --only card` names it.",
                tell="the card's compute capability is lower than all in `torch.cuda.get_arch_list()`",
                given=capability_below("7.5"),
                standalone="Install an older build: PyTorch for CUDA 12.6 has kernels for cards from 5.0 on. `./launch "
                "doctor` prints the command for this card.",
            ),
        ),
        more=CARD,
    ),
    Rule(
        "ptxjit-missing",
        "CUDA error: PTX JIT compiler library not found",
        (
            r"PTX JIT compiler library not found|JIT_COMPILER_NOT_FOUND|cudaErrorJitCompilerNotFound",
            r"libnvidia-ptxjitcompiler\.so[^\n]{0,40}(?:cannot open|not found|no such)",
        ),
        (
            Cause(
                "ptxjit-missing",
                "The driver's kernel compiler (libnvidia-ptxjitcompiler) is missing in the container.",
                "Set `NVIDIA_DRIVER_CAPABILITIES=compute,utility`, or regenerate the CDI specification with `sudo "
                "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`; then recreate the container.",
                given=CONTAINER,
            ),
            Cause(
                "driver-incomplete",
                "The driver is installed without its compute libraries.",
                "Install the driver's package libnvidia-compute (Debian and Ubuntu) in the driver's version, or "
                "reinstall the driver.",
                tell="the same fails on the host",
                given=~CONTAINER,
            ),
        ),
        more=GRANT,
    ),
    Rule(
        "gpu-at-exit",
        "CUDA error: driver shutting down",
        (r"CUDA error: driver shutting down|cudaErrorCudartUnloading|CUDA_ERROR_DEINITIALIZED",),
        (
            Cause(
                "gpu-at-exit",
                "The program uses the GPU while it is shutting down, for example in a thread or a destructor.",
                "End threads and data loader workers before the program ends. Results up to there are not affected.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "gpu-count",
        "device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        (r"device >= 0 && device < num_gpus", r"device < num_gpus"),
        (
            Cause(
                "visible-devices-changed",
                "`CUDA_VISIBLE_DEVICES` was changed after torch had counted the GPUs, or names a MIG device that "
                "CUDA does not provide.",
                "Set `CUDA_VISIBLE_DEVICES` before the program starts; with MIG, to one device such as MIG-... that "
                "`nvidia-smi -L` lists.",
            ),
            Cause(
                "torch-nvml-count",
                "torch counts the GPUs through NVML, which sees another number than CUDA does, as on MIG or a Jetson.",
                "Set `PYTORCH_NVML_BASED_CUDA_CHECK=0`, or update torch.",
                tell="`nvidia-smi -L` lists more GPUs than the process may use",
            ),
        ),
        more="`nvidia-smi -L`",
    ),
    Rule(
        "count-memory",
        "cudaGetDeviceCount(). Did you run ... that might have already set an error? Error 2: out of memory",
        (r"cudaGetDeviceCount[\s\S]{0,200}Error 2: out of memory",),
        (
            GPU_TAKEN,
            CUDA_COMPAT,
            Cause(
                "vgpu-without-memory",
                "The virtual GPU or MIG slice has no memory left for CUDA.",
                "Use a larger profile or slice.",
                tell="`nvidia-smi -q -d MEMORY` shows a small total",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "no-such-gpu",
        "CUDA error: invalid device ordinal",
        (
            r"invalid device ordinal",
            r"CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b",
            r"Invalid device id\b",
            r"Attempting to deserialize object on CUDA device \d+ but torch\.cuda\.device_count\(\) is [1-9]",
            r"number of required GPUs exceeds the total number of available GPUs",
            r"But your machine only has: \[\d",
        ),
        (
            Cause(
                "mig-one-slice",
                "A process can use only one MIG slice, however many `CUDA_VISIBLE_DEVICES` lists.",
                "Use `cuda:0`, and start one process per slice, each with one UUID: "
                "`CUDA_VISIBLE_DEVICES=MIG-... python train.py`.",
                tell="`nvidia-smi -L` lists MIG devices",
                given=text_must_have(r"\bMIG\b"),
            ),
            Cause(
                "gpu-index",
                "The program asks for a GPU number that does not exist here: processes count the GPUs that they may "
                "use from 0.",
                "With one GPU, change the number in the code, config, or options to 0 (`cuda:0`, `--gpu 0`). With "
                "more, unset `CUDA_VISIBLE_DEVICES`, or give the container all GPUs with `GPUS=all`.",
                tell="the number in the text or in the code is not below what `torch.cuda.device_count()` prints",
                standalone="With one GPU, change the number in the code, config, or options to 0 (`cuda:0`, `--gpu "
                "0`). "
                "With more, unset `CUDA_VISIBLE_DEVICES`, or give the container all GPUs with `--gpus all`.",
            ),
            TOO_MANY_RANKS,
            Cause(
                "checkpoint-other-gpu",
                "The checkpoint was saved on a GPU number that does not exist here.",
                'Load it with `torch.load(..., map_location="cpu")`.',
                tell="the traceback shows torch.load",
                given=text_has(r"deserialize object on CUDA device|torch\.load|serialization\.py"),
            ),
        ),
        excludes=r"nvidia-container-cli",
        more=VERIFY,
    ),
    Rule(
        "device-uuid",
        "ValueError: invalid literal for int() with base 10: 'MIG-377e0049-554c-540b-93c6-d0976f8426cb'",
        (r"invalid literal for int\(\) with base 10: b?'(?:MIG|GPU)-",),
        (
            Cause(
                "device-uuid",
                "This package expects numbers in `CUDA_VISIBLE_DEVICES`, but it contains the UUID of a GPU or MIG "
                "slice.",
                "Upgrade the package that the traceback names, such as `pip install -U vllm`. Until a release accepts "
                "UUIDs, use an index (`CUDA_VISIBLE_DEVICES=0`); for a MIG slice, start a container with that slice "
                "only (`docker run --gpus '\"device=MIG-...\"' ...`), and unset the variable in it.",
            ),
        ),
        more="`nvidia-smi -L`",
    ),
    Rule(
        "gpu-busy",
        "CUDA error: all CUDA-capable devices are busy or unavailable",
        (
            r"all CUDA-capable devices are busy or unavailable",
            r"CUDA-capable device\(s\) is/are busy or unavailable",
            r"cudaErrorDevicesUnavailable",
            r"exclusive[- ]?(?:process|thread) (?:compute )?mode[^\n]{0,60}(?:in use|another process)",
        ),
        (
            Cause(
                "gpu-exclusive",
                "Another process uses the GPU in exclusive compute mode.",
                "Run `sudo nvidia-smi -c DEFAULT` on the host, or end the other process.",
                tell="`nvidia-smi -q -d COMPUTE` shows Exclusive_Process",
                given=text_has(r"[Ee]xclusive"),
            ),
            MIG_EMPTY,
            Cause(
                "gpu-stuck",
                "The GPU or its driver is in a bad state, for example after a crash, or the virtual machine lost the "
                "GPU.",
                "Restart the machine; `sudo dmesg | grep -i -e nvrm -e xid` shows the driver's errors.",
                tell="no process uses the GPU",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "cuda-unknown",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
        (
            r"CUDA error: unknown error",
            r"CUDA unknown error - this may be due to an incorrectly set up environment",
            r"cudaErrorUnknown\b|CUDA_ERROR_UNKNOWN\b",
            r"\berror 999\b",
            r"(?:cuInit|cudaGetDeviceCount)[^\n]{0,40}\b999\b",
            r"cuda runtime error \(30\) : unknown error",
            r"error=30 : unknown error",
        ),
        (
            UVM_STUCK,
            replace(OLD_WINDOWS_DRIVER, given=only(WSL)),
            DEVICE_FILES,
            Cause(
                "visible-devices-late",
                "`CUDA_VISIBLE_DEVICES` was changed after the program had initialized CUDA, or the driver and its "
                "libraries do not match.",
                "Set it before the program starts; if a new `python -c 'import torch; torch.zeros(1).cuda()'` fails "
                "too, restart the machine.",
                tell="a new process works",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "no-gpu-inside",
        "RuntimeError: No CUDA GPUs are available",
        (
            r"no CUDA-capable (?:device )?is detected",
            r"No CUDA GPUs are available",
            r"cudaErrorNoDevice\b|CUDA_ERROR_NO_DEVICE\b",
            r"cudaGetDeviceCount (?:returned|failed)[^\n]{0,20}\b(?:100|38)\b|"
            r"failed call to cuInit: UNKNOWN ERROR \(100\)",
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            r"kernel driver does not appear to be running on this host",
            r"NO_GPU_DETECTED|no nvidia gpus? (?:is |are )?available",
        ),
        (
            NO_GPU_HERE,
            GPU_HIDDEN,
            GPU_NOT_GIVEN,
            Cause(
                "gpu-not-started",
                "The driver does not provide the GPU to CUDA: MIG is enabled without a slice, the driver does not "
                "support the card, or it is not loaded.",
                "Run `nvidia-smi` and `sudo dmesg | grep -i nvrm` on the host, and make `nvidia-smi` list the GPU "
                "first.",
                tell="`nvidia-smi` on the host fails or lists no GPU",
            ),
        ),
        more="`./launch doctor --only gpu,mig`",
        level=BROAD,
    ),
    Rule(
        "cpu-torch",
        "AssertionError: Torch not compiled with CUDA enabled",
        (
            r"Torch not compiled with CUDA enabled",
            r"torch[^\n]{0,60}\+cpu\b[\s\S]{0,3000}(?:CUDA|GPU)[^\n]{0,40}not (?:currently )?available",
        ),
        (JETSON_TORCH, CPU_BUILD),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "torch-without-nccl",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        (r"Distributed package doesn't have NCCL(?: built in)?",),
        (
            Cause(
                "torch-without-nccl",
                "This torch is built without NCCL, like the builds for CPU, Windows, macOS, and some Jetsons.",
                'Use the backend `gloo` (`init_process_group("gloo")`), or a Linux build of torch for CUDA '
                "(`./launch build` in a project).",
                standalone='Use the backend `gloo` (`init_process_group("gloo")`), or a Linux build of torch for CUDA.',
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "no-cuda-part",
        "NotImplementedError: Could not run 'torchvision::roi_align' with arguments from the 'CUDA' backend.",
        (
            r"Could not run '[^']+' with arguments from the 'CUDA' backend",
            r"Not compiled with (?:CUDA|GPU) support",
            r"(?:library is )?compiled without CUDA support|No CUDA support",
        ),
        (
            Cause(
                "package-cpu-build",
                "A compiled package has no CUDA kernels: it is the build for CPUs, or does not match the installed "
                "torch.",
                "Install the package's build for the installed torch and its CUDA, for torchvision and torchaudio "
                "from the same index as torch.",
            ),
            Cause(
                "built-without-gpu",
                "The package was compiled where no GPU or CUDA toolkit was found, so its CUDA code was left out.",
                "Rebuild it with `FORCE_CUDA=1 pip install --no-cache-dir --no-build-isolation --force-reinstall "
                "--no-deps PACKAGE` where `nvcc --version` works, with `TORCH_CUDA_ARCH_LIST` set if no GPU is "
                "visible.",
                tell="it was built from source, or in a Dockerfile",
                given=text_has(r"Not compiled with (?:CUDA|GPU) support|compiled without CUDA|_ext\b|detectron2|mmcv"),
            ),
            Cause(
                "operation-without-cuda",
                "This operation is not implemented on the GPU.",
                "Run it on the CPU, or use another operation.",
                tell="`./launch verify` passes, and the package's documentation says CPU only",
                given=text_has(r"quantized|QuantizedCPU|Sparse"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "driver-part",
        'handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15',
        (r"c10/cuda/driver_api\.cpp",),
        (
            GPU_NOT_GIVEN,
            Cause(
                "driver-too-old-for-segments",
                "torch could not load a function of the driver's libraries (libcuda.so.1, libnvidia-ml.so.1), which "
                "a newer driver has.",
                "Remove `expandable_segments` from `PYTORCH_CUDA_ALLOC_CONF`, or install a newer driver.",
                tell="`nvidia-smi` works in the same place",
                given=text_has(r"expandable_segments"),
            ),
            Cause(
                "nvml-missing-function",
                "NVML is not usable on this machine, as on a Jetson or in WSL, and torch asked it for memory figures "
                "while reporting an out-of-memory error.",
                "Reduce the memory use: the original error is that the GPU's memory is full.",
                tell="the text has NVML_SUCCESS",
                given=JETSON | WSL,
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "stub",
        "CUDA driver is a stub library",
        (r"CUDA driver is a stub library", r"cudaErrorStubLibrary", r"failed call to cuInit: UNKNOWN ERROR \(34\)"),
        (
            Cause(
                "stub-library",
                "The stub of libcuda.so, which is only for linking, is loaded in place of the driver's library.",
                "Remove the folder `stubs` from `LD_LIBRARY_PATH`.",
            ),
            GPU_NOT_GIVEN,
        ),
        more=VERIFY,
    ),
    Rule(
        "cudnn-libcuda",
        "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
        (r"Could not load library libcudnn\w*\.so[.\d]*\. Error: libcuda\.so: cannot open",),
        (
            Cause(
                "libcuda-without-number",
                "cuDNN 8 looks for libcuda.so without a version number and does not find it, as in WSL.",
                "Set `LD_LIBRARY_PATH=/usr/lib/wsl/lib` in WSL; elsewhere run `sudo ldconfig`, or start the "
                "container with `./launch`.",
                standalone="Set `LD_LIBRARY_PATH=/usr/lib/wsl/lib` in WSL; elsewhere run `sudo ldconfig`, or start the "
                "container with `docker run --gpus all ...`.",
            ),
        ),
        more=GRANT,
    ),
    Rule(
        "driver-library-inside",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        (
            r"libcuda\.so(?:\.1)?[^\n]{0,10}: cannot open shared object file",
            r"Failed to dlopen libcuda|Unable to find cuda lib under the names",
            r"failed to load libnvidia-ml\.so\b",
            r"Could NOT find NVML \(missing",
            r"Could not load dynamic library 'libcuda\.so",
            r"NVML Shared Library Not Found|NVMLError_LibraryNotFound",
            r"libnvidia-ml\.so\.1[^\n]{0,10}: cannot open shared object file",
            r"failed call to cuInit: UNKNOWN ERROR \(303\)",
            r"CUDA driver library could not be found",
            r"Could not find cuda drivers on your machine",
            r"could not open driver library libcuda",
            r"CUDA driver library cannot be found",
            r"Cannot load libcuda\.so",
            r"Couldn't open CUDA library '?libcuda",
            r"unable to find libcuda\.so DSO",
            r"Failed to dlopen libcuda",
            r"Unable to (?:find|dynamically load)(?: the)? [\"'`]?(?:nv)?cuda[\"'`]? (?:shared )?lib",
        ),
        (
            NO_GPU_HERE,
            GPU_NOT_GIVEN,
            DRIVER_NOT_INSTALLED,
            Cause(
                "driver-library-path",
                "The driver's libraries are installed, but not where this program looks.",
                "In WSL, run `export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH`. Elsewhere, run `sudo "
                "ldconfig`, "
                "or put the folder that `find / -name 'libcuda.so*' 2>/dev/null` prints into `LD_LIBRARY_PATH`.",
                tell="`nvidia-smi` works in the same place",
            ),
        ),
        more=GRANT,
    ),
    Rule(
        "cuda-not-linked",
        "ImportError: Unsloth: CUDA is not linked properly.",
        (r"CUDA is not linked properly",),
        (
            Cause(
                "libcuda-not-linked",
                "Triton or bitsandbytes does not find the libraries of the driver or of CUDA, for example if conda "
                "and pip packages are mixed.",
                "Run `sudo ldconfig /usr/lib64-nvidia` (Colab) or `sudo ldconfig`; install all packages from one "
                "source, with pip or with conda.",
            ),
            GPU_NOT_GIVEN,
        ),
        more=VERIFY,
    ),
    Rule(
        "os-call",
        "CUDA error: OS call failed or operation not supported on this OS",
        (r"OS call failed or operation not supported on this OS", r"cudaErrorOperatingSystem"),
        (
            Cause(
                "os-refused-cuda",
                "The operating system refused a request of CUDA, usually to pin memory.",
                "Start the container with `./launch`, which sets the limits, or with `--ulimit memlock=-1`; in WSL, "
                "use `pin_memory=False`.",
                standalone="Start the container with `--ulimit memlock=-1`; in WSL, use `pin_memory=False`.",
            ),
            DEVICE_FILES,
        ),
        more="`./launch verify --only limits,transfer`",
    ),
    Rule(
        "graph-capture",
        "CUDA error: operation not permitted when stream is capturing",
        (
            r"operation (?:not permitted when|failed due to a previous error during) (?:stream is capturing|capture)",
            r"cudaErrorStreamCapture\w+",
            r"operation would make the legacy stream depend on a capturing",
        ),
        (
            Cause(
                "graph-capture",
                "While a CUDA graph was recorded, something ran that cannot be recorded, such as a copy to the CPU "
                "or a first allocation.",
                'Use `torch.compile` without `mode="reduce-overhead"` (`enforce_eager=True` in vLLM), or warm up '
                "first and keep `.item()` and `print` out of the graph.",
            ),
            GPU_FULL,
        ),
        more=TRACE,
    ),
    Rule(
        "graph-overwritten",
        "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run",
        (r"accessing tensor output of CUDAGraphs that has been overwritten",),
        (
            Cause(
                "graph-overwritten",
                "The output of a CUDA graph is used after its next run, which overwrites it.",
                "Clone the output, or call `torch.compiler.cudagraph_mark_step_begin()` before each step.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "display-watchdog",
        "CUDA error: the launch timed out and was terminated",
        (r"the launch timed out and was terminated", r"cudaErrorLaunchTimeout|CUDA_ERROR_LAUNCH_TIMEOUT"),
        (
            Cause(
                "display-watchdog",
                "The GPU also drives a display, and the system stops kernels that run for seconds.",
                "Use another GPU (`GPUS=1`), or turn off the display on this one; in Windows, increase TdrDelay.",
            ),
        ),
        more="`nvidia-smi`",
    ),
    Rule(
        "numbers-assert",
        "CUDA error: device-side assert triggered",
        (
            r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT",
            r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion",
            r"Target -?\d+ is out of bounds",
            r"Assertion [`'](?:t|idx|index|\w*[Tt]arget|\w*Index)\w* >= 0 && \w+ < ",
            r"IndexError: index out of range in self",
        ),
        (
            Cause(
                "index-out-of-range",
                "A check inside a GPU kernel failed: usually an index is out of range, such as a label or token id "
                "that is larger than the model's table.",
                "Run it once with `CUDA_LAUNCH_BLOCKING=1`, or on the CPU: both name the line. Compare labels with "
                "the number of classes, and token ids with the size of the embedding.",
            ),
            Cause(
                "vocabulary-larger",
                "The tokenizer has more tokens than the model's embedding, for example after a padding token was "
                "added, or the text is longer than the model supports.",
                "Call `model.resize_token_embeddings(len(tokenizer))`, and tokenize with `truncation=True` and the "
                "model's `max_length`.",
                tell="`len(tokenizer)` is larger than `model.get_input_embeddings().num_embeddings`",
                given=text_has(r"srcIndex < srcSelectDimSize|vectorized_gather|index out of range in self"),
            ),
            Cause(
                "probabilities-nan",
                "Values that must be probabilities are NaN, infinite, or negative, usually because fp16 overflowed.",
                "Use bf16 or fp32, and check the loss and the weights for NaN. In place of `binary_cross_entropy`, use "
                "`binary_cross_entropy_with_logits`.",
                tell="the text names multinomial, `probability tensor`, or `input_val >= zero`",
                given=text_has(r"multinomial|probability tensor|input_val >= zero|must be between 0 and 1"),
            ),
        ),
        more=TRACE,
        program=True,
    ),
    Rule(
        "kernel-for-other-card",
        "This kernel only supports sm120.",
        (
            r"[Kk]ernel (?:only supports|is only supported (?:on|for)|requires) (sm_?\d+\w*)",
            r"Arch conditional MMA instruction used without targeting",
            r"ERROR ?: Arch conditional",
        ),
        (
            Cause(
                "kernel-for-other-card",
                "A package's kernel was compiled for another GPU generation than this one.",
                "Install a release of the package for this GPU, or select another kernel or attention backend.",
            ),
        ),
        more=CARD,
    ),
    Rule(
        "kernel-crashed",
        "CUDA error: an illegal memory access was encountered",
        (
            r"an illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS",
            r"misaligned address|unspecified launch failure|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED",
            r"illegal instruction was encountered|CUDA error: (?:invalid program counter|hardware stack error)",
            r"CUDA Exception: |CUDA_EXCEPTION_\d+|Invalid __(?:global|shared|local)__ (?:read|write)",
        ),
        (
            Cause(
                "kernel-crashed",
                "A kernel on the GPU accessed invalid memory. CUDA reports it late, so that the line in the "
                "traceback may be a later one.",
                "Run it once with `CUDA_LAUNCH_BLOCKING=1` to find the call. If it is in a package with its own "
                "kernels (flash-attn, xformers, vLLM), update that package or turn its kernels off.",
            ),
            OTHER_GPU,
            EARLIER_KERNEL,
            Cause(
                "gpu-defective",
                "The GPU or its memory is defective, overheated, or overclocked.",
                "Remove overclocking, check `nvidia-smi -q -d ECC,TEMPERATURE`, and try another GPU.",
                tell="it fails at random places, in different programs, with Xid messages in `sudo dmesg`",
                given=text_has(r"\bXid\b"),
            ),
        ),
        more=TRACE,
    ),
    Rule(
        "resource-handle",
        "CUDA error: invalid resource handle",
        (r"CUDA error: invalid resource handle|cudaErrorInvalidResourceHandle|CUDA_ERROR_INVALID_HANDLE",),
        (
            OTHER_GPU,
            PACKAGE_KERNELS,
        ),
        more=TRACE,
        level=BROAD,
    ),
    Rule(
        "launch-form",
        "CUDA error: invalid configuration argument",
        (r"CUDA error: invalid configuration argument|cudaErrorInvalidConfiguration",),
        (
            Cause(
                "launch-configuration",
                "A kernel was started with more threads or blocks than the GPU supports: a tensor is empty or too "
                "large, or the kernel is for another GPU.",
                "Run it once with `CUDA_LAUNCH_BLOCKING=1` and print the shapes at that line.",
            ),
            TORCH_TOO_OLD,
        ),
        more=TRACE,
    ),
    Rule(
        "cublas-other",
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(...)`",
        (r"CUBLAS_STATUS_INVALID_VALUE",),
        (LIBRARIES_MIXED, SHAPE, TORCH_TOO_OLD),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "cublas-not-supported",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`",
        (r"CUBLAS_STATUS_NOT_SUPPORTED", r"cublasLt ran into an error"),
        (SHAPE, LOWER_PRECISION, LIBRARIES_MIXED),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "cublas-failed",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
        (r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",),
        (EARLIER_KERNEL, LIBRARIES_MIXED, TORCH_TOO_OLD, GPU_FULL),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "cudnn-failed",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        (
            r"CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR|BAD_PARAM)\w*",
            r"CUDNN_BACKEND_\w+[^\n]{0,60}(?:failed|error)",
        ),
        (GPU_FULL, LIBRARIES_MIXED, TORCH_BUILD, replace(SHAPE, given=text_must_have(r"BAD_PARAM|CUDNN_BACKEND"))),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "cufft",
        "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
        (r"CUFFT_INTERNAL_ERROR|CUFFT_SETUP_FAILED|CUFFT_EXEC_FAILED|CUFFT_ALLOC_FAILED",),
        (
            Cause(
                "cufft-older-than-card",
                "cuFFT of this CUDA is older than the GPU; CUDA 11.7 fails on RTX 40 cards.",
                UPDATE_BASE,
                tell="`python -c 'import torch; torch.fft.fft(torch.ones(8).cuda())'` fails too",
                standalone="Install a newer PyTorch.",
            ),
            GPU_FULL,
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "nvvm",
        "numba.cuda.cudadrv.error.NvvmSupportError: libNVVM cannot be found",
        (
            r"libNVVM cannot be found|libnvvm\.so[^\n]{0,40}(?:cannot|not found)",
            r"(?:Missing libdevice file|libdevice not found)",
        ),
        (
            Cause(
                "no-nvvm",
                "The compiler NVVM, which Numba uses, belongs to the CUDA toolkit, and that is not installed or "
                "`CUDA_HOME` is wrong.",
                "Use the base that has it: `./launch update --answers base=cuda release=current`. "
                "Or set `CUDA_HOME` to the CUDA toolkit.",
                standalone="Install it with `pip install nvidia-cuda-nvcc-cu12`, or set `CUDA_HOME` to the CUDA "
                "toolkit.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "trt-engine",
        "The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.9",
        (
            r"engine plan file is (?:generated on an incompatible device|not compatible with this version)",
            r"Serialization[^\n]{0,80}(?:Version|magic) tag does not match",
        ),
        (
            Cause(
                "trt-engine-other",
                "The TensorRT engine was built for another GPU or by another version of TensorRT.",
                "Rebuild the engine on this GPU.",
            ),
        ),
        certain=True,
        more=VERIFY,
    ),
    Rule(
        "onnxruntime",
        "Failed to create CUDAExecutionProvider",
        (
            r"Failed to create CUDAExecutionProvider",
            r"libonnxruntime_providers_cuda\.so[^\n]{0,40}(?:with error|cannot open|failed)",
            r"'?CUDAExecutionProvider'? is not in available provider",
        ),
        (
            Cause(
                "onnxruntime-cuda",
                "onnxruntime-gpu needs other versions of CUDA and cuDNN than are found.",
                "Install the onnxruntime-gpu release for your CUDA, call `onnxruntime.preload_dlls()`, or `import "
                "torch` before onnxruntime so that its libraries are found.",
            ),
            Cause(
                "onnxruntime-cpu",
                "The build for CPUs is installed: `onnxruntime` hides `onnxruntime-gpu` if both are there.",
                "Run `pip uninstall onnxruntime onnxruntime-gpu`, then install onnxruntime-gpu only.",
                tell="`onnxruntime.get_available_providers()` does not list CUDAExecutionProvider",
                given=text_has(r"not in available provider"),
            ),
            GPU_NOT_GIVEN,
        ),
        more=VERIFY,
    ),
    Rule(
        "symbol-not-found",
        "RuntimeError: Error named symbol not found at line 233 in file /src/csrc/ops.cu",
        (r"named symbol not found", r"CUDA_ERROR_NOT_FOUND|cudaErrorSymbolNotFound"),
        (PACKAGE_KERNELS,),
        more=CARD,
        level=GENERAL,
    ),
    Rule(
        "nvml-start",
        "UserWarning: Can't initialize NVML",
        (r"Can't initialize NVML",),
        (
            GPU_NOT_GIVEN,
            DRIVER_UPDATED,
            Cause(
                "container-lost-gpu",
                "The running container lost its access to the GPU.",
                "Restart the container.",
                tell="`nvidia-smi` in it reports an Unknown Error",
                given=WORKED_BEFORE,
            ),
        ),
        more=DRIVER,
        level=GENERAL,
    ),
    Rule(
        "ptx-jit",
        "CUDA error: a PTX JIT compilation failed",
        (r"a PTX JIT compilation failed|CUDA_ERROR_INVALID_PTX|cudaErrorInvalidPtx",),
        (DRIVER_TOO_OLD, PACKAGE_TOO_OLD),
        more=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "cuda-library-failed",
        "cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED",
        (r"(?:CUSOLVER|CURAND|CUSPARSE)_STATUS_(?!SUCCESS)\w+", r"CUFFT_(?!SUCCESS)[A-Z_]+"),
        (GPU_FULL, TORCH_TOO_OLD, EARLIER_KERNEL),
        more=TRACE,
        level=GENERAL,
    ),
    Rule(
        "library-other-card",
        "CUDNN_STATUS_ARCH_MISMATCH",
        (r"CUBLAS_STATUS_ARCH_MISMATCH|CUDNN_STATUS_ARCH_MISMATCH",),
        (LOWER_PRECISION, TORCH_TOO_OLD),
        more=CARD,
        level=GENERAL,
    ),
    Rule(
        "cudnn-other-status",
        "cuDNN error: CUDNN_STATUS_UNKNOWN",
        (r"CUDNN_STATUS_(?!SUCCESS)\w+", r"cuDNN Frontend error"),
        (LIBRARIES_MIXED, GPU_FULL, SHAPE),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "cublas-other-status",
        "cublas runtime error : the GPU program failed to execute",
        (r"cublas runtime error", r"CUBLAS_STATUS_\w+"),
        (TORCH_TOO_OLD, EARLIER_KERNEL, GPU_FULL),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "cuda-does-not-start",
        "Unexpected error from cudaGetDeviceCount()",
        (
            r"Unexpected error from cudaGetDeviceCount",
            r"CUDA driver initialization failed",
            r"CUDA error: initialization error|cudaErrorInitializationError",
            r"failed call to cuInit|cuInit failed",
            r"CUDA initialization failure with error",
            r"(?:cuInit|cudaGetDeviceCount)[^\n]{0,30}(?:returned|error|->)[: ]+3\b|\bError 3: initialization error",
            r"Gpu API call\) initialization error",
        ),
        (
            Cause(
                "driver-mismatch",
                "The driver, its libraries, and its device files do not match, or the driver is stuck.",
                "Restart the machine; in a container, start it again. `nvidia-smi` must work in the same place first.",
                tell="`./launch verify --only gpu` fails too",
            ),
            CUDA_AFTER_FORK,
            MIG_EMPTY,
        ),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "cuda-not-available",
        "RuntimeError: No GPU found. A GPU is needed for quantization.",
        (
            r"torch\.cuda\.is_available\(\) is False\. If you are running on a CPU-only",
            r"Attempting to deserialize object on a CUDA device but",
            r"CUDA (?:device )?(?:is |was )?not (?:currently )?ava\w{2,4}ble|CUDA (?:device )?(?:is |was )?not "
            r"(?:currently )?available",
            r"No (?:NVIDIA |CUDA )?(?:GPUs?|accelerators?)\b[^\n.]{0,30}(?:found|detected|available)\b",
            r"CUDA unavailable, invalid device",
            r"Torch is not able to use GPU",
            r"torch\.cuda\.is_available\(\)\)?\s*\n\s*False\b",
            r"fp16\W[^\n]{0,80}(?:requires a GPU|can only be used on CUDA)",
            r"does not support the current version of Torch/CUDA",
            r"No NVIDIA GPU (?:was )?(?:found|detected)",
            r"GPU(?: device)? not (?:found|available|detected)",
            r"no (?:cuda|gpu) devices? (?:is |are |was |were )?(?:found|available|detected)",
            r"requires a (?:CUDA|GPU)\b",
            r"GPU is (?:required|needed) (?:to|for)",
            r"No supported gpu backend found",
            r"But your machine only has: \[\]",
            r"cannot find any torch accelerator",
            r"Unsloth (?:currently )?only works on NVIDIA GPUs",
            r"torch\.cuda\.is_available\(\)[: ]+(?:returns? )?False",
            r"Failed to infer device type",
            r"you must have (?:a )?CUDA[^\n]{0,20} to (?:use|run)",
            r"No GPU/TPU found|No GPU devices? (?:found|available|detected)",
            r"no nvidia (?:gpu )?devices? (?:is |are |was |were )?(?:found|available|detected)",
            r"only 0 (?:GPUs?|devices?) (?:are |is )?available",
            r"No platform detected, vLLM is running on UnspecifiedPlatform",
            r"UnspecifiedPlatform",
        ),
        (NO_GPU_HERE, JETSON_TORCH, CPU_BUILD, GPU_NOT_GIVEN, DRIVER_TOO_OLD, DRIVER_NOT_INSTALLED),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "triton-failed",
        "RuntimeError: PassManager::run failed",
        (
            r"PassManager::run failed",
            r"Internal Triton PTX codegen error",
            r"triton\.compiler\.errors\.Compil\w+Error",
            r"Triton Error \[CUDA\]",
            r"PTXASError",
            r"LLVM ERROR: Cannot select",
        ),
        (
            Cause(
                "triton-kernel",
                "Triton cannot compile this kernel: this version does not support it, or not on this GPU.",
                "Update torch (and with it Triton) or the package that contains the kernel; `TORCHDYNAMO_DISABLE=1` "
                "runs without torch.compile.",
            ),
            replace(
                LOWER_PRECISION,
                given=capability_below("8.9") & text_must_have(r"fp8|bf16|bfloat16|e4m3|e5m2|Cannot select"),
            ),
            PACKAGE_TOO_OLD,
        ),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "compile-failed",
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised",
        (r"torch\._dynamo\.exc\.\w+", r"torch\._inductor\.exc\.\w+", r"BackendCompilerFailed", r"InductorError"),
        (
            Cause(
                "compile-unsupported",
                "torch.compile cannot compile a part of the program; the lines after this one say which.",
                "Run without it with `TORCHDYNAMO_DISABLE=1`, or put `@torch.compiler.disable` on that function.",
                tell="`./launch verify --only compile` passes",
            ),
            Cause(
                "compiler-windows",
                "On Windows, torch.compile needs Microsoft's C++ compiler and a Triton that is built for Windows.",
                "Install the Visual Studio Build Tools with C++ and `pip install triton-windows`, and start from the "
                "x64 Native Tools Command Prompt; or work in WSL 2.",
                given=only(WINDOWS),
            ),
            Cause(
                "compiler-broken",
                "The C compiler or Triton that torch.compile needs does not work in this environment.",
                "Install gcc and Python's headers (`./launch build` in a project has both), and do not replace "
                "torch's Triton.",
                tell="`./launch verify --only compile` fails",
                given=text_has(r"gcc|g\+\+|cc1|Python\.h|CalledProcessError|compiler"),
                standalone="Install gcc and Python's headers, and do not replace torch's Triton.",
            ),
        ),
        more="`./launch verify --only compile`",
        level=GENERAL,
    ),
    Rule(
        "cuda-call-failed",
        "CUDA error: invalid argument",
        (
            r"CUDA (?:runtime |driver )?error:? (?:\(\d+\) ?: ?)?(?!out of)([a-z][\w ,'-]{4,60})",
            r"(cudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+)",
        ),
        (
            EARLIER_KERNEL,
            Cause(
                "cuda-call-failed",
                "A CUDA call failed ({0}): the call does not suit this GPU or driver.",
                "Run it once with `CUDA_LAUNCH_BLOCKING=1` to find the call.",
                tell="with `CUDA_LAUNCH_BLOCKING=1`, the same line is named",
            ),
        ),
        more=TRACE,
        level=GENERAL,
    ),
    Rule(
        "no-cuda-runtime",
        "docker run IMAGE python train.py: No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
        (r"No CUDA runtime is found",),
        (replace(GPU_NOT_GIVEN, given=(only(CONTAINER) | text_must_have(r"docker run")) & ~only(NO_CARD)),),
        excludes=r"setup\.py|pip install|Step \d+/\d+|^#\d+ \d|docker build|[Bb]uilding wheel|build_ext",
        level=GENERAL,
        more=GRANT,
    ),
    Rule(
        "spark-warning",
        "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum ... (8.0) - (12.0)",
        (r"GB10[^\n]{0,60}cuda capability (?:12\.1|sm_121)", r"capability 12\.1[^.]{0,400}\(?8\.0\)? ?- ?\(?12\.0\)?"),
        (
            Cause(
                "spark-warning",
                "This is only a warning: kernels for 12.0 run on 12.1 without change.",
                "Nothing needs to be done.",
            ),
        ),
        level=NOTE,
        more=VERIFY,
    ),
    Rule(
        "no-gpu-while-building",
        "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
        (r"No CUDA runtime is found",),
        (
            Cause(
                "no-gpu-while-building",
                "This is only a note: no GPU is visible here, which is normal while an image is built.",
                "Nothing needs to be done during a build. In a running container, check with `./launch verify --only "
                "gpu`: it was started without `--gpus all` if that fails.",
            ),
        ),
        level=NOTE,
        more=VERIFY,
    ),
    Rule(
        "image-older-than-card",
        "WARNING: Detected NVIDIA GB10 GPU, which is not yet supported in this version of the container",
        (
            r"Detected (?:NVIDIA )?([^\n]{3,60}?) GPU, which (?:is not yet|"
            r"may not yet be) supported in this version of the container",
            r"No supported GPU\(s\) detected to run this container",
        ),
        (
            Cause(
                "image-older-than-card",
                "The base image was released before this GPU ({0}) and has not been tested on it.",
                "Run `./launch verify`: if kernels fail, use a newer base with `./launch update`.",
                standalone="Run `./launch verify`: if kernels fail, use a newer image.",
            ),
        ),
        level=NOTE,
        more=VERIFY,
    ),
)
