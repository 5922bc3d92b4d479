"""The queue: order, states, and what is left after kill -9. Jobs are plain processes here (plain.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpukit.cli.main import main, parse
from gpukit.host import facts
from gpukit.host import queue as place
from gpukit.host.engine import Engine
from gpukit.jobs import records, slurm, worker
from gpukit.jobs.commands import act
from gpukit.jobs.log import main as copy_log
from gpukit.jobs.runners import Container
from gpukit.jobs.service import application
from gpukit.jobs.table import FINAL, MIGRATIONS, Table
from gpukit.project.messages import RefusalError
from tests.conftest import until
from tests.jobs.small import CONFIG, SOURCE, project
from tests.jobs.test_slurm import RECORD

PLAIN = Path(__file__).with_name("plain.py")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return project(tmp_path)


class Queue:
    """The queue of a project, and its workers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workers = list[subprocess.Popen[bytes]]()
        self.table = Table(place.folder(root))

    def add(self, code: str, **facts: Any) -> int:
        return self.table.submit([sys.executable, "-c", code], **facts)

    def start(self, slots: str = "", **env: str) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, str(PLAIN), str(self.root), slots],
            env={**os.environ, "PYTHONPATH": str(SOURCE), **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.workers.append(worker)
        return worker

    def states(self) -> list[str]:
        return [job["state"] for job in self.table.recent(1000)]

    def until(self, holds: Callable[[], Any], seconds: float = 60) -> None:
        until(holds, seconds, lambda: self.table.recent(1000))

    def until_states(self, *states: str) -> None:
        self.until(lambda: self.states() == [*states])

    def log(self, number: int) -> str:
        path = self.root / f".launch/jobs/{number}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def left(self) -> list[int]:
        """Live processes of any job of this queue."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                env = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
                ours = f"QUEUE={self.root}".encode() in env and b"GPUKIT_JOB=" in env
                found += [int(entry.name)] if ours and place.born(int(entry.name)) else []
        return found


@pytest.fixture
def queue(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setenv("QUEUE", str(root))
    made = Queue(root)
    yield made
    for each in made.workers:
        each.kill()
        each.communicate()
    for pid in made.left():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    made.table.base.close()


def wait_for(path: Path) -> str:
    return f"import os, time\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n"


def test_jobs_run_in_order_each_gpu_has_one_and_dependents_of_a_failure_are_held(queue: Queue) -> None:
    gate = queue.root / "gate"
    show = "import os; print('GPU', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
    queue.add(show + wait_for(gate))
    queue.add(show + wait_for(gate))
    queue.add(show, gpus=2)
    queue.add("raise SystemExit(3)", after=1, priority=1)
    queue.add("", after=4)
    queue.add("", after=5)
    queue.add("", gpus=3)
    queue.add("", variables=["NOT_SET"])
    queue.add("import os; print(os.environ['SECRET'])", variables=["SECRET"])
    queue.table.submit(["no-such-program"], project="an earlier one")
    queue.add("", project="an earlier one")
    queue.start("0,1", SECRET="s3cret-value")
    queue.until(lambda: queue.states()[:2] == ["running"] * 2)
    time.sleep(0.2)
    assert queue.states()[2] == "queued"  # and not one of the small ones behind it
    gate.touch()
    expected = ["finished"] * 3 + ["failed", "held", "held", "queued", "waiting", "finished", "failed", "finished"]
    queue.until_states(*expected)
    assert sorted(queue.log(1) + queue.log(2)) == sorted("GPU 0\nGPU 1\n") and queue.log(3) == "GPU 0,1\n"
    jobs = queue.table.recent(1000)
    assert (jobs[3]["status"], jobs[9]["status"]) == (3, 127)
    assert "3 GPUs" in jobs[6]["note"] and "NOT_SET" in jobs[7]["note"]
    assert "changed since `submit`" in jobs[10]["note"]
    assert jobs[3]["started"] < jobs[2]["started"]  # by its priority
    for path in (queue.root / ".launch/jobs").glob("queue.sqlite*"):
        assert b"s3cret-value" not in path.read_bytes()
    (queue.root / ".env").write_text("NOT_SET=now\n", encoding="utf-8")
    queue.until(lambda: queue.states()[7] == "finished")
    new = queue.table.retry(4, "")
    queue.until(lambda: queue.table.get(new)["state"] == "failed")
    assert [job["after"] for job in queue.table.recent(1000)[4:6]] == [new, 5] and queue.states()[4:6] == ["held"] * 2


# Writes what runs, and when it has ended; ignores SIGTERM, and has a child in a session of its own.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(99)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True, env=%s)
print("started", flush=True)
time.sleep(99 * %d)
"""


def test_jobs_that_ignore_sigterm_and_leave_children_end(queue: Queue) -> None:
    queue.add(STUBBORN % ("dict(os.environ)", 1), max_hours=0.5 / 3600)
    queue.add(STUBBORN % ("{'QUEUE': os.environ['QUEUE'], 'GPUKIT_JOB': '2'}", 0))  # not to be found by its variables
    queue.add(STUBBORN % ("dict(os.environ)", 1))
    worker = queue.start(GRACE="0.3")
    queue.until(lambda: queue.states()[2] == "running" and "started" in queue.log(3))
    assert queue.states()[:2] == ["out of time", "finished"]
    assert queue.table.cancel(3) == "running"
    queue.until_states("out of time", "finished", "canceled")
    assert queue.left() == []
    worker.terminate()
    assert worker.wait(60) == 0


@pytest.mark.slow
def test_killed_workers_lose_no_job_and_never_run_one_twice(queue: Queue) -> None:
    """kill -9 of the worker at random times, and two workers at once."""
    code = """
import os, time
name = "live-" + os.environ["GPUKIT_JOB"]
file = os.open(name, os.O_CREAT | os.O_RDWR)
import fcntl
try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open("twice", "w").close()
count = "count-" + os.environ["GPUKIT_JOB"]
done = len(open(count).read()) if os.path.exists(count) else 0
while done < 12:
    with open(count, "a") as f: f.write("x")
    done += 1
    time.sleep(0.02)
"""
    numbers = [queue.add(code) for _ in range(5)]

    def counted() -> int:
        return sum(path.stat().st_size for path in queue.root.glob("count-*"))

    chance = random.Random(0)
    kills = 0
    while kills < 20 and set(queue.states()) != {"finished"}:
        before = counted()
        workers = [queue.start(), queue.start()]
        queue.until(lambda before=before: counted() > before or set(queue.states()) == {"finished"})
        time.sleep(chance.uniform(0, 0.2))
        for each in workers:
            each.send_signal(signal.SIGKILL)
        kills += 1
    queue.start()
    queue.until(lambda: set(queue.states()) == {"finished"})
    assert kills > 2 and not (queue.root / "twice").exists() and queue.left() == []
    assert [len((queue.root / f"count-{number}").read_text()) for number in numbers] == [12] * 5
    assert max(job["starts"] for job in queue.table.recent(1000)) > 1


PRESSED = """
import os, signal, sys
from pathlib import Path
from gpukit.host.project import Project
from gpukit.host.queue import folder
from gpukit.jobs import worker
root = Path(sys.argv[1])
worker.say = lambda text: signal.raise_signal(signal.SIGINT) if "Ctrl-C" in text else None
make = lambda gpus, folder=root: Project(folder, os.environ, cpu=True)
sys.exit(worker.process(make(""), True, make, folder(root)))
"""


def test_ctrl_c_as_soon_as_it_is_offered(root: Path) -> None:
    command = [sys.executable, "-c", PRESSED, str(root)]
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stopped_worker_puts_its_job_back_and_a_restart_of_the_machine_is_no_live_process(queue: Queue) -> None:
    queue.add("import time; time.sleep(99)")
    worker = queue.start()
    queue.until_states("running")
    second = queue.start()
    assert second.wait(60) != 0  # only one
    assert place.stop(queue.root, dry=False) and worker.wait(60) == 0
    assert queue.states() == ["queued"] and queue.left() == []
    assert not place.stop(queue.root, dry=False)
    # as if the machine had been restarted: the number of the process is another one's now
    lease = {"kind": "native", "token": "t", "boot": "another", "pid": os.getpid(), "born": place.born(os.getpid())}
    assert queue.table.claim(1, lease, "")
    queue.table.cancel(1)
    queue.start()
    queue.until_states("canceled")


def test_the_command_line(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:
    """What it adds, lists, and refuses."""
    assert main(["submit", "--max-hours", "2", "--", "python", "-m", "small.train", "--lr", "1"]) == 0
    assert queue.table.get(1)["command"] == ["python", "-m", "small.train", "--name=job-1", "--lr", "1"]
    out = capsys.readouterr()
    assert out.out == "1\n" and "jobs run" in out.err
    main(["submit", "--priority", "-1", "printf", "\x1b]0;title\x07\x9b31m\u202e"])
    main(["submit", "--after", "2", "--", "torchrun", "-m", "small.train", "--name", "mine"])
    assert main(["jobs", "move", "2"]) == 0 and [job["id"] for job in queue.table.next()] == [2, 1]
    assert main(["jobs", "cancel", "2"]) == 0 and queue.states() == ["queued", "canceled", "held"]
    assert main(["jobs", "retry", "2"]) == 0 and queue.states() == ["queued", "canceled", "queued", "queued"]
    main(["submit", "true"])
    main(["submit", "true"])
    capsys.readouterr()
    assert main(["jobs", "cancel", "2", "5", "6", "--json"]) == 1, "job 2 has ended before"
    assert [job["state"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["canceled", "canceled"]
    capsys.readouterr()
    assert main(["jobs"]) == 0 and main(["jobs", "show", "2"]) == 0
    shown = capsys.readouterr().out
    assert "canceled" in shown and not {*"\x1b\x07\x9b\u202e"} & {*shown}
    (queue.root / ".launch/jobs/1.log").write_bytes(b"a\x1b[31mred\x1b[0m\x1b]0;t\x07 \xff\x9b\x08\rb\n\tc")
    assert main(["jobs", "logs", "1"]) == 0
    assert capsys.readouterr().out == "ared \ufffd\ufffd\\x08\nb\n\tc"
    for wrong in (
        ["submit"],
        ["submit", "-e", "A=secret-value", "true"],
        ["submit", "--gpus", "0", "true"],
        ["submit", "--after", "77", "true"],
        ["submit", "python", "-m", "small.train", "--no-resume"],
        ["--gpus", "0,1", "submit", "true"],
        ["jobs", "show", "77"],
        ["jobs", "cancel", "2"],
        ["jobs", "retry", "1"],
        ["jobs", "cancel"],
    ):
        assert main(wrong) == 1
        assert (said := capsys.readouterr().err).count("\n") == 1 and "secret-value" not in said
    assert len(queue.states()) == 6
    service = queue.root / "compose.yaml"
    options = ["--native", "--cpu"]
    for given, expected in ((options, "--native --cpu jobs run"), (["--cpu"], "--cpu jobs run"), ([], "jobs run")):
        for command in (["submit", "true"], ["jobs"], ["jobs", "retry", "2"]):
            assert main([*given, *command]) == 0
            assert f"`./launch {expected} -d`" in capsys.readouterr().err
    service.write_text("services:\n  dev: {}\n  jobs: {}\n", encoding="utf-8")
    for given, expected in ((options, "--native --cpu jobs run -d"), (["--cpu"], "--cpu up"), ([], "up")):
        assert main([*given, "submit", "true"]) == 0
        assert f"`./launch {expected}`" in capsys.readouterr().err
    assert parse(["jobs", "logs", "-f", "3"]).ID == parse(["jobs", "logs", "3", "-f"]).ID == [3]
    assert parse(["submit", "--gpus", "2", "--", "a", "--gpus", "3"]).rest == ["a", "--gpus", "3"]


@pytest.mark.parametrize("options", [[], ["--native"]])
def test_without_a_gpu_jobs_run_names_the_cpu(
    root: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once: in the background, nobody would see it before the morning."""
    (root / ".devcontainer/devcontainer.json").write_text(json.dumps({**CONFIG, "runArgs": ["--gpus=all"]}))
    monkeypatch.setattr(facts, "no_gpu", lambda: True)
    if options:  # it is not Docker that runs the jobs
        monkeypatch.setattr(Engine, "endpoint", lambda engine: pytest.fail("Docker was asked"))
    assert main([*options, "jobs", "run", "-d"]) == 1
    assert f"`{' '.join(['./launch', *options])} --cpu jobs run ...`" in capsys.readouterr().err


def get(app: Any, path: str, token: str) -> None:
    """A request to the service's application."""
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b""}
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        status.extend([message["status"]] if "status" in message else [])

    asyncio.run(app(scope, receive, send))
    assert status in ([200], [503])  # 503: of /health, because nothing processes this queue


def test_what_is_asked_often_does_not_read_all_that_has_ended(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of SQLite with a history, and with one twenty times as long."""
    folder = place.folder(root)
    steps = [0]

    def step() -> None:
        steps[0] += 1

    def connect(*given: Any, **options: Any) -> sqlite3.Connection:
        base = sqlite3.connect(*given, **options)
        base.set_progress_handler(step, 1)
        return base

    def add(first: int, last: int) -> None:
        rows = [(state, at, at + 3.0, at + 5.0) for at in range(first, last + 1) for state in (FINAL[at % 4],)]
        with contextlib.closing(sqlite3.connect(folder / "queue.sqlite")) as base, base:
            base.executemany(
                "INSERT INTO jobs (state, command, submitted, started, ended, ran, starts, position)"
                " VALUES (?, '[\"true\"]', ?, ?, ?, 2.0, 1, 0)",
                rows,
            )

    Table(folder).base.close()
    add(1, 200)
    (folder / "1.log").write_text("old")
    os.utime(folder / "1.log", (2.0, 2.0))
    (folder / "200.log").write_text("new")
    app = application(root)
    token = (root / place.TOKEN).read_text()
    monkeypatch.setattr("gpukit.jobs.table.sqlite3", Namespace(**{**vars(sqlite3), "connect": connect}))

    def clean_up() -> None:
        with Table(folder) as table:
            worker.Worker(folder, table, None, None, lambda: None).remove_old_logs()

    actions: dict[str, Callable[[], Any]] = {
        "health": lambda: get(app, "/health", token),
        "jobs over HTTP": lambda: get(app, "/jobs", token),
        "jobs": lambda: main(["jobs"]),
        "logs": lambda: main(["jobs", "logs"]),
        "submit": lambda: main(["submit", "true"]),
        "move": lambda: main(["jobs", "move", "201"]),
        "old logs": clean_up,
    }
    counted: list[dict[str, int]] = []
    for last in (200, 4000):
        if last > 200:
            with Table(folder) as table:
                table.base.execute("DELETE FROM jobs WHERE ended IS NULL")
            add(202, last + 1)
            (folder / f"{last + 1}.log").write_text("newest")
        counted.append({})
        for name, action in actions.items():
            steps[0] = 0
            action()
            counted[-1][name] = steps[0]
    assert counted[0].keys() == {name for name, count in counted[1].items() if count < 1.2 * counted[0][name]}, counted
    assert not (folder / "1.log").exists() and (folder / "200.log").exists()
    with Table(folder) as table:
        assert table.get(1)["state"] == FINAL[1] and table.get(4001)["command"] == ["true"]  # and nothing is lost
        asked: list[str] = []
        table.base.set_trace_callback(asked.append)
        totals = table.totals()
        table.base.set_trace_callback(None)
        (plan,) = table.base.execute(f"EXPLAIN QUERY PLAN {asked[0]}").fetchall()
        assert "COVERING INDEX" in plan["detail"]  # it counts all jobs, and reads no row of one
        assert sum(totals[state][0] for state in FINAL) == 4000
        assert [sum(totals[state][at] for state in FINAL) for at in (1, 2)] == [3 * 4000, 2 * 4000]


def test_databases_that_cannot_be_used(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place.folder(root)
    with Table(folder) as table:
        table.submit(["true"])
    with contextlib.closing(sqlite3.connect(folder / "queue.sqlite")) as base:
        base.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(RefusalError, match="newer"):
        Table(folder)
    for path in folder.glob("queue.sqlite*"):
        path.unlink()
    (folder / "queue.sqlite").write_bytes(b"no database" * 999)
    with pytest.raises(RefusalError, match="damaged"):
        Table(folder)
    (folder / "queue.sqlite").unlink()
    with Table(folder) as table:
        table.base.execute("PRAGMA query_only = 1")  # root may write read-only files
        with pytest.raises(RefusalError, match="writable"):
            table.submit(["true"])
        table.base.execute("PRAGMA query_only = 0")
        table.base.execute("CREATE TRIGGER full BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'x'); END")
        with pytest.raises(RefusalError):
            table.submit(["true"])
        assert table.recent(1000) == []
    monkeypatch.setattr(place, "file_system", lambda _: 0x6969)
    with pytest.raises(RefusalError, match="NFS"):
        place.folder(root)
    with pytest.raises(RefusalError, match="--on slurm"):
        act(root, parse(["submit", "--", "true"]))
    with pytest.raises(RefusalError, match="NFS"):
        act(root, parse(["jobs"]))
    records.write(slurm.folder(root), {**RECORD, "state": "finished", "ended": 2.0})
    assert act(root, parse(["jobs"])) == 0 and "s12  finished" in capsys.readouterr().out


def test_a_full_disk(root: Path) -> None:
    """A job fills it: the worker says so, waits, and goes on when there is space; the table keeps every job."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    (root / ".launch").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(root / ".launch")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    queue = Queue(root)
    try:
        fills = "import sys\nwith open('.launch/big', 'wb', 0) as file:\n while file.write(b'x' * 4096) == 4096: pass"
        queue.add(fills)
        queue.add("print('done')")
        worker = queue.start()
        big = root / ".launch/big"
        queue.until(lambda: big.exists() and not os.statvfs(root / ".launch").f_bavail)
        while b"free space on this disk" not in worker.stderr.readline():  # it has tried to record the end of the job
            assert worker.poll() is None
        big.unlink()
        queue.until_states("failed", "finished")
        assert "done" in queue.log(2) and queue.left() == []
    finally:
        for each in queue.workers:
            each.kill()
            each.communicate()
        queue.table.base.close()
        subprocess.run(["umount", "--lazy", str(root / ".launch")], check=True)


def test_logs_are_bounded(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.dup2(read, 0)
        copy_log(str(tmp_path / "log"), 100_000)
        os._exit(0)
    os.close(read)
    for number in range(4000):
        os.write(write, b"%099d\n" % number)
    os.close(write)
    os.waitpid(child, 0)
    sizes = [(tmp_path / name).stat().st_size for name in ("log", "log.1")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1"] and max(sizes) <= 100_000
    assert (tmp_path / "log").read_bytes().endswith(b"3999\n")


@pytest.mark.parametrize(
    ("state", "code", "outcome"),
    [
        (["exited", "0", "false"], 0, "finished"),
        (["exited", "1", "false"], 1, "failed"),
        (["exited", "137", "true"], 137, "failed"),
        (["exited", "139", "false"], 139, "failed"),
        (["exited", "143", "false"], 143, "interrupted"),  # docker stop, or the engine was stopped
        (["exited", "0", "false"], 125, "interrupted"),  # the engine was restarted
        (["created", "127", "false"], 127, "failed"),
        (None, 137, "interrupted"),  # docker rm --force
        (None, 125, "failed"),
    ],
)
def test_outcomes_of_containers(monkeypatch: pytest.MonkeyPatch, state: Any, code: int, outcome: str) -> None:
    monkeypatch.setattr(Container, "_state", lambda *_: state)
    monkeypatch.setattr(Container, "__init__", lambda _: None)
    assert Container().outcome({}, code)[0] == outcome


def test_a_job_whose_image_cannot_be_built_is_tried_again_fails_at_last_and_keeps_no_other_waiting(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    class Broken:
        kind = "container"
        lease = staticmethod(lambda _: {"container": "x"})
        remove = staticmethod(lambda _: None)

        def command(self, lease: Any, job: dict[str, Any], *_: Any) -> Any:
            tried.append(job["id"])
            raise RefusalError("The image cannot be built.")

    queue.add("")
    queue.add("")
    project = Namespace(root=queue.root, env={})
    one = worker.Worker(place.folder(queue.root), queue.table, Broken(), None, lambda: project)
    one.tick()
    one.tick()  # not at once again
    assert tried == [1, 2] and queue.states() == ["queued", "queued"]
    assert "cannot be built" in queue.table.get(1)["note"] and queue.table.get(1)["starts"] == 1
    queue.table.claim(2, {}, "")  # and then the disk was full
    one.tick()
    assert queue.states() == ["queued", "queued"]

    def command(*_: Any) -> Any:
        one._stop()  # the signal arrives during the build

    monkeypatch.setattr(Broken, "command", command)
    one.not_before = {}
    one.tick()
    assert queue.states() == ["queued", "queued"] and one.active == {}
    monkeypatch.undo()
    one.stopping = 0
    for _ in range(worker.TRIES):
        one.not_before = {}
        one.tick()
    assert queue.states() == ["failed", "failed"] and "cannot be built" in queue.table.get(1)["note"]
    assert tried == [1, 2] * worker.TRIES


def test_a_finished_container_is_not_run_again_because_the_disk_was_full(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RefusalError("The disk is full.")

    nothing = lambda *_: None  # noqa: E731
    outcomes = iter([("finished", "", 0)])  # asked again, the container is gone
    runner = Namespace(signal=nothing, alive=nothing, remove=nothing, outcome=lambda *_: next(outcomes))
    one = worker.Worker(place.folder(queue.root), queue.table, runner, None, nothing)
    queue.table.claim(queue.add(""), {}, "")
    started = Namespace(process=Namespace(poll=lambda: 0, returncode=0), close=nothing)
    one.active[1] = worker.Active(queue.table.get(1), {}, started, [])
    with monkeypatch.context() as patch:
        patch.setattr(queue.table, "end", full)
        with pytest.raises(RefusalError):
            one.tick()
    one.tick()
    assert queue.states() == ["finished"]
