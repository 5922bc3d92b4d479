"""What the GPU and this process do during training: utilization, memory, power, waiting for data."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from exactrun.observer import Observer


class Monitor(Observer):
    """Reads them whenever figures are logged. What a GPU does not report is left out."""

    def begin(self, run: Any) -> None:
        """The first step; `run` is as for every observer."""
        self.run = run
        device = run.progress.device
        self.readings: dict[str, Callable[[], float]] = {"memory_gb": resident}
        if device.type == "cuda":  # by nvidia-ml-py: without it, and with MIG, they raise an error
            self.readings |= {
                "gpu_utilization": lambda: float(torch.cuda.utilization(device)),
                "gpu_power_w": lambda: torch.cuda.power_draw(device) / 1e3,
                "gpu_temperature_c": lambda: float(torch.cuda.temperature(device)),
            }
            if not torch.cuda.get_device_properties(device).is_integrated:
                self.readings["gpu_memory_gb"] = lambda: used(device)
        self._restart()

    def _restart(self) -> None:
        self.since = time.monotonic()
        self.steps = self.run.completed
        self.waited = self.run.waited
        self.tokens = self.run.tokens

    def values(self) -> dict[str, float]:
        """The present values, and means since the last call; none if there was no step since.

        Percent: `gpu_utilization` (of up to a second before). GB (1e9 bytes): `gpu_memory_gb` of the whole GPU,
        `memory_gb` of this process. `gpu_power_w`, `gpu_temperature_c`. A share: `waiting_for_data`. If counted:
        `samples_per_second`, `tokens_per_second`.
        """
        if self.run.completed == self.steps:
            return {}
        found = {}
        for name, reading in self.readings.items():
            with contextlib.suppress(Exception):  # not supported by this GPU, or lost: left out, never 0
                found[name] = reading()
        seconds = max(time.monotonic() - self.since, 1e-9)
        found["waiting_for_data"] = min(1.0, (self.run.waited - self.waited) / seconds)
        if samples := self.run.progress.samples * (self.run.completed - self.steps):
            found["samples_per_second"] = samples / seconds
        if tokens := self.run.tokens - self.tokens:
            found["tokens_per_second"] = tokens / seconds
        self._restart()
        return found


def resident() -> float:
    """GB of memory that this process uses."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9


def used(device: torch.device) -> float:
    """GB of memory that all processes use on a GPU, or on a slice of it (MIG)."""
    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 1e9
