"""Signals: the first is remembered, the second Ctrl-C ends at once, and only this process is concerned."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from exactrun import stop
from exactrun.stop import SIGNALS, StopSignals

GPUKIT = Path(stop.__file__).resolve().parents[2]


def script(code: str) -> list[str]:
    start = f"""\
        import os, signal, sys, threading, time
        sys.path.insert(0, {str(GPUKIT)!r})
        from exactrun.stop import StopSignals
        """
    return [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code)]


def run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(script(code), capture_output=True, text=True, timeout=60, start_new_session=True)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_remembered_and_told_once(number: signal.Signals, capfd: pytest.CaptureFixture) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals() as signals:
        assert signals.number == 0
        signal.raise_signal(number)
        assert signals.number == number
        ending = signals.ending()
    assert isinstance(ending, SystemExit) and ending.code == 128 + number
    assert [signal.getsignal(each) for each in SIGNALS] == before
    messages = capfd.readouterr().err
    assert messages.startswith(f"\n{number.name}: saving after this step") and messages.count(".\n") == 1
    assert ("Ctrl-C" in messages) == (number == signal.SIGINT)


def test_the_first_signal_is_the_reason(capfd: pytest.CaptureFixture) -> None:
    """A scheduler warns by SIGUSR1, and sends SIGTERM, perhaps twice, while the run is being saved."""
    with StopSignals() as signals:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert signals.number == signal.SIGUSR1
    assert capfd.readouterr().err == "\nSIGUSR1: saving after this step.\n"


def test_only_one_rank_tells(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("RANK", "1")
    with StopSignals() as signals:
        signal.raise_signal(signal.SIGTERM)
    assert signals.number and not capfd.readouterr().err


def test_outside_the_main_thread_it_does_nothing() -> None:
    seen = []

    def work() -> None:
        with StopSignals() as signals:
            seen.append(signals.number)

    before = [signal.getsignal(each) for each in SIGNALS]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0] and [signal.getsignal(each) for each in SIGNALS] == before


def test_a_second_ctrl_c_ends_at_once() -> None:
    done = run("""
        with StopSignals() as stop:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
        print("not ended")
        """)
    assert done.returncode == 130 and not done.stdout
    assert done.stderr.endswith(stop.AT_ONCE)


def test_ctrl_c_while_workers_start_counts_once() -> None:
    done = run("""
        from exactrun.workers import signals_later
        with StopSignals() as stop:
            with signals_later():
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.2)
            time.sleep(0.2)
            print(stop.number == signal.SIGINT)
        """)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_worker_that_starts_after_its_training_was_killed_ends() -> None:
    """As spawned ones do, which import PyTorch first."""
    done = run("""
        import multiprocessing
        from exactrun import workers

        def work(training):
            while os.getppid() == training:
                time.sleep(0.01)
            workers.begin()
            print("it waits for batches")

        multiprocessing.get_context("fork").Process(target=work, args=[os.getpid()]).start()
        os._exit(0)
        """)
    assert done.stdout == "" and done.stderr == ""


def test_in_a_notebook_the_second_interrupt_is_an_exception() -> None:
    done = run("""
        sys.ps1 = "In : "
        try:
            with StopSignals() as stop:
                signal.raise_signal(signal.SIGINT)
                print(stop.number, repr(stop.ending()))
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGTERM)
            print(repr(stop.ending()))
        """)
    assert done.stdout.split("\n") == ["2 KeyboardInterrupt()", "interrupted True", "SystemExit(143)", ""]
    assert "Traceback" not in done.stderr
