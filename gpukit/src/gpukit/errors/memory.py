"""Memory of GPU and machine, shared memory, and limits on processes and files."""

from __future__ import annotations

from dataclasses import replace

from gpukit.errors.causes import EARLIER_KERNEL, GPU_FULL, GPU_TAKEN, HOST_MEMORY, LIBRARIES_MIXED, SHM_FULL
from gpukit.errors.evidence import CONTAINER, FRAGMENTED, UNIFIED, WSL, only, text_has, text_must_have, unless_text_has
from gpukit.errors.rule import BROAD, GENERAL, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

OOM = "`sudo dmesg | grep -i 'out of memory'`"
SMI = "`nvidia-smi`"
FRAGMENTS = Cause(
    "gpu-memory-fragmented",
    "The GPU's memory is fragmented: torch has reserved enough of it, but not in one piece.",
    "Set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, or free memory with `torch.cuda.empty_cache()` between "
    "phases.",
    tell="the text says that much memory is reserved by PyTorch but unallocated",
    given=FRAGMENTED,
)
UNIFIED_FULL = Cause(
    "unified-memory-full",
    "The memory that GPU and processor share is full; page cache and other programs count as well.",
    "Use a smaller batch or model, close other programs, and free the page cache with `sudo sh -c 'echo 3 > "
    "/proc/sys/vm/drop_caches'`.",
    tell="the machine is a DGX Spark or a Jetson",
    given=only(UNIFIED),
)
HOST_MEMORY_WSL = Cause(
    "wsl-memory-share",
    "WSL's memory is full: by default, it gets only half of the machine's.",
    "In Windows, set `memory=` (such as `memory=24GB`) and `swap=` under `[wsl2]` in %UserProfile%\\.wslconfig, then "
    "run `wsl --shutdown`. Fewer data loader workers need less.",
    tell="`free -h` in WSL shows half of the machine's memory",
    given=only(WSL),
)
DATASET_COPIES = Cause(
    "workers-copy-dataset",
    "Each data loader worker ends up with a copy of the dataset, because the dataset consists of many Python objects.",
    "Use fewer workers, and keep the data in NumPy arrays or tensors, or read it from files (`numpy.memmap`, Arrow).",
    tell="memory grows during the epoch, and more slowly with fewer workers",
    given=text_must_have(r"DataLoader"),
)
SHM_LEFT = Cause(
    "shared-memory-left",
    "Files of programs that crashed fill /dev/shm.",
    "End the programs that are left, then run `rm -f /dev/shm/torch_* /dev/shm/nccl-* /dev/shm/psm_*` in the same "
    "container; outside one, on the machine.",
    tell="`df -h /dev/shm` shows much in use while nothing runs",
)
OPEN_FILES = Cause(
    "open-files",
    "The process has more files open than its limit allows, usually because data loader workers share tensors "
    "through files.",
    'Run `ulimit -n 65536` before the program, or call `torch.multiprocessing.set_sharing_strategy("file_system")`.',
    tell="`ulimit -n` shows 1024",
)
CRASH = Cause(
    "library-crashed",
    "A compiled library crashed, often because two packages contain different versions of it.",
    "Run with `num_workers=0` and `python -X faulthandler` to find the line, then update or reinstall the package it "
    "names.",
    tell="it crashes at the same line each time",
)
STOPPED = Cause(
    "stopped-from-outside",
    "The process was stopped from outside: by a user, by `docker stop`, or by a scheduler's time or memory limit.",
    "Look at the scheduler's log, or `docker events --since 1h`; then run the same command again to resume.",
    tell="`dmesg` shows nothing, and the log ends without a traceback of its own",
    given=text_has(r"slurm|srun|TIME LIMIT|CANCELLED|preempt|docker stop|got signal: (?:15|2)\b"),
)

TORCH_BUILD = Cause(
    "torch-build-does-not-fit",
    "This build of torch, with its CUDA and cuDNN, does not fit the GPU or the driver.",
    "Install a newer PyTorch whose CUDA the driver supports (`nvidia-smi` shows the highest version).",
    tell="the smallest convolution on the GPU fails, although memory is free",
)
UNIFIED_FIGURES = Cause(
    "unified-memory-figures",
    "Nothing is broken: GPU and processor share their memory (DGX Spark, Jetson), so the driver reports no memory "
    "figures for the GPU.",
    "Use the system's figures, such as `free -h`. A program that stops there should catch NVMLError_NotSupported, or "
    "read `torch.cuda.mem_get_info()`; update it.",
)

