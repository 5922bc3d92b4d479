"""cluster/job.yaml and what `submit` makes of it: strict validation, and what strict validation lets pass.

kubernetes-validate 1.37 passed `operator: Inn` and `podReplacementPolicy: Nope`, which a real API server (1.36)
refused, so the enums and limits that the file uses are here too.
"""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpukit.jobs import manifest
from tests.cluster.environments import environment
from tests.conftest import cannot
from tests.train.conftest import REASON

pytestmark = pytest.mark.cluster
VERSION = "1.37.0"
# Of types.go in k8s.io/api, batch/v1 and core/v1 (1.36, read 2026-11-26), by the key, and where that is not enough, the
# key above it.
ENUMS: dict[str, set[str]] = {
    "completionMode": {"Indexed"},  # NonIndexed has no JOB_COMPLETION_INDEX
    "podReplacementPolicy": {"Failed", "TerminatingOrFailed"},
    "rules.action": {"FailJob", "FailIndex", "Ignore", "Count"},
    "onExitCodes.operator": {"In", "NotIn"},
    "onPodConditions.status": {"True", "False", "Unknown"},
    "onPodConditions.type": {"DisruptionTarget", "PodScheduled", "Ready", "Initialized", "ContainersReady"},
    "restartPolicy": {"Never"},  # which podFailurePolicy requires
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    "seccompProfile.type": {"RuntimeDefault", "Localhost"},
    "tolerations.operator": {"Exists", "Equal", "Lt", "Gt"},
    "tolerations.effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "emptyDir.medium": {"", "Memory"},
    "clusterIP": {"None"},
    "drop": {"ALL"},  # as `restricted` requires
}
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTPE]|[KMGTPE]i)?")
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1123, also a host name
SERVICE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")  # RFC 1035
ANSWERS = [
    {"hardware": "h100"},
    {"hardware": "cpu", "data_dir": "/srv/data", "registry": "127.0.0.1:5000/team"},
    {"hardware": "rtx-50", "project_name": "3D", "registry": "ghcr.io/you"},
    {"hardware": "dgx-spark", "also_on": ["h100"], "project_name": "x" * 80, "data_dir": "~/a b/$c"},
]
ASKED: list[dict[str, Any]] = [
    {"nodes": None, "gpus": None, "queue": "", "hours": None, "variables": []},
    {"nodes": 12, "gpus": None, "queue": "team-queue", "hours": 0.01, "variables": ["HF_TOKEN"]},
]


def leaves(value: Any, *keys: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each value that is neither a mapping nor a list, with the keys on the way to it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, *keys, key)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, *keys)
    else:
        yield keys, value


def wrong(objects: list[dict[str, Any]]) -> list[str]:
    """What an API server would refuse although the schema does not."""
    found = []
    for keys, value in leaves(objects):
        for enum in (keys[-1], ".".join(keys[-2:])):
            if enum in ENUMS and str(value) not in ENUMS[enum]:
                found.append(f"{'.'.join(keys)} is {value}")
        if keys[-2:-1] in (("requests",), ("limits",)) and not QUANTITY.fullmatch(str(value)):
            found.append(f"{'.'.join(keys)} is no quantity: {value}")
        if keys[-1] == "sizeLimit" and not QUANTITY.fullmatch(str(value)):
            found.append(f"{'.'.join(keys)} is no quantity: {value}")
    by_kind = {each["kind"]: each for each in objects}
    job = by_kind["Job"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    last = f"{job['metadata']['name']}-{job['spec']['completions'] - 1}"
    if not LABEL.fullmatch(last):
        found.append(f"{last} is no host name")
    for name in (by_kind["Service"]["metadata"]["name"], pod["subdomain"]):
        if not SERVICE.fullmatch(name):
            found.append(f"{name} is no name of a Service")
    rules = job["spec"]["podFailurePolicy"]["rules"]
    codes = [code for rule in rules for code in rule.get("onExitCodes", {}).get("values", [])]
    if len(rules) > 20 or len(codes) != len(set(codes)) or not all(0 < code < 256 for code in codes):
        found.append(f"exit codes {codes}")
    if {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule} - {container["name"]}:
        found.append("a rule names another container")
    numbers = [
        job["spec"].get("activeDeadlineSeconds", 1),
        pod["terminationGracePeriodSeconds"],
        job["spec"]["completions"],
    ]
    if not all(isinstance(number, int) and number > 0 for number in numbers) or job["spec"]["backoffLimit"] < 0:
        found.append(f"numbers {numbers}")
    volumes = [volume["name"] for volume in pod["volumes"]]
    if not {mount["name"] for mount in container["volumeMounts"]} <= set(volumes):
        found.append("a mount without a volume")
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    ]
    if claims != [by_kind["PersistentVolumeClaim"]["metadata"]["name"]]:
        found.append(f"volume claims {claims}")
    known = {each["name"] for each in container["env"]} | {"JOB_COMPLETION_INDEX"}
    used = re.findall(r"(?<!\$)\$\((\w+)\)", " ".join([*container["command"], *container["args"]]))
    if set(used) - known:
        found.append(f"variables {used}")
    selector = by_kind["Service"]["spec"]["selector"]
    if not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items():
        found.append("the Service does not select the pods")
    if pod["subdomain"] != by_kind["Service"]["metadata"]["name"]:
        found.append("the subdomain is not the Service")
    return found + laxer_than_restricted(pod)


