"""A profile of a few steps: the trace, the table, and what is said about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch
from torch import nn

from gpukit.track.profile import OPERATORS, TRACE, profiled


def train(steps: int, folder: Path, *given: int, **options) -> None:
    model = nn.Linear(8, 8)
    with profiled(folder, *given, **options) as profile:
        for _ in range(steps):
            model(torch.ones(4, 8)).sum().backward()
            profile.step()


def test_steps_are_recorded_after_the_first_ones(tmp_path: Path) -> None:
    said: list[str] = []
    train(12, tmp_path, 3, skip=4, say=said.append)
    assert len(said) == 1 and str(tmp_path / TRACE) in said[0] and "perfetto" in said[0]
    events = json.loads(gzip.decompress((tmp_path / TRACE).read_bytes()))["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps == {f"ProfilerStep#{number}" for number in (6, 7, 8)}
    assert "aten::addmm" in (tmp_path / OPERATORS).read_text()


def test_a_short_run_and_a_lost_folder_are_reported(tmp_path: Path) -> None:
    said: list[str] = []
    train(3, tmp_path, say=said.append)
    assert said.pop() == "Nothing was profiled: recording starts after 12 steps, and there were 3."
    train(6, tmp_path / "gone", 2, skip=0, say=said.append)
    assert len(said) == 1 and "training goes on without it" in said[0]
    train(4, tmp_path, 5, skip=0, say=said.append)  # ends while it records
    assert str(tmp_path / TRACE) in said[1] and (tmp_path / OPERATORS).exists()
