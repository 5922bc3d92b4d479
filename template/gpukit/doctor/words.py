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
        "Start the container again: ./launch stop, then as before.",
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
        r"GPU access blocked by the operating system|no adapters were found",
        "Windows gives this WSL no GPU: it is WSL 1, or the driver of Windows is missing, old, or set to TCC.",
        "In Windows: wsl --update, and install NVIDIA's current driver.",
        DRIVER,
    ),
    Words(
        "driver-not-loaded",
        r"couldn't communicate with the NVIDIA driver|nvml error: driver not loaded|"
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
        "The driver runs and takes no GPU: too old for the card, in need of the open kernel modules, given too "
        "little address "
        "space by the firmware (Above 4G Decoding), or the card failed.",
        "sudo dmesg | grep -i nvrm says which; usually a newer driver with the open kernel modules.",
        DRIVER,
    ),
    # CUDA's numbers
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
        r"cudaErrorInsufficientDriver",
        "The NVIDIA driver is too old for this image's CUDA.",
        "Install a newer driver; `./launch doctor` says from which version on.",
        DRIVER,
    ),
    Words(
        "ptxas-too-old",
        r"Value '(sm_\w+)' is not defined for option 'gpu-name'|"
        r"ptxas[^\n]{0,40}(?:Unsupported|is not a recognized)[^\n]{0,20}(sm_\w+)|"
        r"PTXAS error[^\n]{0,80}sm_\d+a?",
        "The compiler ptxas that Triton brings does not know this GPU ({0}), so torch.compile and Triton kernels fail; "
        "the rest of PyTorch works.",
        "A newer torch, or TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas where the image has CUDA 12.9 or newer.",
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
        r"no longer supports this GPU because it is too old|CUDA_ERROR_NO_BINARY_FOR_GPU",
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
        r"CUDA unknown error - this may be due to an incorrectly set up environment|cudaErrorUnknown\b|\berror 999\b",
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
        r"killed by signal: Bus error|insufficient shared memory \(shm\)|"
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
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        "The machine's memory (not the GPU's) ran out, and the system ended a process.",
        "Fewer DataLoader workers, or smaller samples held in memory.",
        "sudo dmesg | grep -i 'out of memory'",
    ),
    Words(
        "gpu-memory-full",
        r"CUDA out of memory|OutOfMemoryError: CUDA|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation|"
        r"CUDA_ERROR_OUT_OF_MEMORY|"
        r"CUDA error: out of memory|Cuda failure (?:2 )?'out of memory'",
        "The GPU's memory is full: the batch is too large, or another process holds some of it.",
        "Halve the batch size; `nvidia-smi` shows who else is there.",
        "nvidia-smi",
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
        r"No such file or directory: '(?:gcc|g\+\+|cc)'|"
        r"Python\.h: No such file|No working C\+\+ compiler found|InvalidCxxCompiler",
        "torch.compile and Triton compile with gcc and Python's headers, and here one of them is missing.",
        "Start with ./launch: the image brings both. In an image of your own: g++ and python3-dev.",
        VERIFY,
    ),
    Words(
        "no-nvcc",
        r"CUDA_HOME environment variable is not set|nvcc: (?:command )?not found|nvcc was not found|"
        r"No such file or directory: '[^']*nvcc'",
        "A package wants to compile CUDA code, and this base has no CUDA compiler.",
        "Take a built wheel of the package, or the base with a compiler: copier update --trust --data base=cuda",
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
        "built-for-other-torch",
        r"undefined symbol: _ZNK?\w*(?:c10|torch|at)\w*|undefined symbol: \w*(?:c10|torch)\w*",
        "A compiled package was built for another version of torch than the one that is here.",
        "./launch add the package's release for this torch, or build it here without build isolation.",
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
        "other-python",
        r"No module named 'torch'",
        "This is another Python than the image's, which has torch: often a .venv in the project's folder.",
        "Take the .venv away, and choose the image's Python in VS Code.",
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
        "numbers-assert",
        r"device-side assert triggered",
        "The program itself: an index is out of range on the GPU, most often a label or a token id.",
        "Run it once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the line.",
        "CUDA_LAUNCH_BLOCKING=1",
    ),
    # Names and rights
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
        r"Permission denied:? '?(/home/dev/\.cache[^'\s]*|/root/\.cache[^'\s]*|/workspace[^'\s]*)",
        "{0} belongs to somebody else, often root after a container ran as root.",
        'sudo chown -R "$USER" on its folder of the machine: `./launch doctor` names it.',
        "./launch doctor --only mounts",
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
        "rootless-cgroups",
        r"bpf_prog_query\(BPF_CGROUP_DEVICE\) failed: operation not permitted|"
        r"container error: [^\n]{0,60}cgroup[^\n]{0,60}permission denied",
        "The engine is rootless and may not open the GPU's devices to a container by the old way.",
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
        r"mount error: file creation failed: [^\n]{0,300}(lib[\w-]+\.so[\w.]*): file exists",
        "The image carries a file of the driver itself ({0}), where the driver of this machine must be mounted.",
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
        r"services\.\S+\.deploy\.resources\.reservations value .{0,40}devices|"
        r"Unsupported config option[^\n]{0,60}(?:gpus|runtime)",
        "This Docker Compose is too old to ask for GPUs.",
        "Install the package docker-compose-plugin.",
        "docker compose version",
    ),
)
