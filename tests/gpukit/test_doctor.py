"""Doctor's judgement on what tools are known to say, and its probes on this machine."""

import json
import os
from datetime import date

import jsonschema
import pytest
from gpukit import doctor
from gpukit.checks import run
from gpukit.doctor.engine import PODMAN
from gpukit.doctor.gpu import Card, cards
from gpukit.doctor.host import Answer, Config, Folder, Grant, Host, ask
from gpukit.finding import to_json
from gpukit.stack import load

NO_ENGINE = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
NO_ENGINE_29 = (
    "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the "
    "daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory"
)
DENIED = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: "
    'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.50/info": dial unix /var/run/docker.sock: connect: permission denied'
)
NO_CONTEXT = (
    'Failed to initialize: unable to resolve docker endpoint: context "lab": context not found: '
    "open /home/me/.docker/contexts/meta/ca37/meta.json: no such file or directory"
)
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
SERVER_DOWN = json.dumps({"ServerVersion": "", "ServerErrors": [NO_ENGINE]})


def judged(saw, stack):
    return {finding.id: finding for finding in run(doctor.CHECKS, saw, stack)}


def trouble(findings):
    return {id: finding.status for id, finding in findings.items() if finding.status in ("FAIL", "WARN")}


def folder(**changes):
    seen = {"source": "/home/me/x", "target": "/home/dev/x", "read_only": False, "kind": "folder", "usable": True}
    return Folder(**{**seen, **changes})


