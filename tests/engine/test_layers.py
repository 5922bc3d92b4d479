"""The layers of the image: the same from every entry point, and rebuilt only for what they contain."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpukit.wheel import vendor, writer
from tests.conftest import ROOT

from .conftest import Project


def executed(log: str) -> list[str]:
    """The uncached RUN steps in a build's plain log, without the user's layer, which depends on the uid."""
    log = re.sub(r"^\[\d\S+Z\] ", "", log, flags=re.MULTILINE)  # the CLI prepends the time
    cached = set(re.findall(r"^(#\d+) CACHED", log, re.MULTILINE))
    steps = re.findall(r"^(#\d+) \[.*?\] RUN (.*)$", log, re.MULTILINE)
    assert steps, log[-3000:]
    return [step for number, step in dict(steps).items() if number not in cached and "usermod" not in step]


def by_launch(one: Project, **env: str) -> str:
    done = one.launch("build", BUILDKIT_PROGRESS="plain", **env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def by_vscode(one: Project, **env: str) -> str:
    done = one.cli("up", "--remove-existing-container", timeout=600, **env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def by_compose(one: Project, **env: str) -> str:
    done = one.run("docker", "compose", "--progress=plain", "build", "dev", **env)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def layered(project: Callable[..., Project]) -> Project:
    """A project on a base with torch, so that PyTorch's index is not used, whatever UV_INDEX is."""
    one = project("ngc", name="layers", tracking=["tensorboard"])
    assert one.run("sh", ".devcontainer/initialize.sh", GPUKIT_ENTRANCE="launch").returncode == 0
    return one


@pytest.mark.parametrize("value", ["unset", "empty", "set"])
def test_no_step_runs_again_in_another_entry_point(layered: Project, value: str) -> None:
    """The first of them, which runs none, leaves the second nothing but launch's."""
    index = layered.environment.pop("UV_INDEX")
    env = {"unset": {}, "empty": {"UV_INDEX": ""}, "set": {"UV_INDEX": index}}[value]
    try:
        by_launch(layered, **env)
        assert executed(by_vscode(layered, **env)) == []
        assert executed(by_compose(layered, **env)) == []
    finally:
        layered.environment["UV_INDEX"] = index
        layered.stop()


def another_gpukit(one: Project, place: Path) -> None:
    source = shutil.copytree(ROOT / "gpukit", place / "gpukit")
    shutil.copytree(ROOT / "exactrun", place / "exactrun")
    (source / "src/gpukit/launch/added.py").write_text(f"# {secrets.token_hex()}\n", encoding="utf-8")
    vendor.put(writer.for_project(source), one.path)
    one.user.give(one.path / "vendor")


def another_driver_floor(one: Project, place: Path) -> None:
    one.write("stack.json", json.dumps({**one.stack, "driver": f"599.{secrets.randbelow(10**6)}"}))


@pytest.mark.parametrize("change", [another_gpukit, another_driver_floor])
def test_torch_and_dependencies_stay_cached(layered: Project, change: Callable, tmp_path: Path) -> None:
    by_launch(layered)
    change(layered, tmp_path)
    rebuilt = executed(by_launch(layered))
    assert rebuilt, "the change reached no step"
    assert not [step for step in rebuilt if re.search(r"install\.py torch|pip install -r", step)], rebuilt


def test_a_clone_elsewhere_only_needs_the_caches(layered: Project) -> None:
    """Without the template, and without steps that could use the network."""
    by_launch(layered)
    clone = dataclasses.replace(layered, path=layered.path.with_name("clone"))
    name = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    for command in (["init", "-q"], ["add", "-A"], [*name, "commit", "-qm", "x"], ["clone", "-q", ".", clone.path]):
        done = layered.run("git", *map(str, command))
        assert done.returncode == 0, done.stderr
    assert executed(by_launch(clone)) == []
    assert "Done: step 2" in clone.launched("run", "--", "python", "-m", "engine_tests.train", "--max-steps=2")
    layered.engine.get("rmi", "--force", clone.image)


def test_verify_names_an_image_that_is_older_than_the_wheel(layered: Project, tmp_path: Path) -> None:
    """As in VS Code, which does not rebuild automatically."""
    container = layered.up("--remove-existing-container")
    another_gpukit(layered, tmp_path)
    done = layered.inside("gpukit", "verify", "--json", "--only=gpukit")
    finding = next(each for each in json.loads(done.stdout)["findings"] if each["id"] == "gpukit")
    assert (done.returncode, finding["status"]) == (1, "FAIL"), container
    assert "launch build" in finding["remedy"]
    layered.stop()
