"""The progress line, announcements before the first step, the plot of the losses, and error messages."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import struct
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
import torch

from exactrun import progress as module
from exactrun.checkpoint import CheckpointError
from exactrun.data import DataError
from exactrun.errors import TrainingError
from exactrun.progress import Progress
from gpukit.script.errors import error_message, report_errors
from gpukit.track.curve import curve

CPU = torch.device("cpu")


class Terminal(io.StringIO):
    """A terminal of this width."""

    def __init__(self, columns: int = 100) -> None:
        super().__init__()
        _, self.terminal = pty.openpty()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.terminal


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(module, "memory", lambda device: "1.5 GB")
    return Clock()


def run(progress: Progress, clock: Clock, steps: int, seconds: float = 0.1, reports: int = 10) -> None:
    for step in range(1, steps + 1):
        clock.now += seconds
        progress.step(step)
        if step % reports == 0 or step == progress.total:
            progress.report(step, 1 / step)


def test_lines_where_there_is_no_terminal(clock: Clock) -> None:
    """The first report, then at most one a second, and the last."""
    out = io.StringIO()
    run(Progress(100, samples=8, device=CPU, stream=out, clock=clock), clock, 100, seconds=1 / 16)
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["10/100", "30/100", "50/100", "70/100", "90/100", "100/100"]
    assert [line.endswith("left") for line in lines] == [False, False, True, True, True, False]
    assert lines[2] == "step 50/100  loss 0.0200  128 samples/s  1.5 GB  0:00:03 left"
    assert lines[-1] == "step 100/100  loss 0.0100  128 samples/s  1.5 GB"


def test_an_unknown_total(clock: Clock) -> None:
    out = io.StringIO()
    run(Progress(None, samples=8, device=CPU, stream=out, clock=clock), clock, 50)
    assert out.getvalue().splitlines()[-1] == "step 50  loss 0.0200  80 samples/s  1.5 GB"


def test_a_bar_on_a_terminal(clock: Clock) -> None:
    out = Terminal()
    threads = threading.active_count()
    with Progress(100, samples=8, device=CPU, stream=out, clock=clock) as progress:
        run(progress, clock, 50)
        assert threading.active_count() == threads  # workers are forked from this process
        drawn = [line.strip() for line in out.getvalue().split("\r") if line.strip()]
        assert 10 < len(drawn) < 30  # at most five a second, of ten steps a second
        assert drawn[-1].startswith("########") and "loss 0.0250" in drawn[-1] and drawn[-1].endswith("left")
        assert all(len(line) <= 100 for line in drawn)
        progress.say("A sentence.")
        assert "\rA sentence.\n" in out.getvalue()
    text = out.getvalue()
    assert text.count("\n") == 1
    assert text.endswith("\r") and not text.split("\r")[-2].strip()  # the bar is removed


@pytest.mark.parametrize(("columns", "most"), [(20, 20), (0, 80)])
def test_a_narrow_terminal_and_one_of_unknown_size(columns: int, most: int, clock: Clock) -> None:
    out = Terminal(columns)
    run(Progress(10**6, samples=8, device=CPU, stream=out, clock=clock), clock, 30)
    assert "step 2" in out.getvalue()
    assert all(len(line) <= most for line in out.getvalue().split("\r"))


class Failing(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_cannot_be_written_does_not_stop_training(clock: Clock) -> None:
    run(Progress(10, samples=8, device=CPU, stream=Failing(), clock=clock), clock, 10)
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        progress = Progress(10, samples=8, device=CPU, stream=stream, clock=clock)
        os.close(read)
        run(progress, clock, 10)
        progress.say("A sentence.")


def test_other_ranks_print_nothing(clock: Clock) -> None:
    out = Terminal()
    progress = Progress(10, samples=8, device=CPU, shown=False, stream=out, clock=clock)
    run(progress, clock, 10)
    progress.say("A sentence.")
    assert out.getvalue() == ""


@pytest.mark.parametrize(("seconds", "first", "left"), [(0.125, 17, "0:00:10 left"), (10.0, 6, "0:15:40 left")])
def test_the_remaining_time_comes_from_enough_steps(clock: Clock, seconds: float, first: int, left: str) -> None:
    lines = {}
    progress = Progress(100, samples=1, device=CPU, stream=io.StringIO(), clock=clock)
    for step in range(1, 101):
        clock.now += 60.0 if step == 1 else seconds  # the first step compiles
        progress.step(step)
        lines[step] = progress.line(step)
    assert [step for step, line in lines.items() if line.endswith("left")] == list(range(first, 100))
    assert lines[first].endswith(left)


def test_a_resumed_run_does_not_count_what_was_before(clock: Clock) -> None:
    progress = Progress(2000, 1000, samples=1, device=CPU, stream=io.StringIO(), clock=clock)
    for step in range(1001, 1051):
        clock.now += 0.1
        progress.step(step)
    assert progress.line(1050).endswith("0:01:34 left")


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


def test_memory_of_this_process() -> None:
    assert 0.05 < float(module.memory(CPU).removesuffix(" GB")) < 100


METRICS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.0, "samples_per_second": 10},
    {"step": 2, "held_out_loss": 2.5, "held_out_accuracy": 0.5},
    {"step": 3, "loss": 9.0},
    {"step": 3, "loss": 1.0},
]


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    lines = "".join(json.dumps(line) + "\n" for line in METRICS)
    (tmp_path / "metrics.jsonl").write_text(lines + '{"step": 4, "lo')
    return tmp_path


def test_the_curve_is_a_picture(metrics: Path) -> None:
    pytest.importorskip("matplotlib", exc_type=ImportError)
    picture = curve(metrics)
    assert picture == metrics / "loss.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in metrics.iterdir()) == ["loss.png", "metrics.jsonl"]


def test_no_picture_without_matplotlib(metrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert curve(metrics) is None


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
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. "), "worker (pid 12)"),
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
