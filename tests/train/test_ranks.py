"""Two processes by gloo agree."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from exactrun.ranks import Ranks

SCRIPT = Path(__file__).with_name("two_ranks.py")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def both() -> list[dict[str, Any]]:
    """What the two processes printed."""
    port, paths = free_port(), os.pathsep.join(sys.path)
    processes = []
    with contextlib.ExitStack() as ending:
        for rank in range(2):
            env = {**os.environ, "PYTHONPATH": paths, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            env |= {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = subprocess.Popen(
                [sys.executable, SCRIPT], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            processes.append(ending.enter_context(process))
            ending.callback(process.kill)
        messages = [process.communicate(timeout=300) for process in processes]
    for process, (_, error) in zip(processes, messages, strict=True):
        assert process.returncode == 0, error
    return [json.loads(out) for out, _ in messages]


def test_they_agree(both: list[dict[str, Any]]):
    assert [each.pop("main") for each in both] == [True, False]
    same = {"any": True, "none": False, "sum": [7, 1.0], "least": 4, "shared": {"rank": 0}, "gathered": [0, 1]}
    assert both == [same, same]


def test_one_process_has_no_group():
    ranks = Ranks.start("cpu")
    assert (ranks.rank, ranks.world, ranks.local_rank, ranks.main) == (0, 1, 0, True)
    assert ranks.any(True) is True and ranks.sum(2) == 2 and ranks.least(3) == 3 and ranks.share("x") == "x"
    ranks.barrier()
    ranks.stop()
    assert not torch.distributed.is_initialized()


def test_half_of_torchruns_variables_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match=r"LOCAL_RANK, MASTER_ADDR, MASTER_PORT.*torchrun"):
        Ranks.start("cpu")
