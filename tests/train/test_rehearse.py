"""exactrun.rehearse: what a rehearsal finds in scripts that forget something, and in those that do not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from exactrun.rehearse import files, process
from exactrun.rehearse.main import planned
from tests.train.omissions import OMISSIONS, Omission
from tests.train.trainee import children

CORRECT = """
import argparse, os, random, sys, time
import numpy, torch
from torch.utils.data import DataLoader, TensorDataset
from exactrun.run import Run

class Summary:
    __slots__ = ()
    def __getattr__(self, name):
        raise KeyError(name)

class WithoutFlush:
    write = sys.stdout.write

sys.stdout = WithoutFlush()

class Trainer:
    def __init__(self, folder, rows):
        self.summary = Summary()
        self.times = []
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))
        if os.path.exists("own.pt"):
            self.model.load_state_dict(torch.load("own.pt"))
        optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        loader = DataLoader(TensorDataset(torch.randn(rows, 4)), 4, shuffle=True, num_workers=1)
        run = Run(folder)
        run.keep(model=self.model, optimizer=optimizer)
        for epoch in run.epochs(range(3)):
            for i, (x,) in run.enumerate(loader):
                loss = self.model(x).square().mean() + random.random() * 0.1
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                torch.save(self.model.state_dict(), "own.pt")
                self.times.append(time.perf_counter())
                run.step(loss=loss)
            torch.save(self.model.state_dict(), f"{folder}/last.pt")
            with open("log.txt", "a") as file:
                file.write(f"{epoch}\\n")

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=16)
    Trainer("outputs/x", parser.parse_args().rows)
"""

COMPILES = """
from torch._inductor.runtime.cache_dir_utils import cache_dir
from exactrun.run import Run

with open(f"{cache_dir()}/kernel", "a") as kernel:
    kernel.write("x")
run = Run("outputs/x")
for _ in run.enumerate(range(6)):
    run.step()
"""

RANKS = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from exactrun.run import Run

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
run = Run("outputs/x")
run.keep(model=model, optimizer=optimizer)
for epoch in run.epochs(range(9)):
    for i, _ in run.enumerate(range(2)):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss=loss)
    scheduler.step()
"""


def rehearse(folder: Path, *command: str, steps: int = 14, **variables: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "exactrun", "rehearse", "--steps", str(steps), "--", *command]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


def written(folder: Path, text: str) -> dict[str, bytes]:
    """The script and a log in a folder, and what is in it."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    (folder / "log.txt").write_text("mine\n", encoding="utf-8")
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """The files; not the caches, which are folders."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(files.CACHES)}


def test_a_script_that_keeps_all_is_exact_and_what_it_writes_is_put_back(tmp_path: Path) -> None:
    """It reads its own checkpoint, saves into the run's folder, trains in __init__, rejects other options, replaces
    sys.stdout, keeps no list of times, and has an object that raises any error when it is asked, as wandb's summary."""
    before = written(tmp_path, CORRECT)
    found = rehearse(tmp_path, "python", "train.py", "--rows", "16")
    assert found.returncode == 0, found.stdout + found.stderr
    assert contents(tmp_path) == before
    assert "own.pt" in found.stderr and "log.txt" in found.stderr
    assert "run 1" in found.stderr, "progress, also through a pipe"


@pytest.mark.parametrize(
    ("before", "variable", "kept"),
    [
        ("pass", process.COMPILED, True),
        ("os.environ.pop(process.COMPILED, None)", "TMPDIR", True),  # as older versions of PyTorch, which set it later
        ("os.environ.pop(process.COMPILED, None); process.default_cache_dir = lambda: os.stat('')", "TMPDIR", False),
    ],
    ids=["a folder of the user", "the usual one", "a user without a name"],
)
def test_every_run_has_the_users_own_cache_of_what_is_compiled(
    before: str, variable: str, kept: bool, tmp_path: Path
) -> None:
    written(tmp_path, COMPILES)
    code = f"import os, sys; from exactrun.rehearse import main, process; {before}; sys.exit(main(sys.argv[1:]))"
    with tempfile.TemporaryDirectory() as cache:
        words = [sys.executable, "-c", code, "--steps=4", "--", "train.py"]
        env = os.environ | {variable: cache}
        found = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert found.returncode == 0 and "kernel" not in found.stderr, found.stdout + found.stderr
        lives = found.stderr.count("Rehearsing")
        kernels = [len(path.read_text()) for path in Path(cache).rglob("kernel")]
        assert kernels == ([lives] if kept else []) and lives > 2


