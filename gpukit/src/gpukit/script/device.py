"""The device, the number format for it, and how much memory it has."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import torch

from exactrun.vector_math import settle
from gpukit.host import limits
from gpukit.host.limits import Budget as Budget
from gpukit.project.stack import StackError, load

settle()
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
# torch.cuda.is_bf16_supported() counts emulation.
TENSOR_CORES = (7, 0)  # the first compute capability with them
BF16 = (8, 0)  # and with bfloat16 and TF32


@dataclass(frozen=True)
class Device:
    """Where and how to compute; `choose` returns one.

    `dtype`: for autocast; float32 disables it. `line`: for the user, what was chosen.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    memory_format: torch.memory_format = torch.contiguous_format
    line: str = ""


def choose(*, device: str = "auto", dtype: str = "auto", local_rank: int = 0, scaled: bool = True) -> Device:
    """Choose the device, and the number format that it computes fast.

    `device`: auto, cpu, or cuda. `dtype`: auto, fp32, bf16, or fp16. `local_rank`: the index of this process's GPU on
    this machine. `scaled`: the script scales its loss, without which fp16 loses small gradients. Raises SystemExit with
    one sentence if the device does not support a setting.
    """
    place, where = _place(device, local_rank)
    capability = torch.cuda.get_device_capability(place) if place.type == "cuda" else None
    if dtype == "fp16" and not scaled:
        raise SystemExit("fp16 needs a gradient scaler, which this loop does not have: use bf16 or fp32.")
    number = DTYPES[fastest(capability, scaled) if dtype == "auto" else dtype]
    line = f"Training on {where}: {str(number).removeprefix('torch.')}"
    if capability is None:
        return Device(place, number, line=f"{line}.")
    if number == torch.bfloat16 and capability < BF16:
        what = "a GPU of compute capability {}.{}".format(*capability)
        raise SystemExit(f"bfloat16 is not supported by {what}, only slowly emulated: use fp16 or auto.")
    # Channels-last is worth it where tensor cores compute convolutions.
    fast = capability >= BF16 or number == torch.float16
    line += f", compute capability {capability[0]}.{capability[1]}"
    line += f"{', TF32' * (capability >= BF16)}{', channels-last' * fast}."
    return Device(place, number, torch.channels_last if fast else torch.contiguous_format, line)


def fastest(capability: tuple[int, int] | None, scaled: bool) -> str:
    """The number format that a GPU computes fastest; None: the CPU."""
    if capability is None or capability < TENSOR_CORES:
        return "fp32"
    if capability >= BF16:
        return "bf16"
    return "fp16" if scaled else "fp32"


def _place(device: str, local_rank: int) -> tuple[torch.device, str]:
    """The device, and its name for the user."""
    cpu = torch.device("cpu")
    if device == "cpu":
        return cpu, "the CPU"
    if device == "auto" and os.environ.get("GPUKIT_DEVICE") == "cpu":  # the CPU configuration, and `./launch --cpu`
        return cpu, "the CPU, as requested"
    if not torch.cuda.is_available():
        if device == "cuda":
            raise SystemExit("PyTorch finds no GPU: run `./launch doctor` to find out why, or train with --device cpu.")
        why = "run `./launch doctor` to find out why" if torch.version.cuda else "this is a CPU build of PyTorch"
        return cpu, f"the CPU, since PyTorch finds no GPU ({why})"
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise SystemExit(f"PyTorch finds {count} GPU{'s' * (count > 1)}: start at most one process per GPU.")
    place = torch.device("cuda", local_rank)
    return place, f"{torch.cuda.get_device_name(place)} ({place})"


def budget(device: torch.device) -> Budget:
    """How much more memory this process may allocate for tensors, including what its allocator has cached.

    A GPU with its own memory: cudaMemGetInfo, which knows MIG slices, and the fraction set for this process. Unified
    memory: cudaMemGetInfo counts the page cache as used, and too large an allocation triggers the kernel's OOM killer;
    so what the kernel reports as available, or the cgroup's limit, minus a reserve. The CPU: the same.
    Source: https://docs.nvidia.com/dgx/dgx-spark/known-issues.html
    """
    if device.type != "cuda":
        return limits.host_memory()
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    cached = torch.cuda.memory_reserved(device)
    bounds = [Budget(free + cached - held, total, "cudaMemGetInfo")]
    if unified(device):
        bounds = [Budget(min(one.free + cached - held, total), total, one.how) for one in limits.memory()]
    share = torch.cuda.get_per_process_memory_fraction(device)
    if share < 1:
        bounds.append(Budget(int(share * total) - held, total, f"the limit of {share:.0%} for this process"))
    return min(bounds, key=lambda bound: bound.free)


def unified(device: torch.device) -> bool:
    """Whether the CPU and the GPU share their memory, as on a DGX Spark or a Jetson."""
    return device.type == "cuda" and bool(torch.cuda.get_device_properties(device).is_integrated)


def limit(device: torch.device) -> None:
    """On unified memory, limit this process's allocations, to at most `memory.fraction` of stack.json.

    With a limit, too large a batch is an error that can be handled; without one, the kernel kills the process, or the
    machine freezes.
    """
    if not unified(device):
        return
    most = 1.0
    with contextlib.suppress(StackError):
        most = load().memory.fraction or 1.0
    bound = budget(device)
    share = (bound.free + torch.cuda.memory_allocated(device)) / bound.total
    torch.cuda.set_per_process_memory_fraction(max(0.0, min(share, most)), device)
