"""launch without an engine: what it would call, refuse and read. Where it is needed, `docker` is a script."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gpukit.cli import main as cli
from gpukit.cli.table import COMMANDS
from gpukit.host import podman
from gpukit.host.engine import Engine
from gpukit.host.project import Project, dotenv
from gpukit.host.refusals import unfit_pin
from gpukit.launch import add, clean, compose, container, image, notebook, pin, torchrun
from gpukit.project.messages import RefusalError, enumerated
from tests.launch.conftest import wheel


def launch(
    root: Path,
    *arguments: str,
    docker: str | None = None,
    python: str = sys.executable,
    stdin: int = subprocess.DEVNULL,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """./launch with a PATH that holds nothing but Python, what a shell needs, and, where given, a script as docker."""
    tools = root.parent / "tools"
    tools.mkdir(exist_ok=True)
    for tool, path in (
        *((name, shutil.which(name)) for name in ("sh", "mkdir", "sleep", "dirname")),
        ("python3", python),
    ):
        (tools / tool).unlink(missing_ok=True)
        (tools / tool).symlink_to(path or "")
    if docker is not None:
        (tools / "docker").write_text(f"#!/bin/sh\n{docker}\n", encoding="utf-8")
        (tools / "docker").chmod(0o755)
    return subprocess.run(
        [str(root / "launch"), *arguments],
        env={"PATH": str(tools), "HOME": str(root.parent), "LANG": "C.UTF-8", **env},
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    """The one thing launch says when it refuses."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
    assert len(said) == 1, done.stderr
    return said[0]


def planned(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return shlex.split(done.stdout)


# What it would call


def test_dry_run_prints_the_command_and_needs_no_engine(small: Path) -> None:
    argv = planned(launch(small, "--dry-run", "run", "--", "python", "-c", "print('a b')"))
    assert argv[:3] == ["docker", "run", "--rm"]
    assert f'--mount=type=bind,"source={small}",target=/workspace' in argv
    assert '--gpus="device=all"' in argv
    assert "--env=WANDB_DIR=/workspace/outputs" in argv
    assert "--init" in argv and "--workdir=/workspace" in argv and "--ipc=host" in argv
    assert argv[-3:] == ["python", "-c", "print('a b')"]
    assert not (small / ".launch").exists()


@pytest.mark.parametrize(
    ("arguments", "env", "request_"),
    [
        ([], {}, '--gpus="device=all"'),
        ([], {"GPUS": "0,1"}, '--gpus="device=0,1"'),
        (["--gpus", "1"], {"GPUS": "0"}, '--gpus="device=1"'),
        (["--gpus=GPU-00000000-0000"], {}, '--gpus="device=GPU-00000000-0000"'),
        (["--cpu"], {}, None),
    ],
)
def test_which_gpus(small: Path, arguments: list[str], env: dict[str, str], request_: str | None) -> None:
    argv = planned(launch(small, *arguments, "--dry-run", "run", "--", "true", **env))
    assert [word for word in argv if word.startswith("--gpus")] == ([request_] if request_ else [])
    if arguments:
        after = planned(launch(small, "--dry-run", "run", *arguments, "--", "true", **env))
        assert [word for word in after if word.startswith("--gpus")] == ([request_] if request_ else [])


@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["python", "-m", "a.train", "--lr", "1"], ["-m", "a.train", "--lr", "1"]),
        (["--", "/usr/bin/python3.12", "src/a.py", "--nproc", "x"], ["src/a.py", "--nproc", "x"]),
        (["--", "-m", "a.train"], ["-m", "a.train"]),
        (["a.py"], ["a.py"]),
    ],
)
def test_several_processes_are_started_by_torchrun(small: Path, words: list[str], program: list[str]) -> None:
    argv = planned(launch(small, "--dry-run", "run", "--nproc", "2", *words))
    assert argv[-len(program) - 3 :] == ["torchrun", "--standalone", "--nproc-per-node=2", *program]
    argv = planned(launch(small, "--dry-run", "run", "-d", "--nproc=gpu", *words, GPUS="0,1"))
    assert argv[-len(program) - 1 :] == ["--nproc-per-node=gpu", *program] and "--detach" in argv


@pytest.mark.parametrize(
    ("arguments", "words", "said"),
    [
        (["--nproc", "0"], ["python", "a.py"], "must be a number of processes, or gpu"),
        (["--nproc", "two"], ["python", "a.py"], "must be a number of processes, or gpu"),
        (["--nproc", "2"], ["torchrun", "-m", "a"], "omit --nproc or torchrun"),
        (["--nproc", "2"], ["python", "-m", "torch.distributed.run", "-m", "a"], "omit --nproc or torchrun"),
        (["--nproc", "2"], ["pytest"], "starts a Python module or file"),
        (["--nproc", "2"], ["python"], "starts a Python module or file"),
        (["--nproc", "2"], ["python", "-c", "1"], "starts a Python module or file"),
        (["--nproc", "2", "--cpu"], ["python", "-m"], "starts a Python module or file"),
        (["--nproc", "gpu", "--cpu"], ["a.py"], "there is none: use a number"),
        (["--nproc", "3", "--gpus", "0,1"], ["a.py"], "GPUS chooses 2 (0,1): change one"),
    ],
)
def test_several_processes_of_what_makes_no_sense(small: Path, arguments: list, words: list, said: str) -> None:
    options = cli.parse(["run", *arguments, "--", *words])
    given = vars(options)
    project = Project(small, {}, given.get("cpu", False), given.get("gpus", ""))
    with pytest.raises(RefusalError, match=re.escape(said)):
        torchrun.command(options.rest, options.nproc, project.gpus)


