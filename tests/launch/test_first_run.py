"""`./launch try` and the question on a machine without a GPU: what is chosen on which machine, and what is said."""

from __future__ import annotations

import argparse
import io
import json
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpukit.cli import commands
from gpukit.host import engine as engine_module
from gpukit.host import facts, preflight
from gpukit.host.project import Project
from gpukit.host.refusals import lacks_gpu
from gpukit.launch import container, first_run, native
from gpukit.project import messages
from gpukit.project.messages import RefusalError
from tests.conftest import cannot

from .conftest import write_project

CONTAINER = False
NATIVE = True
NO_GPU = RefusalError("This machine has no NVIDIA GPU. Use another.", kind="gpu", id="no-gpu-here")
NO_TOOLKIT = RefusalError("The Container Toolkit is not installed. Install it.", kind="gpu", id="toolkit-not-installed")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A project, and a machine with an engine, a driver, and uv, each of which may be missing."""
    root = write_project(tmp_path / "small")
    (root / "src/small").mkdir(parents=True)
    (root / "src/small/train.py").touch()
    (root / "stack.json").write_text(json.dumps({"project": "small", "package": "small", "trial": ["--tiny"]}))
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.touch(mode=0o755)

    def make(engine: str = "", refused: RefusalError | None = None, driver: str = "", has_uv: bool = True) -> Path:
        monkeypatch.setattr(first_run, "of_engine", lambda project: engine)
        monkeypatch.setattr(first_run, "refusal", lambda project: refused)
        monkeypatch.setattr(first_run, "of_driver", lambda project: driver)
        monkeypatch.setattr(facts, "no_gpu", lambda: bool(driver))
        monkeypatch.setenv("PATH", str(uv.parent) if has_uv else "")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("UV", raising=False)
        return root

    return make


def ways(root: Path, only_native: bool = False, cpu: bool = False, **env: str) -> list[tuple[bool, bool]]:
    env = {"PATH": str(root.parent / "bin"), **env}
    found = first_run.ways(Project(root, env, cpu), Project(root, env, True), only_native)
    return [(way.native, way.gpu) for way in found]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"driver": "No driver"}, [(CONTAINER, True), (CONTAINER, False), (NATIVE, False)]),
        ({}, [(CONTAINER, True), (NATIVE, True), (CONTAINER, False), (NATIVE, False)]),
        ({"refused": NO_GPU, "driver": "No driver"}, [(CONTAINER, False), (NATIVE, False)]),
        ({"refused": NO_TOOLKIT}, [(NATIVE, True), (CONTAINER, False), (NATIVE, False)]),
        ({"engine": "Docker is not installed"}, [(NATIVE, True), (NATIVE, False)]),
        ({"engine": "Docker is not installed", "driver": "No driver"}, [(NATIVE, False)]),
    ],
)
def test_the_best_way_is_chosen_and_what_was_asked_for_is_kept(machine, given: dict, chosen: list) -> None:
    root = machine(**given)
    assert ways(root) == chosen
    assert ways(root, cpu=True) == [way for way in chosen if not way[1]]
    assert ways(root, only_native=True) == [way for way in chosen if way[0]]
    assert ways(root, only_native=True, cpu=True) == [(NATIVE, False)]


def test_the_sentence_says_where_and_why(machine, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(native, "run_and_return", lambda project, command: 0)
    root = machine(engine="Docker did not respond within 5 s", driver="No driver")
    assert first_run.first_run(root, False, "", False, False) == 0
    said = capsys.readouterr().err
    assert said.startswith("Docker did not respond within 5 s; no NVIDIA GPU here: training natively, on the CPU")
    assert said.count("\n") == 1


def test_on_a_shared_machine_no_gpu_is_taken_unasked(machine) -> None:
    root = machine()
    path = root / ".devcontainer/devcontainer.json"
    path.write_text(path.read_text().replace("${localEnv:GPUS:all}", "${localEnv:GPUS}"))
    assert ways(root) == [(CONTAINER, False), (NATIVE, False)]
    assert ways(root, GPUS="0") == [(CONTAINER, True), (NATIVE, True), (CONTAINER, False), (NATIVE, False)]


def test_no_gpu_has_to_be_chosen_where_there_is_none(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(driver="No driver")
    path = root / ".devcontainer/devcontainer.json"
    path.write_text(path.read_text().replace("${localEnv:GPUS:all}", "${localEnv:GPUS}"))
    for endpoint, none_here in (("unix:///run/docker.sock", True), ("ssh://box", False)):
        monkeypatch.setattr(engine_module.Engine, "endpoint", lambda _, endpoint=endpoint: endpoint)
        with pytest.raises(RefusalError) as refused:
            Project(root, {}).gpu_is_chosen()
        assert lacks_gpu(refused.value) is none_here


def test_what_fails_before_it_trains_is_said_and_the_next_way_is_tried(machine, monkeypatch, capsys) -> None:
    def fail(project: Project, command: list[str], trial: bool) -> int:
        raise RefusalError("The image cannot be built: no network.")

    trained = []
    monkeypatch.setattr(container, "run", fail)
    monkeypatch.setattr(native, "run_and_return", lambda project, command: trained.append(command) or 0)
    root = machine(refused=NO_GPU, driver="No driver")
    assert first_run.first_run(root, False, "", False, False) == 0
    assert trained[0][-1] == "--tiny" and "no network" in capsys.readouterr().err
    with pytest.raises(RefusalError, match="no network"):  # not how to install uv
        first_run.first_run(machine(refused=NO_GPU, driver="No driver", has_uv=False), False, "", False, False)
    with pytest.raises(RefusalError, match="pipx install uv"):
        first_run.first_run(
            machine(engine="Docker is not installed", driver="x", has_uv=False), False, "", False, False
        )
    assert "Docker is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("only_native", [CONTAINER, NATIVE])
def test_how_training_ends_is_how_try_ends(machine, only_native: bool, monkeypatch, capsys) -> None:
    root = machine()
    code = 130
    monkeypatch.setattr(container, "run", lambda project, command, trial: code)
    monkeypatch.setattr(native, "run_and_return", lambda project, command: code)
    assert first_run.first_run(root, False, "", only_native, False) == 130
    assert f"./launch{' --native' * only_native} run -- python -m" in capsys.readouterr().err
    code = 3
    with pytest.raises(RefusalError, match=r"exit status 3.*`./launch explain`") as refused:
        first_run.first_run(root, False, "", only_native, False)
    assert refused.value.code == 3 and "Next:" not in capsys.readouterr().out


@pytest.mark.parametrize("only_native", [CONTAINER, NATIVE])
def test_the_imports_are_announced_once_all_is_ready(machine, only_native: bool, monkeypatch, capsys) -> None:
    def step(name: str, result: object) -> Callable[..., object]:
        return lambda *_, **__: print(name, file=sys.stderr) or result

    monkeypatch.setattr(container.image, "make_ready", step("ready", None))
    monkeypatch.setattr(container.Attended, "run", step("program", 130))
    monkeypatch.setattr(native, "ready", step("ready", SimpleNamespace(held=())))
    monkeypatch.setattr(native, "variables", lambda project, environment: {})
    monkeypatch.setattr(native, "foreground", step("program", 130))
    first_run.first_run(machine(), False, "", only_native, False)
    assert capsys.readouterr().err.splitlines()[1:4] == ["ready", container.TRIAL, "program"]


def test_an_engine_that_hangs_while_it_is_asked_for_the_gpu(machine, tmp_path: Path, monkeypatch, capsys) -> None:
    """Not even the removal of the container returns; meanwhile, the user is told what is waited for."""
    for module, name, seconds in (
        (preflight, "TIMEOUT", 0.4),
        (engine_module, "REMOVED", 0.2),
        (messages, "ANNOUNCED", 0.1),
    ):
        monkeypatch.setattr(module, name, seconds)
    root = machine(driver="No driver")
    monkeypatch.setattr(first_run, "refusal", preflight.refusal)
    docker = tmp_path / "bin/docker"
    docker.write_text("#!/bin/sh\nexec /bin/sleep 200\n")
    docker.chmod(0o755)
    began = time.monotonic()
    assert ways(root) == [(NATIVE, False)]
    assert time.monotonic() - began < 60
    assert capsys.readouterr().err == "Asking Docker for the GPU ...\n"


def test_an_engine_that_hangs_is_given_up_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("docker"):
        cannot("the docker command is needed")
    monkeypatch.setattr(first_run, "ANSWER", 0.5)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        root = write_project(tmp_path / "small")
        began = time.monotonic()
        env = {"PATH": str(Path(shutil.which("docker")).parent), "DOCKER_HOST": f"unix://{tmp_path / 's'}"}
        assert first_run.of_engine(Project(root, env)) == "Docker did not respond within 0.5 s"
        assert time.monotonic() - began < 60


def test_the_report_has_the_loss_its_plot_and_the_next_commands(machine, monkeypatch, capsys) -> None:
    def train(project: Project, command: list[str], trial: bool) -> int:
        name = next(word for word in command if word.startswith("--name=")).partition("=")[2]
        run = project.root / "outputs" / name
        run.mkdir(parents=True)
        rows = [{"step": step, "loss": 8.0 / step} for step in (1, 2, 4, 8)]
        rows.append({"step": 8, "held_out_loss": None})
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + '{"cut')
        (run / "run.json").write_text(json.dumps({"starts": [{"versions": {"gpu": None}}]}))
        return 0

    monkeypatch.setattr(container, "run", train)
    root = machine()
    (root.parent / "clone").mkdir()
    monkeypatch.chdir(root.parent / "clone")
    assert first_run.first_run(root, False, "", False, False) == 0
    printed = capsys.readouterr().out
    assert "All of it is in ../small/outputs/try-" in printed and "\nNext:\n  cd ../small\n" in printed
    assert "8 at step 1, 1 at step 8" in printed and printed.count("*") >= 4
    assert "PyTorch found none" in printed and "./launch run -- python -m small.train" in printed


# The question


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "runs"), [("\n", True), ("y\n", True), ("n\n", False), ("", False), (None, False)])
def test_without_a_gpu_a_start_asks_once(
    small: Path, typed: str | None, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []

    def act(options: argparse.Namespace) -> int:
        started.append(options.cpu)
        if not options.cpu:
            raise NO_GPU
        return 7

    monkeypatch.setattr(commands, "act", act)
    monkeypatch.setenv("GPUKIT_PROJECT", str(small))
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    for name in ("run", "add"):
        started.clear()
        monkeypatch.setattr(sys, "stdin", io.StringIO() if typed is None else Terminal(typed))
        options = argparse.Namespace(command=name, cpu=False)
        if runs:
            assert commands.act_or_ask(options, [name, "some"]) == 7 and started == [False, True]
        else:
            with pytest.raises(RefusalError, match=rf"`./launch --cpu {name} \.\.\.`"):
                commands.act_or_ask(options, [name, "some"])
    assert screen.getvalue().count("[Y/n]") == 2 * (typed is not None)


@pytest.mark.parametrize("refused", [NO_TOOLKIT, RefusalError("Docker is not running.", kind="engine")])
def test_it_is_asked_only_if_the_machine_has_no_gpu(small: Path, refused: RefusalError, monkeypatch) -> None:
    def act(options: argparse.Namespace) -> int:
        raise refused

    monkeypatch.setattr(commands, "act", act)
    monkeypatch.setenv("GPUKIT_PROJECT", str(small))
    with pytest.raises(RefusalError) as raised:
        commands.act_or_ask(argparse.Namespace(command="run"), ["run"])
    assert raised.value is refused
