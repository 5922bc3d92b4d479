"""The training script as a user meets it: killed, interrupted, resumed, in two processes, and its bad ends.

Each bad end is one sentence on stderr with what to do, an exit code that is not 0, and the last good checkpoint whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from exactrun import checkpoint, metrics
from tests.train.trainee import LIMIT, Trainee, children

EVERY_STEP = ("--log-steps", "1", "--batch-size", "512")  # 16 steps are an epoch


@pytest.fixture
def trainee(generate, tmp_path: Path) -> Iterator[Callable[..., Trainee]]:
    """`trainee(**answers)` -> a copy of that project."""
    made: list[Trainee] = []

    def copy(**answers: object) -> Trainee:
        answers = {"hardware": "cpu", "workflow": "scripts", **answers}
        made.append(Trainee(shutil.copytree(generate(**answers), tmp_path / "project")))
        return made[-1]

    yield copy
    for project in made:
        project.end()


def weights(project: Trainee, name: str) -> dict[str, torch.Tensor]:
    return checkpoint.newest(project.run_folder(name)).weights


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in theirs)


# ---------------------------------------------------------------------------------------------------------------------
# It goes on as if it had never stopped


def test_killed_and_resumed_repeats_an_unbroken_run(trainee) -> None:
    """In mid-epoch, between two checkpoints, with two workers, then none, then three."""
    project = trainee()
    steps = (*EVERY_STEP, "--max-steps", "40", "--save-steps", "5")
    project.train(*steps, "--name", "unbroken")
    for workers, step in (("2", 8), ("0", 23)):
        project.killed(step, *steps, "--workers", workers)
    assert "Resuming" in project.train(*steps, "--name", "killed", "--workers", "3")
    assert project.losses("killed") == project.losses("unbroken")
    assert list(project.losses("killed")) == list(range(1, 41))
    assert same(weights(project, "killed"), weights(project, "unbroken"))


def test_when_it_is_saved_changes_no_loss_no_score_and_no_weight(trainee) -> None:
    project = trainee()
    every = ("7", "50", "None")
    rows: dict[str, list[tuple[float, ...]]] = {}
    for name in every:
        project.train(*EVERY_STEP, "--max-steps", "30", "--eval-steps", "4", "--save-steps", name, "--name", name)
        lines = metrics.read(project.run_folder(name))
        rows[name] = [(line["loss"], *(line[key] for key in line if key.startswith("held_out"))) for line in lines]
    assert rows["7"] == rows["50"] == rows["None"]
    assert len(rows["7"]) == 30 and [len(row) > 1 for row in rows["7"]].count(True) == 30 // 4 + 1
    assert all(same(weights(project, name), weights(project, "7")) for name in every)


# gloo can wait forever for a group that an object of DistributedDataParallel outlives.
GONE = """
        import gc

        assert not [each for each in gc.get_objects() if isinstance(each, DistributedDataParallel)]
