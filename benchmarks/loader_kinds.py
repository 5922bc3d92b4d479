"""Typical kinds of data, generated here: each has a dataset, a batch size, and a collate function."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import Dataset, TensorDataset

SAMPLES = 6000


class Samples(Dataset):
    """A dataset with SAMPLES samples; subclasses define them."""

    def __len__(self) -> int:
        return SAMPLES


def compute(milliseconds: float) -> float:
    """Pure Python code that takes about this long on a CPU of 2024."""
    total = 0.0
    for number in range(round(milliseconds * 25_000)):
        total += number
    return total


class Crops(Samples):
    """Small images in memory, cropped and flipped at random."""

    def __init__(self) -> None:
        self.images = torch.randint(0, 256, (SAMPLES, 3, 32, 32), dtype=torch.uint8)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = torch.nn.functional.pad(self.images[index], (4, 4, 4, 4))
        top, left = random.randint(0, 8), random.randint(0, 8)
        image = image[:, top : top + 32, left : left + 32]
        return (image.flip(2) if random.random() < 0.5 else image) / 255, index % 10


class Worked(Samples):
    """Each sample waits and then computes for some milliseconds; a share of samples takes `times` as long."""

    def __init__(self, waits: float = 0.0, computes: float = 0.0, seldom: float = 0.0, times: float = 1.0) -> None:
        self.waits, self.computes, self.seldom, self.times = waits, computes, seldom, times

    def __getitem__(self, index: int) -> torch.Tensor:
        times = self.times if random.Random(index).random() < self.seldom else 1.0
        if self.waits:
            time.sleep(self.waits * times / 1000)
        return torch.full((32,), compute(self.computes * times))


class Large(Samples):
    """Samples of 600 kB in memory, which are only copied."""

    def __init__(self) -> None:
        self.images = torch.zeros(100, 3, 224, 224)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index % 100], index


class Photos(Samples):
    """JPEG files of 400 by 300 pixels: decoded, cropped at random, resized."""

    def __init__(self, folder: Path) -> None:
        from PIL import Image

        self.folder = folder / "photos"
        self.folder.mkdir(exist_ok=True)
        for index in range(200):
            coarse = numpy.random.RandomState(index).randint(0, 256, (30, 40, 3), dtype=numpy.uint8)
            Image.fromarray(coarse).resize((400, 300)).save(self.folder / f"{index}.jpg", quality=90)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(self.folder / f"{index % 200}.jpg") as image:
            left, top = random.randint(0, 100), random.randint(0, 50)
            image = image.convert("RGB").crop((left, top, left + 250, top + 250)).resize((224, 224))
        return torch.from_numpy(numpy.array(image)).permute(2, 0, 1).float() / 255, index % 10


class Texts(Samples):
    """Texts of 50 to 400 words: lower-cased, split into words, mapped to ids; batches are padded."""

    def __init__(self) -> None:
        words = [f"word{number * 7919 % 5000}" for number in range(400)]
        self.texts = [" ".join(words[: 50 + index * 53 % 350]).title() for index in range(SAMPLES)]
        self.vocabulary = {f"word{number}": number for number in range(5000)}

    def __getitem__(self, index: int) -> torch.Tensor:
        found = re.findall(r"\w+|[^\w\s]", self.texts[index].lower())
        return torch.tensor([self.vocabulary.get(word, 0) for word in found])


def padded(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


Kind = tuple[Callable[[Path], Dataset], int, Callable[[list[Any]], Any] | None]
MEMORY = "tensors in memory"
KINDS: dict[str, Kind] = {
    MEMORY: (lambda folder: TensorDataset(torch.randn(SAMPLES, 32), torch.arange(SAMPLES)), 64, None),
    "small images in memory, augmented": (lambda folder: Crops(), 64, None),
    "Python code, 2 ms per sample": (lambda folder: Worked(computes=2), 16, None),
    "network disk, 2 ms per sample": (lambda folder: Worked(waits=2), 16, None),
    "half waiting, half computing": (lambda folder: Worked(waits=1.5, computes=1.5), 16, None),
    "uneven: one in 30 takes 20 times as long": (
        lambda folder: Worked(computes=0.5, seldom=1 / 30, times=20),
        16,
        None,
    ),
    "large samples in memory": (lambda folder: Large(), 16, None),
    "JPEG files": (Photos, 16, None),
    "text, split into words": (lambda folder: Texts(), 32, padded),
}
