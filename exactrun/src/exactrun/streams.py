"""One pass over a stream, resumed exactly: a loader of an IterableDataset, Hugging Face streaming, webdataset, or any
other iterable.

    batches = Pass(source, key)                # everything random about the pass follows from the integer `key`
    state = batches.state()                     # after the batch that was returned last
    batches = Pass(source, key, state)         # in another process: the batches that follow

The generators are seeded for each batch. To continue, the pass is read again from its start, and its last batch is
compared. A stream's own state is not used: shuffle buffers, batched transforms, and workers are not whole in it.
"""

from __future__ import annotations

import copy
import os
import random
import zlib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from exactrun import workers
from exactrun.data import Begin, DataError
from exactrun.progress import announce
from exactrun.seeds import Seeds, generators, mix, walk


class Pass(Iterator[Any]):
    """The batches of one pass over `source`, or those after the state of such a pass; `close` ends its workers, if the
    pass is left early.

    Raises:
        DataError: the pass cannot continue where it was.
    """

    nests = False  # a loop inside of it cannot resume

    def __init__(self, source: Any, key: int, state: dict | None = None) -> None:
        self.key = key
        self.done = 0
        self.digest = 0
        self.iterator = None
        self.settings = [getattr(source, "num_workers", 0), getattr(source, "batch_size", None)]
        self.name = type(source.dataset if isinstance(source, DataLoader) else source).__name__
        if state and state["done"] and state["settings"] != self.settings:
            raise DataError(
                "A pass over {} continues only with the {} workers and batch size {} that it was begun with: set these "
                "again, or start a new run.".format(self.name, *state["settings"])
            )
        if isinstance(source, DataLoader):
            source = copy.copy(source)
            source._iterator = None  # persistent workers would continue their generators
            source.in_order = True
            source.worker_init_fn = Begin(source.worker_init_fn)
        self.source = source
        try:
            with Seeds().apart():
                _seed(source, key)
                with workers.signals_later() if self.settings[0] else nullcontext():
                    self.iterator = iter(source)
            self.seeds = Seeds(_held(source))
            if state:
                self._repeat(state)
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Any:
        if self.iterator is None:
            raise StopIteration
        try:
            with Seeds().apart():  # the loop's generators are unchanged by what the stream draws
                self.seeds.seed(mix(self.key, self.done))
                batch = next(self.iterator)
        except StopIteration:
            self.close()
            raise
        self.done += 1
        self.digest = digest(batch)  # now, since the loop may change it
        return batch

    def state(self) -> dict:
        """What `Pass` needs to continue after the batch returned last: plain values."""
        return {"done": self.done, "digest": self.digest, "settings": self.settings}

    def close(self) -> None:
        """End the pass and its workers."""
        iterator = self.iterator
        self.iterator = None
        if iterator is not None and iterator is not self.source:
            workers.close(iterator)
            getattr(iterator, "close", int)()  # a generator

    def _repeat(self, state: dict) -> None:
        """Read the pass again, from its start to the batch returned last."""
        total = state["done"]
        with announce(f"Reading {total:,} batches of {self.name} again", os.environ.get("RANK", "0") == "0"):
            for number in range(total):
                if next(self, self) is self:
                    raise DataError(
                        f"{self.name} ended after {number} batches, but {total} of this pass had been used before: "
                        "restore its data, or start a new run."
                    )
        if self.digest != state["digest"]:
            raise DataError(
                f"Batch {total} of this pass over {self.name} is not the same as before: its data has changed, or it "
                "draws from a generator without a fixed seed (give `shuffle` a seed), or a loader in it has "
                "persistent workers, which continue their own numbers; start a new run."
            )


def _parts(source: Any) -> list[Any]:
    """A stream and what it consists of."""
    return list(walk(source, code=False))


def _library(part: Any) -> str:
    return type(part).__module__.partition(".")[0]


def _fixed(source: Any) -> list[Any]:
    """The generators of Hugging Face's shuffles. They copy these, so a pass does not change them; and they must be the
    same in all ranks, where keys may differ."""
    parts = [part for part in _parts(source) if _library(part) == "datasets"]
    return [part.generator for part in parts if isinstance(getattr(part, "generator", None), numpy.random.Generator)]


def _held(source: Any) -> list[Any]:
    """The generators that a stream holds and draws from."""
    fixed = set(map(id, _fixed(source)))
    return [each for each in generators(source) if id(each) not in fixed]


def _seed(source: Any, key: int) -> None:
    """Seed the global generators and the stream's own from the key."""
    # webdataset 1.0 seeds its shuffles and resampling from the clock, or counts passes.
    for number, part in enumerate(_parts(source)):
        seed = mix(key, number) >> 33
        if _library(part) == "webdataset":
            if getattr(getattr(part, "f", None), "__name__", "") == "_shuffle" and len(part.args) <= 2:
                part.kw.update(rng=random.Random(seed), seed=None)
            elif hasattr(part, "epoch"):
                part.epoch = seed
                part.deterministic = True
    Seeds(_held(source)).seed(key)


def digest(batch: Any) -> int:
    """A checksum of a few numbers and words from each part of a batch."""
    return zlib.crc32(repr(_few(batch)).encode())


def _few(value: Any) -> Any:
    if isinstance(value, (Tensor, numpy.ndarray)):
        if isinstance(value, Tensor) and (value.layout != torch.strided or value.device.type != "cpu"):
            return value.shape
        flat = value.reshape(-1)
        return value.shape, flat[:: max(1, len(flat) // 64)].tolist()
    if isinstance(value, Mapping):
        return [(key, _few(value[key])) for key in list(value)[:64]]
    if isinstance(value, (list, tuple)):
        return len(value), [_few(each) for each in value[:: max(1, len(value) // 16)]]
    if value is None or isinstance(value, (bool, int, float, complex)):
        return value
    return value[:256] if isinstance(value, (str, bytes)) else type(value).__name__