"""


def test_two_processes_killed_and_resumed_repeat_an_unbroken_run(trainee) -> None:
    project = trainee()
    project.replace("train.py", "        dist.destroy", f"{GONE}        dist.destroy")
    steps = (*EVERY_STEP, "--max-steps", "30", "--save-steps", "5")
    assert [one.end().code for one in project.start_two(*steps, "--name", "unbroken")] == [0, 0]
    both = project.start_two(*steps, "--name", "killed", hold=(13, 13))
    both[0].wait_for(lambda: 13 in project.losses("killed"))
    for one in both:
        one.send(signal.SIGKILL)
    assert [one.end().code for one in both] == [-signal.SIGKILL] * 2
    with project.torchrun(*steps, "--name", "killed") as resumed:
        out, err = resumed.communicate(timeout=LIMIT)
    assert resumed.returncode == 0, err
    assert "Resuming" in out
    assert project.losses("killed") == project.losses("unbroken")
    assert same(weights(project, "killed"), weights(project, "unbroken"))
    further = (*steps, "--name", "killed", "--max-steps", "33")
    sentence(project.run(*further), "saved with 2 processes, but this run has 1", "other_processes")
    assert "would have other numbers" in project.train(*further, "--other-processes")
    assert list(project.losses("killed"))[-3:] == [31, 32, 33]


def test_a_resumed_run_keeps_its_settings_and_another_rate_applies_from_there(trainee) -> None:
    project = trainee()
    few = ("--name", "a", "--warmup-steps", "1", "--log-steps", "1")
    project.train(*few, "--max-steps", "4", "--lr", "0.5", "--batch-size", "512")
    assert "Settings changed: max_steps from 4 to 6." in project.train("--name", "a", "--max-steps", "6")
    assert "lr from 0.5 to 0.25" in project.train("--name", "a", "--max-steps", "8", "--lr", "0.25")
    saved = [checkpoint.load(project.run_folder("a") / f"checkpoints/step-{step:08}") for step in (6, 8)]
    rates = [one.state["kept"]["optimizer"]["param_groups"][0]["lr"] for one in saved]
    assert rates == [0.5, 0.25]
    assert list(project.losses("a")) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "from" not in project.train("--name", "b", "--max-steps", "2")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_tells(number: signal.Signals, trainee) -> None:
    """Also to the workers, as a terminal's Ctrl-C does."""
    project = trainee()
    started = project.start("--max-steps", "100000", "--log-steps", "1", "--name", "run", "--workers", "2")
    started.wait_for(lambda: 3 in project.losses("run"))
    for pid in children(project.folder):
        with contextlib.suppress(ProcessLookupError):  # a worker, at the end of its epoch
            os.kill(pid, number)
    ended = started.end()
    assert ended.code == 128 + number
    assert ended.err.strip().startswith(f"{number.name}: saving after this step")
    step = int(re.search(rf"{number.name}: saved step (\d+) in", ended.out)[1])
    assert project.steps("run")[-1] == step
    assert f"at step {step}." in project.train("--max-steps", str(step + 5), "--name", "run")


# ---------------------------------------------------------------------------------------------------------------------
# Bad ends


def sentence(ended, *words: str, code: int = 1) -> str:
    """It ended with that code and one line on stderr, in which these words are."""
    assert ended.code == code, ended
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    for word in words:
        assert word in lines[0], lines[0]
    return lines[0]


@pytest.fixture
def saved(trainee) -> Trainee:
    """A project with a run of two steps, called `run`, and a checkpoint of each."""
    project = trainee()
    project.train("--name", "run", "--max-steps", "2", "--save-steps", "1", "--log-steps", "1")
    return project


GO_ON = ("--name", "run", "--max-steps", "6", "--save-steps", "3", "--log-steps", "1")


def still_whole(project: Trainee, step: int = 2) -> None:
    found = checkpoint.newest(project.run_folder("run"))
    assert (found.step, found.passed_over) == (step, [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--width", "64"), ("another model", "[64, 2]", "another folder")),
        (("--batch-size", "128"), ("64 batches instead of 32", "same data and batch size")),
        (("--batch-size", "8193"), ("8192 samples",)),
    ],
)
def test_what_does_not_fit_the_run(options: tuple[str, ...], words: tuple[str, ...], saved: Trainee) -> None:
    sentence(saved.run(*GO_ON, *options), *words)
    still_whole(saved)


def test_a_loss_that_is_no_number(saved: Trainee) -> None:
    sentence(saved.run(*GO_ON, "--lr", "1e30"), "step 4", "smaller learning rate")
    still_whole(saved, 3)


def test_out_of_memory(saved: Trainee) -> None:
    saved.replace("train.py", "    inputs, labels = batch\n", "    inputs, labels = batch\n    raise MemoryError\n")
    sentence(saved.run(*GO_ON), "Out of memory", "--batch-size", "--microbatch")
    still_whole(saved)


def test_a_full_disk_ends_it_and_keeps_the_checkpoints(saved: Trainee) -> None:
    size = sum(file.stat().st_size for file in (saved.run_folder("run") / "checkpoints/step-00000001").iterdir())
    spare = 1 << 20  # which a checkpoint needs in addition
    options = f"size={spare + 5 * size // 2 + 65536}"
    outputs = saved.folder / "outputs"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", outputs], capture_output=True).returncode:
        pytest.skip("needs to mount a small disk")
    try:
        ended = saved.run(*GO_ON, "--save-steps", "1")
        assert ended.code == 1 and "free space" in ended.err and "Traceback" not in ended.err, ended
        assert saved.steps("run") == [1, 2]
        still_whole(saved)
    finally:
        subprocess.run(["umount", outputs], check=True)


