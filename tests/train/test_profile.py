"""A profile of a few steps: the trace, the table, and what is said about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import torch
from torch import nn

from gpukit.train.profile import OPERATORS, TRACE, profiled


def train(batches, step=lambda: None) -> None:
    model = nn.Linear(8, 8)
    for batch in batches:
        model(batch).sum().backward()
        step()


def test_steps_are_recorded_after_the_first_ones(tmp_path: Path) -> None:
    said: list[str] = []
    batches = [torch.ones(4, 8)] * 12
    with profiled(tmp_path, 3, skip=4, say=said.append) as profile:
        train(batches, profile.step)
    assert len(said) == 1 and str(tmp_path / TRACE) in said[0] and "perfetto" in said[0]
    events = json.loads(gzip.decompress((tmp_path / TRACE).read_bytes()))["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps == {f"ProfilerStep#{number}" for number in (6, 7, 8)}
    assert "aten::addmm" in (tmp_path / OPERATORS).read_text()


def test_a_short_run_and_a_lost_folder_are_reported(tmp_path: Path) -> None:
    said: list[str] = []
    train(profiled(tmp_path, say=said.append).over([torch.ones(4, 8)] * 3))
    assert said.pop() == "Nothing was profiled: recording starts after 12 steps, and there were 3."
    train(profiled(tmp_path / "gone", 2, skip=0, say=said.append).over([torch.ones(4, 8)] * 6))
    assert len(said) == 1 and "training goes on without it" in said[0]
    train(profiled(tmp_path, 5, skip=0, say=said.append).over([torch.ones(4, 8)] * 4))  # ends while it records
    assert str(tmp_path / TRACE) in said[1] and (tmp_path / OPERATORS).exists()
