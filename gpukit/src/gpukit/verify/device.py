"""The GPU: whether torch finds it, whether it is a target of the project, whether torch has kernels for it."""

from __future__ import annotations

from typing import Any

from gpukit.errors.known import known_cause
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.kernels import from_arch_list, runs
from gpukit.host.memory import CAP, usual
from gpukit.project.stack import Stack, version
from gpukit.verify.remedies import DOCTOR, START, UPDATE
from gpukit.verify.torch_errors import BUSY, ECC, MEMORY_TAKEN, cause_ids

NO_GPU_REQUESTED = "No GPU was requested (`--cpu`), or the project has none."

HIDDEN = Cause(
    "gpu-hidden",
    "This variable hides every GPU.",
    "`unset CUDA_VISIBLE_DEVICES`",
    error_texts=("CUDA_VISIBLE_DEVICES", "No CUDA GPUs are available"),
)
NOT_GIVEN = Cause(
    "gpu-not-given",
    "The container was started without a GPU.",
    DOCTOR,
    error_texts=(
        "Found no NVIDIA driver on your system",
        "No CUDA GPUs are available",
        "nvidia-smi: command not found",
    ),
)
DEVICE_DENIED = Cause(
    "device-denied",
    "The container has the GPU's device files, but this user has no permission to open them.",
    "On the host: `ls -l {node}` shows their owner; on a Jetson, add its groups with `--group-add`",
    error_texts=("NvRmMemInitNvmap failed with Permission denied", "Insufficient Permissions"),
)
PROHIBITED = Cause(
    "gpu-mode-prohibited",
    "Compute is disabled on this GPU (compute mode PROHIBITED).",
    "On the host: `sudo nvidia-smi -c DEFAULT`",
)
NO_LIBRARY = Cause(
    "driver-library-not-given",
    "The container has the device but not the driver's CUDA library: `compute` is not in "
    "NVIDIA_DRIVER_CAPABILITIES, or the Container Toolkit is not fully configured.",
    DOCTOR,
    error_texts=("libcuda.so.1: cannot open shared object file",),
)
FABRIC = Cause(
    "fabric-manager",
    "The NVSwitch that connects this machine's GPUs is not ready: Fabric Manager is not running.",
    "On the host: `sudo systemctl start nvidia-fabricmanager`",
    error_texts=("Error 802: system not yet initialized",),
)
MISMATCH = Cause(
    "driver-updated",
    "The driver was updated, but this container or the host's kernel still uses the old version.",
    "Restart the container; if that does not help, restart the host.",
    error_texts=(
        "Error 803: system has unsupported display driver / cuda driver combination",
        "Driver/library version mismatch",
    ),
)
COMPATIBILITY = Cause(
    "cuda-compat-geforce",
    "CUDA's forward-compatibility libraries are in use, but this GPU does not support them.",
    "On the host: install the driver that `./launch doctor` names",
    error_texts=("Error 804: forward compatibility was attempted on non supported HW",),
)
OLD_DRIVER = Cause(
    "driver-too-old",
    "The host's driver is too old for this torch's version of CUDA.",
    "On the host: install the driver that `./launch doctor` names",
    error_texts=(
        "The NVIDIA driver on your system is too old",
        "CUDA driver version is insufficient for CUDA runtime version",
    ),
)
GPU_LOST = Cause(
    "container-lost-gpu",
    "The container has lost access to its GPU (as after `systemctl daemon-reload` on the host), or the driver failed.",
    "Restart the container.",
    error_texts=("CUDA unknown error", "Failed to initialize NVML: Unknown Error"),
)
NO_USABLE_GPU = Cause(
    "gpu-not-started",
    "CUDA finds no GPU that it can use.",
    DOCTOR,
    error_texts=("no CUDA-capable device is detected", "invalid device ordinal"),
)
UNKNOWN_FAILURE = Cause("cuda-does-not-start", "CUDA does not start, for an unknown reason.", DOCTOR)
START_FAILURES = (FABRIC, MISMATCH, COMPATIBILITY, OLD_DRIVER, BUSY, ECC, MEMORY_TAKEN, GPU_LOST, NO_USABLE_GPU)
NOT_A_TARGET = Cause(
    "card-not-a-target",
    "This GPU is not a target of the project: settings made for its targets may not fit.",
    UPDATE,
    status=WARN,
)
NO_KERNELS = Cause(
    "no-kernel",
    "This torch has no kernels for this GPU: the first one fails with 'no kernel image is available'.",
    UPDATE,
    error_texts=(
        "no kernel image is available for execution on the device",
        "is not compatible with the current PyTorch installation",
    ),
)
ONLY_PTX = Cause(
    "only-ptx",
    "This torch has only PTX for this GPU: the driver compiles each kernel at first use, which takes minutes.",
    UPDATE,
    status=WARN,
)
OLD_PTXAS = Cause(
    "ptxas-too-old",
    "Triton's assembler (ptxas) does not support this GPU, and torch.compile needs it.",
    "On the host: `./launch update`, for a base whose Triton supports it",
    error_texts=(
        "ptxas fatal : Value 'sm_121a' is not defined for option 'gpu-name'",
        "is not defined for option 'gpu-name'",
    ),
)
FREEZES = "too large an allocation freezes the machine."
NO_CAP = Cause(
    "memory-cap-missing",
    f"CPU and GPU share their memory, and nothing limits PyTorch's part of it: {FREEZES}",
    START + ", which set PYTORCH_ALLOC_CONF. Elsewhere: `export PYTORCH_ALLOC_CONF=per_process_memory_fraction:{most}`",
    status=WARN,
    standalone="`export PYTORCH_ALLOC_CONF=per_process_memory_fraction:{most}`",
)
CAP_OVERRIDDEN = Cause(
    "memory-cap-overridden",
    "PYTORCH_CUDA_ALLOC_CONF takes precedence over PYTORCH_ALLOC_CONF, which limits PyTorch's part of the memory that "
    f"CPU and GPU share: without a limit, {FREEZES}",
    "`unset PYTORCH_CUDA_ALLOC_CONF`, or add `per_process_memory_fraction:{most}` to it",
    status=WARN,
)
CAP_NOT_POSSIBLE = Cause(
    "memory-cap-not-possible",
    "CPU and GPU share their memory, and this torch cannot be limited by a variable: only training with gpukit limits "
    f"itself. Elsewhere, {FREEZES}",
    "On the host: `./launch update --answers release=current`, or call "
    "`torch.cuda.set_per_process_memory_fraction({most})` at the start of each program",
    status=WARN,
    standalone="Install torch 2.10 or newer, or call `torch.cuda.set_per_process_memory_fraction({most})` at the start "
    "of each program.",
)
# torch compares the capability with the highest that it was compiled for, but code for 12.0 runs on 12.1.
HARMLESS = "torch's warning about its maximum capability is harmless: code for {have} runs on {own}"


