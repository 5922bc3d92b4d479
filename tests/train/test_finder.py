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
from gpukit.script import finder
from gpukit.script.finder import TRIALS, find, search
from gpukit.script.probe import Measured, measure
from tests.train.conftest import ROOT
from tests.train.probed import MIB

GB = 10**9


def found(demand: Callable[[int], float], budget: float, samples: int = 2**40) -> tuple[int, dict[int, float]]:
    """The answer, 0 if there is none, and what was tried; `demand(size)` is the memory of a size."""
    tried: dict[int, float] = {}

    def trial(size: int) -> Measured:
        assert size >= 1 and len(tried) < TRIALS
        tried[size] = needs = demand(min(size, samples))
        if needs > budget:
            return Measured(why="out of memory", memory=True)
        return Measured(6, samples, "cuda:0", int(needs), int(budget))

    try:
        return search(trial), tried
    except TrainingError:
        return 0, tried


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
    best, tried = found(MODELS[name], 8 * GB)
    largest = max(size for size in range(1, 8000) if MODELS[name](size) <= 8 * GB)
    assert 0.88 * largest <= best <= largest and len(tried) < TRIALS


def test_answers_only_what_was_tried_and_always_ends() -> None:
    """Whatever a device says: nonsense, half of the time."""
    for seed in range(300):
        source = random.Random(seed)
        budget = source.choice([10, 8 * GB])
        most = int(math.exp(source.uniform(0, 15)))
        honest = source.random() < 0.5

        def demand(size: int) -> float:
            if size <= most if honest else source.random() < 0.5:  # noqa: B023
                return source.randint(1, int(1.2 * budget))  # noqa: B023
            return math.inf

        best, tried = found(demand, budget)
        assert best in {size for size, needs in tried.items() if needs <= budget} | {0}


@pytest.mark.parametrize("most", [1, 2, 3, 64, 100])
def test_a_batch_has_no_more_samples_than_the_data(most: int) -> None:
    best, tried = found(lambda size: MIB + size, GB, samples=most)
    assert best == most and max(tried) <= max(most, 32)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_size_that_failed_once_is_a_limit(number: int) -> None:
    """Also if it failed for no reason: what is returned is smaller, and most of it."""
    calls = iter(range(100))
    best, tried = found(lambda size: math.inf if next(calls) == number else GB + size * MIB, 8 * GB)
    failed = next((size for size, needs in tried.items() if needs == math.inf), math.inf)
    assert 0.9 * min(failed - 1, 7 * GB / MIB) <= best < failed


@pytest.mark.parametrize("most", range(1, 17))
def test_a_small_batch_takes_few_trials(most: int) -> None:
    best, tried = found(lambda size: size * MIB if size <= most else math.inf, 1.05 * most * MIB)
    assert best == most and len(tried) <= 6


def test_noise_is_kept_away_from() -> None:
    """Peaks of up to 2 % more in some steps: the answer has room for them."""
    for seed in range(40):
        source = random.Random(seed)
        best, _ = found(lambda size: (GB + size * MIB) * (1 + source.uniform(0, 0.02)), 8 * GB)  # noqa: B023
        assert (GB + best * MIB) * 1.02 <= 8 * GB
        assert best >= 0.85 * 7 * GB / MIB


# Scripts: a stand-in for what is measured, small ones without PyTorch, and one that trains


@pytest.mark.parametrize(("option", "given"), [("--batch-size", ["--batch-size", "32"]), ("bs=", ["bs=32"])])
def test_the_last_option_counts_and_what_is_tried_is_said(
    option: str, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    said: list[str] = []

    def trial(command: list[str], **_: object) -> Measured:
        commands.append(command)
        return Measured(6, 32, "cuda:0", 10 * MIB, 500 * MIB)

    monkeypatch.setattr(finder, "measure", trial)
    assert find(["train.py"], option=option, say=said.append) == 32
    assert commands == [["train.py", *given]]
    assert said[1].split()[:2] == ["32", "samples"] and said[-1] == "Batch size 32."


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (Measured(why="out of memory", memory=True), "Not even a batch of 1 fits"),
        (Measured(why="a bug"), "fails with a batch of 32 .a bug., and memory is not the cause"),
        (Measured(6, device="cpu"), "trains on cpu: .* only be found on a GPU"),
    ],
)
def test_without_an_answer_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, trial: Measured, words: str) -> None:
    monkeypatch.setattr(finder, "measure", lambda command, **_: trial)
    with pytest.raises(TrainingError, match=words):
        find(["train.py"], say=lambda line: None)


def test_with_torchrun_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the trials would join those of the run."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(TrainingError, match="without torchrun, and set --batch-size to 2 times that"):
        find(["train.py"])


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
    assert using == "using 20" and last == "Batch size 20.", done.stdout + done.stderr
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
