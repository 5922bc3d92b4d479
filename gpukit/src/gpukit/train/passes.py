"""One pass over a user's loader, which resumes at any batch.

Everything random about a pass follows from one integer, its key: the order (the sampler draws from generators that are
seeded with the key), and the random numbers of each sample (data.Keyed). To continue after `done` batches, the sampler
is run again from the key, and its first `done` batches are skipped without reading a sample.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler

from gpukit.train import streams, workers
from gpukit.train.checks import sample_repeats
from gpukit.train.data import Collated, DataError, Keyed
from gpukit.train.seeds import ORDER, generators, mix, restore, seed_all, snapshot
from gpukit.train.state import capture, put_back, restored, values

# They draw from the global generators only before their first index, or from a generator of their own.
DRAW_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)

UNEXACT = ("sample-unseeded", "sample-changes")  # findings of a sample that differs when it is read again


class Order:
    """The batches of indices of a sampler, each index with the key of the pass."""

    def __init__(self, sampler: Any, batched: bool) -> None:
        self.sampler, self.batched, self.key, self.skip = sampler, batched, 0, 0
        inner = sampler.sampler if type(sampler) is BatchSampler else sampler
        self.draws_once = type(inner) in DRAW_ONCE
        self.repeats = not self.draws_once or getattr(inner, "replacement", False)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._keyed(self.key, self.skip)

    def _keyed(self, key: int, skip: int) -> Iterator[Any]:
        position = 0
        for number, found in enumerate(self._found(mix(ORDER, key))):
            indices = found if self.batched else [found]
            position += len(indices)
            if number >= skip:
                keys = repeat(key)
                if self.repeats:  # a sample that comes again in this pass draws other numbers
                    keys = (mix(key, place) >> 1 for place in range(position - len(indices), position))
                pairs = list(zip(keys, indices, strict=False))
                yield pairs if self.batched else pairs[0]

    def _found(self, seed: int) -> Iterator[Any]:
        """The sampler's batches; the loop's generators are unchanged by what it draws."""
        before = snapshot()
        seed_all(seed)
        batches = iter(self.sampler)
        while True:
            try:
                found = next(batches)
            except StopIteration:
                restore(before)
                return
            own = None if self.draws_once else snapshot()
            restore(before)
            yield found
            if self.draws_once:
                yield from batches
                return
            before = snapshot()
            restore(own)


class _Begin:
    """In a worker: what gpukit needs, then the user's `worker_init_fn`. The first worker of a run reads a few samples
    twice; not the training process, since workers forked later would share the position of files that it opened."""

    def __init__(self, user: Any) -> None:
        self.user, self.check = user, True

    def __call__(self, worker: int) -> None:
        workers.begin(worker)
        if self.user is not None:
            self.user(worker)
        if self.check and worker == 0 and (found := sample_repeats(get_worker_info().dataset.dataset)).id in UNEXACT:
            print(found.text, file=sys.stderr, flush=True)


class View:
    """A loader whose passes can resume: it shares the user's data set and sampler, and has its own workers."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = base = copy.copy(loader)
        if "base_dataloader" in vars(loader):  # accelerate's
            base = vars(self.loader)["base_dataloader"] = copy.copy(loader.base_dataloader)
        batched = base.batch_sampler is not None
        self.order = Order(base.batch_sampler if batched else base.sampler, batched)
        held = generators([base.sampler, base.batch_sampler, base.generator])
        self.generators = [one for one in held if one is not torch.default_generator]
        self.name = type(base.dataset).__name__
        self.place = f"{self.name} {len(base.dataset)} {len(self.order)} {type(base.sampler).__name__}"
        self.settings = {"samples": len(base.dataset), "batches": len(self.order)}
        self.dataset, self.in_worker, self.workers = base.dataset, _Begin(base.worker_init_fn), base.num_workers
        vars(base).update(
            dataset=Keyed(base.dataset),
            collate_fn=Collated(base.collate_fn),
            worker_init_fn=self.in_worker,
            generator=torch.Generator(),
            _iterator=None,
        )
        vars(base)["batch_sampler" if batched else "sampler"] = self.order
        self.batch_size = base.batch_size
        self.persistent = base.persistent_workers

    def begin(self, key: int, state: dict[str, Any] | None) -> Pass:
        """A pass, or the rest of one whose state was saved."""
        if state:
            for name, before in state["settings"].items():
                if before != self.settings[name]:
                    raise DataError(
                        f"{self.name} has {self.settings[name]} {name} instead of {before} when the run was saved: "
                        "resume with the same data and batch size, or start a new run."
                    )
            self.restore_generators(state["generators"])
        return Pass(self, key, state["done"] if state else 0)

    def generator_states(self) -> Any:
        """The states of the generators that belong to the loader or its sampler."""
        return values([capture(one, "a generator") for one in self.generators], "generators")

    def restore_generators(self, states: Any) -> None:
        """Restore them."""
        for generator, saved in zip(self.generators, restored(states)):
            put_back(generator, saved, "a sampler's generator")