def on_cpu(probes: Any, stack: Stack) -> bool:
    """Whether this container is meant to run without a GPU."""
    return probes.environment.get("GPUKIT_DEVICE") == "cpu" or stack.cuda is None or not stack.gpu


@check(
    "gpu",
    "GPU",
    needs=("import", "cuda"),
    causes=(HIDDEN, NOT_GIVEN, DEVICE_DENIED, NO_LIBRARY, PROHIBITED, *START_FAILURES, UNKNOWN_FAILURE),
)
def gpu(probes: Any, stack: Stack) -> Finding:
    """torch finds a GPU; if not, the step between the host and CUDA at which access to it fails."""
    if on_cpu(probes, stack):
        return skipped(NO_GPU_REQUESTED)
    found = probes.devices.found
    if found:
        seen = ", ".join(device.name for device in found)
        there = len(probes.smi.cards)
        return passed(f"{seen}; {len(found)} of {there} on this machine" if len(found) < there else seen)
    message = probes.devices.message
    chosen = probes.environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and (not chosen.strip() or chosen.strip().startswith("-")):
        return HIDDEN(f"CUDA_VISIBLE_DEVICES={chosen!r}", "a GPU")
    if not probes.gpu_nodes:
        return NOT_GIVEN("no GPU device in /dev", "a GPU")
    if probes.inaccessible_nodes:
        return DEVICE_DENIED(
            f"{', '.join(probes.inaccessible_nodes)}: permission denied", "a GPU", node=probes.inaccessible_nodes[0]
        )
    if not probes.cuda_library:
        return NO_LIBRARY("libcuda.so.1 does not load", "a GPU")
    if any(card.mode == "Prohibited" for card in probes.smi.cards):
        return PROHIBITED(message or "none", "a GPU")
    starting = {cause.id: cause for cause in START_FAILURES}
    for name in cause_ids(message):
        if name in starting:
            return starting[name](message, "a GPU")
    return known_cause(message, UNKNOWN_FAILURE)(message or "none", "a GPU")


