"""Streams of every kind, whose samples draw random numbers, and a loop over them that can be killed and resumed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import pickle
import random
import signal
import tarfile
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate, get_worker_info

from exactrun import state as states
from exactrun import streams
from exactrun.seeds import restore, snapshot

SHARDS = (17, 30, 11)  # samples; the workers of a loader end at different times
PASSES = 2  # of a run
SAVED = 3  # batches between two states that are saved


def noisy(sample):
    """A random transform that uses every global generator."""
    return {"n": sample["n"], "x": random.random() + numpy.random.rand() + torch.rand(()).item()}


def noisy_batch(samples):
    return {"n": samples["n"], "x": [noisy({"n": n})["x"] for n in samples["n"]]}


def numbers(shards):
    for shard in shards:
        yield from ({"n": 100 * shard + number} for number in range(SHARDS[shard]))


def mine():
    """The shards of this worker."""
    worker = get_worker_info()
    return range(worker.id, len(SHARDS), worker.num_workers) if worker else range(len(SHARDS))


class Stateless(IterableDataset):
    def __iter__(self):
        return map(noisy, numbers(mine()))


class Buffered(IterableDataset):
    """Keeps its position, the contents of its shuffle buffer, and generators in its state."""

    def __init__(self):
        self.at = 0
        self.buffer = []
        self.own = numpy.random.default_rng(0)

    def __iter__(self):
        samples = list(numbers(mine()))
        while self.at < len(samples) or self.buffer:
            while self.at < len(samples) and len(self.buffer) < 8:
                self.buffer.append(samples[self.at])
                self.at += 1
            sample = noisy(self.buffer.pop(int(self.own.integers(len(self.buffer)))))
            yield {**sample, "y": self.own.normal()}
        self.at = 0

    def state_dict(self):
        return {"at": self.at, "buffer": self.buffer, "kept": numpy.arange(3)}

    def load_state_dict(self, state):
        assert isinstance(state["kept"], numpy.ndarray)
        self.at = state["at"]
        self.buffer = list(state["buffer"])


class Liar(IterableDataset):
    """Restores its counter, but not its position."""

    def __init__(self):
        self.count = 0

    def __iter__(self):
        self.count = self.count if get_worker_info() else 0
        for sample in numbers(mine()):
            self.count += 1
            yield noisy(sample)

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Mixed:
    """A collate function with a generator of its own."""

    def __init__(self):
        self.own = random.Random(0)

    def __call__(self, samples):
        self.own.shuffle(samples)
        return default_collate(samples)


def hugging(shuffled=False, batched=False):
    import datasets

    found = datasets.IterableDataset.from_generator(numbers, gen_kwargs={"shards": list(range(len(SHARDS)))})
    if shuffled:
        found = found.shuffle(seed=1, buffer_size=12)
    return found.map(noisy_batch, batched=True, batch_size=7) if batched else found.map(noisy)


def parquet(folder):
    import datasets

    datasets.disable_progress_bars()
    folder = folder.parent / "parquet"
    if not folder.exists():
        aside = folder.with_name(f"parquet-{os.getpid()}")
        for shard in range(len(SHARDS)):
            datasets.Dataset.from_list(list(numbers([shard]))).to_parquet(aside / f"{shard}.parquet")
        with contextlib.suppress(OSError):  # another process was first
            aside.rename(folder)
    files = sorted(map(str, folder.glob("*.parquet")))
    options = {"data_files": files, "split": "train", "streaming": True, "cache_dir": str(folder.parent / "cache")}
    return datasets.load_dataset("parquet", **options).map(noisy)


def tar_files(folder):
    folder = folder.parent / "tar"
    if not folder.exists():
        aside = folder.with_name(f"tar-{os.getpid()}")
        aside.mkdir()
        for shard in range(len(SHARDS)):
            with tarfile.open(aside / f"{shard}.tar", "w") as file:
                for sample in numbers([shard]):
                    data = str(sample["n"]).encode()
                    entry = tarfile.TarInfo(f"{sample['n']:04}.txt")
                    entry.size = len(data)
                    file.addfile(entry, io.BytesIO(data))
        with contextlib.suppress(OSError):  # another process was first
            aside.rename(folder)
    return sorted(map(str, folder.glob("*.tar")))


def read_text(sample):
    return noisy({"n": int(sample["txt"])})


def web(folder, workers):
    import webdataset

    stream = webdataset.WebDataset(tar_files(folder), shardshuffle=10).shuffle(12).map(read_text)
    return webdataset.WebLoader(stream, batch_size=4, num_workers=workers)


def stateful_loader(dataset, workers):
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(dataset, batch_size=4, num_workers=workers)


def loader(dataset, workers, **options):
    return DataLoader(dataset, batch_size=4, num_workers=workers, **options)


KINDS = {
    "huggingface": lambda folder, workers: loader(hugging(), workers),
    "huggingface, shuffled": lambda folder, workers: loader(hugging(shuffled=True), workers),
    "huggingface, batched map": lambda folder, workers: loader(hugging(batched=True), workers),
    "huggingface, StatefulDataLoader": lambda folder, workers: stateful_loader(hugging(), workers),
    "huggingface, Parquet files": lambda folder, workers: loader(parquet(folder), workers),
    "webdataset": web,
    "state with a buffer": lambda folder, workers: loader(
        Buffered(), workers, persistent_workers=workers > 0, collate_fn=Mixed()
    ),
    "state that is not restored": lambda folder, workers: loader(Liar(), workers),
    "without state": lambda folder, workers: loader(Stateless(), workers),
}
ALONE = {  # without a loader
    "huggingface alone": lambda folder, workers: hugging(),
    "huggingface alone, batches": lambda folder, workers: hugging().batch(4),
    "generator": lambda folder, workers: map(noisy, numbers(range(len(SHARDS)))),
}


def run(kind, workers, folder, kill_after=None):
    """Train for PASSES passes, from the last state saved; after `kill_after` batches, the process kills itself."""
    multiprocessing.set_start_method("fork", force=True)  # a process of a fork server would start another one
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    make = {**KINDS, **ALONE}[kind]
    file = folder / "state.pt"
    first = 0
    state = None
    left = kill_after
    source = make(folder, workers)
    if file.exists():
        saved = torch.load(file, weights_only=True)
        first = saved["pass"]
        key = saved["key"]
        state = saved["state"]
    with (folder / "log").open("a") as log:
        for number in range(first, PASSES):
            if kind == "generator":
                source = make(folder, workers)
            if state is None:
                key = torch.randint(2**63 - 1, ()).item()
            batches = streams.Pass(source, key, state)
            if state is not None:
                restore(states.restored(saved["generators"]))
            for batch in batches:
                dropout = torch.rand(()).item() + random.random() + numpy.random.rand()
                content = hashlib.sha256(pickle.dumps(states.values(as_lists(batch), "the batch"))).hexdigest()[:16]
                log.write(f"{number} {batches.done} {content} {dropout.hex()}\n")
                log.flush()
                if left is not None and (left := left - 1) < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                if batches.done % SAVED == 0:
                    values = {"pass": number, "key": key, "state": batches.state()}
                    torch.save({**values, "generators": states.values(snapshot(), "the generators")}, folder / "new.pt")
                    (folder / "new.pt").rename(file)
            state = None


def as_lists(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return {key: as_lists(each) for key, each in value.items()} if isinstance(value, dict) else value


def read(folder: Path):
    """What was logged for each batch, and whether a batch was logged twice with different values."""
    found = {}
    equal = True
    for line in (folder / "log").read_text().splitlines():
        number, step, *values = line.split()
        equal &= found.setdefault((int(number), int(step)), values) == values
    return found, equal
