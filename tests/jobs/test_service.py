"""The service as real processes on loopback: the worker, the HTTP server, and jobs; without Docker."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpukit.host import queue as place
from gpukit.host.project import Project
from gpukit.jobs import serve
from gpukit.jobs.runners import Outside
from gpukit.jobs.table import Table
from gpukit.project.messages import RefusalError
from tests.conftest import until
from tests.jobs import small
from tests.ports import free_port

TRAIN = """
import os, sys, time
print("\\x1b[31mstarted\\x1b[0m <script>alert(1)</script>\\x1b]0;title\\x07", flush=True)
while not os.path.exists("outputs/gate"):
    time.sleep(0.02)
print("a\\rb\\r\\nlast", end="")
sys.exit(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
"""


class Service:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.port = free_port()
        self.output = root / "output"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpukit.jobs.serve", f"--port={self.port}"],
                env={
                    **os.environ,
                    "PYTHONPATH": f"{small.SOURCE}:{root}",
                    "GPUKIT_PROJECT": str(root),
                    "GPUKIT_DEVICE": "cpu",
                },
                stdout=output,
                stderr=output,
            )
        self.until(lambda: self.answers() == 200)
        self.token = (root / place.TOKEN).read_text()

    def answers(self) -> int:
        try:
            return self.ask("GET", "/health", token="")[0]
        except OSError:
            return 0

    def ask(self, method: str, path: str, content: Any = None, token: str | None = None, **headers: str) -> Any:
        """Status, headers, and body, decoded if it is JSON. Headers: with _ for -; an empty one is left out."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = content if isinstance(content, (bytes, type(None))) else json.dumps(content).encode()
        given = {"Host": f"localhost:{self.port}", "Authorization": f"Bearer {self.token if token is None else token}"}
        given |= {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        link.putrequest(method, path, skip_host=True)
        for name, text in given.items():
            if text:
                link.putheader(name, text.replace("HOST", f"localhost:{self.port}"))
        if body is not None and "Transfer-Encoding" not in given:
            link.putheader("Content-Length", str(len(body)))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before the end of the body
            link.endheaders(body, encode_chunked="Transfer-Encoding" in given)
        answer = link.getresponse()
        text = answer.read()
        link.close()
        kind = answer.headers.get("Content-Type", "")
        return answer.status, answer.headers, json.loads(text) if kind == "application/json" and text else text.decode()

    def submit(self, *arguments: str, **facts: Any) -> int:
        command = ["python3", "-m", "small.train", *arguments]
        status, _, answer = self.ask("POST", "/jobs", {"command": command, **facts})
        assert status == 201, answer
        return answer["id"]

    def state(self, number: int) -> str:
        return self.ask("GET", f"/jobs/{number}")[2]["state"]

    def until(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        until(lambda: self.process.poll() is not None or holds(), seconds, self.output.read_text)
        assert self.process.poll() is None, self.output.read_text()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0


def project(root: Path) -> Path:
    (root / "small").mkdir()
    (root / "small/train.py").write_text(TRAIN, encoding="utf-8")
    return small.project(root)


# Before `service` is there: a worker ends all processes of its own process that are no job's.
def test_a_gpu_that_is_lost_fails_no_second_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "PROBE", "import os, sys; sys.exit('CUDA error' if os.path.exists('lost') else 0)")
    root = project(tmp_path)
    monkeypatch.chdir(root)
    with Table(place.folder(root)) as table:
        worker = serve.ServiceWorker(place.folder(root), table, place.WorkerLock(place.folder(root)), ["0"], ["true"])
        worker.recover()
        for _ in range(2):
            table.submit(["sh", "-c", "touch lost; exit 1"])
        until(lambda: worker.tick() or worker.cuda["error"])
        worker.tick()
        assert [job["state"] for job in table.recent(1000)] == ["failed", "queued"] and "CUDA error" in table.get(1)[
            "note"
        ]
        (root / "lost").unlink()
        worker.probe_at = 0
        until(lambda: worker.tick() or table.get(2)["state"] == "failed")
        worker.close()
        worker.lock.release()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    found = Service(project(tmp_path_factory.mktemp("service")))
    yield found
    if found.process.poll() is None:
        found.stop()
    text = found.output.read_text()
    assert found.token not in text and "Traceback" not in text


def test_jobs_over_http(service: Service) -> None:
    ask = service.ask
    first = service.submit()
    service.until(lambda: service.state(first) == "running")
    second = service.submit("3")
    third = service.submit(priority=2)
    assert (first, second, third) == (1, 2, 3)
    assert ask("GET", "/compare?ids=1")[2]["jobs"][0]["id"] == 1 and "STATE" in ask("GET", "/compare?text=1")[2]
    assert (ask("GET", "/compare?ids=x")[0], ask("GET", "/compare?ids=77")[0]) == (400, 404)
    held = service.submit(after=second)
    assert ask("POST", f"/jobs/{second}/move")[0] == 200
    canceled = service.submit()
    assert ask("DELETE", f"/jobs/{canceled}")[2] == {"state": "canceled"}
    assert ask("DELETE", f"/jobs/{canceled}")[0] == 409
    service.until(lambda: "started" in ask("GET", f"/jobs/{first}/log")[2])
    link = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    link.request("GET", f"/jobs/{first}/log?follow=1", headers={"Authorization": f"Bearer {service.token}"})
    following = link.getresponse()
    assert following.readline() == b"started <script>alert(1)</script>\n"
    (service.root / "outputs/gate").touch()
    assert following.read() == b"a\nb\nlast"
    link.close()
    service.until(lambda: service.state(third) == "finished")
    assert [service.state(one) for one in (first, second, held)] == ["finished", "failed", "held"]
    status, headers, text = ask("GET", f"/jobs/{first}/log?tail=14")
    assert (status, text) == (200, "a\nb\nlast") and headers["Content-Type"] == "text/plain; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, _, retried = ask("POST", f"/jobs/{second}/retry")
    assert status == 201 and ask("POST", f"/jobs/{held}/retry")[0] == 409
    service.until(lambda: service.state(retried["id"]) == "failed")
    listed = ask("GET", "/jobs")[2]
    assert [job["id"] for job in listed["jobs"]] == [1, 2, 3, 4, 5, 6] and listed["processing"] is True
    tag = ask("GET", "/jobs")[1]["ETag"]
    status, headers, same = ask("GET", "/jobs", If_None_Match=tag)
    assert (status, headers["ETag"], same) == (304, tag, "")
    assert listed["jobs"][0]["run"] == "job-1" and listed["jobs"][1]["status"] == 3
    assert ask("DELETE", f"/jobs/{service.submit(after=held)}")[0] == ask("GET", "/jobs", If_None_Match=tag)[0] == 200
    health = ask("GET", "/health")
    assert health[0] == 200 and health[2]["cuda"]["ok"] and ask("GET", "/health", token="")[2] == {"status": "ok"}
    assert ask("GET", "/metrics")[0] == 200 and "/jobs" in ask("GET", "/openapi.json")[2]["paths"]


def test_the_page_signs_in_by_cookie(service: Service) -> None:
    status, headers, text = service.ask("GET", "/", token="")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"] and service.token not in text
    assert service.ask("POST", "/login", {"token": "wrong"}, "")[0] == 401
    status, headers, _ = service.ask("POST", "/login", {"token": service.token}, "", Origin="http://HOST")
    cookie = headers["Set-Cookie"]
    assert status == 204 and {"HttpOnly", "SameSite=strict", "Path=/"} <= {*cookie.split("; ")}
    cookie = cookie.split(";")[0]
    assert service.ask("GET", "/jobs", token="", Cookie=cookie)[0] == 200
    submitted = {"command": ["python", "-m", "small.train"], "after": 10**9}
    assert service.ask("POST", "/jobs", submitted, "", Cookie=cookie)[0] == 403  # no Origin
    assert service.ask("POST", "/jobs", submitted, "", Cookie=cookie, Origin="http://HOST")[0] == 404
    assert service.ask("DELETE", "/login", None, "", Cookie=cookie, Origin="http://HOST")[0] == 204


BIG = b'{"command": ["python", "-m", "small.train", "' + b"x" * 10_000_000 + b'"]}'
OWN = {"command": ["python", "-m", "small.train"]}


def run(*command: str) -> tuple[str, str, Any, dict[str, str]]:
    return "POST", "/jobs", {"command": [*command]}, {}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("GET", "/jobs", None, {"token": ""}), 401),
        (("GET", "/jobs", None, {"token": "wrong"}), 401),
        (("GET", "/jobs?token=TOKEN", None, {"token": ""}), 401),
        (("GET", "/metrics", None, {"token": ""}), 401),
        (("GET", "/openapi.json", None, {"token": ""}), 401),
        (("GET", "/docs", None, {}), 404),
        (("POST", "/jobs", OWN, {"token": ""}), 401),
        (("POST", "/jobs", OWN, {"token": "", "Cookie": "gpukit_jobs=x"}), 401),
        (("GET", "/jobs", None, {"Host": "evil.example"}), 421),
        (("GET", "/", None, {"Host": "localhost.evil.example"}), 421),
        (("GET", "/", None, {"Host": "10.0.0.1:8750"}), 421),
        (("POST", "/jobs", OWN, {"Origin": "http://evil.example"}), 403),
        (("POST", "/jobs", OWN, {"Origin": "null"}), 403),
        (("POST", "/jobs", OWN, {"Origin": "http://localhost:1"}), 403),
        (("POST", "/login", {"token": "x"}, {"Origin": "http://evil.example"}), 403),
        (("GET", "/jobs", None, {"Sec_Fetch_Site": "cross-site"}), 403),
        (("POST", "/jobs", OWN, {"Sec_Fetch_Site": "same-site"}), 403),
        (("POST", "/jobs", OWN, {"Content_Type": "text/plain"}), 400),
        (("POST", "/jobs", BIG, {}), 413),
        (("POST", "/jobs", BIG, {"Transfer_Encoding": "chunked"}), 413),
        (("POST", "/login", BIG, {"token": ""}), 413),
        (("POST", "/jobs", b"{", {}), 400),
        (("POST", "/jobs", {**OWN, "gpus": 0}, {}), 400),
        (("POST", "/jobs", {**OWN, "after": 10**30}, {}), 400),
        (("POST", "/jobs", b'{"command": ["python", "-m", "small.train"], "max_hours": NaN}', {}), 400),
        (("POST", "/jobs", {**OWN, "variables": ["A=secret"]}, {}), 400),
        (("POST", "/jobs", {**OWN, "state": "finished"}, {}), 400),
        (run(), 400),
        (run("sh", "-c", "true"), 400),
        (run("python", "-c", "pass"), 400),
        (run("python", "-m", "http.server"), 400),
        (run("python", "-m", "smaller"), 400),
        (run("python", "-m", "small/../other"), 400),
        (run("/tmp/python", "-m", "small.train"), 400),
        (run("python", "-X", "importtime", "-m", "small.train"), 400),
        (run("torchrun", "--no-python", "-m", "small.train"), 400),
        (run("torchrun", "--log-dir=/tmp", "-m", "small.train"), 400),
        (run("python", "-m", "small.train", "--name", "../../x"), 400),
        (run("python", "-m", "small.train", "--name=/etc"), 400),
        (run("python", "-m", "small.train", "a\0b"), 400),
        (run("python", "-m", "small.train", "\ud800"), 400),
        (("GET", "/jobs/..%2f..%2fstack.json", None, {}), 404),
        (("GET", "/jobs/../../stack.json", None, {}), 404),
        (("GET", "/jobs/token/log", None, {}), 400),
        (("GET", "/jobs/1.5/log", None, {}), 400),
        (("GET", "/jobs/99999999999999999999999/log", None, {}), 400),
        (("GET", "/jobs/-1", None, {}), 400),
        (("GET", "/jobs/77", None, {}), 404),
        (("GET", "/jobs/1/log?tail=99999999999", None, {}), 400),
    ],
)
def test_nothing_gets_through(service: Service, request_: Any, expected: int) -> None:
    method, path, content, options = request_
    before = len(service.ask("GET", "/jobs")[2]["jobs"])
    status, headers, answer = service.ask(method, path.replace("TOKEN", service.token), content, **options)
    assert status == expected, answer
    assert list(answer) == ["error"] and answer["error"].endswith(".") and service.token not in str(answer)
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert len(service.ask("GET", "/jobs")[2]["jobs"]) == before


