"""docs/api.md: the public API as the package has it, and everything that a generated project imports."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.train.torchvision_anyway  # noqa: F401 - before transformers

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "template"


def listed() -> Iterator[tuple[str, str, str]]:
    """Module, name (`Class.method` too), and signature, as the page has them."""
    module = ""
    for line in (ROOT / "docs/api.md").read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"### `((?:gpukit|exactrun)[\w.]*)`", line):
            module = heading[1]
        elif row := re.match(r"\| `([\w.]+)(\(.*?\))?` \|", line):
            yield module, row[1], row[2] or ""


ENTRIES = list(listed())
NAMES = {f"{module}.{name}" for module, name, _ in ENTRIES}


def signature(value: object) -> str:
    """Without annotations and `self`; empty for an exception and for what cannot be called."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, BaseException)):
        return ""
    bare = inspect.Parameter.empty
    found = inspect.signature(value)
    parameters = [each.replace(annotation=bare) for each in found.parameters.values() if each.name != "self"]
    text = str(found.replace(parameters=parameters, return_annotation=bare))
    return re.sub(r"<built-in function (\w+)>", r"\1", text)


@pytest.mark.parametrize(("module", "name", "parameters"), ENTRIES, ids=lambda value: value)
def test_each_entry_is_in_the_package(module: str, name: str, parameters: str) -> None:
    owner, _, member = name.partition(".")
    if module.endswith(".lightning"):
        pytest.importorskip("lightning")
    value = getattr(importlib.import_module(module), owner)
    if member and not hasattr(value, member):
        assert member in getattr(value, "__dataclass_fields__", ()) or f"self.{member}" in inspect.getsource(value)
        return
    value = getattr(value, member) if member else value
    if parameters or not isinstance(value, type):  # a class without parentheses is not constructed by projects
        assert parameters == signature(value)


def imported() -> Iterator[tuple[str, str]]:
    """File and dotted name of everything that generated code takes from gpukit."""
    files = [*TEMPLATE.glob("src/*/*"), *TEMPLATE.glob("tests/*"), *TEMPLATE.glob("*/*.ipynb.jinja")]
    for path in files:
        text = path.read_text(encoding="utf-8").replace("\\n", "\n")
        assert not re.search(r"^\W*import gpukit|from gpukit[\w.]* import \(", text, re.MULTILINE), path
        for module, names in re.findall(r"from ((?:gpukit|exactrun)[\w.]*) import ([\w, ]+)", text):
            for name in names.split(", "):
                if module in ("exactrun", "exactrun.adapters"):
                    members = re.findall(rf"(?<![\w.\"]){name}\.(\w+)", text)
                    yield from ((path.name, f"{module}.{name}.{member}") for member in members)
                else:
                    yield path.name, f"{module}.{name}"


def test_everything_that_a_project_imports_is_listed() -> None:
    found = list(imported())
    assert len({name for _, name in found}) > 15
    assert [each for each in found if each[1] not in NAMES] == []


def test_only_these_packages_are_public() -> None:
    packages = {name.split(".")[1] for name in NAMES if name.startswith("gpukit.")}
    assert packages == {"project", "script", "track"}
