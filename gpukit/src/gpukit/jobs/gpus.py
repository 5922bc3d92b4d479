"""The GPUs of this machine or container, by NVML (nvidia-ml-py): what they do, and Xid errors of the driver."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from gpukit.host import facts, memory

FRESH = 1.0  # seconds for which a reading is used again
PATIENCE = 2.0  # seconds to wait for another thread's reading: the driver may hang


class Reader:
    """NVML is initialized once, and again after an error; only one thread at a time waits for the driver."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at = 0.0
        self.found = list[dict[str, Any]]()
        self.nvml: Any = None
        self.events: Any = None
        self.xids: Counter[tuple[int, int]] = Counter()  # by index of the GPU and number of the error

    def gpus(self) -> list[dict[str, Any]]:
        if not self.lock.acquire(timeout=PATIENCE):
            return []
        try:
            if not self.read_at or time.monotonic() - self.read_at > FRESH:
                self.found = self._read()
                self.read_at = time.monotonic()
            return self.found
        finally:
            self.lock.release()

    def _read(self) -> list[dict[str, Any]]:
        try:
            if self.nvml is None:
                self._start()
            count = self.nvml.nvmlDeviceGetCount()
            found = [gpu for gpu in (_or_none(partial(self._gpu, index)) for index in range(count)) if gpu]
            self._drain()
        except Exception:  # no nvidia-ml-py, no driver, or the driver was replaced
            self._stop()
            return _jetson()
        return found or _jetson()

    def _start(self) -> None:
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        self.events = _or_none(pynvml.nvmlEventSetCreate)
        for index in range(pynvml.nvmlDeviceGetCount() if self.events else 0):
            with contextlib.suppress(Exception):  # lost, or it does not support events
                device = pynvml.nvmlDeviceGetHandleByIndex(index)
                pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, self.events)

    def _stop(self) -> None:
        if self.nvml is not None:
            with contextlib.suppress(Exception):
                self.nvml.nvmlShutdown()
        self.nvml = self.events = None

    def _gpu(self, index: int) -> dict[str, Any]:
        nvml = self.nvml
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        name = nvml.nvmlDeviceGetName(device)
        used, total = self._memory(device)
        return {
            "index": index,
            "name": name.decode(errors="replace") if isinstance(name, bytes) else name,
            "utilization": _or_none(lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100),  # none with MIG
            "memory_used": used,
            "memory_total": total,
            "power": _or_none(lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000),
            "temperature": _or_none(lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)),
        }

    def _memory(self, device: Any) -> tuple[int | None, int | None]:
        try:
            found = self.nvml.nvmlDeviceGetMemoryInfo(device)
            return int(found.used), int(found.total)
        except self.nvml.NVMLError as error:
            # A GPU that shares the CPU's memory, such as that of a DGX Spark, does not support it.
            shared = error.value == self.nvml.NVML_ERROR_NOT_SUPPORTED
            return _shared_memory() if shared else (None, None)

    def _drain(self) -> None:
        """Count the Xid errors since the last call. Of several, NVML has the number of the last one."""
        for _ in range(1000 if self.events else 0):
            try:
                event = self.nvml.nvmlEventSetWait_v2(self.events, 0)
            except self.nvml.NVMLError:  # a timeout: there are no more
                return
            index = _or_none(partial(self.nvml.nvmlDeviceGetIndex, event.device))
            self.xids[-1 if index is None else index, int(event.eventData)] += 1


def _or_none(reading: Callable[[], Any]) -> Any:
    try:
        return reading()
    except Exception:  # not supported, or the GPU was lost
        return None


def _shared_memory() -> tuple[int | None, int | None]:
    found = memory.meminfo()
    if "MemAvailable" not in found or "MemTotal" not in found:
        return None, None
    return found["MemTotal"] - found["MemAvailable"], found["MemTotal"]


def _jetson() -> list[dict[str, Any]]:
    """A Jetson's GPU, where NVML does not list it."""
    if not facts.jetson():
        return []
    used, total = _shared_memory()
    unknown = {"utilization": None, "power": None, "temperature": None}
    return [{"index": 0, "name": "Jetson", "memory_used": used, "memory_total": total, **unknown}]


_reader = Reader()


def gpus() -> list[dict[str, Any]]:
    """Index, name, utilization (0 to 1), memory in bytes, power in watts, temperature in °C; None where unknown."""
    return _reader.gpus()


def xids() -> dict[tuple[int, int], int]:
    """How many Xid errors of which number each GPU had since this process began to read it."""
    return dict(_reader.xids)
