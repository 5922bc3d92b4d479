"""Faults that are really made, in containers of an engine: each is found, its cause named, and nothing else fails."""

import json
import os
import shutil
import subprocess

import jsonschema
import pytest

from gpukit.findings.finding import Finding
from gpukit.wheel import writer
from tests.conftest import ENGINE, cannot
from tests.gpukit.conftest import ROOT
from tests.gpukit.doctor.conftest import target
from tests.gpukit.test_verify import reports

IMAGE = "standin/pytorch:ngc"
# What needs no torch, and takes a moment.
SURROUNDINGS = "venv,protected,packages,user,mounts,caches,room,shm,limits,cpus,ram,jupyter"
HEALTHY = ("--shm-size=2g", "--ulimit=nofile=65536")
PASSWD = "root:x:0:0:root:/root:/bin/sh\ndev:x:1000:1000::/home/dev:/bin/sh\n"

pytestmark = pytest.mark.engine


def docker(*arguments, limit=120):
    return subprocess.run(
        ["docker", "-H", ENGINE, *arguments], capture_output=True, text=True, timeout=limit, check=False
    )


@pytest.fixture(scope="module")
def engine():
    if os.getuid() != 0 or shutil.which("docker") is None or docker("image", "inspect", IMAGE).returncode:
        cannot(f"needs root, an engine on {ENGINE}, and the base image {IMAGE}")


@pytest.fixture
def verify(engine, tmp_path, stack_data, findings_schema):
    """`verify("--user=1000", before="...", checks="shm")`: the findings of a run in a container with these options."""
    project = tmp_path / "project"
    hub = tmp_path / "hub"
    project.mkdir()
    hub.mkdir()
    (tmp_path / "passwd").write_text(PASSWD, encoding="utf-8")
    expected = {
        "torch": "2.13.0a0+standin.nv26.06",
        "python": "3.11",
        "cuda": None,
        "base": "ngc",
        "mounts": ["/workspace"],
    }
    expected["memory"] = {"ipc": "private", "ulimits": {"memlock": 32768}, "shm_size": "2gb", "fraction": None}
    expected["targets"] = {"cpu": {**stack_data()["targets"]["rtx-50"], "capability": None, "driver": None}}

    def run(
        *options,
        before="true",
        command="python -m gpukit",
        checks=SURROUNDINGS,
        uid=0,
        workspace="",
        environment=None,
        record="",
        **stack,
    ):
        (project / "stack.json").write_text(json.dumps(stack_data(**{**expected, **stack})), encoding="utf-8")
        (tmp_path / "protected.txt").write_text(record, encoding="utf-8")
        for folder in (project, hub):
            os.chown(folder, uid, uid)
        mounts = [
            f"--volume={project}:/workspace{workspace}",
            f"--volume={tmp_path}/passwd:/etc/passwd:ro",
            f"--volume={ROOT}/gpukit/src:/opt/gpukit:ro",
            f"--volume={tmp_path}/protected.txt:/etc/gpukit/protected.txt:ro",
        ]
        settings = {
            "PYTHONDONTWRITEBYTECODE": 1,
            "GPUKIT_PROJECT": "/workspace",
            "PYTHONPATH": "/opt/gpukit",
            **(environment or {}),
        }
        variables = [f"--env={name}={value}" for name, value in settings.items()]
        script = f"{before}; exec {command} verify --json --only {checks}"
        done = docker(
            *("run", "--rm", "--network=none", "--workdir=/workspace"),
            *(*mounts, *variables, *HEALTHY, *options, IMAGE, "sh", "-c", script),
            limit=200,
        )
        assert done.stdout, done.stderr
        printed = json.loads(done.stdout)
        jsonschema.validate(printed, findings_schema)
        assert done.returncode == printed["exit_code"]
        findings = [Finding(**finding) for finding in printed["findings"]]
        assert all(finding.completed for finding in findings)
        return {finding.id: finding for finding in findings}

    run.project = project
    run.hub = hub
    return run


def failed(findings):
    return {id for id, finding in findings.items() if finding.status in ("WARN", "FAIL")}