@pytest.mark.parametrize("how", ["os._exit(9)", "raise MemoryError"])
def test_no_process_waits_for_one_that_ended(how: str, trainee) -> None:
    """Rank 1 ends without a word, or has no memory."""
    saved = trainee()
    first = saved.start_two("--name", "run", "--max-steps", "2", "--save-steps", "1")
    assert [one.end().code for one in first] == [0, 0]
    ending = f"""    inputs, labels = batch
    import os

    if os.environ["RANK"] == "1":
        {how}
"""
    saved.replace("train.py", "    inputs, labels = batch\n", ending)
    waiting, ending = (one.end() for one in saved.start_two(*GO_ON))
    assert (waiting.code, ending.code) == (1, 9 if "exit" in how else 1)
    assert "Another process of this run has ended" in waiting.err
    assert "exit" in how or "Out of memory" in ending.err
    still_whole(saved)


FAKE_WANDB = """
class Settings:
    def __init__(self, **_): pass

class Run:
    id = "x"
    def finish(self, **_): pass
    def log(self, *_, **__):
        raise OSError("the line broke")

def init(**_):
    return Run()
"""


@pytest.mark.parametrize(
    ("tracking", "message"),
    [
        ("mlflow", "MLflow is not used: MLFLOW_TRACKING_URI"),
        ("wandb", "Wandb is not used from here on: the line broke"),
    ],
)
def test_a_failing_tracker_never_stops_training(tracking: str, message: str, trainee) -> None:
    project = trainee(tracking=[tracking])
    (project.folder / "fakes").mkdir()
    (project.folder / "fakes/wandb.py").write_text(FAKE_WANDB)
    ended = project.run("--max-steps", "5", "--log-steps", "1", "--name", "run", MLFLOW_TRACKING_URI="")
    assert ended.code == 0, ended
    assert message in ended.out + ended.err
    assert list(project.losses("run")) == [1, 2, 3, 4, 5]
    assert project.steps("run") == [5]


def test_fp16_is_scaled_where_a_card_has_no_bf16(trainee) -> None:
    project = trainee(hardware="t4-rtx-20")
    steps = (*EVERY_STEP, "--device", "cpu", "--dtype", "fp16")
    project.train(*steps, "--name", "unbroken", "--max-steps", "5")
    project.train(*steps, "--name", "parts", "--max-steps", "3")
    project.train(*steps, "--name", "parts", "--max-steps", "5")
    assert project.losses("parts") == project.losses("unbroken")
    assert same(weights(project, "parts"), weights(project, "unbroken"))
    scaler = checkpoint.newest(project.run_folder("parts")).state["kept"]["scaler"]
    assert scaler["scale"] > 1 and scaler["_growth_tracker"] > 0


# ---------------------------------------------------------------------------------------------------------------------
# What else a project has


def test_its_script_is_rehearsed(trainee) -> None:
    project = trainee()
    command = [sys.executable, "-m", "exactrun", "rehearse", "--steps", "8", "--", "-m", f"{project.package}.train"]
    path = os.pathsep.join([str(project.folder / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [*command, "--width", "8", "--device", "cpu"],
        cwd=project.folder,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
    )
    assert run.returncode == 0 and "exact" in run.stdout, run.stdout + run.stderr
    assert not (project.folder / "outputs").exists()


def test_the_projects_own_tests_pass(trainee) -> None:
    project = trainee(tracking=["tensorboard", "wandb", "mlflow"])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project.folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_notebook_runs_from_top_to_bottom(trainee) -> None:
    for module in ("ipykernel", "nbclient"):
        pytest.importorskip(module, reason=f"needs {module}", exc_type=ImportError)
    folder = trainee(workflow="notebook").folder
    path = os.pathsep.join([str(folder / "src"), str(folder), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", "notebooks/quickstart.ipynb"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * LIMIT,
    )
    assert run.returncode == 0, run.stderr
    ran = (folder / "notebooks/quickstart.ipynb").read_text(encoding="utf-8")
    assert ran.count('"image/png"') == 2
