"""The wheel: one set of contents gives one name, wherever and by whatever it is written."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from gpukit.cli.main import main
from gpukit.wheel import writer
from tests.conftest import ROOT, git

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = ROOT / "gpukit"
WRITE = """
import sys, zlib
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gpukit.wheel import writer
print(writer.write(writer.running(), Path(sys.argv[2])))
print(zlib.ZLIB_RUNTIME_VERSION)
"""
PYTHONS = [
    path
    for version in ("3.9", "3.13")
    for path in (next(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")),)
    if path
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """gpukit's folder in a clone without git."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "exactrun", tmp_path / "a clone/exactrun", ignore=ignored)
    return Path(shutil.copytree(SOURCE, tmp_path / "a clone/gpukit", ignore=ignored))


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return writer.write(writer.for_project(SOURCE), tmp_path / "wheel")


@pytest.fixture
def project(generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(generate(hardware="rtx-50"), tmp_path / "project"))
    monkeypatch.delenv("GPUKIT_PROJECT", raising=False)
    monkeypatch.chdir(folder)
    return folder


def wheels(project: Path) -> list[str]:
    return [path.name for path in (project / "vendor").iterdir()]


def test_the_version_is_the_templates() -> None:
    texts = [(ROOT / folder / "pyproject.toml").read_text(encoding="utf-8") for folder in (".", "gpukit", "exactrun")]
    assert len({re.search(r'^version = "(.*?)"', text, re.MULTILINE)[1] for text in texts}) == 1


