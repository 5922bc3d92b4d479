"""One pass over a user's loader, which resumes at any batch.

Everything random about a pass follows from one integer, its key: the order (the sampler draws from generators that are
seeded with the key), and the random numbers of each batch (data.Keyed). To continue after `done` batches, the sampler
is run again from the key, and its first `done` batches are skipped without reading a sample.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import count, islice, repeat
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from exactrun import streams, workers
from exactrun.data import Batch, Begin, DataError, Keyed, as_number, collated
from exactrun.seeds import ORDER, SAMPLE, Seeds, generators, mix
from exactrun.state import capture, put_back, restored, values

# They draw from the global generators only before their first index, or from a generator of their own.
DRAW_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)

SEQUENCES = (range, list, tuple, count)  # their items are the same again


class Order(Sampler[Any]):
    """The batches of a sampler, or its indices, with their keys. What the sampler draws from the global generators and
    from `owned` follows from the key of the pass; the global ones keep their state.

    `each`: seeds for each sample, instead of each batch. `first`: the batch with which iterations begin. Of several
    processes, each gets every `world`-th batch.
    """

    rank = 0
    world = 1
    key = 0
    first = 0

    def __init__(self, sampler: Any, batched: bool, owned: list[Any], each: bool = False) -> None:
        self.sampler = sampler
        self.batched = batched
        self.seeds = Seeds(owned)
        self.each = each
        inner = sampler.sampler if type(sampler) is BatchSampler else sampler
        self.draws_once = type(inner) in DRAW_ONCE
        self.repeats = not self.draws_once or getattr(inner, "replacement", False)

    def __len__(self) -> int:
        return len(self.sampler) // self.world

    def __iter__(self) -> Iterator[Any]:
        return self._keyed(self.key, self.first)  # a loader with workers calls this twice

    def _keyed(self, key: int, first: int) -> Iterator[Any]:
        position = 0
        every = self._found(mix(ORDER, key))
        state = mix(SAMPLE, key)
        for number, found in enumerate(islice(every, len(self) * self.world) if self.world > 1 else every):
            indices = list(found) if self.batched else [found]
            position += len(indices)
            place = number // self.world
            if number % self.world != self.rank or place < first:
                continue
            if not self.each:
                batch = Batch(mix(number, *map(as_number, indices[:1]), state=state), indices)
            else:
                keys = repeat(key)
                if self.repeats:  # a sample that comes again in this pass draws other numbers
                    keys = (mix(key, each) for each in range(position - len(indices), position))
                batch = list(zip(keys, indices, strict=False))
            if not self.batched:
                batch = batch[0] if self.each else (batch.key, batch.indices[0])
            yield batch

    def _found(self, seed: int) -> Iterator[Any]:
        """The sampler's batches; the loop's generators are unchanged by what it draws."""
        batches = None
        outside = Seeds()
        for number in count():
            with outside.apart():
                self.seeds.seed(mix(seed, number))
                batches = iter(self.sampler) if batches is None else batches
                found = next(batches, self)
            if found is self:
                return
            yield found
            if self.draws_once:
                yield from batches
                return


def options(loader: DataLoader) -> dict[str, Any]:
    """What a loader needs for the batches of an Order."""
    return {
        "dataset": Keyed(loader.dataset, loader.collate_fn),
        "collate_fn": collated,
        "worker_init_fn": Begin(loader.worker_init_fn),
        "generator": torch.Generator(),  # the loader draws a seed when it starts: keep it off the global generator
    }


class View:
    """A loader whose passes can resume: it shares the user's data set and sampler, and has its own workers."""

    def __init__(self, loader: DataLoader, each: bool = False) -> None:
        self.loader = base = copy.copy(loader)
        if "base_dataloader" in vars(loader):  # accelerate's
            base = vars(self.loader)["base_dataloader"] = copy.copy(loader.base_dataloader)
        batched = base.batch_sampler is not None
        self.order = Order(base.batch_sampler if batched else base.sampler, batched, [], each)
        held = generators([base.sampler, base.batch_sampler, base.generator])
        self.generators = [one for one in held if one is not torch.default_generator]
        self.dataset = base.dataset
        self.name = type(base.dataset).__name__
        length = len(self.order) if self.order.draws_once else ""  # another sampler's may change with each pass
        self.place = f"{self.name} {len(base.dataset)} {length} {type(base.sampler).__name__}"
        vars(base).update(options(base), _iterator=None)
        vars(base)["batch_sampler" if batched else "sampler"] = self.order
        self.persistent = base.persistent_workers

    def begin(self, key: int, state: dict[str, Any] | None) -> Pass:
        """A pass, or the rest of one whose state was saved."""
        settings = {"samples": len(self.dataset), "batches": len(self.order)}
        if state:
            for name, before in state["settings"].items():
                if before != settings[name]:
                    raise DataError(
                        f"{self.name} has {settings[name]} {name} instead of {before} when the run was saved: "
                        "resume with the same data and batch size, or start a new run."
                    )
            self.restore_generators(state["generators"])
        return Pass(self, key, state, settings)

    def batches(self, key: int, first: int) -> Iterator[Any]:
        """The batches of the pass with this key, from batch `first` on."""
        self.order.key = key
        self.order.first = first
        loader = self.loader
        if type(loader) is DataLoader and not loader.num_workers and not loader.pin_memory:
            # A DataLoader's own iterator would give the same, but adds 5 to 15 us to each batch.
            return map(loader.dataset.__getitems__ if self.order.batched else loader.dataset.__getitem__, self.order)
        with workers.signals_later():
            return iter(loader)

    def generator_states(self) -> Any:
        """The states of the generators that belong to the loader or its sampler."""
        return values([capture(one, "a generator") for one in self.generators], "generators")

    def restore_generators(self, states: Any) -> None:
        """Restore them."""
        for generator, saved in zip(self.generators, restored(states)):
            put_back(generator, saved, "a sampler's generator")


