"""launch on real engines, one that grants GPU requests and one that refuses them, as an ordinary user."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import pwd
import re
import select
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpukit.host import podman
from gpukit.host.facts import pci
from gpukit.wheel import vendor, writer
from tests.conftest import ENGINE, GPU_ENGINE, ROOT, cannot
from tests.launch.conftest import write_project
from tests.ports import free_port

pytestmark = pytest.mark.engine
BASE = "standin/python:slim"
WITH_TORCH = "docker.io/standin/pytorch:ngc"
GRANTS = GPU_ENGINE
REFUSES = ENGINE
SECRET = "planted-3f9a7c"
PATIENCE = 60  # seconds; on an idle machine, everything ends in a few
Running = subprocess.Popen[str]
PODMAN_AS = "/opt/podman/bin/podman-as"
PODMAN_USER = os.environ.get("GPU_TEMPLATE_PODMAN_USER", "podman-tests")
PODMANS_GPUS = Path("/opt/podman/cdi", PODMAN_USER, "nvidia.json")  # its CDI specification
SAME_ON_PODMAN = pytest.mark.podman


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All tests run on Docker, and on Podman those marked; with ALL_ON_PODMAN all others too, but for Compose's."""
    if "place" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker
        both = mark("podman") or (os.environ.get("ALL_ON_PODMAN") and not mark("docker_only"))
        places = ["podman"] if mark("podman_only") else ["docker", "podman"] if both else ["docker"]
        metafunc.parametrize("place", places, indirect=True, scope="module")


@dataclass(frozen=True)
class Place:
    """An engine, and an ordinary user who calls launch: the uid here, and in the container."""

    engine: str
    user: str
    uid: int
    inside: int
    home: Path
    lag: float = 0  # seconds until its user's command starts


HOMES: dict[Path, Place] = {}  # by the folder that the projects are in


def client(root: Path, engine: str = REFUSES) -> list[str]:
    place = HOMES[root.parent]
    return ["docker", "-H", engine] if place.engine == "docker" else [PODMAN_AS, place.user, "podman"]


