"""Doctor's judgement on what tools are known to say, and its probes on this machine."""

import json
import os

import jsonschema
import pytest

from gpukit.doctor import main as doctor
from gpukit.doctor.host import Config, Container, Folder, Host, Merge, Result, Toolkit, containers
from gpukit.findings.checks import run
from gpukit.findings.finding import to_json
from gpukit.host import process as host
from gpukit.host.cards import Card, data, hardware
from gpukit.host.refusals import explain
from gpukit.host.stacks import update_answers
from gpukit.project.messages import RefusalError
from gpukit.project.stack import load


def judged(probes, stack):
    return {finding.id: finding for finding in run(doctor.CHECKS, probes, stack)}


def problems(findings):
    """The statuses of findings that are not as they should be; UNKNOWN: something did not answer in time."""
    found = {id: finding.status if finding.completed else "UNKNOWN" for id, finding in findings.items()}
    return {id: status for id, status in found.items() if status in ("FAIL", "WARN", "UNKNOWN")}


def folder(**changes):
    seen = {"source": "/srv/x", "target": "/home/dev/x", "read_only": False, "kind": "folder", "usable": True}
    return Folder(**{**seen, **changes})


def mount(**changes):
    return {"config": Config((folder(**changes),))}


def smi(code, text, **more):
    return {"cards": Result(code, text), **more}


def on_podman(release="5.4.2", **changes):
    """A machine with rootless Podman instead of Docker."""
    info = {
        "host": {"security": {"rootless": True}, "cgroupManager": "systemd"},
        "store": {"graphRoot": "/home/me/.local/share/containers/storage"},
        "version": {"Version": release},
    }
    seen = {"client": Result(0, f"podman version {release}"), "info": Result(0, json.dumps(info)), "endpoint": ""}
    return {**seen, "engine_name": "podman", "special_places": ("podman",), **changes}


def refused_by_podman(**changes):
    message = "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
    return on_podman(refusal=RefusalError(message, kind="gpu", id="cdi-unresolved", output=message), **changes)


