"""Tests that need a GPU: the computations that verify checks, and the guarantees of gpukit.train."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpukit.verify import cases, exercises, stress
from gpukit.verify.library import TOLERANCE


def test_repeated_step_after_out_of_memory(device: str, measured: dict[str, Any]) -> None:
    """A step that runs out of memory is repeated in parts, and gives the same parameters as the whole batch."""
    measured.update(cases.replay(device))
    assert measured["retries"] >= 1 and measured["microbatch"] < cases.SAMPLES
    assert measured["difference"] <= TOLERANCE


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_with_pinned_memory(device: str, workers: int, measured: dict[str, Any]) -> None:
    measured.update(cases.pinned(device, workers))
    assert measured["pinned"] and measured["equal"]


def test_fp16_with_a_scaled_loss(device: str, measured: dict[str, Any]) -> None:
    """The loss decreases. A step whose gradients overflow only changes the scale, and a resumed run keeps the scale."""
    measured.update(cases.scaler(device))
    assert math.isfinite(measured["last"]) and measured["last"] < measured["first"]
    before, after, resumed = measured["scales"]
    assert measured["kept"] and after == resumed == before / 2


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
    whole, resumed = exercises.train(device, file, False), exercises.train(device, file, True)
    measured.update(whole=whole["losses"], resumed=resumed["losses"])
    assert resumed["start"] == 5
    assert resumed["losses"] == pytest.approx(whole["losses"][5:], rel=1e-5)


def test_memory_and_out_of_memory(device: str, measured: dict[str, Any]) -> None:
    """Memory returns what was written. An allocation that is too large raises an exception, and the GPU still works."""
    measured.update(memory=stress.pattern(device, False), end=stress.out_of_memory(device))
    assert measured["memory"]["wrong"] == []
    end = measured["end"]
    assert end["caught"] and end["works"] and end["kept"] <= 0
