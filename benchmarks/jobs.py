"""The service `jobs` after 100,000 jobs: requests, idle, 1,000 submissions, kills: uv run python benchmarks/jobs.py

A project without a GPU, with the service on this machine's engine. Its queue has the jobs of years, all of which have
ended: the worst that a user will have. A training job is killed --rounds times, in turn by kill -9 of the worker (as
root, or as the user of the container) and by removing the container; each time, its losses and weights are compared
with those of an uninterrupted job, bit by bit. BASE_IMAGE and UV_INDEX name mirrors.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import sqlite3
import statistics
import threading
import time
from pathlib import Path
from typing import Any

from harness import Benchmark, children, run, say

from gpukit.host.queue import folder
from gpukit.jobs.table import Table

PORT = 8799
HISTORY = 100_000  # jobs that have ended
# of each kind
REQUESTS = 100
COMMANDS = 5
CLIENTS = 8
EACH = 125
STEPS = 60
SAVE = 10
IDLE_SECONDS = 60


class Service:
    def __init__(self, project: Path) -> None:
        self.project = project
        self.env = {**os.environ, "JOBS_PORT": str(PORT)}
        self.up()
        self.token = (project / ".launch/jobs/token").read_text()

    def up(self) -> None:
        run(self.project / "launch", "up", env=self.env)

    def ask(self, method: str, path: str, link: http.client.HTTPConnection | None = None, **content: Any) -> Any:
        link = link or http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        link.request(method, path, json.dumps(content) if content else None, headers)
        answer = link.getresponse()
        return json.loads(answer.read())

    def get(self, path: str, tag: str = "") -> str:
        """The response's ETag; `tag`: of the response before."""
        link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        link.request("GET", path, headers={"Authorization": f"Bearer {self.token}", "If-None-Match": tag})
        answer = link.getresponse()
        answer.read()
        link.close()
        return answer.headers.get("ETag", "")

    def processes(self) -> list[str]:
        return run("docker", "top", self.container(), "-o", "pid").split()[1:]

    def used(self) -> float:
        """Seconds of CPU that the container's processes have used."""
        fields = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in self.processes()]
        return sum(sum(map(int, one[11:15])) for one in fields) / os.sysconf("SC_CLK_TCK")  # with ended children's

    def train(self) -> int:
        flags = ["--max-steps", str(STEPS), "--save-steps", str(SAVE), "--log-steps", "1", "--workers", "0"]
        return self.ask("POST", "/jobs", command=["python", "-m", f"{self.project.name}.train", *flags])["id"]

    def job(self, number: int) -> dict[str, Any]:
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):  # the container is being restarted
                return self.ask("GET", f"/jobs/{number}")
            time.sleep(0.05)

    def wait(self, number: int) -> dict[str, Any]:
        while self.job(number)["state"] in ("queued", "running"):
            time.sleep(0.2)
        return self.job(number)

    def container(self) -> str:
        folder = f"--filter=label=com.docker.compose.project.working_dir={self.project}"
        service = "--filter=label=com.docker.compose.service=jobs"
        return run("docker", "ps", "--quiet", folder, service).strip()

    def main_process(self) -> int:
        return int(run("docker", "inspect", "--format={{.State.Pid}}", self.container()))

    def trained(self, number: int) -> tuple[dict[int, str], str]:
        """The loss of each step, and the digest of the last checkpoint's weights."""
        folder = self.project / f"outputs/job-{number}"
        path = folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        losses = {row["step"]: row["loss"].hex() for row in rows if isinstance(row.get("loss"), float)}
        if STEPS not in losses:
            return losses, ""
        manifest = max(folder.glob("checkpoints/step-*/manifest.json"))
        return losses, json.loads(manifest.read_text(encoding="utf-8"))["files"]["model.pt"]["sha256"]


