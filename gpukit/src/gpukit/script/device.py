"""The device, how to use it and why, and how much memory it has."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import torch

from exactrun.vector_math import settle
from gpukit.host import limits
from gpukit.host.limits import Budget as Budget
from gpukit.project.stack import Stack, StackError, load
from gpukit.script.settings import RunSettings

settle()
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Device:
    """Where and how to compute; `choose` returns one.

    `dtype`: for autocast; float32 disables it. `line`: the text that `describe` returns.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    tf32: bool = False
    channels_last: bool = False
    line: str = ""

    def describe(self) -> str:
        """One line for the user: what was chosen, and why."""
        return self.line

    def use(self) -> None:
        """Make it PyTorch's current device, and set the options for the whole process."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = self.tf32


def choose(
    *,
    device: str = "auto",
    dtype: str = "auto",
    tf32: bool | None = None,
    local_rank: int = 0,
    stack: Stack | None = None,
    scaled: bool = True,
) -> Device:
    """Choose the device and how to use it; "auto" and None are decided from stack.json and the device.

    `device`: auto, cpu, cuda, or cuda:N. `dtype`: auto, fp32, bf16, or fp16. `local_rank`: the index of this process's
    GPU on this machine. `scaled`: the script scales its loss, without which fp16 loses small gradients. Raises
    SystemExit with one sentence if the device does not support a setting. bfloat16 requires compute capability 8.0: on
    older cards, torch.cuda.is_bf16_supported() counts emulation. Source of the formats:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
    """
    place, why = _place(device, local_rank)
    capability = torch.cuda.get_device_capability(place) if place.type == "cuda" else None
    formats = _formats(capability, stack)
    number, number_words = _number_format(dtype, capability, formats, scaled)
    if tf32 and "tf32" not in formats:
        raise SystemExit(f"TF32 needs a GPU of compute capability 8.0 or newer, but this is {_called(capability)}.")
    tf32 = "tf32" in formats if tf32 is None else tf32
    # Worth it where tensor cores compute convolutions.
    channels_last = capability is not None and (tf32 or number != torch.float32)
    picked = [number_words, *["TF32"] * tf32, *["channels-last"] * channels_last]
    return Device(
        device=place,
        dtype=number,
        tf32=tf32,
        channels_last=channels_last,
        line=f"Training on {why}: {', '.join(picked)}.",
    )


def from_settings(settings: RunSettings, local_rank: int = 0, scaled: bool = True) -> Device:
    """The device of a run or a trial with these settings, stack.json, and this hardware; its memory is limited."""
    stack = None
    with contextlib.suppress(StackError):
        stack = load()
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    names = {"device": settings.device, "dtype": settings.dtype, "tf32": settings.tf32}
    device = choose(**names, local_rank=local_rank, stack=stack, scaled=scaled)
    limit(device, stack)
    return device


def _place(device: str, local_rank: int) -> tuple[torch.device, str]:
    """The device, and its name for the user."""
    if device == "auto" and os.environ.get("GPUKIT_DEVICE") == "cpu":  # the CPU configuration, and `./launch --cpu`
        return torch.device("cpu"), "the CPU, as requested"
    if device == "auto" and not torch.cuda.is_available():
        without = (
            "this is a CPU build of PyTorch" if torch.version.cuda is None else "run `./launch doctor` to find out why"
        )
        return torch.device("cpu"), f"the CPU, since PyTorch finds no GPU ({without})"
    if device == "cpu":
        return torch.device("cpu"), "the CPU"
    try:
        place = torch.device("cuda" if device == "auto" else device)
    except RuntimeError:
        place = None
    if place is None or place.type != "cuda":
        raise SystemExit(f"Unknown device {device!r}: use auto, cpu, cuda, or cuda:N.")
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU: run `./launch doctor` to find out why, or train with --device cpu.")
    index = local_rank if place.index is None else place.index
    count = torch.cuda.device_count()
    if index >= count:
        gpus = f"{count} GPU{'s' * (count > 1)}"
        raise SystemExit(f"There is no cuda:{index}, since PyTorch finds {gpus}: start at most one process per GPU.")
    place = torch.device("cuda", index)
    return place, f"{torch.cuda.get_device_name(place)} ({place})"


def _formats(capability: tuple[int, int] | None, stack: Stack | None) -> tuple[str, ...]:
    """The formats that tensor cores support: from stack.json if it lists this card, or by its generation."""
    if capability is None:
        return ()
    for target in stack.targets.values() if stack else ():
        if target.capability and target.capability.rstrip("af") == "{}.{}".format(*capability):
            return target.precisions
    return ("fp16", "bf16", "tf32") if capability >= (8, 0) else ("fp16",) if capability >= (7, 0) else ()


def _number_format(
    dtype: str, capability: tuple[int, int] | None, formats: tuple[str, ...], scaled: bool
) -> tuple[torch.dtype, str]:
    """The number format, and why."""
    if dtype not in ("auto", *DTYPES):
        raise SystemExit(f"Unknown number format {dtype!r}: use auto, {', '.join(DTYPES)}.")
    if dtype == "fp16" and not scaled:
        raise SystemExit("fp16 needs a gradient scaler, which this loop does not have: use bf16 or fp32.")
    fastest = next((name for name in ("bf16", "fp16")[: 1 + scaled] if name in formats), "fp32")
    number = DTYPES[fastest if dtype == "auto" else dtype]
    if number == torch.bfloat16 and capability is not None and "bf16" not in formats:
        raise SystemExit(f"bfloat16 is not supported by {_called(capability)}, only slowly emulated: use fp16 or auto.")
    name = str(number).removeprefix("torch.")
    if dtype != "auto":
        return number, f"{name} as set"
    if capability is None:
        return number, name
    has = "supports bfloat16" if number == torch.bfloat16 else "does not support bfloat16"
    scaled = " with loss scaling" if number == torch.float16 else ""
    return number, f"{name}{scaled} (compute capability {capability[0]}.{capability[1]} {has})"


def _called(capability: tuple[int, int] | None) -> str:
    return "the CPU" if capability is None else "a GPU of compute capability {}.{}".format(*capability)


def budget(device: Device) -> Budget:
    """How much more memory this process may allocate for tensors, including what its allocator has cached.

    A GPU with its own memory: cudaMemGetInfo, which knows MIG slices, and the fraction set for this process. Unified
    memory: cudaMemGetInfo counts the page cache as used, and too large an allocation triggers the kernel's OOM killer;
    so what the kernel reports as available, or the cgroup's limit, minus a reserve. The CPU: the same.
    Source: https://docs.nvidia.com/dgx/dgx-spark/known-issues.html
    """
    if device.device.type != "cuda":
        return limits.host_memory()
    place = device.device
    free, total = torch.cuda.mem_get_info(place)
    held = torch.cuda.memory_allocated(place)
    cached = torch.cuda.memory_reserved(place)
    bounds = [Budget(free + cached - held, total, "cudaMemGetInfo")]
    if unified(device):
        bounds = [Budget(min(one.free + cached - held, total), total, one.how) for one in limits.memory()]
    share = torch.cuda.get_per_process_memory_fraction(place)
    if share < 1:
        bounds.append(Budget(int(share * total) - held, total, f"the limit of {share:.0%} for this process"))
    return min(bounds, key=lambda bound: bound.free)


def unified(device: Device) -> bool:
    """Whether the CPU and the GPU share their memory, as on a DGX Spark or a Jetson."""
    return device.device.type == "cuda" and bool(torch.cuda.get_device_properties(device.device).is_integrated)


def limit(device: Device, stack: Stack | None) -> Budget | None:
    """On unified memory, limit this process's allocations and return the limit; otherwise None.

    With a limit, too large a batch is an error that can be handled; without one, the kernel kills the process, or the
    machine freezes. The limit is at most `memory.fraction` of the stack.
    """
    if not unified(device):
        return None
    bound = budget(device)
    share = (bound.free + torch.cuda.memory_allocated(device.device)) / bound.total
    most = stack.memory.fraction if stack and stack.memory.fraction else 1.0
    torch.cuda.set_per_process_memory_fraction(max(0.0, min(share, most)), device.device)
    return budget(device)


class GpuMemory:
    """The GPU memory that this process can use, in bytes: its `budget`, `how` that was determined, and peaks.

    `most`: use at most this many bytes.
    """

    @classmethod
    def here(cls, most: int | None = None) -> GpuMemory | None:
        """Of the present GPU, with a limit on unified memory; None if there is none."""
        if not torch.cuda.is_available():
            return None
        device = Device(torch.device("cuda", torch.cuda.current_device()))
        stack = None
        with contextlib.suppress(StackError):
            stack = load()
        limit(device, stack)
        return cls(device, most)

    def __init__(self, device: Device, most: int | None = None) -> None:
        found = budget(device)
        self.device = device.device
        self.how = found.how
        self.budget = found.free + torch.cuda.memory_allocated(self.device)
        self.shared = unified(device)  # the CPU uses that memory too
        if most is not None and most < self.budget:
            self.how = "as set"
            self.budget = most
            torch.cuda.set_per_process_memory_fraction(most / found.total, self.device)
        self.room, self.retries = self._room(), self._retries()

    def peak(self) -> int:
        """Of PyTorch's allocator, and since the beginning of libraries that allocate their own; 0: nothing is used.

        torch.OutOfMemoryError if the allocator had to free its cache: what fits only then is slow.
        """
        torch.cuda.synchronize(self.device)
        if self._retries() > self.retries:
            raise torch.OutOfMemoryError("out of memory: the allocator had to free its cache")
        if not torch.cuda.max_memory_allocated(self.device):
            return 0
        beside = 0 if self.shared else max(0, self.room - self._room())
        return torch.cuda.max_memory_reserved(self.device) + beside

    def _room(self) -> int:
        return torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)

    def _retries(self) -> int:
        return torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0)
