"""Edits of pyproject.toml: what was asked for, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpukit.project import pyproject
from gpukit.project.messages import RefusalError
from gpukit.project.pyproject import Requirements, name_of

HEAD = '[project]\nname = "x"\n'
CASES = {
    "a list over lines": (
        'dependencies = [\n  "a",  # one\n  "b[x]>=1"\n]\nversion = "1"\n',
        'dependencies = [\n  "a",  # one\n  "b[x]>=1",\n  "new>=2",\n]\nversion = "1"\n',
    ),
    "a comma before a comment": (
        'dependencies = [\n    "a", # c, d ] "e"\n    # the end\n]\n',
        'dependencies = [\n    "a", # c, d ] "e"\n    # the end\n    "new>=2",\n]\n',
    ),
    "one line": ('dependencies = ["a"]\n', 'dependencies = ["a", "new>=2"]\n'),
    "one line, comma at the end": ('dependencies = [ "a", ]\n', 'dependencies = [ "a", "new>=2"]\n'),
    "an empty list": ("dependencies = []\n", 'dependencies = [\n    "new>=2",\n]\n'),
    "an empty list with a comment": (
        "dependencies = [\n    # none yet\n]\n",
        'dependencies = [\n    # none yet\n    "new>=2",\n]\n',
    ),
    "no list": (
        'version = "1"\n\n[tool.x]\ndependencies = ["no"]\n',
        'version = "1"\ndependencies = [\n    "new>=2",\n]\n\n[tool.x]\ndependencies = ["no"]\n',
    ),
    "another one": ("dependencies = ['a', 'New==1']\n", "dependencies = ['a', \"new>=2\"]\n"),
    "headers in texts": (
        'description = """\n[tool.x]\ndependencies = []\n"""\ndependencies = ["a"]\n',
        'description = """\n[tool.x]\ndependencies = []\n"""\ndependencies = ["a", "new>=2"]\n',
    ),
    "a marker with quotes": (
        "dependencies = ['a; python_version < \"3.12\"',\n]\n",
        "dependencies = ['a; python_version < \"3.12\"',\n    \"new>=2\",\n]\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("case", CASES)
def test_one_more_requirement(case: str, newline: str) -> None:
    before, after = ((HEAD + text).replace("\n", newline) for text in CASES[case])
    requirements = Requirements(before)
    names = [name_of(value) for value in requirements.values()]
    edited = requirements.set("new>=2")
    assert edited == after
    assert set(names) | {"new"} == {name_of(value) for value in Requirements(edited).values()}
    if sys.version_info >= (3, 11):
        import tomllib

        was = tomllib.loads(before)
        now = tomllib.loads(edited)
        assert "new>=2" in now["project"].pop("dependencies")
        was["project"].pop("dependencies", None)
        assert was == now


AMD64, ARM64 = (f"a @ https://h/a-1-{each}.whl ; platform_machine == '{each}'" for each in ("x86_64", "aarch64"))


def test_a_requirement_replaces_one_with_the_same_marker() -> None:
    """A line for the other CPU stays."""
    text = HEAD + f'dependencies = [\n    "b",\n    {json.dumps(AMD64)}, # why\n]\n'
    both = Requirements(text).set(ARM64)
    assert Requirements(both).values() == ["b", AMD64, ARM64] and "# why" in both
    newer = ARM64.replace("a-1", "a-2").replace(" == ", "==").replace("'", '"')
    assert Requirements(Requirements(both).set(newer)).values() == ["b", AMD64, newer]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "before",
    [
        '["a>=1", "b"]',
        '["b", "a>=1"]',
        '[\n    "a", # why\n    "b",\n    "A; sys_platform == \'x\'",\n]',
        '["b"]',
        "[]",
    ],
)
def test_requirements_that_stand_instead_of_all_others_for_a_package(before: str, newline: str) -> None:
    text = (HEAD + f"dependencies = {before}\n[tool.x]\n").replace("\n", newline)
    others = [each for each in Requirements(text).values() if name_of(each) != "a"]
    both = Requirements(text).only([AMD64, ARM64])
    assert sorted(Requirements(both).values()) == sorted([*others, AMD64, ARM64])
    one = Requirements(both).only(["a==2"])
    assert sorted(Requirements(one).values()) == sorted([*others, "a==2"])
    if sys.version_info >= (3, 11):
        import tomllib

        assert all("tool" in tomllib.loads(each) for each in (both, one))


def test_the_tools_are_read_too() -> None:
    text = HEAD + 'dependencies = ["a"]\n[project.optional-dependencies]\nother = ["z"]\ndev = [\n "pytest",\n]\n'
    assert pyproject.every(text) == ["a", "pytest"]
    assert pyproject.every(HEAD) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("einops", "einops"),
        ("Einops_X.y>=0.8,<1", "einops-x-y"),
        ("a[b,c] ~= 1.0", "a"),
        ("a==1.*; python_version >= '3.9'", "a"),
        ("a @ git+https://github.com/x/y@main", "a"),
    ],
)
def test_names_of_requirements(text: str, name: str) -> None:
    assert name_of(text) == name


@pytest.mark.parametrize("text", ["", "-r x", "--index-url=http://x", "a b", "a>=", "a;", "../x", "$(id)", "a\nb"])
def test_what_is_no_requirement(text: str) -> None:
    with pytest.raises(RefusalError, match="is not a package"):
        name_of(text)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("before")
    path.chmod(0o640)
    pyproject.write(path, "after\r\n")
    assert path.read_bytes() == b"after\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pyproject.write(path, "half")
    assert [file.name for file in tmp_path.iterdir()] == ["pyproject.toml"]


def test_a_file_without_a_project() -> None:
    with pytest.raises(RefusalError, match=r"no \[project\]"):
        Requirements("[tool.x]\n")
    with pytest.raises(RefusalError, match="no closing bracket"):
        Requirements(HEAD + 'dependencies = ["a"\n')
