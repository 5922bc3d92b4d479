"""launch without an engine: what it would call, refuse and read. Where it is needed, `docker` is a script."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpukit.launcher import add, clean, cli, compose, image, notebook, pin
from gpukit.launcher.project import Project, dotenv


def launch(
    root: Path, *arguments: str, docker: str | None = None, python: str = sys.executable, **env: str
) -> subprocess.CompletedProcess[str]:
    """./launch with a PATH that holds nothing but sh and, where given, a script as docker."""
    tools = root.parent / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("sh", "mkdir", "sleep"):
        (tools / tool).unlink(missing_ok=True)
        (tools / tool).symlink_to(shutil.which(tool) or "")
    if docker is not None:
        (tools / "docker").write_text(f"#!/bin/sh\n{docker}\n", encoding="utf-8")
        (tools / "docker").chmod(0o755)
    return subprocess.run(
        [python, str(root / "launch"), *arguments],
        env={"PATH": str(tools), "HOME": str(root.parent), "LANG": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
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
    after = planned(launch(small, "--dry-run", "run", *arguments, "--", "true", **env))
    assert [word for word in after if word.startswith("--gpus")] == ([request_] if request_ else [])


@pytest.mark.parametrize("command", ["run", "up", "shell", "notebook", "add", "pin", "build", "preflight", "verify"])
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


def test_the_command_needs_no_dashes_and_keeps_its_own(small: Path) -> None:
    for words in (["run", "python", "x.py", "--cpu", "-d"], ["run", "--", "python", "x.py", "--cpu", "-d"]):
        assert cli.parse(words).rest == ["python", "x.py", "--cpu", "-d"]
    options = cli.parse(["--gpus", "0", "run", "-d", "--name", "a", "python", "--", "x"])
    assert (options.detach, options.name, options.gpus, options.rest) == (True, "a", "0", ["python", "--", "x"])
    assert cli.parse(["verify", "--json", "--cpu", "--only", "torch"]).rest == ["--json", "--only", "torch"]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_each_command_explains_itself(small: Path, command: str) -> None:
    done = launch(small, command, "--help")
    assert done.returncode == 0
    assert cli.COMMANDS[command][0].split()[-1] in done.stdout.replace("\n", " ")
    assert "--dry-run" in done.stdout


# What it refuses


def test_without_docker(small: Path) -> None:
    assert "Docker is not installed" in sentence(launch(small, "run", "--", "true"))


@pytest.mark.parametrize("command", ["up", "run -- true", "run -d -- true", "stop", "clean", "logs", "preflight"])
def test_an_engine_that_does_not_answer(small: Path, command: str) -> None:
    docker = "echo 'Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?' >&2; exit 1"
    assert "systemctl start docker" in sentence(launch(small, *command.split(), docker=docker))


def test_podman_and_rootless(small: Path) -> None:
    podman = 'case $1 in image) echo "No such image" >&2; exit 1;; esac; echo \'{"Server": "Podman Engine"}\''
    assert "Podman" in sentence(launch(small, "build", docker=podman))
    rootless = 'case $1 in version) echo "{}";; info) echo \'{"SecurityOptions":["name=rootless"]}\';; esac'
    assert "Rootless Docker" in sentence(launch(small, "build", docker=rootless))


def test_a_folder_that_is_no_project(small: Path) -> None:
    shutil.rmtree(small / ".devcontainer")
    assert "is not a generated project" in sentence(launch(small, "up", docker="true"))


def test_no_configuration_without_a_gpu(small: Path) -> None:
    shutil.rmtree(small / ".devcontainer/cpu")
    assert "no configuration without a GPU" in sentence(launch(small, "--cpu", "up", docker="true"))


@pytest.mark.parametrize("value", ["", "a b", 'x"y', "$(id)"])
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
    assert "UV_INDEX holds credentials" in said and "planted" not in said
    said = sentence(launch(small, "--dry-run", "build", BASE_IMAGE="https://me:planted@example.com/x"))
    assert "BASE_IMAGE" in said and "planted" not in said


def test_a_detached_run_needs_a_name_that_docker_takes(small: Path) -> None:
    assert "is no name" in sentence(launch(small, "run", "-d", "--name", "a b", "--", "true", docker="true"))


def test_notebooks_are_not_everywhere(small: Path) -> None:
    shutil.rmtree(small / "notebooks")
    assert "copier update --data workflow=notebook" in sentence(launch(small, "notebook", docker="true"))


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_a_python_that_is_too_old(small: Path, version: str) -> None:
    python = next(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}"))
    if not python:
        pytest.skip(f"there is no Python {version} here")
    done = launch(small, "up", python=str(python))
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "3.9 or newer" in done.stderr


def test_the_oldest_python_that_is_supported(small: Path) -> None:
    python = next(Path.home().glob(".pyenv/versions/3.9.*/bin/python"), shutil.which("python3.9"))
    if not python:
        pytest.skip("there is no Python 3.9 here")
    assert planned(launch(small, "--dry-run", "run", "--", "true", python=str(python)))
    modules = [path.stem for path in (small / "gpukit/launcher").glob("*.py")]
    names = ", ".join(f"gpukit.launcher.{name}" for name in modules if name != "__init__")
    subprocess.run([str(python), "-c", f"import {names}"], cwd=small, check=True)


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
    assert len(made) == 1 and len(made.pop()) > 30
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


def test_pins_hold_the_release_of_torch_but_not_its_build_and_leave_nvidias_alone() -> None:
    wheels = {"torch": ["2.14.1+cu130", False], "torchvision": ["0.29.2+cu130", False], "triton": ["3.8.0", False]}
    assert pin.lines(wheels, ["torch*", "triton"]) == "torch==2.14.1\ntorchvision==0.29.2\n# triton==3.8.0\n"
    nvidia = {"torch": ["2.10.0a0+b558c986e8.nv25.11", False]}
    assert pin.lines(nvidia, ["torch"]) == "# torch==2.10.0a0+b558c986e8.nv25.11\n"


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
    assert "not from `./launch pin`" in sentence(launch(small, "pin", docker="true"))
    assert (small / "requirements.txt").read_text() == "numpy\n"


@pytest.mark.parametrize(
    "package", ["torch", "Torch>=2", "nvidia_cublas_cu12", "six==1.0", "nvidia-x @ https://a/b.whl"]
)
def test_what_the_base_brings_is_refused_by_name(small: Path, package: str) -> None:
    before = (small / "pyproject.toml").read_text()
    assert "comes with the base image" in sentence(launch(small, "add", "einops", package, docker="exit 9"))
    assert (small / "pyproject.toml").read_text() == before


def test_what_is_there_is_said_and_costs_nothing(small: Path) -> None:
    for package in ("idna", "IDNA", "idna>=3.0,<3.11"):
        done = launch(small, "add", package, docker="exit 9")
        assert done.returncode == 0 and "is in pyproject.toml already" in done.stderr


def test_why_a_package_does_not_fit(small: Path) -> None:
    project = Project(small, {})
    said = (
        "  x No solution found when resolving dependencies:\n  Because only x==1 is available and x==1 depends on\n"
        "      torch>=2.15, we can conclude that x needs it. And because torch==2.14.1+cu130 and you require\n"
        "      x, we can conclude that your requirements are unsatisfiable.\n"
    )
    protected = "numpy==1.26\ntorch==2.14.1+cu130\n"
    assert str(add.refusal(project, said, ["x"], protected)) == (
        "x cannot be added: it needs torch>=2.15, and the base keeps torch 2.14.1+cu130."
    )
    unknown = "  x No solution\n  Because y was not found in the package registry and you require y"
    assert "no package y" in str(add.refusal(project, unknown, ["y"], protected))


def test_old_checkpoints_of_each_run(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    names = [
        "a/step-01.pt",
        "a/step-02.pt",
        "a/step-03.pt",
        "b/checkpoint-1/step-9.pt",
        "b/checkpoint-2/x",
        "a/model.pt",
    ]
    for number, name in enumerate(names):
        path = tmp_path / "outputs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * number)
        os.utime(path, (number, number))
        os.utime(path.parent, (number, number))
    elsewhere.mkdir()
    (elsewhere / "step-1.pt").write_text("x")
    (tmp_path / "outputs/link").symlink_to(elsewhere)

    def old(keep: int) -> list[str]:
        return [
            str(path.relative_to(tmp_path / "outputs")) for path in clean.old_checkpoints(tmp_path / "outputs", keep)
        ]

    assert old(1) == ["a/step-01.pt", "a/step-02.pt", "b/checkpoint-1"]
    assert old(2) == ["a/step-01.pt"]
    assert [clean.human(size) for size in (0, 999, 1500, 2.5e9, 3e12)] == ["0B", "999B", "1.5kB", "2.5GB", "3TB"]


def test_clean_lists_first_and_asks(small: Path) -> None:
    (small / "outputs/run").mkdir(parents=True)
    for number in (1, 2):
        (small / f"outputs/run/step-{number}.pt").write_text("x")
        os.utime(small / f"outputs/run/step-{number}.pt", (number, number))
    done = launch(small, "clean", docker="true")
    assert "pass --yes" in sentence(done) and "outputs/run/step-1.pt" in done.stdout
    assert (small / "outputs/run/step-1.pt").exists()
    assert launch(small, "clean", "--yes", docker="true").returncode == 0
    assert [path.name for path in (small / "outputs/run").iterdir()] == ["step-2.pt"]


def test_ctrl_c_before_anything_runs(small: Path) -> None:
    """The image is being looked up: nothing is there yet, and nothing stays."""
    tools = small.parent / "tools"
    launch(small, "--help", docker="sleep 5")  # makes the tools
    process = subprocess.Popen(
        [sys.executable, str(small / "launch"), "run", "--", "true"],
        env={"PATH": str(tools), "HOME": str(small.parent)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(0.5)
    os.killpg(process.pid, 2)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in said
