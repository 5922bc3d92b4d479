"""Faults really made on this machine, found by the real probes."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from gpukit import doctor
from gpukit.checks import run, select
from gpukit.doctor.host import Host
from gpukit.stack import load
from tests.conftest import git


@pytest.fixture
def project(generate, tmp_path, monkeypatch):
    """A generated project with a server, in a home of its own, and what doctor says of it."""
    folder = tmp_path / "home/project"
    shutil.copytree(generate(tracking=["mlflow"]), folder, symlinks=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def findings(project, *ids):
    stack = load(project / "gpukit/stack.json")
    checks = [check for check in select(doctor.CHECKS) if check.id in ids]
    with Host(stack, project) as saw:
        return {finding.id: finding for finding in run(checks, saw, stack)}


def test_an_update_that_was_not_finished(project):
    git("init", "-q", "-b", "main", cwd=project)
    git("add", "-A", cwd=project)
    git("commit", "-qm", "one", cwd=project)
    for branch, text in (("theirs", "FROM theirs\n"), ("main", "FROM ours\n")):
        git("switch", "-q", *(["-c"] if branch == "theirs" else []), branch, cwd=project)
        (project / "Dockerfile").write_text(text, encoding="utf-8")
        git("commit", "-qam", branch, cwd=project)
    assert findings(project, "merge")["merge"].status == "PASS"
    subprocess.run(["git", "merge", "-q", "theirs"], cwd=project, capture_output=True, check=False)
    found = findings(project, "merge", "mounts")
    assert found["merge"].status == "FAIL"
    assert found["merge"].seen == "Dockerfile"
    assert found["mounts"].status == "SKIP"


def test_conflict_markers_without_git(project):
    path = project / ".devcontainer/devcontainer.json"
    path.write_text(f"<<<<<<< before updating\n{path.read_text()}=======\n{{}}\n>>>>>>> after updating\n")
    assert findings(project, "merge")["merge"].seen == ".devcontainer/devcontainer.json"


def test_a_virtual_environment_of_the_host(project):
    assert findings(project, "venv")["venv"].status == "PASS"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=True)
    assert findings(project, "venv")["venv"].status == "WARN"


def test_a_taken_port(project, monkeypatch):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        (project / ".env").write_text(f"MLFLOW_PORT={port}\n", encoding="utf-8")
        stack = load(project / "gpukit/stack.json")
        with Host(stack, project) as saw:
            saw.containers = ()  # without asking an engine
            taken = {each.number: each.taken for each in saw.ports}
    assert taken[port] is True
    with Host(stack, project) as saw:
        saw.containers = ()
        assert {each.number: each.taken for each in saw.ports}[port] is False


def test_a_cache_that_is_gone(project):
    (project / ".launch").mkdir()
    (project / ".launch/huggingface").symlink_to(project / "nowhere")
    found = findings(project, "merge", "mounts")["mounts"]
    assert (found.status, found.seen) == ("FAIL", "~/project/.launch/huggingface: a link to nothing")
    assert found.remedy == 'rm "$HOME/project/.launch/huggingface"'


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_cache_that_is_somebody_elses(project):
    (project / ".launch").mkdir()
    (project / ".launch/huggingface").mkdir(mode=0o500)
    assert findings(project, "merge", "mounts")["mounts"].status == "FAIL"