def ask(root: Path, *arguments: str, engine: str = REFUSES) -> str:
    """The output of a command of the engine; empty if it fails."""
    done = subprocess.run([*client(root, engine), *arguments], capture_output=True, text=True, timeout=120)
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Where nothing of the tests stays."""
    if os.getuid() != 0:
        cannot("needs root, to be another user")
    make = {"docker": on_docker, "podman": on_podman}[request.param]
    with make() as place:
        HOMES[place.home] = place
        yield place
        del HOMES[place.home]
        shutil.rmtree(place.home)


@contextlib.contextmanager
def on_docker() -> Iterator[Place]:
    inspected = ["docker", "-H", REFUSES, "image", "inspect", BASE]
    if not shutil.which("docker") or subprocess.run(inspected, capture_output=True).returncode:
        cannot(f"needs an engine on {REFUSES}, and the base image {BASE}")
    home = Path(tempfile.mkdtemp(prefix="launch-"))
    subprocess.run(["userdel", "launch-tests"], capture_output=True, check=False)  # of a run that was killed
    subprocess.run(["useradd", "--no-create-home", "--uid=4711", f"--home-dir={home}", "launch-tests"], check=True)
    yield Place("docker", "launch-tests", 4711, 4711, home)
    subprocess.run(["userdel", "launch-tests"], check=True, capture_output=True)


@contextlib.contextmanager
def on_podman() -> Iterator[Place]:
    """Rootless, with SELinux's and the GPU's parts as far as this machine has them."""
    inspected = [PODMAN_AS, PODMAN_USER, "podman", "image", "inspect", BASE]
    if not Path(PODMAN_AS).exists() or subprocess.run(inspected, capture_output=True).returncode:
        cannot(f"needs rootless Podman of the user {PODMAN_USER} with the base image {BASE}; .ci/run prepares both")
    Path("/dev/mqueue").mkdir(exist_ok=True)  # crun mounts it with --ipc=host, and some machines have none
    PODMANS_GPUS.unlink(missing_ok=True)
    user = pwd.getpwnam(PODMAN_USER)
    yield Place(
        engine="podman",
        user=PODMAN_USER,
        uid=user.pw_uid,
        inside=1000,
        home=Path(tempfile.mkdtemp(prefix="launch-", dir=user.pw_dir)),
        lag=0.5,
    )


def projects(place: Place, name: str) -> Path:
    """A project that belongs to the user."""
    root = write_project(place.home / name)
    own(place)
    return root


def own(place: Place) -> None:
    """Give the user all that was written for them."""
    subprocess.run(["chown", "-R", f"{place.uid}:{place.uid}", str(place.home)], check=True)


@pytest.fixture(scope="module", params=["small project, with a comma"])
def project(request: pytest.FixtureRequest, place: Place) -> Iterator[Path]:
    """A project where its user, who is not root, may look; nothing of it stays on the engines."""
    root = projects(place, request.param)
    yield root
    for engine in (REFUSES, GRANTS) if place.engine == "docker" else ("",):
        found = ask(root, "ps", "-aq", f"--filter=label=gpukit.project={root}", engine=engine).split()
        found += ask(root, "ps", "-aq", f"--filter=label=devcontainer.local_folder={root}", engine=engine).split()
        ask(root, "rm", "--force", *found, engine=engine) if found else None
        pictures = ask(root, "images", "-q", f"--filter=label=gpukit.project={root}", engine=engine).split()
        ask(root, "rmi", "--force", *pictures, engine=engine) if pictures else None


@pytest.fixture
def granted(project: Path, place: Place) -> Iterator[Path]:
    if place.engine == "docker" and not ask(project, "version", engine=GRANTS):
        pytest.skip(f"no engine that grants GPU requests on {GRANTS}")
    if place.engine == "podman":
        edits = {"env": ["STANDIN_GPU=cdi"]}
        devices = [{"name": name, "containerEdits": {"env": [f"GPU_{name}=granted"]}} for name in ("all", "0", "1")]
        PODMANS_GPUS.write_text(
            json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": edits, "devices": devices})
        )
    yield project
    PODMANS_GPUS.unlink(missing_ok=True)


def environment(root: Path, engine: str, **env: str) -> dict[str, str]:
    """Of a user, with a secret and whatever proxies this machine needs."""
    kept = {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
    kept.update({"HF_TOKEN": SECRET, **env})
    if HOMES[root.parent].engine == "podman":
        return {"GPUKIT_ENGINE": "podman", **kept}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(root.parent), "DOCKER_HOST": engine, **kept}


def start(
    root: Path,
    *arguments: str,
    engine: str = REFUSES,
    command: str = "./launch",
    options: dict[str, Any] | None = None,
    **env: str,
) -> Running:
    """`options`: of Popen."""
    place = HOMES[root.parent]
    variables = environment(root, engine, **env)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **(options or {})}
    if place.engine == "podman":
        file = place.home / "variables"  # no list of processes shows them
        file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
        words = [PODMAN_AS, place.user, "sh", "-c", '. "$0"; exec "$@"', str(file)]
        return subprocess.Popen([*words, command, *arguments], cwd=root, text=True, **pipes)
    group = Path(engine.removeprefix("unix://")).stat().st_gid
    return subprocess.Popen(
        [command, *arguments],
        cwd=root,
        env=variables,
        user=place.uid,
        group=place.uid,
        extra_groups=[group],
        text=True,
        **pipes,
    )


def launch(root: Path, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    process = start(root, *arguments, **options)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def left(root: Path, engine: str = REFUSES) -> list[str]:
    listing = ("ps", "-a", f"--filter=label=gpukit.project={root}", "--format={{.Names}}")
    return ask(root, *listing, engine=engine).split()


@SAME_ON_PODMAN
def test_the_status_the_output_and_the_files_are_the_programs(project: Path, place: Place) -> None:
    done = launch(project, "--cpu", "run", "--", "sh", "-c", "id -u; touch outputs/made; echo bad >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, f"{place.inside}\n")
    assert "bad\n" in done.stderr
    assert (project / "outputs/made").stat().st_uid == place.uid
    assert left(project) == []


def test_an_engine_that_refuses_gpus(project: Path) -> None:
    for command in (
        ["run", "--", "true"],
        ["run", "-d", "--", "true"],
        ["up"],
        ["notebook"],
        ["preflight"],
        ["verify"],
    ):
        done = launch(project, *command)
        assert done.returncode != 0, command
        said = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
        assert len(said) == 1 and "./launch --cpu" in said[0]
        assert pci() or "Toolkit" not in said[0]  # without a GPU, it would not help
    assert left(project) == []
    assert launch(project, "--cpu", "preflight").returncode == 0


@SAME_ON_PODMAN
def test_a_gpu_that_is_granted(granted: Path, place: Place) -> None:
    for gpus in ("all", "0,1"):
        done = launch(granted, "--gpus", gpus, "preflight", engine=GRANTS)
        assert done.returncode == 0, done.stderr
    if place.engine == "podman":  # whose stand-in devices are told apart
        listed = launch(granted, "--gpus", "0,1", "run", "--", "env").stdout.split()
        assert {name for name in listed if name.startswith("GPU_")} == {"GPU_0=granted", "GPU_1=granted"}


@SAME_ON_PODMAN
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program_and_is_waited_for(project: Path, number: int) -> None:
    code = (
        "import signal, sys, time\n"
        "def save(*_): time.sleep(1); print('saved', flush=True); sys.exit(42)\n"
        "signal.signal(signal.SIGINT, save); signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    process = start(project, "--cpu", "run", "--", "python3", "-c", code)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (42, "saved\n")
    assert left(project) == []


def test_every_ctrl_c_reaches_the_program(project: Path) -> None:
    code = (
        "import signal, time\nseen = ['ready']\nsignal.signal(signal.SIGINT, lambda *_: seen.append('seen'))\n"
        "for number in range(6):\n    while len(seen) <= number: time.sleep(0.02)\n"
        "    print(seen[number], flush=True)\n"
    )
    process = start(project, "--cpu", "run", "--", "python3", "-c", code)
    assert process.stdout.readline() == "ready\n"
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "seen\n"
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "")


def test_ctrl_c_at_any_moment_leaves_nothing(project: Path) -> None:
    took = duration(project)
    ended = 0
    for moment in range(1, 7):
        process = start(project, "--cpu", "run", "--", "sleep", "99")
        time.sleep(moment * took / 7)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
        assert left(project) == []
        # while Python itself was starting it says so in its own words, whatever the script
        if process.returncode != -signal.SIGINT and not re.match("Fatal Python error: init|KeyboardInterrupt$", error):
            assert process.returncode == 130 and "Traceback" not in error, error
            ended += 1
    assert ended > 1


def duration(project: Path) -> float:
    """How long this machine takes from the command to the end of an empty program, in seconds."""
    launch(project, "--cpu", "run", "--", "true")  # builds the image
    began = time.monotonic()
    launch(project, "--cpu", "run", "--", "true")
    return time.monotonic() - began


TRAIN = """\
import os, signal, time
signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # at once: in its first second, it may get another
print("training", flush=True)
time.sleep(100)
"""


@SAME_ON_PODMAN
def test_ctrl_c_ends_try_at_any_moment(project: Path) -> None:
    """On a terminal: while the engine is asked, while the container starts, and while the program trains.

    While Python itself starts, it prints a traceback, whatever the program.
    """
    (project / "src/small").mkdir(parents=True, exist_ok=True)
    (project / "src/small/train.py").write_text(TRAIN)
    (project / "small").symlink_to("src/small")  # where Python looks for it
    took = duration(project)
    messages = 0
    for part in (0.3, 0.8, 1.2, 1.8, None):
        code, output = interrupted(project, "try", moment=part and part * took, words=b"training\r")
        assert code == 130, (part, output.decode())
        assert output.count(b"nterrupted") <= 1, (part, output)
        messages += output.count(b"nterrupted")
        assert part or (b"Traceback" not in output and b"nterrupted" in output), output
        assert left(project) == []
    assert messages > 1
    (project / "small").unlink()


def test_ctrl_c_on_a_terminal_ends_a_start_at_any_moment(project: Path) -> None:
    took = duration(project)
    program = ["--", "sh", "-c", "echo ready; exec sleep 99"]
    for command, words, parts in (
        (["run", *program], b"ready\r", (0.3, 0.7, None)),
        (["up"], b"is up", (0.4, 0.8)),
        (["shell", *program], b"ready\r", (0.7, None)),
        (["notebook"], b"token=", (0.7,)),
    ):
        for part in parts:
            code, output = interrupted(project, *command, moment=part and part * took, words=words)
            if words not in output or "--" in command:
                # `docker exec` 26.1 ends with 0 if Ctrl-C comes before its program has started
                entering = command[0] == "shell" and part and b" is up" in output
                assert code == 130 or (entering and code == 0), (command, part, output.decode())
            if words in output or b" is up" in output or b"still starting" in output:
                launch(project, "stop")
            assert left(project) == [], (command, part, code, output.decode())


def test_what_is_typed_reaches_the_program(project: Path) -> None:
    """All of it and in order, with the size of the terminal, which is given back as it was."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 41, 123, 0, 0))
    before = termios.tcgetattr(theirs)
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": take_terminal}
    process = start(project, "--cpu", "run", "--", "sh", "-c", "echo ready; read a; stty size; cat", options=options)
    read_until(ours, b"ready\r")
    os.write(ours, b"one\r")
    seen = read_until(ours, b"123\r")
    os.write(ours, b"two\r\x04")
    assert process.wait(PATIENCE) == 0
    assert (seen + read_until(ours, b"two\r\ntwo")).split() == [b"one", b"41", b"123", b"two", b"two"]
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def interrupted(project: Path, *command: str, moment: float | None, words: bytes) -> tuple[int, bytes]:
    """Press Ctrl-C on a terminal after a time in seconds, or when it shows some words: exit status and output."""
    ours, theirs = pty.openpty()
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": take_terminal}
    process = start(project, "--cpu", *command, options=options)
    os.close(theirs)
    place = HOMES[project.parent]
    output = read_until(ours, b"", moment + place.lag) if moment else read_until(ours, words)
    os.write(ours, b"\x03")
    output += read_until(ours, b"")
    os.close(ours)
    code = process.wait(PATIENCE)
    return 130 if code == -signal.SIGINT else code, output  # as a shell says it