class Pass(Iterator[Any]):
    """The batches of one pass, from batch `done` on."""

    def __init__(self, view: View, key: int, state: dict[str, Any] | None, settings: dict[str, int]) -> None:
        self.view = view
        self.settings = settings
        self.done = state["done"] if state else 0
        self.begun = view.generator_states()
        self.batches = view.batches(key, self.done)

    def __next__(self) -> Any:
        batch = next(self.batches)
        self.done += 1
        return batch

    def state(self) -> dict[str, Any]:
        """What `View.begin` needs to continue after the batch that was returned last."""
        return {"done": self.done, "generators": self.begun, "settings": self.settings}

    def close(self) -> None:
        """End the workers, unless they are persistent."""
        if not self.view.persistent:
            workers.close(self.batches)


class Items(Iterator[Any]):
    """A pass over a sequence, or over another iterable whose items are the same again."""

    def __init__(self, items: Any, state: dict[str, Any] | None) -> None:
        self.items = items
        self.done = state["done"] if state else 0
        self.rest = iter(items[self.done :]) if isinstance(items, range) else islice(items, self.done, None)

    def __next__(self) -> Any:
        item = next(self.rest)
        self.done += 1
        return item

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "sequence": True}

    def close(self) -> None: ...


def map_style(source: Any) -> bool:
    """Whether this is a torch DataLoader over a data set that is read by index."""
    base = getattr(source, "base_dataloader", source)  # accelerate's
    if base is not source and hasattr(base, "load_state_dict"):  # torchdata's, whose state accelerate reads
        return False
    return isinstance(source, DataLoader) and not isinstance(base.dataset, IterableDataset)


class Sources:
    """Begins passes; keeps one view for each loader, so that persistent workers stay.

    `saved`: the result of `generator_states` in the run that is resumed. `each`: seeds for each sample.
    """

    def __init__(self, saved: dict[str, Any], each: bool = False) -> None:
        self.each = each
        self.views: dict[int, tuple[Any, View]] = {}  # with the loader, so that its id stays its own
        self.saved = dict(saved)

    def begin(self, source: Any, key: int, state: dict[str, Any] | None) -> Any:
        """The batches of a pass over a loader, a sequence, or any other iterable (streams.py)."""
        if map_style(source):
            if id(source) not in self.views:
                view = View(source, self.each)
                view.place += f" {sum(other.place.startswith(view.place) for _, other in self.views.values())}"
                view.restore_generators(self.saved.pop(view.place, []))
                self.views[id(source)] = (source, view)
            return self.views[id(source)][1].begin(key, state)
        if isinstance(source, SEQUENCES):
            return Items(source, state)
        return streams.Pass(source, key, state)

    def generator_states(self) -> dict[str, Any]:
        """The generators of all loaders, also of those that a resumed run has not used again yet."""
        return self.saved | {view.place: view.generator_states() for _, view in self.views.values()}