def test_submissions_that_come_at_once(service: Service) -> None:
    """They share one transaction, in which one that is refused changes nothing for the others."""

    def submit(at: int) -> tuple[int, Any]:
        content = {
            "command": ["python3", "-m", "small.train"],
            "latest": at % 3 == 0,
            "after": 10**9 if at % 8 == 5 else None,
        }
        status, _, answer = service.ask("POST", "/jobs", content)
        return status, answer

    gate = service.root / "outputs/gate"
    gate.parent.mkdir(exist_ok=True)
    gate.touch()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit, range(16)))
    assert [status for status, _ in answers] == [404 if at % 8 == 5 else 201 for at in range(16)]
    numbers = sorted(answer["id"] for status, answer in answers if status == 201)
    assert numbers == [*range(numbers[0], numbers[0] + 14)]
    service.until(lambda: {service.state(number) for number in numbers} == {"finished"})


@pytest.mark.slow
def test_the_server_is_restarted_a_second_service_waits_and_a_stop_keeps_the_queue(service: Service) -> None:
    (service.root / "outputs/gate").unlink(missing_ok=True)
    number = service.submit()
    service.until(lambda: service.state(number) == "running")
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    found = children.read_text().split()
    (server,) = [one for one in found if b"gpukit.jobs.service" in Path(f"/proc/{one}/cmdline").read_bytes()]
    assert b"torch" not in Path(f"/proc/{server}/maps").read_bytes()
    os.kill(int(server), signal.SIGKILL)
    service.until(lambda: server not in children.read_text().split() and service.answers())
    second = Service(service.root)
    service.until(lambda: "is being processed by the service" in service.output.read_text())
    second.stop()  # it has not touched the job
    assert service.state(number) == "running"
    with pytest.raises(RefusalError, match="service"):
        from gpukit.jobs.worker import process

        process(Namespace(root=service.root), False, lambda _: None, service.root / ".launch/jobs")
    service.stop()
    with Table(service.root / ".launch/jobs") as table:
        job = table.get(number)
        assert (job["state"], job["note"]) == ("queued", "interrupted; resumes")


