"""One process, and what torchrun says of several; several processes are in loops.py."""

from __future__ import annotations

import pytest
import torch

from exactrun.ranks import Ranks


def test_one_process_has_no_group():
    ranks = Ranks.start("cpu")
    assert (ranks.rank, ranks.world, ranks.local_rank, ranks.main) == (0, 1, 0, True)
    assert ranks.any(True) is True and ranks.least(3) == 3 and ranks.share("x") == "x"
    ranks.barrier()
    assert not torch.distributed.is_initialized()


def test_half_of_torchruns_variables_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(SystemExit, match=r"LOCAL_RANK, MASTER_ADDR, MASTER_PORT.*torchrun"):
        Ranks.start("cpu")
