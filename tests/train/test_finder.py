"""The batch finder: the search on memory models, and real processes with a stand-in for the GPU's memory."""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exactrun.errors import TrainingError
from exactrun.ranks import Ranks
from gpukit.script import device as devices
from gpukit.script import finder
from gpukit.script.finder import TRIALS, Outcome, Search, find
from gpukit.script.task import Task, _size, largest_samples
from tests.train import finder_tasks, memory_kinds
from tests.train.conftest import ROOT
from tests.train.finder_tasks import MIB, Settings

GB = 10**9


def search(demand: Callable[[int], float | str], budget: float, ceiling: int = 2**40) -> Search:
    """A finished search: `demand(size)` is the memory of a size, or why it fails."""
    one = Search(int(budget), ceiling)
    while size := one.size():
        fresh = True
        while size:
            needs = demand(size)
            if isinstance(needs, str):
                one.tried.append(Outcome(size, None, needs, memory=False, fresh=fresh))
            else:
                peak = int(needs) if needs <= budget else None
                one.tried.append(Outcome(size, peak, "" if peak else "out of memory", fresh=fresh))
            size, fresh = one.next(), False
    return one


def sizes(one: Search) -> list[int]:
    return [each.size for each in one.tried]


@pytest.mark.parametrize("seed", [101, 102])
def test_memory_models(seed: int) -> None:
    answers = [
        answer
        for model in memory_kinds.models(of_each=6, seed=seed)
        for answer in memory_kinds.race(model, memory_kinds.ours, seeds=2)
    ]
    assert len(answers) > 100
    assert max(each.share for each in answers) <= 1
    assert statistics.mean(each.share for each in answers) >= 0.92
    assert statistics.mean(each.share >= 0.85 for each in answers) >= 0.95
    assert max(each.processes for each in answers) <= TRIALS


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 8, 33, 100, 5000, 2**20])
def test_exactly_proportional(most: int) -> None:
    """A few samples fill the memory to the last byte; of many, some are left for what is not known."""
    found = search(lambda size: size * MIB, most * MIB)
    assert found.best == most if most <= 9 else most * 0.9 <= found.best <= most
    assert len(found.began) <= 2


def test_answers_only_what_a_trial_began_with_and_always_ends() -> None:
    """Whatever a device says: nonsense, half of the time."""
    for seed in range(1500):
        source = random.Random(seed)
        budget, most = source.choice([10, 8 * GB]), int(math.exp(source.uniform(0, 15)))
        honest, cause = source.random() < 0.5, source.choice([0, 0.2])

        def demand(size: int) -> float | str:
            assert size >= 1
            if size <= most if honest else source.random() < 0.5:  # noqa: B023
                return source.randint(1, int(1.2 * budget))  # noqa: B023
            return "a bug" if source.random() < cause else math.inf  # noqa: B023

        found = search(demand, budget)
        fitted = {each.size for each in found.tried if each.fresh and (each.peak_bytes or math.inf) <= budget}
        assert found.best in fitted | {0}
        assert len(found.began) <= TRIALS and len(found.tried) <= 20


def test_nothing_fits() -> None:
    found = search(lambda size: math.inf, GB)
    assert found.best == 0 and sizes(found)[-1] == 1


@pytest.mark.parametrize("most", [1, 2, 3, 64, 100])
def test_no_use_for_more(most: int) -> None:
    found = search(lambda size: MIB + size, GB, ceiling=most)
    assert found.best == most == max(sizes(found))
    assert found.reason() == "the data set has no more samples"


def test_the_largest_launch_is_approached() -> None:
    found = search(lambda size: MIB + size * 1000 if size <= 65535 else "invalid configuration argument", 8 * GB)
    assert 0.9 * 65535 <= found.best <= 65535


@pytest.mark.parametrize("number", range(1, 6))
def test_a_size_that_failed_once_is_a_limit(number: int) -> None:
    """Also if it failed for no reason: what is returned is smaller, and most of it."""
    calls = iter(range(100))
    found = search(lambda size: math.inf if next(calls) == number else GB + size * MIB, 8 * GB)
    failed = next(each.size for each in found.tried if each.peak_bytes is None)
    assert 0.9 * min(failed - 1, 7 * GB / MIB) <= found.best < failed


def test_noise_is_kept_away_from() -> None:
    """Peaks of up to 2 % more in some steps: the answer has room for them."""
    for seed in range(40):
        source = random.Random(seed)
        found = search(lambda size: (GB + size * MIB) * (1 + source.uniform(0, 0.02)), 8 * GB)  # noqa: B023
        assert (GB + found.best * MIB) * 1.02 <= 8 * GB
        assert found.best >= 0.85 * 7 * GB / MIB


def test_the_largest_samples_make_the_batch() -> None:
    task = Task(None, None, finder_tasks.Rows(10_000, ragged=True), None)
    assert {len(each) for each in largest_samples(task)} == {4}, "indices have up to 4 digits"
    task.dataset = finder_tasks.Rows(3)
    assert len(largest_samples(task)) == 3