def skipped_without_gpu(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if there is no GPU."""
    if probes.devices.found:
        return None
    return skipped(NO_GPU_REQUESTED if on_cpu(probes, stack) else "There is no GPU.")


@check("card", "Target GPU", needs=("gpu",), causes=(NOT_A_TARGET,))
def card(probes: Any, stack: Stack) -> Finding:
    """The compute capability is that of one of the project's targets."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    seen = ", ".join(f"{device.name} ({device.capability})" for device in probes.devices.found)
    expected = "compute capability " + " or ".join(stack.capabilities)
    if all(device.capability in stack.capabilities for device in probes.devices.found):
        return passed(seen, expected)
    return NOT_A_TARGET(seen, expected)


@check("cap", "Unified memory", needs=("gpu",), causes=(NO_CAP, CAP_OVERRIDDEN, CAP_NOT_POSSIBLE))
def cap(probes: Any, stack: Stack) -> Finding:
    """Where CPU and GPU share their memory: how much of it torch's allocator may use in one process."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    shared = [device for device in probes.devices.found if device.shared]
    if not shared:
        return skipped("The GPU has its own memory.")
    share, most = max(device.fraction for device in shared), stack.memory.fraction or usual()
    seen, expected = f"up to {share:.0%} for each process", f"at most {most:.0%}"
    if share <= most + 0.005:
        return passed(seen, expected)
    if CAP not in probes.environment.get("PYTORCH_CUDA_ALLOC_CONF", CAP):
        return CAP_OVERRIDDEN(seen, expected, most=most)
    if version(probes.torch.version) < (2, 10) or (
        version(probes.torch.version) < (2, 11) and not stack.memory.allocator_cap
    ):
        return CAP_NOT_POSSIBLE(f"{seen}; torch {probes.torch.version}", expected, most=most)
    return NO_CAP(seen, expected, most=most)


@check("kernels", "Kernels", needs=("gpu",), causes=(NO_KERNELS, ONLY_PTX))
def kernels(probes: Any, stack: Stack) -> Finding:
    """Compiled code (SASS) runs on its own major version; the driver compiles PTX at first use; nothing else runs.
    torch warns if the GPU is newer than its newest kernels, such as GB10 (12.1). With compiled code of the same major
    version, that warning is harmless."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    sass, ptx = from_arch_list(list(probes.devices.arch_list))
    seen = " ".join(probes.devices.arch_list) or "none"
    how = {device: runs(device.capability, sass, ptx) for device in probes.devices.found}
    for device, kind in how.items():
        if kind is None:
            return NO_KERNELS(seen, f"kernels for {device.capability} ({device.name})")
    for device, kind in how.items():
        if kind == "ptx":
            return ONLY_PTX(seen, f"compiled kernels for {device.capability} ({device.name})")
    if "cuda capability" in probes.devices.message.lower():
        own = probes.devices.found[0].capability
        have = [name for name in sass if runs(own, (name,), ())]
        seen += f"; {HARMLESS.format(have=have[-1] if have else own, own=own)}"
    return passed(seen)


@check("ptxas", "Triton assembler", needs=("gpu",), causes=(OLD_PTXAS,))
def ptxas(probes: Any, stack: Stack) -> Finding:
    """torch.compile passes PTX to ptxas, which must support the GPU even if torch has kernels for it."""
    if missing := skipped_without_gpu(probes, stack):
        return missing
    if probes.assembler is None:
        return skipped("There is no Triton with its own assembler.")
    path, known_cause = probes.assembler
    own = probes.devices.found[0].capability.replace(".", "")
    if not known_cause:
        return skipped("It does not list the architectures that it supports.", path)
    needed = f"sm_{own}a" if int(own[:-1]) >= 9 else f"sm_{own}"  # what Triton requests: from Hopper on, with an `a`
    if needed in known_cause or (f"sm_{own}" in known_cause and int(own[:-1]) < 10):
        return passed(f"{needed}, by {path}")
    return OLD_PTXAS(f"{path} supports up to {known_cause[-1]}", needed)
