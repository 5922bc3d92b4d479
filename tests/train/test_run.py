"""Loops of many shapes resume bit-equal after SIGKILL at random times."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.train.loops import LOOPS


def start(loop: Callable[..., None], folder: Path, log: Path, pause: float = 0.0) -> int:
    """Run a loop in a forked process; its reports are lines of `log`. Return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        torch.set_num_threads(1)
        with log.open("a") as file:
            nothing = os.open(os.devnull, os.O_WRONLY)
            errors = os.open(log.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(nothing, 1)
            os.dup2(errors, 2)

            def report(*values: object) -> None:
                file.write(json.dumps(values) + "\n")
                file.flush()
                time.sleep(pause)

            loop(folder, report)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        import atexit

        atexit._run_exitfuncs()
        sys.stderr.flush()
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


def merged(lines: list[str]) -> list[str]:
    """The last report of each step: a resumed run repeats steps after the checkpoint, and must report the same."""
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("name", LOOPS)
def test_a_killed_run_resumes_bit_equal(name: str, tmp_path: Path) -> None:
    drawn = random.Random(name)
    wanted = run_whole(LOOPS[name], tmp_path / "whole", tmp_path / "whole.log")
    assert len(set(wanted)) == len(wanted)
    folder, log = tmp_path / "killed", tmp_path / "killed.log"
    for _ in range(2):
        killed(LOOPS[name], folder, log, drawn.randrange(3, len(wanted) // 2))
    found = run_whole(LOOPS[name], folder, log)
    assert set(found) == set(wanted)
    assert "Resuming" in log.with_suffix(".err").read_text()
