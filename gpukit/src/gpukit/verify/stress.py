"""Memory and speed of a GPU. Runs in the worker and only measures: the checks judge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.host.memory import meminfo
from gpukit.verify import smi, system

GIGABYTE = 1 << 30
BLOCK = 1 << 26  # bytes written and read back at a time
MAX_USED_BY_OTHERS = (
    3 * GIGABYTE // 2
)  # more than this is used by other processes: a CUDA context takes half a gigabyte


def free(device: str) -> dict[str, Any]:
    """Free memory. If CPU and GPU share memory, the driver counts the page cache as used: then the kernel's figure and
    the container's limit count."""
    import torch

    left, total = torch.cuda.mem_get_info(device)
    properties = torch.cuda.get_device_properties(device)
    shared = bool(getattr(properties, "is_integrated", False))
    if shared:
        limit, used = system.memory_limit()
        available = meminfo().get("MemAvailable", total)
        left = min(total, available, available if limit is None else max(0, limit - used))
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
    others = _used_by_others(memory, device)
    stress = stress and others < MAX_USED_BY_OTHERS
    part = 0.5 if memory["shared"] else 0.8
    before = fraction(device)
    size = int(memory["free"] * part) if stress else min(GIGABYTE, memory["free"] // 10)
    if memory["shared"]:  # beyond this, an exception instead of a killed process
        torch.cuda.set_per_process_memory_fraction(min(1.0, (size + GIGABYTE) / memory["total"]), device)
    started = time.monotonic()
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
    return {
        "device": device,
        "bytes": count * BLOCK,
        "wrong": wrong[:8],
        "others": max(0, others),
        "seconds": time.monotonic() - started,
        **memory,
    }


def out_of_memory(device: str) -> dict[str, Any]:
    """Allocate more than the GPU has: this must raise an exception, and leave no memory allocated.

    torch's own limit is set where the driver would not refuse: with shared memory and in WSL.
    """
    import torch

    memory = free(device)
    limited = memory["shared"] or Path("/dev/dxg").exists()
    before, share = torch.cuda.memory_reserved(device), fraction(device)
    if limited:
        limit = before + 2 * BLOCK
        torch.cuda.set_per_process_memory_fraction(limit / memory["total"], device)
        size = 4 * BLOCK + limit
    else:
        size = memory["total"] + GIGABYTE
    caught = ""
    try:
        torch.empty(size, dtype=torch.uint8, device=device)
    except torch.cuda.OutOfMemoryError as error:
        caught = type(error).__name__
    finally:
        if limited:
            torch.cuda.set_per_process_memory_fraction(share, device)
    torch.cuda.empty_cache()
    works = float(torch.ones(1024, device=device).sum()) == 1024  # the device still works
    return {"device": device, "caught": caught, "works": works, "kept": torch.cuda.memory_reserved(device) - before}


def transfer(device: str) -> dict[str, Any]:
    """Copies from and to pinned memory, the best of several; nvidia-smi reads the negotiated link meanwhile."""
    import torch

    size = min(GIGABYTE // 4, free(device)["free"] // 8)
    host, there = torch.empty(size, dtype=torch.uint8).pin_memory(), torch.empty(size, dtype=torch.uint8, device=device)
    best = {"to": 0.0, "from": 0.0}

    def once() -> None:
        for name, target, source in (("to", there, host), ("from", host, there)):
            started = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(device)
            best[name] = max(best[name], size / (time.perf_counter() - started) / 1e9)

    once()
    card = _during(once, device, 0.5)
    return {"device": device, "pinned": host.is_pinned(), **best, "card": card}


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
    return {"device": device, "kind": kind, "size": size, "tflops": speed, "others": others, "card": card}


def peers(count: int) -> dict[str, Any]:
    """Copies from each GPU to each other GPU: whether peer-to-peer access works, and which copies are wrong."""
    import torch

    direct, wrong = [], []
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
