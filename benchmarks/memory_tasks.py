"""Models of eight kinds: the memory of a training step, traced without data and measured in a real step on the CPU.

PyTorch's own MemTracker counts the tensors of two real steps; gpukit traces the same step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from gpukit.script import memory
from gpukit.script.device import Device
from gpukit.script.memory import Needed, Traced

CLASSES = 10
WORDS = 1000


@dataclass(frozen=True)
class Settings:
    """Which model, and how it is trained."""

    model: str = "MLP"
    optimizer: str = "AdamW"
    checkpointing: bool = False
    clip: float = 1.0


class Samples(Dataset):
    """Random inputs with one label, or with one for each word."""

    def __init__(self, shape: tuple[int, ...], words: bool) -> None:
        self.one = torch.randint(WORDS, shape) if words else torch.randn(shape)
        self.label = self.one % CLASSES if words else torch.tensor(1)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.one, self.label


class Basic(nn.Module):
    """The basic block of ResNet."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(out), nn.BatchNorm2d(out)])
        self.short = nn.Conv2d(width, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.one(x)))
        return functional.relu(self.norms[1](self.two(y)) + self.short(x))


class Block(nn.Module):
    """The block of GPT and ViT."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attend = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attend(self.norms[0](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.join(found.transpose(1, 2).flatten(2))
        return x + self.narrow(functional.gelu(self.wide(self.norms[1](x))))


class Adapted(nn.Module):
    """A frozen linear layer with a LoRA adapter."""

    def __init__(self, base: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class Recurrent(nn.Module):
    """An LSTM that returns its outputs only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Position(nn.Module):
    """Adds a learned position."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.each = nn.Parameter(torch.zeros(length, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.each


class Model(nn.Module):
    """A stem, blocks that can be checkpointed, and a head."""

    def __init__(self, stem: nn.Module, blocks: list[nn.Module], head: nn.Module, checkpointing: bool) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)
        self.head = head
        self.checkpointing = checkpointing

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.head(x)


def gpt(settings: Settings) -> Model:
    width = 128
    length = 64
    stem = nn.Sequential(nn.Embedding(WORDS, width), Position(length, width))
    blocks = [Block(width, 4, True) for _ in range(4)]
    return Model(stem, blocks, nn.Sequential(nn.LayerNorm(width), nn.Linear(width, WORDS)), settings.checkpointing)


def lora(settings: Settings) -> Model:
    model = gpt(settings).requires_grad_(False)
    for block in model.blocks:
        for name in ("attend", "join", "wide", "narrow"):
            setattr(block, name, Adapted(getattr(block, name)))
    return model


def mlp(settings: Settings) -> Model:
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]
    return Model(nn.Linear(64, 256), blocks, nn.Linear(256, CLASSES), settings.checkpointing)


def cnn(settings: Settings) -> Model:
    blocks = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)) for _ in range(3)]
    head = nn.Sequential(nn.Flatten(), nn.Linear(32 * 16, CLASSES))
    return Model(nn.Conv2d(3, 32, 3, padding=1), blocks, head, settings.checkpointing)


def resnet(settings: Settings) -> Model:
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES))
    blocks = [Basic(32, 32, 1), Basic(32, 64, 2), Basic(64, 128, 2)]
    return Model(stem, blocks, head, settings.checkpointing)


def encoder(settings: Settings) -> Model:
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    blocks = [*nn.TransformerEncoder(layer, 3).layers]
    return Model(nn.Embedding(WORDS, 128), blocks, nn.Linear(128, CLASSES), settings.checkpointing)


def lstm(settings: Settings) -> Model:
    blocks = [Recurrent(128) for _ in range(2)]
    return Model(nn.Embedding(WORDS, 128), blocks, nn.Linear(128, CLASSES), settings.checkpointing)


def vit(settings: Settings) -> Model:
    stem = nn.Sequential(nn.Conv2d(3, 128, 4, 4), nn.Flatten(2), Transposed(), Position(64, 128))
    head = nn.Sequential(nn.LayerNorm(128), Mean(), nn.Linear(128, CLASSES))
    return Model(stem, [Block(128, 4, False) for _ in range(4)], head, settings.checkpointing)


class Transposed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


MODELS: dict[str, tuple[Callable[[Settings], nn.Module], tuple[int, ...], bool]] = {
    "MLP": (mlp, (64,), False),
    "CNN": (cnn, (3, 32, 32), False),
    "ResNet": (resnet, (3, 32, 32), False),
    "TransformerEncoder": (encoder, (64,), True),
    "GPT": (gpt, (64,), True),
    "LSTM": (lstm, (32,), True),
    "ViT": (vit, (3, 32, 32), False),
    "LoRA": (lora, (64,), True),
}


def build(settings: Settings, device: Device) -> Traced:
    make, shape, words = MODELS[settings.model]
    model = make(settings).to(device.device)
    trained = [one for one in model.parameters() if one.requires_grad]
    options = {"foreach": True, "lr": 1e-3}  # the default on a GPU
    kinds = {"AdamW": torch.optim.AdamW, "SGD": torch.optim.SGD}
    return Traced(model, kinds[settings.optimizer](trained, **options), Samples(shape, words), loss)


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())


class Tracker(MemTracker):
    """Without hooks for gradients, which it cannot register on frozen parameters; they are counted as any tensor."""

    def _track_module_params_and_buffers(self, module: nn.Module, install_grad_hooks: bool = False) -> tuple[int, int]:
        return super()._track_module_params_and_buffers(module, install_grad_hooks=False)


def measured(settings: Settings, size: int) -> int:
    """The peak of the second of two real steps, as MemTracker counts it."""
    made = build(settings, Device(torch.device("cpu")))
    batch = [torch.stack([column] * size) for column in made.dataset[0]]
    made.step(batch, clip=settings.clip)
    made.optimizer.zero_grad()
    tracker = Tracker()
    tracker.track_external(made.model, made.optimizer)
    with tracker:
        made.step([one.clone() for one in batch], clip=settings.clip)
    return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: None = None, dropout: float = 0.0, causal: bool = False, **_: Any
) -> Tensor:
    """The CPU's flash attention, whose outputs have another layout than a GPU's."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal)[0]


def traced(settings: Settings, size: int) -> Needed | None:
    """With the CPU's attention, and without the CUDA allocator's rounding; None: it cannot be traced."""
    with (
        mock.patch.object(memory, "_attention", attention),
        mock.patch.object(memory, "BLOCK", 1),
        contextlib.suppress(memory.TraceError),
    ):
        return memory.estimate(partial(build, settings), settings, size)
    return None
