"""The commands in README's first block, run as written; tests/engine/test_readme.py runs those that need Docker."""

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

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST = re.search(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1].splitlines()
COPY, CHANGE = FIRST[:2]
VARIANTS = [[line for line in part.splitlines()[1:] if line] for part in "\n".join(FIRST[2:]).split("# With ") if part]


def generated(template: Path, folder: Path) -> Path:
    """The project that README's first two lines create in a fresh clone, without using Docker."""
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
        output += done.stdout
    return output


def test_the_block_has_three_variants() -> None:
    assert [any(word in lines[-1] for word in ("--cpu", "--native")) for lines in VARIANTS] == [False, True, True]
    assert "--native" in VARIANTS[2][-1] and all("my_gpu_project.train" in lines[-1] for lines in VARIANTS)
    copy, _, comment = COPY.partition(" # ")
    assert copy.rstrip().endswith(" . ../myproj") and re.search(r"\bgh:[\w-]+/gpu-template myproj$", comment)


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
    (tmp_path / "index").mkdir()
    if Index(tmp_path / "index").local:
        for folder in (tmp_path / "index").iterdir():
            links = [f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>' for file in folder.iterdir()]
            (folder / "index.html").write_text("\n".join(links))
        env["UV_INDEX"] = f"pytorch={(tmp_path / 'index').as_uri()}"
    assert "Done: step 100," in run(project, VARIANTS[2], env)
