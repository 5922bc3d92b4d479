"""The export of a run's model, as a user meets it: same outputs as the original, any batch size, bad ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.train.test_script import sentence
from tests.train.test_vision import SMALL
from tests.train.trainee import Ended, Trainee


@pytest.fixture(scope="module", params=["minimal", "vision"])
def project(generate, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trainee:
    answers = {"hardware": "cpu", "workflow": "scripts", "services": ["predict"], "use_case": request.param}
    folder = shutil.copytree(generate(**answers), tmp_path_factory.mktemp("export") / "project")
    project = Trainee(folder, always=("--workers", "0", *(SMALL if request.param == "vision" else ())))
    project.train("--name", "a", "--max-steps", "2")
    return project


def exporting(project: Trainee, *arguments: str) -> Ended:
    path = os.pathsep.join([str(project.folder / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    start = "import runpy, tests.train.torchvision_anyway; runpy.run_module({!r}, run_name='__main__')"
    command = [sys.executable, "-c", start.format(f"{project.package}.export"), *arguments]
    ended = subprocess.run(
        command, cwd=project.folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_a_project_exports_its_run(project: Trainee) -> None:
    """For any batch size, with what is needed to use it; without the file of a model whose outputs differ."""
    import onnxruntime

    ended = exporting(project, "--name", "a")
    assert ended.code == 0, ended
    folder = project.run_folder("a")
    assert [path.name for path in folder.iterdir() if "onnx" in path.name] == ["model.onnx"]  # the weights are inside
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    about = json.loads(session.get_modelmeta().custom_metadata_map["gpukit"])
    assert (about["step"], about["dtype"], about["shape"][0]) == (2, "float32", "batch") and len(about["classes"]) >= 2
    inputs = np.zeros((3, *about["shape"][1:]), about["dtype"])
    (outputs,) = session.run(None, {about["input"]: inputs})
    assert outputs.shape == (3, len(about["classes"]))
    (folder / "model.onnx").unlink()
    project.replace("export.py", "from_numpy(outputs)", "from_numpy(outputs * 1.01)")
    assert "not close" in exporting(project, "--name", "a").err
    assert not (folder / "model.onnx").exists()


def test_a_run_that_does_not_exist_is_said(project: Trainee) -> None:
    sentence(exporting(project, "--name", "none"), "none has no checkpoint")
    assert not project.run_folder("none").exists()