def test_variables_and_ports_of_a_run(small: Path) -> None:
    """Values reach docker in its environment; ports are published on the loopback address only."""
    (small / ".env").write_text("FROM_FILE=planted-1\n")
    given = ["-e", "HERE", "-eFROM_FILE", "-e", "WANDB_DIR=planted-2", "-e", "HOME=/x", "-p", "6006", "-p", "8080:80"]
    for more in ([], ["-d"]):
        argv = planned(launch(small, "--dry-run", "run", *more, *given, "python", "-p", "1", HERE="planted-3"))
        own = argv[argv.index("--publish=127.0.0.1:6006:6006") :]
        assert own[1:-4] == [
            *("--publish=127.0.0.1:8080:80", "--env=HERE", "--env=FROM_FILE", "--env=WANDB_DIR", "--env=HOME=/x")
        ]
        assert own[-3:] == ["python", "-p", "1"] and "planted" not in " ".join(argv)
        ran = engine(small, start='echo "$WANDB_DIR,$FROM_FILE,$HERE,$HOME" > "$HOME/seen"')
        done = launch(small, "--cpu", "run", *more, *given, "true", docker=ran, HERE="planted-3")
        assert done.returncode == 0, done.stderr
        assert (small.parent / "seen").read_text() == f"planted-2,planted-1,planted-3,{small.parent}\n"
        assert not any("planted" in call for call in calls(small))
    assert "NOT_SET is not set here" in launch(small, "--dry-run", "run", "-e", "NOT_SET", "true").stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-e", "A B=1"], "-e 'A B' is not the name of a variable"),
        (["-p", "web"], "-p web: write a port from 1 to 65535"),
        (["-p", "0"], "-p 0: write a port from 1 to 65535"),
        (["-p", "1:70000"], "-p 1:70000: write a port"),
        (["-p", "0.0.0.0:80:80"], "publishes on 127.0.0.1 only, so omit the address"),
        (["-p", "8080:80"], "Port 8080 is in use on this machine: choose another, such as `-p 8081:80`."),
        (["-d", "-p", "8080:80"], "Port 8080 is in use on this machine: choose another, such as `-p 8081:80`."),
    ],
)
def test_variables_and_ports_that_cannot_be_had(small: Path, arguments: list[str], said: str) -> None:
    taken = "docker: Error response from daemon: Bind for 127.0.0.1:8080 failed: port is already allocated."
    docker = engine(small, start=f"echo '{taken}' >&2; exit 125")
    assert said in sentence(launch(small, "--cpu", "run", *arguments, "--", "true", docker=docker))


SHOWING = ["run", "up", "shell", "notebook", "add", "pin", "build", "preflight", "verify", "rehearse"]


@pytest.mark.parametrize("command", SHOWING)
def test_no_secret_is_shown(small: Path, command: str) -> None:
    words = {"run": ["--", "true"], "add": ["einops"]}.get(command, [])
    (small / ".env").write_text("WANDB_API_KEY=planted-two\n")
    done = launch(small, "--dry-run", command, *words, HF_TOKEN="planted-one", docker="exit 1")
    assert done.returncode == 0, done.stderr
    assert "planted" not in done.stdout + done.stderr
    assert "HF_TOKEN" in done.stdout or command in ("shell", "pin", "build", "preflight")


def test_the_environment_of_docker_has_the_secrets(small: Path) -> None:
    (small / ".env").write_text(
        "# mine\nexport A='x y' # z\nHF_TOKEN=from-file\nB = 1 # c\nbroken line\nC=\"#\"\nD=a#b\n"
    )
    assert dotenv(small / ".env") == {"A": "x y", "HF_TOKEN": "from-file", "B": "1", "C": "#", "D": "a#b"}
    assert Project(small, {}).engine.env["HF_TOKEN"] == "from-file"
    assert Project(small, {"HF_TOKEN": "set"}).engine.env["HF_TOKEN"] == "set"


@pytest.mark.parametrize("command", [name for name, each in COMMANDS.items() if not each.hidden and len(name) > 2])
def test_a_misspelled_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.parse(["--cpu", f"{command}x"])
    assert f"`{command}`" in capsys.readouterr().err.splitlines()[-1]


def test_the_command_needs_no_dashes_and_keeps_its_own(small: Path) -> None:
    for words in (["run", "python", "x.py", "--cpu", "-d"], ["run", "--", "python", "x.py", "--cpu", "-d"]):
        assert cli.parse(words).rest == ["python", "x.py", "--cpu", "-d"]
    options = cli.parse(["--gpus", "0", "run", "-d", "--name", "a", "python", "--", "x"])
    assert (options.detach, options.name, options.gpus, options.rest) == (True, "a", "0", ["python", "--", "x"])
    assert cli.parse(["verify", "--json", "--cpu", "--only", "torch"]).rest == ["--json", "--only", "torch"]
    assert cli.parse(["rehearse", "--steps", "9", "--", "a.py", "--steps", "2"]).rest == ["a.py", "--steps", "2"]
    assert cli.parse(["rehearse", "--", "python", "a.py"]).rest == ["python", "a.py"]
    done = launch(small, "--cpu", "--dry-run", "rehearse", "--steps", "9", docker="exit 1")
    package = json.loads((small / "stack.json").read_text())["package"]
    words = f"python -m exactrun rehearse --steps 9 -- python -m {package}.train"
    assert words in done.stdout, done.stdout


def test_help_describes_ten_commands_and_names_the_others(small: Path) -> None:
    shown = launch(small, "--help").stdout.partition("\ncommands:\n")[2]
    assert re.findall(r"^    (\w+) ", shown, re.MULTILINE) == [name for name, each in COMMANDS.items() if each.common]
    assert len(re.findall(r"^    \w+ ", shown, re.MULTILINE)) <= 10
    named = re.search(r"^more: (.+)", shown, re.MULTILINE)[1].split(", ")
    assert named == [name for name, each in COMMANDS.items() if not each.common and not each.hidden]
    assert not {"preflight", "vendor"} & {*re.findall(r"\w+", shown)}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(small: Path, command: str) -> None:
    done = launch(small, command, "--help")
    assert done.returncode == 0
    if COMMANDS[command].own_parser:  # their own help lists their checks
        assert "--only" in done.stdout and f"./launch {command}" in done.stdout
    else:
        assert COMMANDS[command].text.split()[-1] in done.stdout.replace("\n", " ")
        assert ("--dry-run" in done.stdout) == COMMANDS[command].run_options


# What it refuses


def test_without_docker(small: Path) -> None:
    assert "Docker is not installed" in sentence(launch(small, "run", "--", "true"))


@pytest.mark.parametrize("command", ["up", "run -- true", "run -d -- true", "stop", "clean", "logs", "preflight"])
def test_an_engine_that_does_not_answer(small: Path, command: str) -> None:
    message = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    docker = f"echo '{message}' >&2; exit 1"
    assert "systemctl start docker" in sentence(launch(small, *command.split(), docker=docker))


def test_docker_that_is_podman_or_rootless(small: Path) -> None:
    podman = 'case $1 in image) echo "No such image" >&2; exit 1;; esac; echo \'{"Server": "Podman Engine"}\''
    assert "GPUKIT_ENGINE=podman" in sentence(launch(small, "build", docker=podman))
    rootless = 'case $1 in version) echo "{}";; info) echo \'{"SecurityOptions":["name=rootless"]}\';; esac'
    assert "Rootless Docker" in sentence(launch(small, "build", docker=rootless))


def test_docker_on_another_machine(small: Path) -> None:
    """It does not see this folder: --host does what is wanted."""
    error = 'docker: Error response: invalid mount config for type "bind": bind source path does not exist: /x.'
    docker = f"case $1 in context) echo $DOCKER_HOST;; run) echo '{error}' >&2; exit 125;; esac"
    assert "--host" in sentence(launch(small, "--cpu", "run", "true", docker=docker, DOCKER_HOST="ssh://me@box"))
    assert "--host" not in sentence(launch(small, "--cpu", "run", "true", docker=docker, DOCKER_HOST="unix:///x"))


