"""The export of a run's model, as a user meets it: same outputs as the original, any batch size, bad ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.train.test_script import sentence
from tests.train.test_vision import SMALL
from tests.train.trainee import Trainee

WORKERS = ("--workers", "0")


@pytest.fixture(params=["minimal", "vision"])
def project(generate, tmp_path: Path, request: pytest.FixtureRequest) -> Trainee:
    answers = {"hardware": "cpu", "workflow": "scripts", "services": ["predict"], "use_case": request.param}
    folder = shutil.copytree(generate(**answers), tmp_path / "project")
    project = Trainee(folder, always=WORKERS + (SMALL if request.param == "vision" else ()))
    project.train("--name", "a", "--max-steps", "2")
    return project


def test_a_project_exports_its_run(project: Trainee) -> None:
    """For any batch size, with what is needed to use it; without the file of a model whose outputs differ."""
    import onnxruntime

    ended = project.run("--name", "a", module="export")
    assert ended.code == 0, ended
    folder = project.run_folder("a")
    assert [path.name for path in folder.iterdir() if "onnx" in path.name] == ["model.onnx"]  # the weights are inside
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    about = json.loads(session.get_modelmeta().custom_metadata_map["gpukit"])
    assert (about["step"], about["dtype"], about["shape"][0]) == (2, "float32", "batch") and len(about["classes"]) >= 2
    inputs = np.zeros((3, *about["shape"][1:]), about["dtype"])
    (outputs,) = session.run(None, {about["input"]: inputs})
    assert outputs.shape == (3, len(about["classes"]))
    if project.always == WORKERS:  # what follows is the same code for both
        (folder / "model.onnx").unlink()
        project.replace("export.py", "from_numpy(outputs)", "from_numpy(outputs * 1.01)")
        assert "not close" in project.run("--name", "a", module="export").err
        assert not (folder / "model.onnx").exists()
        sentence(project.run("--name", "none", module="export"), "none has no checkpoint")
        assert not project.run_folder("none").exists()
