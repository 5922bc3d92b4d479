"""Every problem ends in one sentence with the remedy and a non-zero exit status, and leaves nothing incomplete."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

from .conftest import Done, Project, User

CLI_TIME = re.compile(r"^\[\S+Z\] ")
UP = ("devcontainer", "up", "--workspace-folder=.")


def refusal(done: Done[str]) -> str:
    """The one sentence that launch prints before it exits."""
    assert done.returncode not in (0, None), done.stdout
    lines = [CLI_TIME.sub("", line) for line in done.stderr.splitlines()]
    assert "Traceback" not in done.stderr
    found = [line for line in lines if line.startswith("launch: ")]
    assert len(found) == 1, done.stderr[-3000:]
    return found[0]


def slight(project: Callable[..., Project], name: str, **options: object) -> Project:
    return project(name=name, slight=True, **options)


def test_vs_code_and_the_engine(project: Callable[..., Project], users: Callable[..., User]) -> None:
    """The CLI prints its own message, because it contacts the engine before it runs initializeCommand."""
    absent = slight(project, "alone", workflow="notebook").run(*UP, DOCKER_HOST="unix:///nonexistent/docker.sock")
    outside = slight(project, "outside", user=users(1001, allowed=False), workflow="notebook").run(*UP)
    for done in (absent, outside):
        assert done.returncode != 0
        assert "Command failed: docker ps" in done.stdout


@pytest.mark.parametrize("command", [("run", "--", "true"), ("up",), ("notebook",)], ids=lambda command: command[0])
def test_a_user_without_access_to_the_engine(
    project: Callable[..., Project], users: Callable[..., User], command: tuple[str, ...]
) -> None:
    one = slight(project, "outside", user=users(1001, allowed=False), workflow="notebook")
    assert "sudo usermod -aG docker $USER" in refusal(one.launch(*command, timeout=60))


@pytest.mark.parametrize(
    "image", ["127.0.0.1:9/nothing:1", "registry.invalid/nothing:1"], ids=["no-registry", "no-host"]
)
def test_a_base_that_cannot_be_pulled(project: Callable[..., Project], image: str) -> None:
    one = slight(project, "no-base")
    sentence = refusal(one.launch("run", "--", "true", BASE_IMAGE=image))
    assert image.partition("/")[0] in sentence
    assert "BASE_IMAGE" in sentence
    done = one.run(*UP, BASE_IMAGE=image)
    assert done.returncode != 0
    assert image in done.stderr + done.stdout
    assert one.containers("--all") == []
    assert not one.engine.has(one.image)


@pytest.mark.parametrize(
    "command", [("./launch", "run", "--", "true"), ("./launch", "up"), UP], ids=["run", "up", "cli"]
)
def test_a_mount_whose_source_is_a_file(
    project: Callable[..., Project], users: Callable[..., User], command: tuple[str, ...]
) -> None:
    one = slight(project, "a-file", credentials=["kaggle"])
    wrong = one.user.home / ".kaggle"
    wrong.write_text("a file\n")
    try:
        done = one.run(*command)
    finally:
        wrong.unlink()
    assert done.returncode != 0
    output = [line for line in done.stderr.splitlines() if "must be a folder, but it is a file: move it away." in line]
    assert len(output) == 1, done.stderr
    assert str(wrong) in output[0]
    assert one.containers("--all") == []


@pytest.mark.parametrize("name", ["with, comma", "it's  spaced & $HOME 🚀"])
def test_the_path_of_the_project(project: Callable[..., Project], name: str) -> None:
    one = slight(project, name, tracking=["tensorboard"])
    source = one.path / "made by run"
    assert one.launched("run", "--", "sh", "-c", 'touch "made by run"; pwd') == "/workspace\n"
    assert source.stat().st_uid == one.user.uid
    one.launched("up")
    assert one.launched("shell", "--", "ls", "made by run") == "made by run\n"
    one.launched("stop")
    assert one.containers("--all") == []
    if "," in name:
        done = one.run(*UP)
        assert done.returncode != 0
        assert f"Docker cannot mount a folder with a comma in its path: rename {one.path}" in done.stderr
    else:
        one.up()
        assert one.inside("ls", "made by run").stdout == "made by run\n"
        one.stop()


def test_a_git_worktree(project: Callable[..., Project]) -> None:
    """The folder's .git is a file that points outside the mounted folder."""
    main = slight(project, "main-tree")
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    steps = [("init", "-q"), ("add", "-A"), ("commit", "-qm", "x"), ("worktree", "add", "-q", "../other-tree")]
    for step in steps:
        done = main.run(*git, *step)
        assert done.returncode == 0, done.stderr
    other = Project(main.path.parent / "other-tree", main.user, main.engine, main.environment)
    try:
        assert other.launched("run", "--", "ls", "launch") == "launch\n"
        other.up()
        assert other.inside("ls", "launch").stdout == "launch\n"
        assert other.run(*git, "status", "--porcelain").stdout == ""  # .launch and outputs are also ignored there
    finally:
        other.stop()
        other.engine.ask("rmi", "--force", other.image)


def test_a_foreign_container_with_the_same_name(project: Callable[..., Project], bases: dict[str, str]) -> None:
    one = slight(project, "stranger")
    name = f"{one.image}-dev"
    one.engine.get("run", "--detach", f"--name={name}", bases["wheel"], "sleep", "infinity")
    try:
        assert f"{name}" in refusal(one.launch("up"))
        assert one.engine.inspect(name)["State"]["Running"]  # it is not changed
    finally:
        one.engine.get("rm", "--force", name)
    assert one.containers("--all") == []


@pytest.mark.parametrize("shown", ["", "RUN sleep 30"], ids=["at once", "later"])
def test_ctrl_c_during_the_build(project: Callable[..., Project], shown: str) -> None:
    one = slight(project, "interrupted-build")
    one.write("Dockerfile", (one.path / "Dockerfile").read_text() + f"RUN sleep 30 # {shown}\n")
    process = one.start("./launch", "run", "--", "true", start_new_session=True)
    assert any(shown in line for line in process.stderr)  # the first line with it
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to the whole foreground group
    _, output = process.communicate(timeout=180)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert one.containers("--all") == []
    assert not one.engine.has(one.image)
