"""Computations with torch, and memory and speed of a GPU: measured in the worker, judged by the checks.

The tests run some of them on the CPU, and tests/gpu runs all of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.host import smi
from gpukit.host.limits import limited
from gpukit.host.memory import meminfo

SIZE = 512  # of the matrices: each entry is a sum of this many products
HALF = {"fp16": 2.0**-11, "bf16": 2.0**-8}  # the unit of rounding

# The maximum error of an entry, relative to the sum of its terms' absolute values, so that cancellation does not count.
# Broken hardware has errors of 1 % or more.
TOLERANCES = {
    # Each of the 512 additions rounds once, by 2^-24 at most; that bound holds for any order of summation.
    "fp32": SIZE * 2.0**-24,
    # Both factors are cut to 10 bits before they are multiplied: 2^-10 each, for hardware that truncates.
    "tf32": 2 * 2.0**-10 + SIZE * 2.0**-24,
    # The factors are exact and the products too; tensor cores add in fp32, truncating (2^-23), and the result is
    # rounded once. The flag that allows sums in half precision is switched off, or a split sum would round more often.
    "bf16": HALF["bf16"] + SIZE * 2.0**-23,
    "fp16": HALF["fp16"] + SIZE * 2.0**-23,
    # Products of e4m3 are exact. Hopper's and Ada's tensor cores add them with 13 fractional bits, truncated relative
    # to the largest of each 32. Emulating that over all 512, without intermediate fp32 sums, gives an error of at most
    # 0.0009 with the rounding to bf16, and 0.0038 with three bits fewer. A wrong sign or exponent gives 0.02 or more.
    "fp8": 2.0**-8,
}
# The lowest compute capability that supports it in hardware.
MIN_CAPABILITY = {"fp32": (0, 0), "fp16": (0, 0), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}


def matmul(device: str, capability: str) -> dict[str, Any]:
    """A product in each precision, against fp64 on the CPU with the same rounded factors."""
    import torch

    has = tuple(int(part) for part in capability.split("."))
    results = []
    before = torch.get_float32_matmul_precision()
    flags = torch.backends.cuda.matmul
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        setattr(flags, name, False)
    for name in (name for name, least in MIN_CAPABILITY.items() if has >= least):
        try:
            error = _relative_error(name, device)
        except Exception as message:
            results.append({"name": name, "message": f"{type(message).__name__}: {message}"})
        else:
            results.append({"name": name, "error": error, "tolerance": TOLERANCES[name]})
        finally:
            torch.set_float32_matmul_precision(before)
    return {"results": results}


def _relative_error(name: str, device: str) -> float:
    import torch

    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": getattr(torch, "float8_e4m3fn", None)}
    kind = kinds.get(name, torch.float32)
    generator = torch.Generator().manual_seed(11)
    left, right = (torch.randn(SIZE, SIZE, generator=generator).to(kind) for _ in range(2))
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    if name == "fp8":
        twice, quarter = (torch.tensor(scale, device=device) for scale in (2.0, 0.25))  # one for each tensor
        columns = right.float().t().contiguous().to(kind).to(device).t()  # what cuBLAS asks of the second factor
        product = torch._scaled_mm(left.to(device), columns, scale_a=twice, scale_b=quarter, out_dtype=torch.bfloat16)
        product = 2 * (product[0] if isinstance(product, tuple) else product)
    else:
        product = left.to(device) @ right.to(device)
    left = left.double() if name != "fp8" else left.float().double()
    right = right.float().double()
    off = (product.cpu().double() - left @ right).abs() / (left.abs() @ right.abs())
    return float(off.max()) if bool(off.isfinite().all()) else float("inf")


def convolution(device: str) -> dict[str, Any]:
    """Forward and backward. The tolerance is 1e-4: sums of 8192 products in fp32 have an error of about 1e-6, and the
    fast algorithms (Winograd, FFT) lose two more digits. TF32, with an error of 1e-3, is disabled."""
    import torch
    from torch.nn.functional import conv2d

    torch.backends.cudnn.allow_tf32 = False
    generator = torch.Generator().manual_seed(12)
    image = torch.randn(8, 16, 32, 32, generator=generator)
    kernel = torch.randn(32, 16, 3, 3, generator=generator)

    def both(image: Any, kernel: Any) -> list[Any]:
        image, kernel = (each.detach().requires_grad_() for each in (image, kernel))
        result = conv2d(image, kernel, padding=1)
        result.square().sum().backward()  # a first sine on a CPU may be wrong (pytorch/pytorch#188792)
        return [each.detach().cpu().double() for each in (result, image.grad, kernel.grad)]

    seen = both(image.to(device), kernel.to(device))
    expected = both(image.double(), kernel.double())
    off = max(float((one - other).norm() / other.norm()) for one, other in zip(seen, expected))
    cudnn = torch.backends.cudnn
    version = cudnn.version() if cudnn.is_available() else None
    return {"error": off, "tolerance": 1e-4, "cudnn": version, "enabled": cudnn.enabled}


def attention(device: str, kind: str) -> dict[str, Any]:
    """Scaled dot product attention: torch's choice, then each of its implementations that supports it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    generator = torch.Generator().manual_seed(13)
    query, key, value = (torch.randn(2, 4, 128, 64, generator=generator).to(dtype) for _ in range(3))
    scores = query.double() @ key.double().transpose(-2, -1) / 8
    scores.masked_fill_(torch.ones(128, 128, dtype=torch.bool).triu(1), float("-inf"))
    expected = scores.softmax(-1) @ value.double()

    def off() -> float:
        inputs = [each.clone().to(device).requires_grad_() for each in (query, key, value)]
        result = scaled_dot_product_attention(*inputs, is_causal=True)
        result.float().sum().backward()
        if not all(bool(each.grad.isfinite().all()) for each in inputs):
            return float("inf")
        return float((result.detach().cpu().double() - expected).abs().max() / value.double().abs().max())

    answer = {"kind": kind, "error": off(), "ways": {}}
    # Weights, result, and scores are rounded once each: an error of a score becomes an error of its weight.
    answer["tolerance"] = 4 * HALF[kind]
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
        backend = getattr(SDPBackend, name, None)
        if backend is None:
            continue
        try:
            with sdpa_kernel(backend):
                answer["ways"][name.partition("_")[0].lower()] = off()
        except RuntimeError as error:
            if match_signs(str(error), "cuda-call-failed"):
                raise
    return answer


