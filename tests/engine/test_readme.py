"""The commands with Docker in README's first two blocks, run as written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_readme import LINES, TRY, generated, line_with, run

from .conftest import PUBLIC, Engine, Index, tidy, without_request


@pytest.fixture(scope="module")
def copied(copier_template: Path, place: Path, engines: list[Engine]) -> Iterator[Path]:
    (place / "readme").mkdir()
    project = generated(copier_template, place / "readme")
    yield project
    image = f"my-gpu-project-{hashlib.sha256(str(project).encode()).hexdigest()[:8]}"
    for engine in engines:
        tidy(engine, str(place / "readme"), [])
        engine.ask("rmi", "--force", image, f"{image}-cpu")


@pytest.mark.parametrize("number", [0, 1], ids=["with a GPU", "without one"])
def test_with_docker(
    copied: Path, engine: Engine, plain: Engine, bases: dict[str, str], index: Index, number: int
) -> None:
    """The first line trains on the GPU that the engine grants, or without one; so do the others, each as a new run.

    verify reports exactly what the substitute image lacks, and therefore exits with 1.
    """
    if number == 0 and not engine.grants:
        without_request(copied / ".devcontainer/devcontainer.json")
    on = plain if number else engine
    env = {**os.environ, "DOCKER_HOST": on.host, "BASE_IMAGE": bases["wheel"], "UV_INDEX": index.pytorch(on)}
    if number:
        del env["BASE_IMAGE"]  # the base of the configuration without a GPU, under its own name
        assert on.has(PUBLIC["wheel"])
    before = {*copied.glob("outputs/try-*")}
    output = run(copied.parent / "gpu-template", [TRY], env)
    device = "CPU" if number or not engine.grants else "GPU"
    assert f"training in a container, on the {device}" in output and "Next:\n  cd ../myproj\n" in output
    if number:
        assert "Next:\n  ./launch --cpu run" in run(copied, [LINES[1]], env)
    else:
        assert "torch" in run(copied, [line_with("./launch", "verify")], env, codes=(0, 1))
    runs = {*copied.glob("outputs/try-*")} - before
    assert len(runs) == 1 + number and all((each / "metrics.jsonl").is_file() for each in runs)
