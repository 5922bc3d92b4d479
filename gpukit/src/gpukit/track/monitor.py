"""What the GPU and this process do during training: utilization, memory, power, waiting for data.

NVML by nvidia-ml-py, by its own calls: torch.cuda.utilization() and its like do not find a MIG device, and initialize
NVML again at each call (torch 2.13).
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch

from exactrun.memory import resident
from exactrun.observer import Observer


class Monitor(Observer):
    """Samples about once per `interval` seconds, in a thread, from the first step until `close`.

    What a GPU does not report is left out.
    """

    def __init__(self, *, interval: float = 1.0) -> None:
        self.interval = interval
        self.closed = threading.Event()

    def begin(self, run: Any) -> None:
        """Start to sample; `run` is as for every observer."""
        self.run, device = run, run.progress.device
        self.uuid = ""
        if device.type == "cuda":
            self.uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))  # torch 2.4 has none
        self.rows, self.last = deque[dict[str, float]](maxlen=3600), dict[str, float]()
        self._restart()
        with contextlib.suppress(ImportError):
            # The thread imports nothing, not even a codec: a worker forked meanwhile would wait for it forever.
            importlib.import_module("pynvml")
        threading.Thread(target=self._sample, name="gpukit-monitor", daemon=True).start()

    def _restart(self) -> None:
        self.since, self.cpu = time.monotonic(), time.process_time()
        self.steps, self.waited = self.run.completed, self.run.waited

    def values(self) -> dict[str, float]:
        """Means since the last call, if there was a step since, or the newest sample if there is no newer one.

        Percent: `gpu_utilization`, `cpu_percent` (of one core, this process without its workers). GB (1e9 bytes):
        `gpu_memory_gb` of the whole GPU, `memory_gb` of this process. `gpu_power_w`, `gpu_temperature_c`. Shares:
        `waiting_for_data`. If counted: `samples_per_second`.
        """
        if self.run.completed == self.steps:
            return {}
        rows, self.rows = [*self.rows] or [self.last], deque(maxlen=3600)
        self.last = rows[-1]
        found = {name: fmean(row[name] for row in rows if name in row) for row in rows for name in row}
        seconds = max(time.monotonic() - self.since, 1e-9)
        found["cpu_percent"] = 100 * (time.process_time() - self.cpu) / seconds
        found["waiting_for_data"] = min(1.0, (self.run.waited - self.waited) / seconds)
        if samples := self.run.progress.samples * (self.run.completed - self.steps):
            found["samples_per_second"] = samples / seconds
        self._restart()
        return found

    def close(self, status: str = "") -> list[str]:
        """End the thread."""
        self.closed.set()
        return []

    def _sample(self) -> None:
        readings: dict[str, Callable[[], float]] = {"memory_gb": resident}
        with contextlib.suppress(Exception):  # no nvidia-ml-py, no driver, or not this GPU
            readings |= _nvml(self.uuid) if self.uuid else {}
        while not self.closed.is_set():
            row = {}
            for name, reading in readings.items():
                with contextlib.suppress(Exception):  # not supported by this GPU, or lost: left out, never 0
                    row[name] = reading()
            self.rows.append(row)
            self.closed.wait(self.interval)


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
