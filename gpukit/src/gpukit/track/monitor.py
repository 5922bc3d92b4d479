"""What the GPU and this process do during training: utilization, memory, power, waiting for data, MFU.

NVML by nvidia-ml-py, by its own calls: torch.cuda.utilization() and its like do not find a MIG device, and initialize
NVML again at each call (torch 2.13).
"""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch
from torch import nn

from exactrun.memory import resident
from exactrun.observer import Observer
from gpukit.host.cards import reference_tflops


class Monitor(Observer):
    """Samples about once per `interval` seconds, in a thread, from the first step until `close`.

    `flops_per_token`: of forward and backward (see the function of that name), for MFU: the share of the GPU's dense
    bf16 peak. Where a value or the peak is unknown, it is left out.
    `tokens`: what the caller has counted since `values`.
    """

    def __init__(self, *, flops_per_token: float = 0.0, interval: float = 1.0) -> None:
        self.flops_per_token, self.interval, self.tokens = flops_per_token, interval, 0
        self.closed = threading.Event()

    def begin(self, run: Any) -> None:
        """Start to sample; `run` is as for every observer."""
        self.run, device = run, run.progress.device
        self.uuid = self.peak = None
        if device.type == "cuda":
            self.uuid = str(getattr(torch.cuda.get_device_properties(device), "uuid", ""))  # torch 2.4 has none
            self.peak = reference_tflops(torch.cuda.get_device_name(device))
        self.rows, self.last = deque[dict[str, float]](maxlen=3600), dict[str, float]()
        self._restart()
        with contextlib.suppress(ImportError):
            # The thread imports nothing, not even a codec: a worker forked meanwhile would wait for it forever.
            importlib.import_module("pynvml")
        threading.Thread(target=self._sample, name="gpukit-monitor", daemon=True).start()

    def _restart(self) -> None:
        self.since, self.cpu = time.monotonic(), time.process_time()
        self.steps, self.waited, self.tokens = self.run.completed, self.run.waited, 0

    def values(self) -> dict[str, float]:
        """Means since the last call, if there was a step since, or the newest sample if there is no newer one.

        Percent: `gpu_utilization`, `cpu_percent` (of one core, this process without its workers). GB (1e9 bytes):
        `gpu_memory_gb` of the whole GPU, `memory_gb` of this process. `gpu_power_w`, `gpu_temperature_c`. Shares:
        `waiting_for_data`, `mfu`. If counted: `samples_per_second`, `tokens_per_second`.
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
        if self.tokens:
            found["tokens_per_second"] = self.tokens / seconds
            if self.peak and self.flops_per_token:
                found["mfu"] = self.flops_per_token * found["tokens_per_second"] / (self.peak * 1e12)
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


def flops_per_token(model: nn.Module, context: int = 0) -> float:
    """Floating point operations per token of a transformer, forward and backward.

    Two per weight in the forward pass, two for the gradients of activations, two per trained weight; with `context`
    tokens per sample, those of attention. Embeddings count only if they are also the output layer; recomputation
    does not count. Source: https://arxiv.org/abs/2204.02311, appendix B (2022).
    """
    lookups = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    outputs = {id(one.weight) for one in model.modules() if isinstance(one, nn.Linear)}
    flops = 0.0
    for one in model.parameters():
        if id(one) not in lookups - outputs:
            shape = getattr(getattr(one, "quant_state", None), "shape", one.shape)  # bitsandbytes packs weights
            flops += (6 if one.requires_grad else 4) * math.prod(shape)
    config = getattr(model, "config", None)
    layers, width = getattr(config, "num_hidden_layers", 0), getattr(config, "hidden_size", 0)
    return flops + 12 * layers * width * context
