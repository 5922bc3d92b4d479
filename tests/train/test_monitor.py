"""What is sampled during training. NVML is a stand-in that returns what real GPUs returned; each has its source."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from gpukit.track.monitor import Monitor

CPU = torch.device("cpu")
GPU = torch.device("cuda:0")
UUID = "ffc79498-8ff3-c2dc-3b0d-fafd804516ae"  # as torch reports it: github.com/intel/torch-xpu-ops/issues/1955


class NVMLError(Exception):
    pass


# (utilization, bytes used, milliwatts, degrees); None: NVML_ERROR_NOT_SUPPORTED.
# py3nvml on a GTX 1060 3GB: github.com/nicolargo/glances/issues/1523, 2019-11-10.
GTX_1060 = (5, 685441024, 6697, 42)
# NVML and nvidia-smi on a GB10, driver 580.173.02: github.com/XuehaiPan/nvitop/pull/208, 2026-08-07.
GB10 = (0, None, 11170, 35)
# A MIG device's handle: docs.nvidia.com/deploy/nvml-api, utilization "is not supported when MIG mode is enabled"; power
# and temperature are those of the whole GPU. The figures are invented.
MIG = (None, 3_000_000_000, 60_000, 40)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`nvml(GB10)`: this GPU, by its UUID, from now on. Returns which handles were used."""

    def put(values: tuple[int | None, ...], kind: str = "GPU", name: str = "NVIDIA GB10") -> list[str]:
        used: list[str] = []

        def find(uuid: str) -> str:
            if uuid != f"{kind}-{UUID}":
                raise NVMLError("Not Found")
            return "slice" if kind == "MIG" else "whole"

        def answer(place: int, handle: str) -> int:
            used.append(handle)
            if values[place] is None or (place >= 2 and handle == "slice"):
                raise NVMLError("Not Supported")
            return values[place]

        module = types.ModuleType("pynvml")
        module.__dict__.update(
            NVMLError=NVMLError,
            NVML_TEMPERATURE_GPU=0,
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByUUID=find,
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda handle: "whole",
            nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=answer(0, handle)),
            nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=answer(1, handle)),
            nvmlDeviceGetPowerUsage=lambda handle: answer(2, handle),
            nvmlDeviceGetTemperature=lambda handle, sensor: answer(3, handle),
        )
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=UUID))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        return used

    return put


@pytest.fixture
def monitor() -> Iterator[Callable[..., Monitor]]:
    """`monitor(device)`: one that has sampled twice."""
    begun: list[Monitor] = []

    def begin(device: torch.device, **options: float) -> Monitor:
        begun.append(Monitor(interval=0.01, **options))
        begun[-1].begin(SimpleNamespace(progress=SimpleNamespace(device=device, samples=8), completed=0, waited=0.0))
        begun[-1].run.completed = 1
        while len(begun[-1].rows) < 2:
            time.sleep(0.001)
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


def gpu(values: dict[str, float]) -> dict[str, float]:
    return {name: pytest.approx(value) for name, value in values.items() if name.startswith("gpu_")}


def test_a_gpu_is_found_by_its_uuid_and_what_it_does_not_report_is_left_out(nvml, monitor) -> None:
    nvml(GTX_1060)
    figures = {"gpu_utilization": 5.0, "gpu_memory_gb": 0.685441024, "gpu_power_w": 6.697, "gpu_temperature_c": 42.0}
    assert gpu(monitor(GPU).values()) == figures
    nvml(GB10)
    assert gpu(monitor(GPU).values()) == {"gpu_utilization": 0.0, "gpu_power_w": 11.17, "gpu_temperature_c": 35.0}
    used = nvml(MIG, "MIG")
    assert gpu(monitor(GPU).values()) == {"gpu_memory_gb": 3.0, "gpu_power_w": 60.0, "gpu_temperature_c": 40.0}
    assert used[:4] == ["slice", "slice", "whole", "whole"]


def test_without_nvml_there_are_the_values_of_the_process(nvml, monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(GB10)
    for broken in (None, types.ModuleType("pynvml")):  # not installed; and one in which nothing works
        monkeypatch.setitem(sys.modules, "pynvml", broken)
        for device in (GPU, CPU):
            values = monitor(device).values()
            assert set(values) == {"memory_gb", "cpu_percent", "waiting_for_data", "samples_per_second"}
            assert 0.01 < values["memory_gb"] < 100


def test_values_are_means_since_the_last_call(monitor) -> None:
    one = monitor(CPU)
    one.values()
    begun = time.monotonic()
    one.run.waited += 0.05
    one.run.completed += 8
    while time.monotonic() < begun + 0.2:
        pass
    values = one.values()
    assert 0.1 < values["waiting_for_data"] < 0.26 and 160 < values["samples_per_second"] < 330
    assert values["cpu_percent"] > 20
    one.closed.set()
    assert one.values() == {}  # no step since
    one.run.completed += 1
    after = one.values()  # the newest sample, without a newer one
    assert "memory_gb" in after and after["waiting_for_data"] == 0


def test_sampling_costs_little_and_ends(monitor) -> None:
    one = monitor(CPU)
    thread = next(thread for thread in threading.enumerate() if thread.name == "gpukit-monitor")
    rows, cpu = len(one.rows), time.process_time()
    time.sleep(0.5)
    samples = len(one.rows) - rows
    assert thread.daemon and (time.process_time() - cpu) / samples < 0.005  # measured: 0.0001; one per second is usual
    one.close()
    thread.join(timeout=5)
    assert not thread.is_alive()


IMPORTS = """
import os, sys, threading
from types import SimpleNamespace

def hook(event, details):
    if event == "import" and (os.getpid() != parent or threading.current_thread() is not threading.main_thread()):
        os.write(1, f"{details[0]}\\n".encode())

parent = os.getpid()
sys.addaudithook(hook)
import torch
from torch.utils.data import DataLoader, TensorDataset
from gpukit.track.monitor import Monitor

monitor = Monitor()
monitor.begin(SimpleNamespace(progress=SimpleNamespace(device=torch.device("cpu"), samples=4), completed=0, waited=0.0))
next(iter(DataLoader(TensorDataset(torch.zeros(8)), 4, num_workers=1)))
while not monitor.rows:
    pass
monitor.close()
os.write(1, b"end\\n")
"""


def test_neither_its_thread_nor_a_worker_imports_anything() -> None:
    """A worker forked while a thread imports a module would wait forever when it imports the same one."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60)
    assert done.stdout == "end\n", done.stderr
