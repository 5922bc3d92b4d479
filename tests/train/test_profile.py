"""A profile of a few steps: the trace, the table, and what is said about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gpukit.track.profile import OPERATORS, RECORDED, SKIPPED, TRACE, WARM_UP, Profile

FIRST = SKIPPED + WARM_UP


def train(steps: int, folder: Path) -> list[str]:
    """What is said."""
    said = list[str]()
    model = nn.Linear(8, 8)
    profile = Profile()
    profile.begin(SimpleNamespace(folder=folder, say=said.append))
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        profile.step()
    return said + profile.close("finished")


@pytest.mark.parametrize("recorded", [RECORDED, 2])
def test_steps_are_recorded_after_the_first_ones(recorded: int, tmp_path: Path) -> None:
    """Also if the run ends meanwhile."""
    said = train(FIRST + recorded + (recorded == RECORDED), tmp_path)
    assert len(said) == 1 and str(tmp_path / TRACE) in said[0] and "perfetto" in said[0]
    events = json.loads(gzip.decompress((tmp_path / TRACE).read_bytes()))["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps >= {f"ProfilerStep#{number}" for number in range(FIRST, FIRST + recorded)}
    assert "aten::addmm" in (tmp_path / OPERATORS).read_text()


def test_a_short_run_and_a_lost_folder_are_reported(tmp_path: Path) -> None:
    (said,) = train(3, tmp_path)
    assert said.startswith("Nothing was profiled")
    (said,) = train(FIRST + RECORDED + 1, tmp_path / "gone")
    assert "training goes on without it" in said
