"""Faults that are really made, in containers of an engine: each is found, its cause named, and nothing else fails."""

import json
import os
import shutil
import subprocess

import jsonschema
import pytest

from tests.conftest import cannot
from tests.gpukit.conftest import ROOT

ENGINE = "unix:///var/run/docker.sock"
IMAGE = "standin/pytorch:ngc"
# What needs no torch, and takes a moment.
SURROUNDINGS = "venv,protected,packages,user,mounts,read-only,caches,room,shm,limits,cpus,ram,clock,credentials,jupyter"
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
        cannot(f"needs root, an engine on the default socket, and the base image {IMAGE}")


@pytest.fixture
def verify(engine, tmp_path, stack_data, findings_schema):
    """`verify("--user=1000", before="...", checks="shm")`: the findings of a run in a container with these options."""
    project, hub = tmp_path / "project", tmp_path / "hub"
    shutil.copytree(
        ROOT / "gpukit/src/gpukit", project / "gpukit", ignore=shutil.ignore_patterns("*.jinja", "__pycache__")
    )
    hub.mkdir()
    (tmp_path / "passwd").write_text(PASSWD, encoding="utf-8")
    told = {
        "torch": "2.13.0a0+standin.nv26.06",
        "python": "3.11",
        "cuda": None,
        "base": "ngc",
        "mounts": ["/workspace"],
    }
    told["memory"] = {"ipc": "private", "ulimits": {"memlock": 32768}, "shm_size": "2gb", "fraction": None}
    told["targets"] = {"cpu": {**stack_data()["targets"]["rtx-50"], "capability": None, "driver": None}}

    def run(
        *options, before="true", checks=SURROUNDINGS, python="python", uid=0, workspace="", environment=None, **stack
    ):
        (project / "stack.json").write_text(json.dumps(stack_data(**{**told, **stack})), encoding="utf-8")
        for folder in (project, hub):
            os.chown(folder, uid, uid)
        mounts = [f"--volume={project}:/workspace{workspace}", f"--volume={tmp_path}/passwd:/etc/passwd:ro"]
        variables = [
            f"--env={name}={value}" for name, value in {"PYTHONDONTWRITEBYTECODE": 1, **(environment or {})}.items()
        ]
        script = f"{before}; exec {python} -m gpukit.verify --json --only {checks}"
        done = docker(
            *("run", "--rm", "--network=none", "--workdir=/workspace"),
            *(*mounts, *variables, *HEALTHY, *options, IMAGE, "sh", "-c", script),
            limit=200,
        )
        assert done.stdout, done.stderr
        said = json.loads(done.stdout)
        jsonschema.validate(said, findings_schema)
        assert done.returncode == said["exit_code"]
        assert all(finding["looked"] for finding in said["findings"])
        return {finding["id"]: finding for finding in said["findings"]}

    run.project, run.hub = project, hub
    return run


def troubled(findings):
    return {id for id, finding in findings.items() if finding["status"] in ("WARN", "FAIL")}