def train(device: str, file: str, resume: bool) -> dict[str, Any]:
    """Ten steps with dropout and a checkpoint after the fifth, or the last five steps from that checkpoint.

    `again`: the losses of the same ten steps, repeated with the same seed.
    """
    losses = _steps(device, file, resume)
    again = [] if resume else _steps(device, "")
    return {"start": 10 - len(losses), "losses": losses, "again": again}


def _steps(device: str, file: str, resume: bool = False) -> list[float]:
    import os

    import torch

    torch.manual_seed(15)
    data = torch.randn(640, 16)
    wanted = torch.randint(0, 4, (640,))
    layers = torch.nn
    model = layers.Sequential(layers.Linear(16, 64), layers.ReLU(), layers.Dropout(0.1), layers.Linear(64, 4))
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if resume:
        state = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    losses = []
    for step in range(start, 10):
        torch.manual_seed(1000 + step)  # dropout depends on the step alone
        part = slice(64 * step, 64 * step + 64)
        loss = torch.nn.functional.cross_entropy(model(data[part].to(device)), wanted[part].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        if step == 4 and file and not resume:
            aside = Path(f"{file}.tmp")
            with aside.open("wb") as stream:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 5}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(file)
    return losses


GIGABYTE = 1 << 30
BLOCK = 1 << 26  # bytes written and read back at a time
MAX_USED_BY_OTHERS = 3 * GIGABYTE // 2  # by other processes; a CUDA context takes half a gigabyte


def free(device: str) -> dict[str, Any]:
    """Free memory. If CPU and GPU share memory, the driver counts the page cache as used: then the kernel's figure and
    the container's limit count."""
    import torch

    left, total = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    shared = bool(getattr(properties, "is_integrated", False))
    if shared:
        available = meminfo().get("MemAvailable", total)
        left = max(0, min(total, available, *(limit - used for limit, used in limited())))
    return {"free": left, "total": total, "shared": shared}


def _used_by_others(memory: dict[str, Any], device: str) -> int:
    """Bytes of a GPU's own memory that this process's torch does not use."""
    import torch

    return 0 if memory["shared"] else memory["total"] - memory["free"] - torch.cuda.memory_reserved(device)


def fraction(device: str | int) -> float:
    """The part of a GPU's memory that torch may allocate in this process; torch before 2.8 cannot report it."""
    import torch

    return getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)


