"""The batch finder: the search on memory models, and a real script with a stand-in for the GPU's memory."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from exactrun.errors import TrainingError
from exactrun.ranks import Ranks
from gpukit.script import finder
from gpukit.script.finder import TRIALS, Outcome, Search, find, option_of
from gpukit.script.probe import Measured, measure, with_option
from tests.train.conftest import ROOT
from tests.train.probed import MIB

GB = 10**9


def search(demand: Callable[[int], float | str], budget: float, ceiling: int = 2**40) -> Search:
    """A finished search: `demand(size)` is the memory of a size, or why it fails."""
    one = Search(int(budget), ceiling)
    while size := one.next():
        needs = demand(size)
        failed = needs if isinstance(needs, str) else "out of memory" if needs > budget else ""
        one.tried.append(Outcome(size, None if failed else int(needs), failed))
    return one


MODELS = {
    "proportional": lambda size: size * MIB,
    "with a model": lambda size: 3 * GB + size * MIB,
    "rounded": lambda size: GB + math.ceil(size / 64) * 64 * MIB,
    "with a workspace above some size": lambda size: GB + size * MIB + GB * (size > 1000),
    "growing with the square": lambda size: GB + size * MIB + size * size * MIB / 2000,
}


@pytest.mark.parametrize("name", MODELS)
def test_memory_models(name: str) -> None:
    """Sampled from the 19 kinds of benchmarks/finder_models.py."""
    found = search(MODELS[name], 8 * GB)
    largest = max(size for size in range(1, 8000) if MODELS[name](size) <= 8 * GB)
    assert 0.88 * largest <= found.best <= largest and len(found.tried) < TRIALS


def test_answers_only_what_was_tried_and_always_ends() -> None:
    """Whatever a device says: nonsense, half of the time."""
    for seed in range(300):
        source = random.Random(seed)
        budget = source.choice([10, 8 * GB])
        most = int(math.exp(source.uniform(0, 15)))
        honest = source.random() < 0.5
        cause = source.choice([0, 0.2])

        def demand(size: int) -> float | str:
            assert size >= 1
            if size <= most if honest else source.random() < 0.5:  # noqa: B023
                return source.randint(1, int(1.2 * budget))  # noqa: B023
            return "a bug" if source.random() < cause else math.inf  # noqa: B023

        found = search(demand, budget)
        fitted = {each.size for each in found.tried if (each.peak or math.inf) <= budget}
        assert found.best in fitted | {0} and len(found.tried) <= TRIALS


def test_nothing_fits() -> None:
    found = search(lambda size: math.inf, GB)
    assert found.best == 0 and found.tried[-1].size == 1


@pytest.mark.parametrize("most", [1, 2, 3, 64, 100])
def test_no_use_for_more(most: int) -> None:
    found = search(lambda size: MIB + size, GB, ceiling=most)
    assert found.best == most == max(each.size for each in found.tried)
    assert found.reason() == "the data set has no more samples"


@pytest.mark.parametrize("number", range(1, 5))
def test_a_size_that_failed_once_is_a_limit(number: int) -> None:
    """Also if it failed for no reason: what is returned is smaller, and most of it."""
    calls = iter(range(100))
    found = search(lambda size: math.inf if next(calls) == number else GB + size * MIB, 8 * GB)
    failed = next((each.size for each in found.tried if each.peak is None), math.inf)
    assert 0.9 * min(failed - 1, 7 * GB / MIB) <= found.best < failed


def test_noise_is_kept_away_from() -> None:
    """Peaks of up to 2 % more in some steps: the answer has room for them."""
    for seed in range(40):
        source = random.Random(seed)
        found = search(lambda size: (GB + size * MIB) * (1 + source.uniform(0, 0.02)), 8 * GB)  # noqa: B023
        assert (GB + found.best * MIB) * 1.02 <= 8 * GB
        assert found.best >= 0.85 * 7 * GB / MIB


@pytest.mark.parametrize(
    ("option", "wanted"),
    [("--batch-size", ["train.py", "--lr", "3", "--batch-size", "8"]), ("bs=", ["train.py", "--lr", "3", "bs=8"])],
)
def test_the_batch_size_replaces_the_one_that_is_given(option: str, wanted: list[str]) -> None:
    given = ["--batch-size", "4", "--batch-size=2"] if option != "bs=" else ["bs=4"]
    assert with_option(["train.py", *given, "--lr", "3"], option_of(option, 8)) == wanted


# Scripts: a stand-in for what is measured, small ones without PyTorch, and one that trains


def measured(monkeypatch: pytest.MonkeyPatch, trial: Callable[[int], Measured]) -> None:
    """`find` runs nothing; `trial(size)` is what was measured."""
    monkeypatch.setattr(finder, "measure", lambda command, **_: trial(int(command[-1])))


def on_card(size: int, samples: int = 10_000) -> Measured:
    """10 MiB of 500 for the model, 4 for each sample."""
    peak = (10 + 4 * size) * MIB
    if peak > 500 * MIB:
        return Measured(why="out of memory", memory=True)
    return Measured(6, samples, "cuda:0", peak, 500 * MIB, "cudaMemGetInfo")


class OneOf(Ranks):
    """A process whose other ones find `other`."""

    def __init__(self, other: int, world: int = 2) -> None:
        super().__init__(0, world, 0)
        self.other = other

    def least(self, value: int) -> int:
        return min(value, self.other)


def test_it_says_what_it_tries_and_why_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, on_card)
    said: list[str] = []
    found = find(["train.py"], say=said.append)
    assert 0.9 * 490 / 4 <= found <= 490 / 4
    assert said[1] == "cuda:0: 0.49 GiB available (cudaMemGetInfo)." and said[2].split()[:2] == ["32", "samples"]
    assert said[-1].startswith(f"Batch size {found}: ")


def test_all_ranks_use_the_least_and_no_more_than_there_are_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, lambda size: on_card(size, samples=40))
    said: list[str] = []
    assert find(["train.py"], ranks=OneOf(64), say=said.append) == 20
    assert said[-1] == "Batch size 20 per process: the data set has no more samples."
    assert find(["train.py"], ranks=OneOf(2), say=said.append) == 2
    with pytest.raises(TrainingError, match="Another process"):
        find(["train.py"], ranks=OneOf(0), say=said.append)


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Measured(why="out of memory", memory=True), "Even 1 sample do not fit"),
        (Measured(why="a bug"), "fails with `--batch-size 32` .a bug., and memory is not the cause"),
        (Measured(6, device="cpu"), "trains on cpu: .* only be found on a GPU"),
    ],
)
def test_without_an_answer_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, trial: Measured, words: str) -> None:
    measured(monkeypatch, lambda size: trial)
    with pytest.raises(TrainingError, match=words):
        find(["train.py"], say=lambda line: None)


@pytest.mark.parametrize(
    ("code", "why", "memory"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "its process ended with SIGKILL", True),
        ("raise SystemExit('train.py: error: unrecognized arguments: --batch-size 8')", "train.py: error:", False),
        ("raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB.')", "out of memory", True),
        ("import os; os._exit(3)", "its process ended with exit status 3", False),
        ("import time; time.sleep(60)", "it made too few steps", False),
    ],
)
def test_how_a_script_failed(code: str, why: str, memory: bool) -> None:
    found = measure([sys.executable, "-c", code], most=1.0 if "sleep" in code else 60.0)
    assert found.why.startswith(why) and found.memory == memory


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setenv("CARD_MIB", "500")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.chdir(tmp_path)
    return [sys.executable, "-m", "tests.train.probed"]


def test_a_script_finds_the_largest_batch_for_itself(script: list[str], tmp_path: Path) -> None:
    """`--batch-size auto`, in the script's own process; trials leave its folder alone, and end after few steps."""
    options = ["--batch-size", "auto", "--samples", "20", "--steps", "1"]
    done = subprocess.run([*script, *options], capture_output=True, text=True)
    *_, last, using = done.stdout.splitlines()
    assert using == "using 20" and last == "Batch size 20: the data set has no more samples.", done.stdout + done.stderr
    assert "Resuming" not in done.stderr and (tmp_path / "outputs/probed").exists()


@pytest.mark.parametrize(("code", "words"), [("pass", "Run"), ("from exactrun.run import Run; Run('x')", "run.step")])
def test_a_script_without_a_step_that_can_be_measured(script: list[str], code: str, words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        measure([sys.executable, "-c", code])


def test_interrupted_the_command_leaves_nothing_behind(script: list[str]) -> None:
    command = [sys.executable, "-m", "gpukit.script.finder", "--", sys.executable, "-c", "import time; time.sleep(99)"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("Finding the largest batch")
    folder = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until = time.monotonic() + 30
    while not (children := folder.read_text().split()) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and children
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_on_a_gpu(script: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CARD_MIB")
    assert find([*script, "--device", "cuda"], limit=512 * MIB, say=lambda line: None) > 1000