HEALTHY = {
    "workstation": {},
    "two kinds of cards": {
        "cards": Answer(0, "NVIDIA GeForce GT 1030, 580.95.05, 6.1\nNVIDIA GeForce RTX 5090, 580.95.05, 12.0\n")
    },
    "WSL": {"system": "wsl", "engine": {"OperatingSystem": "Docker Desktop"}},
    "another machine": {
        "endpoint": "ssh://me@lab",
        "cards": Answer(None),
        "config": Config((folder(kind="missing", usable=False),)),
    },
    "no numbers from nvidia-smi": {"cards": Answer(0, "Orin (nvgpu), [N/A], [N/A]\n")},
    "mounts to be made": {
        "config": Config((folder(target="/home/dev/.cache/huggingface", kind="missing", usable=True),))
    },
    "a mounted file": {"config": Config((folder(target="/home/dev/.gitconfig", kind="file"),))},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_machine(host, make_stack, name):
    findings = judged(host(**HEALTHY[name]), make_stack())
    assert trouble(findings) == {}


def test_a_machine_without_gpu_for_a_project_without_gpu(host, make_stack, cpu_only, findings_schema):
    saw = host(cards=Answer(None), grant=None)
    findings = judged(saw, make_stack(**cpu_only))
    assert trouble(findings) == {}
    assert [id for id, finding in findings.items() if finding.status == "SKIP"] == ["driver", "card", "gpu", "base"]
    jsonschema.validate(to_json("doctor", "demo", list(findings.values())), findings_schema)


# What is seen -> the one check that is in trouble, and a part of its cause and of its remedy.
FAULTS = {
    "no docker": ({"client": Answer(None)}, "client", "not installed", "docs.docker.com/engine/install"),
    "no docker in WSL": ({"client": Answer(None), "system": "wsl"}, "client", "not installed", "Docker Desktop"),
    "podman as docker": ({"client": Answer(0, "podman version 5.4.2")}, "client", "Podman", "Docker Engine"),
    "docker hangs": ({"client": Answer(None, err="no answer in 4 s", late=True)}, "client", "not return", "docker"),
    "podman's socket": ({"server": Answer(0, '{"Components":[{"Name":"Podman Engine"}]}')}, "engine", PODMAN, "Docker"),
    "podman's folder": (
        {"engine": {"DockerRootDir": "/home/me/.local/share/containers/storage"}},
        "engine",
        PODMAN,
        "Docker",
    ),
    "not running": ({"info": Answer(1, SERVER_DOWN, NO_ENGINE)}, "engine", "not running", "systemctl start docker"),
    "not running, in JSON only": ({"info": Answer(1, SERVER_DOWN)}, "engine", "not running", "systemctl start docker"),
    "not running, new words": ({"info": Answer(1, "", NO_ENGINE_29)}, "engine", "not running", "systemctl start"),
    "not running on a Mac": (
        {"info": Answer(1, "", NO_ENGINE), "system": "macos"},
        "engine",
        "not running",
        "Start Docker Desktop",
    ),
    "not allowed": ({"info": Answer(1, "", DENIED)}, "engine", "group `docker`", "usermod"),
    "no such context": ({"info": Answer(1, "", NO_CONTEXT)}, "engine", "context does not exist", "context use default"),
    "engine hangs": (
        {"info": Answer(None, err="no answer in 8 s", late=True)},
        "engine",
        "hangs",
        "systemctl restart docker",
    ),
    "other machine hangs": (
        {"info": Answer(None, err="no answer in 8 s", late=True), "endpoint": "tcp://10.0.0.9:2376"},
        "engine",
        "other machine",
        "docker context ls",
    ),
    "unknown words": ({"info": Answer(1, "", "something new")}, "engine", "could not talk", "docker info"),
    "windows containers": ({"engine": {"OSType": "windows"}}, "engine", "Windows containers", "Linux containers"),
    "rootless": ({"engine": {"SecurityOptions": ["name=rootless"]}}, "engine", "rootless", "context use default"),
    "old engine": ({"engine": {"ServerVersion": "20.10.24"}}, "engine", "cache mounts", "Update Docker"),
    "no driver": ({"cards": Answer(None)}, "driver", "No NVIDIA driver", "driver, 580 or newer"),
    "driver not loaded": ({"cards": Answer(9, NOT_LOADED)}, "driver", "not loaded", "modprobe"),
    "driver updated": ({"cards": Answer(18, "", MISMATCH)}, "driver", "still loaded", "reboot"),
    "no card": ({"cards": Answer(6, "No devices were found\n")}, "driver", "finds no GPU", "dmesg"),
    "too old to say": (
        {"cards": Answer(2, 'Field "compute_cap" is not a valid field to query.\n')},
        "driver",
        "too old",
        "reboot",
    ),
    "nvidia-smi hangs": ({"cards": Answer(None, err="no answer in 8 s", late=True)}, "driver", "hangs", "nvidia-smi"),
    "nvidia-smi says something new": ({"cards": Answer(1, "", "?")}, "driver", "not known here", "nvidia-smi"),
    "driver below the base's floor": (
        {"cards": Answer(0, "NVIDIA GeForce RTX 5070 Ti, 575.57.08, 12.0\n")},
        "driver",
        "python:3.12-slim-trixie",
        "580 or newer",
    ),
    "a card that only runs": (
        {"cards": Answer(0, "NVIDIA GeForce RTX 4090, 580.95.05, 8.9\n")},
        "card",
        "not among the project's targets. The image has kernels",
        "also_on",
    ),
    "a card that does not run": (
        {"cards": Answer(0, "NVIDIA GeForce GTX 1080, 580.95.05, 6.1\n")},
        "card",
        "no kernels for it",
        "also_on",
    ),
    "no GPU granted": (
        {"grant": Grant(False, "refused", "Docker cannot give a container GPUs.", "Install it")},
        "gpu",
        "GPUs",
        "Install",
    ),
    "small disk": ({"free_gb": lambda folder: 6.0}, "disk", "will not fit", "docker system prune"),
    "small disk, image there": ({"free_gb": lambda folder: 3.0, "built": True}, "disk", "next rebuild", "prune"),
    "a file for a folder": (
        {"config": Config((folder(target="/workspace", kind="file"),))},
        "mounts",
        "A file stands",
        "mv '/home/me/x'",
    ),
    "a link to nothing": ({"config": Config((folder(kind="dangling", usable=False),))}, "mounts", "is gone", "rm"),
    "root's folder": ({"config": Config((folder(usable=False),))}, "mounts", "somebody else", "chown"),
    "nothing there": ({"config": Config((folder(kind="missing"),))}, "mounts", "only what exists", "mkdir -p"),
    "not to be made": (
        {"config": Config((folder(target="/workspace", kind="missing", usable=False),))},
        "mounts",
        "above it is not yours",
        "install -d",
    ),
    "a comma": ({"config": Config((folder(source="/home/me/a,b"),))}, "mounts", "VS Code cannot", "without a comma"),
    "no configuration": ({"config": Config(error="x is not valid JSON")}, "mounts", "cannot be read", "git diff"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_nothing_else_fails_beside_it(host, make_stack, findings_schema, name):
    seen, id, cause, remedy = FAULTS[name]
    findings = judged(host(**seen), make_stack())
    assert list(trouble(findings)) == [id]
    assert cause in findings[id].cause
    assert remedy in findings[id].remedy
    jsonschema.validate(to_json("doctor", "demo", list(findings.values())), findings_schema)


def test_the_card_may_need_a_newer_driver_than_the_base(host, make_stack):
    saw = host(cards=Answer(0, "NVIDIA GeForce RTX 5070 Ti, 565.77, 12.0\n"))
    driver = judged(saw, make_stack(driver="525.60.13"))["driver"]
    assert (driver.status, driver.expected) == ("FAIL", "570.86.16 or newer")
    assert "GeForce RTX 50 series" in driver.cause


def test_a_small_disk_that_already_holds_the_image_is_enough(host, make_stack):
    assert trouble(judged(host(free_gb=lambda folder: 6.0, built=True), make_stack())) == {}


@pytest.mark.parametrize(
    ("engine", "looked_at"),
    [
        ({}, ["/var/lib/docker"]),
        ({"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}, ["/var/lib/containerd"]),
        ({"OperatingSystem": "Docker Desktop"}, []),
    ],
)
def test_where_images_lie(host, make_stack, engine, looked_at):
    asked = []
    judged(host(engine=engine, free_gb=lambda folder: asked.append(folder)), make_stack())
    assert asked == looked_at


@pytest.mark.parametrize(
    ("end", "channel", "status", "remedy"),
    [
        ("2027-02-19", "current", "PASS", ""),
        ("2027-02-18", "current", "WARN", "copier update --trust"),
        ("2026-11-19", "pin", "WARN", "copier update --trust --data release=current"),
        (None, "current", "SKIP", ""),
    ],
)
def test_end_of_life(host, make_stack, end, channel, status, remedy):
    found = judged(host(), make_stack(end_of_life=end, channel=channel))["base"]
    assert (found.status, found.remedy) == (status, remedy)


def test_rows_of_nvidia_smi():
    assert cards("NVIDIA H100 80GB HBM3, SXM, 580.95.05, 9.0\nOrin (nvgpu), N/A, [N/A]\n\nnonsense\n") == [
        Card("NVIDIA H100 80GB HBM3, SXM", "580.95.05", "9.0"),
        Card("Orin (nvgpu)", "", ""),
    ]


def test_asking_a_command(tmp_path):
    assert ask(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == Answer(3, "out\n", "err\n")
    assert ask(["no-such-command-here"], 5).code is None
    late = ask(["sleep", "5"], 0.1)
    assert (late.code, late.late) == (None, True)


def test_mount_sources_as_they_are(monkeypatch, tmp_path, stack_file, generate):
    monkeypatch.setenv("HOME", str(tmp_path))
    with Host(load(stack_file()), generate(data_dir="/nowhere/data", credentials=["aws"])) as host:
        kinds = {folder.target: folder.kind for folder in host.config.folders}
    assert kinds["/workspace"] == "folder"
    assert kinds["/data"] == "missing"
    assert kinds["/home/dev/.aws"] == "missing"


def test_a_folder_that_is_not_mine(monkeypatch, tmp_path, stack_file, generate):
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with Host(load(stack_file()), generate()) as host:
        usable = {folder.target: folder.usable for folder in host.config.folders}
    assert usable == {"/workspace": False, "/home/dev/.cache/huggingface": False}


def test_nothing_reachable_is_told_in_seconds(monkeypatch, capsys, stack_file, tmp_path):
    """Every tool hangs: doctor waits for them together and not for each in turn."""
    from time import monotonic

    for name in ("docker", "nvidia-smi"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("gpukit.doctor.host.SLOW", 0.4)
    monkeypatch.setattr("gpukit.doctor.host.QUICK", 0.2)
    started = monotonic()
    assert doctor.main(["--stack", str(stack_file()), "--skip", "mounts"]) == 1
    assert monotonic() - started < 2
    assert "`docker` does not return" in capsys.readouterr().out


def test_today_is_a_date(stack_file):
    with Host(load(stack_file())) as host:
        assert isinstance(host.today, date)
        assert host.system in ("linux", "wsl", "macos", "windows")
        assert host.free_gb("/") > 0
        assert host.free_gb("/no/such/folder") is None