@pytest.mark.parametrize(
    ("sample", "size"),
    [(torch.zeros(3), 12), ({"text": "four", "ids": [1, 2, 3]}, 7), ((torch.zeros(2, dtype=torch.uint8), 1), 3)],
)
def test_size_of_a_sample(sample: object, size: int) -> None:
    assert _size(sample) == size


# Real processes


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_MIB", "500")
    monkeypatch.setattr(devices, "GpuMemory", finder_tasks.Card)


class OneOf(Ranks):
    """A process whose other ones find `other`."""

    def __init__(self, other: int, world: int = 2) -> None:
        super().__init__(0, world, 0)
        self.other, self.asked = other, []

    def least(self, value: int) -> int:
        self.asked.append(value)
        return min(value, self.other)


def test_what_fits_is_verified_in_a_fresh_process(card: None) -> None:
    """10 MiB of 500 for the model, 4 for each sample."""
    messages: list[str] = []
    found = find(finder_tasks.build, Settings(each=4), progress=messages.append)
    assert 0.9 * 490 / 4 <= found <= 490 / 4
    assert messages[1] == "cpu: 0.49 GiB available (cudaMemGetInfo); 10000 samples."
    fresh = [line for line in messages if "in a fresh process" in line]
    assert f"{found:>9} samples take" in fresh[-1] and len(fresh) == 1
    assert messages[-1].startswith(f"Batch size {found}: it leaves ")
    assert find(finder_tasks.build, Settings(each=4), limit=100 * MIB) <= 90 / 4


def test_the_traced_size_is_the_first(card: None) -> None:
    """Traced exactly, it needs no other process."""
    messages: list[str] = []
    found = find(finder_tasks.build, Settings(each=4, traced=1), progress=messages.append)
    assert 0.9 * 490 / 4 <= found <= 490 / 4
    assert int(messages[2].split()[0]) >= 0.85 * 490 / 4
    assert not any("in a fresh process" in line for line in messages)


def test_all_ranks_use_the_least(card: None) -> None:
    messages: list[str] = []
    settings = Settings(samples=7)
    assert find(finder_tasks.build, settings, progress=messages.append) == 7
    assert messages[-1] == "Batch size 7: the data set has no more samples."
    assert find(finder_tasks.build, settings, ranks=OneOf(64), progress=messages.append) == 3
    assert find(finder_tasks.build, settings, ranks=OneOf(2), progress=messages.append) == 2
    assert messages[-1] == "Batch size 2 per process: another process found no larger one."
    with pytest.raises(TrainingError, match="Another process"):
        find(finder_tasks.build, settings, ranks=OneOf(0))
    ranks = OneOf(64, world=8)
    with pytest.raises(TrainingError, match="fewer samples than there are processes"):
        find(finder_tasks.build, settings, ranks=ranks)
    assert ranks.asked == [0]


def test_a_process_that_is_killed_has_run_out(card: None) -> None:
    messages: list[str] = []
    settings = Settings(each=0.001, wrong="kill", most=2, samples=3)
    assert find(finder_tasks.build, settings, progress=messages.append) == 2
    assert messages[2].startswith("        3 samples do not fit: its process ended with SIGKILL, ")
    assert messages[-1] == "Batch size 2: 3 samples do not fit: its process ended with SIGKILL."


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("build", "The task cannot be built: there is no such data"),
        ("model", "The model does not fit in memory, even without data: CUDA out of memory."),
        ("crash", "The task cannot be built: its process ended with exit status 3"),
        (
            "launch",
            "Training fails with 1 samples (CUDA error: invalid configuration argument): memory is not the cause.",
        ),
    ],
)
def test_without_an_answer_there_is_one_sentence(card: None, wrong: str, sentence: str) -> None:
    with pytest.raises(TrainingError) as raised:
        find(finder_tasks.build, Settings(wrong=wrong))
    assert str(raised.value) == sentence


def test_a_task_that_no_process_can_import(card: None) -> None:
    with pytest.raises(TrainingError, match="Other processes import the task"):
        find(lambda settings, device: None, Settings())


def test_without_a_gpu_the_size_is_set() -> None:
    with pytest.raises(TrainingError, match="only be found on a GPU"):
        find(finder_tasks.build, Settings())


def test_interrupted_the_command_leaves_nothing_behind() -> None:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = "import tests.train.finder_tasks\nfrom gpukit.script import finder\nfinder.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--task", "tests.train.finder_tasks:build", "--each", "0.01"],
        env={**os.environ, "PYTHONPATH": path, "CARD_MIB": "500"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().startswith("Finding the largest batch")
    assert "available" in process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_the_command_names_a_function_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["finder", "--task", "tests.train.finder_tasks:biuld"])
    with pytest.raises(SystemExit, match="has no function"):
        finder.main()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_on_a_gpu() -> None:
    assert 400 <= find(finder_tasks.build, Settings(), limit=512 * MIB, progress=lambda line: None) <= 512
