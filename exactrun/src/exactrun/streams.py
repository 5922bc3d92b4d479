"""One pass over a stream, resumed exactly: a loader of an IterableDataset, Hugging Face streaming, webdataset, or any
other iterable.

    batches = Pass(source, key)                # everything random about the pass follows from the integer `key`
    state = batches.state()                     # after the batch that was returned last
    batches = Pass(source, key, state)         # in another process: the batches that follow

A stream with `state_dict` and `load_state_dict` continues from its state: a data set, also in a loader without workers,
or torchdata's StatefulDataLoader. The generators are seeded for each batch. Its state is taken as often as 5 % of the
time allow; a new process reads the few batches since then again. Not every stream continues exactly (shuffle buffers,
batched transforms), so at least the batch that was returned last is read again and compared. If it differs, or if there
is no state, the pass is read from its start.
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader

from exactrun import workers
from exactrun.checkpoint import CheckpointError, storages
from exactrun.checks import digest
from exactrun.data import Begin, DataError
from exactrun.progress import announce
from exactrun.seeds import Seeds, generators, mix, seed_these, walk
from exactrun.state import restored, values

SHARE = 20  # the time between two states, as a multiple of what the last one took
_said: set[str] = set()


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print(text, file=sys.stderr, flush=True)


class Pass(Iterator[Any]):
    """The batches of one pass over `source`, or those after the state of such a pass; `close` ends its workers, if the
    pass is left early.

    Raises:
        DataError: the pass cannot continue where it was.
    """

    nests = False  # a loop inside of it cannot resume

    def __init__(
        self, source: Any, key: int, state: dict | None = None, *, say: Callable[[str], object] = _say
    ) -> None:
        self.source = source
        self.key = key
        self.say = say
        self.iterator = None
        self.workers = getattr(source, "num_workers", 0)
        loader = isinstance(source, DataLoader)
        self.name = type(source.dataset if loader else source).__name__
        self.inside = loader and not _stateful(source)  # then it is the data set that may have a state
        self.settings = [self.workers, getattr(source, "batch_size", None)]
        try:
            if not state or not state["done"]:
                self._open(None)
            elif state["settings"] != self.settings:
                raise DataError(
                    "A pass over {} continues only with the {} workers and batch size {} that it was begun with: set "
                    "these again, or start a new run.".format(self.name, *state["settings"])
                )
            elif state["taken"] is None or not self._continued(state):
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
        if self.stateful and (began := time.monotonic()) >= self.due:
            self.taken.append((self.done, pickle.dumps(self.stream.state_dict())))
            ended = time.monotonic()
            self.due = ended + SHARE * (ended - began)
        return batch

    def state(self) -> dict:
        """What `Pass` needs to continue after the batch returned last: plain values and tensors."""
        taken = None
        reason = "it has no `state_dict` and `load_state_dict`"
        if self.inside and self.workers:
            reason = "only torchdata's StatefulDataLoader knows the states of its workers"
        if self.stateful:
            try:
                taken = self._taken()
            except CheckpointError as error:
                reason = f"{error}".partition(":")[0]
        if taken is None and self.name not in _said:
            _said.add(self.name)
            self.say(f"To resume within a pass, {self.name} is read again from the start of the pass: {reason}.")
        return {"done": self.done, "digest": self.digest, "settings": self.settings, "taken": taken}

    def close(self) -> None:
        """End the pass and its workers."""
        iterator = self.iterator
        self.iterator = None
        if iterator is not None and iterator is not self.source:
            workers.close(iterator)
            getattr(iterator, "close", int)()  # a generator

    def _taken(self) -> list[Any]:
        """The newest state that is older than the last batch, and its number of batches."""
        at, taken = next(each for each in reversed(self.taken) if each[0] < max(1, self.done))
        if isinstance(taken, bytes):
            storages(taken := values(pickle.loads(taken), "its state"), "its state")
        return [at, taken]

    def _open(self, taken: list[Any] | None) -> None:
        """Start to read, from a state or (None) from the start."""
        source = self.source
        self.done = taken[0] if taken else 0
        state = taken[1] if taken else None
        self.digest = 0
        loader = isinstance(source, DataLoader)
        if loader:
            source = copy.copy(source)
            source._iterator = None  # persistent workers would continue their generators
            source.in_order = True
            source.worker_init_fn = Begin(source.worker_init_fn)
        # The stream that later passes read must not contain what is loaded here.
        if state is not None and not self.workers:
            if loader:
                vars(source)["dataset"] = copy.deepcopy(source.dataset)
            else:
                source = copy.deepcopy(source)
        self.stream = source.dataset if self.inside else source
        self.stateful = _stateful(self.stream) and not (self.inside and self.workers)
        self.taken = deque([(self.done, state)], maxlen=2)
        self.due = 0.0
        with Seeds().apart():
            _seed(source, self.key, self.say)
            if state is not None:
                self.stream.load_state_dict(restored(state))
            with workers.signals_later() if self.workers else nullcontext():
                self.iterator = iter(source)
        self.seeds = Seeds(_held(source))

    def _continued(self, state: dict) -> bool:
        """Continue from the state; False if that does not give the batch returned last again."""
        reason = "another batch follows"
        try:
            self._open(state["taken"])
            while self.done < state["done"]:
                next(self)
            if self.digest == state["digest"]:
                return True
        except Exception as error:  # any that a stream may raise when it is given a state
            reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
        self.say(f"{self.name} does not continue exactly from its state ({reason}): its pass is read from the start.")
        self.close()
        return False

    def _repeat(self, state: dict) -> None:
        """Read the pass again, from its start to the batch returned last."""
        self._open(None)
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


def watch_loaders() -> None:
    """From now on, keep the seed of persistent workers off the global generator: a loader draws it once, when they
    start, but a resumed run starts them again."""
    begin = DataLoader.__iter__
    if begin.__module__ == __name__:
        return

    def started(loader: DataLoader) -> Any:
        if loader.persistent_workers and loader.generator is None:
            loader.generator = torch.Generator().manual_seed(torch.initial_seed())
        return begin(loader)

    DataLoader.__iter__ = started


def _stateful(source: Any) -> bool:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


def _parts(source: Any) -> list[Any]:
    """A stream and what it consists of."""
    return [part for _, part in walk(source, code=False)]


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


def _seed(source: Any, key: int, say: Callable[[str], object]) -> None:
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
    seed_these(_held(source), key)
    for each in _fixed(source):
        entropy = getattr(getattr(each.bit_generator, "seed_seq", None), "entropy", 0)
        if isinstance(entropy, int) and entropy >= 1 << 64 and "shuffle" not in _said:  # from the operating system
            _said.add("shuffle")
            say("A shuffled data set without a seed cannot resume within a pass: give `shuffle` a seed.")