def test_wheel_is_valid(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        record = archive.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert names == sorted(names)
    assert sorted(line.split(",")[0] for line in record.splitlines()) == names
    assert {name.split("/")[0] for name in names} == {
        "exactrun",
        "gpukit",
        f"gpukit-{wheel.name.split('-')[1]}.dist-info",
    }
    assert "gpukit/cli/main.py" in names and wheel.stat().st_mode & 0o777 == 0o644


def test_metadata_is_that_of_pyproject() -> None:
    files = writer.for_project(SOURCE)
    text = next(content for name, content in files.items() if name.endswith("/METADATA")).decode()
    found = email.message_from_string(text)
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert found.get_all("Classifier") == project["classifiers"]
    assert found["Keywords"].split(",") == project["keywords"]
    assert found.get_all("Project-URL") == [f"{name}, {url}" for name, url in project["urls"].items()]
    assert (found["Summary"], found["Requires-Python"]) == (project["description"], project["requires-python"])


@pytest.mark.parametrize("python", [sys.executable, *PYTHONS], ids=str)
def test_another_folder_and_another_python_give_the_same(
    source: Path, wheel: Path, tmp_path: Path, python: str
) -> None:
    for name in (
        "__pycache__/main.cpython-312.pyc",
        "doctor/stale.pyc",
        ".DS_Store",
        "doctor/.DS_Store",
        "cli/main.py~",
    ):
        path = source / "src/gpukit" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(20))
    for path in source.rglob("*"):
        os.utime(path, (1, 1))
    command = [python, "-c", WRITE, source / "src", tmp_path / "other"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    other, its_zlib = done.stdout.splitlines()
    assert Path(other).name == wheel.name
    assert writer.read(Path(other)) == writer.read(wheel)
    if its_zlib == zlib.ZLIB_RUNTIME_VERSION:
        assert Path(other).read_bytes() == wheel.read_bytes()


def members(python_path: Path, tmp_path: Path) -> dict[str, bytes]:
    """What the gpukit there writes of itself."""
    command = [sys.executable, "-c", WRITE, python_path, tmp_path / "again"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return writer.read(Path(done.stdout.splitlines()[0]))


@pytest.mark.slow
def test_source_wheel_and_installed_copy_write_the_same(source: Path, wheel: Path, tmp_path: Path) -> None:
    expected = writer.read(wheel)
    assert members(source / "src", tmp_path) == expected
    assert members(wheel, tmp_path) == expected
    for name, command in {
        "pip": [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"],
        "uv": ["uv", "pip", "install", "-q", "--offline", "--no-deps", f"--python={sys.executable}"],
    }.items():
        subprocess.run([*command, f"--target={tmp_path / name}", wheel], check=True)
        assert members(tmp_path / name, tmp_path) == expected, name


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


CHANGES = {
    "a module": lambda source: edit(source / "src/gpukit/__init__.py", '"""', '"""An '),
    "a new module": lambda source: (source / "src/gpukit/new.py").write_text("", encoding="utf-8"),
    "no module": lambda source: (source / "src/gpukit/doctor/needs.py").unlink(),
    "a renamed module": lambda source: (source / "src/gpukit/doctor/needs.py").rename(source / "src/gpukit/needs.py"),
    "README": lambda source: edit(source / "README.md", "gpukit", "GPUKIT"),
    "LICENSE": lambda source: edit(source / "LICENSE", "a", "b"),
    "description": lambda source: edit(source / "pyproject.toml", 'description = "', 'description = "Now '),
    "version": lambda source: edit(source / "pyproject.toml", '\nversion = "', '\nversion = "9'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_different_contents_never_share_a_name(source: Path, wheel: Path, change: str) -> None:
    CHANGES[change](source)
    assert writer.file_name(writer.for_project(source)) != wheel.name


def test_unrelated_files_do_not_change_the_name(source: Path, wheel: Path) -> None:
    edit(source / "release.py", "Run the first one", "Call it")
    (source / "notes.md").write_text("x", encoding="utf-8")
    assert writer.file_name(writer.for_project(source)) == wheel.name


def test_a_release_has_no_local_part_until_its_contents_change(source: Path, tmp_path: Path) -> None:
    version = writer.version(writer.from_source(source)).partition("+")[0]
    for _ in range(2):  # the second time there is nothing to change
        done = subprocess.run([sys.executable, source / "release.py"], capture_output=True, text=True, check=True)
        assert done.stdout == f"gpukit {version}\n"
    released = writer.write(writer.from_source(source), tmp_path / "released")
    assert released.name == f"gpukit-{version}-py3-none-any.whl"
    CHANGES["README"](source)
    assert writer.version(writer.from_source(source)).startswith(f"{version}+h")


# Other people's tools


def test_uv_builds_the_same_wheel_also_from_the_sdist(source: Path, wheel: Path, tmp_path: Path) -> None:
    """Without exactrun, which is a release of its own."""
    built = tmp_path / "built"
    subprocess.run(["uv", "build", "-q", "--offline", f"--out-dir={built}", source], check=True)
    expected = writer.write(writer.from_source(SOURCE), tmp_path / "alone")
    assert (built / expected.name).read_bytes() == expected.read_bytes()  # of the sdist, as uv builds it
    assert [path.suffix for path in sorted(built.iterdir()) if path.name != ".gitignore"] == [".whl", ".gz"]


@pytest.mark.slow
def test_pip_installs_the_source(source: Path, wheel: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, f"--target={tmp_path / 'installed'}", source], check=True)
    assert members(tmp_path / "installed", tmp_path) == writer.read(wheel)


def test_uvx_runs_the_source(source: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["uvx", "--offline", "--from", source, "gpukit", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: gpukit")


@pytest.mark.network
def test_one_package_can_be_removed_beside_the_other(tmp_path: Path) -> None:
    """The releases of the index, gpukit and exactrun, have no file in common."""

    def uv(*arguments: object) -> None:
        subprocess.run(["uv", "-q", *map(str, arguments)], check=True)

    uv("build", "--wheel", f"--out-dir={tmp_path}", ROOT / "exactrun")
    wheels = {"exactrun": next(tmp_path.glob("exactrun-*.whl"))}
    wheels["gpukit"] = writer.write(writer.from_source(SOURCE), tmp_path)
    for name, wheel in wheels.items():
        (other,) = wheels.keys() - {name}
        environment = tmp_path / f"without {name}"
        uv("venv", environment)
        uv("pip", "install", "--no-deps", f"--python={environment}", wheels[other], wheel)
        uv("pip", "uninstall", f"--python={environment}", name)
        site = next(environment.glob("lib/*/site-packages"))
        with zipfile.ZipFile(wheels[other]) as archive:
            assert all(
                (site / each).read_bytes() == archive.read(each)
                for each in archive.namelist()
                if "dist-info" not in each
            )
        assert not (site / name).exists()


# gpukit vendor


def test_vendor_writes_the_running_gpukit_and_removes_other_wheels(project: Path, wheel: Path, capsys) -> None:
    (project / "vendor").mkdir(exist_ok=True)
    (project / "vendor/gpukit-0.0.1-py3-none-any.whl").write_bytes(b"")
    (project / "vendor/mine-1-py3-none-any.whl").write_bytes(b"")
    assert main(["vendor"]) == 0
    assert capsys.readouterr().out == f"vendor/{wheel.name}\n"
    assert sorted(wheels(project)) == [wheel.name, "mine-1-py3-none-any.whl"]


def test_vendor_writes_where_the_project_keeps_its_wheel(project: Path, wheel: Path, capsys) -> None:
    (project / "vendor").mkdir(exist_ok=True)
    (project / "vendor" / wheel.name).write_bytes(b"")
    (project / ".gpukit").mkdir()
    (project / ".gpukit" / wheel.name).write_bytes(wheel.read_bytes()[:2000] + bytes(50) + wheel.read_bytes()[2050:])
    assert main(["vendor"]) == 0
    assert capsys.readouterr().out == f".gpukit/{wheel.name}\n"
    assert wheels(project) == []
    assert (project / ".gpukit" / wheel.name).read_bytes() == wheel.read_bytes()
    assert main(["vendor", "--check", "--from", str(SOURCE)]) == 0


def test_vendor_from_a_folder(project: Path, source: Path, wheel: Path, capsys) -> None:
    CHANGES["a module"](source)
    assert main(["vendor", "--from", str(source)]) == 0
    assert wheels(project) == [writer.file_name(writer.for_project(source))] != [wheel.name]
    capsys.readouterr()
    assert main(["vendor", "--from", str(project)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert len(wheels(project)) == 1


def test_vendor_outside_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.delenv("GPUKIT_PROJECT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["vendor"]) == 1
    assert "stack.json" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_check_compares_with_a_folder(project: Path, source: Path, capsys) -> None:
    assert main(["vendor"]) == 0
    assert main(["vendor", "--check", "--from", str(source)]) == 0
    before = wheels(project)
    CHANGES["a module"](source)
    capsys.readouterr()
    assert main(["vendor", "--check", "--from", str(source)]) == 1
    assert "gpukit/__init__.py" in capsys.readouterr().out
    assert wheels(project) == before


@pytest.mark.slow
@pytest.mark.parametrize("described", [False, True])
def test_check_rebuilds_the_commit_of_the_answers(
    project: Path, tmp_path: Path, copier_template: Path, described: bool, capsys
) -> None:
    template = tmp_path / "a template"
    git("clone", "-q", str(copier_template), str(template), cwd=tmp_path)
    commit = git("rev-parse", "--short", "HEAD", cwd=template).strip()
    edit(template / "gpukit/README.md", "gpukit", "a newer gpukit")
    git("commit", "-qam", "newer", cwd=template)
    answers = f"_commit: {'v0.1.0-7-g' * described}{commit}\n_src_path: {template}\n"
    (project / ".copier-answers.yml").write_text(answers, encoding="utf-8")
    assert main(["vendor", "--from", str(SOURCE)]) == 0
    assert main(["vendor", "--check"]) == 0
    assert main(["vendor", "--from", str(template / "gpukit")]) == 0
    assert main(["vendor", "--check"]) == 1
    assert "METADATA" in capsys.readouterr().out


CANNOT = {
    "no wheel": lambda project: shutil.rmtree(project / "vendor"),
    "damaged": lambda project: next((project / "vendor").iterdir()).write_bytes(b"PK"),
    "no answers": lambda project: (project / ".copier-answers.yml").unlink(),
    "no commit": lambda project: (project / ".copier-answers.yml").write_text("_src_path: /x\n", encoding="utf-8"),
    "no template": lambda project: (project / ".copier-answers.yml").write_text(
        "_commit: abc\n_src_path: /nowhere/template\n", encoding="utf-8"
    ),
}


@pytest.mark.parametrize("case", CANNOT)
def test_check_reports_that_it_cannot_compare(project: Path, case: str, capsys) -> None:
    assert main(["vendor"]) == 0
    CANNOT[case](project)
    capsys.readouterr()
    assert main(["vendor", "--check"]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("gpukit: ") and shown.err.count("\n") == 1


def test_a_module_in_a_wheel_is_compiled_once(tmp_path: Path) -> None:
    """What the compiler reports is then printed once."""
    wheel = tmp_path / "one.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("one/__init__.py", "")
        archive.writestr("one/part.py", "1 is 1\n")
    code = f"""
import sys
sys.path.insert(0, {str(SOURCE / "src")!r})
from gpukit.__main__ import Importer
Importer.use()
sys.path.insert(0, {str(wheel)!r})
import one.part
print(one.__file__, one.part.__file__)
"""
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{wheel}/one/__init__.py", f"{wheel}/one/part.py"]
    assert done.stderr.count("SyntaxWarning") == 1