SILENT = "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?' >&2; exit 1"
DENIED = "echo 'permission denied while trying to connect to the Docker daemon socket at unix:///x' >&2; exit 1"


@pytest.mark.parametrize(
    ("docker", "podman", "env", "chosen"),
    [
        ("true", "true", {}, "docker"),
        ("true", None, {}, "docker"),
        (None, "true", {}, "podman"),
        (None, None, {}, "docker"),
        ("exec podman", "true", {}, "podman"),  # the package podman-docker
        ("->", "true", {}, "podman"),  # a link
        ("exec podman", "true", {"GPUKIT_ENGINE": "docker"}, "docker"),
        ("true", "true", {"GPUKIT_ENGINE": "podman"}, "podman"),
        (SILENT, "true", {}, "docker"),
        (DENIED, "true", {}, "docker"),
    ],
)
def test_the_choice_of_the_engine(
    small: Path, docker: str | None, podman: str | None, env: dict[str, str], chosen: str
) -> None:
    tools = small.parent / "tools"
    tools.mkdir()
    if podman is not None:
        (tools / "podman").write_text(f"#!/bin/sh\n{podman}\n", encoding="utf-8")
        (tools / "podman").chmod(0o755)
    if docker == "->":
        (tools / "docker").symlink_to("podman")
    done = launch(small, "--dry-run", "run", "--", "true", docker=None if docker == "->" else docker, **env)
    assert planned(done)[0] == chosen
    if docker in (SILENT, DENIED):  # it is not switched from
        assert "GPUKIT_ENGINE=podman" in sentence(launch(small, "run", "--", "true", docker=docker))


def test_an_engine_that_does_not_exist(small: Path) -> None:
    assert "`docker` or `podman`" in sentence(launch(small, "--dry-run", "up", GPUKIT_ENGINE="moby"))
    (small / ".env").write_text("GPUKIT_ENGINE=podman\n", encoding="utf-8")
    assert "Podman" in sentence(launch(small, "run", "--", "true", docker="true"))


def test_explain_asks_the_engine_that_env_names(small: Path) -> None:
    text = small.parent / "error.log"
    asked = small.parent / "asked"
    text.write_text('docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].')
    for setting in ("GPUKIT_ENGINE=podman\n", ""):
        (small / ".env").write_text(setting, encoding="utf-8")
        launch(small, "explain", str(text), docker='echo >> "$HOME/asked"')
        assert asked.exists() == (not setting)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (['--gpus="device=0,1"'], ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"]),
        (["--gpus", "all"], ["--device=nvidia.com/gpu=all"]),
        (["--gpus=2"], ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1"]),
        (['--gpus="device=GPU-1-2"'], ["--device=nvidia.com/gpu=GPU-1-2"]),
        (
            ["--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=0,1"],
            ["--device=nvidia.com/gpu=0", "--device=nvidia.com/gpu=1", "--env=NVIDIA_VISIBLE_DEVICES=0,1"],
        ),
        (["--rm", "-e", "A=--gpus=1", "--init=false"], ["--rm", "--env=A=--gpus=1", "--init=false"]),
    ],
)
def test_what_podman_is_asked_for(
    flags: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = ["image", "train", "--gpus=1", "--runtime=nvidia"]
    keep = "--userns=keep-id:uid=1000,gid=1000"
    monkeypatch.setattr(podman, "ENFORCING", tmp_path / "enforce")
    assert podman.words(("run", *flags, *program), rootless=True) == ["run", keep, *expected, *program]
    assert podman.words(("run", *flags, *program), rootless=False) == ["run", *expected, *program]
    for value, flag in (("0", []), ("1", ["--security-opt=label=disable"])):
        (tmp_path / "enforce").write_text(value, encoding="ascii")
        assert podman.words(("run", "--rm", *program), rootless=True) == ["run", keep, *flag, "--rm", *program]


def test_what_podman_builds(tmp_path: Path) -> None:
    """The image's user is its own, and a base with an owner is Docker Hub's; other names are as they are written."""
    dockerfile = tmp_path / "a, b"
    for default, full in (
        ("nvidia/cuda:13.0", "docker.io/nvidia/cuda:13.0"),
        ("python:3.12", ""),
        ("nvcr.io/nvidia/pytorch:26.07-py3", ""),
    ):
        dockerfile.write_text(f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE:-{default}}}\n", encoding="utf-8")
        given = ["--build-arg=USER_UID=4711", "--build-arg=USER_GID=4712", "--build-arg=BASE_IMAGE="]
        found = podman.words(("build", f"--file={dockerfile}", *given, "."), rootless=True)
        ids = ["--build-arg=USER_UID=1000", "--build-arg=USER_GID=1000"]
        assert found == ["build", f'--file="{dockerfile}"', *ids, f"--build-arg=BASE_IMAGE={full}", "."]


def test_podman_that_cannot_serve(small: Path) -> None:
    tools = small.parent / "tools"
    tools.mkdir()
    answers = 'case $1 in system) echo "box $THERE"; exit;; esac\n'
    answers += '[ -z "$CONTAINER_HOST$CONTAINER_CONNECTION" ] || exit 125\n'  # nothing answers there
    answers += 'case $1 in version) echo "$VERSION";; image) echo "x: image not known" >&2; exit 125;; esac'
    (tools / "podman").write_text(f"#!/bin/sh\n{answers}\n", encoding="utf-8")
    (tools / "podman").chmod(0o755)
    assert "4.3" in sentence(launch(small, "build", VERSION="4.2.1"))
    for address in ("ssh://me@box/run/podman.sock", "tcp://box:1"):
        assert "--host" in sentence(launch(small, "build", VERSION="4.9.3", CONTAINER_HOST=address))
        assert "--host" in sentence(launch(small, "build", CONTAINER_CONNECTION="box", THERE=address))
    assert launch(small, "build", VERSION="4.9.3").returncode == 0


# How Docker 26 fails to enter a container, on standard output and with 126 (2026-11-26).
NOT_ENTERED = "OCI runtime exec failed: exec failed: unable to start container process: read init-p: reset: unknown"


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_container_that_cannot_be_entered_is_no_refusal_of_uv(small: Path, times: int) -> None:
    """It is tried once more, because nothing ran."""
    count = small.parent / "count"
    count.write_text("", encoding="ascii")
    fails = f'printf x >> "{count}"; read -r n < "{count}"; '
    fails += f'[ ${{#n}} -gt {times} ] || {{ echo "{NOT_ENTERED}"; exit 126; }}'
    running = "printf 'small-dev\\trunning\\tdev\\n'"
    docker = f"""case "$1 $*" in
ps*gpukit.project*) {running};;
exec*uv*) {fails};;
esac"""
    before = (small / "pyproject.toml").read_text(encoding="utf-8")
    done = launch(small, "--cpu", "add", "click", docker=docker)
    if times < 2:
        assert done.returncode == 0, done.stderr
    else:
        assert "could not start a program" in sentence(done)
        assert (small / "pyproject.toml").read_text(encoding="utf-8") == before


