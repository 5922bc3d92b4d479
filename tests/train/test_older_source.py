"""A project's src/, which updates leave alone, with a newer gpukit: it still trains and passes its tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpukit.wheel import writer
from tests.conftest import ROOT


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} has {text.count(old)} times {old!r}"
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newer gpukit, with one more function and one more keyword, installed as pip does."""
    folder = tmp_path_factory.mktemp("newer")
    for name in ("gpukit", "exactrun"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    seeds = folder / "exactrun/src/exactrun/seeds.py"
    change(seeds, "def seed_all(seed: int) -> None:", "def seed_all(seed: int, *, strict: bool = False) -> None:")
    with seeds.open("a", encoding="utf-8") as file:
        file.write("\n\ndef added() -> str:\n    return 'newer'\n")
    wheel = writer.write(writer.for_project(folder / "gpukit"), folder)
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_an_older_source_works_with_a_newer_wheel(generate: Callable[..., Path], newer: Path, tmp_path: Path) -> None:
    project = shutil.copytree(generate(hardware="cpu", workflow="scripts"), tmp_path / "project")
    paths = [str(project / "src"), str(newer), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GPUKIT_PROJECT": str(project)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("-c", "from exactrun import seeds; print(seeds.added())") == "newer\n"
    run("-m", "my_gpu_project.train", "--max-steps", "6", "--name", "few", "--device", "cpu")
    assert (project / "outputs/few/metrics.jsonl").read_text(encoding="utf-8").count('"loss"') > 0
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
