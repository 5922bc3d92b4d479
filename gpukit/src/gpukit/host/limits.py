"""The memory that this process may use: of the machine, and by its control groups."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from gpukit.host.memory import RESERVE, parse

ROOT = Path("/")  # where /proc and /sys are


@dataclass(frozen=True)
class Budget:
    """Memory in bytes: `free` for this process, of `total`; `how`: what sets the limit."""

    free: int
    total: int
    how: str


def memory() -> list[Budget]:
    """The limits on this process's memory: the machine's, and those of its control groups."""
    meminfo = parse((ROOT / "proc/meminfo").read_text(encoding="utf-8"))
    available = meminfo["MemAvailable"]
    total = meminfo["MemTotal"]
    bounds = [(int(available - RESERVE * total), total, "MemAvailable")]
    bounds += [(int(most * (1 - RESERVE)) - used, most, "the container's limit") for most, used in limited()]
    return [Budget(max(0, free), total, how) for free, total, how in bounds]


def limited() -> list[tuple[int, int]]:
    """The limit and use of each of this process's control groups that has a limit, in bytes.

    What the page cache could give back (inactive_file) counts as free, as Kubernetes counts it.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    found = []
    for group in control_groups():
        names = ("memory.max", "memory.current", "inactive_file")
        if not (group / names[0]).exists():  # version 1, or the group of the whole machine
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        with contextlib.suppress(OSError, ValueError):  # "max"
            most, used = (int((group / name).read_text(encoding="utf-8")) for name in names[:2])
            lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
            cache = next((int(line.split()[1]) for line in lines if line.startswith(f"{names[2]} ")), 0)
            if most < 1 << 60:  # version 1 says "none" with a number near 2**63
                found.append((most, used - cache))
    return found


def host_memory() -> Budget:
    """The smallest of these limits."""
    return min(memory(), key=lambda bound: bound.free)


def control_groups() -> list[Path]:
    """The folders of this process's control groups for memory, of version 2 or 1, and of those above them.

    In a container, the path of the group is often the host's and does not exist; the top of the mount is then its
    group.
    """
    found: list[Path] = []
    file = ROOT / "proc/self/cgroup"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            top = ROOT / "sys/fs/cgroup" / ("memory" if number != "0" else "")
            folder = top / path.lstrip("/")
            found += [each for each in (folder, *folder.parents) if each.is_relative_to(top)]
    return found
