"""The example "training service" on a real engine, without a GPU: jobs by command line and HTTP, and its bad ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, until
from tests.ports import free_port

from .conftest import Engine, Project

STEPS = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
path = "outputs/steps-" + os.environ["GPUKIT_JOB"]
live = os.open(path + ".live", os.O_CREAT | os.O_RDWR)
try:
    fcntl.flock(live, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open("outputs/twice", "w").close()
done = os.path.getsize(path) if os.path.exists(path) else 0
print("from", done, flush=True)
while done < int(sys.argv[1]):
    with open(path, "a") as file:
        file.write("x")
    done += 1
    time.sleep(0.02)
print("ended", flush=True)
sys.exit(int(sys.argv[2]))
"""


class Served:
    def __init__(self, project: Project) -> None:
        self.project = project
        project.write(".env", f"JOBS_PORT={free_port()}\n")
        project.write("src/engine_tests/steps.py", STEPS)
        self.up()

    def up(self) -> None:
        done = self.project.launch("--cpu", "up", timeout=900)
        assert done.returncode == 0, done.stderr
        self.address, self.token = re.search(r"(http://localhost:\d+)/#([\w-]+)", done.stderr).groups()

    def ask(self, path: str, method: str = "GET", **content: Any) -> Any:
        data = json.dumps(content).encode() if content else None
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", data, headers, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
            text = answer.read().decode()
            return json.loads(text) if answer.headers["Content-Type"] == "application/json" else text

    def submit(self, *command: str, **facts: Any) -> int:
        return self.ask("/jobs", "POST", command=["python", "-m", *command], **facts)["id"]

    def states(self) -> list[str]:
        return [job["state"] for job in self.ask("/jobs")["jobs"]]

    def until(self, holds: Callable[[], Any], seconds: float = 180) -> None:
        def does() -> Any:
            with contextlib.suppress(OSError, http.client.HTTPException):  # it is being restarted
                return holds()

        until(does, seconds, lambda: self.ask("/jobs"))

    def container(self) -> str:
        (name,) = self.project.containers("--filter=label=com.docker.compose.service=jobs")
        return name


@pytest.fixture(scope="module")
def served(plain: Engine, project: Callable[..., Project]) -> Iterator[Served]:
    answers = yaml.safe_load((ROOT / "examples/service-rtx-30.yml").read_text())
    del answers["project_name"]
    answers["tracking"] = []  # test_servers.py has MLflow, which takes half a minute at each start
    found = Served(project(name="service", on=plain, **answers))
    yield found
    found.project.launched("stop")
    assert found.project.containers() == []
    found.project.launched("clean", "--yes")


def test_six_jobs_end_as_they_should(served: Served) -> None:
    project = served.project
    assert (project.path / ".launch/jobs/token").stat().st_mode & 0o777 == 0o600
    project.launched(
        "submit", "--", "python", "-m", "engine_tests.train", "--max-steps=6", "--log-steps=2", "--batch-size=16"
    )
    project.launched("submit", "-e", "SECRET", "--", "sh", "-c", "echo $SECRET")
    served.submit("engine_tests.steps", "5", "3")
    served.submit("engine_tests.steps", "999999", "0", max_hours=1 / 3600)
    served.submit("engine_tests.steps", "999999", "0")
    inside = ("python3", "-m", "gpukit", "submit", "--", "python", "-m", "engine_tests.steps", "5", "0")
    assert project.engine.get("exec", served.container(), *inside) == "6"
    assert project.launch("--cpu", "jobs", "run").returncode == 1
    served.until(lambda: served.states()[1] == "waiting")
    project.write(".env", (project.path / ".env").read_text() + "SECRET=planted-value\n")
    served.until(lambda: served.states()[4] == "running")
    assert served.ask("/jobs/5", "DELETE") == {"state": "running"}
    expected = ["finished", "finished", "failed", "out of time", "canceled", "finished"]
    served.until(lambda: served.states() == expected)
    listed = project.launched("jobs")
    assert [line.split()[0] for line in listed.splitlines()[1:] if re.match(r"\d", line)] == [*"123456"]
    assert all(state in listed for state in expected)
    assert "6/6" in served.ask("/jobs/1/log") or "step 6" in served.ask("/jobs/1/log")
    assert served.ask("/jobs/2/log") == "planted-value\n"
    assert [served.ask(f"/jobs/{number}/log") for number in (3, 6)] == ["from 0\nended\n"] * 2
    assert "planted-value" not in project.engine.get("logs", served.container()) + str(served.ask("/jobs"))
    assert (project.path / "outputs/job-1/metrics.jsonl").stat().st_uid == project.user.uid
    facts = project.engine.inspect(served.container())
    assert {one["HostIp"] for ports in facts["NetworkSettings"]["Ports"].values() for one in ports or []} == {
        "127.0.0.1"
    }
    assert not [one for one in facts["Mounts"] if "docker.sock" in one["Source"]]


def test_jobs_run_their_own_code(served: Served) -> None:
    """Submitted over HTTP, where the service freezes the code, and on the host."""
    project = served.project
    first = served.submit("engine_tests.steps", "100", "0")  # the others wait for it
    for text in ("one", "two"):
        project.write("src/engine_tests/own.py", f"print({text!r})\n")
        served.submit("engine_tests.own")
    project.write("src/engine_tests/own.py", "print('three')\n")
    project.launched("submit", "--", "python", "-m", "engine_tests.own")
    project.write("src/engine_tests/own.py", "raise SystemExit('edited')\n")
    served.until(lambda: served.ask(f"/jobs/{first + 3}")["state"] == "finished")
    assert [served.ask(f"/jobs/{first + at}/log") for at in (1, 2, 3)] == ["one\n", "two\n", "three\n"]
    assert [job["id"] for job in served.ask("/compare")["jobs"]][-1] == first + 3


def test_jobs_resume_after_the_worker_is_killed_the_container_is_removed_and_a_stop(served: Served) -> None:
    project = served.project
    engine = served.project.engine
    steps = "1000"
    gate = [100, 200, 300]
    number = served.submit("engine_tests.steps", steps, "0")
    after = served.submit("engine_tests.steps", "1", "0", after=number)
    path = project.path / f"outputs/steps-{number}"

    def reached(count: int) -> bool:
        return path.exists() and path.stat().st_size >= count

    served.until(lambda: reached(gate[0]))
    os.kill(engine.inspect(served.container())["State"]["Pid"], signal.SIGKILL)
    served.until(lambda: "from" in served.ask(f"/jobs/{number}/log").partition("from 0")[2] and reached(gate[1]))
    engine.get("rm", "--force", served.container())
    served.up()
    served.until(lambda: reached(gate[2]))
    project.launched("--cpu", "stop")
    assert not reached(int(steps)) and re.search(rf"^{number} +queued", project.launched("jobs"), re.MULTILINE)
    served.up()
    served.until(lambda: served.ask(f"/jobs/{after}")["state"] == "finished")
    job = served.ask(f"/jobs/{number}")
    assert (job["state"], job["starts"]) == ("finished", 4) and path.stat().st_size == int(steps)
    assert not (project.path / "outputs/twice").exists()
    assert served.ask(f"/jobs/{number}/log").count("from") == 4
