"""Tests that need a GPU: the computations that verify checks, and the guarantees of exactrun."""

from __future__ import annotations

from typing import Any

import cases
import pytest

from gpukit.verify import exercises


def test_repeated_step_after_out_of_memory(device: str, measured: dict[str, Any]) -> None:
    """A step that runs out of memory is repeated in parts, and gives the same parameters as the whole batch."""
    measured.update(cases.replay(device))
    assert measured["microbatch"] and measured["microbatch"] < cases.SAMPLES
    assert measured["difference"] <= cases.TOLERANCE


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_with_pinned_memory(device: str, workers: int, tmp_path: Any, measured: dict[str, Any]) -> None:
    measured.update(cases.pinned(device, tmp_path, workers))
    assert measured["pinned"] and measured["equal"]


def capability(device: str) -> str:
    import torch

    return "{}.{}".format(*torch.cuda.get_device_capability(device))


def test_products_in_each_precision(device: str, measured: dict[str, Any]) -> None:
    measured.update(exercises.matmul(device, capability(device)))
    for each in measured["results"]:
        if "message" in each:
            assert each["name"] == "fp8", each  # some torch builds lack it
        else:
            assert each["error"] <= each["tolerance"], each


def test_convolution_and_attention(device: str, measured: dict[str, Any]) -> None:
    kind = "bf16" if int(capability(device).partition(".")[0]) >= 8 else "fp16"
    found = [exercises.convolution(device), exercises.attention(device, kind)]
    measured.update(convolution=found[0], attention=found[1])
    for each in found:
        assert max(each["error"], *each.get("ways", {}).values(), 0.0) <= each["tolerance"]


def test_resuming_gives_the_same_losses(device: str, tmp_path: Any, measured: dict[str, Any]) -> None:
    file = str(tmp_path / "checkpoint.pt")
    whole = exercises.train(device, file, False)
    resumed = exercises.train(device, file, True)
    measured.update(whole=whole["losses"], resumed=resumed["losses"])
    assert resumed["start"] == 5
    assert resumed["losses"] == pytest.approx(whole["losses"][5:], rel=1e-5)


def test_memory(device: str, measured: dict[str, Any]) -> None:
    measured.update(memory=exercises.pattern(device, False))
    assert measured["memory"]["wrong"] == []


def test_monitor_reads_this_gpu(device: str, measured: dict[str, Any]) -> None:
    """Under load, with plausible values; a value that this GPU does not report is missing, and not 0."""
    import time
    from types import SimpleNamespace

    import torch

    from gpukit.track.monitor import Monitor

    pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    x = torch.randn(4096, 4096, device=device)
    progress = SimpleNamespace(device=torch.device(device), samples=1)
    run = SimpleNamespace(progress=progress, completed=0, waited=0.0, tokens=0)
    monitor = Monitor()
    monitor.begin(run)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        x @ x
        torch.cuda.synchronize(device)
        run.completed += 1
    measured.update(monitor.values())
    assert measured.get("gpu_utilization", 100) > 20 and 0 <= measured["waiting_for_data"] <= 1
    assert measured.get("gpu_memory_gb", 1) > 0.05 and measured.get("gpu_power_w", 1) > 1
    assert 10 < measured.get("gpu_temperature_c", 50) < 110
    assert len([name for name in measured if name.startswith("gpu_")]) >= 1


def test_the_traced_memory_is_that_of_this_gpu(device: str, measured: dict[str, Any]) -> None:
    """At most 20 % more than the allocator reserves for five steps, and never more than 5 % less."""
    from types import SimpleNamespace

    import torch

    from gpukit.script.device import Device
    from gpukit.script.memory import Traced, estimate

    def build(place: Device) -> Traced:
        torch.manual_seed(20)
        layers = [torch.nn.Conv2d(3, 64, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3), torch.nn.Flatten()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(64 * 28 * 28, 10)).to(place.device)
        images = torch.randn(1, 3, 32, 32).expand(4096, 3, 32, 32)
        data = torch.utils.data.TensorDataset(images, torch.randint(10, (4096,)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return Traced(model, optimizer, data, lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]))

    functional = torch.nn.functional
    needed = estimate(build, SimpleNamespace(clip=1.0), 2048, "fp32")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    traced = build(Device(torch.device(device)))
    batch = torch.utils.data.default_collate([traced.dataset[index] for index in range(2048)])
    for _ in range(5):
        traced.step([one.to(device) for one in batch], clip=1.0)
    measured.update(traced=needed.bytes, reserved=torch.cuda.max_memory_reserved(device) - before)
    assert 0.95 * measured["reserved"] <= needed.bytes <= 1.2 * measured["reserved"]