def test_a_lease_of_the_service_seen_from_the_host(tmp_path: Path) -> None:
    answers = {"same": "true 1", "ended": "false 0", "restarted": f"true {os.getpid()}"}
    engine = Namespace(
        call=lambda *words: (int(words[-1] not in answers), answers.get(words[-1], ""), "No such container")
    )
    runner = Outside(lambda _: Namespace(engine=engine))
    lease = {"boot": place.boot_id(), "main": place.born(1)}
    expected = {"same": True, "ended": False, "restarted": False, "gone": False}
    assert {name: runner.alive({**lease, "container": name}) for name in expected} == expected
    assert not runner.alive({**lease, "container": "same", "boot": "another"})


def test_a_job_left_on_the_host_is_not_started_twice(tmp_path: Path) -> None:
    root = project(tmp_path)
    with Table(place.folder(root)) as table:
        worker = serve.ServiceWorker(place.folder(root), table, place.WorkerLock(place.folder(root)), None, ["true"])
        assert isinstance(worker.project(), Project)
        table.submit(["true"])
        assert table.claim(1, {"kind": "container", "boot": place.boot_id(), "container": "x"}, "")
        with pytest.raises(RefusalError, match="jobs run"):
            worker.recover()
        table.update(1, lease={"kind": "container", "boot": "another", "container": "x"})
        worker.recover()
        assert table.get(1)["state"] == "queued"
        worker.close()
        worker.lock.release()
