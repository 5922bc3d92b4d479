"""Faults really made on this machine, found by the real probes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from gpukit.doctor import health
from gpukit.doctor import main as doctor
from gpukit.doctor.host import Host, Result
from gpukit.findings.checks import run, select
from gpukit.project.stack import load
from gpukit.wheel.vendor import put
from gpukit.wheel.writer import running
from tests.conftest import ENGINE, GPU_ENGINE, cannot, conflict


@pytest.fixture
def project(generate, tmp_path, monkeypatch):
    """A generated project with a server, in a home of its own, and what doctor says of it."""
    folder = tmp_path / "home/project"
    shutil.copytree(generate(tracking=["mlflow"]), folder, symlinks=True)
    put(running(), folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def findings(project, *ids):
    stack = load(project / "stack.json")
    checks = [check for check in select(doctor.CHECKS) if check.id in ids]
    return {finding.id: finding for finding in run(checks, Host(stack, project), stack)}


def test_an_update_that_was_not_finished(project):
    assert findings(project, "merge")["merge"].status == "PASS"
    conflict(project, "Dockerfile", "FROM theirs\n", "FROM ours\n")
    found = findings(project, "merge", "mounts")
    assert found["merge"].status == "FAIL"
    assert found["merge"].seen == "Dockerfile"
    assert found["mounts"].status == "SKIP"


def test_what_an_update_leaves_without_git(project):
    path = project / ".devcontainer/devcontainer.json"
    intact = path.read_text(encoding="utf-8")
    (project / "README.md").write_text("a line of <<<<<<< and nothing else\n", encoding="utf-8")
    path.write_text(f"<<<<<<< before updating\n{intact}=======\n{{}}\n>>>>>>> after updating\n", encoding="utf-8")
    assert findings(project, "merge")["merge"].seen == ".devcontainer/devcontainer.json"
    path.write_text(intact, encoding="utf-8")
    (project / "Dockerfile.rej").write_text("x", encoding="utf-8")
    assert findings(project, "merge")["merge"].seen == "Dockerfile.rej"


def test_a_cache_that_is_gone(project):
    (project / ".launch").mkdir()
    (project / ".launch/huggingface").symlink_to(project / "nowhere")
    found = findings(project, "merge", "mounts")["mounts"]
    assert (found.status, found.seen) == ("FAIL", "~/project/.launch/huggingface: a link to nothing")
    assert found.cause_id == "mount-source-dangling"
    assert '`rm "$HOME/project/.launch/huggingface"`' in found.remedy


XML = "<nvidia_smi_log><driver_version>{driver}</driver_version>{gpus}</nvidia_smi_log>"
GPU = "<gpu><product_name>{name}</product_name></gpu>"


@pytest.fixture
def rented(project, tmp_path, monkeypatch, capsys):
    """`rented("NVIDIA H100, 580.95.05, 9.0", "--strict")`: the exit code, and the findings, on a host with this GPU."""

    def run_doctor(row, *options, container=True, gpus=1):
        (tmp_path / "bin").mkdir(exist_ok=True)
        name, driver = row.split(", ")[:2]
        xml = XML.format(driver=driver, gpus=GPU.format(name=name) * gpus)
        script = f"""case "$*" in
        "-q -x") echo "{xml}";;
        *compute_cap*) for each in $(seq {gpus}); do echo "{row}"; done;;
        esac"""
        (tmp_path / "bin/nvidia-smi").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / "bin/nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        monkeypatch.setattr("gpukit.host.facts.container", lambda: container)
        monkeypatch.chdir(project)
        only = "--only=driver,card,health,xid,busy,lost,link,clocks"
        code = doctor.main(["--json", only, *options], native=True)
        document = json.loads(capsys.readouterr().out)
        assert document["exit_code"] == code
        return code, {finding["id"]: finding for finding in document["findings"]}

    return run_doctor


def test_a_rented_host_with_an_older_driver_is_given_back(rented):
    code, found = rented("NVIDIA GeForce RTX 5090, 570.86.16, 12.0")
    remedy = found["driver"]["remedy"]
    assert (code, found["driver"]["cause_id"]) == (1, "driver-too-old")
    assert "Give this machine back" in remedy and "driver 580" in remedy
    assert "reboot" not in remedy.lower() and "install" not in remedy.lower()
    assert found["health"]["status"] == "SKIP"
    _, found = rented("NVIDIA GeForce RTX 5090, 570.86.16, 12.0", container=False)
    assert "Give this machine back" not in found["driver"]["remedy"]


@pytest.mark.parametrize(("gpus", "busy"), [("all", "WARN"), ("0", "PASS"), ("1", "WARN"), ("GPU-1", "WARN")])
def test_only_the_requested_gpus_have_to_be_free(project, monkeypatch, gpus, busy):
    memory = "<fb_memory_usage><total>100 MiB</total><used>{} MiB</used></fb_memory_usage>"
    states = [f"<gpu><uuid>GPU-{index}</uuid>{memory.format(used)}</gpu>" for index, used in enumerate((1, 50))]
    answers = {"smi": Result(0, XML.format(driver="580", gpus="".join(states)))}
    stack = load(project / "stack.json")
    probes = Host(stack, project)
    probes.gpus = gpus
    monkeypatch.setattr(probes, "_answer", lambda name: answers.get(name, Result(None)))
    assert run([health.busy], probes, stack)[0].status == busy


def test_seven_of_eight_gpus(rented, tmp_path, monkeypatch):
    """As the kernel lists them: eight GPUs of the driver, and one that another module holds."""
    for index in range(9):
        device = tmp_path / f"bus/0000:0{index}:00.0"
        module = tmp_path / ("modules/nvidia" if index else "modules/vfio-pci")
        device.mkdir(parents=True)
        module.mkdir(parents=True, exist_ok=True)
        (device / "class").write_text("0x030200\n", encoding="utf-8")
        (device / "vendor").write_text("0x10de\n", encoding="utf-8")
        (device / "driver").symlink_to(module)
    monkeypatch.setattr("gpukit.host.facts.PCI", str(tmp_path / "bus"))
    monkeypatch.setattr("gpukit.doctor.host.DEVICES", tmp_path)
    row = "NVIDIA GeForce RTX 5090, 580.95.05, 12.0"
    code, found = rented(row, gpus=7)
    assert (code, found["lost"]["seen"], found["lost"]["cause_id"]) == (1, "7 of 8", "gpu-missing")
    assert rented(row, gpus=8)[0] == 0
    for index in (0, 1):  # a job or a container that was given two
        (tmp_path / f"nvidia{index}").touch()
    assert rented(row, gpus=2)[0] == 0
    code, found = rented(row, gpus=1)
    assert (code, found["lost"]["seen"]) == (1, "1 of 2")


# With a real client of Docker, and real engines where one is asked.

needs_docker = pytest.mark.skipif(shutil.which("docker") is None, reason="needs Docker's client")


@needs_docker
@pytest.mark.engine
@pytest.mark.parametrize("left", ["nothing", "a socket that nobody serves"])
def test_an_engine_that_is_stopped(project, tmp_path, monkeypatch, left):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with socket.socket(socket.AF_UNIX) as server:
        if left != "nothing":
            server.bind(str(tmp_path / "docker.sock"))
        found = findings(project, "client", "engine", "disk")
    statuses = {id: finding.status for id, finding in found.items()}
    assert statuses == {"client": "PASS", "engine": "FAIL", "disk": "SKIP"}
    assert found["engine"].cause_id == "docker-host-silent"


@needs_docker
@pytest.mark.engine
def test_a_socket_that_is_denied(project, tmp_path):
    """As another user, who is not in its group."""
    if os.getuid() != 0 or not Path(ENGINE.removeprefix("unix://")).exists() or not Path("/usr/bin/python3").exists():
        cannot(f"needs root, to be somebody else, the system's Python, and an engine on {ENGINE}")
    shared = Path(tempfile.mkdtemp(prefix="gpukit-denied-"))
    try:
        shutil.copytree(project, shared / "project", symlinks=True)
        shared.chmod(0o755)
        subprocess.run(["chown", "-R", "65534:65534", str(shared)], check=True)
        argv = ["./launch", "doctor", "--json", "--only=engine"]
        environment = {
            "PATH": "/usr/bin:/bin:/usr/local/bin",
            "HOME": str(shared),
            "DOCKER_HOST": ENGINE,
        }  # the tests' own Python may be root's
        who = {"user": 65534, "group": 65534, "extra_groups": []}
        done = subprocess.run(
            argv, env=environment, cwd=shared / "project", capture_output=True, text=True, check=False, **who
        )
    finally:
        shutil.rmtree(shared)
    found = {finding["id"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert (found["engine"]["status"], done.returncode) == ("FAIL", 1)
    assert found["engine"]["cause_id"] == "docker-denied"


def granted(project, monkeypatch, host):
    """What comes of asking that engine for the GPU, whatever the driver of this machine is like."""
    if not Path(host.removeprefix("unix://")).exists():
        (cannot if host == ENGINE else pytest.skip)(f"needs an engine on {host}")
    monkeypatch.setenv("DOCKER_HOST", host)
    found = findings(project, "client", "engine", "gpu")
    assert [found["client"].status, found["engine"].status] == ["PASS", "PASS"]
    return found["gpu"]


@needs_docker
@pytest.mark.engine
def test_an_engine_without_the_toolkit(project, monkeypatch):
    if shutil.which("nvidia-ctk"):
        pytest.skip("needs a machine without NVIDIA's Container Toolkit")
    found = granted(project, monkeypatch, ENGINE)
    assert (found.status, found.cause_id) == ("FAIL", "toolkit-not-installed")


@needs_docker
@pytest.mark.engine
def test_an_engine_that_grants_the_gpu(project, monkeypatch):
    found = granted(project, monkeypatch, GPU_ENGINE)
    assert (found.status, found.seen) == ("PASS", "GPU all")
