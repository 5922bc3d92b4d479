"""Error texts as people meet them, and what each one means. Used by `./launch doctor --about`.

A rule stands here only where its words leave no doubt about the cause, or the sentence says which doubt is left. The
more particular stands before the more general. What only an engine says is in gpukit/launcher/errors.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """`look`: the command that tells more; `{0}` in a text is the pattern's first group."""

    id: str
    pattern: str
    cause: str
    remedy: str
    look: str = "./launch doctor"


DRIVER, VERIFY = "./launch doctor --only driver", "./launch verify"

RULES = (
    # The driver, on the host and in a container that runs
    Words(
        "tools-cannot-look",
        r"nvidia-container-cli: detection error",
        "NVIDIA's container tools cannot look at the GPUs: one is stuck, or MIG is on and the tools are too old "
        "for it.",
        "Restart the machine, and update nvidia-container-toolkit.",
        "./launch doctor --only driver,mig,gpu",
    ),
    Words(
        "driver-updated",
        r"driver/library version mismatch",
        "The NVIDIA driver was updated, and the old one is still loaded.",
        "Restart this machine.",
        DRIVER,
    ),
    Words(
        "gpu-lost",
        r"GPU has fallen off the bus|GPU is lost\.? +Reboot|Unable to determine the device handle for GPU|"
        r"\bXid\b[^\n]{0,60}[:,]\s*79\b",
        "The GPU stopped answering on the bus: power, heat, a loose card or a fault of it.",
        "Switch the machine off and on again; where it comes back, look at power supply and cooling.",
        "sudo dmesg | grep -i xid",
    ),
    Words(
        "gpu-memory-fault",
        r"uncorrectable ECC error|\bXid\b[^\n]{0,60}[:,]\s*(?:48|63|64|94|95)\b|row.?remap\w*[^\n]{0,20}fail",
        "The GPU's memory has a fault that it cannot correct.",
        "Restart the machine, so that the bad rows are replaced; where it comes back, have the card exchanged.",
        "nvidia-smi -q -d ECC,ROW_REMAPPER",
    ),
    Words(
        "gpu-firmware",
        r"\bXid\b[^\n]{0,60}[:,]\s*(?:119|120)\b|"
        r"Timeout (?:after \d+s? )?(?:of )?waiting for RPC response from GPU ?\d* ?GSP",
        "The GPU's own processor (GSP) stopped answering its driver.",
        "Restart the machine, and install the newest driver of its branch.",
        "sudo dmesg | grep -i xid",
    ),
    Words(
        "lost-after-reload",
        r"Failed to initialize NVML: Unknown Error",
        "The container has lost its GPU, as it does when systemd is reloaded on the machine (`systemctl "
        "daemon-reload`). "
        "On the machine itself, outside a container, it means that the driver is stuck.",
        "In a container: ./launch stop, then start it again. On the machine: restart it.",
        "./launch doctor --only reload",
    ),
    Words(
        "nvml-permission",
        r"Failed to initialize NVML: Insufficient Permissions",
        "This user may not open the driver's device files.",
        "ls -l /dev/nvidia* shows to whom they belong.",
        DRIVER,
    ),
    Words(
        "wsl-blocked",
        r"GPU access blocked by the operating system|dxcore initialization failed|no adapters were found",
        "Windows gives this WSL no GPU: it is WSL 1, or the driver of Windows is missing, old, or set to TCC.",
        "In Windows: wsl --update, and install NVIDIA's current driver.",
        DRIVER,
    ),
    Words(
        "driver-not-loaded",
        r"couldn't communicate with the NVIDIA driver|Could not load (?:UVM|NVIDIA) kernel module|"
        r"nvml error: driver not loaded|"
        r"Failed to initialize NVML: Driver Not Loaded",
        "The NVIDIA driver's kernel module is not loaded: not installed, not built for this kernel, refused by Secure "
        "Boot, or not yet loaded when a container started at boot.",
        "Make `nvidia-smi` work on the machine itself first.",
        DRIVER,
    ),
    Words(
        "module-unsigned",
        r"Key was rejected by service|module verification failed: signature and/or required key missing",
        "Secure Boot refuses the driver's kernel module, which is not signed with a key that this machine knows.",
        "sudo mokutil --import /var/lib/shim-signed/mok/MOK.der, then reboot and enroll the key.",
        DRIVER,
    ),
    Words(
        "module-not-built",
        r"modprobe: FATAL: Module nvidia not found|Bad return status for module build on kernel|"
        r"Error! Bad return status[^\n]{0,80}nvidia",
        "The driver's kernel module was not built for the kernel that runs, as after an update of the kernel.",
        "Install the headers of this kernel, then: sudo dkms autoinstall, and reboot.",
        DRIVER,
    ),
    Words(
        "driver-not-installed",
        r"nvidia-smi['\"]?:? (?:command )?not found|exec: \"nvidia-smi\": executable file not found|"
        r"Command 'nvidia-smi' not found|could not load NVML library|Found no NVIDIA driver on your system|"
        r"no NVIDIA driver",
        "No NVIDIA driver can be seen here. In a container: it was started without a GPU. On the machine: the "
        "driver is "
        "not installed.",
        "In a container: start it with ./launch, which asks for the GPU. On the machine: install the driver.",
        "./launch doctor --only driver,gpu",
    ),
    Words(
        "no-devices",
        r"No devices were found",
        "In a container: the GPU's device files were not there when it began. On the machine: the driver takes "
        "no GPU: too old for the card, in need of the open kernel modules, given too "
        "little address "
        "space by the firmware (Above 4G Decoding), or the card failed.",
        "Run `nvidia-smi` on the machine, and start the container again; where it finds none there: sudo dmesg | "
        "grep -i nvrm",
        DRIVER,
    ),
    # CUDA's numbers
    Words(
        "wsl-toolkit-old",
        r"\berror 500\b[^\n]{0,4}:? *named symbol not found|named symbol not found|cudaErrorSymbolNotFound",
        "The driver of Windows is newer than the NVIDIA Container Toolkit that Docker uses in WSL, which does "
        "not mount all of it.",
        "Update Docker Desktop (4.31 or newer), or nvidia-container-toolkit (1.15 or newer), and restart it.",
        "./launch doctor --only engine,gpu",
    ),
    Words(
        "not-supported-here",
        r"CUDA error: operation not supported|cudaErrorNotSupported",
        "The driver here cannot do what was asked: a virtual GPU or WSL lacks some of CUDA, such as unified "
        "memory or sharing between processes.",
        "On a virtual GPU: a profile with unified memory; PYTORCH_CUDA_ALLOC_CONF without expandable_segments.",
        VERIFY,
    ),
    Words(
        "peer-access",
        r"peer access is not supported between these two devices|peer mapping resources exhausted",
        "These GPUs cannot read each other's memory.",
        "NCCL_P2P_DISABLE=1",
        VERIFY,
    ),
    Words(
        "fabric-manager",
        r"\b802\b[^\n]{0,4}:? *'?\"?system not yet initialized|system not yet initialized|SYSTEM_NOT_READY|"
        r"cudaErrorSystemNotReady",
        "The GPUs of this machine are joined by NVSwitch, and its fabric manager does not run, or is of another "
        "version "
        "than the driver.",
        "sudo systemctl enable --now nvidia-fabricmanager, of the driver's very version.",
        "./launch doctor --only fabric",
    ),
    Words(
        "forward-compatibility",
        r"forward compatibility was attempted on non.?supported HW|COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "The driver is older than the image's CUDA, and the image's libraries for that case serve data centre "
        "cards only. "
        "Where the driver is new enough, it was updated and the machine not restarted since.",
        "Install a newer driver, and restart the machine.",
        DRIVER,
    ),
    Words(
        "driver-combination",
        r"unsupported display driver */ *cuda driver combination|SYSTEM_DRIVER_MISMATCH",
        "The driver's library in the container is of another version than the driver that runs: updated without a "
        "restart, or from an old CDI specification.",
        "Restart this machine; where that does not help: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        "./launch doctor --only driver,gpu",
    ),
    Words(
        "ptx-too-new",
        r"provided PTX was compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION",
        "The driver is older than the CUDA toolkit that made these kernels, and cannot finish compiling them.",
        "Install a newer driver.",
        DRIVER,
    ),
    Words(
        "driver-too-old",
        r"CUDA driver version is insufficient for CUDA runtime version|"
        r"The NVIDIA driver on your system is too old|unsatisfied condition: (?:cuda|driver|brand)|"
        r"unsupported CUDA version: driver [\d.]+ < image|cudaErrorInsufficientDriver",
        "The NVIDIA driver is too old for this image's CUDA.",
        "Install a newer driver; `./launch doctor` says from which version on.",
        DRIVER,
    ),
    Words(
        "ptxas-too-old",
        r"Value '(sm_\w+)' is not defined for option 'gpu-name'|"
        r"ptxas[^\n]{0,40}(?:Unsupported|is not a recognized)[^\n]{0,20}(sm_\w+)|"
        r"PTXAS error[^\n]{0,80}sm_\d+a?|'(sm_\d+a?)' is not a recognized processor",
        "The compiler ptxas that Triton brings does not know this GPU ({0}), so torch.compile and Triton kernels fail; "
        "the rest of PyTorch works.",
        "A newer torch, or TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas where the image has CUDA 12.9 or newer.",
        VERIFY,
    ),
    Words(
        "kernel-refused",
        r"device kernel image is invalid|cudaErrorInvalidKernelImage|CUDA_ERROR_INVALID_IMAGE",
        "The driver does not accept a compiled kernel: it is older than the compiler that made it (Triton brings "
        "its own), "
        "or the kernel lies in a cache and is another GPU's.",
        "A newer driver; rm -r ~/.triton/cache",
        DRIVER,
    ),
    Words(
        "launch-resources",
        r"LAUNCH_OUT_OF_RESOURCES|too many resources requested for launch|out of resource: shared memory",
        "A kernel asks for more registers or shared memory than this GPU has: it was tuned for another one.",
        "A newer release of the package that brings the kernel; in your own Triton kernel: smaller blocks, fewer "
        "stages.",
        VERIFY,
    ),
    Words(
        "cudnn-no-plan",
        r"No (?:valid )?execution plans (?:built|support)|Unable to find an engine to execute this computation|"
        r"no valid engine configs",
        "This release of cuDNN has no way to compute that on this card.",
        "A newer torch; for attention: torch.nn.attention.sdpa_kernel with another backend than cuDNN.",
        VERIFY,
    ),
    Words(
        "other-triton",
        r"cannot import name '[^']+' from 'triton|Cannot find a working triton installation|"
        r"module 'triton[\w.]*' has no attribute|"
        r"Triton installation not found|TritonMissing",
        "Triton is missing, or of another version than the one that this torch was made with.",
        "Take triton out of pyproject.toml, then ./launch build",
        VERIFY,
    ),
    Words(
        "nvcc-too-old",
        r"Unsupported gpu architecture '(compute_\w+)'",
        "The CUDA compiler here does not know this GPU ({0}): the toolkit is older than the card, or too new for it.",
        "Choose a base whose CUDA serves the card: `./launch doctor --only card` names it.",
        "./launch doctor --only card",
    ),
    Words(
        "spark-warning",
        r"GB10[^\n]{0,60}cuda capability 12\.1|capability 12\.1[^.]{0,400}\(?8\.0\)? ?- ?\(?12\.0\)?",
        "A warning and no error: the kernels for 12.0 run on 12.1 as they are.",
        "Nothing is to be done.",
        VERIFY,
    ),
    Words(
        "no-kernel",
        r"no kernel image is available for execution|is not compatible with the current PyTorch installation|"
        r"cudaErrorNoKernelImageForDevice|"
        r"which is of cuda capability [\d.]+\.\s+(?:PyTorch no longer supports|Minimum and Maximum)|"
        r"sm_\d+ is not supported by this|no longer supports this GPU because it is too old|"
        r"CUDA_ERROR_NO_BINARY_FOR_GPU",
        "PyTorch, or another package with CUDA code, was not built for this GPU.",
        "`./launch doctor --only card` names the command that adds this card to the project's targets.",
        "./launch doctor --only card",
    ),
    Words(
        "no-such-gpu",
        r"invalid device ordinal|CUDA_ERROR_INVALID_DEVICE\b|cudaErrorInvalidDevice\b",
        "The program asks for a GPU by a number that does not exist in the container, where they are counted from 0.",
        "Take CUDA_VISIBLE_DEVICES away, start as many processes as there are GPUs, or choose more with GPUS.",
        VERIFY,
    ),
    Words(
        "two-ranks-one-gpu",
        r"Duplicate GPU detected ?: rank",
        "Two processes use the same GPU: more were started than there are GPUs, or each of them takes GPU 0.",
        "torchrun --nproc-per-node with the number of GPUs, and torch.cuda.set_device(local rank).",
        VERIFY,
    ),
    Words(
        "gpu-busy",
        r"all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy or unavailable|"
        r"cudaErrorDevicesUnavailable",
        "Another process holds the GPU alone (compute mode exclusive), or its slice of MIG is in use.",
        "nvidia-smi -q -d COMPUTE shows the mode; `sudo nvidia-smi -c 0` opens it to all.",
        "nvidia-smi",
    ),
    Words(
        "cuda-unknown",
        r"CUDA error: unknown error|CUDA unknown error - this may be due to an incorrectly set up environment|"
        r"cudaErrorUnknown\b|\berror 999\b",
        "CUDA cannot use a driver that is there: after sleep or a driver's update its module nvidia_uvm is often "
        "out of "
        "step; a program that sets CUDA_VISIBLE_DEVICES after it began sees the same.",
        "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm, or restart the machine.",
        VERIFY,
    ),
    Words(
        "no-gpu-inside",
        r"no CUDA-capable device is detected|No CUDA GPUs are available|cudaErrorNoDevice\b|CUDA_ERROR_NO_DEVICE\b",
        "CUDA sees no GPU here: the container was started without one, CUDA_VISIBLE_DEVICES hides it, or MIG is on "
        "without a slice.",
        "Start with ./launch, which asks for the GPU and says which; take CUDA_VISIBLE_DEVICES away.",
        "./launch doctor --only gpu,mig",
    ),
    Words(
        "cpu-torch",
        r"Torch not compiled with CUDA enabled|"
        r"torch\.cuda\.is_available\(\) is False\. If you are running on a CPU-only|"
        r"Attempting to deserialize object on a CUDA device but",
        "This torch cannot use the GPU here: it is the build for the CPU, or CUDA sees no GPU.",
        "`./launch verify` says which; where another torch replaced the base's: ./launch build",
        VERIFY,
    ),
    # Memory
    Words(
        "shared-memory",
        r"killed by signal:\s+Bus\s+error|exitcode ?: ?-7\b|\(SIGBUS\)|insufficient shared memory \(shm\)|"
        r"unable to (?:write to file|open shared memory object|"
        r"mmap \d+ bytes from file|allocate shared memory\(shm\) for file) ?<?/?/?(?:torch_|dev/shm|\w)?|"
        r"/dev/shm[^\n]{0,80}No space left on device|"
        r"No space left on device[^\n]{0,80}(?:/dev/shm|shared memory|torch_)|"
        r"Error while creating shared memory segment|out of shared memory|Bus error \(core dumped\)",
        "The container's shared memory (/dev/shm) is full, through which the DataLoader's workers and NCCL hand "
        "over data.",
        "Start with ./launch, which gives it more than Docker's 64 MB, or take fewer workers.",
        VERIFY,
    ),
    Words(
        "worker-killed",
        r"DataLoader worker \(pid[^)]*\) is killed by signal: Killed|oom-kill(?:er)?\b|"
        r"Out of memory: Killed process|OOMKilled\W+true|"
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|\[Errno 12\] Cannot allocate memory|"
        r"std::bad_alloc|^MemoryError",
        "The machine's memory (not the GPU's) ran out, and the system ended a process.",
        "Fewer DataLoader workers, or smaller samples held in memory.",
        "sudo dmesg | grep -i 'out of memory'",
    ),
    Words(
        "worker-gone",
        r"DataLoader worker \(pid\(?s?\)?[^)]*\) exited unexpectedly|Pin memory thread exited unexpectedly",
        "A DataLoader worker ended without a word of its own: most often memory or shared memory ran out, else "
        "it crashed.",
        "num_workers=0 shows a crash of its own; `./launch verify` measures shared memory; dmesg tells of a lack "
        "of memory.",
        VERIFY,
    ),
    Words(
        "ended-from-outside",
        r"exit(?:ed)?(?: with)? (?:code|status):? 137\b|exitcode ?: ?-9\b|Signal 9 \(SIGKILL\)|^Killed$|\) Killed\b|"
        r"died with <Signals\.SIGKILL|return code = -9\b",
        "The process was ended from outside: by the system when the machine's memory ran out, or by `docker stop`.",
        "Fewer DataLoader workers, or smaller samples held in memory.",
        "sudo dmesg | grep -i 'out of memory'",
    ),
    Words(
        "gpu-memory-full",
        r"CUDA out of memory|OutOfMemoryError: CUDA|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
        r"CUDA_ERROR_OUT_OF_MEMORY|"
        r"Unable to find a valid cuDNN algorithm to run convolution|CUDA error: out of memory|"
        r"Cuda failure (?:2 )?'out of memory'",
        "The GPU's memory is full: the batch is too large, or another process holds some of it.",
        "Halve the batch size; `nvidia-smi` shows who else is there.",
        "nvidia-smi",
    ),
    Words(
        "gpu-memory-or-libraries",
        r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED|CUDNN_STATUS_ALLOC_FAILED",
        "One of CUDA's libraries could not start: most often the GPU's memory is full, else two versions of it "
        "are mixed.",
        "Halve the batch size first; `./launch verify` tells whether the libraries are the base's.",
        VERIFY,
    ),
    Words(
        "rendezvous",
        r"connection to the C10d store has failed|RendezvousConnectionError|RendezvousTimeoutError|"
        r"client socket has (?:failed to connect|timed out)|Timed out[^\n]{0,60}waiting for clients",
        "The processes of one training do not find each other: another address or port, or a firewall between "
        "the machines.",
        "The same --master-addr and --master-port for all, reachable from each; on one machine: torchrun --standalone",
        VERIFY,
    ),
    Words(
        "nccl-usage",
        r"ncclInvalidUsage",
        "NCCL was called in a way that it does not allow: mostly more processes than GPUs, or the same GPU for "
        "two of them.",
        "torchrun --nproc-per-node with the number of GPUs; NCCL_DEBUG=WARN tells more.",
        VERIFY,
    ),
    Words(
        "nccl-aborted",
        r"Watchdog caught collective operation timeout|collective operation timeout|"
        r"ncclRemoteError|Connection (?:closed|reset) by (?:remote )?peer[^\n]{0,80}nccl|"
        r"NCCL[^\n]{0,80}remote process exited",
        "NCCL waited in vain for another process: it died, hangs, or calls other collectives.",
        "Look for the first error of the other ranks; TORCH_NCCL_TRACE_BUFFER_SIZE=2000 tells who waited where.",
        VERIFY,
    ),
    Words(
        "nccl-system",
        r"ncclSystemError|NCCL[^\n]{0,120}unhandled system error|unhandled system error[^\n]{0,60}NCCL|"
        r"\bNCCL failure [^\n]{0,40}unhandled system error",
        "NCCL was refused something by the system: among processes of one machine mostly shared memory, which Docker "
        "bounds to 64 MB; among machines the network.",
        "Start with ./launch, which gives more shared memory; NCCL_DEBUG=INFO names the call.",
        VERIFY,
    ),
    Words(
        "nccl-cuda",
        r"ncclUnhandledCudaError|NCCL[^\n]{0,120}unhandled cuda error",
        "A call of CUDA failed inside NCCL, whose message does not say which.",
        "NCCL_DEBUG=INFO names it; give that text to `./launch doctor --about -`.",
        VERIFY,
    ),
    Words(
        "threads",
        r"can't start new thread|pthread_create failed|fork: retry: Resource temporarily unavailable|"
        r"libgomp: Thread creation failed",
        "No more processes or threads may be started: a limit of the container or of the user is reached, or "
        "Docker is too old for the image's system.",
        "Fewer workers; OMP_NUM_THREADS=1; and a current Docker.",
        VERIFY,
    ),
    Words(
        "open-files",
        r"Too many open files|received 0 items of ancdata",
        "More files are open than this process may have, often by DataLoader workers that share tensors.",
        "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system').",
        VERIFY,
    ),
    Words(
        "locked-memory",
        r"ibv_reg_mr\w*[^\n]{0,60}(?:failed|Cannot allocate memory)|"
        r"ibv_create_(?:cq|qp)[^\n]{0,40}Cannot allocate memory|"
        r"RLIMIT_MEMLOCK|max locked memory",
        "The container may lock too little memory for RDMA and pinned memory.",
        "--ulimit=memlock=-1 in runArgs of devcontainer.json.",
        VERIFY,
    ),
    # Python, packages, compilers
    Words(
        "no-compiler",
        r"Failed to find C compiler|(?:gcc|g\+\+|cc): (?:command )?not found|"
        r"unable to execute '[\w-]*g(?:cc|\+\+)'|command '[\w-]*gcc' failed: No such file|"
        r"No such file or directory: '(?:gcc|g\+\+|cc)'|"
        r"Python\.h: No such file|No working C\+\+ compiler found|InvalidCxxCompiler",
        "torch.compile and Triton compile with gcc and Python's headers, and here one of them is missing.",
        "Start with ./launch: the image brings both. In an image of your own: g++ and python3-dev.",
        VERIFY,
    ),
    Words(
        "no-nvcc",
        r"CUDA_HOME environment variable is not set|fatal error: cu\w+\.h: No such file|Could NOT find CUDA|"
        r"nvcc: (?:command )?not found|nvcc was not found|"
        r"No such file or directory: '[^']*nvcc'",
        "A package wants to compile CUDA code, and this base has no CUDA compiler.",
        "Take a built wheel of the package, or the base with a compiler: copier update --trust --data base=cuda",
        VERIFY,
    ),
    Words(
        "gcc-too-new",
        r"unsupported GNU version! gcc versions later than",
        "The C++ compiler is newer than this CUDA's compiler accepts.",
        "A base with a newer CUDA: copier update --trust",
        VERIFY,
    ),
    Words(
        "no-ninja",
        r"Ninja is required to load C\+\+ extensions",
        "The build tool ninja is missing, with which C++ and CUDA parts are compiled.",
        "./launch add ninja",
        VERIFY,
    ),
    Words(
        "toolkit-other-than-torch",
        r"The detected CUDA version \(([\d.]+)\) mismatches the version that was used to compile",
        "The CUDA compiler here ({0}) is of another version than the CUDA that torch was built with.",
        "Take the base whose CUDA is torch's: copier update --trust",
        VERIFY,
    ),
    Words(
        "mixed-cuda-libraries",
        r"undefined symbol: (?:__nvJitLink\w*|cu(?:blas|sparse|solver|dnn|fft|rand)\w*|nccl\w+|cuda[A-Z]\w*)|"
        r"undefined symbol: iJIT_NotifyEvent|"
        r"libtorch\w*\.so: (?:cannot open|undefined symbol)|/torch/(?:_C|lib/)[^\s:]*: undefined symbol|"
        r"libc10\w*\.so: cannot open",
        "Libraries of two releases are mixed: one of CUDA's (or torch's own) is found elsewhere than where torch "
        "brought it.",
        "unset LD_LIBRARY_PATH, and take what brings a second one out of pyproject.toml; ./launch build",
        VERIFY,
    ),
    Words(
        "built-for-other-torch",
        r"undefined symbol: _ZT?[A-Z]*NK?(?:2at|3c10|5torch)\w*",
        "A compiled package was built for another version of torch than the one that is here.",
        "./launch add the package's release for this torch, or build it here without build isolation.",
        VERIFY,
    ),
    Words(
        "undefined-symbol",
        r"undefined symbol: (\w+)",
        "A compiled file lacks {0}: it was built without a part of itself (often the CUDA part), or for other "
        "libraries.",
        "Build the package anew in this image, or take its release for this torch and this CUDA.",
        VERIFY,
    ),
    Words(
        "torchvision-other",
        r"operator torchvision::\w+ does not exist|Couldn't load custom C\+\+ ops|"
        r"Detected that PyTorch and torch(?:vision|audio) were compiled with different",
        "torchvision (or torchaudio) was made for another torch than the one that is here.",
        "Take its version out of pyproject.toml, then ./launch build",
        VERIFY,
    ),
    Words(
        "bitsandbytes",
        r"bitsandbytes was compiled without GPU support|CUDA[_ ]SETUP: (?:WARNING|Required|CUDA detection failed)|"
        r"libbitsandbytes_cpu\.so|CUDA Setup failed despite (?:GPU|CUDA) being available|"
        r"libbitsandbytes_cuda\w*\.so[^\n]{0,60}(?:not found|No such file|cannot open)",
        "The installed bitsandbytes has no part for this CUDA or this processor.",
        "./launch add 'bitsandbytes' in its newest release.",
        VERIFY,
    ),
    Words(
        "card-too-old-for",
        r"FlashAttention only supports (?:Ampere|Ada|Hopper)[^\n]*|"
        r"Bfloat16 is only supported on GPUs with compute capability[^\n]*|"
        r"Your setup doesn't support bf16",
        "This card is older than what was asked of it: bf16 and FlashAttention need Ampere (8.0) or newer.",
        "Choose fp16 and PyTorch's own attention (sdpa).",
        VERIFY,
    ),
    Words(
        "cpu-too-old",
        r"Illegal instruction \(core dumped\)|\(SIGILL\)|exitcode ?: ?-4\b",
        "A compiled file uses instructions that this processor does not have.",
        "Take the package's ordinary build; on a virtual machine give it the host's CPU type.",
        VERIFY,
    ),
    Words(
        "static-tls",
        r"cannot allocate memory in static TLS block",
        "A library was loaded too late for its kind (mostly libgomp on arm64).",
        "Import torch first, or LD_PRELOAD with the file that is named.",
        VERIFY,
    ),
    Words(
        "no-display",
        r"(?:cannot|could not|unable to) (?:connect to|open) (?:the )?(?:X server|display)|"
        r"no display name and no \$DISPLAY|qt\.qpa\.(?:xcb|plugin)",
        "The program wants to open a window, and the container has no display.",
        "matplotlib with MPLBACKEND=Agg, opencv-python-headless, or files under outputs/.",
        VERIFY,
    ),
    Words(
        "other-libc",
        r"version `GLIBC(?:XX)?_[\d.]+' not found",
        "A compiled file was made on a newer system than this image's.",
        "Take the package's build for this image, or build it inside; a file from the machine itself does not fit.",
        VERIFY,
    ),
    Words(
        "system-library",
        r"(lib(?:GL|sndfile)\.so\.1|lib(?:gthread|glib)-2\.0\.so\.0|lib(?:SM|Xext|Xrender)\.so\.\d)[^\n]{0,10}: "
        r"cannot open shared object file",
        "A Python package needs the system library {0}, which is not in the image.",
        "Name its Debian package in apt.txt (libgl1, libglib2.0-0t64, libsndfile1, ...), then ./launch build",
        "./launch build",
    ),
    Words(
        "driver-library-inside",
        r"libcuda\.so(?:\.1)?[^\n]{0,10}: cannot open shared object file|Can't initialize NVML|"
        r"NVML Shared Library Not Found|"
        r"cannot find -lcuda\b|CUDA driver initialization failed",
        "The driver's library is not in the container, so it was started without a GPU.",
        "Start with ./launch, which asks for the GPU and says which.",
        "./launch doctor --only gpu",
    ),
    Words(
        "stub",
        r"CUDA driver is a stub library|cudaErrorStubLibrary",
        "A stand-in for the driver's library is used, which serves only for linking.",
        "Take .../stubs out of LD_LIBRARY_PATH.",
        VERIFY,
    ),
    Words(
        "built-for-other-cuda",
        r"(lib(?:cudart|cublas|cublasLt|cudnn\w*|cusparse\w*|cufft|nvrtc|nccl)\.so\.\d+)[^\n]{0,10}: "
        r"cannot open shared object file",
        "A package was built for another CUDA: it asks for {0}, which this image does not have.",
        "Take the package's build for this CUDA; `./launch verify` says which one is here.",
        VERIFY,
    ),
    Words(
        "two-cudnn",
        r"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH|cuDNN version incompatibility|Loaded runtime CuDNN library",
        "Two releases of cuDNN are in the container, and parts of both were loaded.",
        "Take LD_LIBRARY_PATH and the package that brought the second one away; ./launch build",
        VERIFY,
    ),
    Words(
        "numpy-2",
        r"compiled using NumPy 1\.x cannot be run in|numpy\.core\.multiarray failed to import|"
        r"numpy\.dtype size changed",
        "A compiled package was built for another major version of NumPy than the one that is here.",
        "./launch add that package's newer release.",
        VERIFY,
    ),
    Words(
        "wheel-does-not-fit",
        r"is not a supported wheel on this platform|Could not find a version that satisfies the requirement|"
        r"No matching distribution found",
        "There is no such package for this Python and this processor, or not under that version.",
        "Look at the package's files for this Python version and processor, and loosen its version.",
        VERIFY,
    ),
    Words(
        "packages-contradict",
        r"ResolutionImpossible|No solution found when resolving dependencies|"
        r"pip's dependency resolver does not currently take into account",
        "What is to be installed does not fit together, or not what the base brings: the lines around name the "
        "packages.",
        "Loosen the versions in pyproject.toml that those lines name.",
        VERIFY,
    ),
    Words(
        "other-python",
        r"No module named 'torch'",
        "This is another Python than the image's, which has torch: often a .venv in the project's folder.",
        "Take the .venv away, and choose the image's Python in VS Code.",
        "./launch doctor --only venv",
    ),
    Words(
        "no-module",
        r"ModuleNotFoundError: No module named '([\w-]+)",
        "The package {0} is not in this Python.",
        "./launch add with the package that brings it; where it is there already, another Python was started.",
        "./launch doctor --only venv",
    ),
    Words(
        "base-would-change",
        r"([\w.-]+) is \S+ here and was \S+ in the base",
        "A package asks for another {0} than the one that the base brings.",
        "Take it out of pyproject.toml or allow the base's version, then ./launch build",
        VERIFY,
    ),
    Words(
        "protected",
        r"externally-managed-environment",
        "pip was called outside this project's image, or with settings of its own: the image allows installing.",
        "./launch add PACKAGE",
        VERIFY,
    ),
    Words(
        "no-such-user",
        r"getpwuid\(\): uid not found|I have no name!|whoami: cannot find name for user ID",
        "The container runs as a user that it does not know, so torch.compile and others find no home and no name.",
        "Start with ./launch or VS Code, which give the image your user.",
        VERIFY,
    ),
    Words(
        "fork-after-cuda",
        r"Cannot re-initialize CUDA in forked subprocess",
        "The program itself: it used the GPU before it started its workers, which are copies (fork) and cannot "
        "use it then.",
        "torch.multiprocessing.set_start_method('spawn'), or touch the GPU only after the DataLoader is made.",
        VERIFY,
    ),
    Words(
        "display-watchdog",
        r"the launch timed out and was terminated|cudaErrorLaunchTimeout",
        "The GPU also drives a display, and a kernel that takes seconds is ended for the display's sake.",
        "Use another GPU (GPUS), or the machine without its display.",
        "nvidia-smi",
    ),
    Words(
        "kernel-crashed",
        r"an illegal memory access was encountered|misaligned address|unspecified launch failure|"
        r"illegal instruction was encountered",
        "A kernel on the GPU read or wrote where it must not; the line that is named is not where it happened.",
        "Run it once with CUDA_LAUNCH_BLOCKING=1, which names the right line; without packages with kernels of "
        "their own.",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    Words(
        "numbers-assert",
        r"device-side assert triggered",
        "The program itself: an index is out of range on the GPU, most often a label or a token id.",
        "Run it once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the line.",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    # Names and rights
    Words(
        "file-incomplete",
        r"Error while deserializing header|failed finding central directory|PytorchStreamReader failed|"
        r"Consistency check failed: file should be of size|unexpected EOF, expected \d+ more bytes",
        "A file with weights is not whole: a download or a save was interrupted.",
        "Delete that file, and download or save it again.",
        VERIFY,
    ),
    Words(
        "weights-only",
        r"Weights only load failed|weights_only",
        "The checkpoint holds more than weights, and torch since 2.6 loads only weights unless told otherwise.",
        "torch.load(..., weights_only=False), for a file that you trust.",
        VERIFY,
    ),
    Words(
        "transformers-too-old",
        r"does not recognize this architecture",
        "transformers is older than the model.",
        "./launch add 'transformers' in a newer release.",
        VERIFY,
    ),
    Words(
        "two-devices",
        r"Expected all tensors to be on the same device",
        "The program itself: a tensor or the model is not on the GPU with the others.",
        "Move it with .to(device); the traceback names the line.",
        VERIFY,
    ),
    Words(
        "hub-access",
        r"GatedRepoError|Cannot access gated repo|You are trying to access a gated repo|"
        r"Access to model \S+ is restricted|401 Client Error[^\n]{0,80}huggingface\.co",
        "Hugging Face gives this model only to those who are logged in and have accepted its terms.",
        "Accept them on the model's page, and set HF_TOKEN in the environment.",
        "./launch verify --only credentials",
    ),
    Words(
        "wandb-access",
        r"api_key not configured \(no-tty\)|wandb: ERROR[^\n]{0,40}API key",
        "Weights & Biases has no key here.",
        "Set WANDB_API_KEY in the environment before ./launch, or WANDB_MODE=offline.",
        "./launch verify --only credentials",
    ),
    Words(
        "git-owner",
        r"detected dubious ownership in repository",
        "The project's folder belongs to another user than the one in the container.",
        'sudo chown -R "$USER" . on the machine, in the project.',
        "./launch doctor --only mounts",
    ),
    Words(
        "cache-owner",
        r"Permission denied:? ['\"](?!/dev/|/var/run/|/run/|/etc/|/proc/|/sys/)(/[^'\"\s]*)|"
        r"trying to write in your cache folder \(([^)\s]+)\)|(/\S+) is not a writable directory|"
        r"(?:Could not|cannot) (?:create|write)[^\n]{0,60}(/\S*cache\S*)[^\n]{0,40}Permission denied",
        "This user may not write to {0}: it belongs to somebody else, often root after a container ran as root.",
        'sudo chown -R "$USER" on its folder of the machine: `./launch doctor` names it.',
        "./launch doctor --only mounts",
    ),
    Words(
        "read-only",
        r"Read-only file system:? ?['\"]?(/[^'\"\s]*)?",
        "What is to be written lies on a folder that is mounted read-only ({0}).",
        "Write to outputs/ or to a cache; a data folder is mounted read-only on purpose.",
        "./launch verify",
    ),
    Words(
        "certificate",
        r"CERTIFICATE_VERIFY_FAILED|certificate signed by unknown authority|"
        r"self[- ]signed certificate in certificate chain|"
        r"unable to get local issuer certificate",
        "The network here puts its own certificate in front (a company's proxy), which is not known.",
        "Put that certificate as certs/NAME.crt into the project, then ./launch build",
        "./launch build",
    ),
    Words(
        "no-name-resolution",
        r"Temporary failure in name resolution|Could not resolve host|Name or service not known|getaddrinfo failed|"
        r"EAI_AGAIN|TLS handshake timeout|Client\.Timeout exceeded|"
        r"dial tcp[^\n]{0,60}(?:i/o timeout|no such host)|couldn't connect to 'https://huggingface\.co'|"
        r"Network is unreachable",
        "The network, or the name service, cannot be reached from here.",
        "Look whether the machine itself reaches it; behind a proxy set HTTPS_PROXY; offline: HF_HUB_OFFLINE=1",
        "./launch doctor",
    ),
    Words(
        "registry-login",
        r"unauthorized: (?:authentication required|incorrect username)|"
        r"failed to (?:fetch (?:anonymous|oauth) token|authorize)[^\n]{0,120}40[13]|"
        r"requested access to the resource is denied|"
        r"pull access denied",
        "The registry does not give this image without a login, or there is none under this name.",
        "Check the image's name, then docker login with its registry (nvcr.io: user $oauthtoken).",
        "./launch build",
    ),
    Words(
        "other-processor",
        r"requested image's platform \([^)]*\) does not match the detected host platform|exec format error",
        "The image, or a program in it, is made for another kind of processor than this machine's.",
        "copier update --trust --data hardware=... with this machine's; `./launch doctor --only card` names it.",
        "./launch doctor --only card",
    ),
    Words(
        "file-sharing",
        r"Mounts denied|is not shared from the host and is not known to Docker",
        "Docker Desktop may not see the folder that is to be mounted.",
        "Settings, Resources, File sharing: add the folder.",
        "./launch doctor --only mounts",
    ),
    Words(
        "clock",
        r"Release file for \S+ is not valid yet|certificate (?:has expired or )?is not yet valid",
        "This machine's clock is wrong, as in a WSL that slept.",
        "sudo hwclock -s, or wsl --shutdown in Windows.",
        "./launch doctor",
    ),
    Words(
        "apt",
        r"(?-i:\bE: )(?:Unable to locate package (\S+)|Failed to fetch|Unable to fetch some archives)|"
        r"Hash Sum mismatch",
        "A Debian package cannot be had: its name is wrong, or the lists of packages are old.",
        "Check the name in apt.txt, then ./launch build --no-cache",
        "./launch build",
    ),
    Words(
        "docker-host",
        r"(?:Cannot connect to the Docker daemon|failed to connect to the docker API) at (?!unix:///var/run/docker\.sock|unix:///run/docker\.sock|npipe:)([a-z]+:[^\s;,]*[^\s;,.])",
        "The client looks for the engine at {0}, as DOCKER_HOST or a context says, and nobody answers there.",
        "unset DOCKER_HOST; docker context use default",
        "./launch doctor --only client,engine",
    ),
    Words(
        "docker-configuration",
        r"unable to configure the Docker daemon with file|contains (?:several valid|other) graphdriver|"
        r"error initializing graphdriver",
        "Docker does not start, as its configuration (/etc/docker/daemon.json) does not fit: broken, or another "
        "storage than before.",
        "sudo dockerd --validate, and undo the last change in /etc/docker/daemon.json",
        "./launch doctor --only engine",
    ),
    Words(
        "docker-does-not-start",
        r"(?:Job for |Failed to start )docker\.service|docker\.service: (?:Failed|Start request repeated)",
        "The engine does not start.",
        "sudo journalctl -u docker --no-pager | tail, whose text `./launch doctor --about -` may know.",
        "./launch doctor --only engine",
    ),
    Words(
        "port-in-use",
        r"Address already in use|EADDRINUSE|port is already allocated|ports are not available|"
        r"server socket has failed to listen",
        "Another program listens on that port.",
        "End it, or take another port: torchrun --master-port, MLFLOW_PORT or TENSORBOARD_PORT in .env.",
        "./launch doctor --only ports",
    ),
    Words(
        "run-args",
        r"unknown (?:shorthand )?flag: '?--?[\w-]+ \S+",
        "Two words stand in one string of runArgs, and Docker takes them for the name of a flag.",
        'Two strings, "--gpus", "all", or one with an equals sign: "--gpus=all".',
        "./launch doctor",
    ),
    Words(
        "credential-helper",
        r"docker-credential-\w+(?:\.exe)?\\?\"?: executable file not found|error getting credentials - err: exec",
        "Docker asks a helper for logins that is not here, as Docker Desktop leaves it behind.",
        "Take the line with credsStore out of ~/.docker/config.json.",
        "./launch doctor --only engine",
    ),
    Words(
        "wsl-integration",
        r"could not be found in this WSL ?\d? distro",
        "Docker Desktop does not serve this WSL distribution.",
        "Switch it on in Docker Desktop: Settings, Resources, WSL integration.",
        "./launch doctor --only client",
    ),
    Words(
        "docker-not-installed",
        r"docker: (?:command )?not found|Command 'docker' not found|spawn docker ENOENT",
        "Docker is not installed here, or not on the PATH.",
        "https://docs.docker.com/engine/install/ says how.",
        "./launch doctor --only client",
    ),
    Words(
        "nvidia-docker",
        r"nvidia-docker: (?:command )?not found",
        "The command nvidia-docker is gone: docker itself gives containers the GPU.",
        "Start with ./launch, or docker run --gpus all.",
        "./launch doctor --only gpu",
    ),
    Words(
        "nvidia-docker-1",
        r"nvidia-docker \| .*unsupported Docker version",
        "nvidia-docker 1 is of another age than this Docker, which gives containers the GPU itself.",
        "Remove nvidia-docker, and install nvidia-container-toolkit.",
        "./launch doctor --only gpu",
    ),
    Words(
        "no-engine-here",
        r"no runtime binary found from candidate list|Unit docker\.service (?:not found|could not be found)",
        "Docker Engine is not installed here: its client may be, and in WSL the engine may be Docker Desktop's.",
        "In WSL: start Docker Desktop on Windows; else https://docs.docker.com/engine/install/",
        "./launch doctor --only client,engine",
    ),
    Words(
        "iptables",
        r"iptables: No chain/target/match by that name|iptables failed:",
        "A firewall was restarted and took Docker's rules away.",
        "sudo systemctl restart docker",
        "./launch doctor --only engine",
    ),
    Words(
        "mount-source",
        r"error while creating mount source path '([^']+)'",
        "Docker cannot make {0}, which is to be mounted: the engine sees other folders (a snap, Docker Desktop), "
        "or it is on "
        "a drive that is gone.",
        "Make that folder yourself, and use Docker Engine.",
        "./launch doctor --only mounts,engine",
    ),
    Words(
        "other-vendor",
        r"(?:AMD|Intel) CDI spec not found|failed to discover GPU vendor[^\n]{0,60}multiple",
        "Docker took another vendor's GPU for the one to give, and no list of NVIDIA's (CDI) is there.",
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker",
        "./launch doctor --only gpu",
    ),
    Words(
        "old-container",
        r"no such volume: nvidia_driver_",
        "This container was made with nvidia-docker 1 for a driver that is gone.",
        "Make it anew: ./launch stop, then start it again.",
        "./launch doctor --only gpu",
    ),
    Words(
        "restart-after-update",
        r"mount operation failed: [^\n]{0,200}/proc/driver/nvidia[^\n]{0,80}no such file",
        "The driver was updated under a Docker that still has the old one's files mounted.",
        "sudo systemctl restart docker",
        "./launch doctor --only driver,gpu",
    ),
    Words(
        "podman-without-cdi",
        r"stat nvidia\.com/gpu=\S*: no such file",
        "This engine does not know GPUs by name (CDI), and takes the name for a file.",
        "A current Docker Engine, or Podman with --device and a CDI specification.",
        "./launch doctor --only engine,gpu",
    ),
    Words(
        "docker-too-old",
        r"unknown flag: --gpus\b",
        "This Docker is too old for --gpus.",
        "Update Docker: https://docs.docker.com/engine/install/",
        "./launch doctor --only engine",
    ),
    Words(
        "jetson-devices",
        r"NvRmMem\w*[^\n]{0,60}(?:failed|Permission denied)|nvmap[^\n]{0,40}(?:Permission denied|failed)",
        "On this Jetson the GPU's device files are closed to this user, or the container was started without its "
        "runtime.",
        "--runtime=nvidia, and the groups video and render for the user.",
        "./launch doctor --only gpu",
    ),
    Words(
        "conflict-markers",
        r"<<<<<<< before updating|you have unmerged files|needs merge$",
        "An update met changes of yours and left both in the files.",
        "Choose in each file between <<<<<<< and >>>>>>>, then git add it.",
        "./launch doctor --only merge",
    ),
    # NVIDIA's container tools, where the engine's sentence alone does not tell
    Words(
        "driver-silent",
        r"initialization error: (?:driver error|driver rpc error|cuda error|nvml error: unknown error)|"
        r"driver rpc error|nvidia-container-cli[^\n]{0,40}: timed out",
        "NVIDIA's container tools get no answer from the driver: it is stuck or half installed; in WSL the driver of "
        "Windows is missing or too old.",
        "Make `nvidia-smi` work on the machine itself first; where it does, restart the machine.",
        DRIVER,
    ),
    Words(
        "rootless-cgroups",
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted|"
        r"container error: [^\n]{0,60}cgroup[^\n]{0,60}permission denied|devices\.allow: operation not permitted",
        "The engine, rootless or in a container itself, may not open the GPU's devices to a container by the old way.",
        "docker context use default, which is root's engine; or GPUs by CDI.",
        "./launch doctor --only engine,gpu",
    ),
    Words(
        "toolkit-too-old",
        r"container error: cgroup subsystem devices not found|failed to add device rules",
        "NVIDIA's Container Toolkit is too old for this system's cgroups.",
        "Update nvidia-container-toolkit, then: sudo systemctl restart docker",
        "./launch doctor --only gpu",
    ),
    Words(
        "driver-files-in-image",
        r"mount error: file creation failed: [^\n]{0,300}/([\w.+-]+): file exists",
        "The image carries a file ({0}) that this machine's NVIDIA runtime mounts itself.",
        "Take it out of the image: rm in the Dockerfile, in the step that brought it.",
        "./launch doctor --only gpu",
    ),
    Words(
        "ldconfig",
        r"ldcache error: open failed: /sbin/ldconfig",
        "NVIDIA's Container Toolkit is configured for another distribution's ldconfig than this machine's.",
        'ldconfig = "@/sbin/ldconfig" in /etc/nvidia-container-runtime/config.toml',
        "./launch doctor --only gpu",
    ),
    Words(
        "hook-refused",
        r"invoking the NVIDIA Container Runtime Hook directly[^\n]{0,80}is not supported",
        "NVIDIA's Container Toolkit is set to another mode (CDI, or Jetson's), in which `--gpus` is not served.",
        'mode = "auto" in /etc/nvidia-container-runtime/config.toml; on a Jetson --runtime=nvidia',
        "./launch doctor --only gpu",
    ),
    Words(
        "driver-unseen",
        r"load library failed: libnvidia-ml\.so",
        "Docker does not see the driver's libraries: they are not installed, or the engine is one that does not share "
        "this machine's files (Docker Desktop, a snap).",
        "Make `nvidia-smi` work here, and use Docker Engine: docker context use default",
        "./launch doctor --only engine,driver",
    ),
    Words(
        "device-files-missing",
        r"(?:lstat|stat|adding custom device)[^\n]{0,40}/dev/(?:nvidia[\w-]*)[^\n]{0,40}no such file|"
        r"failed to stat CDI host device",
        "The device files of the GPU that the container was to get are not there: the driver was not loaded yet, as at "
        "boot, or the list of GPUs (CDI) is old.",
        "`nvidia-smi` loads the driver; then start again; where that does not help: "
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        "./launch doctor --only driver,gpu",
    ),
    Words(
        "cdi-stale",
        r"failed to fulfil mount request:[^\n]{0,120}(?:nvidia|cuda)[^\n]{0,80}no such file",
        "The list of what a container gets with the GPU (CDI) is of an earlier driver.",
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker",
        "./launch doctor --only gpu",
    ),
    Words(
        "apt-key",
        r"NO_PUBKEY A4B469963BF863CC",
        "NVIDIA changed the key of its package source, and this image has the old one.",
        "Take a newer base image; in one of your own: install cuda-keyring.",
        "./launch build",
    ),
    Words(
        "compose-too-old",
        r"services\.\S+\.deploy\.resources\.reservations value .{0,40}devices|Additional property gpus is not allowed|"
        r"Unsupported config option[^\n]{0,60}(?:gpus|runtime)",
        "This Docker Compose is too old to ask for GPUs.",
        "Install the package docker-compose-plugin.",
        "docker compose version",
    ),
    # Families, last: what their form alone says
    Words(
        "wheel-not-built",
        r"Failed building wheel for (\S+)|Could not build wheels for (\S+?),?\s|Failed to build `?([\w.-]+)",
        "The package {0} has no built wheel for this Python, and compiling it here failed: the lines above say why.",
        "Take a release that has a wheel, or the base with a compiler: copier update --trust --data base=cuda",
        VERIFY,
    ),
    Words(
        "other-version",
        r"cannot import name '[^']+' from '([\w.]+)'(?! \(unknown location\))|"
        r"\w*flash_attn\w*[^\n]{0,40}got an unexpected keyword|(\w+)\(\) got an unexpected keyword argument|"
        r"module '([\w.]+)' has no attribute",
        "{0} is of another version than what calls it expects: two packages do not fit together, or your call is "
        "for another release.",
        "./launch add both packages in releases that name each other; ./launch pin keeps what works.",
        VERIFY,
    ),
    Words(
        "two-dtypes",
        r"expected (?:scalar type|m1 and m2|mat1 and mat2)[^\n]{0,40}(?:but found|to have the same dtype)|"
        r"mat1 and mat2 must have the same dtype",
        "The program itself: tensors of two precisions meet where they must be the same.",
        "torch.autocast around the model's call, or .to(dtype) for the one.",
        VERIFY,
    ),
    Words(
        "shapes",
        r"mat1 and mat2 shapes cannot be multiplied|The size of tensor a \(\d+\) must match|size mismatch for |"
        r"shape '[^']*' is invalid for input",
        "The program itself: two tensors, or a checkpoint and a model, have shapes that do not fit.",
        "The traceback names the line; print the shapes there.",
        VERIFY,
    ),
    Words(
        "library-missing",
        r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "The library {0} is not in the image, or not where it is looked for.",
        "Its Debian package in apt.txt, or the Python package that brings it; then ./launch build",
        VERIFY,
    ),
    Words(
        "no-command",
        r"(?:sh|bash)(?:: line \d+)?: (?:\d+: )?([\w.-]+): (?:command )?not found",
        "The image has no command {0}.",
        "Its Debian package in apt.txt, then ./launch build",
        "./launch build",
    ),
    Words(
        "nobody-listens",
        r"\[Errno 111\] Connection refused|ConnectionRefusedError",
        "Nobody listens at that address: the server is not running, or it runs elsewhere (in a container "
        "localhost is the container).",
        "Start it (./launch up), and use its name as the address among containers.",
        VERIFY,
    ),
)
