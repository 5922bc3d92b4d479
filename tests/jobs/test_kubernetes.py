"""Jobs on Kubernetes, with a kubectl that records what it is asked. tests/engine has the image and the pods."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpukit.cli.main import main
from gpukit.errors.diagnose import diagnose
from gpukit.jobs import kubernetes, manifest, records
from gpukit.jobs.kubectl import explained
from gpukit.jobs.table import FINAL
from gpukit.project.messages import RefusalError
from tests.jobs.kubectl import Kubectl

RECORDED = json.loads(Path(__file__).with_name("kubernetes.json").read_text(encoding="utf-8"))
CASES = {name: case for name, case in RECORDED.items() if name != "origin"}
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # a host name, RFC 1123
IMAGE = "ghcr.io/you/my-gpu-project:0123456789ab"
TRAIN = ["python", "-m", "my_gpu_project.train"]


def job_of(case: dict[str, Any]) -> dict[str, Any]:
    """A job before it was looked at, submitted an hour ago."""
    job = records.new("kx7f4z", [*TRAIN, "--name=a"], name=case["job"], queue=case["queue"], nodes=2)
    return {**job, "submitted": job["submitted"] - 3600}


@pytest.mark.parametrize("name", CASES)
def test_the_state_of_a_job(name: str) -> None:
    case = CASES[name]
    job = job_of(case)
    kubernetes.refresh(job, case["there"], case["pods"], case["events"])
    assert [job["state"], job["status"], job["starts"]] == case["expected"]
    assert (job["ended"] is not None) == (job["state"] in FINAL)
    assert bool(job["started"]) == bool(job["starts"]) and job["ran"] >= 0
    known = [found.cause.id for found in diagnose(job["note"], None, ("cluster",)).causes]
    assert known == ([case["cause"]] if case["cause"] else [])


def test_a_job_that_is_not_there() -> None:
    """It was canceled, or another command is creating it just now."""
    job = job_of(CASES["gone"])
    canceled = {**job, "wanted": "canceled"}
    created = {**job, "submitted": job["submitted"] + 3600}
    for each in (canceled, created):
        kubernetes.refresh(each, [], [], [])
    assert [canceled["state"], canceled["note"], created["state"]] == ["canceled", "", "queued"]


# Names


def test_names_of_all_lengths() -> None:
    """The same names with up to 1,000 pods were accepted by Kubernetes 1.36.2 (2026-11-26)."""
    for length in range(1, 64):
        for nodes in (1, 10, 11, 1000):
            for stem in ("x" * length, ("a-" * 32)[:length]):
                names = {manifest.job_name(stem, suffix, nodes) for suffix in ("x7f4z", "b2c4d")}
                assert len(names) == 2
                assert all(LABEL.fullmatch(f"{name}-{nodes - 1}") for name in names), names
                assert length > 50 or all(name.startswith(stem.rstrip("-")) for name in names)


@pytest.mark.parametrize(
    ("quantity", "to", "of", "expected"),
    [
        ("4", 8, 1, "32"),
        ("16Gi", 2, 1, "32Gi"),
        ("500m", 4, 2, "1000m"),
        ("64Gi", 1, 8, "8Gi"),
        ("3", 1, 2, "3"),  # not a whole number
        ("0.5", 2, 1, "0.5"),
        ("1e3", 2, 1, "1e3"),
    ],
)
def test_cpus_and_memory_grow_with_the_gpus(quantity: str, to: int, of: int, expected: str) -> None:
    assert manifest.scaled(quantity, to, of) == expected


# The commands


@pytest.fixture
def project(generate: Callable[..., Path], tmp_path: Path) -> Path:
    answers = {"hardware": "h100", "workflow": "scripts", "cluster": ["kubernetes"], "registry": "ghcr.io/you"}
    source = generate(**answers)
    for name in ("cluster/job.yaml", "stack.json", ".devcontainer/devcontainer.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((source / name).read_bytes())
    return tmp_path


@pytest.fixture
def kubectl(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """A cluster that takes everything, and an image that is already there."""
    found = Kubectl(tmp_path_factory.mktemp("kubectl"))
    found.accept(project / "cluster/job.yaml")
    monkeypatch.setenv("PATH", f"{found.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(project)
    monkeypatch.delenv("GPUKIT_REGISTRY", raising=False)
    monkeypatch.setattr(manifest, "build", lambda root, code, name: (f"{name}:0123456789ab", "amd64"))
    return found


def submit(*words: str, command: tuple[str, ...] = (*TRAIN, "--max-steps", "5")) -> int:
    return main(["submit", "--on", "kubernetes", *words, "--", *command])


def jobs_of(kubectl: Kubectl) -> list[dict[str, Any]]:
    return [each for each in kubectl.created() if each["kind"] == "Job"]


def test_what_is_sent(project: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--nodes", "2", "--gpus", "8", "--queue", "team", "--max-hours", "1.5", "-e", "HF_TOKEN")
    assert submit(*options, command=(*TRAIN, "--note", "$(date)", "--name", "a")) == 0
    id = capsys.readouterr().out.strip()
    assert [each["kind"] for each in kubectl.created()] == ["Service", "PersistentVolumeClaim", "Job"]
    (job,) = jobs_of(kubectl)
    assert job["metadata"]["name"] == f"my-gpu-project-{id[1:]}"
    assert job["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gpukit", "kueue.x-k8s.io/queue-name": "team"}
    spec = job["spec"]
    assert [spec[key] for key in ("completions", "parallelism", "suspend", "activeDeadlineSeconds")] == [
        2,
        2,
        True,
        5400,
    ]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert container["image"] == IMAGE and pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "--nnodes=2" in container["command"]
    assert container["args"][:2] == ["-m", "my_gpu_project.train"]
    assert container["args"][-4:] == ["--note", "$$(date)", "--name", "a"]
    limits = container["resources"]["limits"]
    requests = container["resources"]["requests"]
    assert limits["nvidia.com/gpu"] == 8 and requests == {"cpu": "32", "memory": "128Gi"}
    assert {"name": "my-gpu-project", "key": "HF_TOKEN"} in [
        each.get("valueFrom", {}).get("secretKeyRef") for each in container["env"]
    ]
    creations = ["--dry-run=server" in words for words, _ in kubectl.calls() if "create" in words]
    assert creations == [True, False, False], "what is refused is known before the image is built"


def test_the_service_and_the_volume_stay(project: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    assert submit() == 0
    there = [each for each in kubectl.created() if each["kind"] != "Job"]
    kubectl.answer("get --ignore-not-found", {"kind": "List", "items": there})
    assert submit() == 0
    first, second = jobs_of(kubectl)
    assert len(kubectl.created()) == 4 and first["metadata"]["name"] != second["metadata"]["name"]
    ids = capsys.readouterr().out.split()
    assert sorted(path.stem for path in kubernetes.folder(project).iterdir()) == sorted(ids)


def test_two_submissions_side_by_side(project: Path, kubectl: Kubectl) -> None:
    """Both find no Service; the one that comes second may still use it."""
    recorded = (
        'Error from server (AlreadyExists): error when creating "STDIN": services "my-gpu-project" already exists'
    )
    kubectl.answer("create --output=json --filename=-", "", errors=recorded)
    kubectl.answer("create --output=json --filename=- --dry-run", "as given")
    assert submit() == 0 and len(jobs_of(kubectl)) == 1


def test_a_refusal_leaves_nothing(project: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    forbidden = (
        'Error from server (Forbidden): error when creating "STDIN": jobs.batch is forbidden: User "viewer" cannot '
        'create resource "jobs" in API group "batch" in the namespace "default"'
    )
    kubectl.answer("create", "", errors=forbidden)
    assert submit() == 1
    assert kubectl.created() == [] and not list(kubernetes.folder(project).glob("*"))
    assert explained(forbidden) in capsys.readouterr().err
    kubectl.answer("create --output=json --filename=- --dry-run", "as given")  # and then it is refused
    assert submit() == 1
    assert list(kubernetes.folder(project).glob("*")) == []


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["--nodes", "0"], TRAIN),
        (["--gpus", "-1"], TRAIN),
        (["--after", "kx7f4z"], TRAIN),
        (["--priority", "1"], TRAIN),
        ([], ["sh", "-c", "true"]),
        ([], ["torchrun", "-m", "my_gpu_project.train"]),
        ([], ["python"]),
        ([], [*TRAIN, "--no-resume"]),
        (["-e", "HF_TOKEN=value"], TRAIN),
    ],
)
def test_what_kubernetes_does_not_get(
    project: Path, kubectl: Kubectl, words: list[str], command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(*words, command=tuple(command)) == 1
    assert kubectl.created() == [] and capsys.readouterr().err.count("\n") == 1


def test_the_registry(project: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    file = project / "cluster/job.yaml"
    file.write_text(file.read_text().replace("ghcr.io/you/", manifest.NO_REGISTRY))
    kubectl.accept(file)
    assert submit() == 1
    assert "GPUKIT_REGISTRY=" in capsys.readouterr().err and kubectl.created() == []
    for registry in ("localhost:5001", "registry.example.com/a/team/"):
        monkeypatch.setenv("GPUKIT_REGISTRY", registry)
        assert submit() == 0
        image = jobs_of(kubectl)[-1]["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image == f"{registry.rstrip('/')}/my-gpu-project:0123456789ab"
    monkeypatch.setenv("GPUKIT_REGISTRY", "https://ghcr.io/you")
    assert submit() == 1


def test_a_file_that_cannot_be_used(project: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    for spoiled in ("", '{"kind": "Job", "metadata": {"name": "a"}, "spec": {}}'):
        kubectl.answer("label --local", spoiled)
        assert submit() == 1
    kubectl.answer(
        "label --local", "", errors="error: error parsing cluster/job.yaml: error converting YAML to JSON: yaml"
    )
    assert submit() == 1
    (project / "cluster/job.yaml").unlink()
    assert submit() == 1
    assert "cluster='[kubernetes]'" in capsys.readouterr().err


def test_jobs(project: Path, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    """List, show, logs, cancel, and retry of one job, which runs, is canceled, and is submitted again."""
    assert submit("--nodes", "2") == 0
    id = capsys.readouterr().out.strip()
    name = f"my-gpu-project-{id[1:]}"

    def cluster(case: str) -> None:
        text = json.dumps(CASES[case]).replace(CASES[case]["job"], name)
        recorded = json.loads(text)
        kubectl.answer("get job", {"kind": "List", "items": recorded["there"]} if recorded["there"] else "")
        kubectl.answer("get pod", {"kind": "List", "items": recorded["pods"]})
        kubectl.answer("get event", {"kind": "List", "items": recorded["events"]})

    for case, words in (("quota is exhausted", "exceeded quota"), ("image cannot be pulled", "ImagePullBackOff")):
        cluster(case)
        assert main(["jobs"]) == 0
        assert words in capsys.readouterr().out
    assert main(["jobs", "logs", id]) == 1, "nothing has started"

    cluster("told to stop, and replaced")
    stamps = [f"2026-11-26T03:45:16.{at:09}Z" for at in range(3)]
    kubectl.answer("logs", f"{stamps[0]} step 1\n{stamps[1]} \x1b[31mstep 2\x1b[0m")
    assert main(["jobs", "logs", id]) == 0
    shown = capsys.readouterr()
    assert shown.out == "step 1\nstep 2\n" * 2, "two pods started, and a third one waits"

    cluster("complete")
    assert main(["jobs", "logs", "-f", id]) == 0
    assert capsys.readouterr().out.count("step 1") == 3
    lines: list[bytes] = []
    for _ in range(2):  # the connection was lost after the second line
        kubectl.answer("logs", "\n".join([*(f"{stamp} line" for stamp in stamps), "no log"]))
        assert kubernetes.print_log([], "pod", True, stamps[1], lines.append) == stamps[2]
    assert lines == [b"line\n", b"no log\n"] * 2
    assert main(["jobs", "show", id]) == 0
    assert name in capsys.readouterr().out
    asked = len(kubectl.calls())
    assert main(["jobs"]) == 0 and len(kubectl.calls()) == asked, "of a job that has ended, nothing is asked"
    assert main(["jobs", "cancel", id]) == 1

    capsys.readouterr()
    assert main(["jobs", "retry", id]) == 0
    again = jobs_of(kubectl)[-1]
    assert again["metadata"]["name"] != name and again["spec"]["completions"] == 2
    container = again["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][-2:] == ["--name", name] and container["image"] == IMAGE
    assert again["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    new = capsys.readouterr().out.strip()
    name = again["metadata"]["name"]
    cluster("running")
    kubectl.answer("delete", "deleted")
    assert main(["jobs", "cancel", new]) == 0 and main(["jobs", "retry", new]) == 1
    deleted = [words for words, _ in kubectl.calls() if "delete" in words]
    assert deleted[0][:2] == ["--context=lab", "--namespace=team"] and "--cascade=foreground" in deleted[0]
    cluster("gone")
    assert main(["jobs"]) == 0
    assert f"{new}  canceled" in capsys.readouterr().out
    assert main(["jobs", "move", new]) == 1 and main(["jobs", "show", "kzzzzz"]) == 1


def test_a_cluster_that_does_not_answer(
    project: Path, kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit() == 0
    id = capsys.readouterr().out.strip()
    for text in (
        "Unable to connect to the server: dial tcp: lookup k8s.example.com on 10.0.0.2:53: no such host",
        'error: error loading config file "/home/me/.kube/config": yaml: line 1: did not find expected key',
    ):
        kubectl.answer("get job", "", errors=text)
        (job,) = kubernetes.jobs(project)
        assert job["state"] == "queued" and explained(text) and explained(text) in job["note"]
    assert json.loads((kubernetes.folder(project) / f"{id}.json").read_text())["note"] == "", "it is not kept"
    monkeypatch.setenv("PATH", str(project))
    (job,) = kubernetes.jobs(project)
    assert job["state"] == "queued" and "kubectl" in job["note"]
    with pytest.raises(RefusalError, match="kubectl"):
        kubernetes.cancel(project, id)
