"""Loops of many shapes resume bit-equal after SIGKILL at random times."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from exactrun import checkpoint
from exactrun.checkpoint import CheckpointError, load_weights
from exactrun.data import DataError
from exactrun.errors import TrainingError
from exactrun.metrics import Lines
from exactrun.run import Run
from exactrun.settings import missing
from tests.train.loops import LOOPS


def start(loop: Callable[..., None], folder: Path, log: Path, pause: float = 0.0) -> int:
    """Run a loop in a forked process; its reports are lines of `log`. Return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        atexit._clear()  # those of pytest's process
        torch.set_num_threads(1)
        with log.open("a") as file, log.with_suffix(".err").open("a") as sys.stderr:
            sys.stdout = sys.stderr

            def report(*values: object) -> None:
                file.write(json.dumps(values) + "\n")
                file.flush()
                time.sleep(pause)

            try:
                loop(folder, report)
                status = 0
            except BaseException:
                traceback.print_exc()
            atexit._run_exitfuncs()
    finally:
        os._exit(status)


def run_whole(loop: Callable[..., None], folder: Path, log: Path) -> list[str]:
    _, status = os.waitpid(start(loop, folder, log), 0)
    assert status == 0, log.with_suffix(".err").read_text()
    return log.read_text().splitlines()


def killed(loop: Callable[..., None], folder: Path, log: Path, steps: int) -> None:
    """Run a loop, and kill it when it has reported about `steps` times more."""
    present = len(log.read_text().splitlines()) if log.exists() else 0
    child = start(loop, folder, log, pause=0.004)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        if log.exists() and len(log.read_text().splitlines()) >= present + steps:
            break
        time.sleep(0.001)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("name", LOOPS)
def test_a_killed_run_resumes_bit_equal(name: str, tmp_path: Path) -> None:
    drawn = random.Random(name)
    wanted = run_whole(LOOPS[name], tmp_path / "whole", tmp_path / "whole.log")
    assert len(set(wanted)) == len(wanted)
    folder = tmp_path / "killed"
    log = tmp_path / "killed.log"
    for _ in range(2):
        killed(LOOPS[name], folder, log, drawn.randrange(3, len(wanted) // 2))
    before = len(log.read_text().splitlines())
    found = run_whole(LOOPS[name], folder, log)
    assert set(found) == set(wanted)
    assert len(found) - before < len(wanted)  # the last process did not start from the beginning
    assert "Resuming" in log.with_suffix(".err").read_text()


class Samples(Dataset):
    def __init__(self, count: int = 12) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index)) + torch.rand(1)


