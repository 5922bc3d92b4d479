"""What CUDA, its libraries and the compilers for kernels say."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, CARD, DRIVER, GENERAL, GRANT, NOTE, TRACE, VERIFY, Rule
from gpukit.findings.finding import Cause

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
                "The driver of Windows is newer than the NVIDIA Container Toolkit that Docker uses in WSL, which does not "
                "mount all of it.",
                "Update Docker Desktop (4.31 or newer), or nvidia-container-toolkit (1.15 or newer), and restart it.",
            ),
        ),
        look="./launch doctor --only engine,gpu",
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
                "NCCL cannot use the switch's own sums (NVLink SHARP): the fabric manager was restarted under running "
                "GPUs or is of another version, or a bounded container does not get them.",
                "NCCL_NVLS_ENABLE=0 goes without; restart the machine after a change of the fabric manager.",
            ),
        ),
        look="./launch doctor --only fabric",
    ),
    Rule(
        "nccl-memory",
        "NCCL WARN Cuda failure 801 'operation not supported'",
        (r"NCCL[^\n]{0,120}Cuda failure (?:801 )?'operation not supported'",),
        (
            Cause(
                "nccl-memory",
                "The driver here lacks what NCCL's newer kinds of memory need, as a virtual GPU, WSL or a bounded container "
                "does.",
                "NCCL_CUMEM_ENABLE=0 NCCL_NVLS_ENABLE=0",
            ),
        ),
        look=VERIFY,
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
                "The driver here cannot do what was asked: a virtual GPU, Windows or WSL lacks some of CUDA, such as unified "
                "memory or sharing between processes.",
                "On a virtual GPU: a profile with unified memory; PYTORCH_CUDA_ALLOC_CONF without expandable_segments.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "peer-access",
        "peer access is not supported between these two devices",
        (r"peer access is not supported between these two devices", r"peer mapping resources exhausted"),
        (Cause("peer-access", "These GPUs cannot read each other's memory.", "NCCL_P2P_DISABLE=1"),),
        look=VERIFY,
    ),
    # about: The driver's library for CUDA that is loaded does not fit the driver that runs, and going on all the same is served on data centre cards only.
    Rule(
        "forward-compatibility",
        "Error 804: forward compatibility was attempted on non supported HW",
        (
            r"forward compatibility was attempted on non.?supported HW",
            r"COMPAT_NOT_SUPPORTED_ON_DEVICE",
        ),
        (
            Cause(
                "forward-compatibility-1",
                "The driver is older than the image's CUDA.",
                "nvidia-smi on the machine: where its CUDA is older than the image's, a newer driver; else restart "
                "the machine.",
                tell="nvidia-smi on the machine names an older CUDA than nvcc or torch.version.cuda in the image: a newer "
                "driver",
            ),
            Cause(
                "forward-compatibility-2",
                "The driver was updated, and the old one is still loaded.",
                "nvidia-smi on the machine: where its CUDA is older than the image's, a newer driver; else restart "
                "the machine.",
                tell="nvidia-smi on the machine says version mismatch, or it was updated since the last start: restart it",
            ),
            Cause(
                "forward-compatibility-3",
                "The driver is new enough, and the image's cuda-compat stands before its library.",
                "nvidia-smi on the machine: where its CUDA is older than the image's, a newer driver; else restart "
                "the machine.",
                tell="ls /usr/local/cuda/compat; it works with LD_LIBRARY_PATH unset",
            ),
        ),
        look=DRIVER,
        level=BROAD,
    ),
    Rule(
        "mps",
        "CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        (r"MPS client failed to connect", r"cudaErrorMps\w+|CUDA_ERROR_MPS_\w+", r"MPS server is not ready"),
        (
            Cause(
                "mps",
                "The GPU is shared by MPS, whose server is not reached from here.",
                "Start nvidia-cuda-mps-control -d on the machine and mount its pipe folder, or unset CUDA_MPS_PIPE_DIRECTORY.",
            ),
        ),
        look="nvidia-smi",
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
            Cause(
                "driver-combination",
                "The driver's library in the container is of another version than the driver that runs: it was "
                "updated without a restart, comes from an old CDI specification, or from the image itself "
                "(cuda-compat).",
                "Restart this machine; where that does not help: sudo nvidia-ctk cdi generate "
                "--output=/etc/cdi/nvidia.yaml, and LD_LIBRARY_PATH without compat",
            ),
        ),
        look="./launch doctor --only driver,gpu",
    ),
    Rule(
        "ptx-too-new",
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        (r"provided PTX was compiled with an unsupported toolchain", r"UNSUPPORTED_PTX_VERSION|UnsupportedPtxVersion"),
        (
            Cause(
                "ptx-too-new",
                "The driver is older than the CUDA toolkit that made these kernels, and cannot finish compiling them.",
                "Install a newer driver.",
            ),
        ),
        look=DRIVER,
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
        (
            Cause(
                "driver-too-old",
                "The NVIDIA driver is too old for this image's CUDA.",
                "Install a newer driver; `./launch doctor` says from which version on.",
            ),
        ),
        look=DRIVER,
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
                "flash-attention-card",
                "This card is older than FlashAttention serves (Ampere, 8.0), or newer than this release of the package knows.",
                'PyTorch\'s own attention, attn_implementation="sdpa"; for a new card the newest release of the package.',
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "driver-insufficient",
        "CUDA driver version is insufficient for CUDA runtime version",
        (
            r"CUDA driver version is insufficient for CUDA runtime version|cudaErrorInsufficientDriver",
            r"cudaGetDeviceCount returned 35\b",
        ),
        (
            Cause(
                "driver-insufficient",
                "The NVIDIA driver is too old for this image's CUDA; in a container that was started without a GPU, CUDA "
                "says the same.",
                "Start with ./launch, which asks for the GPU; where that is so: install a newer driver, whose version "
                "`./launch doctor` names.",
            ),
        ),
        look="./launch doctor --only driver,gpu",
    ),
    # about: What was asked for (bf16) is not served by what the program finds here.
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
        (
            Cause(
                "bf16-not-here-1",
                "The card is older than Ampere (8.0).",
                "`./launch verify --only torch,gpu`; fp16 serves cards before Ampere.",
                tell="nvidia-smi --query-gpu=name,compute_cap --format=csv: fp16 instead",
            ),
            Cause(
                "bf16-not-here-2",
                "The program sees no GPU, or torch is the build for the CPU.",
                "`./launch verify --only torch,gpu`; fp16 serves cards before Ampere.",
                tell="torch.cuda.is_available() is False",
            ),
            Cause(
                "bf16-not-here-3",
                "Torch is too old for it.",
                "`./launch verify --only torch,gpu`; fp16 serves cards before Ampere.",
                tell="torch.__version__ below 1.10",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
        (
            Cause(
                "card-too-old-for",
                "This card lacks what was asked of it: bf16 needs Ampere (8.0) or newer, fp8 Ada (8.9) or Hopper "
                "(9.0), others name what they need; some kernels serve one generation only.",
                "Choose fp16 and PyTorch's own attention (sdpa), or a release of the package that names this card.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "triton-too-old",
        "RuntimeError: Triton only support CUDA 10.0 or higher, but got CUDA version: 13.0",
        (r"Triton only supports? CUDA 10\.0 or higher, but got CUDA version: ?([\d.]+)",),
        (
            Cause(
                "triton-too-old",
                "This Triton does not know the CUDA {0} whose ptxas it found: it is older than that.",
                "The Triton that this torch brings (./launch build); else TRITON_PTXAS_PATH with an older ptxas.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "no-triton",
        "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.",
        (
            r"Cannot find a working triton installation",
            r"TritonMissing",
        ),
        (
            Cause(
                "no-triton",
                "Triton is not here or too old, with which torch.compile makes kernels: this torch is not the "
                "base's, its triton was taken away, or it runs on Windows.",
                "./launch build; on Windows: the project's container.",
            ),
        ),
        look=VERIFY,
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
                "The compiler ptxas that Triton brings does not know this GPU ({0}), so torch.compile and Triton kernels "
                "fail; the rest of PyTorch works.",
                "A newer torch, or TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas where the image has CUDA 12.9 or newer.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "nvrtc-too-old",
        "nvrtc: error: invalid value for --gpu-architecture (-arch)",
        (
            r"nvrtc: error: invalid value for --gpu-architecture",
            r"NVRTC_ERROR_INVALID_OPTION",
        ),
        (
            Cause(
                "nvrtc-too-old",
                "The compiler NVRTC in this image does not know the card: it is older than the card, or too new for it.",
                "A base whose CUDA serves the card: `./launch doctor --only card` names it.",
            ),
        ),
        look=CARD,
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
            Cause(
                "nvrtc-missing",
                "The compiler NVRTC, or a part of it, is not found where it is looked for.",
                "unset LD_LIBRARY_PATH; where torch was replaced: ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "kernel-refused",
        "Triton Error [CUDA]: device kernel image is invalid",
        (
            r"device kernel image is invalid",
            r"cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_IMAGE",
        ),
        (
            Cause(
                "kernel-refused",
                "The driver does not accept a compiled kernel: it is older than the compiler that made it (Triton "
                "brings its own), or the kernel, in a cache or a package, was made for another GPU.",
                "A newer driver; rm -r ~/.triton/cache; the package's release for this card.",
            ),
        ),
        look=DRIVER,
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
                "launch-resources",
                "A kernel asks for more registers or shared memory than this GPU has: it was tuned for a larger one, "
                "or its blocks are too large.",
                "A newer release of the package that brings the kernel; in your own Triton kernel: smaller blocks, fewer "
                "stages.",
            ),
        ),
        look=VERIFY,
    ),
    # about: cuDNN found no way to compute that here.
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
        (
            Cause(
                "cudnn-no-plan-1",
                "It does not serve this form, precision or layout on this card.",
                "Half the batch; then `./launch verify`",
                tell="only this layer fails: .contiguous(), another precision, torch.backends.cudnn.enabled = False",
            ),
            Cause(
                "cudnn-no-plan-2",
                "The GPU's memory is full.",
                "Half the batch; then `./launch verify`",
                tell="a smaller batch works",
            ),
            Cause(
                "cudnn-no-plan-3",
                "This cuDNN does not fit torch, card or driver, or two are mixed.",
                "Half the batch; then `./launch verify`",
                tell="`./launch verify` fails: LD_LIBRARY_PATH unset, a newer torch",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
                "Two releases of cuDNN are in the container, or one of its parts is missing, and what was loaded does not fit.",
                "Take LD_LIBRARY_PATH and the package that brought the second one away; ./launch build",
            ),
        ),
        look=VERIFY,
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
                "sdpa-no-kernel",
                "None of the attention kernels that were allowed takes these tensors on this card: their precision, head "
                "size or mask, or a card too old.",
                'Allow PyTorch to choose: without sdpa_kernel(...); attn_implementation="sdpa" in transformers.',
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "triton-no-driver",
        "RuntimeError: 0 active drivers ([]). There should only be one.",
        (
            r"\b0 active drivers\b",
            r"libcuda\.so cannot found",
            r"0 active driver\(s\) found",
        ),
        (
            Cause(
                "triton-no-driver",
                "Triton finds no GPU, or not the driver's library.",
                "Start with ./launch, which asks for the GPU; `./launch verify` says whether torch sees it.",
            ),
        ),
        look="./launch verify --only gpu,compile",
    ),
    Rule(
        "compile-python",
        "RuntimeError: Dynamo is not supported on Python 3.12+",
        (r"Dynamo is not supported on Python", r"torch\.compile is not (?:yet )?supported on Python"),
        (
            Cause(
                "compile-python",
                "This torch is older than this Python, and cannot compile with it.",
                "A newer release of the base: copier update --trust",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "other-triton",
        "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler'",
        (
            r"cannot import name '[^']+' from '(?:torch\._inductor\.runtime\.)?triton",
            r"Cannot find a working triton installation",
            r"module 'triton[\w.]*' has no attribute",
            r"Triton installation not found",
            r"TritonMissing",
            r"AttributeError: '?CompiledKernel'? object has no attribute",
            r"No module named 'triton\.[\w.]+'",
        ),
        (
            Cause(
                "other-triton",
                "Triton is missing, or of another version than the one that this torch, or the package that asks, "
                "was made with.",
                "Take triton out of pyproject.toml, then ./launch build",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "nvcc-too-old",
        "nvcc fatal : Unsupported gpu architecture 'compute_120'",
        (r"Unsupported gpu architecture '?(compute[_ ]\d+[af]?)", r"nvcc fatal\s+: Value '(sm_\w+)' is not defined"),
        (
            Cause(
                "nvcc-too-old",
                "The CUDA compiler here does not know this GPU ({0}): the toolkit is older than the card, or too new for it.",
                "Choose a base whose CUDA serves the card: `./launch doctor --only card` names it.",
            ),
        ),
        look=CARD,
    ),
    Rule(
        "arch-unknown-to-torch",
        "ValueError: Unknown CUDA arch (12.0) or GPU not supported",
        (r"Unknown CUDA arch \(([^)]*)\) or GPU not supported",),
        (
            Cause(
                "arch-unknown-to-torch",
                "This torch compiles nothing for the architecture {0}: it is older than the card, or TORCH_CUDA_ARCH_LIST "
                "names one that does not exist.",
                "unset TORCH_CUDA_ARCH_LIST; where the card is newer than torch: copier update --trust",
            ),
        ),
        look=CARD,
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
                "no-kernel",
                "PyTorch, or another package with CUDA code, was not built for this GPU.",
                "`./launch doctor --only card` names the command that adds this card to the project's targets.",
            ),
        ),
        look=CARD,
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
                "The driver's compiler for kernels (libnvidia-ptxjitcompiler) is not in the container.",
                "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or NVIDIA_DRIVER_CAPABILITIES with compute; "
                "then recreate the container.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "gpu-at-exit",
        "CUDA error: driver shutting down",
        (r"CUDA error: driver shutting down|cudaErrorCudartUnloading|CUDA_ERROR_DEINITIALIZED",),
        (
            Cause(
                "gpu-at-exit",
                "The program itself: it still uses the GPU while it is ending, as a thread or a global object does.",
                "End threads and workers before the program ends; the results before that are not touched.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "gpu-count",
        "device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",
        (
            r"device >= 0 && device < num_gpus",
            r"device < num_gpus",
        ),
        (
            Cause(
                "gpu-count",
                "PyTorch counts more GPUs than CUDA gives: with MIG a process gets one slice only, or CUDA_VISIBLE_DEVICES "
                "was changed after the program began.",
                "CUDA_VISIBLE_DEVICES with one slice's name (MIG-...) from nvidia-smi -L, before the program starts.",
            ),
        ),
        look="nvidia-smi -L",
    ),
    # about: CUDA does not start, and says that memory is missing for it.
    Rule(
        "count-memory",
        "cudaGetDeviceCount(). Did you run ... that might have already set an error? Error 2: out of memory",
        (r"cudaGetDeviceCount[\s\S]{0,200}Error 2: out of memory",),
        (
            Cause(
                "count-memory-1",
                "Another process holds the GPU's memory.",
                "nvidia-smi, then env | grep CUDA",
                tell="nvidia-smi shows it full",
            ),
            Cause(
                "count-memory-2",
                "The container's own CUDA driver library (cuda-compat) does not fit this driver.",
                "nvidia-smi, then env | grep CUDA",
                tell="ls /usr/local/cuda/compat; it starts with LD_LIBRARY_PATH unset",
            ),
            Cause(
                "count-memory-3",
                "A virtual GPU or slice without room.",
                "nvidia-smi, then env | grep CUDA",
                tell="nvidia-smi -q shows another size than expected",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
                "no-such-gpu",
                "The program asks for a GPU by a number that does not exist in the container, where they are counted from 0.",
                "Take CUDA_VISIBLE_DEVICES away, start as many processes as there are GPUs, or choose more with GPUS.",
            ),
        ),
        look=VERIFY,
        unless=r"nvidia-container-cli",
    ),
    # about: CUDA finds the GPU and may not use it.
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
                "gpu-busy-1",
                "Another process holds it alone (compute mode exclusive).",
                "nvidia-smi",
                tell="nvidia-smi -q -d COMPUTE shows the mode: sudo nvidia-smi -c 0",
            ),
            Cause(
                "gpu-busy-2",
                "It is in MIG mode without a slice, or the slice is taken.",
                "nvidia-smi",
                tell="nvidia-smi -L shows the slices",
            ),
            Cause(
                "gpu-busy-3",
                "The GPU or its driver is in a bad state.",
                "nvidia-smi",
                tell="nothing else runs on it: restart the machine",
            ),
        ),
        look="nvidia-smi",
        level=BROAD,
    ),
    # about: CUDA cannot use a driver that is there, and does not say why.
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
            Cause(
                "cuda-unknown-1",
                "Its module nvidia_uvm is out of step, as after sleep or an update.",
                "python -c 'import torch; torch.zeros(1).cuda()' in the container, then on the machine",
                tell="CUDA fails on the machine too: sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm, or a restart",
            ),
            Cause(
                "cuda-unknown-2",
                "A device file is missing in the container, mostly /dev/nvidia-uvm.",
                "python -c 'import torch; torch.zeros(1).cuda()' in the container, then on the machine",
                tell="ls /dev/nvidia* there; start it with ./launch",
            ),
            Cause(
                "cuda-unknown-3",
                "The program sets CUDA_VISIBLE_DEVICES after it began, or a fault of the GPU came before.",
                "python -c 'import torch; torch.zeros(1).cuda()' in the container, then on the machine",
                tell="a fresh python -c 'import torch; torch.zeros(1).cuda()' works",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: CUDA sees no GPU here.
    Rule(
        "no-gpu-inside",
        "RuntimeError: No CUDA GPUs are available",
        (
            r"no CUDA-capable device is detected",
            r"No CUDA GPUs are available",
            r"cudaErrorNoDevice\b|CUDA_ERROR_NO_DEVICE\b",
            r"cudaGetDeviceCount (?:returned|failed)[^\n]{0,20}\b(?:100|38)\b|"
            r"failed call to cuInit: UNKNOWN ERROR \(100\)",
            r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
            r"kernel driver does not appear to be running on this host",
            r"NO_GPU_DETECTED|no nvidia gpus? (?:is |are )?available",
        ),
        (
            Cause(
                "no-gpu-inside-1",
                "The container was started without one.",
                "`./launch verify --only gpu`",
                tell="nvidia-smi fails in it: start it with ./launch",
            ),
            Cause(
                "no-gpu-inside-2",
                "CUDA_VISIBLE_DEVICES hides it.",
                "`./launch verify --only gpu`",
                tell="echo $CUDA_VISIBLE_DEVICES names one that is not there, or none",
            ),
            Cause(
                "no-gpu-inside-3",
                "MIG is on without a slice, or the driver does not start the card.",
                "`./launch verify --only gpu`",
                tell="nvidia-smi -L on the machine shows no slice, or no GPU",
            ),
        ),
        look="./launch doctor --only gpu,mig",
        level=BROAD,
    ),
    Rule(
        "cpu-torch",
        "AssertionError: Torch not compiled with CUDA enabled",
        (
            r"Torch not compiled with CUDA enabled",
            r"torch[^\n]{0,60}\+cpu\b[\s\S]{0,3000}(?:CUDA|GPU)[^\n]{0,40}not (?:currently )?available",
        ),
        (
            Cause(
                "cpu-torch",
                "This torch is a build for the CPU; in the project's container it was installed over the base's.",
                "./launch build; what asks for another torch than the base's has to be taken out of pyproject.toml. "
                "Elsewhere: torch from PyTorch's index for CUDA.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "torch-without-nccl",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        (r"Distributed package doesn't have NCCL(?: built in)?",),
        (
            Cause(
                "torch-without-nccl",
                "This torch was built without NCCL, as the builds for the CPU, for Windows, macOS and some Jetsons are.",
                "In the project's container ./launch build; on Windows or with one GPU: backend gloo.",
            ),
        ),
        look=VERIFY,
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
                "no-cuda-part",
                "A compiled package has no part for CUDA, or this call has none.",
                "Its release or build with CUDA for this torch; `./launch verify` names both.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "driver-part",
        'handle_0 INTERNAL ASSERT FAILED at "../c10/cuda/driver_api.cpp":15',
        (r"c10/cuda/driver_api\.cpp",),
        (
            Cause(
                "driver-part",
                "PyTorch could not load a part of the driver (libcuda.so.1 or libnvidia-ml.so.1), or does not find in it what "
                "newer ways of handling memory need.",
                "Start with ./launch, which gives the container the driver; else no expandable_segments in "
                "PYTORCH_CUDA_ALLOC_CONF.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "stub",
        "CUDA driver is a stub library",
        (r"CUDA driver is a stub library", r"cudaErrorStubLibrary", r"failed call to cuInit: UNKNOWN ERROR \(34\)"),
        (
            Cause(
                "stub",
                "A stand-in for the driver's library is used, which serves only for linking.",
                "Take .../stubs out of LD_LIBRARY_PATH.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "cudnn-libcuda",
        "Could not load library libcudnn_cnn_infer.so.8. Error: libcuda.so: cannot open shared object file",
        (r"Could not load library libcudnn\w*\.so[.\d]*\. Error: libcuda\.so: cannot open",),
        (
            Cause(
                "cudnn-libcuda",
                "cuDNN 8 looks for libcuda.so without a number, and does not find it where the driver lies, as in WSL.",
                "LD_LIBRARY_PATH=/usr/lib/wsl/lib in WSL; else ldconfig, or start with ./launch, which gives the driver.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "driver-library-inside",
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        (
            r"libcuda\.so(?:\.1)?[^\n]{0,10}: cannot open shared object file",
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
        ),
        (
            Cause(
                "driver-library-inside",
                "The driver's library is not found: the container was started without a GPU, or it is a step of a build, which "
                "has none; on the machine itself: the driver is not installed.",
                "Start with ./launch, which asks for the GPU and says which.",
            ),
        ),
        look=GRANT,
    ),
    Rule(
        "cuda-not-linked",
        "ImportError: Unsloth: CUDA is not linked properly.",
        (r"CUDA is not linked properly",),
        (
            Cause(
                "cuda-not-linked",
                "Triton or bitsandbytes does not find the driver's or CUDA's libraries, as where packages of conda and pip "
                "are mixed, or without a GPU.",
                "sudo ldconfig; start with ./launch; packages of one source only.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "os-call",
        "CUDA error: OS call failed or operation not supported on this OS",
        (r"OS call failed or operation not supported on this OS", r"cudaErrorOperatingSystem"),
        (
            Cause(
                "os-call",
                "The system refused CUDA something: mostly the pinning of memory, or its device files.",
                "Start with ./launch, whose limits allow it; in WSL and without root less memory can be pinned.",
            ),
        ),
        look="./launch verify --only limits,transfer",
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
                "While a CUDA graph was recorded something ran that cannot be recorded, such as a copy to the CPU or "
                "a first allocation, or it failed.",
                'torch.compile without mode="reduce-overhead"; or warm up first, and keep .item() and print out of it.',
            ),
        ),
        look=TRACE,
    ),
    Rule(
        "graph-overwritten",
        "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run",
        (r"accessing tensor output of CUDAGraphs that has been overwritten",),
        (
            Cause(
                "graph-overwritten",
                "The program itself: the output of a recorded graph is used after its next run, which writes to the same "
                "place.",
                "Clone the output, or call torch.compiler.cudagraph_mark_step_begin() before each step.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "display-watchdog",
        "CUDA error: the launch timed out and was terminated",
        (r"the launch timed out and was terminated", r"cudaErrorLaunchTimeout|CUDA_ERROR_LAUNCH_TIMEOUT"),
        (
            Cause(
                "display-watchdog",
                "The GPU also drives a display, and a kernel that takes seconds is ended for the display's sake.",
                "Use another GPU (GPUS), or the machine without its display.",
            ),
        ),
        look="nvidia-smi",
    ),
    Rule(
        "numbers-assert",
        "CUDA error: device-side assert triggered",
        (
            r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT",
            r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion",
            r"Target -?\d+ is out of bounds",
            r"IndexError: index out of range in self",
        ),
        (
            Cause(
                "numbers-assert",
                "A check inside a kernel failed: most often an index is out of range, such as a label or token id "
                "larger than the model's table; else a value is nan or not between its bounds.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the line.",
            ),
        ),
        look=TRACE,
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
                "A package's kernel was made for another card than this one.",
                "A release of that package for this card; its other kernels, where it can be told to take them.",
            ),
        ),
        look=CARD,
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
                "A kernel on the GPU read or wrote where it must not; the line that is named is not where it happened.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the right line; without packages with kernels of their "
                "own.",
            ),
        ),
        look=TRACE,
    ),
    # about: CUDA was given a thing (a stream, a module, a kernel) that is not valid here.
    Rule(
        "resource-handle",
        "CUDA error: invalid resource handle",
        (r"CUDA error: invalid resource handle|cudaErrorInvalidResourceHandle|CUDA_ERROR_INVALID_HANDLE",),
        (
            Cause(
                "resource-handle-1",
                "It belongs to another GPU than the current one, or to the process before it was copied.",
                "torch.cuda.set_device(...) at the beginning of each process, and all tensors on that one.",
                tell="it works with one GPU: CUDA_VISIBLE_DEVICES=0",
            ),
            Cause(
                "resource-handle-2",
                "A package's kernel does not fit this card, torch or driver.",
                "torch.cuda.set_device(...) at the beginning of each process, and all tensors on that one.",
                tell="it fails with one GPU too: that package's newest release",
            ),
        ),
        look=TRACE,
        level=BROAD,
    ),
    Rule(
        "launch-form",
        "CUDA error: invalid configuration argument",
        (r"CUDA error: invalid configuration argument|cudaErrorInvalidConfiguration",),
        (
            Cause(
                "launch-form",
                "A kernel was started with more threads or blocks than the GPU takes: a tensor is empty or has too "
                "many elements for it, or the kernel was made for another card.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the line, and print the shapes there.",
            ),
        ),
        look=TRACE,
    ),
    # about: cuBLAS refuses the values it was called with.
    Rule(
        "cublas-other",
        "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(...)`",
        (r"CUBLAS_STATUS_INVALID_VALUE",),
        (
            Cause(
                "cublas-other-1",
                "Another cuBLAS was loaded than torch's.",
                "`./launch verify`",
                tell="unset LD_LIBRARY_PATH helps; `./launch verify` fails",
            ),
            Cause(
                "cublas-other-2",
                "Shapes or a precision that it does not take, often an index or batch of zero.",
                "`./launch verify`",
                tell="`./launch verify` passes; print the shapes at that line",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: cuBLAS does not compute that product here.
    Rule(
        "cublas-not-supported",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`",
        (
            r"CUBLAS_STATUS_NOT_SUPPORTED",
            r"cublasLt ran into an error",
        ),
        (
            Cause(
                "cublas-not-supported-1",
                "The card does not have that precision.",
                "Another precision (bf16 from 8.0 on, fp16 before); for int8 and fp8: shapes in multiples of 16.",
                tell="`./launch doctor --only card` names its capability: another precision works",
            ),
            Cause(
                "cublas-not-supported-2",
                "The shapes are not multiples of 16, as int8 and fp8 need.",
                "Another precision (bf16 from 8.0 on, fp16 before); for int8 and fp8: shapes in multiples of 16.",
                tell="other shapes work",
            ),
            Cause(
                "cublas-not-supported-3",
                "Another cuBLAS was loaded than torch's.",
                "Another precision (bf16 from 8.0 on, fp16 before); for int8 and fp8: shapes in multiples of 16.",
                tell="LD_LIBRARY_PATH unset helps; `./launch verify` fails",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: A product failed on the GPU.
    Rule(
        "cublas-failed",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
        (r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)",),
        (
            Cause(
                "cublas-failed-1",
                "An earlier kernel wrote where it must not, often by an index out of range.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="CUDA_LAUNCH_BLOCKING=1 names another line",
            ),
            Cause(
                "cublas-failed-2",
                "The libraries do not fit card or driver.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="the first product fails; `./launch verify` fails",
            ),
            Cause(
                "cublas-failed-3",
                "The GPU's memory is full.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="a smaller batch works",
            ),
        ),
        look=TRACE,
        level=BROAD,
    ),
    # about: cuDNN failed while it computed.
    Rule(
        "cudnn-failed",
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        (
            r"CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR|BAD_PARAM)\w*",
            r"CUDNN_BACKEND_\w+[^\n]{0,60}(?:failed|error)",
        ),
        (
            Cause(
                "cudnn-failed-1",
                "The GPU's memory is full.",
                "Half the batch; then `./launch verify`",
                tell="a smaller batch works",
            ),
            Cause(
                "cudnn-failed-2",
                "This cuDNN does not fit card or driver, or two are mixed.",
                "Half the batch; then `./launch verify`",
                tell="`./launch verify` fails; torch.backends.cudnn.enabled = False helps",
            ),
            Cause(
                "cudnn-failed-3",
                "Tensors of a shape, precision or layout that it does not take.",
                "Half the batch; then `./launch verify`",
                tell="only this layer fails; .contiguous() or another precision helps",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: cuFFT failed.
    Rule(
        "cufft",
        "RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR",
        (r"CUFFT_INTERNAL_ERROR|CUFFT_SETUP_FAILED|CUFFT_EXEC_FAILED|CUFFT_ALLOC_FAILED",),
        (
            Cause(
                "cufft-1",
                "It is older than the card, as CUDA 11.7's on an RTX 40.",
                "python -c 'import torch; torch.fft.fft(torch.ones(8).cuda())'",
                tell="the smallest transform fails too: a newer torch",
            ),
            Cause(
                "cufft-2",
                "The GPU's memory is full.",
                "python -c 'import torch; torch.fft.fft(torch.ones(8).cuda())'",
                tell="a smaller batch works",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
                "nvvm",
                "The compiler that Numba and others use (NVVM) belongs to the CUDA toolkit, which is not here or not "
                "where CUDA_HOME says.",
                "./launch add nvidia-cuda-nvcc-cu12, or the base with a compiler: copier update --trust --data base=cuda",
            ),
        ),
        look=VERIFY,
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
                "trt-engine",
                "TensorRT's engine was built on another card, or by another TensorRT.",
                "Rebuild the engine on this GPU.",
            ),
        ),
        look=VERIFY,
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
                "onnxruntime",
                "onnxruntime cannot use the GPU: its build asks for another CUDA or cuDNN than is found here, is the "
                "one for the CPU, or no GPU is seen.",
                "./launch add onnxruntime-gpu in a release for this CUDA, without onnxruntime beside it.",
            ),
        ),
        look=VERIFY,
    ),
    # about: NVML, by which the driver is asked, does not start.
    Rule(
        "nvml-start",
        "UserWarning: Can't initialize NVML",
        (r"Can't initialize NVML",),
        (
            Cause(
                "nvml-start-1",
                "The container was started without a GPU, or the driver is not installed.",
                "nvidia-smi, in the container and on the machine",
                tell="nvidia-smi fails in it and is not found: ./launch",
            ),
            Cause(
                "nvml-start-2",
                "The driver was updated, and the old one is still loaded.",
                "nvidia-smi, in the container and on the machine",
                tell="nvidia-smi says version mismatch: restart the machine",
            ),
            Cause(
                "nvml-start-3",
                "The container lost its device files.",
                "nvidia-smi, in the container and on the machine",
                tell="nvidia-smi says Unknown Error in it: start it again",
            ),
        ),
        look=DRIVER,
        level=GENERAL,
    ),
    # about: The driver could not finish compiling a kernel.
    Rule(
        "ptx-jit",
        "CUDA error: a PTX JIT compilation failed",
        (r"a PTX JIT compilation failed|CUDA_ERROR_INVALID_PTX|cudaErrorInvalidPtx",),
        (
            Cause(
                "ptx-jit-1",
                "The driver is older than the CUDA that made it.",
                "./launch verify",
                tell="`./launch doctor --only driver` says so",
            ),
            Cause(
                "ptx-jit-2",
                "The package's kernel does not serve this card.",
                "./launch verify",
                tell="`./launch verify` passes; the package's newest release",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: One of CUDA's libraries failed.
    Rule(
        "cuda-library-failed",
        "cusolver error: CUSOLVER_STATUS_EXECUTION_FAILED",
        (
            r"(?:CUSOLVER|CURAND|CUSPARSE)_STATUS_(?!SUCCESS)\w+",
            r"CUFFT_(?!SUCCESS)[A-Z_]+",
        ),
        (
            Cause(
                "cuda-library-failed-1",
                "The GPU's memory is full.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1 and a small batch.",
                tell="a small batch works",
            ),
            Cause(
                "cuda-library-failed-2",
                "The library does not fit card or driver.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1 and a small batch.",
                tell="`./launch verify` fails",
            ),
            Cause(
                "cuda-library-failed-3",
                "An earlier kernel wrote where it must not.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1 and a small batch.",
                tell="CUDA_LAUNCH_BLOCKING=1 names another line",
            ),
        ),
        look=TRACE,
        level=GENERAL,
    ),
    # about: A library of CUDA does not serve this card.
    Rule(
        "library-other-card",
        "CUDNN_STATUS_ARCH_MISMATCH",
        (r"CUBLAS_STATUS_ARCH_MISMATCH|CUDNN_STATUS_ARCH_MISMATCH",),
        (
            Cause(
                "library-other-card-1",
                "The card is older than what was asked of it.",
                "`./launch doctor --only card`",
                tell="its capability is below what the operation needs: another precision",
            ),
            Cause(
                "library-other-card-2",
                "The library is older than the card, or too new for it.",
                "`./launch doctor --only card`",
                tell="`./launch verify` fails at the first product: another base",
            ),
        ),
        look=CARD,
        level=GENERAL,
    ),
    # about: cuDNN failed, and its word for it does not say why.
    Rule(
        "cudnn-other-status",
        "cuDNN error: CUDNN_STATUS_UNKNOWN",
        (
            r"CUDNN_STATUS_(?!SUCCESS)\w+",
            r"cuDNN Frontend error",
        ),
        (
            Cause(
                "cudnn-other-status-1", "The GPU's memory is full.", "`./launch verify`", tell="a smaller batch works"
            ),
            Cause(
                "cudnn-other-status-2",
                "It does not fit card, driver or torch.",
                "`./launch verify`",
                tell="`./launch verify` fails",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: A product failed on the GPU.
    Rule(
        "cublas-other-status",
        "cublas runtime error : the GPU program failed to execute",
        (
            r"cublas runtime error",
            r"CUBLAS_STATUS_\w+",
        ),
        (
            Cause(
                "cublas-other-status-1",
                "Torch and its cuBLAS are of another time than card or driver.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="it fails at the first product: a newer torch",
            ),
            Cause(
                "cublas-other-status-2",
                "An earlier kernel wrote where it must not.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="CUDA_LAUNCH_BLOCKING=1 names another line",
            ),
        ),
        look=TRACE,
        level=GENERAL,
    ),
    # about: CUDA does not start.
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
                "cuda-does-not-start-1",
                "MIG is on, and the container has no slice.",
                "`./launch verify --only gpu` tries it alone, and names the cause where it knows it.",
                tell="nvidia-smi -L shows the slices; CUDA_VISIBLE_DEVICES with one of them",
            ),
            Cause(
                "cuda-does-not-start-2",
                "The driver, its device files or its libraries do not fit, or the driver is stuck.",
                "`./launch verify --only gpu` tries it alone, and names the cause where it knows it.",
                tell="`./launch verify --only gpu` fails too",
            ),
            Cause(
                "cuda-does-not-start-3",
                "The GPU was used before the process was copied (fork).",
                "`./launch verify --only gpu` tries it alone, and names the cause where it knows it.",
                tell="it fails in a worker only: the start method spawn",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: The program sees no GPU.
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
        (
            Cause(
                "cuda-not-available-1",
                "The container was started without one.",
                "`./launch verify --only torch,gpu` says which of them.",
                tell="nvidia-smi fails in it: start it with ./launch",
            ),
            Cause(
                "cuda-not-available-2",
                "This torch is the build for the CPU.",
                "`./launch verify --only torch,gpu` says which of them.",
                tell="torch.version.cuda is None: ./launch build",
            ),
            Cause(
                "cuda-not-available-3",
                "The driver is too old for this torch, or CUDA_VISIBLE_DEVICES hides the GPU.",
                "`./launch verify --only torch,gpu` says which of them.",
                tell="nvidia-smi works, and torch warns as it starts",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: Triton could not make a kernel.
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
                "triton-failed-1",
                "It does not serve the card.",
                "TORCHDYNAMO_DISABLE=1 goes without torch.compile.",
                tell="`./launch verify --only compile` fails: a newer base",
            ),
            Cause(
                "triton-failed-2",
                "It does not serve this kernel.",
                "TORCHDYNAMO_DISABLE=1 goes without torch.compile.",
                tell="`./launch verify --only compile` passes: the package that brings the kernel, in another release",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    # about: torch.compile cannot compile a part of the program; the words after it say which.
    Rule(
        "compile-failed",
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised",
        (
            r"torch\._dynamo\.exc\.\w+",
            r"torch\._inductor\.exc\.\w+",
            r"BackendCompilerFailed",
            r"InductorError",
        ),
        (
            Cause(
                "compile-failed-1",
                "The compiler or Triton does not work here.",
                "TORCHDYNAMO_DISABLE=1 runs it without.",
                tell="`./launch verify --only compile` fails",
            ),
            Cause(
                "compile-failed-2",
                "Torch does not serve what the program does there.",
                "TORCHDYNAMO_DISABLE=1 runs it without.",
                tell="`./launch verify --only compile` passes; torch.compiler.disable on that function helps",
            ),
        ),
        look="./launch verify --only compile",
        level=GENERAL,
    ),
    # about: A call of CUDA failed ({0}); the line that is named may not be where it began.
    Rule(
        "cuda-call-failed",
        "CUDA error: invalid argument",
        (
            r"CUDA (?:runtime |driver )?error:? (?:\(\d+\) ?: ?)?(?!out of)([a-z][\w ,'-]{4,60})",
            r"(cudaError[A-Z]\w+|CUDA_ERROR_[A-Z_]+)",
        ),
        (
            Cause(
                "cuda-call-failed-1",
                "An earlier kernel failed.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="CUDA_LAUNCH_BLOCKING=1 names another line",
            ),
            Cause(
                "cuda-call-failed-2",
                "The call itself does not fit this GPU or driver.",
                "Run it once with CUDA_LAUNCH_BLOCKING=1.",
                tell="CUDA_LAUNCH_BLOCKING=1 names the same line",
            ),
        ),
        look=TRACE,
        level=GENERAL,
    ),
    Rule(
        "spark-warning",
        "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum ... (8.0) - (12.0)",
        (
            r"GB10[^\n]{0,60}cuda capability (?:12\.1|sm_121)",
            r"capability 12\.1[^.]{0,400}\(?8\.0\)? ?- ?\(?12\.0\)?",
        ),
        (
            Cause(
                "spark-warning",
                "A warning and no error: the kernels for 12.0 run on 12.1 as they are.",
                "Nothing is to be done.",
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
    Rule(
        "no-gpu-while-building",
        "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
        (r"No CUDA runtime is found",),
        (
            Cause(
                "no-gpu-while-building",
                "A note and often no error: no GPU is seen here, which is so while an image is built.",
                "While an image is built nothing is to be done; in a container: `./launch verify --only gpu`",
            ),
        ),
        look=VERIFY,
        level=NOTE,
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
                "The base image does not know this card yet ({0}): it was made before it, or says so only to be careful.",
                "`./launch verify` tells whether kernels run; where they do not: copier update --trust, for a newer base.",
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
)
