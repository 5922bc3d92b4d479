"""A profile of a few steps: the trace, the table, and what is said about them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from gpukit.track.profile import OPERATORS, TRACE, Profile


def train(steps: int, folder: Path, *given: int, **options) -> list[str]:
    """What is said."""
    said = list[str]()
    model = nn.Linear(8, 8)
    profile = Profile(*given, **options)
    profile.begin(SimpleNamespace(folder=folder, say=said.append))
    for _ in range(steps):
        model(torch.ones(4, 8)).sum().backward()
        profile.step()
    return said + profile.close("finished")


def test_steps_are_recorded_after_the_first_ones(tmp_path: Path) -> None:
    said = train(12, tmp_path, 3, skip=4)
    assert len(said) == 1 and str(tmp_path / TRACE) in said[0] and "perfetto" in said[0]
    events = json.loads(gzip.decompress((tmp_path / TRACE).read_bytes()))["traceEvents"]
    steps = {event["name"] for event in events if event.get("name", "").startswith("ProfilerStep")}
    assert steps == {f"ProfilerStep#{number}" for number in (6, 7, 8)}
    assert "aten::addmm" in (tmp_path / OPERATORS).read_text()


def test_a_short_run_and_a_lost_folder_are_reported(tmp_path: Path) -> None:
    (said,) = train(3, tmp_path)
    assert said == "Nothing was profiled: recording starts after 12 steps, and there were 3."
    (said,) = train(6, tmp_path / "gone", 2, skip=0)
    assert "training goes on without it" in said
    (said,) = train(4, tmp_path, 5, skip=0)  # ends while it records
    assert str(tmp_path / TRACE) in said and (tmp_path / OPERATORS).exists()
