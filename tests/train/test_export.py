"""The export of a run's model, as a user meets it: same outputs as the original, any batch size, bad ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exactrun.errors import TrainingError
from gpukit.script import export
from tests.conftest import ROOT
from tests.train.test_script import sentence
from tests.train.test_vision import SMALL
from tests.train.trainee import Ended, Trainee


class Branches(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs if inputs.sum() > 0 else -inputs


def test_onnx_gives_the_same_outputs_for_any_batch_and_says_how_to_use_it(tmp_path: Path) -> None:
    import onnxruntime

    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(), nn.Linear(8, 2)).eval()
    path = tmp_path / "model.onnx"
    batches = [torch.randn(size, 2) for size in (1, 17)]
    compute = export.to_onnx(model, batches[-1], path, {"classes": ["a", "b"]})
    assert export.compare(model, compute, batches) <= 1e-5
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]  # the weights are inside
    properties = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert json.loads(properties[export.PROPERTY])["classes"] == ["a", "b"]


def test_a_difference_is_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(TrainingError, match="differs"):
        export.compare(model, lambda inputs: model(inputs) * 1.0001, [torch.ones(1, 2)])
    with pytest.raises(TrainingError, match="differs"):
        export.compare(model, lambda inputs: model(inputs) * float("nan"), [torch.ones(1, 2)])


def test_dynamic_control_flow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"torch\.cond"):
        export.to_onnx(Branches(), torch.ones(17, 2), tmp_path / "model.onnx", {})


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
    ended = exporting(project, "--run", "a")
    assert ended.code == 0, ended
    assert "largest difference" in ended.out
    assert (project.run_folder("a") / "model.onnx").is_file()
    assert not list(project.run_folder("a").glob(".model*"))


def test_a_run_that_does_not_exist_is_said(project: Trainee) -> None:
    sentence(exporting(project, "--run", "none"), "no checkpoint", "--name none")
    assert not project.run_folder("none").exists()