FULL = "head -c 4000000 /dev/zero > {0}/x 2> /dev/null"
TINY = {"ipc": "private", "ulimits": {}, "fraction": None, "shm_size": "2m"}
VENV = "python -m venv --without-pip --system-site-packages /opt/v"
FAKE = (
    "mkdir -p /opt/fake/torch && printf '%b' '{0}' > /opt/fake/torch/__init__.py "
    "&& export PYTHONPATH=/opt/fake:$PYTHONPATH"
)
REPLACED = 'class version: cuda = None\\n__version__ = "2.15.0"'
MISSING = 'raise ImportError("libcudart.so.13: cannot open shared object file")'
KILLS = (
    "mkdir /opt/site && printf '%b' 'import os, threading\\n"
    "kill = lambda: threading.Timer(0.05, os.kill, (os.getpid(), {0})).start()\\n"
    "os.register_at_fork(after_in_child=kill)\\n' > /opt/site/sitecustomize.py "
    "&& export PYTHONPATH=/opt/site:$PYTHONPATH"
)
# The build and its CUDA are two questions with one answer; the right cause comes first.
FOR_CPU = {"torch": "2.13.0a0+8145d63.nv26.06", "cuda": "13.3", "targets": {"h100": target("h100")}}
NO_COMPILER = "rm -f /usr/bin/*g++* /usr/bin/*c++* /usr/bin/*clang*"
PACKAGES = "--tmpfs=/usr/local/lib/python3.11/dist-packages"
# The check and its cause, options of the container, and what else differs.
FAULTS = [
    ("limits", "memlock-limit", ["--ulimit=memlock=16384"]),
    ("limits", "open-files-limit-low", ["--ulimit=nofile=256"]),
    ("ram", "memory-low", ["--memory=1g"]),
    ("shm", "shared-memory-small", ["--shm-size=64m"]),
    ("shm", "shared-memory-leftovers", ["--shm-size=2m"], {"before": FULL.format("/dev/shm"), "memory": TINY}),
    ("room", "disk-full", ["--tmpfs=/tmp:size=1m"], {"before": FULL.format("/tmp")}),
    ("room", "temporary-space-low", ["--tmpfs=/tmp:size=100m"]),
    ("room", "no-temporary-folder", ["--read-only", "--tmpfs=/root"]),
    ("caches", "cache-read-only", ["--volume={hub}:/root/.cache:ro"]),
    ("caches", "disk-full", ["--tmpfs=/root/.cache:size=1m"], {"before": FULL.format("/root/.cache")}),
    ("caches", "cache-owned-by-root", ["--user=1000:1000", "--tmpfs=/home/dev:mode=755,uid=0"], {"uid": 1000}),
    ("mounts", "read-only", [], {"workspace": ":ro"}),
    ("mounts", "folder-not-mounted", [], {"mounts": ["/workspace", "/home/dev/hub"]}),
    ("mounts", "folder-not-kept", [], {"mounts": ["/workspace", "/opt"]}),
    ("mounts", "data-writable", ["--volume={hub}:/data"], {"read_only": ["/data"]}),
    ("user", "runs-as-root", [], {"uid": 1000}),
    ("user", "user-other-uid", ["--user=1000:1000", "--tmpfs=/home/dev:uid=1000"], {"uid": 1234}),
    ("user", "no-such-user", ["--user=4321:4321", "--env=HOME=/tmp"], {"uid": 4321}),
    ("venv", "workspace-venv", [], {"before": "mkdir -p .venv && touch .venv/pyvenv.cfg"}),
    ("venv", "venv-active", [], {"before": VENV, "command": "/opt/v/bin/python -m gpukit"}),
    ("protected", "protected-changed", [], {"record": "numpy==1.0\n"}),
    ("torch", "torch-other-version", [], {"before": FAKE.format(REPLACED), "checks": "torch,cuda"}),
    ("torch", "cpu-torch", [], {**FOR_CPU, "checks": "torch,cuda"}),
    ("import", "torch-library-missing", [], {"before": FAKE.format(MISSING), "checks": "torch"}),
    ("import", "torch-import-crashes", [], {"before": FAKE.format("import os; os.abort()"), "checks": "torch"}),
    ("import", "torch-not-installed", [PACKAGES], {"checks": "torch"}),
    ("loader", "worker-killed", [], {"before": KILLS.format(9), "checks": "loader"}),
    ("loader", "shared-memory", [], {"before": KILLS.format(7), "checks": "loader"}),
    ("loader", "library-crashed", [], {"before": KILLS.format(11), "checks": "loader"}),
    ("compile", "no-cpp-compiler", [], {"before": NO_COMPILER, "checks": "compile"}),
    ("compile", "no-python-headers", [], {"before": "find / -xdev -name Python.h -delete", "checks": "compile"}),
]


@pytest.mark.parametrize(("id", "cause", "options", "changes"), [(*row, {})[:4] for row in FAULTS])
def test_a_fault_is_the_only_failure(verify, id, cause, options, changes):
    findings = verify(*(option.format(hub=verify.hub) for option in options), **changes)
    assert failed(findings) == ({"torch", "cuda"} if cause == "cpu-torch" else {id})
    assert reports(findings[id], cause)


def test_nothing_is_wrong_without_a_fault(verify):
    assert failed(verify()) == set()


def test_training_is_resumed_and_ranks_meet_on_the_cpu(verify):
    findings = verify(checks="training,collective,loader")
    assert failed(findings) == set()
    assert all(findings[id].status == "PASS" for id in ("training", "collective", "loader"))


def test_an_image_that_is_older_than_vendor(verify):
    """As the image has it, and with ./launch, which runs the wheel in vendor/."""
    wheel = writer.write(writer.for_project(ROOT / "gpukit"), verify.project / "vendor")
    version = wheel.name.split("-")[1]
    newer = f"vendor/gpukit-99.0-{wheel.name.split('-', 2)[2]}"
    install = f"pip install -q --no-index --no-deps --break-system-packages vendor/{wheel.name} >&2"
    installed = {"checks": "gpukit,import", "environment": {"PYTHONPATH": ""}}
    findings = verify(before=install, command="gpukit", **installed)
    assert {id: finding.status for id, finding in findings.items()} == {"gpukit": "PASS", "import": "PASS"}
    for command in ("gpukit", f"python {newer}/gpukit"):
        findings = verify(
            before=f"{install}; cp vendor/{wheel.name} {newer}; rm vendor/{wheel.name}", command=command, **installed
        )
        assert failed(findings) == {"gpukit"}
        assert reports(findings["gpukit"], "image-older-than-wheel")
        assert (findings["gpukit"].seen, findings["gpukit"].expected) == (version, "99.0")
        (verify.project / newer).rename(wheel)
