"""An adopted repository on a real engine: its own program and commands run, beside its own devcontainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, git
from tests.engine.conftest import SLUG, Engine, Index, Project, User, tidy, without_request

FILES = {
    "pyproject.toml": f'''[project]
name = "{SLUG}"
version = "3.1"
dependencies = ["torch"]
[project.scripts]
think = "engine_tests.cli:main"
[build-system]
requires = ["setuptools"]
''',
    "src/engine_tests/__init__.py": "",
    "src/engine_tests/cli.py": """\
from importlib import metadata

def main():
    print(metadata.version("engine-tests"))
""",
    "train.py": """\
import os
import torch
from engine_tests import cli

open("model.pt", "w").close()
print(os.getcwd(), torch.ones(2).sum())
""",
    "Dockerfile": "FROM scratch\n",
    "compose.yaml": "services:\n  dev:\n    image: scratch\n  jobs:\n    image: scratch\n",
    ".gitignore": "*.pt\n",
    ".dockerignore": "*\n!.gpukit\n!pyproject.toml\n",  # the last two: as `adopt` says
    ".devcontainer/devcontainer.json": '{"image": "python:3.12-slim-trixie", "name": "theirs"}\n',
}


@pytest.fixture(scope="module")
def adopted(
    place: Path,
    plain_template: Path,
    engine: Engine,
    users: Callable[..., User],
    bases: dict[str, str],
    index: Index,
) -> Iterator[Project]:
    user = users()
    path = user.home / "adopted"
    for name, text in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    git("init", "-q", cwd=path)
    git("add", "-A", cwd=path)
    git("commit", "-qm", "theirs", cwd=path)
    command = [sys.executable, "-m", "gpukit", "adopt", f"--template={plain_template}", "--hardware=rtx-50", "--yes"]
    environment = {name: value for name, value in os.environ.items() if name != "GPUKIT_PROJECT"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    subprocess.run(
        command, cwd=path, env={**environment, "PYTHONPATH": str(ROOT / "gpukit/src")}, check=True, timeout=300
    )
    if not engine.grants:
        without_request(path / ".devcontainer/gpukit/devcontainer.json")
    user.give(path)
    yield Project(
        path,
        user,
        engine,
        {"DOCKER_HOST": engine.host, "BASE_IMAGE": bases["wheel"], "UV_INDEX": index.pytorch(engine)},
    )
    tidy(engine, str(place), [path])


def test_its_own_program_and_command_run_as_its_user_runs_them(adopted: Project) -> None:
    where, _ = adopted.launched("--cpu", "run", "--", "python", "train.py", timeout=600).split(maxsplit=1)
    assert where == "/workspace"
    assert (adopted.path / "model.pt").stat().st_uid == adopted.user.uid
    assert adopted.launched("--cpu", "run", "--", "think").strip() == "3.1"
    own = "import os, sys, torch; print(sys.prefix, *os.listdir())"
    places = adopted.launched("--cpu", "run", "--", "uv", "run", "python", "-c", own).split()
    assert places[0] == "/etc/gpukit/python", "the image's packages"
    assert not {".venv", "uv.lock"} & {*places}
    found = adopted.launch("--cpu", "verify", "--json", timeout=600)
    results = {each["id"]: each["status"] for each in json.loads(found.stdout)["findings"]}
    failed = {id for id, status in results.items() if status == "FAIL"}
    assert failed <= {"torch"}, found.stdout  # the tests' index may have another build
    assert results["packages"] == "PASS"


def test_a_job_runs_the_code_of_its_submission_beside_the_repositorys_own_containers(adopted: Project) -> None:
    labels = [f"devcontainer.local_folder={adopted.path}", f"com.docker.compose.project.working_dir={adopted.path}"]
    labels.append(f"devcontainer.config_file={adopted.path}/.devcontainer/devcontainer.json")
    flags = [f"--label={label}" for label in labels]
    theirs = adopted.engine.get("run", "--detach", "--rm", *flags, "python:3.12-slim-trixie", "sleep", "600").strip()
    (adopted.path / "old.pt").write_text("shared\n")
    adopted.launched("submit", "--", "sh", "-c", "cat old.pt && think && git status --porcelain; touch new.pt")
    (adopted.path / "src/engine_tests/cli.py").write_text("later\n")
    adopted.launched("--cpu", "jobs", "run", "-d", timeout=600)
    adopted.launched("jobs", "wait", "1", timeout=600)
    (adopted.path / "src/engine_tests/cli.py").write_text(FILES["src/engine_tests/cli.py"])
    assert adopted.launch("jobs", "logs", "1").stdout.split() == ["shared", "3.1"]
    adopted.launched("--cpu", "stop")
    assert (adopted.path / "new.pt").stat().st_uid == adopted.user.uid
    assert adopted.engine.get("inspect", "--format={{.State.Running}}", theirs).strip() == "true"
    adopted.engine.get("rm", "--force", theirs)


def test_vs_code_starts_it_beside_the_repositorys_own_container(adopted: Project) -> None:
    if not shutil.which("devcontainer"):
        pytest.skip("the devcontainers CLI is not here")
    config = f"--config={adopted.path}/.devcontainer/gpukit-cpu/devcontainer.json"
    theirs = f"--config={adopted.path}/.devcontainer/devcontainer.json"
    ours = adopted.up(config)
    assert adopted.up(theirs) != ours
    assert adopted.inside(theirs, "test", "!", "-e", "/etc/gpukit").returncode == 0
    assert adopted.up(config) == ours
    assert adopted.inside(config, "think").stdout.strip() == "3.1"
    adopted.stop()