def test_what_is_forgotten_is_named_in_all_ranks(tmp_path: Path) -> None:
    written(tmp_path, RANKS)
    found = rehearse(tmp_path, "torchrun", "--standalone", "--nproc-per-node=2", "train.py")
    assert found.returncode == 1
    assert "`scheduler.last_epoch` was" in found.stdout and "run.keep(scheduler=scheduler)" in found.stdout


SAMPLE = (
    "a count that sets the learning rate",
    "the running sum of an epoch",
    "a list of losses",
    "a data set that becomes harder",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_an_omission_is_named(name: str, tmp_path: Path) -> None:
    one = OMISSIONS[name]
    written(tmp_path, one.script())
    found = rehearse(tmp_path, "train.py")
    assert found.returncode == 1
    assert any(f"`{variable}`" in found.stdout for variable in one.name), found.stdout + found.stderr


def test_a_script_that_acts_on_saving_or_that_nothing_seeds_is_reported(tmp_path: Path) -> None:
    acting = Omission((), step="if any(run.folder.glob('checkpoints/step-*')): torch.rand(1)")
    unseeded = Omission((), first="x = x + float(numpy.random.default_rng().random())")
    found = []
    for number, one in enumerate((acting, unseeded)):
        folder = tmp_path / str(number)
        folder.mkdir()
        written(folder, one.script())
        found.append(rehearse(folder, "train.py"))
    assert [one.returncode for one in found] == [1, 1]
    assert "nothing seeds" in found[1].stdout and "saved" in found[0].stdout


def test_an_interrupted_rehearsal_leaves_nothing(tmp_path: Path) -> None:
    slow = Omission((), step="torch.save(model, 'own.pt')\n__import__('time').sleep(0.5)").script()
    before = written(tmp_path, slow)
    words = [sys.executable, "-m", "exactrun", "rehearse", "--", "train.py"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as rehearsal:
        until = time.monotonic() + 120
        while not (tmp_path / "own.pt").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert (tmp_path / "own.pt").exists()
        rehearsal.send_signal(signal.SIGINT)
        assert rehearsal.wait(60) == 130
    assert contents(tmp_path) == before and not children(tmp_path)


@pytest.mark.parametrize(
    "text, words",
    [
        ("raise SystemExit('no data here')", "no data here"),
        ("print('done')", "made no step"),
        ("import argparse; argparse.ArgumentParser().parse_args()", "unrecognized arguments"),
    ],
)
def test_a_script_that_does_not_train_is_reported_with_its_last_words(text: str, words: str, tmp_path: Path) -> None:
    written(tmp_path, text)
    given = ["--no-such-option"] if "argparse" in text else []
    found = rehearse(tmp_path, "train.py", *given)
    assert found.returncode == 1 and words in found.stdout


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    of = process.Script.of
    assert of(["python3", "-u", "train.py", "--lr", "1"]) == process.Script("train.py", ["--lr", "1"])
    assert of(["-m", "package.train", "-m"]) == process.Script("package.train", ["-m"], module=True)
    two = process.Script("train.py", ["x"], ranks=2)
    assert of(["torchrun", "--nproc_per_node", "2", "--master-port=1", "train.py", "x"]) == two
    assert of(["python", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "x"]) == two
    for wrong in ([], ["bash", "train.sh"], ["train.ipynb"], ["torchrun", "--nproc-per-node=gpu", "train.py"]):
        with pytest.raises(process.UsageError):
            of(wrong)


@pytest.mark.parametrize("length", range(1, 9))
@pytest.mark.parametrize("every", [1, 2])
def test_planned_kills_are_at_steps_that_can_be_saved(length: int, every: int) -> None:
    rows = [
        {"kind": "step", "step": step + 1, "done": step % length + 1, "settled": not step % every} for step in range(14)
    ]
    assert planned(rows)[1], "no pass of a loader could be cut short"
    kills, enough = planned([*rows, {"kind": "batch"}])
    assert kills and list(kills) == sorted(kills)
    assert all(rows[kill - 1]["settled"] and kill < 14 for kill in kills)
    assert enough or length not in (1, 2, 3) or every != 1
    if enough and every == 1:
        places = {1: "start", length: "end"} if length > 1 else {1: "end"}
        assert len(kills) == min(length, 3)
        assert all(places.get(rows[kill - 1]["done"], "middle") in place for kill, place in kills.items())


def test_help_is_given_without_a_command() -> None:
    found = subprocess.run([sys.executable, "-m", "exactrun"], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "rehearse" in textwrap.dedent(found.stderr)
