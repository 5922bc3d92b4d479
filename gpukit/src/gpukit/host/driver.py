"""The loaded NVIDIA driver."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

from gpukit.host import cards

FIRST_JETPACK_7 = 38  # Jetson Linux R38, with driver 580 and newer; R36 is JetPack 6, with driver 540


def driver(proc: Path = Path("/proc/driver/nvidia/version"), wsl: Path = Path("/dev/dxg")) -> str | None:
    """The version of the loaded NVIDIA driver; None without one. In WSL, the driver of Windows."""
    with contextlib.suppress(OSError):
        found = re.search(r"NVRM version:.*?\s(\d+\.[\d.]+)\s", proc.read_text(encoding="utf-8", errors="replace"))
        return found[1] if found else ""
    if not wsl.exists():
        return None
    smi = shutil.which("nvidia-smi") or "/usr/lib/wsl/lib/nvidia-smi"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        query = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.split("\n")[0].strip() if done.returncode == 0 else None
    return None


def jetson(release: Path = Path("/etc/nv_tegra_release")) -> tuple[int, ...]:
    """The release of Jetson Linux, as (36, 4, 3); empty elsewhere."""
    with contextlib.suppress(OSError):
        return cards.jetson(release.read_text(encoding="utf-8"))
    return ()
