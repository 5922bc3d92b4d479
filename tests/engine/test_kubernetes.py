"""`submit --on kubernetes` with a real engine and a real registry; kubectl is replaced, and containers are the pods."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gpukit.jobs import manifest
from tests.conftest import until
from tests.jobs.kubectl import Kubectl
from tests.registry import running

from .conftest import SLUG, Engine, Project

STEPS = 30
TRAIN = ("python", "-m", "engine_tests.train", "--workers=0", "--batch-size=16", "--log-steps=1")
TRAIN += (f"--max-steps={STEPS}",)
PATIENCE = 900  # seconds; on an idle machine, each start takes ten
SLOW = "import os, time; time.sleep(0.05 * os.path.exists('slow'))"  # a step has 16 samples


class Pods:
    """The pods of a Job, as containers with the rights, the variables, and the names that Kubernetes gives them.

    All share the network of the first one, because not every engine of the tests has working networks.
    """

    def __init__(self, engine: Engine, job: dict[str, Any], outputs: Path, source: Path) -> None:
        self.engine = engine
        self.job = job
        self.outputs = outputs
        self.source = source
        self.containers: list[str] = []

    def start(self) -> list[str]:
        """The containers of all pods."""
        first = self._start(0, "none")
        others = range(1, self.job["spec"]["completions"])
        return [first, *(self._start(index, f"container:{first}") for index in others)]

    def _start(self, index: int, network: str) -> str:
        spec = self.job["spec"]["template"]["spec"]
        container = spec["containers"][0]
        name = self.job["metadata"]["name"]
        user = spec["securityContext"]
        values = {"JOB_NAME": name, "JOB_COMPLETION_INDEX": str(index)}  # the field and what the controller adds
        values |= {each["name"]: each["value"] for each in container["env"] if "value" in each}
        values |= {"GLOO_SOCKET_IFNAME": "lo", "WANDB_MODE": "disabled", "OMP_NUM_THREADS": "1"}
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        arguments = ["--detach", f"--user={user['runAsUser']}:{user['runAsGroup']}", f"--network={network}"]
        arguments += [f"--add-host={name}-0.{spec['subdomain']}:127.0.0.1"] if not index else []
        arguments += ["--cap-drop=ALL", "--security-opt=no-new-privileges"]
        arguments += [f"--env={key}={value}" for key, value in values.items()]
        arguments += [f"--volume={self.outputs}:{places['outputs']}", f"--tmpfs={places['shm']}:mode=1777"]
        arguments += [f"--volume={self.source}:/workspace:ro"]
        words = [*container["command"], *container["args"]]
        for key, value in values.items():
            words = [word.replace(f"$({key})", value) for word in words]
        assert not any("$(" in word for word in words), words
        self.containers.append(self.engine.get("run", *arguments, container["image"], *words))
        return self.containers[-1]

    def end(self, containers: list[str]) -> list[int]:
        """Their exit statuses."""
        codes = [int(self.engine.get("wait", container, timeout=PATIENCE)) for container in containers]
        print(*(self.engine.ask("logs", container) for container in containers))
        return codes

    def preempt(self, container: str) -> None:
        seconds = self.job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        self.engine.get("stop", f"--time={seconds}", container, timeout=seconds + 30)

    def close(self) -> None:
        if self.containers:
            self.engine.ask("rm", "--force", *self.containers)


def losses(outputs: Path, run: str) -> dict[int, float]:
    file = outputs / run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def test_the_image_has_the_source(project: Callable[..., Project], plain: Engine, place: Path) -> None:
    """Two submissions of the same content: one image, in the registry, and two Jobs."""
    one = project(name="kubernetes", on=plain, slight=True, cluster=["kubernetes"])
    one.write("Dockerfile", "FROM scratch\nARG USER_UID\nARG USER_GID\nCOPY apt.txt /\n")
    one.write(".env", "HF_TOKEN=not-in-the-image\n")
    (one.path / "a\nb").symlink_to("apt.txt")
    kubectl = Kubectl(place / "kubectl")
    kubectl.accept(one.path / "cluster/job.yaml")
    (place / "registry").mkdir()
    with running(place / "registry") as host:
        path = f"{kubectl.folder}{os.pathsep}{one.user.environment['PATH']}"
        words = ("submit", "--on", "kubernetes", "--", "python", "-m", "engine_tests.train")
        ids = [one.launched(*words, PATH=path, GPUKIT_REGISTRY=host).strip() for _ in range(2)]
        jobs = [each for each in kubectl.created() if each["kind"] == "Job"]
        image, same = (job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs)
        assert image == same and image.startswith(f"{host}/{SLUG}:")
        assert [job["metadata"]["name"] for job in jobs] == [f"{SLUG}-{id[1:]}" for id in ids] and len({*ids}) == 2
        plain.get("rmi", image)
        plain.get("pull", image)  # as a node does
        container = plain.get("create", image, "/none")
        exported = subprocess.run(["docker", "-H", plain.host, "export", container], capture_output=True, check=True)
        plain.get("rm", container)
        plain.get("rmi", image)
        one.write("src/engine_tests/data.py", "changed = True\n")
        one.launched(*words, PATH=path, GPUKIT_REGISTRY=host)
        changed = kubectl.created()[-1]["spec"]["template"]["spec"]["containers"][0]["image"]
        assert changed.rpartition(":")[0] == image.rpartition(":")[0] and changed != image
        plain.get("rmi", changed)
    with tarfile.open(fileobj=io.BytesIO(exported.stdout)) as archive:
        files = {
            entry.name.removeprefix("workspace/"): entry for entry in archive if entry.name.startswith("workspace/")
        }
        text = b"".join(archive.extractfile(entry).read() for entry in files.values() if entry.isreg())
    tops = {name.partition("/")[0] for name in files}
    assert {"src", "launch", "vendor", "a\nb"} <= tops and not {".env", ".launch", "outputs"} & tops
    assert b"not-in-the-image" not in text and files["launch"].mode & 0o111
    assert {entry.uid for entry in files.values()} == {1000}


def test_a_preempted_job_resumes_with_the_same_losses(
    project: Callable[..., Project], generate: Callable[..., Path], plain: Engine, place: Path
) -> None:
    """On two machines, of which one is preempted. The image is that of other tests; its source is mounted."""
    one = project("wheel", "scripts")
    one.launched("--cpu", "build", timeout=600)
    source = shutil.copytree(one.path, place / "source", ignore=shutil.ignore_patterns("outputs"))
    data = source / "src/engine_tests/data.py"
    line = "        point = self.points[index]\n"
    assert data.read_text().count(line) == 1
    data.write_text(data.read_text().replace(line, f"        {SLOW}\n{line}"))
    file = generate(project_name="Engine tests", hardware="cpu", workflow="scripts", cluster=["kubernetes"])
    (job,) = [each for each in yaml.safe_load_all((file / "cluster/job.yaml").read_text()) if each["kind"] == "Job"]
    manifest.sizes(job, 2, None)
    manifest.program(job, [*TRAIN], "engine_tests", "")
    manifest.container_of(job)["image"] = f"{one.image}-cpu"
    outputs = place / "outputs"
    outputs.mkdir()
    os.chown(outputs, 1000, 1000)
    whole, preempted = (Pods(one.engine, {**job, "metadata": {"name": name}}, outputs, source) for name in ("a", "b"))
    try:
        assert whole.end(whole.start()) == [0, 0]
        expected = losses(outputs, "a")
        assert list(expected) == list(range(1, STEPS + 1))

        (source / "slow").touch()  # so that it has not ended when it is preempted
        started = preempted.start()
        until(lambda: len(losses(outputs, "b")) >= STEPS // 8, PATIENCE)
        preempted.preempt(started[1])
        assert preempted.end(started) == [143, 143]
        assert len(losses(outputs, "b")) < STEPS
        (source / "slow").unlink()
        assert preempted.end(preempted.start()) == [0, 0]
        assert losses(outputs, "b") == expected
    finally:
        whole.close()
        preempted.close()