def take_terminal() -> None:
    """Make standard input the terminal of a session of its own, as a shell has it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def read_until(terminal: int, words: bytes, seconds: float = PATIENCE) -> bytes:
    """What a terminal shows, until it shows the words, is closed, or the time is over."""
    until = time.monotonic() + seconds
    seen = b""
    while (rest := until - time.monotonic()) > 0 and not (words and words in seen):
        if select.select([terminal], [], [], rest)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
    return seen


def test_how_an_engines_error_ends(project: Path) -> None:
    path = project / ".devcontainer/cpu/devcontainer.json"
    before = path.read_text()
    try:
        for change, part in (
            (('"--ipc=host"', '"--network=no-such-net"'), "network no-such-net"),
            (("/.launch/huggingface,", "/not-there,"), "not-there does not exist"),
            (("/.launch/huggingface,", "/pyproject.toml,"), "maps a file to a folder"),
            (('"--ipc=host"', '"--no-such-flag"'), "no-such-flag"),
        ):
            path.write_text(before.replace(*change))
            for command in (["run", "--", "true"], ["run", "-d", "--", "true"], ["up"]):
                done = launch(project, "--cpu", *command)
                assert done.returncode != 0
                said = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
                assert len(said) == 1 and part in said[0], done.stderr
            assert left(project) == []
    finally:
        path.write_text(before)
    done = launch(project, "--cpu", "run", "--", "no-such-command")
    assert done.returncode == 127 and "no-such-command" in done.stderr


@SAME_ON_PODMAN
def test_a_detached_run(project: Path) -> None:
    script = "trap 'echo saving; sleep 1; echo saved > outputs/saved; exit 0' TERM; echo begun; sleep 60 & wait"
    first = launch(project, "--cpu", "run", "-d", "--", "sh", "-c", script)
    assert first.returncode == 0 and "logs -f" in first.stderr
    second = launch(project, "--cpu", "run", "-d", "--", "true")
    assert second.returncode == 1 and "is already running" in second.stderr
    assert (
        launch(project, "--cpu", "run", "-d", "--name", "other", "--", "sh", "-c", "sleep 1; echo hello").returncode
        == 0
    )
    assert launch(project, "logs", "other").stdout == "hello\n"
    assert launch(project, "--cpu", "stop").returncode == 0
    assert (project / "outputs/saved").read_text() == "saved\n"
    assert "Nothing of this project is running" in launch(project, "stop").stderr
    done = launch(project, "logs", "run")
    assert done.stdout == "begun\nsaving\n" and done.stderr.endswith("ended with status 0.\n")
    assert launch(project, "--cpu", "run", "-d", "--", "false").returncode == 0  # in the place of the one that ended
    assert launch(project, "logs", "-f").stderr.endswith("ended with status 1.\n")
    assert len(left(project)) == 2
    assert launch(project, "clean", "--yes").returncode == 0
    assert left(project) == []


@SAME_ON_PODMAN
def test_up_and_shell(project: Path, place: Place) -> None:
    done = launch(project, "--cpu", "shell", "--", "sh", "-c", "pwd; id -u; exit 3")
    assert (done.returncode, done.stdout) == (3, f"/workspace\n{place.inside}\n")
    assert "is already running" in launch(project, "--cpu", "up").stderr
    assert launch(project, "shell", "false").returncode == 1  # the one that runs, without --cpu too
    assert launch(project, "stop").returncode == 0


def test_the_notebook_finds_a_free_port_and_keeps_its_address(project: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8888))
            taken.listen()
        except OSError:
            pass  # somebody else's, which serves as well
        done = launch(project, "--cpu", "notebook")
    assert done.returncode == 0, done.stderr
    token = (project / ".launch/jupyter-token").read_text().strip()
    address = done.stdout.strip()
    assert address.startswith("http://127.0.0.1:") and address.endswith(
        f"/lab/tree/notebooks/quickstart.ipynb?token={token}"
    )
    assert ":8888/" not in address
    assert launch(project, "--cpu", "notebook").stdout.strip() == address
    name = next(name for name in left(project) if name.endswith("notebook"))
    seen = json.loads(ask(project, "inspect", name))[0]
    assert seen["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert [port["HostIp"] for port in seen["HostConfig"]["PortBindings"]["8888/tcp"]] == ["127.0.0.1"]
    assert token not in json.dumps(seen)
    launch(project, "stop")


@pytest.mark.docker_only
def test_up_waits_for_the_servers_and_undoes_itself(project: Path, place: Place) -> None:
    root = projects(place, f"served-{os.getpid()}")
    (root / ".env").write_text(f"COMPOSE_PROJECT_NAME={root.name}\nUSER_UID=0\n")
    check = "import socket; socket.create_connection(('localhost', 80))"
    web = {
        "image": "standin/python:slim",
        "init": True,
        "working_dir": "/tmp",
        "command": ["sh", "-c", "${WEB:-sleep 3; exec python3 -m http.server 80}"],
        "healthcheck": {"test": ["CMD", "python3", "-c", check], "interval": "1s"},
        "ports": ["127.0.0.1:${WEB_PORT:-1}:80"],
    }
    dev = {"image": web["image"], "command": "sleep infinity", "init": True}
    (root / "compose.yaml").write_text(json.dumps({"services": {"dev": dev, "web": web}}))
    (root / "compose.cpu.yaml").write_text("services:\n  dev:\n    environment: ['X=${GPUS:?say which}']\n")
    own(place)
    of_root = f"--filter=label=com.docker.compose.project={root.name}"
    try:
        with socket.socket() as taken:
            port = free_port()
            taken.bind(("127.0.0.1", port))
            taken.listen()
            done = launch(root, "--cpu", "up", WEB_PORT=str(port))
            assert (
                f"Port {port} is in use on this machine: choose another with `WEB_PORT={port + 1} ./launch --cpu up`"
                in done.stderr
            )
            assert ask(project, "ps", "-aq", of_root) == ask(project, "network", "ls", "-q", of_root) == ""
        done = launch(root, "--cpu", "up", WEB_PORT=str(port))
        assert done.returncode == 0 and f"  web: http://localhost:{port}\n" in done.stderr, done.stderr
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://localhost:{port}") as answer:
            assert answer.status == 200
        assert launch(root, "stop").returncode == 0
        done = launch(root, "--cpu", "up", WEB_PORT=str(port), WEB="sleep 1; echo 'no such model'; exit 3")
        assert done.returncode == 1 and "no such model" in done.stderr and "./launch logs web" in done.stderr
        assert "./launch shell" in done.stderr  # the others are there
        assert launch(root, "stop").returncode == 0
        assert launch(root, "clean", "--yes").returncode == 0
        assert ask(project, "network", "ls", "-q", of_root) == ""
    finally:
        launch(root, "stop")


def test_add_changes_everything_or_nothing(project: Path) -> None:
    path = project / "pyproject.toml"
    before = path.read_text()
    for package, part in (
        ("pyproject-api>=1.9", "and the base has packaging 24.0"),
        ("no-such-package-at-all-0", "there is no package"),
        ("x-0 @ https://nowhere.invalid/x_0-1-py3-none-any.whl", "does not respond; check the network"),
        ("packaging>=25", "comes with the base image"),
    ):
        done = launch(project, "--cpu", "add", package)
        assert done.returncode == 1 and part in done.stderr, done.stderr
        assert path.read_text() == before
    assert left(project) == []
    launch(project, "--cpu", "up")
    try:
        done = launch(project, "--cpu", "add", "click<8.1")
        assert "to the next build" in done.stderr and '    "click<8.1",\n' in path.read_text()
        assert launch(project, "--cpu", "shell", "python", "-c", "import click").returncode == 0
        assert "is already in pyproject.toml" in launch(project, "--cpu", "add", "click").stderr
        done = launch(project, "--cpu", "add", "idna<3.5")
        assert "dev does not have it yet (it replaces idna, which a running container may not)" in done.stderr
        done = launch(project, "--cpu", "add", "pyproject-api>=1.9")
        assert "and the base has packaging 24.0" in done.stderr
        assert [file.name for file in (project / ".launch").iterdir() if file.name.startswith("add-")] == []
        launch(project, "stop")
        assert launch(project, "--cpu", "notebook").returncode == 0  # alone, it gets them too
        done = launch(project, "--cpu", "add", "colorama<0.4.6")
        assert "-notebook, and to the next build" in done.stderr
        name = left(project)[0]
        assert ask(project, "exec", name, "python3", "-c", "import colorama as c; print(c.__version__)") == "0.4.5"
    finally:
        launch(project, "stop")
    done = launch(project, "--cpu", "pin")
    assert done.returncode == 0, done.stderr
    pinned = (project / "requirements.txt").read_text()
    assert "\nclick==8.0.4\ncolorama==0.4.5\nidna==3.4\n" in pinned and "packaging" not in pinned.partition("click")[2]
    assert "http" not in pinned and "index" not in pinned
    assert launch(project, "--cpu", "run", "--", "true").returncode == 0  # the build takes it
    assert launch(project, "--cpu", "pin", "--remove").returncode == 0
    assert not (project / "requirements.txt").exists()


def test_clean_takes_the_images(project: Path, place: Place) -> None:
    """Each layer is counted once, and not if another project's image has it, as that of the base does."""
    launch(project, "--cpu", "run", "--", "true")
    label = f"gpukit.project={project}"
    own = ask(project, "images", "--format={{.ID}}", f"--filter=label={label}").split()[0]
    ask(project, "tag", own, "small-base")  # a build takes an id for a name
    recipe = "FROM small-base\nUSER 0\nRUN head -c 9000000 /dev/urandom > /tmp/more\nENV A=1\nWORKDIR /tmp/new\n"
    build = [*client(project), "build", "-q", f"--label={label}", "--tag=small-more", "-"]
    done = subprocess.run(build, input=recipe, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    sizes = [int(ask(project, "image", "inspect", "--format={{.Size}}", name)) for name in ("small-more", BASE)]
    listed = launch(project, "clean")
    assert listed.returncode == 1 and "image small-" in listed.stdout
    found = re.findall(r"([\d.]+)([kMG]?)B +image", listed.stdout)
    units = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}
    added = sum(float(number) * units[unit] for number, unit in found)
    # at least the layer that only this image has: another test's project may share the others
    assert added > 8.9e6
    if place.engine == "docker":  # Podman counts some layers twice in an image's size
        assert added < 1.1 * (sizes[0] - sizes[1])
    assert launch(project, "clean", "--yes").returncode == 0
    assert ask(project, "images", "-q", f"--filter=label={label}") == ""


