"""Planted secrets appear in no process list, image, log, or printed command."""

from __future__ import annotations

import contextlib
import json
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Engine, Project

SECRETS = {
    "HF_TOKEN": "hf_planted5c1f8e",
    "WANDB_API_KEY": "planted0d7ab34e",
    "AWS_SESSION_TOKEN": "planted93bb20fa",
}


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """The arguments of every process on this machine, sampled continuously."""
    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.03):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join(30)


def found_in(text: str) -> list[str]:
    return [name for name, value in SECRETS.items() if value in text]


COMMANDS = {
    "up": ("devcontainer", "up", "--workspace-folder=.", "--remove-existing-container", "--log-level=trace"),
    "exec": (
        "devcontainer",
        "exec",
        "--workspace-folder=.",
        "python",
        "-c",
        "import os; print(len(os.environ['HF_TOKEN']))",
    ),
    "run": (
        "./launch",
        "run",
        "--",
        "python",
        "-c",
        "import os, sys; sys.exit(len(os.environ['WANDB_API_KEY']) != 15)",
    ),
    "detached": ("./launch", "run", "-d", "--", "sleep", "30"),
    "compose": ("./launch", "up"),
    "shell": ("./launch", "shell", "--", "sh", "-c", 'test "${#HF_TOKEN}" = 16 && test "${#AWS_SESSION_TOKEN}" = 15'),
    "build": ("./launch", "build", "--no-cache"),
    "verify": ("./launch", "verify", "--only=user"),
    "doctor": ("./launch", "doctor"),
    "dry": ("./launch", "--dry-run", "run", "--", "true"),
    "dry-up": ("./launch", "--dry-run", "up"),
    "dry-build": ("./launch", "--dry-run", "build"),
}


@pytest.mark.parametrize("dotenv", [False, True], ids=["environment", "dotenv"])
def test_secrets_stay_where_they_are(project: Callable[..., Project], dotenv: bool) -> None:
    """Set in the environment, or in .env: they arrive, and are seen nowhere on the way."""
    one = project(name=f"secret-{dotenv}", slight=True, tracking=["tensorboard", "wandb"], credentials=["aws"])
    one.write(
        "Dockerfile",
        (one.path / "Dockerfile").read_text().replace("RUN", "COPY pyproject.tom[l] .en[v] /etc/gpukit/\nRUN"),
    )
    if dotenv:
        one.write(".env", "".join(f"{name}={value}\n" for name, value in SECRETS.items()))
    # verify needs torch, which this image lacks; the CLI does not read .env
    may_fail = {"verify", "doctor", *(["exec"] if dotenv else [])}
    with watched() as seen:
        for name, command in COMMANDS.items():
            done = one.run(*command, **({} if dotenv else SECRETS))
            assert found_in(done.stdout + done.stderr) == [], name
            if name not in may_fail:
                assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
    assert any("docker" in line and "--env-file=" in line for line in seen)  # it did look
    assert [line for line in seen if found_in(line)] == []
    images = {one.engine.inspect(name)["Image"] for name in one.containers("--all")} | {one.image}
    for image in images:
        assert found_in(one.engine.get("history", "--no-trunc", image)) == []
        assert found_in(json.dumps(one.engine.inspect(image))) == []
    if dotenv:  # a build could have copied a file in the project
        assert_no_layer_holds_one(one.engine, one.path.parent / "tmp/images.tar", *images)
    files = [path for path in one.path.rglob("*") if path.is_file() and path.name != ".env"]
    assert [path for path in files if found_in(path.read_text(errors="replace"))] == []
    one.stop()


def assert_no_layer_holds_one(engine: Engine, archive: Path, *images: str) -> None:
    engine.get("save", f"--output={archive}", *images)
    try:
        with tarfile.open(archive) as outer:
            for member in outer:
                stream = outer.extractfile(member) if member.isfile() else None
                tail = b""
                while stream and (chunk := stream.read(1 << 24)):
                    assert found_in((tail + chunk).decode("latin-1")) == [], member.name
                    tail = chunk[-64:]
    finally:
        archive.unlink()


def test_a_mirror_with_a_password_is_refused(project: Callable[..., Project]) -> None:
    """A build argument is in the image's history."""
    one = project(name="secret-False", slight=True, tracking=["tensorboard", "wandb"], credentials=["aws"])
    done = one.launch("build", UV_INDEX="pytorch=https://me:hunter2@mirror.example/simple")
    assert done.returncode == 1
    assert "hunter2" not in done.stderr + done.stdout
    assert "UV_INDEX contains credentials" in done.stderr
