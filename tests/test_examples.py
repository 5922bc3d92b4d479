"""The examples are identical to what their answers generate. UPDATE_EXAMPLES=1 rewrites them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yml"))


def shared() -> set[bytes]:
    """The files that are identical in all projects. The examples omit them."""
    files = (path for path in (ROOT / "template").rglob("*") if path.is_file())
    return {path.read_bytes() for path in files}


def tree(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in sorted(files)}


def generated(project: Path) -> dict[str, str]:
    same = shared()
    files = tree(project)
    return {name: text for name, text in files.items() if text.encode() not in same and name != ".copier-answers.yml"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(generate: Callable[..., Path], name: str) -> None:
    answers = yaml.safe_load((ROOT / f"examples/{name}.yml").read_text(encoding="utf-8"))
    now = generated(generate(**answers))
    folder = ROOT / "examples" / name
    if os.environ.get("UPDATE_EXAMPLES"):
        shutil.rmtree(folder, ignore_errors=True)
        for path, text in now.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    before = tree(folder)
    changed = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
    assert not changed, f"examples/{name} is out of date: run `uv run --group test python catalogue/refresh.py`"


def test_each_example_is_listed() -> None:
    readme = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) >= 5
    assert [name for name in EXAMPLES if f"({name}.yml)" not in readme] == []
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert folders == set(EXAMPLES)
