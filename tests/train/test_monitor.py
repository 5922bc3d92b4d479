"""What is sampled during training. NVML is a stand-in that returns what real GPUs returned; each has its source."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from gpukit.track import monitor as module
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


def monitor(device: torch.device) -> Monitor:
    """After its first step."""
    one = Monitor()
    one.begin(SimpleNamespace(progress=SimpleNamespace(device=device, samples=8), completed=0, waited=0.0))
    one.run.completed = 1
    return one


def gpu(values: dict[str, float]) -> dict[str, float]:
    return {name: pytest.approx(value) for name, value in values.items() if name.startswith("gpu_")}


def test_a_gpu_is_found_by_its_uuid_and_what_it_does_not_report_is_left_out(nvml) -> None:
    nvml(GTX_1060)
    figures = {"gpu_utilization": 5.0, "gpu_memory_gb": 0.685441024, "gpu_power_w": 6.697, "gpu_temperature_c": 42.0}
    assert gpu(monitor(GPU).values()) == figures
    nvml(GB10)
    assert gpu(monitor(GPU).values()) == {"gpu_utilization": 0.0, "gpu_power_w": 11.17, "gpu_temperature_c": 35.0}
    used = nvml(MIG, "MIG")
    assert gpu(monitor(GPU).values()) == {"gpu_memory_gb": 3.0, "gpu_power_w": 60.0, "gpu_temperature_c": 40.0}
    assert used == ["slice", "slice", "whole", "whole"]


def test_without_nvml_there_are_the_values_of_the_process(nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(GB10)
    for broken in (None, types.ModuleType("pynvml")):  # not installed; and one in which nothing works
        monkeypatch.setitem(sys.modules, "pynvml", broken)
        for device in (GPU, CPU):
            values = monitor(device).values()
            assert set(values) == {"memory_gb", "cpu_percent", "waiting_for_data", "samples_per_second"}
            assert 0.01 < values["memory_gb"] < 100


def test_values_are_means_since_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"monotonic": 0.0, "process_time": 0.0}
    clock = SimpleNamespace(monotonic=lambda: now["monotonic"], process_time=lambda: now["process_time"])
    monkeypatch.setattr(module, "time", clock)
    one = monitor(CPU)
    one.values()
    one.run.waited += 0.125
    one.run.completed += 8
    now.update(monotonic=0.5, process_time=0.25)
    values = one.values()
    assert (values["waiting_for_data"], values["samples_per_second"], values["cpu_percent"]) == (0.25, 128, 50)
    assert one.values() == {}  # no step since
