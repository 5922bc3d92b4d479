"""The progress line, announcements before the first step, the plot of the losses, and error messages."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import pty
import struct
import termios
import threading
import time

import pytest
import torch

from exactrun import progress as module
from exactrun.checkpoint import CheckpointError
from exactrun.data import DataError
from exactrun.errors import TrainingError
from exactrun.progress import Progress
from gpukit.script.errors import error_message, report_errors


class Terminal(io.StringIO):
    """A terminal; one of 0 columns does not say how wide it is, as a container's at its start."""

    def __init__(self, columns: int = 100) -> None:
        super().__init__()
        _, self.terminal = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30 if columns else 0, columns, 0, 0))

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.terminal


def run(progress: Progress, steps: int, reports: int = 10) -> None:
    for step in range(1, steps + 1):
        progress.step(step)
        if step % reports == 0 or step == progress.total:
            progress.report(step, 1 / step)


@pytest.mark.parametrize(("total", "last"), [(95, "step 95/95  loss 0.0105  "), (None, "step 90  loss 0.0111  ")])
def test_lines_where_there_is_no_terminal(total: int | None, last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(module, "BETWEEN", 0.0)
    run(Progress(total, samples=8, stream=out), 95)
    lines = out.getvalue().splitlines()
    assert len(lines) == 9 + bool(total) and lines[-1].startswith(last) and lines[-1].endswith(" samples/s")


def test_lines_are_at_most_one_a_second_and_the_last() -> None:
    out = io.StringIO()
    run(Progress(100, stream=out), 100)
    assert out.getvalue().startswith("step 100/100") and out.getvalue().count("\n") == 1


def test_a_line_has_only_what_is_known() -> None:
    out = io.StringIO()
    progress = Progress(1, stream=out)
    progress.step(1)
    progress.report(1)
    assert out.getvalue() == "step 1/1\n"


@pytest.mark.parametrize("columns", [100, 0])
def test_a_bar_on_a_terminal(columns: int) -> None:
    out = Terminal(columns)
    threads = threading.active_count()
    with Progress(100, stream=out) as progress:
        for step in range(51, 81):
            progress.step(step)
            progress.report(step, 1 / step)
            time.sleep(0.01)
        assert threading.active_count() == threads  # workers are forked from this process
        drawn = [line.strip() for line in out.getvalue().split("\r") if line.strip()]
        assert drawn[0].startswith("50%") and "/100" in drawn[-1] and "loss 0.01" in drawn[-1]
        progress.say("A sentence.")
        assert "\rA sentence.\n" in out.getvalue()
    assert out.getvalue().endswith("\r") and not out.getvalue().split("\r")[-2].strip()  # the bar is removed


class Failing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_cannot_be_written_does_not_stop_training() -> None:
    run(Progress(10, stream=Failing()), 10)
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        progress = Progress(10, stream=stream)
        os.close(read)
        run(progress, 10)
        progress.say("A sentence.")


def test_other_ranks_print_nothing() -> None:
    out = Terminal()
    progress = Progress(10, shown=False, stream=out)
    run(progress, 10)
    progress.say("A sentence.")
    assert out.getvalue() == ""


def test_long_work_is_announced(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with module.announce("Loading a little"):
        pass
    monkeypatch.setattr(module, "ANNOUNCED", 0.0)
    with module.announce("Loading the data"):
        time.sleep(0.1)
    with module.announce("Loading the data", shown=False):
        time.sleep(0.1)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "Loading the data ...\n")


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
