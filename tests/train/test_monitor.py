"""What is sampled during training. The GPU is a stand-in that returns what real ones returned; each has its source."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from exactrun import Run, read_metrics
from gpukit.track import monitor as module
from gpukit.track.monitor import Monitor

CPU = torch.device("cpu")
GPU = torch.device("cuda:0")
# utilization, milliwatts, degrees (by NVML, as torch.cuda returns them), bytes used; None: not supported.
# py3nvml on a GTX 1060 3GB: github.com/nicolargo/glances/issues/1523, 2019-11-10.
GTX_1060 = (5, 6697, 42, 685441024)
# NVML and nvidia-smi on a GB10, driver 580.173.02: github.com/XuehaiPan/nvitop/pull/208, 2026-08-07. What
# cudaMemGetInfo counts as used there includes the page cache.
GB10 = (0, 11170, 35, None)
# With MIG, NVML does not find the device by the index of the GPU. The figure is invented.
MIG = (None, None, None, 3_000_000_000)


def card(monkeypatch: pytest.MonkeyPatch, values: tuple[int | None, ...]) -> None:
    def answer(value: int | None) -> int:
        if value is None:
            raise RuntimeError("Not Supported")
        return value

    for name, value in zip(("utilization", "power_draw", "temperature"), values, strict=False):
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: answer(value))
    total = 80_000_000_000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total - (values[3] or total), total))
    properties = SimpleNamespace(is_integrated=int(values[3] is None))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def monitor(device: torch.device) -> Monitor:
    """After its first step."""
    one = Monitor()
    one.begin(SimpleNamespace(progress=SimpleNamespace(device=device, samples=8), completed=0, waited=0.0, tokens=0))
    one.run.completed = 1
    return one


def gpu(values: dict[str, float]) -> dict[str, float]:
    return {name: pytest.approx(value) for name, value in values.items() if name.startswith("gpu_")}


def test_what_a_gpu_does_not_report_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    card(monkeypatch, GTX_1060)
    figures = {"gpu_utilization": 5.0, "gpu_memory_gb": 0.685441024, "gpu_power_w": 6.697, "gpu_temperature_c": 42.0}
    assert gpu(monitor(GPU).values()) == figures
    card(monkeypatch, GB10)
    assert gpu(monitor(GPU).values()) == {"gpu_utilization": 0.0, "gpu_power_w": 11.17, "gpu_temperature_c": 35.0}
    card(monkeypatch, MIG)
    values = monitor(GPU).values()
    assert gpu(values) == {"gpu_memory_gb": 3.0}
    assert values.keys() - {"gpu_memory_gb"} == {"memory_gb", "waiting_for_data", "samples_per_second"}
    assert 0.01 < values["memory_gb"] < 100


def test_values_are_means_since_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    one = monitor(CPU)
    one.values()
    one.run.waited += 0.125
    one.run.completed += 8
    one.run.tokens += 500
    now[0] = 0.5
    values = one.values()
    assert (values["waiting_for_data"], values["samples_per_second"], values["tokens_per_second"]) == (0.25, 128, 1000)
    assert one.values() == {}  # no step since


def test_the_first_step_has_no_rate(tmp_path: Path) -> None:
    """There is no time before it that was measured."""
    with Run(tmp_path, observers=[Monitor()]) as run:
        for _ in run.enumerate(range(3)):
            run.step(loss=1.0)
    assert ["samples_per_second" in figures for figures in read_metrics(tmp_path)] == [False, True, True]