def pattern(device: str, stress: bool) -> dict[str, Any]:
    """Write a pattern to all blocks, then read all of them back."""
    import torch

    memory = free(device)
    stress = stress and _used_by_others(memory, device) < MAX_USED_BY_OTHERS
    part = 0.5 if memory["shared"] else 0.8
    before = fraction(device)
    size = int(memory["free"] * part) if stress else min(GIGABYTE, memory["free"] // 10)
    if memory["shared"]:  # beyond this, an exception instead of a killed process
        torch.cuda.set_per_process_memory_fraction(min(1.0, (size + GIGABYTE) / memory["total"]), device)
    numbers = torch.arange(BLOCK // 4, dtype=torch.int32, device=device)
    try:
        blocks = [numbers * 7919 ^ index for index in range(max(1, size // BLOCK - 3))]
        wrong = [index for index, block in enumerate(blocks) if not bool(torch.equal(block, numbers * 7919 ^ index))]
    finally:
        if memory["shared"]:
            torch.cuda.set_per_process_memory_fraction(before, device)
    count = len(blocks)
    del blocks, numbers
    torch.cuda.empty_cache()
    return {"bytes": count * BLOCK, "wrong": wrong[:8], **memory}


def transfer(device: str) -> dict[str, Any]:
    """Copies from and to pinned memory, the best of several; nvidia-smi reads the negotiated link meanwhile."""
    import torch

    size = min(GIGABYTE // 4, free(device)["free"] // 8)
    host = torch.empty(size, dtype=torch.uint8).pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=device)
    best = {"to": 0.0, "from": 0.0}

    def once() -> None:
        for name, target, source in (("to", there, host), ("from", host, there)):
            started = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(device)
            best[name] = max(best[name], size / (time.perf_counter() - started) / 1e9)

    once()
    card = _during(once, device, 0.5)
    return {"pinned": host.is_pinned(), **best, "card": card}


def gemm(device: str, kind: str) -> dict[str, Any]:
    """Two seconds of large products; nvidia-smi reads meanwhile whether the clocks are reduced."""
    import torch

    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[kind]
    memory = free(device)
    others = _used_by_others(memory, device) > MAX_USED_BY_OTHERS
    size = next((size for size in (8192, 4096, 2048) if 12 * size * size < memory["free"]), 1024)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    done = [0, 0.0]

    def burst() -> None:
        started = time.perf_counter()
        for _ in range(10):
            left @ right
        torch.cuda.synchronize(device)
        done[0] += 10
        done[1] += time.perf_counter() - started

    burst()
    done[:] = [0, 0.0]  # the first products select an algorithm and raise the clocks
    card = _during(burst, device, 2.0)
    speed = 2 * size**3 * done[0] / done[1] / 1e12
    return {"kind": kind, "tflops": speed, "others": others, "card": card}


def peers(count: int) -> dict[str, Any]:
    """Copies from each GPU to each other GPU: whether peer-to-peer access works, and which copies are wrong."""
    import torch

    direct = []
    wrong = []
    for first in range(count):
        sent = torch.arange(1 << 20, dtype=torch.int32, device=f"cuda:{first}") * (2 * first + 3)
        for second in range(count):
            if first == second:
                continue
            direct.append(torch.cuda.can_device_access_peer(first, second))
            if not torch.equal(sent.to(f"cuda:{second}").cpu(), sent.cpu()):
                wrong.append([first, second])
    return {"pairs": len(direct), "direct": sum(direct), "wrong": wrong}


def _during(work: Callable[[], None], device: str, seconds: float) -> dict[str, Any] | None:
    """Repeat `work` for some seconds, and until nvidia-smi has read the GPU's state."""
    seen: list[smi.Smi] = []

    def look() -> None:
        time.sleep(seconds / 2)
        seen.append(smi.look())

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    started = time.monotonic()
    while time.monotonic() - started < seconds or (looking.is_alive() and time.monotonic() - started < 10):
        work()
    card = _card_of(device, seen[0]) if seen else None
    if card is None:
        return None
    return {"gen": card.gen, "width": card.width, "slowed": list(card.slowed), "mig": card.mig}


def _card_of(device: str, found: smi.Smi) -> smi.Card | None:
    """nvidia-smi's entry for a torch device: by its UUID, or the only one."""
    import torch

    uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))
    for card in found.cards:
        if uuid and uuid in card.uuid:
            return card
    return found.cards[0] if len(found.cards) == 1 else None
