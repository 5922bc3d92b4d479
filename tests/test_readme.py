"""The commands in README's first two blocks, run as written; those with Docker are in tests/engine/test_readme.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, cannot, git
from tests.engine.conftest import Index
from tests.train.conftest import CACHE

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, OTHERS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[:2]
COPY, TRY = FIRST.partition("#")[0].strip().split(" && ")
CHANGE, *LINES = [line.partition("#")[0].strip() for line in OTHERS.splitlines()]


def line_with(*words: str) -> str:
    """The line of the second block that has these words."""
    (line,) = [line for line in LINES if set(words) <= {*line.split()}]
    return line


def generated(template: Path, folder: Path) -> Path:
    """The project that README's first command creates in a fresh clone, without using Docker."""
    clone = folder / "gpu-template"
    git("clone", "--quiet", str(template), str(clone), cwd=folder)
    env = {**os.environ, "GPU_TEMPLATE_SMOKE": "off"}
    lines = f"set -e\n{COPY}\n{CHANGE}\npwd"
    done = subprocess.run(["bash", "-c", lines], cwd=clone, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    project = Path(done.stdout.splitlines()[-1])
    assert project == (folder / "myproj").resolve()
    return project


def run(project: Path, lines: list[str], env: dict[str, str], codes: tuple[int, ...] = (0,)) -> str:
    output = ""
    for line in lines:
        done = subprocess.run(["bash", "-c", line], cwd=project, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode in codes, done.stdout + done.stderr
        output += done.stdout + done.stderr
    return output


def test_the_first_line_copies_and_trains() -> None:
    assert COPY.endswith(" . ../myproj") and TRY == "../myproj/launch try"
    assert re.search(rf"`{COPY[:-11]}gh:[\w-]+/gpu-template myproj && {TRY[3:]}`", README), "the same, without a clone"
    commands = ["--native --cpu try", "--cpu try", "verify"]
    assert [f"./launch {command}" for command in commands] == LINES


@pytest.mark.network
def test_with_only_uv(copier_template: Path, tmp_path: Path) -> None:
    """With a CPU build of PyTorch from pip's find-links folder, if there is one."""
    if not shutil.which("uvx") or sys.version_info < (3, 11):
        cannot("uv and Python 3.11 are needed")
    project = generated(copier_template, tmp_path)
    env = {name: value for name, value in os.environ.items() if not re.match(r"UV_|VIRTUAL_ENV|PYTHONPATH", name)}
    tools = tmp_path / "tools"  # without Docker
    tools.mkdir()
    for name in ("uv", "git"):
        (tools / name).symlink_to(str(shutil.which(name)))
    env |= {
        "GPUKIT_NATIVE": str(tmp_path / "native"),
        "PATH": os.pathsep.join([str(Path(sys.executable).resolve().parent), str(tools), "/usr/bin", "/bin"]),
    }
    index = CACHE / "index"  # always the same, or uv would keep torch once more
    shutil.rmtree(index, ignore_errors=True)
    index.mkdir(parents=True)
    if Index(index).local:
        for folder in index.iterdir():
            links = [f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>' for file in folder.iterdir()]
            (folder / "index.html").write_text("\n".join(links))
        env["UV_INDEX"] = f"pytorch={index.as_uri()}"
    for number in (1, 2):
        assert "Next:" in run(project, [line_with("--native", "try")], env)
        assert len([*project.glob("outputs/try-*/run.json")]) == number
