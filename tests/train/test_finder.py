"""The batch finder: the search on memory models, and real trials in processes."""

from __future__ import annotations

import json
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

from gpukit.train import finder, trial
from gpukit.train.finder import FinderError, find
from gpukit.train.ranks import Ranks
from gpukit.train.search import Found, Outcome, search
from gpukit.train.task import Task
from tests.train import finder_tasks
from tests.train.conftest import ROOT

GB = 10**9
MIB = 2**20


def memory(budget: float, demand: Callable[[int], float]) -> Callable[[int], Outcome]:
    """A device that says what was taken, where it fits."""

    def tried(size: int) -> Outcome:
        return Outcome(True, int(demand(size))) if demand(size) <= budget else Outcome(False, why="out of memory")

    return tried


def sizes(found: Found) -> list[int]:
    return [each.size for each in found.trials]


@pytest.fixture(scope="module")
def finder_models():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import finder_models

        yield finder_models
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.parametrize("seed", [101, 102])
def test_memory_models(finder_models, seed: int) -> None:
    answers = [
        answer
        for model in finder_models.models(of_each=6, seed=seed)
        for answer in finder_models.race(model, finder_models.ours, seeds=2)
    ]
    assert len(answers) > 100
    assert max(each.share for each in answers) <= 1
    assert statistics.mean(each.share for each in answers) >= 0.97
    assert statistics.mean(each.trials for each in answers) <= 8


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7, 8, 33, 100, 5000, 2**20])
def test_exact_maximum_without_room(most: int) -> None:
    """A few samples fill the memory to the last byte; of many, one in a hundred is left for what is not known."""
    found = search(memory(most * MIB, lambda size: size * MIB), most * MIB)
    assert found.batch_size == most if most < 34 else most * 0.985 <= found.batch_size <= most
    assert len(found.trials) <= 5


def test_answers_only_what_was_confirmed_and_always_ends() -> None:
    """Whatever a device says: nonsense, half of the time."""
    for seed in range(1500):
        source = random.Random(seed)
        budget, most = source.choice([10, 8 * GB]), int(math.exp(source.uniform(0, 15)))
        honest, blind, cause = source.random() < 0.5, source.choice([0, 0.3, 1]), source.choice([0, 0.2])
        fitted: set[int] = set()

        def tried(size: int) -> Outcome:
            assert size >= 1
            fits = size <= most if honest else source.random() < 0.5  # noqa: B023
            peak = None if source.random() < blind else source.randint(0, int(1.2 * budget))  # noqa: B023
            return Outcome(fits, peak, ceiling=not fits and source.random() < cause)  # noqa: B023

        def confirm(size: int) -> Outcome:
            outcome = tried(size)
            if outcome.fits and (outcome.peak_bytes or 0) <= budget:  # noqa: B023
                fitted.add(size)  # noqa: B023
            return outcome

        found = search(tried, budget, confirm=confirm)
        assert found.batch_size == 0 or found.batch_size in fitted
        assert len(found.trials) <= 30


def test_nothing_fits() -> None:
    found = search(lambda size: Outcome(False, why="out of memory"), GB)
    assert found.batch_size == 0
    assert found.reason == "not even one sample fits (out of memory)"
    assert sizes(found) == [2, 1, 1], "one sample is tried twice"


@pytest.mark.parametrize("most", [1, 2, 3, 64])
def test_no_use_for_more(most: int) -> None:
    found = search(memory(GB, lambda size: MIB + size), GB, ceiling=most)
    assert found.batch_size == most
    assert max(sizes(found)) == most
    assert found.reason == f"{most} is the largest size to try"


def test_largest_launch_is_found_exactly() -> None:
    def tried(size: int) -> Outcome:
        if size > 65535:
            return Outcome(False, ceiling=True, why="invalid configuration argument")
        return Outcome(True, MIB + size * 1000)

    found = search(tried, 8 * GB)
    assert found.batch_size == 65535
    assert "65536 fails for another reason than memory (invalid configuration argument)" in found.reason


def test_device_that_measures_nothing() -> None:
    for most in (1, 2, 3, 7, 1000, 65535):
        found = search(lambda size, most=most: Outcome(size <= most), 1)
        assert most * 0.85 <= found.batch_size <= most


