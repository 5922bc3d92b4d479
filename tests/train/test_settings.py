"""Where the settings of a start come from: the command line, the run that is resumed, the class."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from exactrun import checkpoint
from exactrun.folder import as_json
from gpukit.project.stack import load
from gpukit.script import runs
from gpukit.script.settings import RunSettings, parse
from tests.train.test_folder import DATA


@dataclass(frozen=True)
class Settings(RunSettings):
    data: Path = Path("data")
    clip: float | None = 1.0
    width: int = 8


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`start(*options)`: a start of a script with these options, which saves a checkpoint -> its settings."""
    (tmp_path / "stack.json").write_text(json.dumps(DATA))
    stack = load(tmp_path / "stack.json")

    def started(*options: str, save: bool = True) -> Settings:
        settings = parse(Settings, "train", ["--output-dir", str(tmp_path / "outputs"), *options])
        place = settings.output_dir, settings.name, settings.resume
        with runs.choose(*place, stack) as run:
            run.begin(asdict(settings))
            run.keep(settings=as_json(asdict(settings)))
            if save:
                checkpoint.save(run.path, 1, {"w": torch.ones(2)}, {}, about={})
        return settings

    return started


@pytest.mark.parametrize("name", [("--name", "a"), ()])
def test_a_resumed_run_keeps_its_own_settings(name: tuple[str, ...], start) -> None:
    start(*name, "--lr", "0.25", "--data", "/elsewhere", "--clip", "None", "--compile", "--batch-size", "8")
    again = start(*name, "--width", "4")
    assert (again.lr, again.data, again.clip, again.compile) == (0.25, Path("/elsewhere"), None, True)
    assert (again.batch_size, again.width) == (8, 4)
    assert start(*name, "--lr", "0.5").lr == 0.5
    assert (start(*name).lr, start(*name).width) == (0.5, 4)
    assert start("--name", "another").lr == Settings().lr
    assert start(*name, "--no-resume").lr == Settings().lr


def test_a_run_without_a_checkpoint_has_no_settings_to_keep(start) -> None:
    start("--name", "a", "--lr", "0.25", save=False)
    assert start("--name", "a").lr == Settings().lr


def test_a_run_in_use_is_refused(start, tmp_path: Path) -> None:
    start()
    code = (
        "import sys; from pathlib import Path; from exactrun import checkpoint\n"
        "with checkpoint.claim(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "outputs/run")], **pipes) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(checkpoint.CheckpointError, match="Another process"):
            start()
        other.kill()


def test_settings_of_another_version_are_ignored(start, tmp_path: Path) -> None:
    start("--name", "a", "--lr", "0.25")
    file = tmp_path / "outputs/a/run.json"
    known = json.loads(file.read_text())
    known["settings"] |= {"momentum": 0.9}
    del known["settings"]["width"]
    file.write_text(json.dumps(known))
    again = start("--name", "a")
    assert (again.lr, again.width) == (0.25, Settings().width)


@pytest.mark.parametrize(
    "option", [("--lr", "0"), ("--workers", "-1"), ("--name", "a/b"), ("--keep", "0"), ("--device", "tpu")]
)
def test_values_that_cannot_be_meant(option: tuple[str, str], start) -> None:
    with pytest.raises(SystemExit) as ended:
        start(*option)
    assert ended.value.code == 2
