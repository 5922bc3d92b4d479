"""`submit --on kubernetes` with a real engine and a real registry; kubectl is replaced, and containers are the pods."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.kubectl import Kubectl
from tests.registry import running

from .conftest import SLUG, Engine, Project, User

STEPS = 40
TRAIN = ("python", "-m", "engine_tests.train", "--batch-size=16", "--log-steps=1", f"--max-steps={STEPS}")
SLOW = "import time; time.sleep(0.02)"


class Pods:
    """The pods of a Job, as containers with the rights, the variables, and the names that Kubernetes gives them."""

    def __init__(self, engine: Engine, job: dict[str, Any], outputs: Path) -> None:
        self.engine, self.job, self.outputs = engine, job, outputs
        self.network = f"{SLUG}-{job['metadata']['name']}"
        engine.get("network", "create", self.network)

    def start(self, index: int) -> str:
        """The container of one pod."""
        spec = self.job["spec"]["template"]["spec"]
        container, name = spec["containers"][0], self.job["metadata"]["name"]
        user = spec["securityContext"]
        values = {"JOB_NAME": name, "JOB_COMPLETION_INDEX": str(index)}  # the field and what the controller adds
        values |= {each["name"]: each["value"] for each in container["env"] if "value" in each}
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        host = f"{name}-{index}.{spec['subdomain']}"
        arguments = ["--detach", f"--user={user['runAsUser']}:{user['runAsGroup']}", f"--network={self.network}"]
        arguments += [f"--network-alias={host}", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        arguments += [f"--env={key}={value}" for key, value in values.items()]
        arguments += [f"--volume={self.outputs}:{places['outputs']}", f"--tmpfs={places['shm']}:mode=1777"]
        words = [*container["command"], *container["args"]]
        for key, value in values.items():
            words = [word.replace(f"$({key})", value) for word in words]
        assert not any("$(" in word for word in words), words
        return self.engine.get("run", *arguments, container["image"], *words)

    def end(self, container: str, *, told: bool = False) -> int:
        """The exit status; `told`: to stop, as for a preemption."""
        if told:
            seconds = self.job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            self.engine.get("stop", f"--time={seconds}", container, timeout=seconds + 30)
        code = int(self.engine.get("wait", container, timeout=300))
        print(self.engine.ask("logs", container))
        self.engine.get("rm", container)
        return code

    def close(self) -> None:
        found = self.engine.get("ps", "--all", "--quiet", f"--filter=network={self.network}").split()
        if found:
            self.engine.ask("rm", "--force", *found)
        self.engine.get("network", "rm", self.network)


def losses(outputs: Path, run: str) -> dict[int, float]:
    lines = (outputs / run / "metrics.jsonl").read_text().splitlines() if (outputs / run).exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.fixture
def submitted(project: Callable[..., Project], plain: Engine, place: Path) -> Iterator[list[dict[str, Any]]]:
    """Two Jobs of the same source, for two machines each."""
    one = project(name="kubernetes", on=plain, hardware="cpu", cluster=["kubernetes"])
    kubectl = Kubectl(place / "kubectl")
    kubectl.accept(one.path / "cluster/job.yaml")
    data = one.path / "src/engine_tests/data.py"
    line = "        point = self.points[index]\n"
    assert data.read_text().count(line) == 1
    data.write_text(data.read_text().replace(line, f"        {SLOW}\n{line}"))
    one.write(".env", "HF_TOKEN=not-in-the-image\n")
    (place / "registry").mkdir()
    with running(place / "registry") as host:
        path = f"{kubectl.folder}{os.pathsep}{one.user.environment['PATH']}"
        for _ in range(2):
            words = ("submit", "--on", "kubernetes", "--nodes", "2", "--", *TRAIN)
            one.launched(*words, timeout=600, PATH=path, GPUKIT_REGISTRY=host)
        jobs = [each for each in kubectl.created() if each["kind"] == "Job"]
        image = image_of(jobs[0])
        plain.get("rmi", image)
        plain.get("pull", image)  # as a node does
        yield jobs
        plain.ask("rmi", "--force", image)


def image_of(job: dict[str, Any]) -> str:
    return job["spec"]["template"]["spec"]["containers"][0]["image"]


def test_a_preempted_job_resumes_with_the_same_losses(
    submitted: list[dict[str, Any]], plain: Engine, place: Path, users: Callable[..., User]
) -> None:
    whole, preempted = submitted
    assert image_of(whole) == image_of(preempted), "the same content, the same tag"
    assert whole["metadata"]["name"] != preempted["metadata"]["name"]
    found = plain.get("run", "--rm", "--user=1000:1000", image_of(whole), "sh", "-c", "ls -A && touch src/ours").split()
    assert {"src", "launch", "vendor"} <= {*found} and not {".env", ".launch", ".git", "outputs"} & {*found}
    outputs = place / "outputs"
    outputs.mkdir()
    os.chown(outputs, 1000, 1000)

    uninterrupted = Pods(plain, whole, outputs)
    two = Pods(plain, preempted, outputs)
    try:
        started = [uninterrupted.start(index) for index in (1, 0)]  # the second machine first: it waits for the other
        assert [uninterrupted.end(one) for one in started] == [0, 0]
        expected = losses(outputs, whole["metadata"]["name"])
        assert list(expected) == list(range(1, STEPS + 1))

        run = preempted["metadata"]["name"]
        started = [two.start(index) for index in (0, 1)]
        until = time.monotonic() + 120
        while len(losses(outputs, run)) < STEPS // 3:
            assert time.monotonic() < until, [plain.ask("logs", one) for one in started]
            time.sleep(0.2)
        assert [two.end(started[1], told=True), two.end(started[0])] == [143, 143]
        assert len(losses(outputs, run)) < STEPS
        started = [two.start(index) for index in (0, 1)]
        assert [two.end(one) for one in started] == [0, 0]
        assert losses(outputs, run) == expected
    finally:
        uninterrupted.close()
        two.close()