def submissions(service: Service) -> tuple[list[float], float, bool]:
    """Seconds of each submission, CPU time of one, and whether all are in the queue, in the order of their numbers."""
    first = service.ask("POST", "/jobs", command=["python", "-m", f"{service.project.name}.wait"])["id"]
    seconds: list[float] = []
    numbers: list[list[int]] = [[] for _ in range(CLIENTS)]

    def client(at: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        for _ in range(EACH):
            begun = time.perf_counter()
            command = ["python", "-m", f"{service.project.name}.wait"]
            numbers[at].append(service.ask("POST", "/jobs", link, command=command)["id"])
            seconds.append(time.perf_counter() - begun)
        link.close()

    before = service.used()
    threads = [threading.Thread(target=client, args=(at,)) for at in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = (service.used() - before) / len(seconds)
    listed = [job["id"] for job in service.ask("GET", "/jobs")["jobs"] if job["id"] > first]
    right = sorted(itertools.chain.from_iterable(numbers)) == listed == [*range(first + 1, first + 1 + CLIENTS * EACH)]
    right = right and all(one == sorted(one) for one in numbers)
    for number in [*listed, first]:
        service.ask("DELETE", f"/jobs/{number}")
    service.wait(first)
    return seconds, used, right


def with_history(project: Path) -> None:
    """Fill the queue: one job every ten minutes, of which eight in ten have finished."""
    states = [*["finished"] * 8, "failed", "canceled"]
    begin = time.time() - 600 * HISTORY
    rows = [
        (
            states[number % 10],
            json.dumps(["python", "-m", f"{project.name}.train", f"--name=job-{number}", "--lr", "1e-3"]),
            begin + 600 * number,
            begin + 600 * number + 5,
            begin + 600 * number + 590,
            585.0,
            number,
        )
        for number in range(1, HISTORY + 1)
    ]
    place = folder(project)
    Table(place).base.close()
    with contextlib.closing(sqlite3.connect(place / "queue.sqlite")) as base, base:
        base.executemany(
            "INSERT INTO jobs (state, command, submitted, started, ended, ran, position, starts)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
            rows,
        )


def requests(service: Service) -> dict[str, float]:
    """CPU time in seconds of the service for a request."""
    found = {}
    for path in ("/health", "/jobs", "/metrics"):
        service.get(path)
        before = service.used()
        for _ in range(REQUESTS):
            service.get(path)
        found[path] = (service.used() - before) / REQUESTS
    return found


def commands(service: Service) -> dict[str, float]:
    """CPU time in seconds of a command, the smallest of several."""
    found = {}
    for words in (("jobs",), ("submit", "--", "true")):
        seconds = []
        for _ in range(COMMANDS):
            before = children()
            run(service.project / "launch", *words)
            seconds.append(children() - before)
        found[words[0]] = min(seconds)
    return found


def page(service: Service) -> float:
    """The share of a core that the container's processes use while the page is open: it asks every two seconds."""
    before = service.used()
    tag = service.get("/jobs")
    for _ in range(IDLE_SECONDS // 2):
        time.sleep(2)
        tag = service.get("/jobs", tag)
    return (service.used() - before) / IDLE_SECONDS


def idle(service: Service) -> tuple[float, float]:
    """The share of a core that the container's processes use, and their memory in MB (proportional set size)."""
    before = service.used()
    time.sleep(IDLE_SECONDS)
    share = (service.used() - before) / IDLE_SECONDS
    maps = [Path(f"/proc/{one}/smaps_rollup").read_text() for one in service.processes()]
    pss = sum(int(line.split()[1]) for text in maps for line in text.splitlines() if line.startswith("Pss:"))
    return share, pss * 1024 / 1e6


def groups(word: bytes) -> set[str]:
    """The process groups of programs with this argument, on this machine and in its containers."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word in (entry / "cmdline").read_bytes().split(b"\0"):
                found.add((entry / "stat").read_text().rpartition(")")[2].split()[2])
    return found


def kills(service: Service, times: int) -> tuple[list[list[Any]], int]:
    """By kind: kills, and after how many the job ended like an uninterrupted one; and how often two were alive."""
    whole = service.train()
    service.wait(whole)
    expected = service.trained(whole)
    draw = random.Random(2026)
    twice = 0
    rows: list[list[Any]] = [["the worker, by `kill -9`", 0, 0], ["the container, by `docker rm --force`", 0, 0]]
    for number in range(times):
        job = service.train()
        at = draw.randrange(SAVE // 2, STEPS - 5)
        while len(service.trained(job)[0]) < at and service.job(job)["state"] in ("queued", "running"):
            time.sleep(0.05)
        if number % 2:
            run("docker", "rm", "--force", service.container())
            service.up()
        else:
            os.kill(service.main_process(), signal.SIGKILL)
        while service.job(job)["state"] in ("queued", "running"):
            twice += len(groups(f"--name=job-{job}".encode())) > 1
            time.sleep(0.1)
        found = service.job(job)
        same = (found["state"], found["starts"]) == ("finished", 2) and service.trained(job) == expected
        say(f"kill {number + 1} at step {at}: {'equal' if same else 'NOT equal'}")
        rows[number % 2][1] += 1
        rows[number % 2][2] += same
    return rows, twice


def main() -> None:
    with Benchmark("The service of the queue", __doc__, rounds=20, engine=True) as bench:
        project = bench.project(
            "benchmark_jobs", project_name="benchmark_jobs", hardware="cpu", workflow="scripts", services="[jobs]"
        )
        (project / "src/benchmark_jobs/wait.py").write_text("import time\ntime.sleep(3600)\n", encoding="utf-8")
        with_history(project)
        try:
            service = Service(project)
            time.sleep(10)
            share, memory = idle(service)
            opened = page(service)
            say(f"idle: {share:.2%} of a core, {memory:.0f} MB; page: {opened:.2%}")
            asked = requests(service)
            called = commands(service)
            say(asked, called)
            seconds, used, complete = submissions(service)
            bench.rows, twice = kills(service, bench.rounds)
        finally:
            run(project / "launch", "stop")
            run(project / "launch", "clean", "--yes")
        bench.columns = ["what was killed during a job", "times", "same losses and weights"]
        for path, most in (("/health", 20), ("/jobs", 20), ("/metrics", 60)):
            bench.result(f"`{path}`, CPU time", 1000 * asked[path], "ms", at_most=most, digits=1)
        for name, most in (("jobs", 0.3), ("submit", 0.2)):
            bench.result(f"`./launch {name}`, CPU time", called[name], "s", at_most=most)
        bench.result("the page is open, of a core", 100 * opened, "%", at_most=1)
        seconds.sort()
        bench.result("submission, median", 1000 * statistics.median(seconds), "ms", at_most=50, digits=0)
        bench.result("99 % of them", 1000 * seconds[int(0.99 * len(seconds))], "ms", at_most=1000, digits=0)
        bench.result("a submission's CPU time", 1000 * used, "ms", digits=1)
        bench.result("lost or out of order", int(not complete), at_most=0)
        bench.result("idle, of a core", 100 * share, "%", at_most=0.5)
        bench.result("idle, memory", memory, "MB", at_most=100, digits=0)
        changed = bench.rounds - sum(row[2] for row in bench.rows)
        bench.result("kills that changed a loss or weight", changed, at_most=0)
        bench.result("times that a job had two process groups", twice, at_most=0)
        bench.notes = [
            f"The queue had {HISTORY:,} jobs that have ended. CPU time: of the service per request, mean of {REQUESTS};"
            f" of a command, the smallest of {COMMANDS}.",
            f"{CLIENTS} clients over HTTP, {EACH} submissions each. Idle, and with the page open: all processes of the "
            f"container for {IDLE_SECONDS} s, with the health check. The engine was not restarted.",
        ]


if __name__ == "__main__":
    main()
