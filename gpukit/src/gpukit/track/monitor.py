"""What the GPU and this process do during training: utilization, memory, power, waiting for data.

NVML by nvidia-ml-py, by its own calls: torch.cuda.utilization() and its like do not find a MIG device, and initialize
NVML again at each call (torch 2.13).
"""

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
        if device.type == "cuda":
            uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))  # torch 2.4 has none
            with contextlib.suppress(Exception):  # no nvidia-ml-py, no driver, or not this GPU
                self.readings |= _nvml(uuid)
        self._restart()

    def _restart(self) -> None:
        self.since = time.monotonic()
        self.cpu = time.process_time()
        self.steps = self.run.completed
        self.waited = self.run.waited

    def values(self) -> dict[str, float]:
        """The present values, and means since the last call; none if there was no step since.

        Percent: `gpu_utilization` (of up to a second before), `cpu_percent` (of one core, this process without its
        workers). GB (1e9 bytes): `gpu_memory_gb` of the whole GPU, `memory_gb` of this process. `gpu_power_w`,
        `gpu_temperature_c`. A share: `waiting_for_data`. If counted: `samples_per_second`.
        """
        if self.run.completed == self.steps:
            return {}
        found = {}
        for name, reading in self.readings.items():
            with contextlib.suppress(Exception):  # not supported by this GPU, or lost: left out, never 0
                found[name] = reading()
        seconds = max(time.monotonic() - self.since, 1e-9)
        found["cpu_percent"] = 100 * (time.process_time() - self.cpu) / seconds
        found["waiting_for_data"] = min(1.0, (self.run.waited - self.waited) / seconds)
        if samples := self.run.progress.samples * (self.run.completed - self.steps):
            found["samples_per_second"] = samples / seconds
        self._restart()
        return found


def resident() -> float:
    """GB of memory that this process uses."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9


def _nvml(uuid: str) -> dict[str, Callable[[], float]]:
    """How to read a GPU. NVML finds MIG devices by their own UUID, and has their memory; the rest is of the whole GPU.

    Source: https://docs.nvidia.com/deploy/nvml-api (Device Queries): utilization is not available with MIG.
    """
    import pynvml

    pynvml.nvmlInit()
    try:
        device = whole = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        device = pynvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
        whole = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
    return {
        "gpu_utilization": lambda: float(pynvml.nvmlDeviceGetUtilizationRates(device).gpu),
        "gpu_memory_gb": lambda: pynvml.nvmlDeviceGetMemoryInfo(device).used / 1e9,
        "gpu_power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(whole) / 1e3,
        "gpu_temperature_c": lambda: float(pynvml.nvmlDeviceGetTemperature(whole, pynvml.NVML_TEMPERATURE_GPU)),
    }