HEALTHY = {
    "no numbers from nvidia-smi": smi(0, "Orin (nvgpu), [N/A], [N/A]\n"),
    "mounts to be made": {
        "config": Config((folder(target="/home/dev/.cache/huggingface", kind="missing", usable=True),))
    },
    "a mounted file": mount(target="/home/dev/.gitconfig", kind="file"),
    "a container that runs": {"inside": Result(0, "GPU 0: NVIDIA GeForce RTX 5070 Ti (UUID: GPU-1)\n")},
    "no systemd": {"fabric_manager": "", "pci": None},
    "rootless Podman": on_podman(),
    "Podman of Ubuntu 24.04": on_podman("4.9.3", toolkit=Toolkit("1.19.0", True)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_machine(host, make_stack, name):
    findings = judged(host(**HEALTHY[name]), make_stack())
    assert problems(findings) == {}


def full_cache(folder):
    return 3.0 if folder.endswith("uv") else 200.0


ASLEEP = RefusalError("The GPU is asleep.", kind="gpu", output="it sleeps")
LATE = Result(None, err="no answer in 6 s", timed_out=True)
NO_HANDLE = "Unable to determine the device handle for GPU 0000:01:00.0:"
CREDENTIALS = 'error getting credentials - err: exec: "docker-credential-desktop"'
NO_DRIVER = {"cards": Result(None), "pci": None, "module": ""}
LDCACHE = "nvidia-container-cli: ldcache error: process /sbin/ldconfig.real failed with error code: 1"
# What is seen -> the one check that reports it, the id of its cause, and a command in its remedy. Recorded ones are in
# faults/.
FAULTS = [
    ("client", "docker-client-hangs", {"client": LATE}, "docker --version"),
    ("client", "podman-not-installed", on_podman(client=Result(None)), "podman"),
    ("engine", "podman-too-old", on_podman("4.2.0", toolkit=Toolkit("1.19.0", True))),
    ("engine", "podman-older-than-cdi", on_podman("4.9.3"), "sudo apt-get install"),
    ("engine", "podman-ignores-gpus", on_podman("4.9.3", toolkit=Toolkit("1.19.0", True), for_podman=True), "./launch"),
    ("engine", "docker-hangs", on_podman(info=LATE), "podman system"),
    ("engine", "podman-ids", on_podman(info=Result(1, "", "Error: cannot find UID/GID for user me: no subuid ranges"))),
    ("gpu", "cdi-unreadable", refused_by_podman(), "sudo chmod 644"),
    ("gpu", "cdi-not-refreshed", refused_by_podman(toolkit=Toolkit("1.20.0", True)), "sudo systemctl enable"),
    ("gpu", "toolkit-not-installed", refused_by_podman(toolkit=Toolkit()), "./launch setup"),
    ("engine", "docker-unknown-error", {"info": Result(1, "", "something new")}, "docker info"),
    ("driver", "nvidia-smi-fails", {"cards": Result(1, "", "?")}, "nvidia-smi"),
    ("mounts", "engine-on-other-machine", {"endpoint": "ssh://me@lab"}),
    ("mounts", "mount-source-is-file", mount(target="/workspace", kind="file"), "mv /srv/x /srv/x.old"),
    ("mounts", "mount-source-dangling", mount(kind="dangling", usable=False), "rm /srv/x"),
    ("mounts", "mount-source-not-yours", mount(usable=False), "sudo chown"),
    ("mounts", "mount-source-not-readable", mount(usable=False, read_only=True), "ls -ld /srv/x"),
    ("mounts", "mount-source-missing", mount(kind="missing"), "mkdir -p"),
    ("mounts", "network-drive", mount(kind="silent", usable=False)),
    (
        "mounts",
        "mount-source-not-creatable",
        mount(target="/workspace", kind="missing", usable=False),
        "sudo install -d",
    ),
    ("mounts", "comma-in-path", mount(source="/srv/a,b")),
    ("mounts", "devcontainer-unreadable", {"config": Config(error="x is not valid JSON")}, "git diff .devcontainer"),
    ("merge", "conflict-markers", {"merge": Merge(("Dockerfile", "compose.yaml"))}, "git add Dockerfile compose.yaml"),
    ("merge", "update-rejected", {"merge": Merge(rejected=("Dockerfile.rej",))}, "rm Dockerfile.rej"),
    ("client", "docker-client-broken", {"client": Result(1, "", "Segmentation fault")}),
    ("driver", "mac-without-gpu", {"system": "macos", **NO_DRIVER}, "./launch --cpu"),
    ("driver", "driver-not-found", NO_DRIVER),
    ("driver", "driver-stuck", smi(9, "Failed to initialize NVML: Unknown Error\n"), "sudo reboot"),
    ("driver", "driver-half-installed", smi(12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")),
    ("engine", "credential-helper", {"info": Result(1, "", CREDENTIALS)}),
    ("gpu", "docker-hangs", {"refusal": RefusalError("?", id="docker-hangs")}, "sudo systemctl restart docker"),
    ("disk", "environment-does-not-fit", {"native": True, "free_gb": full_cache}, "du -xh"),
    ("running", "gpu-lost", {"inside": Result(9, "", f"{NO_HANDLE} GPU is lost.  Reboot the system\n")}),
    ("gpu", "wrong-architecture", {"refusal": explain(LDCACHE, "It cannot be asked")}),
    ("gpu", "gpu-refused", {"refusal": ASLEEP}),
]


@pytest.mark.parametrize(("id", "cause", "seen", "commands"), [(*row[:3], row[3:]) for row in FAULTS])
def test_fault_is_the_only_failure(host, make_stack, findings_schema, id, cause, seen, commands):
    findings = judged(host(**seen), make_stack())
    assert list(problems(findings)) == [id]
    assert findings[id].cause_id == cause
    assert all(f"`{each}" in findings[id].remedy for each in commands)
    jsonschema.validate(to_json("doctor", "demo", list(findings.values())), findings_schema)


def test_native_needs_no_engine_and_its_own_disk(host, make_stack):
    """Without Docker, and with an image that needs a newer driver than this machine has."""
    nothing = Result(None, err="not found")
    probes = host(native=True, client=nothing, info=nothing, server=nothing, endpoint="")
    stack = make_stack(driver="999")
    findings = {finding.id: finding for finding in run(doctor.adapted(doctor.CHECKS, native=True), probes, stack)}
    assert problems(findings) == {}
    assert {id for id, finding in findings.items() if finding.cause_id == "not-used-natively"} == {
        each.id for each in doctor.CHECKS if each.container
    }
    assert [findings[id].status for id in ("disk", "driver", "caches")] == ["PASS"] * 3
    assert "/home/me" in findings["disk"].seen


def test_other_refusals_show_the_message_of_the_engine(host, make_stack):
    found = judged(host(refusal=ASLEEP), make_stack())["gpu"]
    assert (found.seen, found.cause) == ("it sleeps", "The GPU is asleep.")


def test_hanging_driver_is_not_waited_for(host, make_stack):
    """Not for the engine's answer either, nor for one in a container."""
    findings = judged(host(cards=LATE, refusal=None), make_stack())
    assert problems(findings) == {"driver": "UNKNOWN"}
    assert {findings[id].status for id in ("gpu", "running")} == {"SKIP"}


def test_a_small_disk_that_already_holds_the_image_is_enough(host, make_stack):
    assert judged(host(free_gb=lambda folder: 6.0, built=True), make_stack())["disk"].status == "PASS"


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
    assert [folder for folder in asked if folder.startswith("/var")] == looked_at


@pytest.mark.parametrize(
    ("facts", "status", "said"),
    [
        ({"end_of_life": "2027-02-19"}, "PASS", "2027-02-19"),
        ({"end_of_life": "2027-02-18"}, "WARN", "`./launch update`"),
        ({"end_of_life": "2026-11-19", "channel": "pin"}, "WARN", "`./launch update --answers release=current`"),
        ({"end_of_life": None}, "SKIP", "wheel 2.14.1-cu130"),
        ({"base": "ngc", "release": "26.07"}, "SKIP", "NVIDIA supports a release until the next one"),
        ({"base": "ngc", "release": "26.03"}, "SKIP", "ngc 26.03, superseded by a newer release"),
        ({"base": "cuda", "release": "12.9.2-torch-2.14.1"}, "SKIP", "announced no date for this branch"),
        ({"release": "2.11.0-cu130", "end_of_life": "2028-08-09"}, "PASS", "2028-08-09, superseded by a newer release"),
    ],
)
def test_the_end_of_a_base(host, make_stack, facts, status, said):
    found = judged(host(), make_stack(**facts))["base"]
    assert found.status == status and said in str(found)


def test_where_nvidia_smi_is(monkeypatch, tmp_path):
    """In WSL it lies beside Windows' driver, and a PATH without that folder is common."""
    beside = tmp_path / "wsl/nvidia-smi"
    beside.parent.mkdir()
    beside.write_text("#!/bin/sh\n", encoding="utf-8")
    beside.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.nvidia_smi() == "nvidia-smi"
    monkeypatch.setattr(host, "WSL_PATHS", (str(beside),))
    assert host.nvidia_smi() == str(beside)
    monkeypatch.setenv("PATH", str(beside.parent))
    assert host.nvidia_smi() == str(beside)


def test_mount_sources_as_they_are(monkeypatch, tmp_path, stack_file, generate):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # somebody else's
    host = Host(load(stack_file()), generate(data_dir="/nowhere/data", credentials=["aws"]))
    found = {folder.target: (folder.kind, folder.usable) for folder in host.config.folders}
    assert found["/workspace"] == ("folder", False)
    assert found["/data"] == found["/home/dev/.aws"] == ("missing", False)


def test_nothing_reachable_is_reported(monkeypatch, capsys, stack_file, tmp_path):
    """Every tool hangs: doctor waits for them together and not for each in turn."""
    for name in ("docker", "nvidia-smi"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("gpukit.doctor.host.LONG_TIMEOUT", 0.4)
    monkeypatch.setattr("gpukit.doctor.host.SHORT_TIMEOUT", 0.2)
    monkeypatch.setattr("gpukit.doctor.host.ENGINE_TIMEOUT", 0.4)
    assert doctor.main(["--stack", str(stack_file()), "--skip", "mounts"]) == 2
    assert "UNKNOWN: could not check client, driver." in capsys.readouterr().out


def test_ids_are_the_catalogues(catalogue):
    """Every card of the catalogue is found again by what nvidia-smi says of it."""
    entries = catalogue["hardware"]["hardware"]
    assert data("cards").keys() == entries.keys()
    for id, entry in entries.items():
        for each in entry["cards"]:
            name = (
                each["name"]
                if id == "cpu"
                else f"NVIDIA {'GeForce ' if 'GeForce' in entry['label'] else ''}{each['name']}"
            )
            card = Card(name, "", entry["capability"] or "")
            assert hardware(card, entry["arch"]) == ("" if id == "cpu" else id), each["name"]


def test_the_command_keeps_the_targets_there_are(make_stack, stack_data, cpu_only):
    target = stack_data()["targets"]["rtx-50"]
    several = make_stack(targets={"rtx-50": target, "h100": target})
    assert update_answers(several, "rtx-40") == "--answers 'also_on=[h100, rtx-40]'"
    assert update_answers(make_stack(**cpu_only), "rtx-40") == "--answers hardware=rtx-40"
    assert update_answers(make_stack(), "gtx-10") == "--answers hardware=gtx-10", "no build is for both"
    assert update_answers(make_stack(), "v100") == "--answers 'also_on=[v100]'"


# Each is one line, as VS Code shows it.
EARLY = {
    "a comma": (mount(source="/srv/a,b"), "Mount sources: /srv/a,b."),
    "far away": ({"endpoint": "ssh://me@lab"}, "Mount sources: an engine on another machine."),
    "no engine": ({"info": Result(1, "", "Cannot connect to the Docker daemon")}, "Docker engine: unix:///var/run/"),
    "a full disk": ({"free_gb": lambda folder: 1.0}, "Disk space: 1 GB free in /var/lib/docker."),
    "no card": ({"cards": Result(None), "module": "", "pci": ()}, "NVIDIA driver: no nvidia-smi, no NVIDIA GPU on"),
    "warnings": ({"merge": Merge(rejected=("Dockerfile.rej",))}, ""),
}


@pytest.mark.parametrize("name", EARLY)
def test_early_reports(monkeypatch, capsys, host, stack_file, name):
    """What would stop the container, also what only VS Code cannot do; nothing else, and never with a failure."""
    seen, line = EARLY[name]
    monkeypatch.setattr("gpukit.doctor.main.Host", lambda stack, cpu: host(**seen))
    monkeypatch.setenv("GPUKIT_PROJECT", str(stack_file().parent))
    assert doctor.early() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (1 if line else 0)
    assert not line or lines[0].startswith(f"doctor: {line}")


def test_containers_as_docker_describes_them():
    described = [
        {
            "Name": "/demo-dev",
            "State": {"Running": True},
            "HostConfig": {"DeviceRequests": [{"Capabilities": [["gpu"]]}]},
            "Config": {"Env": None},
        }
    ]
    assert list(containers(json.dumps(described))) == [Container("demo-dev", running=True, gpu=True)]
    assert list(containers("no JSON")) == []


def test_messages_of_the_engine_hide_names(host, make_stack, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    for endpoint in ("ssh://ada@lab.example.com", "tcp://lab.example.com:2376", "unix:///home/ada/docker.sock"):
        words = f"error during connect: {endpoint}: dial lab.example.com: no route, see /home/ada/.docker/x"
        for answer in (Result(1, "", words), LATE):
            findings = run(doctor.CHECKS, host(endpoint=endpoint, info=answer), make_stack())
            output = json.dumps([finding.__dict__ for finding in findings])
            assert "ada" not in output
            assert "lab.example.com" not in output or endpoint.startswith("unix")
