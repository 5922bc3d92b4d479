"""`./launch --host`: a second user of this machine behind a real sshd, without git, rsync, and sudo there."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpukit.cli import main as cli
from gpukit.project.location import ADOPTED
from gpukit.project.messages import RefusalError
from gpukit.remote import connection, files, there
from gpukit.remote.connection import Host
from tests.conftest import ENGINE, cannot, git, started, until

from .box import NAME, Box, box
from .conftest import write_project
from .test_native import FACTS, PYPROJECT, TARGETS, indexes  # noqa: F401 - a fixture

pytestmark = pytest.mark.program
PATIENCE = 180  # seconds, for what takes one or two on an idle machine
FOREVER = "while :; do sleep 0.1; done"
SECRET = "planted-93b1f0"
FILES = ("stack.json", ".devcontainer/devcontainer.json", ".devcontainer/cpu/devcontainer.json")
IGNORED = "/outputs/\n/data/\n/.env\n/.launch/\n__pycache__/\n"
# Trains until a signal, then saves and ends with 5; with an argument, ends with that status at once.
TRAIN = """\
import os, signal, sys, time
def save(number, frame):
    with open("outputs/saved", "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    sys.exit(5)
signal.signal(signal.SIGINT, save)
signal.signal(signal.SIGTERM, save)
print("begun", os.environ.get("HF_TOKEN") == os.environ.get("EXPECTED"), flush=True)
print("a warning", file=sys.stderr, flush=True)
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def machine(indexes: Path) -> Iterator[Box]:  # noqa: F811
    if not shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin"):
        cannot("sshd is needed: `apt-get install openssh-server`")
    with box(
        UV_DEFAULT_INDEX="file://{place}/indexes/ordinary",
        UV_INDEX="pytorch=file://{place}/indexes/cpu",
        UV_PYTHON_DOWNLOADS="never",
        UV_PYTHON_PREFERENCE="only-system",
        DOCKER_HOST=ENGINE,
    ) as found:
        shutil.copytree(indexes, found.place / "indexes")
        (found.place / "indexes").chmod(0o755)
        yield found


class Laptop:
    """A project, and its `./launch`."""

    def __init__(self, root: Path, machine: Box, native: bool = True) -> None:
        self.root = root
        self.machine = machine
        self.flags = ["--native", "--cpu"] if native else ["--cpu"]
        self.there = machine.home / ("gpukit/small" if native else "container")
        self.host = NAME if native else f"{NAME}:container"
        python = subprocess.run([machine.place / "path/python3", "--version"], capture_output=True, text=True).stdout
        version = ".".join(python.split()[1].split(".")[:2])
        native = {**FACTS, "torch": "2.13.0+cu130", "python": version, "pythons": [version]}
        stack = {"project": "small", "protected": ["torch"], "targets": TARGETS, "native": native}
        write_project(root)
        (root / "stack.json").write_text(json.dumps(stack))
        (root / "pyproject.toml").write_text(PYPROJECT)
        (root / ".gitignore").write_text(IGNORED)
        (root / ".env").write_text(f"HF_TOKEN={SECRET}\n")
        (root / "train.py").write_text(TRAIN)
        git("init", "-q", cwd=root)
        self.env = {**os.environ, **machine.environment}
        self.env.pop("HF_TOKEN", None)

    def argv(self, *arguments: str, host: str = "") -> list[str]:
        return ["/bin/sh", str(self.root / "launch"), f"--host={host or self.host}", *self.flags, *arguments]

    def launch(self, *arguments: str, host: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        command = self.argv(*arguments, host=host)
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 100}
        return subprocess.run(command, env={**self.env, **env}, **options)

    @contextlib.contextmanager
    def training(self) -> Iterator[subprocess.Popen[str]]:
        """`run` that follows a training."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = self.argv("run", "-e", f"EXPECTED={SECRET}", "--", "python3", "train.py")
        with started(*command, env=self.env, stdin=subprocess.DEVNULL, start_new_session=True, **pipes) as process:
            assert process.stdout.readline() == "begun True\n", process.stderr.read()
            yield process

    def saved(self) -> list[str]:
        file = self.there / "outputs/saved"
        return file.read_text().split() if file.exists() else []


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory, machine: Box) -> Laptop:
    return Laptop(tmp_path_factory.mktemp("laptop") / "small", machine)


@pytest.fixture
def host(machine: Box, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Host]:
    """A folder of its own there, for tests that call functions."""
    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    yield Host(f"{NAME}:tests/{tmp_path.name}", "")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    git("init", "-q", cwd=path)
    (path / ".gitignore").write_text(IGNORED)
    return path


def at(machine: Box, host: Host) -> Path:
    return machine.home / host.folder


def contents(folder: Path) -> set[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return {name for name in found if not name.startswith((".launch/", ".git/"))}


# Commands


def test_run_returns_the_status_of_the_program(laptop: Laptop) -> None:
    (laptop.root / "data").mkdir()
    (laptop.root / "data/big.bin").write_text("ignored")
    for status in ("96", "255"):
        done = laptop.launch("run", "-e", f"EXPECTED={SECRET}", "--", "python3", "train.py", status)
        assert (done.returncode, done.stdout) == (int(status), "begun True\na warning\n"), done.stderr
        assert NAME in done.stderr.splitlines()[0]
    git_would = {name for name in contents(laptop.root) if not name.startswith(("data/", ".env", "outputs/"))}
    assert contents(laptop.there) == git_would
    kept = [path.name for path in (laptop.there / ".launch/native").iterdir()]
    assert kept == []  # as after a `run` here
    assert (laptop.there.stat().st_mode & 0o077) == 0


def test_a_lost_connection_ends_nothing(laptop: Laptop) -> None:
    lost(laptop)


def lost(laptop: Laptop) -> None:
    with laptop.training() as process:
        sessions = [int(pid) for pid in children(process.pid) if "ssh" in command_line(pid)]
        for pid in sessions:
            os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == connection.LOST
    again = re.search(r"`(\./launch .*? logs -f (\S+))`", errors)
    assert again and laptop.saved() == []
    with started(*laptop.argv("logs", "-f", again[2]), env=laptop.env, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout.readline() == "begun True\n"
        assert laptop.launch("stop").returncode == 0
        assert following.wait(timeout=PATIENCE) == 5
    assert laptop.saved() == ["SIGTERM"]
    (laptop.there / "outputs/saved").unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_stops(laptop: Laptop, number: signal.Signals) -> None:
    interrupted(laptop, number)


def interrupted(laptop: Laptop, number: signal.Signals = signal.SIGINT) -> None:
    with laptop.training() as process:
        os.killpg(process.pid, number)
        process.communicate(timeout=PATIENCE)
    assert (process.returncode, laptop.saved()) == (5, [number.name])
    (laptop.there / "outputs/saved").unlink()


def test_ctrl_c_between_the_start_and_the_following_ends_the_run(laptop: Laptop) -> None:
    command = laptop.argv("run", "--", "sh", "-c", f"trap 'exit 5' INT; {FOREVER}")
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with started(*command, env=laptop.env, stdin=subprocess.DEVNULL, **pipes) as process:
        name = next(found[0] for line in process.stderr if (found := re.match("run-[0-9a-f]{6}", line)))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=PATIENCE) in (5, 130)  # the latter: before the program listens
    assert list((laptop.there / ".launch/native").glob(f"{name}.*")) == []  # it has ended, as after a `run` here


def test_values_are_in_no_list_of_processes_and_no_file(laptop: Laptop, tmp_path: Path) -> None:
    with laptop.training() as process:
        assert SECRET not in laptop.machine.processes().replace(f"EXPECTED={SECRET}", "", 2)  # typed by the user
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    done = laptop.launch("run", "-d", "--name", "quiet", "-e", "HF_TOKEN", "--", "python3", "train.py", "0")
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr
    where = [laptop.machine.home, laptop.machine.place, laptop.root]
    hits = subprocess.run(["grep", "-rlF", SECRET, *where], capture_output=True, text=True).stdout.split("\n")
    assert [hit for hit in hits if hit] == [str(laptop.root / ".env")]
    (laptop.there / ".launch/native/quiet.status").unlink()  # as after a restart of that machine
    done = laptop.launch("logs", "-f", "quiet")
    assert done.returncode == 1 and "restarted" in done.stderr


def test_what_is_there_is_asked_without_sending(laptop: Laptop, host: Host) -> None:
    files.send(Host(laptop.host, "gpukit/small"), laptop.root, "./launch")
    (laptop.root / "unsent.txt").write_text("")
    done = laptop.launch("stop")
    assert done.returncode == 0 and not (laptop.there / "unsent.txt").exists()
    missing = laptop.launch("logs", host=f"{NAME}:nowhere")
    assert missing.returncode == 1 and f"--host {NAME}:nowhere" in missing.stderr
    (laptop.root / "unsent.txt").unlink()


def test_a_job_runs_the_code_that_was_sent_with_it(laptop: Laptop) -> None:
    """There is no git, so each job has a copy of the files."""
    train = laptop.root / "train.py"
    for number in (1, 2):
        train.write_text(f"print('code', {number})\nopen('new', 'w').close()\n" + "#\n" * number)
        assert laptop.launch("submit", "--", "python3", "train.py").stdout == f"{number}\n"
    train.write_text(TRAIN)
    assert laptop.launch("jobs", "run", "-d").returncode == 0
    waited = laptop.launch("jobs", "wait", "1", "2")
    assert laptop.launch("stop").returncode == waited.returncode == 0, waited.stderr
    for number in (1, 2):
        assert laptop.launch("jobs", "logs", str(number)).stdout == f"code {number}\n"
        assert (laptop.there / f"outputs/job-{number}-files/new").exists()
    table = json.loads(laptop.launch("jobs", "compare", "--json").stdout)
    assert [job["changed"] for job in table["jobs"]] == [[], [{"path": "train.py", "added": 2, "removed": 1}]]
    left = [path.name for path in (laptop.there / ".launch/jobs").iterdir() if path.is_dir()]
    assert left == ["copies"]


def test_options_and_values_go_where_they_belong(laptop: Laptop) -> None:
    """A program's own --host is its own, and values of -e are in no command line."""
    shown = laptop.launch("--dry-run", "shell", "serve", "--host=0.0.0.0").stdout
    assert "--host=0.0.0.0" in shown and f"--host={NAME}" not in shown
    shown = laptop.launch("--dry-run", "--no-credentials", "run", "-e", f"EXPECTED={SECRET}", "true").stdout
    assert "--no-credentials run -e EXPECTED" in shown and SECRET not in shown


def test_the_default_host_is_in_env(laptop: Laptop) -> None:
    env = laptop.root / ".env"
    before = env.read_text()
    env.write_text(f"{before}GPUKIT_HOST={NAME}\n")
    try:
        command = ["/bin/sh", str(laptop.root / "launch"), "--native"]
        options = {"env": laptop.env, "capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        there_ = subprocess.run([*command, "stop"], **options)
        assert NAME in there_.stderr.splitlines()[0]
        for arguments in (["--host=", "stop"], ["doctor", "--early"]):
            here = subprocess.run([*command, *arguments], **options)
            assert here.returncode in (0, 1) and NAME not in here.stderr, here.stderr
    finally:
        env.write_text(before)


def test_explain_reads_here_and_answers_for_the_machine_there(laptop: Laptop, tmp_path: Path) -> None:
    (tmp_path / "error.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    found = laptop.launch("explain", "--json", str(tmp_path / "error.log"))
    assert found.returncode in (0, 1) and json.loads(found.stdout), found.stderr


def test_notebook_is_forwarded(laptop: Laptop) -> None:
    with started(*laptop.argv("notebook"), env=laptop.env, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        port = re.match(r"http://127\.0\.0\.1:(\d+)/lab", address)[1]
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=PATIENCE).status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 0
    assert laptop.launch("stop").returncode == 0


def test_a_terminal_is_one_there(laptop: Laptop) -> None:
    import pty

    ours, theirs = pty.openpty()
    with started(*laptop.argv("shell"), env=laptop.env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.write(ours, b"tty; [ ${#HF_TOKEN} = %d ] && exit 3\n" % len(SECRET))
        output = b""
        while process.poll() is None or select_readable(ours):
            if select_readable(ours):
                output += os.read(ours, 4096)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 3 and b"/dev/pts/" in output, output.decode()


def select_readable(file: int) -> bool:
    import select

    return bool(select.select([file], [], [], 0.1)[0])


def children(pid: int) -> list[str]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [*listed, *(inner for child in listed for inner in children(int(child)))]


def command_line(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


@pytest.mark.engine
def test_the_same_in_a_container(tmp_path: Path, machine: Box) -> None:
    def docker(*arguments: str) -> list[str]:
        command = ["docker", "-H", ENGINE, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=100).stdout.split()

    if not docker("image", "ls", "-q", "standin/python:slim"):
        cannot(f"needs an engine on {ENGINE}, and the image standin/python:slim")
    laptop = Laptop(tmp_path / "small", machine, native=False)
    (laptop.root / "pyproject.toml").write_text(PYPROJECT.replace('"torch", "fruit"', "").replace('"jupyterlab"', ""))
    label = f"--filter=label=gpukit.project={laptop.there}"
    try:
        done = laptop.launch("run", "-e", f"EXPECTED={SECRET}", "--", "python3", "train.py", "7")
        assert (done.returncode, done.stdout) == (7, "begun True\n") and "a warning" in done.stderr, done.stderr
        assert docker("ps", "-aq", label) == []
        interrupted(laptop)
        lost(laptop)
    finally:
        for container in docker("ps", "-aq", label):
            docker("rm", "--force", container)
        for image in docker("images", "-q", label):
            docker("rmi", "--force", image)


def test_an_adopted_repository(tmp_path: Path, machine: Box) -> None:
    laptop = Laptop(tmp_path / "theirs", machine)
    root = laptop.root
    host = f"{NAME}:adopted"
    (root / "vendor").rename(root / ADOPTED["vendor"])
    for name in FILES:
        (root / ADOPTED[name]).parent.mkdir(exist_ok=True)
        (root / name).rename(root / ADOPTED[name])
    stack = json.loads((root / ADOPTED["stack.json"]).read_text())
    (root / ADOPTED["stack.json"]).write_text(json.dumps({**stack, "dependencies": ["pyproject.toml"]}))
    (root / ".gpukit/.gitignore").write_text("*\n!.gitignore\n!stack.json\n")
    (root / ".gitignore").write_text("*.pt\n")
    (root / "data").mkdir()
    (root / "data/own.py").write_text("print('own')\n")
    done = laptop.launch("run", "--", "python3", "train.py", "7", host=host)
    assert (done.returncode, done.stdout.split()[0]) == (7, "begun"), done.stderr
    command = "python3 data/own.py; mkdir out; echo 1 > out/log.csv"
    assert laptop.launch("submit", "--latest", "--", "sh", "-c", command, host=host).returncode == 0  # no git there
    assert laptop.launch("jobs", "run", "-d", host=host).returncode == 0
    done = laptop.launch("jobs", "wait", "1", host=host)
    assert done.returncode == 0, done.stderr
    assert laptop.launch("jobs", "logs", "1", host=host).stdout == "own\n"
    laptop.launch("stop", host=host)
    assert laptop.launch("fetch", "out", host=host).returncode == 0
    assert (root / "out/log.csv").read_text() == "1\n"


# Files


def test_what_travels(root: Path, host: Host, machine: Box) -> None:
    """What git would commit, also in data/ where it is tracked; names are any bytes but NUL and /."""
    names = ["plain.py", "with blank", "line\nfeed", "quote'\"$x", "ü", "data/prepare.py", "tool.sh", "-e"]
    (root / "data").mkdir()
    for name in [*names, "data/untracked.bin", ".env", "ignored.log"]:
        (root / name).write_text(name)
    (root / os.fsdecode(b"\xff.txt")).write_text("not UTF-8")
    (root / "tool.sh").chmod(0o755)
    (root / "link").symlink_to("plain.py")
    (root / ".gitignore").write_text(f"{IGNORED}*.log\n")
    git("add", "-f", "data/prepare.py", cwd=root)
    (root / "outputs").mkdir()
    (root / "outputs/run.txt").write_text("mine")
    (root / "submodule").mkdir()  # which is not checked out
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},submodule", cwd=root)
    files.send(host, root, "./launch")
    place = at(machine, host)
    assert contents(place) == {*names, "link", ".gitignore", os.fsdecode(b"\xff.txt")}
    assert all((place / name).read_text() == name for name in names)
    assert os.access(place / "tool.sh", os.X_OK) and (place / "link").is_symlink()


def test_a_second_send(root: Path, host: Host, machine: Box, capfd: pytest.CaptureFixture[str]) -> None:
    """It sends what has changed, deletes what was sent and is gone, and leaves the other machine's own files."""
    for name in ("a/b/one.py", "a/two.py", "thing", "three.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    place = at(machine, host)
    assert Path(files.send(host, root, "./launch")) == place  # new
    for name in ("outputs/run/log.txt", "data/set.bin", ".env", "a/own.txt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("theirs")
    (root / "a/b/one.py").unlink()
    (root / "a/two.py").unlink()
    (root / "thing").unlink()
    (root / "thing").mkdir()
    (root / "thing/inner.py").write_text("inner")
    (root / "three.py").write_text("thr33.py")
    capfd.readouterr()
    assert files.send(host, root, "./launch") == ""
    assert "2 files" in capfd.readouterr().err
    own = {"outputs/run/log.txt", "data/set.bin", ".env", "a/own.txt"}
    assert contents(place) == {".gitignore", "thing/inner.py", "three.py", *own}
    assert not (place / "a/b").exists() and (place / "three.py").read_text() == "thr33.py"
    (root / "thing/inner.py").unlink()
    (root / "thing").rmdir()
    (root / "thing").write_text("a file again")
    files.send(host, root, "./launch")
    assert (place / "thing").read_text() == "a file again"
    capfd.readouterr()
    files.send(host, root, "./launch")
    assert capfd.readouterr().err == ""  # nothing to send


@pytest.mark.parametrize("when", [0, 4_000_000_000])
def test_sending_goes_by_content_and_not_by_times(root: Path, host: Host, machine: Box, when: int) -> None:
    """Neither clock counts: the files here are from 1970 or 2096, and one changes without another time or size."""
    for text in ("one", "two"):
        (root / "file.py").write_text(text)
        os.utime(root / "file.py", (when, when))
        files.send(host, root, "./launch")
        assert (at(machine, host) / "file.py").read_text() == text


def test_what_was_edited_there_is_not_replaced(root: Path, host: Host, machine: Box) -> None:
    for name in ("one.py", "two.py"):
        (root / name).write_text(name)
    files.send(host, root, "./launch")
    place = at(machine, host)
    (place / "one.py").write_text("edited there")
    (place / "new.py").write_text("made there")
    (root / "two.py").write_text("2")
    with pytest.raises(RefusalError, match="one"):
        files.send(host, root, "./launch")
    assert (place / "two.py").read_text() == "two.py"  # all or nothing
    files.fetch(host, root, "one.py", [])
    assert (root / "one.py").read_text() == "edited there"
    files.send(host, root, "./launch")
    (root / "new.py").write_text("made here, too")
    with pytest.raises(RefusalError, match="new"):
        files.send(host, root, "./launch")
    (root / "new.py").unlink()
    (place / "two.py").write_text("edited there")  # and then deleted here
    (root / "two.py").unlink()
    files.send(host, root, "./launch")
    assert (place / "two.py").read_text() == "edited there"


def test_two_laptops_and_one_folder(
    root: Path, host: Host, machine: Box, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "mine.py").write_text("mine")
    files.send(host, root, "./launch")
    other = tmp_path / "other"
    shutil.copytree(root, other, ignore=shutil.ignore_patterns(".launch"))
    (other / "mine.py").write_text("theirs")
    default = Host(NAME, host.folder)
    copied = Path(shutil.copytree(root, tmp_path / "with its .launch"))
    with pytest.raises(RefusalError, match=re.escape(f"--host {default}")):
        files.send(default, copied, "./launch")
    with pytest.raises(RefusalError, match=re.escape(f"--host {default}")):
        files.send(default, other, "./launch")
    assert (at(machine, host) / "mine.py").read_text() == "mine"
    files.send(host, other, "./launch")  # this one names the folder
    assert (at(machine, host) / "mine.py").read_text() == "theirs" and str(root) in capfd.readouterr().err
    with (at(machine, host) / ".launch/sent.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        options = {
            "stderr": subprocess.PIPE,
            "text": True,
            "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        }
        with started(sys.executable, "-c", SEND, str(root), str(host), **options) as sending:
            assert "waiting" in sending.stderr.readline()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert sending.wait(timeout=PATIENCE) == 0
    assert (at(machine, host) / "mine.py").read_text() == "mine"


SEND = """
import pathlib, sys
from gpukit.remote import connection, files
files.send(connection.Host(sys.argv[2], ""), pathlib.Path(sys.argv[1]), "./launch")
"""


def test_an_interrupted_send_changes_nothing(root: Path, host: Host, machine: Box) -> None:
    """Half of a file, and the line is lost; the next send is whole."""
    (root / "one.py").write_text("one")
    files.send(host, root, "./launch")
    (root / "one.py").write_text("1" * 1_000_000)
    (root / "two.py").write_text("two")
    wanted = {name: there.identify(root / name) for name in (".gitignore", "one.py", "two.py")}
    facts = {"files": wanted, "sizes": dict.fromkeys(wanted, 1), "sender": files.sender(root)}
    with contextlib.suppress(RefusalError), host.exchange("receive", **facts) as (process, answers):
        next(answers)
        process.stdin.write((1000).to_bytes(4, "big") + b"1" * 500)
    place = at(machine, host)
    until(lambda: not list(place.glob(".launch/incoming-*")))
    assert contents(place) == {".gitignore", "one.py"} and (place / "one.py").read_text() == "one"
    (place / ".launch/incoming-killed").mkdir()
    files.send(host, root, "./launch")
    assert (place / "one.py").read_text() == "1" * 1_000_000
    assert list(place.glob(".launch/incoming-*")) == []


def test_a_send_killed_while_it_put_files_in_place(root: Path) -> None:
    """Some of the new files are there, and the manifest knows both versions: none of them counts as edited there."""
    before = there.Folder(root, {"files": {"a": ["file", "new"]}})
    before.sent = {"a": ["file", "old", None]}
    before.coming = {"a": ["file", "newer"]}
    assert before.is_ours("a", ["file", "old"]) and before.is_ours("a", ["file", "newer"])
    assert not before.is_ours("a", ["file", "edited"])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_full_disk(root: Path, host: Host, machine: Box) -> None:
    place = machine.place / "full"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k,mode=777", "tmpfs", place], check=True)
    try:
        host = Host(f"{NAME}:{place}", host.folder)
        (root / "small.py").write_text("small")
        files.send(host, root, "./launch")
        (root / "big.py").write_text("x" * 1_000_000)
        with pytest.raises(RefusalError, match="free"):
            files.send(host, root, "./launch")
        assert contents(place) == {".gitignore", "small.py"}
        (root / "big.py").write_text("y")
        files_there = os.statvfs(place)
        used = files_there.f_files - files_there.f_ffree
        subprocess.run(["mount", "-o", f"remount,nr_inodes={used}", place], check=True)  # no other file fits
        with pytest.raises(RefusalError, match="make room"):
            files.send(host, root, "./launch")
        assert contents(place) == {".gitignore", "small.py"}
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # its sshd may still look at it


def test_fetch(root: Path, host: Host, machine: Box, capfd: pytest.CaptureFixture[str]) -> None:
    """What is new there; not checkpoints, and nothing of this machine's own is replaced."""
    files.send(host, root, "./launch")
    place = at(machine, host)
    theirs = {"run/log.txt": "one", "run/checkpoints/step-1/model.pt": "big", "other/log.txt": "theirs", "ne\nw": "x"}
    for name, text in theirs.items():
        (place / "outputs" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "outputs" / name).write_text(text)
    (place / "outputs/latest").symlink_to("run")
    (place / "outputs/away").symlink_to("/etc")
    (root / "outputs/other").mkdir(parents=True)
    (root / "outputs/other/log.txt").write_text("mine")
    leave_out = ["checkpoints/step-*"]
    assert set(files.fetch(host, root, "outputs", leave_out)) == {
        "outputs/run/log.txt",
        "outputs/ne\nw",
        "outputs/latest",
    }
    left = [line for line in capfd.readouterr().err.splitlines() if line.startswith("Not fetched")]
    assert len(left) == 2 and "outputs/away" in left[0] and "outputs/other/log.txt" in left[1]
    assert (root / "outputs/other/log.txt").read_text() == "mine"
    assert not (root / "outputs/run/checkpoints").exists() and not (root / "outputs/away").is_symlink()
    assert (root / "outputs/latest").resolve() == root / "outputs/run"
    if os.getuid() == 0:
        assert (root / "outputs/run/log.txt").stat().st_uid == 0
    (place / "outputs/run/log.txt").write_text("one two")  # it goes on there
    assert files.fetch(host, root, "outputs", leave_out) == ["outputs/run/log.txt"]
    assert (root / "outputs/run/log.txt").read_text() == "one two"
    assert files.fetch(host, root, "outputs/run", []) == ["outputs/run/checkpoints/step-1/model.pt"]
    for path in ("../x", "/etc/passwd", ".", ".git/config", ".launch"):
        with pytest.raises(RefusalError):
            files.fetch(host, root, path, [])
    with pytest.raises(RefusalError, match="does not exist"):
        files.fetch(host, root, "outputs/none", [])
    (place / "outputs/run/log.txt").write_text("another user's")
    (place / "outputs/run/log.txt").chmod(0)
    with pytest.raises(RefusalError, match="Permission denied"):
        files.fetch(host, root, "outputs/run", [])


def test_a_host_cannot_write_elsewhere(root: Path) -> None:
    """What it sends is in the path that was asked for, and no link leads out of that."""
    inside = files.PurePosixPath("outputs")
    assert files._is_in("outputs/a/b", inside)
    assert not any(files._is_in(name, inside) for name in ("outputs/../x", "/etc/x", "x", "outputs2/x"))
    assert not any(files._leaves("outputs/a/link", target) for target in ("b", "../b", "..b"))
    assert all(files._leaves("outputs/a/link", target) for target in ("/etc", "../../.git", "../.."))
    assert files._leaves("link", ".git")


# The connection


@pytest.mark.parametrize(
    ("name", "destination", "folder"),
    [
        ("box", "box", "default"),
        ("me@box", "me@box", "default"),
        ("me@box:work/a b", "me@box", "work/a b"),
        ("box:~/here/", "box", "here"),
        ("box:/scratch/me", "box", "/scratch/me"),
        ("me@[fe80::1]:x", "me@fe80::1", "x"),
    ],
)
def test_names_of_hosts(name: str, destination: str, folder: str) -> None:
    found = Host(name, "default")
    assert (found.destination, found.folder) == (destination, folder)


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "", "@", "[box", "ssh://me@box:2222"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(RefusalError, match="me@box"):
        Host(name, "default")


LISTENS = """
import signal, sys, time
time.sleep(0.5)
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
time.sleep(60)
"""


def test_ctrl_c_before_a_command_has_started(root: Path, host: Host) -> None:
    """It is passed on once it has; one that is held, once the command listens."""
    listens = f"trap 'exit 7' INT; {FOREVER}"  # in sh, because Python ends in several ways while it starts
    (root / "launch").write_text(f"[ $# = 0 ] || exec python3 -c '{LISTENS}'\n{listens}\n")
    files.send(host, root, "./launch")
    with host.passing_on():
        os.kill(os.getpid(), signal.SIGINT)
        assert host.run([], {}, "").code in (7, 130)  # the latter: before it listens
        os.kill(os.getpid(), signal.SIGINT)
        assert host.run(["later"], {}, "", held=True).code == 7


def test_a_host_without_a_fitting_python(root: Path, host: Host, machine: Box) -> None:
    with machine.programs("sh", "bash", "env") as folder:
        with pytest.raises(RefusalError, match="has no Python"):
            files.send(host, root, "./launch")
        with pytest.raises(RefusalError, match="has no Python"):
            host.run(["stop"], {}, "")
        (folder / "python3").write_text('#!/bin/sh\n[ "$1" != --version ] || echo Python 3.8.20\nexit 1\n')
        (folder / "python3").chmod(0o755)
        with pytest.raises(RefusalError, match=r"Python 3\.8\.20.*3\.9"):
            files.send(host, root, "./launch")


def test_a_host_key_that_changed(root: Path, host: Host, machine: Box) -> None:
    host.control("exit")
    before = machine.known_hosts.read_text()
    other = (machine.place / "laptop/key.pub").read_text().split()[1]
    machine.known_hosts.write_text(" ".join([*before.split()[:2], other]) + "\n")
    try:
        with pytest.raises(RefusalError, match="ssh-keygen -R"):
            files.send(host, root, "./launch")
    finally:
        machine.known_hosts.write_text(before)


def test_a_connection_that_died_in_its_sleep(
    root: Path, host: Host, machine: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The open one no longer answers; the next command opens another."""
    host.connect()
    sessions = [int(pid) for pid in children(machine.sshd.pid)]
    for pid in sessions:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(connection, "ANSWERS", 1.0)
    try:
        files.send(host, root, "./launch")
    finally:
        for pid in sessions:
            os.kill(pid, signal.SIGKILL)


def test_what_the_other_machine_prints_of_its_own_is_no_answer(host: Host) -> None:
    """A login script may print; only lines with our mark count."""
    noise = io.BytesIO(b"Welcome!\n" + there.MARK + b'{"done": true}\n')
    assert list(host.answers(SimpleNamespace(stdout=noise))) == [{"done": True}]


def test_commands_of_this_machine(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--host", NAME, "validate"]) == 1 and "--host" in capfd.readouterr().err
    assert cli.main(["--host", NAME, "pin", "--remove"]) == 1 and "--host" in capfd.readouterr().err
    assert cli.main(["fetch"]) == 1 and "--host" in capfd.readouterr().err
