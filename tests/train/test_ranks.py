"""Two processes by gloo: they agree, none waits for one that ran out of memory, and they end as they should."""

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
from torch import nn

from exactrun.ranks import Ranks
from gpukit.script.reduction import Reduction, state_buffers

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
    assert [each["main"] for each in both] == [True, False]
    for each in both:
        assert each["agreements"] == {
            "any": True,
            "none": False,
            "sum": [7, 1.0],
            "least": 4,
            "shared": {"rank": 0},
            "gradients": [[3.0, 3.0], [1.0, 1.0], None],
            "large": [4.0],
            "also": 2.0,
        }


def test_a_step_on_two_ranks_is_that_of_the_whole_batch_though_one_ran_out(both: list[dict[str, Any]]):
    first, second = (each["steps"] for each in both)
    assert first["worst"] < 1e-12 and second["worst"] < 1e-12
    assert first["retries"] == second["retries"] == [0, 1, 1, 1, 1, 1]  # of one sample, the second rank has none
    assert first["microbatches"] == second["microbatches"] == [None, None, None, 2, 3, 16]


def test_parameters_and_buffers_stay_the_same_on_both(both: list[dict[str, Any]]):
    first, second = (each["training"] for each in both)
    assert first == second and first["microbatch"] is not None


def test_fp16_scales_the_loss_alike_on_both(both: list[dict[str, Any]]):
    first, second = (each["scaled"] for each in both)
    assert first == second and first["scale"] == 2.0**15  # half of where it begins, as one rank overflowed
    torch.manual_seed(0)
    begun = nn.Linear(4, 2).weight.sum().item()
    assert first["weights"][0] == begun != first["weights"][1]


def test_they_end_together_where_one_sample_does_not_fit(both: list[dict[str, Any]]):
    assert all("at a time" in each["ending"] for each in both)
    assert "on another rank" in both[0]["ending"] and "CUDA out of memory" in both[1]["ending"]
    assert all("train different losses or models" in each["disagreeing"] for each in both)


def test_one_process_has_no_group():
    ranks = Ranks.start("cpu")
    assert (ranks.rank, ranks.world, ranks.local_rank, ranks.main) == (0, 1, 0, True)
    assert ranks.any(True) is True and ranks.sum(2) == 2 and ranks.least(3) == 3 and ranks.share("x") == "x"
    model = nn.Linear(2, 2)
    reduction = Reduction(ranks)
    reduction.same_start(model)
    reduction.reduce(model.parameters())
    reduction.share_buffers(model)
    ranks.barrier()
    ranks.stop()
    assert not torch.distributed.is_initialized() and model.weight.grad is None


def test_half_of_torchruns_variables_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match=r"LOCAL_RANK, MASTER_ADDR, MASTER_PORT.*torchrun"):
        Ranks.start("cpu")


def test_buffers_are_those_that_a_checkpoint_holds():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False))
    model.register_buffer("table", torch.ones(3), persistent=False)
    names = {name for _, name in state_buffers(model)}
    assert names == {"running_mean", "running_var", "num_batches_tracked"}