def train(run: Run, steps: int, loader: Any = None, epochs: int = 2) -> list[float]:
    """Train at most `steps` steps; return their losses."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run.keep(model=model, optimizer=optimizer)
    losses = []
    for _ in run.epochs(range(epochs)):
        for _, batch in run.enumerate(loader or DataLoader(Samples(), 4, shuffle=True)):
            loss = model(batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            run.step(loss=loss)
            if len(losses) == steps:
                return losses
    return losses


def test_other_seeds_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path / "x", save_steps=1, seeds="sample") as run:
        train(run, 2)
    with pytest.raises(CheckpointError, match="seeds='sample'"):
        Run(tmp_path / "x")
    with pytest.raises(TrainingError, match="seeds must be"):
        Run(tmp_path / "y", seeds="samples")


@pytest.mark.parametrize("save_steps", [None, 3])  # 3: also after the last step
def test_a_finished_run_is_not_repeated(save_steps: int | None, tmp_path: Path, capsys: Any) -> None:
    with Run(tmp_path / "x", save_steps=save_steps) as run:
        assert len(train(run, 100)) == 6
    with Run(tmp_path / "x", save_steps=save_steps) as run:
        assert run.completed == 6
        assert train(run, 100) == []
    assert capsys.readouterr().err.count("completed before") == 1
    checkpoint = run.files.newest(run.ranks)
    assert len(checkpoint.state["ranks"][0]["loops"]) == 1  # after the inner loop
    with Run(tmp_path / "x") as run:
        assert len(train(run, 100, epochs=3)) == 3
        assert run.completed == 9


@pytest.mark.parametrize(
    "other",
    [
        DataLoader(Samples(), 3, shuffle=True),
        DataLoader(Samples(13), 4, shuffle=True),
    ],
)
def test_other_batches_are_refused(other: DataLoader, tmp_path: Path) -> None:
    with Run(tmp_path / "x", save_steps=1) as run:
        train(run, 2)
    with Run(tmp_path / "x") as run, pytest.raises(DataError, match="when the run was saved"):
        train(run, 2, other)


def test_another_model_is_refused(tmp_path: Path) -> None:
    with Run(tmp_path / "x", save_steps=1) as run:
        train(run, 2)
    with Run(tmp_path / "x") as run, pytest.raises(CheckpointError, match="another model"):
        run.keep(model=torch.nn.Linear(3, 1))


def test_two_steps_for_one_batch_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path / "x") as run, pytest.raises(TrainingError, match="called twice"):
        for _ in run.enumerate(range(3)):
            run.step()
            run.step()


def test_a_checkpoint_waits_for_the_optimizer(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Run(tmp_path / "x", save_steps=1, keep=9) as run:
        run.keep(model=model, optimizer=optimizer)
        for i, _ in run.enumerate(range(8)):
            if i > 1:  # before, a replay buffer is filled
                model(torch.rand(2)).backward()
            if i % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
            run.step()
    saved = sorted(int(path.name[-8:]) for path in (tmp_path / "x/checkpoints").glob("step-*"))
    assert saved == [1, 2, 3, 6]


def test_a_signal_saves_and_stops(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped, Run(tmp_path / "x") as run:
        run.keep(count=(count := [0]))
        for i, _ in run.enumerate(range(100)):
            count[0] += 1
            if i == 5:
                signal.raise_signal(signal.SIGTERM)
            run.step()
    assert stopped.value.code == 128 + signal.SIGTERM
    with Run(tmp_path / "x") as run:
        run.keep(count=(count := [0]))
        assert count == [run.completed]
        assert run.completed in (6, 7)


def test_a_sample_that_is_drawn_twice_differs(tmp_path: Path) -> None:
    sampler = RandomSampler(Samples(4), replacement=True, num_samples=40)
    with Run(tmp_path / "x") as run:
        samples = [sample for _, batch in run.enumerate(DataLoader(Samples(4), 8, sampler=sampler)) for sample in batch]
    assert len({tuple(sample.tolist()) for sample in samples}) == 40


def test_a_tracker_learns_how_a_run_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    close = Lines.close
    monkeypatch.setattr(Lines, "close", lambda self, status: ended.append(status) or close(self, status))
    with Run(tmp_path / "x") as run:
        train(run, 1)
    with contextlib.suppress(ValueError), Run(tmp_path / "x") as run:
        raise ValueError
    with contextlib.suppress(SystemExit), Run(tmp_path / "x") as run:
        for _ in run.enumerate(range(10)):
            if run.completed == 2:
                signal.raise_signal(signal.SIGTERM)
            run.step()
    assert ended == ["finished", "failed", "stopped"]
    monkeypatch.setattr("exactrun.run.INTERACTIVE", True)
    for error in (None, ValueError(), KeyboardInterrupt(), ImportError()):  # the next cell with the folder ends the run
        run = Run(tmp_path / "y")
        for _ in run.enumerate(range(run.completed, run.completed + 1)):
            run.step()
            if not isinstance(error, ImportError):  # of a cell after the loop
                break
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    with Run(tmp_path / "y"):
        assert ended[3:] == ["finished", "failed", "stopped", "finished"]


def test_a_signal_during_a_save_ends_the_run_with_that_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another step and another save may take longer than what sent the signal waits."""
    seal = checkpoint.seal

    def interrupted(*what: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        seal(*what)

    monkeypatch.setattr(checkpoint, "seal", interrupted)
    with pytest.raises(SystemExit) as ended, Run(tmp_path, save_steps=2) as run:
        for _ in run.epochs(range(9)):
            run.step()
    assert (ended.value.code, run.completed, checkpoint.newest(tmp_path).step) == (143, 2, 2)


@pytest.mark.parametrize("end", [0, None])
def test_a_script_that_calls_exit_does_not_hide_that_its_last_save_failed(end: int | None, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run._unsaved = CheckpointError("Free some space.", "full")
    with pytest.raises(CheckpointError, match="Free"), run:
        sys.exit(end)


def test_that_the_last_save_failed_is_said_once(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(CheckpointError), Run(tmp_path) as run:
        run._unsaved = CheckpointError("Free some space.", "full")
        run.check_saved()
    assert "Free" not in capsys.readouterr().err  # whoever gets the error says it


def test_a_scheduler_that_is_not_kept_is_reported(tmp_path: Path, capsys: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for number, kept in enumerate(({}, {"scheduler": scheduler}, {"inside": SimpleNamespace(scheduler=scheduler)})):
        with Run(tmp_path / str(number), save_steps=1) as run:
            run.keep(model=model, optimizer=optimizer, **kept)
            optimizer.step()
            run.step()
        assert ("scheduler that is not kept" in capsys.readouterr().err) == (not kept)


class Summary:
    """As wandb's: it looks up every name among its figures."""

    __slots__ = ("figures",)

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_tracker_behind_a_kept_object_is_no_scheduler() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    tracked = SimpleNamespace(summary=Summary())
    assert "scheduler" in missing({"optimizer": optimizer, "trainer": tracked})
    assert not missing({"optimizer": optimizer, "trainer": tracked, "scheduler": scheduler})


def test_an_object_that_raises_any_error_when_it_is_asked_is_kept_or_refused(tmp_path: Path) -> None:
    class Tracker(Summary):
        """It has a `__dict__`."""

    for count in range(2):
        world = SimpleNamespace(summary=Tracker(), count=0)
        with Run(tmp_path / "x", save_steps=1) as run:
            run.keep(world=world)
            assert world.count == count
            world.count = 1
            run.step()
    with Run(tmp_path / "y") as run, pytest.raises(CheckpointError, match="Summary"):
        run.keep(world=SimpleNamespace(summary=Summary()))


def test_another_function_in_a_kept_object_is_refused(tmp_path: Path) -> None:
    for rule, wrong in ((torch.tanh, False), (torch.tanh, False), (torch.sigmoid, True)):
        world = SimpleNamespace(rules=[rule], space={"kind": dict, "size": 1}, cache=None, count=0)
        with Run(tmp_path / "x", save_steps=1) as run:
            with pytest.raises(CheckpointError, match=r"sigmoid was .*tanh") if wrong else contextlib.nullcontext():
                run.keep(world=world)
            for _ in () if wrong else run.enumerate(range(world.count + 1)):
                world.count = world.count + 1
                world.cache = world.rules[0]
                run.step()
        assert world.space == {"kind": dict, "size": 1}
    assert world.count == 0


def test_loops_that_go_on_together_are_refused(tmp_path: Path) -> None:
    """What comes next, a step of the one or of the other, could not be known when the run is saved."""
    with Run(tmp_path / "x") as run, pytest.raises(TrainingError, match="zip"):
        for _ in zip(run.enumerate(range(3)), run.enumerate(range(3))):
            run.step()


def test_a_loop_that_is_left_after_its_step_is_reported(tmp_path: Path, capsys: Any) -> None:
    for last in (True, False):
        with Run(tmp_path / str(last)) as run:
            for _ in run.epochs(range(2)):
                for i, _ in run.enumerate(range(3)):
                    if i == 1 and last:
                        break
                    run.step()
                    if i == 1:
                        break
        assert ("left after run.step" in capsys.readouterr().err) != last


@pytest.mark.parametrize("counted", [True, False])
def test_a_plain_loop_around(counted: bool, tmp_path: Path) -> None:
    """A `while` with a kept counter goes on; a `for` starts again, and passes over what was done."""

    def train(fails_at: int) -> list[tuple[int, int]]:
        done = []
        state = {"round": 0}

        def inner(number: int) -> None:
            for i, _ in run.enumerate(range(2)):
                done.append((number, i))
                run.step()
                if run.completed == fails_at:
                    raise ValueError

        with Run(tmp_path / "x", save_steps=1) as run:
            run.variables(state, "round")
            if counted:
                while state["round"] < 3:
                    inner(state["round"])
                    state["round"] += 1
            else:
                for number in range(3):
                    inner(number)
        return done

    with pytest.raises(ValueError):
        train(3)
    assert train(0) == [(1, 1), (2, 0), (2, 1)]


def test_a_list_that_is_kept_has_its_saved_order(tmp_path: Path) -> None:
    for items in ([0, 1, 2, 3], [3, 1, 2, 0]):
        with Run(tmp_path, save_steps=1) as run:
            run.keep(items=items)
            for i, item in run.enumerate(items):
                assert i == item
                if i == 2:
                    break
                run.step()


class Item:
    """No dataclass."""

    def __init__(self) -> None:
        self.number = 1


def test_objects_that_were_added_to_a_list_are_refused_instead_of_changed(tmp_path: Path) -> None:
    with Run(tmp_path / "x", save_steps=1) as run:
        items: list[Any] = []
        run.keep(items=items)
        for _ in run.enumerate(range(2)):
            items.append(Item())
            run.step()
    with Run(tmp_path / "x") as run, pytest.raises(CheckpointError, match="Item was added"):
        run.keep(items=[])


def test_a_helper_around_enumerate_has_its_length(tmp_path: Path) -> None:
    def logged(source: Any) -> Any:
        for count, item in enumerate(source):
            yield count / len(source), item

    for steps in (2, 4):
        found = []
        with Run(tmp_path / "x", save_steps=1) as run:
            for part, (i, x) in logged(run.enumerate([5, 6, 7, 8])):
                found.append((part, i, x))
                run.step()
                if len(found) == steps:
                    break
    assert found == [(0.0, 2, 7), (0.25, 3, 8)]
    with pytest.raises(TypeError, match="no len"):
        len(run.enumerate(iter([])))


class Machine:
    """Goes through its actions with an iterator, which it keeps, as a vector of Gymnasium environments does."""

    def __init__(self) -> None:
        self.actions = iter(())
        self.total = 0

    def advance(self, *actions: int) -> None:
        self.actions = iter(actions)
        self.total += sum(action for _, action in zip(actions, self.actions))


def test_an_iterator_at_its_end_is_not_saved(tmp_path: Path) -> None:
    for total in (0, 7):
        machine = Machine()
        with Run(tmp_path / "x", save_steps=1) as run:
            run.keep(machine=machine)
            assert machine.total == total
            machine.advance(3, 4)
            run.step()
            machine.actions = iter([5])
            with pytest.raises(CheckpointError, match="is a list_iterator"):
                run.step()


def test_state_restores_the_generators(tmp_path: Path) -> None:
    """Also if the script draws between `keep` and `state`, and calls `state` again after the first step."""

    def drawn(folder: str, last: int = 6) -> list[float]:
        torch.manual_seed(0)
        model = nn.Linear(2, 1)
        found = []
        with Run(tmp_path / folder, save_steps=2) as run:
            run.keep(model=model)
            torch.rand(1)
            state = run.state(step=0)
            while state.step < last:
                state.step += 1
                found.append(torch.rand(1).item())
                run.step()
                state = run.state(step=state.step)
        return found

    assert drawn("killed", 4) + drawn("killed") == drawn("whole")


def test_other_loops_are_refused(tmp_path: Path) -> None:
    with Run(tmp_path / "x", save_steps=1) as run:
        train(run, 4)  # in the second epoch
    for change in ({"epochs": 1}, {"loader": range(3)}):
        with Run(tmp_path / "x") as run, pytest.raises(TrainingError, match="other loops"):
            train(run, 100, **change)


def test_a_script_without_steps_is_reported(tmp_path: Path, capsys: Any) -> None:
    with Run(tmp_path / "x") as run:
        run.keep(model=nn.Linear(2, 1))
    assert "run.step" in capsys.readouterr().err


def test_an_optimizer_that_a_resumed_run_does_not_make_again_is_refused(tmp_path: Path) -> None:
    def train(fails_at: int, first: int) -> None:
        model = nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        with Run(tmp_path / str(first), save_steps=1) as run:
            run.keep(model=model, adam=optimizer)
            for epoch in run.epochs(range(3)):
                if epoch in (1, first):
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    run.keep(sgd=optimizer)
                for _ in run.enumerate(range(2)):
                    optimizer.zero_grad()
                    model(torch.ones(2)).backward()
                    optimizer.step()
                    run.step()
                    if run.completed == fails_at:
                        raise ValueError

    for first in (1, 2):  # kept in the second epoch only, and in both
        with pytest.raises(ValueError):
            train(5, first)
    with pytest.raises(CheckpointError, match="sgd"):
        train(0, 1)
    train(0, 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_over_map_style_data_continues_without_reading_again(workers: int, tmp_path: Path) -> None:
    reads = tmp_path / "reads"  # a file, since workers write it

    class Numbers(Dataset):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> int:
            with reads.open("a") as file:
                file.write(f"{index}\n")
            return index

    def train(folder: Path, most: int) -> list[list[int]]:
        reads.unlink(missing_ok=True)
        torch.manual_seed(0)
        batches = []
        with Run(folder, max_steps=most) as run:
            for _ in run.epochs(range(2)):
                for _, batch in run.enumerate(StatefulDataLoader(Numbers(), 4, True, num_workers=workers)):
                    batches.append(batch.tolist())
                    run.step()
        return batches

    whole = train(tmp_path / "whole", 12)
    assert len(whole) == 12 and whole[:6] != whole[6:]
    first = train(tmp_path / "parts", 4)
    assert first + train(tmp_path / "parts", 12) == whole
    assert len(reads.read_text().splitlines()) < 4 * 12, "the first four batches are not read again"


def test_an_optimizer_that_was_made_in_an_earlier_body_is_refused(tmp_path: Path) -> None:
    def train() -> None:
        model = nn.Linear(2, 1)
        optimizer = None
        with Run(tmp_path, save_steps=1) as run:
            run.keep(model=model)
            for step in run.epochs(range(9)):
                if optimizer is None:
                    optimizer = torch.optim.Adam(model.parameters())
                    run.keep(adam=optimizer)
                optimizer.zero_grad()
                model(torch.ones(2)).backward()
                optimizer.step()
                run.step()
                if step == 3:
                    raise ValueError

    with pytest.raises(ValueError):
        train()
    with pytest.raises(CheckpointError, match="adam: keep it before"):
        train()


@pytest.mark.parametrize("step_by_step", [True, False])
def test_folds_that_make_their_own_optimizer(step_by_step: bool, tmp_path: Path) -> None:
    """Also after the folds before, of which the run keeps the last one."""

    def train(folds: int, fails_at: int = 0) -> int:
        with Run(tmp_path / "x", save_steps=1) as run:
            for _ in run.epochs(range(folds)):
                model = nn.Linear(2, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                run.keep(model=model, optimizer=optimizer)
                for _ in run.enumerate(range(2)) if step_by_step else range(2):
                    optimizer.zero_grad()
                    model(torch.ones(2)).sum().backward()
                    optimizer.step()
                    if step_by_step:
                        run.step()
                if not step_by_step:
                    run.step()
                if run.completed == fails_at:
                    raise ValueError
            return run.completed

    with pytest.raises(ValueError):
        train(3, 2)
    assert train(3) == (6 if step_by_step else 3)
    assert train(4) == (8 if step_by_step else 4)


@pytest.mark.parametrize("epoch", [1, 2], ids=["in the first epoch", "in the second"])
@pytest.mark.parametrize("own", [False, True], ids=["given to the optimizer", "set after keep"])
def test_another_learning_rate_is_used_or_reported(own: bool, epoch: int, tmp_path: Path, capsys: Any) -> None:
    def begin(lr: float, steps: int) -> float:
        with Run(tmp_path, save_steps=1) as run:
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5 if own else lr)
            run.keep(model=model, optimizer=optimizer)
            if own:
                optimizer.param_groups[0]["lr"] = lr
            for number in run.epochs(range(3)):
                optimizer.param_groups[0]["momentum"] = 0.5 + number / 10
                for _ in run.enumerate(range(4)):
                    model(torch.ones(2)).sum().backward()
                    optimizer.step()
                    run.step()
                    if run.completed == steps:
                        return optimizer.param_groups[0]["lr"]
        return optimizer.param_groups[0]["lr"]

    begin(0.1, 4 * epoch - 2)
    assert begin(0.1, 4 * epoch - 1) == 0.1 and " lr " not in capsys.readouterr().err
    assert begin(0.02, 4 * epoch) == (0.02 if own else 0.1)
    said = capsys.readouterr().err
    assert "lr 0.02" in said and ("continues with lr 0.02" in said) == own
    assert begin(0.02, 4 * epoch + 1) == (0.02 if own else 0.1)


def test_a_run_whose_last_save_fails_does_not_end_with_0(tmp_path: Path) -> None:
    def loop(folder: Path, report: Callable[..., None]) -> None:
        os.statvfs = lambda _: os.statvfs_result((4096, 4096, 1, 1, 1, 0, 0, 0, 0, 255))  # a full disk
        run = Run(folder)
        run.keep(model=torch.nn.Linear(2, 1))
        for _ in run.epochs(range(1)):
            run.step()

    _, status = os.waitpid(start(loop, tmp_path / "x", tmp_path / "log"), 0)
    assert os.waitstatus_to_exitcode(status) == 1
    said = (tmp_path / "log.err").read_text()
    assert said.count("free space") == 1 and "Traceback" not in said


def test_a_learning_rate_that_the_loop_changes_is_set_only_once(tmp_path: Path) -> None:
    def begin(lr: float, steps: int) -> float:
        with Run(tmp_path, save_steps=1) as run:
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
            run.keep(model=model, optimizer=optimizer)
            group = optimizer.param_groups[0]
            group["lr"] = lr
            for _ in run.epochs(range(9)):
                model(torch.ones(2)).sum().backward()
                optimizer.step()
                group["lr"] /= 2
                run.step()
                if run.completed == steps:
                    return group["lr"]
        return group["lr"]

    assert begin(1.0, 1) == 0.5
    assert begin(1.0, 2) == 0.25
    assert begin(8.0, 3) == 4.0
    assert begin(8.0, 4) == 2.0


def test_next_after_the_last_step_draws_the_same_numbers(tmp_path: Path) -> None:
    """A script whose counter says that it is done, and that asks for no batch any more."""

    def drawn(folder: str, fails: bool = False) -> float:
        torch.manual_seed(0)
        with Run(tmp_path / folder, save_steps=1) as run:
            state = run.state(step=0)
            batches = run.enumerate(itertools.count())
            while state.step < 3:
                next(batches)
                torch.rand(1)
                state.step += 1
                run.step()
            if fails:
                raise ValueError
            return torch.rand(1).item()

    with pytest.raises(ValueError):
        drawn("killed", fails=True)
    assert drawn("killed") == drawn("whole")


def test_a_metric_of_torchmetrics_keeps_its_sums(tmp_path: Path) -> None:
    class Mean(nn.Module):
        """Its interface, as of torchmetrics 1.8: states are attributes, and in no state_dict."""

        def __init__(self) -> None:
            super().__init__()
            self.total = torch.tensor(0.0)
            self.seen = []
            self._update_count = 0
            self._computed = None

        @property
        def metric_state(self) -> dict[str, Any]:
            return {"total": self.total, "seen": self.seen}

        def update(self, value: float) -> None:
            self.total = self.total + value
            self.seen.append(torch.tensor(value))
            self._update_count += 1

    class Collection(nn.ModuleDict):
        @property
        def metric_state(self) -> dict[str, Any]:
            return {name: each.metric_state for name, each in self.items()}

    def train(fails_at: int) -> Mean:
        mean = Mean()
        with Run(tmp_path / "x", save_steps=1) as run:
            run.keep(metrics=Collection({"mean": mean}))
            for i, _ in run.enumerate(range(4)):
                mean.update(i)
                run.step()
                if run.completed == fails_at:
                    raise ValueError
        return mean

    with pytest.raises(ValueError):
        train(2)
    mean = train(0)
    assert (mean.total.item(), [each.item() for each in mean.seen], mean._update_count) == (6.0, [0, 1, 2, 3], 4)


def test_an_error_in_a_notebooks_cell_repeats_no_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exactrun.run.INTERACTIVE", True)
    steps: list[int] = []

    def cell(run: Run, fails_at: int = 0) -> None:
        for epoch in run.epochs(range(3)):
            for i, _ in run.enumerate(range(4)):
                if len(steps) + 1 == fails_at:
                    raise ValueError
                steps.append(4 * epoch + i)
                run.step()

    run = Run(tmp_path / "x", save_steps=1)
    with pytest.raises(ValueError) as error:
        cell(run, 6)
    monkeypatch.setattr(sys, "last_value", error.value, raising=False)  # as IPython does
    with pytest.raises(TrainingError, match=r"Run\(\.\.\.\)"):
        cell(run)
    with Run(tmp_path / "x", save_steps=1) as again:
        cell(again)
    assert steps == list(range(12))


def test_a_notebooks_cell_runs_again_after_an_error_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was refused, or could not save: IPython keeps the error, and with it the run."""
    monkeypatch.setattr("exactrun.run.INTERACTIVE", True)
    with Run(tmp_path / "x", save_steps=1) as run:
        run.step()
    with pytest.raises(CheckpointError, match="seeds") as refused:
        Run(tmp_path / "x", seeds="sample")
    run = Run(tmp_path / "x", save_steps=1)
    run._unsaved = CheckpointError("Free some space.", "full")
    with Run(tmp_path / "x", save_steps=1) as again:
        assert again.completed == 1 and refused.value.__traceback__


def test_errors_for_the_user_are_one_sentence(tmp_path: Path) -> None:
    script = (
        "import sys; from exactrun.run import Run; run = Run(sys.argv[1]); run.keep(a=[1]); run.keep(a=[1])\n"
        "for _ in run.enumerate(range(3)): run.step(); run.step()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "already has an object" in done.stderr


def test_weights_alone_are_loaded_from_the_newest_or_the_best(tmp_path: Path) -> None:
    class Linear(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

        def set_extra_state(self, state: dict[str, int]) -> None:
            assert state == {"version": 1}

    with Run(tmp_path / "x", best="score") as run:
        model = Linear(1, 1)
        run.keep(model=model)
        for number, score in run.enumerate([3.0, 1.0, 2.0]):
            with torch.no_grad():
                model.weight.fill_(number)
            run.save()
            run.step(score=numpy.float64(score))  # as scikit-learn's metrics are
    other = Linear(1, 1)
    assert load_weights(tmp_path / "x", model=other) == 3 and other.weight.item() == 2
    assert load_weights(tmp_path / "x", best=True, model=other) == 2 and other.weight.item() == 1
    with pytest.raises(CheckpointError, match="another model"):
        load_weights(tmp_path / "x", model=nn.Linear(2, 1))


class Spread(torch.optim.SGD):
    """As torch's ZeroRedundancyOptimizer: its state_dict is of one process, or raises an error."""

    def consolidate_state_dict(self) -> None: ...


def test_an_optimizer_whose_state_is_spread_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with Run(tmp_path / "x") as run, pytest.raises(CheckpointError, match="fully_shard"):
        run.keep(optimizer=Spread(nn.Linear(2, 1).parameters()))