def test_a_folder_that_is_no_project(small: Path) -> None:
    shutil.rmtree(small / ".devcontainer")
    assert "is not a generated project" in sentence(launch(small, "up", docker="true"))


def test_without_a_command_it_prints_the_help(small: Path) -> None:
    done = launch(small)
    assert done.returncode == 2 and done.stderr == launch(small, "--help").stdout


def test_no_configuration_without_a_gpu(small: Path) -> None:
    shutil.rmtree(small / ".devcontainer/cpu")
    assert "the configuration without a GPU" in sentence(launch(small, "--cpu", "up", docker="true"))


@pytest.mark.parametrize("value", ["a b", "0,a", "0,", 'x"y', "$(id)"])
def test_gpus_that_are_none(small: Path, value: str) -> None:
    assert "GPUS" in sentence(launch(small, "run", "--", "true", docker="true", GPUS=value))
    assert "GPUS" in sentence(launch(small, "preflight", docker="true", GPUS=value))


def test_a_preparation_that_fails(small: Path) -> None:
    path = small / ".devcontainer/devcontainer.json"
    config = json.loads(path.read_text())
    config["initializeCommand"] = {"a": 'test "$GPUKIT_ENTRANCE" = launch', "b": ["sh", "-c", "echo why >&2; exit 3"]}
    path.write_text(json.dumps(config))
    done = launch(small, "up", docker="true")
    assert "exit status 3" in sentence(done)
    assert "why" in done.stderr


def test_credentials_do_not_enter_the_history(small: Path) -> None:
    said = sentence(
        launch(small, "build", "--build-arg", "UV_INDEX=pytorch=https://me:planted@example.com", docker="true")
    )
    assert "UV_INDEX contains credentials" in said and "planted" not in said
    said = sentence(launch(small, "--dry-run", "build", BASE_IMAGE="https://me:planted@example.com/x"))
    assert "BASE_IMAGE" in said and "planted" not in said


def test_a_detached_run_needs_a_name_that_docker_takes(small: Path) -> None:
    for name in ("a b", "ä", "-x"):
        assert repr(name) in sentence(launch(small, "run", "-d", f"--name={name}", "--", "true", docker="true"))


def test_notebooks_are_not_everywhere(small: Path) -> None:
    first = re.compile(r"http://127\.0\.0\.1:8888/lab/tree/notebooks/quickstart\.ipynb\?token=\S{30,}")
    assert first.fullmatch(notebook.address(Project(small, {}), 8888))
    (small / "notebooks/quickstart.ipynb").unlink()
    assert "8888/lab?token=" in notebook.address(Project(small, {}), 8888)
    shutil.rmtree(small / "notebooks")
    assert "./launch update --answers workflow=notebook" in sentence(launch(small, "notebook", docker="true"))