RULES = (
    Rule(
        "open-files",
        "OSError: [Errno 24] Too many open files",
        (r"Too many open files", r"received 0 items of ancdata"),
        (OPEN_FILES,),
        more=VERIFY,
    ),
    Rule(
        "shared-memory",
        "RuntimeError: DataLoader worker (pid 37) is killed by signal: Bus error.",
        (
            r"killed by signal:\s+Bus\s+error",
            r"insufficient shared memory \(shm\)",
            r"unable to (?:write to file|allocate shared memory\(shm\) for file) ?<?/?/?"
            r"(?:torch_|dev/shm|pymp|psm)",
            r"/dev/shm[^\n]{0,80}No space left on device",
            r"No space left on device[^\n]{0,80}(?:/dev/shm|shared memory|/torch_\d)",
            r"Error while creating shared memory segment",
            r"Call to (?:shm_open|posix_fallocate|ftruncate) failed",
            r"out of shared memory",
            r"/dev/shm has only",
            r"failed to extend /dev/shm",
            r"_multiprocessing\.SemLock[\s\S]{0,200}No space left on device",
            r"shared memory (?:size|segment)[^\n]{0,60}(?:too small|insufficient|not enough)",
            r"Error while \w+(?: to)? shared memory segment",
        ),
        (SHM_FULL, SHM_LEFT, HOST_MEMORY),
        more=VERIFY,
    ),
    Rule(
        "shared-object-gone",
        "RuntimeError: unable to open shared memory object </torch_4242_99>: No such file or directory (2)",
        (r"unable to open shared memory object[^\n]{0,120}No such file or directory",),
        (
            Cause(
                "shared-object-gone",
                "A process that had put a tensor into shared memory ended before the other one opened it.",
                "Find the first error above, which ended that process; then try "
                '`torch.multiprocessing.set_sharing_strategy("file_descriptor")` and `ulimit -n 65536`.',
            ),
            SHM_FULL,
        ),
        more=VERIFY,
    ),
    Rule(
        "shared-object",
        "RuntimeError: unable to open shared memory object </torch_4242_99> in read-write mode",
        (r"unable to open shared memory object",),
        (SHM_FULL, OPEN_FILES),
        more=VERIFY,
    ),
    Rule(
        "bus-error",
        "Bus error (core dumped)",
        (r"Bus error \(core dumped\)|^Bus error$|Fatal Python error: Bus error", r"exitcode ?: ?-7\b|\(SIGBUS\)"),
        (
            SHM_FULL,
            Cause(
                "disk-full",
                "The disk is full, so a file that is mapped into memory cannot be filled.",
                "Free space: `docker system df` and `./launch clean` show what can be removed.",
                tell="`df -h` shows a full disk",
                standalone="Free space: `docker system df` shows what can be removed.",
            ),
            Cause(
                "file-cut-short",
                "A file was truncated, or its network drive was disconnected, while it was read.",
                "Download the file again, or copy it to a local disk.",
                tell="it fails at the same file each time",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "semaphores",
        "_multiprocessing.SemLock: [Errno 13] Permission denied",
        (r"SemLock[\s\S]{0,200}(?:Permission denied|Function not implemented)",),
        (
            Cause(
                "shm-not-writable",
                "Processes cannot share locks: /dev/shm is missing or not writable for this user.",
                "Start the container with `./launch`; elsewhere run `sudo chmod 1777 /dev/shm`.",
                standalone="Run `sudo chmod 1777 /dev/shm`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "build-memory",
        "g++: fatal error: Killed signal terminated program cc1plus",
        (
            r"Killed signal terminated program \w+",
            r"ld terminated with signal 9",
            r"internal compiler error: Killed",
            r"fatal error: Killed signal",
            r"(?:cicc|ptxas|cc1plus|cudafe\+\+)'? died due to signal 9",
            r"(?:nvcc|ninja|setup\.py|cc1plus|cicc|flash-attn)[\s\S]{0,2000}^Killed\b",
        ),
        (
            Cause(
                "build-memory",
                "The machine ran out of memory while code was compiled, because too many compilers ran at once.",
                "Set `MAX_JOBS=2` before the command, or install a prebuilt wheel.",
            ),
        ),
        more=OOM,
    ),
    Rule(
        "heads-per-gpu",
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        (r"must be divisible by (?:the )?tensor[ _]parallel(?:[ _]size)?",),
        (
            Cause(
                "heads-per-gpu",
                "The model's attention heads cannot be divided evenly among that many GPUs.",
                "Choose a tensor parallel size that divides the number of heads, such as 1, 2, or 4.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "memory-of-engine",
        "ValueError: No available memory for the cache blocks.",
        (
            r"No available memory for the cache blocks",
            r"is less than desired GPU memory utilization",
            r"KV cache (?:memory )?is needed",
            r"Error in memory profiling",
            r"larger than the (?:maximum number of tokens that can be stored in|available) KV cache",
            r"KV cache is needed, which is larger than the available KV cache memory",
        ),
        (
            Cause(
                "kv-cache-memory",
                "The model leaves too little GPU memory for the KV cache.",
                "Reduce `max_model_len`, or use a quantized model or more GPUs (`tensor_parallel_size`).",
                tell="no other process uses the GPU",
            ),
            GPU_TAKEN,
            Cause(
                "gpu-memory-utilization",
                "`gpu_memory_utilization` asks for more memory than is free, or leaves less than the model needs.",
                "Set it below the free share that `nvidia-smi` shows, or higher if the GPU is otherwise free.",
                tell="the text compares free memory with the desired utilization",
                given=text_has("desired GPU memory utilization"),
            ),
        ),
        more=SMI,
    ),
    Rule(
        "gpu-memory-full",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        (
            r"CUDA out of memory",
            r"OutOfMemoryError: CUDA",
            r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY",
            r"CUDA error(?: \d+)?:? ?(?:out of memory|\(out of memory\))",
            r"cuda runtime error \(2\) : out of memory",
            r"(?<!an error\? )Error 2: out of memory",
            r"Make sure you have enough GPU RAM",
            r"Failed to allocate memory for (?:requested )?buffer|CUDA OOM\b|\bGPU (?:is )?out of memory",
            r"Triton Error \[CUDA\]: out of memory",
            r"Cuda failure (?:2 )?'out of memory'",
            r"(?:std::bad_alloc|RMM failure)[^\n]{0,60}(?:CUDA|out_of_memory|cuda)",
            r"RESOURCE_EXHAUSTED: (?:Out of memory|OOM)|OOM when allocating tensor",
            r"NVML_SUCCESS == r INTERNAL ASSERT FAILED",
            r"unable to allocate CUDA\d* buffer",
            r"CUDA driver error: out of memory",
            r"Cuda error[^\n]{0,60}: out of memory",
            r"CUDA-?\w* ?(?:buffer|memory)[^\n]{0,30}allocation[^\n]{0,20}failed|cudaMalloc failed: out of memory",
            r"Error Code \d+: (?:OutOfMemory|Out ?Of ?Memory)",
            r"Failed to CUDA (?:malloc|calloc)",
        ),
        (GPU_FULL, GPU_TAKEN, FRAGMENTS, UNIFIED_FULL),
        more=SMI,
    ),
    Rule(
        "library-memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        (
            r"_STATUS_ALLOC_FAILED",  # cuBLAS, cuDNN before 9, cuSOLVER, cuSPARSE, hipBLAS
            r"CUFFT_ALLOC_FAILED",
            r"_DEVICE_ALLOCATION_FAILED",  # cuDNN since 9
            r"Unable to find a valid cuDNN algorithm to run convolution",
        ),
        (GPU_FULL, LIBRARIES_MIXED, EARLIER_KERNEL),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "gpu-memory-or-libraries",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        (
            r"CUBLAS_STATUS_NOT_INITIALIZED",
            r"CUDNN_STATUS_NOT_INITIALIZED",
            r"Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize",
            r"Blas GEMM launch failed",
            r"CUSOLVER_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED)|cusolver error:? ?7, when calling",
            r"CUSPARSE_STATUS_NOT_INITIALIZED",
        ),
        (
            GPU_FULL,
            LIBRARIES_MIXED,
            replace(EARLIER_KERNEL, given=unless_text_has(r"CUDNN")),
            TORCH_BUILD,
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "pinned-memory",
        "could not allocate pinned host memory of size: 966367744",
        (
            r"could not allocate pinned host memory",
            r"failed to alloc(?:ate)? \d+ bytes (?:on|of|from) (?:unified |pinned |the )?host",
            r"cudaHost(?:Alloc|Register)[^\n]{0,60}(?:fail|error|out of memory)",
            r"(?:allocat|pin)\w*[^\n]{0,40}\b(?:pinned|page-locked) (?:host )?memory[^\n]{0,40}(?:fail|error)",
            r"(?:fail|error|unable|cannot)[^\n]{0,60}\b(?:pinned|page-locked) (?:host )?memory",
        ),
        (
            Cause(
                "pinned-memory",
                "No more of the machine's memory can be pinned for the GPU: it is full, or the container may lock "
                "too little.",
                "Use `pin_memory=False` or smaller batches, or start the container with `--ulimit memlock=-1`; in "
                "WSL, give it more memory in .wslconfig.",
            ),
        ),
        more="`free -h`",
    ),
    Rule(
        "array-too-large",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.3 GiB for an array",
        (r"Unable to allocate ([\d.]+ [KMGTP]iB) for an array",),
        (
            Cause(
                "array-too-large",
                "One array of {0} does not fit into the machine's memory.",
                "Read the data in parts (`numpy.memmap`, a DataLoader), or use a smaller dtype.",
            ),
        ),
        more="`free -h`",
        program=True,
    ),
    Rule(
        "host-memory-refused",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory",
        (
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"unable to mmap \d+ bytes from file[^\n]{0,120}Cannot allocate memory",
            r"\[Errno 12\] Cannot allocate memory|fork: Cannot allocate memory",
            r"^(?:RuntimeError: )?could not create a primitive$",  # oneDNN; of a primitive descriptor: another cause
        ),
        (HOST_MEMORY,),
        more=OOM,
    ),
    Rule(
        "worker-killed",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",
        (
            r"DataLoader worker \(pid[^)]*\) is killed by signal: ?Killed",
            r"oom-?_?kill(?:er|ed)?\b(?!-disable)(?!\W+(?:false|0\b))",
            r"Out of memory: Killed process",
            r"Memory cgroup out of memory",
            r"worker was killed[^\n]{0,40}(?:out of memory|OOM)",
            r"due to (?:the node running low on memory|memory pressure)",
        ),
        (HOST_MEMORY_WSL, UNIFIED_FULL, HOST_MEMORY, DATASET_COPIES),
        more=OOM,
    ),
    Rule(
        "bad-alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        (r"\bbad_alloc\b", r"^MemoryError"),
        (
            HOST_MEMORY,
            Cause(
                "incompatible-library",
                "A compiled library requested an impossible size. This happens if it was built for another torch or "
                "compiler.",
                "Install that package's release for the installed torch.",
                tell="`free -h` shows plenty of memory",
            ),
            Cause(
                "file-damaged",
                "A file that is read is damaged or truncated.",
                "Download or save the file again.",
                tell="it fails with this file only",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "worker-crashed",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Segmentation fault.",
        (
            r"DataLoader worker \(pid[^)]*\) is killed by signal:\s+(?:Segmentation fault|Aborted|Floating point|"
            r"Illegal)",
            r"exitcode ?: ?-11\b|\(SIGSEGV\)|Signals?\.SIGSEGV",
            r"terminated with signal (?:SIGSEGV|11\b)",
        ),
        (
            CRASH,
            SHM_FULL,
            Cause(
                "threads-in-workers",
                "A library that uses threads of its own, such as OpenCV, crashes in forked workers.",
                'Call `cv2.setNumThreads(0)` and `torch.set_num_threads(1)`, or pass `multiprocessing_context="spawn"` '
                "to the DataLoader.",
                tell="it works with `num_workers=0`",
                given=text_has(r"\bcv2\b|opencv|set_num_threads"),
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "heap-damaged",
        "double free or corruption (!prev)",
        (
            r"^(?!.*(?:nvidia-container|OCI runtime|dockerd)).*double free or corruption",
            r"free\(\): invalid (?:pointer|size|next size)",
            r"munmap_chunk\(\): invalid pointer",
            r"malloc\(\): (?:corrupted|invalid|unsorted|memory corruption)",
            r"corrupted (?:size vs\. prev_size|double-linked list)",
        ),
        (
            Cause(
                "heap-damaged",
                "A compiled library damaged the process's memory, usually because two packages contain different "
                "versions of the same library.",
                "Import torch first, then leave out other packages one by one; `python -X faulthandler` prints the "
                "line.",
            ),
        ),
        level=GENERAL,
        more=VERIFY,
    ),
    Rule(
        "worker-gone",
        "RuntimeError: DataLoader worker (pid(s) 25) exited unexpectedly",
        (
            r"DataLoader worker \(pid\(?s?\)?[^)]*\) exited unexpectedly",
            r"Pin memory thread exited unexpectedly",
            r"background workers (?:are|is) no longer alive",
        ),
        (
            HOST_MEMORY,
            SHM_FULL,
            Cause(
                "worker-crashed",
                'The worker crashed, or the program starts workers without `if __name__ == "__main__":`.',
                "Run with `num_workers=0`, which shows the error itself.",
                tell="`num_workers=0` fails too",
            ),
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "worker-ended",
        "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated.",
        (r"DataLoader worker \(pid [^)]*\) is killed by signal: (?:Terminated|Interrupt|Hangup)",),
        (
            Cause(
                "main-process-failed",
                "The program itself, or another of its processes, failed first; its workers were ended with it.",
                "Find the first error above this line.",
                tell="there is an earlier traceback",
            ),
            HOST_MEMORY,
            STOPPED,
        ),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "worker-slow",
        "RuntimeError: DataLoader timed out after 120 seconds",
        (r"DataLoader timed out after",),
        (
            Cause(
                "loader-timeout",
                "The data loader's workers did not return a batch in time: the disk or network is slow, there are "
                "too few "
                "processors, or a worker hangs in a lock.",
                'Use fewer workers than processors and `multiprocessing_context="spawn"`, or increase `timeout`.',
            ),
        ),
        more="`./launch verify --only loader`",
    ),
    Rule(
        "ended-from-outside",
        "died with <Signals.SIGKILL: 9>",
        (
            r"exit(?:ed|s|ing)?(?: with)?(?: an?| the)?(?: exit| status| return)?[ -](?:code|status):? ?=?\(?137\b",
            r"exitcode ?: ?-9\b|return code ?[=:] ?-9\b|exit code:? -9\b|exited with code -9\b",
            r"Signal 9 \(SIGKILL\)",
            r"line \d+:\s+\d+ Killed\b",
            r"\(code: 137\b",
            r"terminated with signal (?:SIGKILL|9\b)",
            r"^Killed$|\) Killed\b|\d+ Killed +(?:python|\S+/python)",
            r"(?:died with|terminated by|got|signal:?) <?(?:Signals\.)?(?:SIGKILL|signal 9)",
            r"signal: killed|Terminated with signal 9",
            r"^\S*sh: killed\b",
            r"^make(?:\[\d+\])?: \*\*\* \[[^\]\n]*\] Error 137\b",
        ),
        (HOST_MEMORY_WSL, UNIFIED_FULL, HOST_MEMORY, STOPPED),
        level=BROAD,
        more=VERIFY,
    ),
    Rule(
        "hangup",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1",
        (r"got signal: 1\b", r"Received 1 death signal", r"\(SIGHUP\)"),
        (
            Cause(
                "terminal-closed",
                "The terminal or SSH connection was closed, which ended the training.",
                "Start it in the background with `./launch run -d -- ...`, or in tmux.",
                standalone="Start it in tmux, or with `nohup`.",
            ),
        ),
        program=True,
        more=VERIFY,
    ),
    Rule(
        "stopped",
        "SignalException: Process 4242 got signal: 15",
        (r"got signal: (?:15|2)\b", r"DUE TO TIME LIMIT", r"Received (?:15|2) death signal"),
        (STOPPED,),
        more="`docker events --since 1h`",
        program=True,
    ),
    Rule(
        "threads",
        "RuntimeError: can't start new thread",
        (
            r"can't start new thread",
            r"pthread_create failed",
            r"what\(\): +Resource temporarily unavailable",
            r"fork: retry: Resource temporarily unavailable",
            r"libgomp: Thread creation failed",
            r"uv_thread_create",
            r"(?:fork|Popen|start_new)[\s\S]{0,300}BlockingIOError: \[Errno 11\] Resource temporarily unavailable",
            r"unable to create (?:new native )?thread",
        ),
        (
            Cause(
                "process-limit",
                "The limit on processes or threads of the user or container is reached.",
                "Use fewer workers, set `OMP_NUM_THREADS=1`, or raise the limit (`ulimit -u`, `--pids-limit`).",
            ),
            Cause(
                "docker-older-than-image",
                "This Docker is older than the image's system: its seccomp profile blocks newer system calls.",
                "Update Docker (20.10.10 or newer).",
                tell="it fails immediately, in any program of the image",
                given=CONTAINER & text_has(r"pthread_create|can't start new thread|OpenBLAS|apt|libgomp"),
            ),
            HOST_MEMORY,
        ),
        more=VERIFY,
    ),
    Rule(
        "locked-memory",
        "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        (
            r"ibv_reg_mr\w*[^\n]{0,60}(?:failed|Cannot allocate memory)",
            r"ibv_create_(?:cq|qp)[^\n]{0,40}Cannot allocate memory",
            r"RLIMIT_MEMLOCK",
            r"(?:mlock|Memory lock)[^\n]{0,40}(?:failed|Cannot allocate)",
        ),
        (
            Cause(
                "memlock-limit",
                "The container may lock too little memory for RDMA or pinned memory.",
                "Add `--ulimit memlock=-1` to runArgs of devcontainer.json, or to `docker run`.",
            ),
        ),
        more=VERIFY,
    ),
    Rule(
        "socket-path",
        "OSError: AF_UNIX path too long",
        (r"AF_UNIX path too long",),
        (
            Cause(
                "socket-path",
                "The path of the temporary folder is too long for the sockets that are created in it.",
                "Set `TMPDIR=/tmp`.",
            ),
        ),
        certain=True,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "memory-out",
        "RuntimeError: out of memory",
        (
            r"(?<!run )\bout of memory\b|\bOOM\b(?! killer due to high| command not)",
            r"(?<!java\.lang\.)\b\w*OutOfMemory(?:Error)?\b",
            r"(?:cannot|can't) allocate memory\b(?! in static TLS)|\bnot enough memory\b",
        ),
        (GPU_FULL, HOST_MEMORY),
        more=SMI,
        level=GENERAL,
    ),
    Rule(
        "worker-raised",
        "RuntimeError: Caught KeyError in DataLoader worker process 0.",
        (r"Caught (\w+) in (?:DataLoader worker|replica|pin memory)",),
        (
            Cause(
                "worker-raised",
                "The program's own code raised {0} in a data loader worker; the original traceback is below that line.",
                "Run with `num_workers=0` to see it directly, and correct the dataset's code or data.",
            ),
        ),
        level=GENERAL,
        program=True,
        more=VERIFY,
    ),
    Rule(
        "unified-memory-table",
        "| N/A   36C    P8              3W /  N/A  | Not Supported          |      0%      Default |",
        (r"\| *Not Supported *\| +(?:\d+%|N/A) ",),
        (UNIFIED_FIGURES,),
        level=NOTE,
        more="`free -h`",
    ),
    Rule(
        "shm-note",
        "NOTE: The SHMEM allocation limit is set to the default of 64MB.",
        (r"SHMEM allocation limit is set to the default of",),
        (
            Cause(
                "shm-note",
                "This is only a note: the container has Docker's 64 MB of shared memory, which is too little for "
                "data loader workers.",
                "Start the container with `./launch`, or with `docker run --ipc=host ...`.",
                standalone="Start the container with `docker run --ipc=host ...`.",
            ),
        ),
        level=NOTE,
        more=VERIFY,
    ),
)
