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
from tests.gpukit.test_verify import reports

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
        cannot(f"needs root, an engine on {ENGINE}, and the base image {IMAGE}")


@pytest.fixture
def verify(engine, tmp_path, stack_data, findings_schema):
    """`verify("--user=1000", before="...", checks="shm")`: the findings of a run in a container with these options."""
    project, hub = tmp_path / "project", tmp_path / "hub"
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

    run.project, run.hub = project, hub
    return run


def failed(findings):
    return {id for id, finding in findings.items() if finding.status in ("WARN", "FAIL")}


FULL = "head -c 4000000 /dev/zero > {0}/x 2> /dev/null"
FAULTS = {
    "low memlock": (("--ulimit=memlock=16384",), {}, "limits", "memlock-limit"),
    "few open files": (("--ulimit=nofile=256",), {}, "limits", "open-files-limit-low"),
    "little memory": (("--memory=1g",), {}, "ram", "memory-low"),
    "64 MB of shm": (("--shm-size=64m",), {}, "shm", "shared-memory-small"),
    "full shm": (("--shm-size=2m",), {"before": FULL.format("/dev/shm"), "memory": {
        "ipc": "private", "ulimits": {}, "fraction": None, "shm_size": "2m"}}, "shm", "shared-memory-leftovers"),
    "full tmpfs": (("--tmpfs=/tmp:size=1m",), {"before": FULL.format("/tmp")}, "room", "disk-full"),
    "a tight tmpfs": (("--tmpfs=/tmp:size=100m",), {}, "room", "temporary-space-low"),
    "read-only /tmp": (
        ("--read-only", "--tmpfs=/root"), {}, "room", "no-temporary-folder"
    ),
    "read-only cache": (("--volume={hub}:/root/.cache:ro",), {}, "caches", "cache-read-only"),
    "full cache": (
        ("--tmpfs=/root/.cache:size=1m",), {"before": FULL.format("/root/.cache")}, "caches", "disk-full"
    ),
    "root-owned cache": (
        ("--user=1000:1000", "--tmpfs=/home/dev:mode=755,uid=0"), {"uid": 1000}, "caches", "cache-owned-by-root"
    ),
    "read-only workspace": ((), {"workspace": ":ro"}, "mounts", "read-only"),
    "a mount that is missing": ((), {"mounts": ["/workspace", "/home/dev/hub"]}, "mounts", "folder-not-mounted"),
    "a folder of the container": ((), {"mounts": ["/workspace", "/opt"]}, "mounts", "folder-not-kept"),
    "data that is writable": (
        ("--volume={hub}:/data",), {"read_only": ["/data"]}, "read-only", "data-writable"
    ),
    "root in a user's workspace": ((), {"uid": 1000}, "user", "runs-as-root"),
    "somebody else": (
        ("--user=1000:1000", "--tmpfs=/home/dev:uid=1000"), {"uid": 1234}, "user", "user-other-uid"
    ),
    "a uid without a name": (("--user=4321:4321", "--env=HOME=/tmp"), {"uid": 4321}, "user", "no-such-user"),
    "a stale .venv": (
        (), {"before": "mkdir -p .venv && touch .venv/pyvenv.cfg"}, "venv", "workspace-venv"
    ),
    "an active virtual environment": (
        (),
        {
            "before": "python -m venv --without-pip --system-site-packages /opt/v",
            "command": "/opt/v/bin/python -m gpukit",
        },
        "venv",
        "venv-active",
    ),
    "a moved package": (
        (),
        {"record": "numpy==1.0\n"},
        "protected",
        "protected-changed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_surroundings(verify, name):
    options, changes, id, cause = FAULTS[name]
    findings = verify(*(option.format(hub=verify.hub) for option in options), **changes)
    assert failed(findings) == {id}
    assert reports(findings[id], cause)


def test_nothing_is_wrong_without_a_fault(verify):
    assert failed(verify()) == set()


FAKE = (
    "mkdir -p /opt/fake/torch && printf '%b' '{0}' > /opt/fake/torch/__init__.py "
    "&& export PYTHONPATH=/opt/fake:$PYTHONPATH"
)
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
    "torch replaced": ({"before": FAKE.format(REPLACED)}, {"torch"}, "torch", "torch-other-version"),
    "torch broken": ({"before": FAKE.format(MISSING)}, {"import"}, "import", "torch-library-missing"),
    "torch crashes": ({"before": FAKE.format("import os; os.abort()")}, {"import"}, "import", "torch-import-crashes"),
    "torch gone": (
        {"options": ("--tmpfs=/usr/local/lib/python3.11/dist-packages",)},
        {"import"},
        "import",
        "torch-not-installed",
    ),
    # The build and its CUDA are two questions with one answer; the right cause stands first.
    "torch for CPUs": (
        {"torch": "2.13.0a0+8145d63.nv26.06", "cuda": "13.3", "targets": {"it": HOPPER}},
        {"torch", "cuda"},
        "torch",
        "cpu-torch",
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_a_fault_of_torch(verify, name):
    changes, ids, first, cause = TORCH[name]
    options = changes.get("options", ())
    findings = verify(*options, checks="torch,cuda", **{key: changes[key] for key in changes if key != "options"})
    assert failed(findings) == ids
    assert next(id for id in findings if id in ids) == first
    assert reports(findings[first], cause)


LEAKS = "import os; raise ImportError(str(dict(os.environ)) + open('/root/.netrc').read())"


def test_secrets_in_library_output_are_hidden(verify):
    """In a container as well, where the environment holds what was handed in by name."""
    planted = {
        "HF_TOKEN": "hf_PlantedPlanted1234567",
        "WANDB_API_KEY": "planted-key-of-wandb",
        "MY_PASS": "hunter2hunter",
    }
    netrc = "echo machine x login me password planted-in-netrc > /root/.netrc"
    before = (
        f'{netrc}; mkdir -p /opt/fake && echo "{LEAKS}" > /opt/fake/torch.py && export PYTHONPATH=/opt/fake:$PYTHONPATH'
    )
    printed = str(verify(before=before, checks="import", environment=planted))
    assert "'MY_PASS': '***'" in printed
    assert [value for value in (*planted.values(), "planted-in-netrc") if value in printed] == []


KILLS = (
    "import os, threading\\nkill = lambda: threading.Timer(0.05, os.kill, (os.getpid(), {0})).start()\\n"
    "os.register_at_fork(after_in_child=kill)\\n"
)
WORK = {
    "a worker killed": (KILLS.format(9), "loader", "worker-killed"),
    "a worker with a bus error": (KILLS.format(7), "loader", "shared-memory"),
    "a worker that crashes": (KILLS.format(11), "loader", "library-crashed"),
}


@pytest.mark.parametrize("name", WORK)
def test_a_worker_of_a_data_loader_ends(verify, name):
    text, id, cause = WORK[name]
    customize = f"mkdir /opt/site && printf '%b' '{text}' > /opt/site/sitecustomize.py"
    before = f"{customize} && export PYTHONPATH=/opt/site:$PYTHONPATH"
    findings = verify(before=before, checks="loader")
    assert failed(findings) == {id}
    assert reports(findings[id], cause)


def test_no_compiler(verify):
    before = "rm -f /usr/bin/*g++* /usr/bin/*c++* /usr/bin/*clang*"
    findings = verify(before=before, checks="compile")
    assert failed(findings) == {"compile"}
    assert reports(findings["compile"], "no-cpp-compiler")


def test_no_headers(verify):
    findings = verify(before="find / -xdev -name Python.h -delete", checks="compile")
    assert failed(findings) == {"compile"}
    assert reports(findings["compile"], "no-python-headers")


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
