"""The machine's CPUs and memory, and the container's share of them, from /proc and /sys."""

from __future__ import annotations

import contextlib
from pathlib import Path


def quota() -> float | None:
    """The CPU quota of the container's cgroup, in CPUs."""
    with contextlib.suppress(OSError, ValueError):
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return None if share == "max" else int(share) / int(period)
    with contextlib.suppress(OSError, ValueError):  # cgroup v1
        share, period = (
            int(Path("/sys/fs/cgroup/cpu", name).read_text(encoding="utf-8"))
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        return share / period if share > 0 else None
    return None


def near(bus: str) -> str:
    """The CPUs of a GPU's socket in the kernel's notation; empty if unknown."""
    with contextlib.suppress(OSError):
        name = bus.lower()[-12:]  # the kernel writes the domain with four digits, nvidia-smi with eight
        return Path("/sys/bus/pci/devices", name, "local_cpulist").read_text(encoding="utf-8").strip()
    return ""


def sockets() -> int:
    """The number of NUMA nodes."""
    return sum(1 for _ in Path("/sys/devices/system/node").glob("node[0-9]*"))


def memory_limit() -> tuple[int | None, int]:
    """Limit and use of the container's cgroup in bytes, without reclaimable caches."""
    for limit, used, folder in (
        ("memory.max", "memory.current", "/sys/fs/cgroup"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "/sys/fs/cgroup/memory"),
    ):
        with contextlib.suppress(OSError, ValueError):
            text = Path(folder, limit).read_text(encoding="utf-8").strip()
            if text == "max" or int(text) > 1 << 60:
                return None, 0
            statistics = dict(line.split() for line in Path(folder, "memory.stat").read_text().splitlines())
            cached = int(statistics.get("inactive_file", statistics.get("total_inactive_file", 0)))
            return int(text), int(Path(folder, used).read_text(encoding="utf-8")) - cached
    return None, 0
