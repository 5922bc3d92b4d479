"""Memory of GPU and machine, shared memory, and limits on processes and files."""

from __future__ import annotations

from gpukit.errors.rule import BROAD, GENERAL, HOST, NOTE, VERIFY, Rule
from gpukit.findings.finding import Cause

OOM = "sudo dmesg | grep -i 'out of memory'"

RULES = (
    Rule(
        "open-files",
        "OSError: [Errno 24] Too many open files",
        (r"Too many open files", r"received 0 items of ancdata"),
        (
            Cause(
                "open-files",
                "More files are open than this process may have, often by DataLoader workers that share tensors.",
                "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system').",
            ),
        ),
        look=VERIFY,
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
        (
            Cause(
                "shared-memory",
                "The container's shared memory (/dev/shm) is full, through which the DataLoader's workers and NCCL hand over "
                "data.",
                "Start with ./launch, which gives it more than Docker's 64 MB, or take fewer workers.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "shared-object-gone",
        "RuntimeError: unable to open shared memory object </torch_4242_99>: No such file or directory (2)",
        (r"unable to open shared memory object[^\n]{0,120}No such file or directory",),
        (
            Cause(
                "shared-object-gone",
                "A piece of shared memory was gone before the other process opened it: the one that made it had ended, or "
                "the sharing strategy file_system took it away too early.",
                "Look for the first error above; torch.multiprocessing.set_sharing_strategy('file_descriptor') and a larger "
                "ulimit -n.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "shared-object",
        "RuntimeError: unable to open shared memory object </torch_4242_99> in read-write mode",
        (r"unable to open shared memory object",),
        (
            Cause(
                "shared-object",
                "A process could not open a piece of shared memory: more files are open than it may have, or /dev/shm is full.",
                "ulimit -n 65536, or torch.multiprocessing.set_sharing_strategy('file_system'); start with ./launch, which "
                "gives more of both.",
            ),
        ),
        look=VERIFY,
    ),
    # about: A piece of memory that belongs to a file could not be filled.
    Rule(
        "bus-error",
        "Bus error (core dumped)",
        (
            r"Bus error \(core dumped\)|^Bus error$|Fatal Python error: Bus error",
            r"exitcode ?: ?-7\b|\(SIGBUS\)",
        ),
        (
            Cause(
                "bus-error-1",
                "The container's shared memory (/dev/shm) is full.",
                "df -h /dev/shm .",
                tell="df -h /dev/shm while it runs; start with ./launch, which gives more than Docker's 64 MB",
            ),
            Cause("bus-error-2", "The disk is full.", "df -h /dev/shm .", tell="df -h"),
            Cause(
                "bus-error-3",
                "A file was cut short or its network drive broke off while it was read.",
                "df -h /dev/shm .",
                tell="it fails at the same file each time",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "semaphores",
        "_multiprocessing.SemLock: [Errno 13] Permission denied",
        (r"SemLock[\s\S]{0,200}(?:Permission denied|Function not implemented)",),
        (
            Cause(
                "semaphores",
                "Processes cannot share locks here: /dev/shm is missing or closed to this user.",
                "Start with ./launch; in an image of your own, /dev/shm has to be writable for all.",
            ),
        ),
        look=VERIFY,
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
                "The machine's memory ran out while something was compiled, by too many compilers at a time.",
                "MAX_JOBS=2 before the command, or a built wheel.",
            ),
        ),
        look=OOM,
    ),
    Rule(
        "heads-per-gpu",
        "ValueError: Total number of attention heads (28) must be divisible by tensor parallel size (8).",
        (r"must be divisible by (?:the )?tensor[ _]parallel(?:[ _]size)?",),
        (
            Cause(
                "heads-per-gpu",
                "The model's attention heads cannot be shared out evenly among that many GPUs.",
                "A number of GPUs (tensor parallel size) that divides the number which is named.",
            ),
        ),
        look=VERIFY,
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
                "memory-of-engine",
                "The model leaves too little of the GPU's memory for its cache, or another process holds it.",
                "A shorter max_model_len; `nvidia-smi` shows who else is there.",
            ),
        ),
        look="nvidia-smi",
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
        (
            Cause(
                "gpu-memory-full",
                "The GPU's memory is full: the batch is too large, or another process holds some of it.",
                "Halve the batch size; `nvidia-smi` shows who else is there.",
            ),
        ),
        look="nvidia-smi",
    ),
    # about: One of CUDA's libraries could not start.
    Rule(
        "gpu-memory-or-libraries",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        (
            r"CUBLAS_STATUS_NOT_INITIALIZED",
            r"CUDNN_STATUS_NOT_INITIALIZED",
            r"CUDNN_STATUS_ALLOC_FAILED",
            r"Failed to get convolution algorithm\. This is probably because cuDNN failed to initialize",
            r"Blas GEMM launch failed",
            r"CUSOLVER_STATUS_(?:INTERNAL_ERROR|NOT_INITIALIZED|ALLOC_FAILED)|cusolver error:? ?7, when calling",
            r"CUSPARSE_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)",
            r"CUBLAS_STATUS_ALLOC_FAILED",
            r"Unable to find a valid cuDNN algorithm to run convolution",
        ),
        (
            Cause(
                "gpu-memory-or-libraries-1",
                "The GPU's memory is full.",
                "`./launch verify` tells whether the libraries are the base's; then half the batch.",
                tell="nvidia-smi shows it; a smaller batch works",
            ),
            Cause(
                "gpu-memory-or-libraries-2",
                "Two versions of the library are mixed, or it does not fit card or driver.",
                "`./launch verify` tells whether the libraries are the base's; then half the batch.",
                tell="the smallest product fails too; `./launch verify` fails",
            ),
            Cause(
                "gpu-memory-or-libraries-3",
                "An earlier kernel failed, often by a label or token id out of range.",
                "`./launch verify` tells whether the libraries are the base's; then half the batch.",
                tell="CUDA_LAUNCH_BLOCKING=1 names another line; on the CPU it is an IndexError",
            ),
            Cause(
                "gpu-memory-or-libraries-4",
                "On a Jetson: this user may not open the GPU's devices.",
                "`./launch verify` tells whether the libraries are the base's; then half the batch.",
                tell="it works as root; the groups video and render",
            ),
        ),
        look=VERIFY,
        level=BROAD,
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
                "No more of the machine's memory can be pinned for the GPU: it is full, or the container may lock too little.",
                "pin_memory=False or smaller batches; --ulimit=memlock=-1 in runArgs of devcontainer.json.",
            ),
        ),
        look="free -h",
    ),
    Rule(
        "array-too-large",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.3 GiB for an array",
        (r"Unable to allocate ([\d.]+ [KMGTP]iB) for an array",),
        (
            Cause(
                "array-too-large",
                "One array of {0} does not fit into the machine's memory.",
                "Read the data in parts (numpy.memmap, a DataLoader), or a smaller type.",
            ),
        ),
        look="free -h",
    ),
    Rule(
        "worker-killed",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed.",
        (
            r"DataLoader worker \(pid[^)]*\) is killed by signal: ?Killed",
            r"oom-?_?kill(?:er|ed)?\b(?!-disable)(?!\W+(?:false|0\b))",
            r"Out of memory: Killed process",
            r"Memory cgroup out of memory",
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",
            r"unable to mmap \d+ bytes from file[^\n]{0,120}Cannot allocate memory",
            r"\[Errno 12\] Cannot allocate memory|fork: Cannot allocate memory",
            r"worker was killed[^\n]{0,40}(?:out of memory|OOM)",
            r"due to (?:the node running low on memory|memory pressure)",
        ),
        (
            Cause(
                "worker-killed",
                "The machine's memory (not the GPU's) ran out, and the system ended a process or refused more.",
                "Fewer DataLoader workers, or smaller samples held in memory.",
            ),
        ),
        look=OOM,
    ),
    # about: A program asked for more of the machine's memory than it was given.
    Rule(
        "bad-alloc",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        (
            r"std::bad_alloc",
            r"^MemoryError",
        ),
        (
            Cause(
                "bad-alloc-1",
                "The machine's memory, or the container's share of it, is full.",
                "free -h while it runs",
                tell="free -h shows it; fewer workers, smaller samples",
            ),
            Cause(
                "bad-alloc-2",
                "A compiled library asked for a size that makes no sense, as one built for another torch or compiler does.",
                "free -h while it runs",
                tell="free -h shows plenty: that package's release for this torch",
            ),
            Cause(
                "bad-alloc-3",
                "A file that was read is damaged.",
                "free -h while it runs",
                tell="it fails with that file only",
            ),
        ),
        look=OOM,
        level=BROAD,
    ),
    Rule(
        "worker-crashed",
        "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Segmentation fault.",
        (
            r"DataLoader worker \(pid[^)]*\) is killed by signal:\s+(?:Segmentation fault|Aborted|Floating point)",
            r"exitcode ?: ?-11\b|\(SIGSEGV\)|Signals?\.SIGSEGV",
            r"terminated with signal (?:SIGSEGV|11\b)",
        ),
        (
            Cause(
                "worker-crashed",
                "A compiled library crashed in that process.",
                "With num_workers=0 and python -X faulthandler it names the line; often two packages bring the same library.",
            ),
        ),
        look=VERIFY,
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
                "A compiled library damaged the process's memory: mostly two packages bring the same library in different "
                "versions.",
                "import torch first; then without the packages one by one: python -X faulthandler names where it stands.",
            ),
        ),
        look=VERIFY,
    ),
    # about: A worker that loads data ended without a word of its own.
    Rule(
        "worker-gone",
        "RuntimeError: DataLoader worker (pid(s) 25) exited unexpectedly",
        (
            r"DataLoader worker \(pid\(?s?\)?[^)]*\) exited unexpectedly",
            r"Pin memory thread exited unexpectedly",
            r"background workers (?:are|is) no longer alive",
        ),
        (
            Cause("worker-gone-1", "Memory ran out.", "num_workers=0", tell="sudo dmesg | grep -i 'out of memory'"),
            Cause(
                "worker-gone-2",
                "Shared memory ran out.",
                "num_workers=0",
                tell="df -h /dev/shm; `./launch verify` measures it",
            ),
            Cause(
                "worker-gone-3",
                'It crashed, or the program lacks if __name__ == "__main__".',
                "num_workers=0",
                tell="num_workers=0 shows the error itself",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    # about: A worker that loads data was told to end.
    Rule(
        "worker-ended",
        "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated.",
        (r"DataLoader worker \(pid [^)]*\) is killed by signal: (?:Terminated|Interrupt|Hangup)",),
        (
            Cause(
                "worker-ended-1",
                "The program itself, or another of its processes, failed before.",
                "Look for the first error above this line: a worker is ended when its program ends.",
                tell="the first error further up",
            ),
            Cause(
                "worker-ended-2",
                "Memory ran low, and a guard such as earlyoom or systemd-oomd ended it.",
                "Look for the first error above this line: a worker is ended when its program ends.",
                tell="journalctl -u earlyoom -u systemd-oomd; sudo dmesg",
            ),
            Cause(
                "worker-ended-3",
                "A person, `docker stop` or a queue such as Slurm ended it.",
                "Look for the first error above this line: a worker is ended when its program ends.",
                tell="the queue's own log",
            ),
        ),
        look=VERIFY,
        level=BROAD,
    ),
    Rule(
        "worker-slow",
        "RuntimeError: DataLoader timed out after 120 seconds",
        (r"DataLoader timed out after",),
        (
            Cause(
                "worker-slow",
                "The DataLoader's workers do not answer in time: a slow disk or network, too few processors, or a lock that "
                "was held when they were copied.",
                "multiprocessing_context='spawn' avoids the lock; fewer workers than processors.",
            ),
        ),
        look="./launch verify --only loader",
    ),
    # about: The process was ended from outside (SIGKILL).
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
        (
            Cause(
                "ended-from-outside-1",
                "The machine's memory, or the container's share of it, ran out.",
                "sudo dmesg | grep -i 'out of memory'",
                tell="sudo dmesg | grep -i 'out of memory' names it: fewer workers, smaller samples",
            ),
            Cause(
                "ended-from-outside-2",
                "`docker stop`, a scheduler or another process ended it.",
                "sudo dmesg | grep -i 'out of memory'",
                tell="dmesg says nothing; docker events or the scheduler's log does",
            ),
        ),
        look="docker inspect -f '{{.State.OOMKilled}}' with the container's name",
        level=BROAD,
    ),
    Rule(
        "hangup",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4242 got signal: 1",
        (r"got signal: 1\b", r"Received 1 death signal", r"\(SIGHUP\)"),
        (
            Cause(
                "hangup",
                "The terminal was closed, and took the training with it.",
                "./launch run -d -- COMMAND runs it in the background.",
            ),
        ),
        look=HOST,
    ),
    Rule(
        "stopped",
        "SignalException: Process 4242 got signal: 15",
        (r"got signal: (?:15|2)\b", r"DUE TO TIME LIMIT", r"Received (?:15|2) death signal"),
        (
            Cause(
                "stopped",
                "The training was told to stop: by a person, by `docker stop`, or by the machine's own scheduler.",
                "Look who did: the last lines of docker events, or the scheduler's time limit.",
            ),
        ),
        look="docker events --since 1h",
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
                "threads",
                "No more processes or threads may be started: a limit of the container or of the user is reached, or Docker "
                "is too old for the image's system.",
                "Fewer workers; OMP_NUM_THREADS=1; and a current Docker.",
            ),
        ),
        look=VERIFY,
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
                "locked-memory",
                "The container may lock too little memory for RDMA and pinned memory.",
                "--ulimit=memlock=-1 in runArgs of devcontainer.json.",
            ),
        ),
        look=VERIFY,
    ),
    Rule(
        "socket-path",
        "OSError: AF_UNIX path too long",
        (r"AF_UNIX path too long",),
        (
            Cause(
                "socket-path",
                "The folder for temporary files has too long a name for the sockets that are made in it.",
                "TMPDIR=/tmp",
            ),
        ),
        look=VERIFY,
    ),
    # about: Memory ran out.
    Rule(
        "memory-out",
        "RuntimeError: out of memory",
        (r"(?<!run )\bout of memory\b|\bOOM\b(?! killer due to high| command not)",),
        (
            Cause(
                "memory-out-1",
                "The GPU's.",
                "nvidia-smi and free -h while it runs",
                tell="CUDA stands beside it; nvidia-smi shows it full: a smaller batch",
            ),
            Cause(
                "memory-out-2",
                "The machine's, or the container's share of it.",
                "nvidia-smi and free -h while it runs",
                tell="free -h; sudo dmesg | grep -i 'out of memory'",
            ),
        ),
        look="nvidia-smi",
        level=GENERAL,
    ),
    Rule(
        "worker-raised",
        "RuntimeError: Caught KeyError in DataLoader worker process 0.",
        (r"Caught (\w+) in (?:DataLoader worker|replica|pin memory)",),
        (
            Cause(
                "worker-raised",
                "The program's own code raised {0} in a worker; the original traceback stands below that line.",
                "num_workers=0 shows the same without the detour.",
            ),
        ),
        look=VERIFY,
        level=GENERAL,
    ),
    Rule(
        "shm-note",
        "NOTE: The SHMEM allocation limit is set to the default of 64MB.",
        (r"SHMEM allocation limit is set to the default of",),
        (
            Cause(
                "shm-note",
                "A note and no error: the container has Docker's 64 MB of shared memory, too little for DataLoader workers.",
                "Start with ./launch, which gives it more.",
            ),
        ),
        look=VERIFY,
        level=NOTE,
    ),
)
