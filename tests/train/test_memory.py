"""The memory of a training step, traced without data, compared with what real steps on the CPU take."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpukit.script import memory
from gpukit.script.memory import TraceError, estimate
from gpukit.script.task import Task
from tests.train import memory_tasks
from tests.train.conftest import ROOT


@dataclass(frozen=True)
class Settings:
    """`kind`: what the model or its loss does beside computing."""

    kind: str = ""
    batch_size: int = 8
    dtype: str = "fp32"
    microbatch: int | None = None


class Words(torch.utils.data.Dataset):
    """Eight words, of which five count."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"words": torch.arange(8), "counts": torch.arange(8) < 5}


class Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.table, self.wide = kind, nn.Embedding(8, 64), nn.Linear(64, 256)
        self.inner = nn.LSTM(256, 256) if kind == "LSTM" else nn.Identity()
        self.out = nn.Linear(256, 8)

    def forward(self, words: Tensor, counts: Tensor) -> Tensor:
        if self.kind == "all" and not counts.all():
            words = words.clamp(max=int(counts.sum(1).max()))
        x = functional.gelu(self.wide(self.table(words)))
        if self.kind == "item":
            x = x * x.mean().item()
        return self.out(x)


def build(settings: Settings, device: Any) -> Task:
    if settings.kind == "download":
        import socket

        socket.create_connection(("weights.example", 443), timeout=1)
    model = device.prepare(Model(settings.kind))
    seen: list[float] = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        scores, words = model(**batch), batch["words"]
        if settings.kind == "masked":
            scores, words = scores[batch["counts"]], words[batch["counts"]]
            assert len(words) == 5 * len(batch["words"])
        found = functional.cross_entropy(scores.flatten(0, -2), words.flatten(), reduction="sum")
        if settings.kind == "metric":
            seen.append(found.item())
        if settings.kind == "until small" and found > 0.1:
            found = found * 2
        return found

    return Task(model, torch.optim.AdamW(model.parameters()), Words(), loss)


@pytest.mark.parametrize("model", memory_tasks.MODELS)
def test_like_a_real_step(model: str) -> None:
    """Half of the cases of benchmarks/memory.py, in one size: SGD with checkpointing, and AdamW without."""
    for optimizer, checkpointing in (("SGD", True), ("AdamW", False)):
        settings = memory_tasks.Settings(model, optimizer, checkpointing)
        needed = memory_tasks.traced(settings, 5)
        assert (needed is None) == (model == "LSTM")
        assert needed is None or needed.bytes == pytest.approx(memory_tasks.measured(settings, 5), rel=0.02)


@pytest.mark.parametrize("kind", ["all", "masked", "metric"])
def test_models_may_look_at_the_integers_of_a_batch(kind: str) -> None:
    needed, plain = (estimate(build, Settings(each), 64) for each in (kind, ""))
    assert 0.5 * plain.bytes < needed.bytes < 1.5 * plain.bytes
    assert needed.parts["weights"] == plain.parts["weights"]


@pytest.mark.parametrize("kind", ["LSTM", "item", "until small"])
def test_what_cannot_be_traced_is_said(kind: str) -> None:
    with pytest.raises(TraceError):
        estimate(build, Settings(kind), 8)


def test_the_parts_and_the_line_of_two_sizes() -> None:
    needed = estimate(build, Settings(), 1024)
    weights = 4 * (8 * 64 + 64 * 256 + 256 + 256 * 8 + 8)
    assert weights <= needed.parts["weights"] <= weights + 5 * memory.BLOCK
    assert needed.parts["optimizer"] == pytest.approx(2 * weights, rel=0.1)
    assert needed.bytes == sum(needed.parts.values())
    assert needed.fixed + 4096 * needed.per_sample == pytest.approx(estimate(build, Settings(), 4096).bytes, rel=0.01)


def test_formats_and_microbatches_take_less() -> None:
    whole = estimate(build, Settings(), 4096)
    lower = estimate(build, Settings(dtype="auto"), 4096, "bf16")
    assert lower.dtype == "bf16" and lower.parts["weights"] == whole.parts["weights"]
    assert lower.parts["activations"] < 0.75 * whole.parts["activations"]
    parts = estimate(build, replace(Settings(), microbatch=256), 4096)
    assert parts.parts["activations"] < 0.2 * whole.parts["activations"]
    assert estimate(build, Settings(dtype="fp32"), 8, "bf16").dtype == "fp32", "a format that is set"


def test_nothing_of_the_trace_is_left() -> None:
    """Of a model that fails, too: autocast, optimizers, and parameters are PyTorch's own again."""
    for kind in ("", "item"):
        with contextlib.suppress(TraceError):
            estimate(build, Settings(kind, dtype="bf16"), 4)
    task = build(Settings(), SimpleNamespace(prepare=lambda model: model))
    assert all(one.device.type == "cpu" for one in task.model.parameters())
    task.loss(task.model, {name: value[None] for name, value in task.dataset[0].items()}).backward()
    task.optimizer.step()
    a = torch.ones(4, 4, device="meta")
    assert (a @ a).dtype == torch.float32


@pytest.mark.parametrize(("kind", "code"), [("", 0), ("item", 3), ("download", 3)])
def test_the_command(kind: str, code: int) -> None:
    command = [sys.executable, "-m", "gpukit.script.memory", "--json", "--task", "tests.train.test_memory:build"]
    command += ["--batch-size=4", *(["--kind", kind] if kind else [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    found = json.loads(done.stdout)
    assert done.returncode == code, done.stderr
    assert found.get("batch_size") == (None if code else 4)
    assert (found.get("why") == memory.NOT_HERE) == (kind == "download")