@pytest.mark.parametrize("times", [0.5, 0.8, 1.1, 1.6])
def test_confirmation_takes_other_memory(times: float) -> None:
    """Compiled, a batch takes more or less than in the trials: what is answered is what fits compiled."""
    budget = 8 * GB
    found = search(
        memory(budget, lambda size: GB + size * 3 * MIB),
        budget,
        confirm=memory(budget, lambda size: GB + size * 3 * MIB * times),
    )
    most = int(7 * GB / (3 * MIB * times))
    assert most * 0.9 <= found.batch_size <= most
    assert sum(each.confirming for each in found.trials) <= 6


def test_a_trial_that_failed_for_no_reason_is_mended() -> None:
    failures = iter([3, 40])
    failing = next(failures)

    def tried(size: int) -> Outcome:
        nonlocal failing
        if size >= failing:
            failing = next(failures, 10**9)
            return Outcome(False)
        return memory(8 * GB, lambda size: GB + size * MIB)(size)

    assert search(tried, 8 * GB).batch_size >= 0.97 * 7 * GB / MIB


def test_noise_is_kept_away_from() -> None:
    """Peaks of up to 2 % more in some steps: the answer has room for them."""
    budget = 8 * GB
    for seed in range(40):
        source = random.Random(seed)

        def tried(size: int) -> Outcome:
            peak = (GB + size * MIB) * (1 + max(source.uniform(-0.02, 0.02) for _ in range(3)))  # noqa: B023
            return Outcome(peak <= budget, int(peak))

        found = search(tried, budget)
        assert (GB + found.batch_size * MIB) * 1.02 <= budget
        assert found.batch_size >= 0.9 * 7 * GB / MIB
        assert "the memory of equal sizes varied by up to" in found.reason


def test_measured_beyond_the_budget_leads_back() -> None:
    """What takes more than the budget, and can be measured all the same, does not have to be bisected."""
    found = search(lambda size: Outcome(True, GB + size * size * 1000), 2 * GB)
    assert 960 <= found.batch_size <= 1000
    assert len(found.trials) <= 8


def test_the_largest_samples_make_the_batch() -> None:
    task = Task(None, None, finder_tasks.Rows(10_000, ragged=True), None)
    samples = trial.Samples(task)
    assert samples.batch(5).shape == (5, 4), "indices have up to 4 digits"
    assert "the largest is used" in samples.how
    task.dataset = finder_tasks.Rows(3)
    assert trial.Samples(task).batch(5).shape == (5, 1)


@pytest.mark.parametrize(
    ("sample", "size"),
    [(torch.zeros(3), 12), ({"text": "four", "ids": [1, 2, 3]}, 7), ((torch.zeros(2, dtype=torch.uint8), 1), 3)],
)
def test_size_of_a_sample(sample: object, size: int) -> None:
    assert trial._bytes(sample) == size


class Trials:
    """What `find` asks processes, answered here: each sample takes 100 MB of 1 GB."""

    def __init__(self, **outcome: object) -> None:
        self.outcome = outcome

    def __call__(self, *_: object, **__: object) -> Trials:
        return self

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> tuple[int, dict[str, object]]:
        return GB, {"device": "cpu", "samples": 7, "how": "as set", "data": "7 samples"}

    def trial(self, size: int) -> Outcome:
        return Outcome(**self.outcome) if self.outcome else memory(GB, lambda size: size * GB / 10)(size)

    confirm = trial


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (
            {"fits": False, "why": "out of memory"},
            "Not even one sample fits (out of memory) in 0.93 GiB: use a smaller",
        ),
        ({"fits": False, "ceiling": True, "why": "a bug"}, "Training fails, but not because of memory: a bug"),
    ],
)
def test_no_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch, outcome: dict, sentence: str) -> None:
    monkeypatch.setattr(finder, "_Trials", Trials(**outcome))
    with pytest.raises(FinderError) as raised:
        find(finder_tasks.build, finder_tasks.Settings())
    assert str(raised.value).startswith(sentence)


def test_no_more_than_there_are_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_Trials", Trials())
    messages: list[str] = []
    assert find(finder_tasks.build, finder_tasks.Settings(), progress=messages.append).batch_size == 7
    assert messages[-1] == "Batch size 7: the data set has 7 samples."
    assert find(finder_tasks.build, finder_tasks.Settings(), ceiling=5, progress=messages.append).batch_size == 5
    assert find(finder_tasks.build, finder_tasks.Settings(), ranks=OneOfTwo(64)).batch_size == 3
    with pytest.raises(FinderError, match="fewer samples"):
        find(finder_tasks.build, finder_tasks.Settings(), ranks=OneOfTwo(64, world=8))


