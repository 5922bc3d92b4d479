"""`gpukit speed` on a CPU; what it would try on a GPU is only listed. Compiled models run without a compiler's code."""

from __future__ import annotations

import functools
import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import tyro
from torch import nn
from torch.utils.data import TensorDataset

from gpukit.cli import main as cli
from gpukit.script import device as device_module
from gpukit.script import speed as module
from gpukit.script.device import Device
from gpukit.script.speed import Candidate, Row, flags, recommended, speed, table
from gpukit.script.task import Task


@dataclass(frozen=True)
class Settings:
    """`wrong`: what goes wrong, with what is not fp32 or is larger than 8."""

    batch_size: int = 8
    dtype: str = "auto"
    tf32: bool | None = None
    compile: bool = False
    attention: bool = False
    wrong: str = ""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all, self.out = nn.Linear(16, 48), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.all(x).reshape(len(x), 2, -1, 48).chunk(3, -1)
        return self.out(nn.functional.scaled_dot_product_attention(query, key, value)).mean((1, 2))


def build(settings: Settings, device: Device) -> Task:
    images = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 4)]
    model = device.prepare(Attention() if settings.attention else nn.Sequential(*images))
    shape = (32, 6, 16) if settings.attention else (32, 3, 8, 8)
    data = TensorDataset(torch.randn(shape), torch.randint(4, (32,)))

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        outputs, labels = model(batch[0]), batch[1]
        if settings.wrong == "memory" and len(labels) > 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if settings.wrong == "loss" and torch.is_autocast_enabled("cpu"):
            outputs = 3 * outputs
        if settings.wrong == "nan":
            outputs = outputs * float("nan")
        return nn.functional.cross_entropy(outputs, labels, reduction="sum")

    return Task(model, torch.optim.AdamW(model.parameters(), lr=1e-3), data, loss)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMED_SECONDS", 0.003)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr(device_module.shutil, "which", lambda name: f"/usr/bin/{name}")


def names(rows: list[Row]) -> list[str]:
    return [str(row.candidate) for row in rows]


def test_each_way_to_train_on_images_is_timed_and_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    rows, ended = speed(build, Settings(), say=said.append)
    eager = ["fp32, batch 8", "bf16, batch 8", "fp32, channels-last, batch 8", "bf16, channels-last, batch 8"]
    assert names(rows)[:4] == eager and not ended and len(rows) == 12 and len(said) == 12
    assert {name.replace(", compiled", "") for name in names(rows)[4:8]} == set(eager)
    assert all("compiled" in name for name in names(rows)[4:8])
    assert [row.candidate.batch_size for row in rows[8:]] == [16, 32, 16, 32]
    assert not any(row.problem for row in rows) and all(row.samples_per_second > 0 for row in rows)
    assert rows[0].difference == 0 and all(row.difference < 3e-2 for row in rows[:8])
    monkeypatch.setattr(device_module.shutil, "which", lambda name: None)
    rows, _ = speed(build, Settings(wrong="memory"), say=said.append)
    compiled = [row.problem for row in rows if row.candidate.compile]
    assert len(compiled) == 4 and all(text.startswith("torch.compile needs a C++ compiler") for text in compiled)
    assert [row.problem for row in rows[8:]] == ["out of memory"] * 4


def test_other_losses_are_never_recommended() -> None:
    rows, _ = speed(build, Settings(wrong="loss"), say=lambda text: None)
    wrong = [row for row in rows if row.candidate.precision == "bf16"]
    assert len(wrong) == 2 and all(row.problem == "other losses than fp32 (at most 0.03)" for row in wrong)
    for row in wrong:
        row.samples_per_second = 1e9
    assert recommended(rows).candidate.precision == "fp32" and "other losses" in table(rows).splitlines()[1]
    rows, _ = speed(build, Settings(wrong="nan"), say=lambda text: None)
    assert [row.problem for row in rows] == ["the loss is NaN or infinite"] and recommended(rows) is None


def test_attention_is_tried_with_each_kernel_and_one_that_does_not_exist_is_a_row() -> None:
    rows, _ = speed(build, Settings(attention=True), say=lambda text: None)
    assert names(rows)[2:6] == [
        "fp32, flash attention, batch 8",
        "bf16, flash attention, batch 8",
        "fp32, math attention, batch 8",
        "bf16, math attention, batch 8",
    ]
    assert not any(row.problem for row in rows)
    bench = SimpleNamespace(batch_size=8, attends=True, images=True, device=lambda one: Device(torch.device("cuda")))
    given = module._candidates(bench, [Row(Candidate("fp32", 8))])
    listed = [str(one) for _, one in zip(range(24), given)]
    assert listed[:4] == ["fp32, batch 8", "tf32, batch 8", "bf16, batch 8", "fp16, batch 8"]
    assert len(set(listed)) == 24 and "bf16, cudnn attention, batch 8" in listed


def test_a_simpler_candidate_that_is_nearly_as_fast_is_recommended_with_its_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, channels, compiled = (
        Candidate("bf16", 8),
        Candidate("bf16", 8, channels_last=True),
        Candidate("bf16", 8, channels_last=True, compile=True),
    )
    rows = [Row(Candidate("fp32", 8), 50.0), Row(plain, 96.0), Row(channels, 98.0), Row(compiled, 100.0)]
    assert recommended(rows).candidate == plain
    rows[3].samples_per_second = 200.0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    options, code = flags(compiled, Settings())
    assert code == ["choose(..., channels_last=True)"] and recommended(rows).candidate == compiled
    assert tyro.cli(Settings, args=options.split()) == Settings(dtype="bf16", compile=True)
    for precision, tf32 in (("tf32", True), ("fp32", False)):
        options, code = flags(Candidate(precision, 8), Settings())
        assert tyro.cli(Settings, args=options.split()) == Settings(dtype="fp32", tf32=tf32) and not code
    options, code = flags(Candidate("fp16", 8, attention="flash"), object())
    assert options == "" and code[0] == "choose(..., dtype='fp16')" and "SDPBackend.FLASH_ATTENTION" in code[1]


def test_the_command_prints_what_was_measured_until_ctrl_c_or_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(module, "load_task", lambda task, arguments: (build, Settings()))
    measure = module.Bench.measure

    def slow(bench: module.Bench, one: Candidate, first: bool = False) -> Row:
        if one.precision != "fp32":
            if pressed:
                threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            time.sleep(60)
        return measure(bench, one, first)

    monkeypatch.setattr(module.Bench, "measure", slow)
    pressed = True
    assert module.main(None, [], 1.0, False) == 130
    out, err = capsys.readouterr()
    assert "Ended by Ctrl-C: other candidates were not measured." in out and "fp32, batch 8" in err
    assert out.splitlines()[-1] == "Fastest with the same losses: fp32, batch 8: use --dtype fp32"
    pressed = False
    assert module.main(None, [], 0.05, True) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ended_by"] == "the time limit" and [row["problem"] for row in found["rows"]] == [""]
    assert found["flags"] == "--dtype fp32"


def test_the_command_line_passes_the_options_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    given = cli.parse(["speed", "--batch-size", "64", "--minutes", "1.5", "--json", "--compile"])
    assert given.rest == ["--batch-size", "64", "--compile"] and (given.minutes, given.json) == (1.5, True)
