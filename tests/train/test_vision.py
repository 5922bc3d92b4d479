"""The use case `vision`: an image classifier on image files, in the same loop as `minimal`, with the same promises."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
import torch

from exactrun import checkpoint
from tests.train.test_script import same, sentence, weights
from tests.train.trainee import Trainee

MISSING = [name for name in ("torchvision", "timm", "PIL") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

# timm's own model for tests: 0.4 million parameters, convolutions, BatchNorm
SMALL = ("--model", "test_resnet", "--image-size", "32", "--batch-size", "16", "--log-steps", "1")


@pytest.fixture
def project(generate, tmp_path: Path) -> Trainee:
    folder = shutil.copytree(generate(hardware="cpu", workflow="scripts", use_case="vision"), tmp_path / "project")
    return Trainee(folder, always=SMALL)


def test_killed_and_resumed_repeats_an_unbroken_run(project: Trainee) -> None:
    """In mid-epoch (15 steps), with augmentation in two workers, then in one; the first start draws the images."""
    steps = ("--max-steps", "20", "--save-steps", "6")
    project.train(*steps, "--name", "unbroken", "--workers", "2")
    assert len(list((project.folder / "data/shapes").rglob("*.jpg"))) == 150
    project.killed(8, *steps, "--workers", "2")
    assert "Resuming" in project.train(*steps, "--name", "killed", "--workers", "1")
    assert project.losses("killed") == project.losses("unbroken")
    assert same(weights(project, "killed"), weights(project, "unbroken"))


def test_it_learns(project: Trainee) -> None:
    """Three shapes of any color: better than chance by far."""
    project.train("--max-steps", "150", "--lr", "3e-3", "--name", "run", "--workers", "0")
    found = checkpoint.newest(project.run_folder("run"))
    assert found.metric < 0.8 < torch.tensor(3.0).log()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_wrong_with_the_data_is_said(workers: str, project: Trainee, tmp_path: Path) -> None:
    data = tmp_path / "images"
    (data / "cat").mkdir(parents=True)
    start = ("--data", str(data), "--workers", workers)
    sentence(project.run(*start), "images does not contain at least two folders of images", "--data")
    (data / "dog").mkdir()
    sentence(project.run(*start), "cat, dog", "add some")
    for name in ("cat", "dog"):
        for number in range(20):
            (data / name / f"{number}.png").write_bytes(b"no image")
    sentence(project.run(*start), ".png as an image", "remove or replace it")


def test_a_model_that_timm_does_not_have(project: Trainee) -> None:
    sentence(project.run("--model", "resnet5"), "timm has no model resnet5", "resnet50")
