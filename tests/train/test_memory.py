"""The memory of a training step, traced without data, compared with what real steps on the CPU take."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpukit.script import memory
from gpukit.script.device import Device
from gpukit.script.memory import Traced, TraceError, estimate


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
        self.kind = kind
        self.table = nn.Embedding(8, 64)
        self.wide = nn.Linear(64, 256)
        self.inner = nn.LSTM(256, 256) if kind == "LSTM" else nn.Identity()
        self.out = nn.Linear(256, 8)

    def forward(self, words: Tensor, counts: Tensor) -> Tensor:
        if self.kind == "all" and not counts.all():
            words = words.clamp(max=int(counts.sum(1).max()))
        x = functional.gelu(self.wide(self.table(words)))
        if self.kind == "item":
            x = x * x.mean().item()
        return self.out(x)


def build(settings: Settings, device: Device) -> Traced:
    model = Model(settings.kind).to(device.device)
    seen: list[float] = []

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        scores = model(**batch)
        words = batch["words"]
        if settings.kind == "masked":
            scores = scores[batch["counts"]]
            words = words[batch["counts"]]
            assert len(words) == 5 * len(batch["words"])
        found = functional.cross_entropy(scores.flatten(0, -2), words.flatten())
        if settings.kind == "metric":
            seen.append(found.item())
        if settings.kind == "until small" and found > 0.1:
            found = found * 2
        return found

    return Traced(model, torch.optim.AdamW(model.parameters()), Words(), loss)


def traced(settings: Settings, size: int, dtype: str = "auto") -> memory.Needed:
    return estimate(partial(build, settings), settings, size, dtype)


class Block(nn.Module):
    """Attention and a linear layer, which may be checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.attend = nn.Linear(64, 192)
        self.wide = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attend(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        return x + self.wide(functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


class Checkpointed(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for block in self:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def words(device: Device) -> Traced:
    model = nn.Sequential(nn.Embedding(100, 64), Checkpointed(Block(), Block()), Block(), nn.Linear(64, 10))
    model.to(device.device)
    data = [(torch.arange(32), torch.arange(32) % 10)]
    return Traced(model, torch.optim.AdamW(model.parameters(), foreach=True), data, class_loss)


def pictures(device: Device) -> Traced:
    layers = [nn.Conv2d(3, 32, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(32 * 49, 10)).to(device.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
    return Traced(model, optimizer, [(torch.randn(3, 16, 16), torch.tensor(1))], class_loss)


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())


def of_cpu(query: Tensor, key: Tensor, value: Tensor, mask: None, dropout: float, causal: bool, **_: Any) -> Tensor:
    """The CPU's flash attention, whose outputs have another layout than a GPU's."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal)[0]


@pytest.mark.parametrize("build", [words, pictures])
def test_like_a_real_step(build: Callable[[Device], Traced], monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch's MemTracker counts its tensors; benchmarks/memory.py has more models."""
    from torch.distributed._tools.mem_tracker import MemTracker  # takes as long as torch itself

    made = build(Device(torch.device("cpu")))
    batch = [torch.stack([column] * 6) for column in made.dataset[0]]
    made.step(batch)
    made.optimizer.zero_grad()
    tracker = MemTracker()
    tracker.track_external(made.model, made.optimizer)
    with tracker:
        made.step([one.clone() for one in batch])
    real = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    monkeypatch.setattr(memory, "_attention", of_cpu)
    monkeypatch.setattr(memory, "BLOCK", 1)  # without the CUDA allocator's rounding
    assert estimate(build, Settings(), 6).bytes == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("kind", ["all", "masked", "metric"])
def test_models_may_look_at_the_integers_of_a_batch(kind: str) -> None:
    needed, plain = (traced(Settings(each), 64) for each in (kind, ""))
    assert 0.5 * plain.bytes < needed.bytes < 1.5 * plain.bytes
    assert needed.parts["weights"] == plain.parts["weights"]


@pytest.mark.parametrize("kind", ["LSTM", "item", "until small"])
def test_what_cannot_be_traced_is_said(kind: str) -> None:
    with pytest.raises(TraceError):
        traced(Settings(kind), 8)


def test_the_parts_and_the_line_of_two_sizes() -> None:
    needed = traced(Settings(), 1024)
    weights = 4 * (8 * 64 + 64 * 256 + 256 + 256 * 8 + 8)
    assert weights <= needed.parts["weights"] <= weights + 5 * memory.BLOCK
    assert needed.parts["optimizer"] == pytest.approx(2 * weights, rel=0.1)
    assert needed.bytes == sum(needed.parts.values())
    assert needed.fixed + 4096 * needed.per_sample == pytest.approx(traced(Settings(), 4096).bytes, rel=0.01)


def test_formats_and_microbatches_take_less() -> None:
    whole = traced(Settings(), 4096)
    lower = traced(Settings(dtype="auto"), 4096, "bf16")
    assert lower.dtype == "bf16" and lower.parts["weights"] == whole.parts["weights"]
    assert lower.parts["activations"] < 0.75 * whole.parts["activations"]
    parts = traced(replace(Settings(), microbatch=256), 4096)
    assert parts.parts["activations"] < 0.2 * whole.parts["activations"]
    assert traced(Settings(dtype="fp32"), 8, "bf16").dtype == "fp32", "a format that is set"


def test_nothing_of_the_trace_is_left() -> None:
    """Of a model that fails, too: autocast, optimizers, and parameters are PyTorch's own again."""
    for kind in ("", "item"):
        with contextlib.suppress(TraceError):
            traced(Settings(kind, dtype="bf16"), 4)
    made = build(Settings(), Device(torch.device("cpu")))
    assert all(one.device.type == "cpu" for one in made.model.parameters())
    made.step({name: value[None] for name, value in made.dataset[0].items()})
    a = torch.ones(4, 4, device="meta")
    assert (a @ a).dtype == torch.float32


DOWNLOAD = '    import socket\n\n    socket.create_connection(("weights.example", 443), timeout=1)\n'


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("", 0, ""),
        (DOWNLOAD, 3, "nothing is downloaded"),
        ("    return nn.LSTM(2, 2)\n", 3, "LSTM"),
    ],
)
def test_the_command(generate, tmp_path: Path, line: str, code: int, words: str) -> None:
    """Of a project, whose model may do something else first."""
    project = shutil.copytree(generate(hardware="cpu", workflow="scripts"), tmp_path / "project")
    file = next(project.glob("src/*/model.py"))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("    return nn.Sequential(", f"{line}    return nn.Sequential(", 1), encoding="utf-8")
    command = [sys.executable, "-m", "gpukit.script.memory", "--batch-size=4", "--dropout=0"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, timeout=120)
    found = json.loads(done.stdout)
    assert done.returncode == code, done.stderr
    assert found.get("batch_size") == (None if code else 4) and words in found.get("why", "")
