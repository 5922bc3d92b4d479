"""The machine as the container sees it: devices, shared memory, limits, processors, memory, clock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import cached_property
from pathlib import Path

from gpukit.host.memory import meminfo
from gpukit.image import guard
from gpukit.project.location import root
from gpukit.verify import smi, system
from gpukit.verify.probes.seen import Processors, Ram

GIGABYTE = 1 << 30
LIMITS = ("memlock", "stack", "nofile")
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([\w:.]+)\): (\d+)")


class Machine:
    environment: Mapping[str, str]
    _threads: ThreadPoolExecutor
    _smi_query: Future[smi.Smi] | None = None

    def query_smi(self) -> None:
        """Start nvidia-smi before anything here computes: any process that it lists then is not ours."""
        self._smi_query = self._threads.submit(smi.look)

    @cached_property
    def smi(self) -> smi.Smi:
        return self._smi_query.result() if self._smi_query else smi.look()

    @cached_property
    def in_use_by(self) -> str:
        """What else uses a GPU, so that its memory must not be filled; empty if nothing does.

        If the driver does not report it, as in WSL, a display is assumed.
        """
        if not self.smi.cards or Path("/dev/dxg").exists():
            return "a display (assumed)"
        if any(card.display for card in self.smi.cards):
            return "a display"
        return "another process" if any(card.processes for card in self.smi.cards) else ""

    @property
    def exclusive(self) -> bool:
        """Whether only one process at a time can use a GPU: then ours take turns."""
        return any(card.mode.startswith("Exclusive") for card in self.smi.cards)

    @cached_property
    def xids(self) -> tuple[tuple[str, int], ...] | None:
        """Xid errors in the kernel's log: bus and number. None if this container cannot read it."""
        try:
            log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        found = []
        try:
            with contextlib.suppress(BlockingIOError):
                while text := os.read(log, 8192):
                    found += [(bus, int(number)) for bus, number in XID.findall(text.decode(errors="replace"))]
        except OSError:
            return None
        finally:
            os.close(log)
        return tuple(dict.fromkeys(found))

    @cached_property
    def gpu_nodes(self) -> list[str]:
        """The GPU device files: on a PC, in WSL, on Jetson."""
        patterns = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "nvgpu/*")
        return sorted(str(node) for pattern in patterns for node in Path("/dev").glob(pattern))

    @cached_property
    def inaccessible_nodes(self) -> list[str]:
        """The GPU and driver device files that this user cannot open."""
        nodes = [*self.gpu_nodes, *(str(node) for node in Path("/dev").glob("nvidia[a-z-]*") if not node.is_dir())]
        return [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]

    @cached_property
    def cuda_library(self) -> bool:
        """Whether the driver's CUDA library, which the host mounts into the container, can be loaded."""
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        return True

    @cached_property
    def shm_gb(self) -> float | None:
        try:
            return shutil.disk_usage("/dev/shm").total / GIGABYTE
        except OSError:
            return None

    @cached_property
    def shm_free_gb(self) -> float | None:
        try:
            return shutil.disk_usage("/dev/shm").free / GIGABYTE
        except OSError:
            return None

    @cached_property
    def limits(self) -> dict[str, int]:
        """Limits of this process; -1 is unlimited."""
        names = {name: getattr(resource, f"RLIMIT_{name.upper()}") for name in LIMITS}
        limits = {name: resource.getrlimit(number)[0] for name, number in names.items()}
        return {name: -1 if limit == resource.RLIM_INFINITY else limit for name, limit in limits.items()}

    @cached_property
    def processors(self) -> Processors:
        allowed = len(os.sched_getaffinity(0))
        threads = self.environment.get("OMP_NUM_THREADS", "")
        near = (
            tuple(system.near(card.bus) for card in self.smi.cards) if self.gpu_nodes and system.sockets() > 1 else ()
        )
        ours = frozenset(os.sched_getaffinity(0))
        return Processors(os.cpu_count() or allowed, allowed, system.quota(), threads, ours, tuple(filter(None, near)))

    @cached_property
    def ram(self) -> Ram:
        here = meminfo()
        if "MemAvailable" not in here:
            return Ram()
        limit, used = system.memory_limit()
        free = here["MemAvailable"] if limit is None else min(here["MemAvailable"], max(0, limit - used))
        gigabytes = (here.get("MemTotal", 0), free, limit, here.get("SwapTotal", 0))
        return Ram(*(None if each is None else each / GIGABYTE for each in gigabytes))

    @cached_property
    def clock(self) -> tuple[datetime, datetime | None]:
        """The time now, and the newest date of stack.json and the build's record."""
        files = [root() / "stack.json", guard.RECORD]
        times = [file.stat().st_mtime for file in files if file.is_file()]
        return datetime.now(), datetime.fromtimestamp(max(times)) if times else None
