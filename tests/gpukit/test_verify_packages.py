"""What verify reads of pyproject.toml and of the installed packages' metadata."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpukit.image import guard
from gpukit.verify import requirements
from gpukit.verify.container import modules
from tests.conftest import ROOT

pytest.importorskip("tomllib")


def distribution(folder: Path, name: str, version: str, *requires: str, **files: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires)]), "utf-8")
    for file, text in files.items():
        (info / file.replace("_txt", ".txt")).write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path):
    """`project(dependencies, dev, **installed)`: what of it is not met."""
    folder = tmp_path / "project"
    folder.mkdir()

    def read(dependencies: list[str], dev: tuple[str, ...] = (), pins: str = "", **installed: str):
        text = f'[project]\nname = "demo"\ndependencies = {json.dumps(dependencies)}\n'
        text += f"[project.optional-dependencies]\ndev = {json.dumps(dev)}\n"
        (folder / "pyproject.toml").write_text(text, encoding="utf-8")
        if pins:
            (folder / "requirements.txt").write_text(pins, encoding="utf-8")
        there = tmp_path / f"there-{len(list(tmp_path.iterdir()))}"
        there.mkdir()
        for name, version in installed.items():
            distribution(there, name, version)
        found = requirements.read(folder, requirements.distributions([str(there)]))
        assert not found.reason
        return [(each.package, each.seen) for each in found.unmet]

    return read


def test_ranges(project) -> None:
    assert project(["transformers>=4.57.1,<6"], transformers="5.2.0") == []
    assert project(["transformers>=4.57.1,<6"], transformers="4.56.2") == [("transformers", "4.56.2")]
    assert project(["Foo.Bar[x]>=1", "gone"], foo_bar="2.0+cu130") == [("gone", None)]
    assert project(["torch>=2.11", "torchvision==0.29.2"], torch="2.14.1+cu130", torchvision="0.29.2+cu130") == []
    # A build of NVIDIA's counts as its release, another pre-release does not.
    assert project(["torchvision>=0.25,<1"], torchvision="0.25.0a0+c59d0f2.nv26.06") == []
    assert project(["transformers>=5"], transformers="5.0.0rc1") == [("transformers", "5.0.0rc1")]
    assert project(["a>=1; python_version<'3'", "b @ https://example.org/b.whl", "c~=1.2"], b="0", c="1.9") == []


def test_tools_come_last_and_pins_count(project) -> None:
    unmet = project(["einops>=0.8"], ("ruff>=0.12", "demo[lint]"), ruff="0.1", einops="0.7")
    assert unmet == [("einops", "0.7"), ("ruff", "0.1")]
    pins = "# written by launch\neinops==0.8.0  # via me\nruff==0.12.0\n"
    assert project(["einops>=0.8"], (), pins, einops="0.8.1", ruff="0.12.0") == [("einops", "0.8.1")]


@pytest.mark.parametrize("text", ["", "[project]\n", "[project\n", "[tool.x]\n"])
def test_a_file_that_lists_nothing_is_no_fault_of_the_packages(tmp_path: Path, text: str) -> None:
    if text:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    found = requirements.read(tmp_path, {})
    assert found.unmet == () and (found.reason or text == "[project]\n")


def test_pips_copy_serves_where_packaging_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "packaging", None)
    pytest.importorskip("pip._vendor.packaging.requirements")
    assert requirements.packaging.__wrapped__("requirements").__name__ == "pip._vendor.packaging.requirements"


def test_indirect_requirements(tmp_path: Path) -> None:
    there = tmp_path / "there"
    distribution(there, "transformers", "5.2.0", "Tokenizers<1", 'accelerate; extra == "torch"', "odd; x == y")
    distribution(there, "tokenizers", "0.23.0")
    distribution(there, "accelerate", "1.9")
    distribution(there, "gradio", "6.0")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["transformers"]\n', "utf-8")
    found = requirements.read(tmp_path, requirements.distributions([str(there)]))
    assert found.needed == {"transformers", "tokenizers"}
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["transformers[torch]"]\n', "utf-8")
    found = requirements.read(tmp_path, requirements.distributions([str(there)]))
    assert found.needed == {"transformers", "tokenizers", "accelerate"}
    assert found.direct == {"transformers"}


# As uv 0.13 prints them.
CONFLICTS = [
    "The package `datasets` requires `huggingface-hub>=1.31.0,<3.0`, but `0.36.2` is installed",
    "The package `gradio` requires `orjson>=3`, but it's not installed",
    "The package `half` is broken or incomplete (unable to read `METADATA`). Consider recreating the virtualenv",
]


def test_conflicts_without_those_of_the_base() -> None:
    found = requirements.conflicts(CONFLICTS, [])
    assert [(each.package, each.wanted, each.seen) for each in found] == [
        ("datasets", "huggingface-hub>=1.31.0,<3.0", "0.36.2"),
        ("gradio", "orjson>=3", None),
        ("half", "", None),
    ]
    assert found[0].wanted_name == "huggingface-hub"
    base = [CONFLICTS[0].replace("0.36.2", "0.35.0"), CONFLICTS[2]]
    assert [each.package for each in requirements.conflicts(CONFLICTS, base)] == ["gradio"]


def fake_uv(folder: Path, output: str, code: int) -> Path:
    script = folder / "uv"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit {code}\n", encoding="utf-8")
    script.chmod(0o755)
    return script


@pytest.mark.parametrize(
    ("output", "code", "lines"),
    [("Checked 4 packages", 0, []), ("\n".join(CONFLICTS), 1, CONFLICTS), ("error: no Python", 2, None)],
)
def test_reports_of_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, lines: object) -> None:
    monkeypatch.setenv("UV", str(fake_uv(tmp_path, output, code)))
    assert guard.conflicts() == lines
    monkeypatch.setenv("UV", str(tmp_path / "gone"))
    assert guard.conflicts() is None


def test_the_base_s_conflicts_are_recorded_beside_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack_file
) -> None:
    distribution(tmp_path / "site", "torch", "2.14.1")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    to = tmp_path / "etc/protected.txt"
    for output, code, there in (("\n".join(CONFLICTS), 1, True), ("All compatible", 0, False)):
        monkeypatch.setenv("UV", str(fake_uv(tmp_path, output, code)))
        assert guard.main(["record", "--stack", str(stack_file()), "--to", str(to)]) == 0
        assert (tmp_path / "etc/conflicts.txt").exists() == there


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("flash-attn", {"top_level_txt": "flash_attn\nflash_attn_2_cuda\nhopper\n"}, ["flash_attn"]),
        ("Pillow", {"RECORD": "PIL/__init__.py,,\nPIL/Image.py,,\ntests/__init__.py,,\n"}, ["PIL"]),
        ("six", {"RECORD": "six.py,,\nsix-1.0.dist-info/METADATA,,\n"}, ["six"]),
        ("ruff", {"RECORD": "../../../bin/ruff,,\nruff/__init__.py,,\n"}, ["ruff"]),
        ("nvidia-cublas", {"RECORD": "nvidia/cublas/lib/libcublas.so.13,,\n"}, []),
    ],
)
def test_modules_of_a_distribution(tmp_path: Path, name: str, files: dict, expected: list[str]) -> None:
    distribution(tmp_path, name, "1.0", **files)
    (found,) = requirements.distributions([str(tmp_path)]).values()
    assert modules(found) == expected


def test_imports_run_in_a_separate_process(tmp_path: Path) -> None:
    """An error, where it is, and that nothing is written into the current folder."""
    (tmp_path / "writes.py").write_text("open('written', 'w').close()", encoding="utf-8")
    (tmp_path / "ends.py").write_text("raise SystemExit(3)", encoding="utf-8")
    asked = [("writes", ""), ("writes", "1/0"), ("nothing", ""), ("ends", "")]
    script = (
        f"import json, sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT / 'gpukit/src')!r}]\n"
        f"from gpukit.verify import worker; print(json.dumps([worker.imports(*each) for each in {asked}]))"
    )
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=True)
    fine, called, missing, ended = json.loads(done.stdout)
    assert fine == {}
    assert (called["failed"], called["kind"]) == ("1/0", "ZeroDivisionError")
    assert missing["kind"] == "ModuleNotFoundError" and "nothing" in missing["log"]
    assert (ended["failed"], ended["kind"]) == ("import ends", "SystemExit")
    assert not (tmp_path / "written").exists()