def test_a_process_that_dies_has_run_out() -> None:
    messages: list[str] = []
    settings = finder_tasks.Settings(each=0.001, wrong="kill", most=2)
    found = find(finder_tasks.build, settings, limit=1000 * MIB, ceiling=3, progress=messages.append)
    assert found.batch_size == 2
    assert [each.size for each in found.trials][:4] == [2, 3, 3, 2], "3 is tried once more"
    assert messages[3].startswith("        3 samples do not fit: its process ended with SIGKILL, ")
    assert "in a fresh process" in messages[5]
    assert messages[-1] == "Batch size 2: 3 does not fit (its process ended with SIGKILL)."


def test_what_the_task_raises_is_told() -> None:
    with pytest.raises(FinderError, match=r"^The task cannot be built: ValueError: there is no such data$"):
        find(finder_tasks.build, finder_tasks.Settings(wrong="build"))


def test_task_of_no_module() -> None:
    with pytest.raises(FinderError, match="Other processes import the task"):
        find(lambda settings, device: None, finder_tasks.Settings())


class OneOfTwo(Ranks):
    """A process whose other one finds `other`."""

    def __init__(self, other: int, world: int = 2) -> None:
        super().__init__(0, world, 0)
        self.other = other

    def least(self, value: int) -> int:
        return min(value, self.other)


def test_all_ranks_take_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder, "_find", lambda *_: Found(64, "it is full", (), GB, 0.9))
    messages: list[str] = []
    assert find("a:b", ranks=OneOfTwo(60), progress=messages.append).batch_size == 60
    assert messages == ["Batch size 60 per process: another process has no memory for more."]
    assert find("a:b", ranks=OneOfTwo(70), progress=messages.append).reason == "it is full"
    with pytest.raises(FinderError, match="Another process of this run found no batch size"):
        find("a:b", ranks=OneOfTwo(0))


def test_a_rank_that_fails_tells_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Found:
        raise FinderError("Not even one sample fits.")

    ranks, asked = OneOfTwo(64), []
    monkeypatch.setattr(finder, "_find", fail)
    monkeypatch.setattr(ranks, "least", lambda value: asked.append(value) or 0)
    with pytest.raises(FinderError, match="Not even one"):
        find("a:b", ranks=ranks)
    assert asked == [0]


def command(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "gpukit.train.finder", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_command_finds_what_fits_within_a_limit() -> None:
    """One sample takes 8 MiB of 512, beside what is there anyway. Options are the command's and the project's."""
    options = ["--json", "--limit-gb", "0.5", "--task", "tests.train.finder_tasks:build"]
    process = command(*options, "--each", "8", "--samples", "50000")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found, messages = json.loads(out), err.splitlines()
    assert 40 <= found["batch_size"] < 64
    assert found["budget_bytes"] == 512 * MIB and 0.7 < found["share"] <= 1
    confirmations = [each for each in found["trials"] if each["confirming"] and each["outcome"]["fits"]]
    assert found["batch_size"] in [each["size"] for each in confirmations]
    assert messages[1] == "cpu: 0.50 GiB available (as set); 50000 samples, 64 examined, all of equal size."
    assert len(messages) == len(found["trials"]) + 3, "a line for each trial"
    assert messages[-1] == f"Batch size {found['batch_size']}: {found['reason']}."


def test_command_without_a_task() -> None:
    assert main_fails("--task", "tests.train.finder_tasks:biuld").startswith("tests.train.finder_tasks has no function")


def main_fails(*arguments: str) -> str:
    with pytest.raises(SystemExit) as raised:
        finder.main(list(arguments))
    return str(raised.value)


def test_interrupted_it_leaves_nothing_behind() -> None:
    process = command("--task", "tests.train.finder_tasks:build", "--limit-gb", "1")
    assert process.stdout.readline().startswith("Finding the largest batch")
    assert process.stdout.readline().startswith("cpu: 1.00 GiB available")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_on_a_gpu() -> None:
    found = find(finder_tasks.build, finder_tasks.Settings(), limit=512 * MIB, progress=lambda line: None)
    assert 400 <= found.batch_size <= 512