FULL = "head -c 4000000 /dev/zero > {0}/x 2> /dev/null"
FAULTS = {
    "low memlock": (("--ulimit=memlock=16384",), {}, "limits", "may be locked"),
    "few open files": (("--ulimit=nofile=256",), {}, "limits", "Few files"),
    "little memory": (("--memory=1g",), {}, "ram", "Little memory"),
    "64 MB of shm": (("--shm-size=64m",), {}, "shm", "bus error"),
    "full shm": (("--shm-size=2m",), {"before": FULL.format("/dev/shm"), "memory": {
        "ipc": "private", "ulimits": {}, "fraction": None, "shm_size": "2m"}}, "shm", "full"),
    "full tmpfs": (("--tmpfs=/tmp:size=1m",), {"before": FULL.format("/tmp")}, "room", "full"),
    "a tight tmpfs": (("--tmpfs=/tmp:size=100m",), {}, "room", "Little room"),
    "read-only /tmp": (
        ("--read-only", "--tmpfs=/root"), {}, "room", "No folder for temporary files"
    ),
    "read-only cache": (("--volume={hub}:/root/.cache:ro",), {}, "caches", "read-only file system"),
    "full cache": (
        ("--tmpfs=/root/.cache:size=1m",), {"before": FULL.format("/root/.cache")}, "caches", "full"
    ),
    "root-owned cache": (
        ("--user=1000:1000", "--tmpfs=/home/dev:mode=755,uid=0"), {"uid": 1000}, "caches", "root's"
    ),
    "read-only workspace": ((), {"workspace": ":ro"}, "mounts", "read-only"),
    "a mount that is missing": ((), {"mounts": ["/workspace", "/home/dev/hub"]}, "mounts", "not mounted"),
    "a folder of the container": ((), {"mounts": ["/workspace", "/opt"]}, "mounts", "lost with the container"),
    "data that is writable": (
        ("--volume={hub}:/data",), {"read_only": ["/data"]}, "read-only", "lacks `readonly`"
    ),
    "root in a user's workspace": ((), {"uid": 1000}, "user", "root's on the host"),
    "somebody else": (
        ("--user=1000:1000", "--tmpfs=/home/dev:uid=1000"), {"uid": 1234}, "user", "somebody else's"
    ),
    "a uid without a name": (("--user=4321:4321", "--env=HOME=/tmp"), {"uid": 4321}, "user", "no entry in passwd"),
    "a stale .venv": (
        (), {"before": "mkdir -p .venv && touch .venv/pyvenv.cfg"}, "venv", "holds a virtual environment"
    ),
    "an active virtual environment": (
        (),
        {"before": "python -m venv --without-pip --system-site-packages /opt/v", "python": "/opt/v/bin/python"},
        "venv",
        "is active",
    ),
    "a moved package": (
        (),
        {"before": "mkdir -p /etc/gpukit && echo numpy==1.0 > /etc/gpukit/protected.txt"},
        "protected",
        "installed over",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_surroundings(verify, name):
    options, changes, id, cause = FAULTS[name]
    findings = verify(*(option.format(hub=verify.hub) for option in options), **changes)
    assert troubled(findings) == {id}
    assert cause in findings[id]["cause"]


def test_nothing_is_wrong_without_a_fault(verify):
    assert troubled(verify()) == set()


FAKE = "mkdir -p /opt/fake/torch && printf '%b' '{0}' > /opt/fake/torch/__init__.py && export PYTHONPATH=/opt/fake"
REPLACED = 'class version: cuda = None\\n__version__ = "2.15.0"'
MISSING = 'raise ImportError("libcudart.so.13: cannot open shared object file")'
HOPPER = {
    "label": "it",
    "capability": "9.0",
    "arch": "amd64",
    "driver": None,
    "unified_memory": False,
    "precisions": [],
}
TORCH = {
    "torch replaced": ({"before": FAKE.format(REPLACED)}, {"torch"}, "torch", "another torch"),
    "torch broken": ({"before": FAKE.format(MISSING)}, {"import"}, "import", "A library"),
    "torch crashes": ({"before": FAKE.format("import os; os.abort()")}, {"import"}, "import", "SIGABRT"),
    "torch gone": (
        {"options": ("--tmpfs=/usr/local/lib/python3.11/dist-packages",)},
        {"import"},
        "import",
        "not installed",
    ),
    # The build and its CUDA are two questions with one answer; the right cause stands first.
    "torch for CPUs": (
        {"torch": "2.13.0a0+8145d63.nv26.06", "cuda": "13.3", "targets": {"it": HOPPER}},
        {"torch", "cuda"},
        "torch",
        "build for CPUs",
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_a_fault_of_torch(verify, name):
    changes, ids, first, cause = TORCH[name]
    options = changes.get("options", ())
    findings = verify(*options, checks="torch,cuda", **{key: changes[key] for key in changes if key != "options"})
    assert troubled(findings) == ids
    assert next(id for id in findings if id in ids) == first
    assert cause in findings[first]["cause"]


LEAKS = "import os; raise ImportError(str(dict(os.environ)) + open('/root/.netrc').read())"


def test_what_a_library_repeats_is_hidden(verify):
    """In a container as well, where the environment holds what was handed in by name."""
    planted = {
        "HF_TOKEN": "hf_PlantedPlanted1234567",
        "WANDB_API_KEY": "planted-key-of-wandb",
        "MY_PASS": "hunter2hunter",
    }
    netrc = "echo machine x login me password planted-in-netrc > /root/.netrc"
    before = f'{netrc}; mkdir -p /opt/fake && echo "{LEAKS}" > /opt/fake/torch.py && export PYTHONPATH=/opt/fake'
    said = json.dumps(verify(before=before, checks="import", environment=planted))
    assert "'MY_PASS': '***'" in said
    assert [value for value in (*planted.values(), "planted-in-netrc") if value in said] == []


KILLS = (
    "import os, threading\\nkill = lambda: threading.Timer(0.05, os.kill, (os.getpid(), {0})).start()\\n"
    "os.register_at_fork(after_in_child=kill)\\n"
)
WORK = {
    "a worker killed": (KILLS.format(9), "loader", "ended from outside"),
    "a worker with a bus error": (KILLS.format(7), "loader", "Shared memory is full"),
    "a worker that crashes": (KILLS.format(11), "loader", "crashed"),
}


@pytest.mark.parametrize("name", WORK)
def test_a_worker_of_a_data_loader_ends(verify, name):
    text, id, cause = WORK[name]
    before = f"mkdir /opt/site && printf '%b' '{text}' > /opt/site/sitecustomize.py && export PYTHONPATH=/opt/site"
    findings = verify(before=before, checks="loader")
    assert troubled(findings) == {id}
    assert cause in findings[id]["cause"]


def test_no_compiler(verify):
    before = "rm -f /usr/bin/*g++* /usr/bin/*c++* /usr/bin/*clang*"
    findings = verify(before=before, checks="compile")
    assert troubled(findings) == {"compile"}
    assert findings["compile"]["cause"] == "There is no C++ compiler."


def test_no_headers(verify):
    findings = verify(before="find / -xdev -name Python.h -delete", checks="compile")
    assert troubled(findings) == {"compile"}
    assert findings["compile"]["cause"] == "Python's headers are missing."


def test_training_is_resumed_and_ranks_meet_on_the_cpu(verify):
    findings = verify(checks="training,collective,loader")
    assert troubled(findings) == set()
    assert all(findings[id]["status"] == "PASS" for id in ("training", "collective", "loader"))