@pytest.mark.docker_only
def test_launch_asks_the_engine_for_no_more_than_it_has_to(project: Path) -> None:
    """How long it takes beside the same `docker run` is measured by benchmarks/launch.py."""
    launch(project, "--cpu", "run", "--", "true")
    shim = project.parent / "bin/docker"
    log = project.parent / "asked"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nexec {shutil.which("docker")} "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    log.touch(0o666)
    log.chmod(0o666)
    path = f"{shim.parent}:{environment(project, REFUSES)['PATH']}"
    assert launch(project, "--cpu", "run", "--", "true", PATH=path).returncode == 0
    asked = [line.split()[:2] for line in log.read_text(encoding="utf-8").splitlines()]
    assert asked == [["image", "inspect"], ["run", "--rm"]]


def executed(log: str) -> list[str]:
    """The RUN steps that Podman did not take from its cache, in the log of a build."""
    log = re.sub(r"^\[\d\S+Z\] ", "", log, flags=re.MULTILINE)  # the devcontainers CLI prepends the time
    found = re.findall(r"^\[\d+/\d+\] STEP \S+ RUN (.*)\n(--> Using cache)?", log, re.MULTILINE)
    assert found, log[-3000:]
    return [step for step, cached in found if not cached]


@pytest.mark.podman_only  # on Docker: tests/engine/test_layers.py
def test_vs_code_and_launch_share_their_layers(place: Place, generate: Callable[..., Path], tmp_path: Path) -> None:
    """With one wheel and then another. VS Code starts containers with the devcontainers CLI."""
    cli = shutil.which("devcontainer") or cannot("no devcontainers CLI (npm install --global @devcontainers/cli)")
    root = place.home / "generated"
    shutil.copytree(generate(project_name="Generated", hardware="dgx-spark", base="ngc", podman=True), root)
    for name, unneeded in {
        ".devcontainer/devcontainer.json": r'\n *"--gpus=.*',
        podman.CONFIG: r'\n *"--gpus=.*',
        "apt.txt": r"\n\w.*",
        "pyproject.toml": r'\n +"(?!torch).*',
    }.items():
        (root / name).write_text(re.sub(unneeded, "", (root / name).read_text()))
    for name in ("gpukit", "exactrun"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "gpukit/src/gpukit/another.py").write_text("")
    options = ["--docker-path=podman", f"--workspace-folder={root}", f"--config={root / podman.CONFIG}"]

    def done(command: str, *arguments: str) -> tuple[str, str]:
        process = start(root, *arguments, command=command, BASE_IMAGE=WITH_TORCH, UV_INDEX="")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, (out + err)[-3000:]
        return out, err

    def layers(image: str) -> list[str]:
        return json.loads(ask(root, "image", "inspect", "--format={{json .RootFS.Layers}}", image))

    found = []
    try:
        for tree, command in ((ROOT, "build"), (tmp_path, "up")):
            vendor.put(writer.for_project(tree / "gpukit"), root)
            own(place)
            found.append(executed(done("./launch", "build")[1]))
            ours = ask(root, "images", "-q", f"--filter=label=gpukit.project={root}").split()[0]
            answer, log = done(cli, command, *options)
            assert executed(log) == []
            answer = json.loads(answer.splitlines()[-1])
            theirs = answer.get("containerId") and ask(root, "inspect", "--format={{.Image}}", answer["containerId"])
            assert layers(theirs or answer["imageName"][0]) == layers(ours)
        assert found[1] and not [step for step in found[1] if re.search(r"install\.py torch|pip install -r", step)]
        code = "import gpukit.another, os; open('outputs/made', 'w'); print(os.getuid())"
        assert done(cli, "exec", *options, "python3", "-c", code)[0].split() == [str(place.inside)]
        assert (root / "outputs/made").stat().st_uid == place.uid
        done("./launch", "stop")
    finally:
        for container in ask(root, "ps", "-aq", f"--filter=label=devcontainer.local_folder={root}").split():
            ask(root, "rm", "--force", container)
        images = ask(root, "images", "--format={{.ID}} {{.Repository}}").splitlines()
        ours = [line.split()[0] for line in images if "/generated-" in line or "/vsc-generated-" in line]
        ask(root, "rmi", "--force", *ours)
        ask(root, "image", "prune", "--force")  # those of the other stages have no name
