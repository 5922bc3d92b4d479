"""What the generated initialize.sh says before VS Code starts a container, with stand-ins for the tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from gpukit.wheel import vendor, writer
from tests.conftest import ROOT

NOT_LOADED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
DOCKER = """#!/bin/sh
case "$*" in
  --version) echo 'Docker version 29.1.2, build 890dcca' ;;
  info*) echo '{"ServerVersion": "29.1.2", "OSType": "linux", "DockerRootDir": "/nowhere"}' ;;
  context*) echo unix:///var/run/docker.sock ;;
  version*) echo '{}' ;;
  run*) echo 'exec /none failed: no such file or directory' >&2; exit 127 ;;
esac
"""


@pytest.fixture
def start(generate, tmp_path):
    def run(nvidia_smi, *arguments, docker=DOCKER, python=sys.executable, wheel=True, **answers):
        project = tmp_path / "project"
        shutil.copytree(generate(**answers), project, symlinks=True)
        (project / "launch").chmod(0o644)
        if wheel:
            vendor.put(writer.for_project(ROOT / "gpukit"), project)
        tools = tmp_path / "bin"
        tools.mkdir()
        for name, text in (("docker", docker), ("nvidia-smi", f"#!/bin/sh\n{nvidia_smi}\n")):
            (tools / name).write_text(text, encoding="utf-8")
            (tools / name).chmod(0o755)
        for name in ("sh", "env", "dirname", "id", "find", "mkdir", "ln", "od", "sed", "tr", "cat"):
            (tools / name).symlink_to(shutil.which(name))
        if python:
            (tools / "python3").symlink_to(python)
        if os.getuid() == 0:
            os.chown(project, 1000, 1000)  # root's own project is refused before
        environment = {"HOME": str(tmp_path), "PATH": str(tools)}
        argv = ["sh", ".devcontainer/initialize.sh", *arguments]
        return subprocess.run(
            argv, cwd=project, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


HEALTHY = "echo 'NVIDIA GeForce RTX 5070 Ti, 580.95.05, 12.0'"
# What nvidia-smi does, arguments and answers, and the checks that a line is printed of.
SEEN = {
    "a driver that is not loaded": (f'echo "{NOT_LOADED}"; exit 9', (), {}, [" NVIDIA driver"]),
    "nothing": (HEALTHY, (), {}, []),
    "nothing without a GPU": ("exit 9", ("cpu",), {}, []),
    "no engine": ("exit 9", (), {"docker": "#!/bin/sh\nexit 1\n", "hardware": "cpu"}, [" Docker client"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_a_line_for_each_problem_that_stops_the_container(start, name):
    nvidia_smi, arguments, answers, checks = SEEN[name]
    done = start(nvidia_smi, *arguments, **answers)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[1] for line in done.stdout.splitlines() if line.startswith("doctor: ")] == checks


@pytest.mark.parametrize("missing", [{"python": None}, {"wheel": False}], ids=["python3", "wheel"])
def test_vs_code_starts_if_gpukit_cannot_run(start, missing):
    done = start("exit 9", **missing)
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["launch"]


@pytest.mark.parametrize(("arguments", "code"), [((), 1), (("cpu",), 0)], ids=["gpu", "cpu"])
def test_only_a_refused_gpu_stops_vs_code(start, arguments, code):
    refusal = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver"
    docker = DOCKER.replace("exec /none failed: no such file or directory", refusal)
    assert start("exit 9", *arguments, docker=docker).returncode == code
