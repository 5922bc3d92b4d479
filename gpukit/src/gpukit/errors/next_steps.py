"""Where to look if an error text is unknown."""

from __future__ import annotations

import re

MAX_STEPS = 3
ASYNCHRONOUS = r"CUDA error|cudaError|device-side assert|illegal (?:memory access|instruction)|misaligned address"
# Patterns in a text, and where to look for its cause.
STEPS = (
    (
        r"ChildFailedError|exitcode\s*:|multiprocessing\.api:failed|mpirun noticed|Engine core init|srun: error",
        "The first traceback in the whole log, of the process that failed first: the lines here only say that one "
        "failed. "
        "`torchrun --tee 3 --log-dir outputs/ranks` keeps the output of each rank.",
    ),
    (
        r"did not complete successfully: exit code|returned a non-zero code|executor failed running|failed to solve",
        "The output of that build step, above these lines.",
    ),
    (
        r"Command failed: |postCreateCommand|vscode|devcontainer|Shell server|extension host",
        "The engine's or the command's own message, some lines above: VS Code only repeats that it failed.",
    ),
    (
        r"Segmentation fault|SIGSEGV|exit(?:ed)?(?: with)? code:? 139|core dumped|Aborted",
        "The line that was running: `python -X faulthandler` prints it.",
    ),
    (ASYNCHRONOUS, "The call that failed: run it once with `CUDA_LAUNCH_BLOCKING=1`, since CUDA reports errors late."),
    (r"nccl|DistBackendError|ProcessGroup", "NCCL's own log: run it once with `NCCL_DEBUG=INFO`."),
    (
        r"docker|podman|crun|runc|containerd|OCI runtime|nvidia-ctk|nvidia-container",
        "The engine and its access to the GPU: `./launch doctor`",
    ),
    (r"NVRM|modprobe|dmesg|nvidia-smi|nvml|Xid", "The driver's own messages: `sudo dmesg | grep -i -e nvrm -e xid`"),
    (
        r"Traceback|\w+(?:Error|Exception)\b: |\.py\"?[:,] ",
        "The last frame of the traceback that is in a file of yours: it shows the call that failed.",
    ),
    (r"torch|cuda|triton|cudnn|cublas", "PyTorch and the GPU: `./launch verify`"),
    (r"pip|uv |conda|requirement|wheel", "The versions that are installed together: `uv pip check`"),
    (r"", "The machine and its engine: `./launch doctor`"),
    (r"", "PyTorch, the GPU, and the packages: `./launch verify`"),
    (r"", "The web: search for the exact line above, without paths and numbers."),
)


def next_steps(text: str) -> list[str]:
    """The first three steps."""
    return [step for pattern, step in STEPS if re.search(pattern, text, re.IGNORECASE)][:MAX_STEPS]