class Pass(Iterator[Any]):
    """The batches of one pass, from batch `done` on."""

    def __init__(self, view: View, key: int, done: int) -> None:
        self.view, self.key, self.done = view, key, done
        self.begun = view.generator_states()
        view.order.key, view.order.skip = key, done
        if view.in_worker.check and not view.workers and (found := sample_repeats(view.dataset)).id in UNEXACT:
            print(found.text, file=sys.stderr, flush=True)
        with workers.signals_later():
            self.batches = iter(view.loader)
        view.in_worker.check = False

    def __next__(self) -> Any:
        batch = next(self.batches)
        self.done += 1
        return batch

    def state(self) -> dict[str, Any]:
        """What `View.begin` needs to continue after the batch that was returned last."""
        return {"done": self.done, "generators": self.begun, "settings": self.view.settings}

    def close(self) -> None:
        """End the workers, unless they are persistent."""
        if not self.view.persistent:
            workers.close(self.batches)


class Items(Iterator[Any]):
    """A pass over a sequence, such as a range or a list."""

    def __init__(self, sequence: Any, state: dict[str, Any] | None) -> None:
        self.sequence, self.done = sequence, state["done"] if state else 0

    def __next__(self) -> Any:
        if self.done >= len(self.sequence):
            raise StopIteration
        self.done += 1
        return self.sequence[self.done - 1]

    def state(self) -> dict[str, Any]:
        return {"done": self.done}

    def close(self) -> None: ...


def map_style(source: Any) -> bool:
    """Whether this is a torch DataLoader over a data set that is read by index."""
    if not isinstance(source, DataLoader) or hasattr(getattr(source, "base_dataloader", source), "load_state_dict"):
        return False
    return not isinstance(getattr(source, "base_dataloader", source).dataset, IterableDataset)


class Sources:
    """Begins passes; keeps one view for each loader, so that persistent workers stay.

    `saved`: the result of `generator_states` in the run that is resumed.
    """

    def __init__(self, saved: dict[str, Any]) -> None:
        self.views: dict[int, tuple[Any, View]] = {}  # with the loader, so that its id stays its own
        self.saved = dict(saved)

    def begin(self, source: Any, key: int, state: dict[str, Any] | None) -> Any:
        """The batches of a pass over a loader, a sequence, or any other iterable (streams.py)."""
        if map_style(source):
            if id(source) not in self.views:
                view = View(source)
                view.place += f" {sum(other.place.startswith(view.place) for _, other in self.views.values())}"
                view.restore_generators(self.saved.pop(view.place, []))
                self.views[id(source)] = (source, view)
            return self.views[id(source)][1].begin(key, state)
        if isinstance(source, (range, list, tuple)):
            return Items(source, state)
        return streams.begin(source, key, state)

    def generator_states(self) -> dict[str, Any]:
        """The generators of all loaders, also of those that a resumed run has not used again yet."""
        return self.saved | {view.place: view.generator_states() for _, view in self.views.values()}
