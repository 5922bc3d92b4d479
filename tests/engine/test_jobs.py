"""The queue with containers: the worker killed, the container removed, the project stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.conftest import until

from .conftest import Engine, Project

SAVES = "echo started; trap 'echo saved; exit 143' TERM; while [ ! -e outputs/go ]; do sleep 0.1; done; echo done"


def test_interrupted_containers_resume(project: Callable[..., Project], plain: Engine) -> None:
    one = project(name="queue", slight=True, on=plain)

    def listed() -> str:
        return one.launched("jobs")

    def log() -> list[str]:
        return one.launch("jobs", "logs", "1").stdout.split()

    def until_state(state: str, job: int = 1) -> None:
        until(lambda: f"\n{job}   {state} " in listed(), 180, listed)

    def until_log(text: str) -> None:
        until(lambda: log() == text.split(), 180, log)

    one.launched("submit", "--", "sh", "-c", SAVES)
    one.launched("submit", "--after", "1", "--", "no-such-program")
    worker = one.start("./launch", "--cpu", "jobs", "run")
    until_state("running")
    until_log("started")
    (container,) = one.containers()
    assert container.endswith("-job-1")
    lock = (one.path / ".launch/jobs/worker.lock").read_text()
    os.kill(int(lock.partition('"pid": ')[2].partition(",")[0]), signal.SIGKILL)
    worker.communicate(timeout=60)
    until_log("started saved")  # the job does not outlive its worker
    until(lambda: not one.containers())  # the engine removes it after its end
    one.launched("--cpu", "jobs", "run", "-d")
    until_log("started saved started")
    one.engine.get("rm", "--force", container)
    until_log("started saved started started")
    one.launched("--cpu", "stop")
    until_state("queued")
    assert one.containers("--all") == []
    (one.path / "outputs/go").touch()
    one.launched("--cpu", "jobs", "run", "-d")
    until_state("finished")
    until_state("failed", job=2)
    one.launched("--cpu", "stop")
    assert one.containers("--all") == []


def test_jobs_run_their_own_code_in_their_own_image(project: Callable[..., Project], plain: Engine) -> None:
    """Also after an edit while it runs; an image is built only if what the project's is built from has changed."""
    one = project(name="frozen", slight=True, on=plain)
    (one.path / "outputs").mkdir(exist_ok=True)
    one.user.give(one.path)
    code = "cat src/own.txt; touch outputs/$GPUKIT_JOB; while [ ! -e outputs/go ]; do sleep 0.1; done; cat src/own.txt"
    command = ["sh", "-c", f"{code}; test -e /etc/mark && echo marked || echo unmarked; pwd"]
    for number in ("one", "two"):
        one.write("src/own.txt", f"{number}\n")
        one.launched("submit", "--", *command)
    file = one.path / "Dockerfile"
    one.write("Dockerfile", f"{file.read_text()}USER root\nRUN echo marked > /etc/mark\nUSER ${{USER_UID}}\n")
    one.write("src/own.txt", "three\n")
    one.launched("submit", "--", *command)
    one.launched("--cpu", "jobs", "run", "-d")
    until((one.path / "outputs/1").exists, 300)
    one.write("src/own.txt", "edited while job 1 runs\n")
    (one.path / "src/own.txt").unlink()
    (one.path / "outputs/go").touch()
    done = one.launch("jobs", "wait", "1", "2", "3", "--timeout", "250")
    one.launched("--cpu", "stop")
    assert done.returncode == 0, [one.launch("jobs", "logs", str(number)).stdout for number in (1, 2, 3)]
    logs = [one.launched("jobs", "logs", str(number)).split() for number in (1, 2, 3)]
    marks = {"one": "unmarked", "two": "unmarked", "three": "marked"}
    assert logs == [[text, text, mark, "/workspace"] for text, mark in marks.items()]
    images = one.engine.get("images", "--quiet", f"--filter=label=gpukit.project={one.path}").split()
    assert len(images) == 2 and {path.name for path in (one.path / "outputs").iterdir()} == {"1", "2", "3", "go"}
    assert not [path for path in (one.path / ".launch/jobs").iterdir() if path.is_dir() and path.name.isdecimal()]
    one.launched("--cpu", "clean", "--images", "--yes")
    assert not one.engine.get("images", "--quiet", f"--filter=label=gpukit.project={one.path}")
