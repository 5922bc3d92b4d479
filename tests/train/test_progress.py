"""Progress lines, announcements before the first step, and error messages."""

from __future__ import annotations

import errno
import io
import os
import sys
import time

import pytest
import torch

from exactrun import progress as module
from exactrun.checkpoint import CheckpointError
from exactrun.data import DataError
from exactrun.errors import TrainingError
from exactrun.progress import Progress
from gpukit.script.errors import error_message, report_errors
from tests.conftest import until


def run(progress: Progress, steps: int, reports: int = 10) -> None:
    progress.begin(1)
    for step in range(1, steps + 1):
        if step % reports == 0 or step == progress.total:
            progress.report(step, 1 / step)


@pytest.mark.parametrize(("total", "last"), [(95, "step 95/95  loss 0.0105  "), (None, "step 90  loss 0.0111  ")])
def test_a_line_has_steps_loss_and_rate(
    total: int | None, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "BETWEEN", (0.0, 0.0))
    run(Progress(total), 95)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9 + bool(total) and lines[-1].startswith(last) and lines[-1].endswith(" samples/s")


def test_lines_are_at_most_one_a_second_and_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    run(Progress(100), 100)
    out = capsys.readouterr().out
    assert out.startswith("step 100/100") and out.count("\n") == 1


def test_a_line_has_only_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(1)
    progress.begin(1)
    progress.report(1)
    assert capsys.readouterr().out == "step 1/1\n"


def test_lines_become_rarer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In an hour, one a minute instead of one a second."""
    clock = iter(range(7300))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    run(Progress(None), 7200, reports=1)
    printed = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert printed[:5] == [1, 2, 3, 4, 5] and 130 < len(printed) < 200 and printed[-1] - printed[-2] == 60


class Failing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_cannot_be_written_does_not_stop_training(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress(10)
    monkeypatch.setattr(sys, "stdout", Failing())
    run(progress, 10)
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        os.close(read)
        run(progress, 10)
        progress.say("A sentence.")


def test_other_ranks_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(10, shown=False)
    run(progress, 10)
    progress.say("A sentence.")
    assert capsys.readouterr().out == ""


def test_long_work_is_announced(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with module.announce("Loading a little"):
        pass
    monkeypatch.setattr(module, "ANNOUNCED", 0.0)
    with module.announce("Loading the data"):
        until(lambda: capsys.readouterr() == ("", "Loading the data ...\n"))
    with module.announce("Loading the data", shown=False):
        time.sleep(0.1)
    assert capsys.readouterr() == ("", "")


WORDS = [
    (TrainingError("Do this."), "Do this."),
    (CheckpointError("Do that."), "Do that."),
    (DataError("Give more."), "Give more."),
    (
        OSError(errno.ENOSPC, "No space left on device", "/x/y"),
        "/x/y cannot be read or written (No space left on device): free",
    ),
    (OSError(errno.EROFS, "Read-only file system", "/x"), "remount"),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "Tried to allocate 2 GiB"),
    (RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:1"), "Another process of this run"),
]


@pytest.mark.parametrize(("error", "words"), WORDS, ids=lambda value: type(value).__name__)
def test_what_is_known_is_one_sentence(error: Exception, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in error_message(error)
    with pytest.raises(SystemExit) as ended, report_errors():
        raise error
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_one_of_several_processes_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what Python does at its end, in which gloo's threads may abort it."""
    left: list[int] = []
    monkeypatch.setattr("gpukit.script.errors.end", left.append)
    with report_errors():
        pass
    assert not left
    monkeypatch.setenv("WORLD_SIZE", "2")
    with report_errors():
        pass
    with pytest.raises(SystemExit), report_errors():
        raise SystemExit(138)
    assert left == [0, 138]


def test_ctrl_c_before_the_first_step(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, report_errors():
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err.strip().startswith("Stopped.")


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("shapes differ"), FileNotFoundError(2, "No such file")])
def test_a_defect_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)), report_errors():
        raise error