def test_the_oldest_python_that_is_supported(small: Path) -> None:
    python = next(Path.home().glob(".pyenv/versions/3.9.*/bin/python"), shutil.which("python3.9"))
    if not python:
        pytest.skip("there is no Python 3.9 here")
    assert planned(launch(small, "--dry-run", "run", "--", "true", python=str(python)))
    with zipfile.ZipFile(wheel()) as archive:
        names = [name[:-3].replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    on_the_host = ("project", "findings", "errors", "host", "wheel", "launch", "doctor", "setup", "cli", "image.guard")
    modules = [name for name in names if name.startswith(tuple(f"gpukit.{each}" for each in on_the_host))]
    environment = {**os.environ, "PYTHONPATH": str(wheel())}
    subprocess.run([str(python), "-c", f"import {', '.join(modules)}"], env=environment, check=True)


# What it reads


def test_the_image_depends_on_what_the_build_reads(small: Path) -> None:
    def now(**env: str) -> str:
        return image.fingerprint(Project(small, env))

    first = now()
    (small / "outputs").mkdir()
    (small / "outputs/x").write_text("x")
    assert now() == first
    assert now(BASE_IMAGE="mirror/x") != first
    for name in ("pyproject.toml", "Dockerfile", "requirements.txt"):
        with (small / name).open("a") as file:
            file.write("\n")
        assert now() != first, name
        first = now()


def test_certificates_and_folders_count_too(small: Path) -> None:
    (small / "Dockerfile").write_text(
        "FROM x\nCOPY cert[s]/*.crt \\\n  tool[s] /x/\nCOPY --from=y /a /b\nCOPY . /all\n"
    )
    assert image.copied(Project(small, {})) == []
    for name in ("certs/a.crt", "tools/deep/b", "certs/no.txt"):
        (small / name).parent.mkdir(parents=True, exist_ok=True)
        (small / name).write_text("x")
    assert image.copied(Project(small, {})) == [small / "certs/a.crt", small / "tools/deep/b"]


def test_the_token_is_made_once_and_kept_to_oneself(small: Path) -> None:
    project = Project(small, {})
    made = {notebook.token(project) for _ in range(3)}
    token = made.pop()
    assert not made and len(token) > 30
    file = small / ".launch/jupyter-token"
    assert file.read_text() == token  # Jupyter takes every byte of it
    file.write_text(f"{token}\n")  # as before
    assert notebook.token(project) == file.read_text() == token
    assert (small / ".launch/jupyter-token").stat().st_mode & 0o777 == 0o600
    assert (small / ".launch").stat().st_mode & 0o777 == 0o700


def test_what_compose_cannot_say_itself(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert compose.override(Project(small, {"GPUS": "0"})) == ""
    assert compose.override(Project(small, {"GPUS": "0,1"}, cpu=True)) == ""
    assert 'devices: !override\n            - {capabilities: [gpu], device_ids: ["0", "1"]}' in compose.override(
        Project(small, {"GPUS": "0,1"})
    )
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert 'user: "0:0"' in compose.override(Project(small, {}))
    (small / "compose.yaml").write_text("services:\n  dev: &dev {}\n\n  jobs:\n    <<: *dev\n")
    assert compose.override(Project(small, {"GPUS": "0,1"})).count('user: "0:0"') == 2
    assert compose.override(Project(small, {"GPUS": "0,1"})).count('device_ids: ["0", "1"]') == 2


def test_pins_hold_the_release_of_torch_but_not_its_build_and_leave_nvidias_alone() -> None:
    wheels = {"torch": ["2.14.1+cu130", False], "torchvision": ["0.29.2+cu130", False], "triton": ["3.8.0", False]}
    assert pin.lines(wheels, ["torch*", "triton"]) == "torch==2.14.1\ntorchvision==0.29.2\n# triton==3.8.0\n"
    nvidia = {"torch": ["2.10.0a0+b558c986e8.nv25.11", False]}
    assert pin.lines(nvidia, ["torch"]) == "# torch==2.10.0a0+b558c986e8.nv25.11\n"
    # in the image without a GPU, another torch and other tools than in NVIDIA's
    without = {"pip": ["25", False], "torch": ["2.14.1+cpu", False], "torchaudio": ["2.14.1", False]}
    assert pin.lines(without, ["torch"], cpu=True) == "# pip==25\n# torch==2.14.1+cpu\n# torchaudio==2.14.1\n"


def test_a_build_that_fails_because_of_a_pin_names_it(small: Path) -> None:
    """As uv 0.13.8 and BuildKit print it, in an image on NVIDIA's base."""
    failed = (
        "#9 1.2  + six==1.16.0\n#14 0.727 error: No solution found when resolving dependencies\n"
        "#14 0.727   cause: Because you require\n#14 0.727       torch==2.13.0 and torch==2.13.0a0+nv26.6, we can "
        "conclude that your requirements are unsatisfiable.\n"
        'ERROR: failed to solve: process "/bin/sh -c python3 install.py" did not complete successfully: exit code: 1\n'
    )
    (small.parent / "failed").write_text(failed)
    docker = engine(
        small, other='case $1 in build) while read -r line; do echo "$line"; done < "$HOME/failed" >&2; exit 1;; esac'
    )
    said = sentence(launch(small, "build", docker=docker))
    assert "requirements.txt" not in said
    pins = small / "requirements.txt"
    for text, named in (("six==1.16.0\ntorch==2.13.0\n", True), ("six==1.16.0\ntorch==2.13\n# torch==2.13.0\n", False)):
        pins.write_text(text)
        said = sentence(launch(small, "build", docker=docker))
        assert ("requirements.txt pins torch==2.13.0" in said and "`./launch pin --remove`" in said) == named
        assert bool(unfit_pin(failed, pins)) == named


def test_pins_leave_the_base_and_addresses_alone() -> None:
    found = {"triton": ["2.9", False], "b": ["1", False], "a": ["2", True], "c": ["1+local", False]}
    assert pin.lines(found, ["triton"]) == "# a==2\nb==1\n# c==1+local\n# triton==2.9\n"


@pytest.mark.parametrize(
    "line", ["ARG BASE_IMAGE=a.io:5/x/y:1", 'ARG BASE_IMAGE="a.io:5/x/y:1"', "FROM ${BASE_IMAGE:-a.io:5/x/y:1}"]
)
def test_where_the_base_stands(line: str) -> None:
    digest = "@sha256:" + "0" * 64
    pinned = line.replace("y:1", f"y:1{digest}")
    assert pin.BASE.search(line)[2] == pin.BASE.search(pinned)[2] == "a.io:5/x/y:1"
    assert pin.BASE.sub(r"\1\2", pinned) == line


def test_a_requirements_file_of_the_users_own(small: Path) -> None:
    (small / "requirements.txt").write_text("numpy\n")
    assert "not written by `./launch pin`" in sentence(launch(small, "pin", docker="true"))
    assert (small / "requirements.txt").read_text() == "numpy\n"


@pytest.mark.parametrize(
    "package", ["torch", "Torch>=2", "nvidia_cublas_cu12", "six==1.0", "nvidia-x @ https://a/b.whl"]
)
def test_what_the_base_brings_is_refused_by_name(small: Path, package: str) -> None:
    before = (small / "pyproject.toml").read_text()
    assert "comes with the base image" in sentence(launch(small, "add", "einops", package, docker="exit 9"))
    natively = sentence(launch(small, "--native", "add", "einops", package, docker="exit 9"))
    assert "base image" not in natively, "there is none in an environment"
    assert "environment's PyTorch" in natively or "installs the same pyproject.toml" in natively
    assert (small / "pyproject.toml").read_text() == before


def test_a_dry_run_of_add_shows_the_package(small: Path) -> None:
    done = launch(small, "--dry-run", "add", "einops", docker="exit 9")
    assert done.returncode == 0 and "\neinops\n" in done.stdout.partition("--requirement=-")[2], done.stderr


def test_what_is_there_is_said_and_costs_nothing(small: Path) -> None:
    for package in ("idna", "IDNA", "idna>=3.0,<3.11"):
        done = launch(small, "add", package, docker="exit 9")
        assert done.returncode == 0 and "is already in pyproject.toml" in done.stderr


def test_why_a_package_does_not_fit(small: Path) -> None:
    project = Project(small, {})
    said = (
        "  x No solution found when resolving dependencies:\n  Because only x==1 is available and x==1 depends on\n"
        "      torch>=2.15, we can conclude that x needs it. And because torch==2.14.1+cu130 and you require\n"
        "      x, we can conclude that your requirements are unsatisfiable.\n"
    )
    protected = "numpy==1.26\ntorch==2.14.1+cu130\n"
    assert str(add.refusal(project, said, ["x"], protected)) == (
        "x cannot be added: it needs torch>=2.15, and the base has torch 2.14.1+cu130."
    )
    unknown = "  x No solution\n  Because y was not found in the package registry and you require y"
    assert add.refusal(project, unknown, ["y"], protected).id == "not-in-index"
    built = (
        "error: Failed to build `x==1`\n  cause: The build backend returned an error\n         [stderr]\n"
        f"         Traceback (most recent call last):\n{'           File x' * 300}\n"
        "         ModuleNotFoundError: No module named 'torch'\n"
        "\nhint: This error likely indicates that `x@1` depends on `torch`, but doesn't declare it\n"
    )
    failed = add.refusal(project, built, ["x"], protected)
    assert failed.id == "build-isolation" and "No module named 'torch'" in str(failed) and "File" not in str(failed)
    long = f"Because x==1 depends on {'several, ' * 60}and y. And because {'z ' * 400}"
    assert str(add.refusal(project, long, ["x"], protected)).endswith("and y."), "no sentence is cut"


UNREACHABLE = (
    "error: Failed to fetch: https://index.test/simple/x/\n  cause: error sending request for url "
    "(https://index.test/simple/x/)\n  cause: client error (Connect)\n  cause: dns error\n"
    "  cause: error resolving DNS\n"
)


def test_a_package_without_the_network(small: Path) -> None:
    """One sentence, and uv is started once; with an index that responds slowly, again with its own settings."""
    said = str(add.refusal(Project(small, {}), UNREACHABLE, ["x"], "torch==2.14.1\n"))
    assert said.startswith("x cannot be added: https://index.test does not respond;") and said.count(".") == 2
    asked = []

    def ask(output: str, **env: str) -> tuple[int, str, str]:
        asked.append(env)
        return 1, "", output

    assert add.resolve(lambda **env: ask(UNREACHABLE, **env))[0] == 1 and asked == [add.AT_ONCE]
    add.resolve(lambda **env: ask(UNREACHABLE.replace("client error (Connect)", "operation timed out"), **env))
    assert asked[1:] == [add.AT_ONCE, {}]


def test_old_checkpoints_of_each_run(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    names = [
        "a/step-01.pt",
        "a/step-02.pt",
        "a/step-03.pt",
        "b/checkpoint-1/step-9.pt",
        "b/checkpoint-2/x",
        "a/model.pt",
        *(f"c/checkpoints/step-0000000{step}/manifest.json" for step in (1, 2, 3, 4, 5)),
    ]
    for number, name in enumerate(names):
        path = tmp_path / "outputs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * number)
        os.utime(path, (number, number))
        os.utime(path.parent, (number, number))
    for step, metric in ((2, 0.5), (3, 0.7), (4, None)):
        manifest = tmp_path / f"outputs/c/checkpoints/step-0000000{step}/manifest.json"
        manifest.write_text(json.dumps({"metric": metric, "files": {}}))
    damaged = {"metric": 0.1, "files": {"manifest.json": {"sha256": "0"}}}  # the newest, and it would be the best
    (tmp_path / "outputs/c/checkpoints/step-00000005/manifest.json").write_text(json.dumps(damaged))
    elsewhere.mkdir()
    (elsewhere / "step-1.pt").write_text("x")
    (tmp_path / "outputs/link").symlink_to(elsewhere)

    def old(keep: int) -> list[str]:
        return [
            str(path.relative_to(tmp_path / "outputs")) for path in clean.old_checkpoints(tmp_path / "outputs", keep)
        ]

    steps = [f"c/checkpoints/step-0000000{step}" for step in (1, 3)]  # 2 is the best
    assert old(1) == ["a/step-01.pt", "a/step-02.pt", "b/checkpoint-1", *steps]
    assert old(2) == ["a/step-01.pt", steps[0]]
    assert [clean.human(size) for size in (0, 999, 1500, 2.5e9, 3e12)] == ["0B", "999B", "1.5kB", "2.5GB", "3TB"]


def test_clean_lists_first_and_asks(small: Path) -> None:
    (small / "outputs/run").mkdir(parents=True)
    for number in (1, 2):
        (small / f"outputs/run/step-{number}.pt").write_text("x")
        os.utime(small / f"outputs/run/step-{number}.pt", (number, number))
    done = launch(small, "clean", docker="true")
    assert "pass --yes" in sentence(done) and "outputs/run/step-1.pt" in done.stdout
    assert (small / "outputs/run/step-1.pt").exists()
    assert launch(small, "clean", "--images", "--yes", docker="true").returncode == 0
    assert (small / "outputs/run/step-1.pt").exists()
    assert launch(small, "clean", "--yes", docker="true").returncode == 0
    assert [path.name for path in (small / "outputs/run").iterdir()] == ["step-2.pt"]


@pytest.mark.parametrize(
    ("arguments", "answers", "images", "checkpoints"),
    [
        ([], "y\nn\n", True, False),
        ([], "n\ny\n", False, True),
        (["--checkpoints"], "y\n", False, True),
        (["--images", "--yes"], "", True, False),
    ],
)
def test_clean_asks_about_images_and_checkpoints(
    small: Path, arguments: list[str], answers: str, images: bool, checkpoints: bool
) -> None:
    (small / "outputs/run").mkdir(parents=True)
    for number in (1, 2):
        (small / f"outputs/run/step-{number}.pt").write_text("x")
        os.utime(small / f"outputs/run/step-{number}.pt", (number, number))
    docker = engine(small, images=row("aaaa", "small:latest", "1GB"))
    ours, theirs = pty.openpty()
    os.write(ours, answers.encode())
    done = launch(small, "clean", *arguments, docker=docker, stdin=theirs)
    os.close(ours), os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert ("image rm --force aaaa" in calls(small)) == images
    assert (small / "outputs/run/step-1.pt").exists() != checkpoints


# What a trial of the project showed


@pytest.mark.parametrize(
    ("names", "sentence"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b, and c")]
)
def test_services_are_named_as_in_a_sentence(names: list[str], sentence: str) -> None:
    assert enumerated(names) == sentence


INSIST = "services:\n  dev: {}\n  mlflow:\n    ports:\n      - 127.0.0.1:${MLFLOW_PORT:-5000}:5000\n"


def shared(small: Path) -> Path:
    """With a second service, on a shared machine: no GPUs by default."""
    path = small / ".devcontainer/devcontainer.json"
    path.write_text(path.read_text().replace("${localEnv:GPUS:all}", "${localEnv:GPUS}"))
    (small / "compose.yaml").write_text(INSIST)
    (small / "compose.cpu.yaml").write_text("services:\n  dev:\n    deploy: !reset null\n")
    return small


def test_compose_gets_what_its_file_insists_on(small: Path) -> None:
    done = launch(shared(small), "--dry-run", "--cpu", "up")
    words = planned(done)
    assert f"USER_UID={os.getuid()}" in words and f"USER_GID={os.getgid()}" in words and "GPUS=none" in words
    assert words.index("docker") > words.index("GPUS=none")
    assert compose.variables(Project(small, {"GPUS": "1"}, cpu=True)).get("GPUS") is None
    assert compose.variables(Project(small, {"GPUS": ""}, cpu=True))["GPUS"] == "none"


@pytest.mark.parametrize("command", ["up", "run -- true", "run -d -- true", "notebook"])
def test_a_dry_run_refuses_what_the_command_would(small: Path, command: str) -> None:
    assert "No GPU is chosen" in sentence(launch(shared(small), "--dry-run", *command.split()))
    assert launch(small, "--dry-run", "stop", docker="true").returncode == 0


def test_what_the_preparation_writes_is_used(small: Path) -> None:
    """initialize.sh writes compose's name of this folder, also where a copy brought another's."""
    path = small / ".devcontainer/devcontainer.json"
    config = json.loads(path.read_text())
    config["initializeCommand"] = "echo COMPOSE_PROJECT_NAME=small-123 > .env"
    path.write_text(json.dumps(config))
    project = Project(small, {"PATH": os.environ["PATH"]})
    assert compose.name(project) == "small"
    (small / ".env").write_text("COMPOSE_PROJECT_NAME=small-9\n")
    project = Project(small, {"PATH": os.environ["PATH"]}, gpus="1")
    assert compose.name(project) == "small-9"
    project.initialize()
    assert compose.name(project) == project.engine.env["COMPOSE_PROJECT_NAME"] == "small-123"
    assert project.engine.env["GPUS"] == "1"


@pytest.mark.parametrize(
    "words",
    [
        "Bind for 127.0.0.1:5000 failed: port is already allocated",
        "failed to bind host port for 127.0.0.1:5000:172.18.0.2:5000/tcp: address already in use",
        "Ports are not available: exposing port TCP 127.0.0.1:5000 -> 127.0.0.1:0: listen tcp 127.0.0.1:5000: bind: x",
    ],
)
def test_a_port_that_is_taken_is_named(small: Path, words: str) -> None:
    project = Project(shared(small), {})
    said = f" Container small-mlflow-1  Starting\nError response from daemon: {words}\n"
    assert str(compose.refusal(project, said)).startswith(
        "Port 5000 is in use on this machine: choose another with `MLFLOW_PORT=5001"
    )
    moved = Project(small, {"MLFLOW_PORT": "7"})
    assert "MLFLOW_PORT" not in str(compose.refusal(moved, said))
    assert "MLFLOW_PORT=8" in str(compose.refusal(moved, said.replace(":5000", ":7")))


ENGINE = """\
echo "$*" >> "$HOME/calls"
label='{root}'
case "$*" in
"ps"*"label=gpukit.project"*) {own} ;;
"ps"*"label=devcontainer"*) {vscode} ;;
"ps"*"working_dir"*) {compose} ;;
"inspect --format={{{{.Image}}}}"*) {inspect} ;;
"inspect"*State*) {state} ;;
"images"*) {images} ;;
"network ls"*) {networks} ;;
"port"*) echo '5000/tcp -> 127.0.0.1:5001' ;;
"info"*|"version"*) echo '{{}}' ;;
"image inspect"*) echo "Error: No such image: small" >&2; exit 1 ;;
"run"*) {start} ;;
*" up "*) {up} ;;
*) {other} ;;
esac
"""


def engine(small: Path, **answers: str) -> str:
    """A docker that answers so and notes what it is asked."""
    keys = ("own", "vscode", "compose", "inspect", "state", "images", "networks", "up", "other")
    refused = {"start": 'echo "exec: /none: no such file" >&2; exit 127'}
    return ENGINE.format(root=small, **{**dict.fromkeys(keys, ":"), **refused, **answers})


def calls(small: Path) -> list[str]:
    return (small.parent / "calls").read_text().splitlines()


def row(*fields: str) -> str:
    return f"printf '%s\\n' '{chr(9).join(fields)}'"


def test_a_slow_service_does_not_fail_up(small: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Its address is printed, and the one that responds is listed."""
    state = f"{row('/s-dev-1,running,0,0,,dev')}; {row('/s-mlflow-1,running,0,0,unhealthy,mlflow')}"
    launch(shared(small), "--help", docker=engine(small, state=state))  # makes the tools
    monkeypatch.setattr(compose, "SECONDS", 0)
    project = Project(small, {"PATH": str(small.parent / "tools"), "HOME": str(small.parent)}, cpu=True)
    assert compose.wait(project) == []
    said = capsys.readouterr().err
    assert "  dev: http://localhost:5001\n" in said
    assert "  mlflow: http://localhost:5001 does not respond yet; `./launch logs -f mlflow`" in said


def test_an_up_that_fails_leaves_nothing_of_it(small: Path) -> None:
    taken = "echo 'Bind for 127.0.0.1:5000 failed: port is already allocated' >&2; exit 1"
    done = launch(shared(small), "--cpu", "up", docker=engine(small, up=taken))
    assert "MLFLOW_PORT=5001 ./launch --cpu up" in sentence(done)
    assert any(" down " in call for call in calls(small))
    (small.parent / "calls").unlink()
    ran = row("s-dev-1", "running", "dev", str(small))
    assert "MLFLOW_PORT" in sentence(launch(small, "--cpu", "up", docker=engine(small, up=taken, compose=ran)))
    assert not any(" down " in call for call in calls(small))  # what ran before stays


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (("running", "0", "0", ""), "up"),
        (("running", "0", "3", "healthy"), "up"),  # it has been restarted at some time
        (("running", "0", "0", "starting"), "starting"),
        (("created", "0", "0", ""), "starting"),
        (("running", "0", "0", "unhealthy"), "starting"),  # it may only be slow
        (("running", "0", "1", "starting"), "ended"),
        (("restarting", "1", "1", ""), "ended"),
        (("exited", "3", "0", "unhealthy"), "ended with status 3"),
    ],
)
def test_states_of_a_service(facts: tuple[str, ...], expected: str) -> None:
    assert compose.state_of(*facts).startswith(expected)


def test_containers_of_compose_are_told_by_their_folder(small: Path) -> None:
    (small.parent / "link").symlink_to(small)
    rows = "; ".join(
        row(f"s-{name}-1", "running", name, folder)
        for name, folder in (("dev", f"{small.parent}/link"), ("other", "/elsewhere"))
    )
    done = launch(shared(small), "--dry-run", "stop", docker=engine(small, compose=rows))
    assert "s-dev-1" in done.stdout and "s-other-1" not in done.stdout


def test_logs_of_what_has_ended_say_how(small: Path) -> None:
    rows = {"own": row("small-run", "exited", "run"), "other": "echo hello"}
    done = launch(small, "logs", docker=engine(small, **rows, state="echo exited 1 false"))
    assert (done.stdout, done.stderr) == ("hello\n", "small-run ended with status 1.\n")
    done = launch(small, "logs", docker=engine(small, **rows, state="echo exited 137 true"))
    assert done.stderr == "small-run ended with status 137: it ran out of memory.\n"
    done = launch(small, "logs", docker=engine(small, **rows, state="echo running 0 false"))
    assert done.stderr == ""


def test_logs_of_what_has_just_started_are_waited_for(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    third = 'read -r n < "$HOME/n"; n="x$n"; echo "$n" > "$HOME/n"; case $n in xxx*) echo hello;; esac'
    (small.parent / "n").write_text("\n")
    state = 'case "$*" in *StartedAt*) echo 2999-01-01T00:00:00.5Z;; *) echo true;; esac'
    docker = engine(small, own=row("small-run", "running", "run"), state=state, other=third)
    done = launch(small, "logs", docker=docker)
    assert done.stdout == "hello\n" and "small-run has just started: waiting for its output.\n" in done.stderr
    silent = engine(small, own=row("small-run", "running", "run"), state=state.replace("2999", "2020"))
    done = launch(small, "logs", docker=silent)
    assert (done.returncode, done.stdout) == (
        0,
        "",
    ) and "has not printed anything yet: `./launch logs -f`" in done.stderr
    monkeypatch.setattr(container, "JUST_STARTED", 0.1)
    assert not container.wait_for_output("x", lambda: True, 0)


def test_clean_takes_vs_codes_stopped_container_and_leaves_the_one_that_runs(small: Path) -> None:
    config = f"{small}/.devcontainer/devcontainer.json"
    docker = engine(
        shared(small),
        own=row("small-run", "exited", "run"),
        vscode=row("old", "exited", str(small), config) + "; " + row("open", "running", str(small), config),
        inspect='case "$*" in *open) echo sha256:aaaa11 vsc-x;; *) echo sha256:bbbb22 vsc-y;; esac',
        images=row("aaaa", "vsc-x:latest", "1GB") + "; " + row("bbbb", "vsc-y:latest", "1GB"),
        networks="echo small-ada",
    )
    listed = launch(small, "clean", docker=docker, USER="ada")
    assert "run this in a terminal" in listed.stderr
    done = launch(small, "clean", "--yes", docker=docker, USER="ada")
    assert done.returncode == 0, done.stderr
    for part in ("container old", "container small-run", "network small-ada", "image vsc-y"):
        assert part in done.stdout
    assert "vsc-x" not in done.stdout and "container open" not in done.stdout
    assert "open runs in VS Code, so it and its image are kept" in done.stderr
    assert "Removed 2 containers, 1 network, 1 image." in done.stderr
    removed = [call for call in calls(small) if "rm " in call]
    assert removed == ["rm small-run", "rm old", "network rm small-ada", "image rm --force bbbb"]


def test_a_network_that_another_project_is_in_stays(small: Path) -> None:
    docker = engine(shared(small), networks="echo small-ada").replace(
        'case "$*" in', 'case "$*" in\n"ps"*"network="*) echo not-ours ;;', 1
    )
    done = launch(small, "clean", "--yes", docker=docker, USER="ada")
    assert "nothing of this project to remove" in done.stderr and "network" not in done.stdout


def test_add_goes_into_every_container_that_runs(small: Path) -> None:
    """And says of each that cannot take it what gives it the next build."""
    config = f"{small}/.devcontainer/cpu/devcontainer.json"
    rows = "; ".join(row(f"small-{role}", "running", role) for role in ("run", "notebook"))
    docker = engine(
        small,
        own=rows,
        vscode=row("open", "running", str(small), config),
        other='case "$*" in *" open "*"uv pip install einops"*) exit 1;; *" open "*--dry-run*) echo " ~ idna==3" >&2;; '
        '*" open "*python*) exit 1;; esac',
    )
    done = launch(small, "add", "einops", docker=docker)
    assert done.returncode == 0, done.stderr
    assert "Added einops to pyproject.toml and to small-notebook, and to the next build." in done.stderr
    assert (
        'open does not have it yet (it replaces idna, which a running container may not): choose "Rebuild Con'
        in done.stderr
    )
    assert '"einops"' in (small / "pyproject.toml").read_text()
    assert not any(call.startswith("exec") and "small-run" in call for call in calls(small))


def test_an_engine_that_docker_host_names(small: Path) -> None:
    docker = "echo 'Cannot connect to the Docker daemon at unix:///nope. Is the docker daemon running?' >&2; exit 1"
    said = sentence(launch(small, "run", "--", "true", docker=docker, DOCKER_HOST="unix:///nope"))
    assert "unix:///nope, which DOCKER_HOST names" in said
    docker = docker.replace("unix:///nope", "unix:///var/run/docker.sock")
    assert "DOCKER_HOST" not in sentence(launch(small, "run", "--", "true", docker=docker))
    context = f"case $1 in context) echo ssh://me@box; exit;; esac; {docker}"
    assert "ssh://me@box, which its context names" in sentence(launch(small, "run", "--", "true", docker=context))


def test_a_shell_needs_no_service_beside_it(
    small: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def up(_: Project) -> str:
        raise RefusalError("TensorBoard failed.")

    monkeypatch.setattr(container, "up", up)
    monkeypatch.setattr(Engine, "become", lambda *_: 3)
    project = Project(small, {}, cpu=True)
    for after, code in ((container.Found("small-dev", True, "dev"), 3), (None, None)):
        states = iter([None, after])
        monkeypatch.setattr(container, "running", lambda _, states=states: next(states))
        if code:
            assert container.shell(project, ["true"]) == code and "TensorBoard" in capfd.readouterr().err
        else:
            with pytest.raises(RefusalError, match="TensorBoard"):
                container.shell(project, ["true"])


def test_ctrl_c_while_the_notebook_starts(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = engine(small, own=row(f"{Project(small, {}).tag}-notebook", "running", "notebook"))
    launch(small, "--help", docker=docker)  # makes the tools
    project = Project(small, {"PATH": str(small.parent / "tools"), "HOME": str(small.parent)})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(notebook, "wait", interrupted)
    with pytest.raises(RefusalError, match="is still starting") as refused:
        notebook.notebook(project)
    assert refused.value.code == 130


DIGESTS = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.mark.parametrize("pulled", [True, False])
def test_the_digest_of_the_base(small: Path, pulled: bool) -> None:
    """A build records what it starts from, verify gets it, and `pin --digest` writes it."""
    base = f"standin/python@{DIGESTS[0]}"
    name = f"standin/python:slim@{DIGESTS[0]}"
    docker = f"""\
case "$*" in
  *RepoDigests*) echo '["other/python@{DIGESTS[1]}"{f', "{base}"' * pulled}]' ;;
  "image inspect"*gpukit.base*) read -r label < "$HOME/built"; echo "$label" ;;
  "image inspect"*) echo "Error: No such image: small" >&2; exit 1 ;;
  build*) for word; do case $word in --label=gpukit.base=*) echo "${{word#*base=}}" ;; esac; done > "$HOME/built" ;;
  run*) echo "{{}}"; echo "${{GPUKIT_BASE:-none}}" > "$HOME/seen" ;;
  *) echo "{{}}" ;;
esac"""
    done = launch(small, "--cpu", "verify", docker=docker)
    assert done.returncode == 0, done.stderr
    assert (small.parent / "built").read_text() == f"{name}\n" * pulled
    assert (small.parent / "seen").read_text() == (f"{name}\n" if pulled else "none\n")
    done = launch(small, "pin", "--digest", docker=docker)
    assert (f"${{BASE_IMAGE:-{name}}}" in (small / "Dockerfile").read_text()) == pulled, done.stderr
    assert pulled or "was not pulled from a registry" in sentence(done)
