"""The number of workers that is chosen, from costs that are given, and in real loops."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset, get_worker_info

from exactrun.ranks import Ranks
from gpukit.script import tuner
from gpukit.script.loader import Loading, loader
from gpukit.script.task import Task
from gpukit.script.tuner import Costs, Feed, choose


def costs(load=0.0, wait=0.0, hand=0.5, step=0.0, busy=0.0, size=1000):
    """From milliseconds."""
    return Costs(*(each / 1000 for each in (load, load, wait, hand, hand, step, busy)), size)


@pytest.fixture
def machine(monkeypatch):
    """So many CPUs, and bytes of shared memory."""

    def be(cpus, shm=1e12):
        monkeypatch.setattr(tuner, "usable_cpus", lambda: cpus)
        monkeypatch.setattr(tuner.shutil, "disk_usage", lambda path: SimpleNamespace(free=shm))

    return be


@pytest.mark.parametrize(
    ("cpus", "costs", "workers"),
    [
        (2, costs(load=0.2), 0),  # passing a batch on takes longer
        (2, costs(load=0.2, step=10, busy=10), 0),
        (64, costs(load=5, step=300, busy=300), 0),  # little of a step
        (2, costs(load=30), 2),  # all CPUs
        (16, costs(load=30), 16),
        (16, costs(load=30, step=10, busy=10), 3),  # what hides behind the step
        (2, costs(load=20, step=10, busy=20), 0),  # a step on both CPUs
        (2, costs(load=2, wait=30), 8),  # they wait side by side
        (2, costs(load=2, wait=30, step=10, busy=10), 3),
        (1, costs(load=30), 0),
    ],
)
def test_the_number_of_workers(machine, cpus, costs, workers):
    machine(cpus)
    assert choose(costs, 16).workers == workers


def test_the_processes_of_one_machine_share_it(machine, monkeypatch):
    machine(16)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert choose(costs(load=30), 16).workers == 4


@pytest.mark.parametrize(("shm", "found"), [(1e12, (8, 4)), (30e6, (8, 2)), (14e6, (4, 2)), (1e6, (0, 2))])
def test_batches_fit_in_shared_memory(machine, shm, found):
    machine(8, shm)
    loading = choose(costs(load=30, size=10**6), 16)
    assert (loading.workers, loading.prefetch) == found
    assert ("/dev/shm" in loading.reason) == (found[0] < 8)


class Lazy(Dataset):
    """Opens its file when the first sample is read, as many do."""

    def __init__(self, seconds=0.0):
        self.seconds, self.file = seconds, None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(os.devnull, os.O_RDONLY)
        time.sleep(self.seconds)
        return torch.rand(3) + index


class Local(Lazy):
    """Cannot be read in a worker."""

    def __getitem__(self, index):
        if get_worker_info() is not None:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, ...")
        return super().__getitem__(index)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(tuner, "MOST", 10)


def test_batches_are_the_same_while_the_loader_is_tuned(quick, machine):
    """This process reads no sample: workers that are forked later would share the position in its files."""
    machine(2)
    dataset, messages = Lazy(seconds=0.002), []
    feed = Feed(dataset, 8, 5, first_step=3, ranks=Ranks(1, 2), say=messages.append)
    expected = list(islice(loader(Lazy(), 8, 5, first_step=3, ranks=Ranks(1, 2)), 50))
    batches, before = iter(feed), torch.get_rng_state()
    for batch in expected:
        assert torch.equal(next(batches), batch)
    batches.close()
    assert torch.equal(torch.get_rng_state(), before)
    assert dataset.file is None
    assert feed.loading.workers > 1 and not multiprocessing.active_children()
    assert len(messages) == 1
    assert messages[0].startswith(f"Loading data with {feed.loading.workers} workers: a batch of 4 takes ")


def test_data_that_workers_cannot_read():
    task = Task(torch.nn.Linear(1, 1), None, Local(), lambda *_: None, collate=torch.stack)
    messages = []
    assert next(iter(Feed(task, 4, 0, say=messages.append))).shape == (4, 3)
    assert messages[0].startswith("Loading data with 0 workers: ") and "GPU" in messages[0]


def test_errors_of_the_data_set_are_raised():
    class Broken(Lazy):
        def __getitem__(self, index):
            raise KeyError("label")

    with pytest.raises(KeyError, match="label"):
        next(iter(Feed(Broken(), 4, 0)))
    assert Feed(Broken(), 4, 0, workers=3).loading == Loading(3)


def test_tiny_tensors_need_no_workers_on_a_busy_machine():
    dataset = TensorDataset(torch.randn(6000, 32), torch.arange(6000))
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            other = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(other.kill)
        found = []
        for _ in range(3):
            feed = Feed(dataset, 64, 0, say=lambda text: None)
            for _ in feed:
                if feed.tuned:
                    break
            found.append(feed.loading.workers)
    assert found == [0, 0, 0]