def laxer_than_restricted(pod: dict[str, Any]) -> list[str]:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted (2026-11-26)"""
    found = []
    if pod["securityContext"].get("runAsNonRoot") is not True or not pod["securityContext"].get("runAsUser"):
        found.append("runs as root")
    if "seccompProfile" not in pod["securityContext"]:
        found.append("no seccomp profile")
    for container in pod["containers"]:
        context = container["securityContext"]
        if context.get("allowPrivilegeEscalation") is not False or context["capabilities"].get("drop") != ["ALL"]:
            found.append("privileges")
    if {kind for volume in pod["volumes"] for kind in volume} - {"name", "persistentVolumeClaim", "emptyDir"}:
        found.append("volumes")
    return found + [f"host {key}" for key in pod if key.startswith("host") and key != "hostname"]


def submitted(objects: list[dict[str, Any]], asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects as `submit` sends them."""
    objects = copy.deepcopy(objects)
    (job,) = [each for each in objects if each["kind"] == "Job"]
    job["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "gpukit"}
    nodes, _ = manifest.sizes(job, asked["nodes"], asked["gpus"])
    name = manifest.job_name(job["metadata"]["name"], "x7f4z", nodes)
    package = manifest.container_of(job)["args"][1].removesuffix(".train")
    manifest.program(job, ["python", "-m", f"{package}.train", "--name", "$(a)", "--max-steps", "5"], package, name)
    manifest.adapt(job, name, asked["queue"], asked["hours"], asked["variables"])
    manifest.container_of(job)["image"] = f"{manifest.repository(job, {'GPUKIT_REGISTRY': 'ghcr.io/you'})}:1"
    return objects


@pytest.fixture(scope="module")
def files(generate: Callable[..., Path]) -> list[list[dict[str, Any]]]:
    folders = [generate(cluster=["kubernetes"], workflow="scripts", **answers) for answers in ANSWERS]
    return [list(yaml.safe_load_all((folder / "cluster/job.yaml").read_text(encoding="utf-8"))) for folder in folders]


def test_strict_validation(files: list[list[dict[str, Any]]], tmp_path: Path) -> None:
    try:
        python = environment(f"kubernetes-validate=={VERSION}")
    except (OSError, subprocess.SubprocessError) as error:
        cannot(f"pip could not bring kubernetes-validate: {error}")
    for number, objects in enumerate(files):
        for way, each in enumerate([objects, *(submitted(objects, asked) for asked in ASKED)]):
            (tmp_path / f"{number}-{way}.yaml").write_text(yaml.safe_dump_all(each))
    command = [python.with_name("kubernetes-validate"), "--strict", *sorted(tmp_path.glob("*.yaml"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and (done.stdout + done.stderr).count("passed") == 9 * len(files), done.stderr
    spoiled = tmp_path / "spoiled.yaml"
    spoiled.write_text(yaml.safe_dump_all(files[0]).replace("backoffLimit", "backofLimit"))
    assert subprocess.run([command[0], "--strict", spoiled], capture_output=True).returncode == 1


def test_what_strict_validation_lets_pass(files: list[list[dict[str, Any]]]) -> None:
    for objects in files:
        for each in [objects, *(submitted(objects, asked) for asked in ASKED)]:
            assert wrong(each) == []


@pytest.mark.parametrize(
    ("right", "mistake"),
    [
        ("operator: In\n", "operator: Inn\n"),
        ("podReplacementPolicy: Failed", "podReplacementPolicy: Nope"),
        ("action: FailJob", "action: EndJob"),
        ("- 143", "- 2"),
        ("restartPolicy: Never", "restartPolicy: OnFailure"),
        ("medium: Memory", "medium: memory"),
        ("- ALL", "- NET_RAW"),
        ("memory: 16Gi", "memory: 16GB"),
        ("ReadWriteMany", "ReadWriteAny"),
        ("runAsNonRoot: true", "runAsNonRoot: false"),
        ("effect: NoSchedule", "effect: NoScheduling"),
        ("JOB_NAME\n", "NAME_OF_JOB\n"),
        ("subdomain: my", "subdomain: your"),
    ],
)
def test_mistakes_are_found(files: list[list[dict[str, Any]]], right: str, mistake: str) -> None:
    text = yaml.safe_dump_all(files[0])
    assert right in text
    assert wrong(list(yaml.safe_load_all(text.replace(right, mistake, 1))))


ENDS = """\
import os, signal, sys
end = sys.argv[1]
os.kill(os.getpid(), signal.SIGKILL) if end == "killed" else sys.exit(int(end))
"""
EACH = """\
import sys
from gpukit.script.torchrun import main
start = ["--standalone", "--nproc-per-node=1"]
for end, name in (("0", "new"), ("1", "new"), ("1", "saved"), ("killed", "new"), ("143", "new")):
    print(main([*start, "ends.py", end, "--output-dir", "elsewhere", "--name", name, "--output-dir=."]))
print(main([*start, "ends.py", "1"]))
"""


def test_the_exit_status_says_how_it_ended(tmp_path: Path) -> None:
    """The rules of podFailurePolicy go by it: 2 before the first checkpoint, 143 if it was told to stop."""
    if REASON:
        cannot(REASON)
    (tmp_path / "ends.py").write_text(ENDS)
    (tmp_path / "saved/checkpoints/step-00000010").mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", EACH], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["0", "2", "1", "137", "143", "1"], done.stderr
