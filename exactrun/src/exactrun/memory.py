"""The memory of the host that is available."""

from __future__ import annotations

import contextlib
from pathlib import Path

RESERVE = 0.05  # of all memory, which others may need in the meantime
MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that can be allocated, on this machine and in this container; None where that is not known (macOS).

    The page cache that a container could give back (inactive_file) is available.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    bounds = list[float]()
    with contextlib.suppress(OSError, KeyError, ValueError):
        lines = MEMINFO.read_text(encoding="utf-8").splitlines()
        found = {name: 1024 * int(size.split()[0]) for name, size in (line.split(":") for line in lines)}
        bounds.append(found["MemAvailable"] - RESERVE * found["MemTotal"])
    with contextlib.suppress(OSError, ValueError):  # "max", or no container
        most, used = (int((GROUP / name).read_text(encoding="utf-8")) for name in ("memory.max", "memory.current"))
        stat = dict(line.split() for line in (GROUP / "memory.stat").read_text(encoding="utf-8").splitlines())
        bounds.append((1 - RESERVE) * most - used + int(stat["inactive_file"]))
    return max(0, int(min(bounds))) if bounds else None
