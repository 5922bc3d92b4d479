"""The folder of a run: which one a start goes on with, what run.json says, who may write there."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch

import exactrun
from exactrun import checkpoint
from exactrun.checkpoint import CheckpointError
from exactrun.errors import TrainingError
from exactrun.folder import Folder, on_main
from exactrun.ranks import Ranks
from gpukit.project.stack import load
from gpukit.script import runs
from tests.gpukit.conftest import DATA

SETTINGS = {"lr": 0.1, "output_dir": Path("outputs")}


@pytest.fixture
def stack(tmp_path: Path):
    (tmp_path / "stack.json").write_text(json.dumps(DATA))
    return load(tmp_path / "stack.json")


@pytest.fixture
def start(tmp_path: Path, stack):
    """`start("name")`: a run of that name, closed at once."""

    def started(name: str = "a", resume: bool = True, settings: dict = SETTINGS) -> Folder:
        with runs.choose(tmp_path / "outputs", name, resume, stack) as run:
            run.begin(settings)
            return run

    return started


def save(run: Folder, step: int = 1) -> None:
    checkpoint.save(run.path, step, {"w": torch.ones(2)}, {}, about={})


def test_run_json_has_all_that_a_run_began_with(start) -> None:
    run = start("a")
    facts = json.loads((run.path / "run.json").read_text())
    assert facts == run.facts
    assert facts["settings"] == {"lr": 0.1, "output_dir": "outputs"}
    assert facts["stack"] == {
        **{name: DATA[name] for name in ("project", "use_case", "base", "release", "image", "torch", "cuda", "python")},
        "targets": ["rtx-50"],
    }
    (first,) = facts["starts"]
    assert first["command"] == sys.argv
    assert first["versions"]["torch"] == torch.__version__
    again = start("a", settings={**SETTINGS, "lr": 0.2})
    assert [each["settings"]["lr"] for each in again.facts["starts"]] == [0.1, 0.2]
    assert again.facts["settings"]["lr"] == 0.1
    said = list[str]()
    runs.record(again, {**SETTINGS, "lr": 0.2}, said.append)
    assert said == ["Settings changed: lr from 0.1 to 0.2."] and again.facts["settings"]["lr"] == 0.2


def test_a_name_is_resumed_and_without_resume_a_new_run_starts(start) -> None:
    run = start("a")
    save(run)
    assert start("a").path == run.path
    other = start("a", resume=False)
    assert start("a", resume=False).path != other.path  # in the same second
    assert other.path.name.startswith("a-2") and not checkpoint.exists(other.path)
    assert start(other.path.name).path == other.path


def test_a_place_that_cannot_be_written(start, tmp_path: Path) -> None:
    (tmp_path / "outputs").touch()
    with pytest.raises(CheckpointError, match=r"outputs.* another folder"):
        start("a")


@pytest.mark.parametrize("text", ["", '{"starts": [', '{"settings": 3, "starts": 7}'])
def test_a_run_whose_run_json_cannot_be_read_is_resumed(text: str, start) -> None:
    run = start()
    save(run)
    (run.path / "run.json").write_text(text)
    again = start()
    assert again.path == run.path and len(again.facts["starts"]) == 1


def test_no_room_for_run_json(start, monkeypatch: pytest.MonkeyPatch) -> None:
    file = start("a").path / "run.json"
    before = file.read_text()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"\(No space left on device\): free"):
        start("a")
    assert file.read_text() == before


class Two(Ranks):
    """Rank `rank` of two; what rank 0 shares is handed to rank 1 by the test."""

    def __init__(self, rank: int, box: list) -> None:
        super().__init__(rank, 2, rank)
        self.box = box

    def share(self, value):
        if self.main:
            self.box.append(value)
        return self.box[-1]


def test_what_the_first_rank_does_counts_for_all() -> None:
    box: list = []
    assert [on_main(Two(rank, box), lambda: 7) for rank in (0, 1)] == [7, 7]

    def fails() -> None:
        raise TrainingError("no")

    with pytest.raises(TrainingError, match="no"):
        on_main(Two(0, box), fails)
    with pytest.raises(SystemExit) as ended:
        on_main(Two(1, box), fails)
    assert ended.value.code == 1


def test_the_newest_checkpoint_on_all_ranks(start) -> None:
    run = start("a")
    box: list = []
    assert [run.newest(Two(rank, box)) for rank in (0, 1)] == [None, None]
    save(run, 3)
    assert [run.newest(Two(rank, box)).step for rank in (0, 1)] == [3, 3]


def test_every_file_is_listed() -> None:
    rows = [line for line in exactrun.__doc__.splitlines() if line.startswith("    ")]
    named = " ".join(row.split()[0] + " " + " ".join(re.findall(r"\((.*?)\)", row)) for row in rows)
    assert sorted(re.findall(r"\w+", named)) == sorted(
        path.stem for path in Path(exactrun.__file__).parent.glob("*.py") if not path.stem.startswith("__")
    )
