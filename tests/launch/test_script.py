"""The script `launch`: it finds a Python and the wheel in vendor/, or says in one sentence what to do."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gpukit.cli import commands, main
from gpukit.image import guard
from gpukit.wheel import writer
from tests.conftest import HERE, conflict, git
from tests.launch.conftest import wheel, write_project

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
TOOLS = ("sh", "dirname", "git", "sed", "tr")  # what the script uses
PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
BROKEN = "#!/bin/sh\necho 'the `python3` command exists in these Python versions: 3.12' >&2\nexit 127\n"


def tools(folder: Path, **files: str | Path) -> Path:
    """A folder for PATH: a link for each path and a script for each text."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if isinstance(content, Path):
            (folder / name).symlink_to(content)
        else:
            (folder / name).write_text(content, encoding="utf-8")
            (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """With the wheel as it is, for what happens to its files."""
    return write_project(tmp_path / "small project, with a comma", wheel())


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A PATH without Python."""
    return tools(tmp_path / "bare", **{name: Path(shutil.which(name) or "") for name in TOOLS})


@pytest.fixture
def path(tmp_path: Path, bare: Path) -> str:
    return f"{bare}:{tools(tmp_path / 'python', python3=Path(sys.executable))}"


def run(
    root: Path, path: str | Path, *arguments: str, shell: str = "sh", **options: object
) -> subprocess.CompletedProcess[str]:
    words = [shutil.which(shell) or shell, *(["sh"] if shell == "busybox" else [])]
    command = [*words, str(root / "launch"), *(arguments or ("--help",))]
    environment = {"PATH": str(path), "HOME": str(root.parent), "PYTHONPATH": str(root)}
    options = {"env": environment, "cwd": root, **options}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


def sentence(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert (done.returncode, done.stdout) == (code, ""), done
    assert done.stderr.startswith("launch: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def works(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("usage: ./launch")


@pytest.mark.parametrize("shell", SHELLS)
def test_it_works_from_anywhere(small: Path, path: str, tmp_path: Path, shell: str) -> None:
    works(run(small, path, shell=shell))
    works(run(small, path, shell=shell, cwd=tmp_path))
    beside = small / "launch"
    works(run(Path(), path, shell=shell, cwd=beside.parent, env={"PATH": path}))
    (small / "launch").chmod(0o644)
    works(run(small, path, shell=shell))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_read_only_checkout(small: Path, bare: Path) -> None:
    """As a user who may not write there."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if not python:
        pytest.skip("needs a Python that every user may run")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(shutil.copytree(small, Path(folder, "project")))
        for each in (Path(folder), *root.rglob("*"), root):
            each.chmod(0o755 if each.is_dir() or each.name == "launch" else 0o444)
        for each in (path for path in (*root.rglob("*"), root) if path.is_dir()):
            each.chmod(0o555)
        before = contents(root)
        who = {"user": 65534, "group": 65534} if os.getuid() == 0 else {}
        environment = {"PATH": f"{Path(python).parent}:/usr/bin:/bin", "HOME": folder}
        works(run(root, "", env=environment, **who))
        done = run(root, "", "--dry-run", "run", "--", "true", env=environment, **who)
        assert done.returncode == 0 and done.stdout.startswith("docker run "), done.stderr
        assert contents(root) == before
        for each in (path for path in (*root.rglob("*"), root) if path.is_dir()):
            each.chmod(0o755)


# Which Python


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])
@pytest.mark.parametrize("shell", SHELLS)
def test_each_python(small: Path, bare: Path, tmp_path: Path, shell: str, python: Path) -> None:
    done = run(small, f"{bare}:{tools(tmp_path / 'only', python3=python)}", shell=shell)
    minor = int(python.parts[-3].split(".")[1])
    if minor < 9:
        assert "uv python install" in sentence(done, 127)
    else:
        works(done)


@pytest.mark.parametrize("shell", SHELLS)
def test_no_python(small: Path, bare: Path, shell: str) -> None:
    assert "uv python install" in sentence(run(small, bare, shell=shell), 127)


def test_a_python_that_uv_installed(small: Path, bare: Path) -> None:
    (small.parent / ".local").mkdir()
    tools(small.parent / ".local/bin", **{"python3.13": Path(sys.executable)})
    works(run(small, bare))


@pytest.mark.parametrize("shell", SHELLS)
def test_shims_that_find_no_python_are_passed_over(small: Path, path: str, tmp_path: Path, shell: str) -> None:
    names = ("python3.14", "python3.13", "python3.11", "python3")
    shims = tools(tmp_path / "shims", **dict.fromkeys(names, BROKEN))
    (shims / "python3.12").mkdir()
    works(run(small, f"{shims}:{path}", shell=shell))


def test_an_older_python3_before_a_newer_one(small: Path, path: str, tmp_path: Path) -> None:
    old = next((each for each in PYTHONS if each.parts[-3].startswith("3.8.")), None)
    if not old:
        pytest.skip("there is no Python 3.8 here")
    works(run(small, f"{tools(tmp_path / 'old', python3=old)}:{path}"))


# Which gpukit


OWN = "raise SystemExit('this is not the tool')\n"


@pytest.mark.parametrize("name", ["gpukit.py", "gpukit/__init__.py"])
def test_a_gpukit_of_the_users_own_is_not_run(small: Path, path: str, tmp_path: Path, name: str) -> None:
    for folder in (small, tmp_path / "elsewhere"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(OWN, encoding="utf-8")
        works(run(small, path, cwd=folder))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run -- python -m x.train", "run -d -- true", "up", "notebook", "verify"])
@pytest.mark.parametrize("name", ["gpukit.py", "gpukit/__init__.py", "src/gpukit.py", "src/gpukit/__init__.py"])
def test_a_gpukit_that_training_would_import_is_named(small: Path, path: str, command: str, name: str) -> None:
    (small / name).parent.mkdir(parents=True, exist_ok=True)
    (small / name).write_text(OWN, encoding="utf-8")
    docker = tools(small.parent / "docker", docker='#!/bin/sh\ntouch "$HOME/called"\n')
    said = sentence(run(small, f"{docker}:{path}", *command.split()), 1)
    assert f"rename {name.replace('/__init__.py', '')}." in said
    assert not (small.parent / "called").exists()


def test_a_folder_that_python_does_not_import_instead_is_no_reason(small: Path, path: str) -> None:
    (small / "gpukit").mkdir()
    assert run(small, path, "--dry-run", "run", "--", "true").returncode == 0


def test_inside_the_container_verify_runs_from_the_installed_gpukit(tmp_path: Path, monkeypatch) -> None:
    """Python runs launch without site-packages, where torch is."""
    monkeypatch.setattr(guard, "RECORD", tmp_path / "protected.txt")
    guard.RECORD.write_text("", encoding="utf-8")
    monkeypatch.setattr(commands, "__file__", "/workspace/vendor/gpukit-1-py3-none-any.whl/gpukit/cli/commands.py")
    started = []

    def execvp(name: str, argv: list[str]) -> None:
        started.append(argv)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execvp", execvp)
    with pytest.raises(SystemExit):
        main.main(["verify", "--quick"])
    assert started == [["gpukit", "verify", "--quick"]]


def test_conflict_markers_in_stack_json(small: Path, path: str) -> None:
    """As an update leaves them. Its remedy takes the newer version."""
    project = small.parent / "repository"
    shutil.copytree(small, project)
    conflict(project, "stack.json", '{"project": "small", "n": 2}\n', '{"project": "small", "n": 3}\n')
    assert "<<<<<<<" in (project / "stack.json").read_text(encoding="utf-8")
    works(run(project, path))
    said = sentence(run(project, path, "--dry-run", "run", "--", "true"), 1)
    doctor = run(project, path, "doctor")
    assert (doctor.returncode, doctor.stderr.count("\n")) == (2, 1) and said.split("`")[1] in doctor.stderr
    before = contents(project)
    subprocess.run(said.split("`")[1], shell=True, cwd=project, check=True, capture_output=True)
    assert (project / "stack.json").read_text(encoding="utf-8") == '{"project": "small", "n": 2}\n'
    changed = {name for name, content in contents(project).items() if before[name] != content}
    assert {name for name in changed if not name.startswith(".git/")} == {"stack.json"}
    assert run(project, path, "--dry-run", "run", "--", "true").returncode == 0


# The wheel


def edited(edit: Callable[[bytes], bytes]):
    def damage(vendor: Path) -> None:
        found = vendor / wheel().name
        found.write_bytes(edit(found.read_bytes()))

    return damage


def truncated(length: int):
    return edited(lambda content: content[:length])


def overwritten(member: str):
    """Other bytes where the compressed contents of a member are."""

    def edit(content: bytes) -> bytes:
        start = content.index(member.encode()) + len(member) + 20
        return content[:start] + b"\xff" * 40 + content[start + 40 :]

    return edited(edit)


def renamed(vendor: Path) -> None:
    (vendor / wheel().name).rename(vendor / "gpukit-9.9.9-py3-none-any.whl")


def two(vendor: Path) -> None:
    shutil.copy(vendor / wheel().name, vendor / "gpukit-0.1.0-py3-none-any.whl")


def two_places(vendor: Path) -> None:
    shutil.copytree(vendor, vendor.parent / ".gpukit")


def no_wheel(vendor: Path) -> None:
    (vendor / wheel().name).unlink()


DAMAGES = {"no vendor/": shutil.rmtree, "no wheel": no_wheel, "renamed": renamed, "two": two, "two places": two_places}
DAMAGES |= {f"truncated: {length}": truncated(length) for length in (0, 1, 40, 10_000, 200_000, -70_000, -23, -1)}
DAMAGES |= {f"overwritten: {name}": overwritten(f"gpukit/{name}.py") for name in ("__main__", "cli/main")}
DAMAGES |= {
    "a hole": edited(lambda content: content[:300_000] + content[300_100:]),
    "line ends": edited(lambda content: content.replace(b"\n", b"\r\n")),
    "a pointer": edited(lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_wheel_that_cannot_be_used(small: Path, path: str, shell: str, damage: str) -> None:
    DAMAGES[damage](small / "vendor")
    said = sentence(run(small, path, shell=shell), 127)
    assert f"cd {shlex.quote(str(small))} && uvx --from " in said


def test_damage_that_shows_later(small: Path, path: str) -> None:
    overwritten("gpukit/doctor/main.py")(small / "vendor")
    works(run(small, path))
    assert f"cd {shlex.quote(str(small))} && uvx --from " in sentence(run(small, path, "doctor"), 127)


def test_a_crash_is_not_called_damage(small: Path, path: str) -> None:
    (found,) = (small / "vendor").iterdir()
    members = writer.read(found)
    members["gpukit/doctor/main.py"] = b"raise ValueError('a defect')\n"
    writer.write(members, small / "vendor")
    done = run(small, path, "doctor")
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.endswith("\nValueError: a defect\n")


def test_two_wheels_are_left_to_update(small: Path, path: str) -> None:
    """It reverts the update that was interrupted."""
    two(small / "vendor")
    assert "git" in sentence(run(small, path, "update"), 1)


def test_a_wheel_in_another_folder(small: Path, path: str) -> None:
    (small / "vendor").rename(small / ".gpukit")
    works(run(small, path))
    truncated(0)(small / ".gpukit")
    assert ".gpukit/" in sentence(run(small, path), 127)


@pytest.mark.parametrize(
    ("source", "commit", "expected"),
    [
        ("gh:org/gpu-template", "v0.2.0", "git+https://github.com/org/gpu-template@v0.2.0#subdirectory=gpukit"),
        ("gl:org/x", "'1234567'", "git+https://gitlab.com/org/x@1234567#subdirectory=gpukit"),
        (
            "https://git.example.com/x.git",
            "v0.2.0-3-gabc1234",
            "git+https://git.example.com/x.git@abc1234#subdirectory=gpukit",
        ),
        ("https://git.example.com:8443/x", "", "git+https://git.example.com:8443/x#subdirectory=gpukit"),
        ("git@github.com:org/x.git", "v1", "git+ssh://git@github.com/org/x.git@v1#subdirectory=gpukit"),
        ("ssh://git@host:22/x", "v1", "git+ssh://git@host:22/x@v1#subdirectory=gpukit"),
        ("git+ssh://git@host/x", "v1", "git+ssh://git@host/x@v1#subdirectory=gpukit"),
        ("git+https://github.com/org/x", "v1", "git+https://github.com/org/x@v1#subdirectory=gpukit"),
        ("/nowhere/template", "v1", "/nowhere/template/gpukit"),
        ("'/nowhere/a template: its own'", "", "/nowhere/a template: its own/gpukit"),
        ("/nowhere/user's", "", "/nowhere/user's/gpukit"),
        ("", "", "TEMPLATE/gpukit"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_where_the_wheel_comes_from(small: Path, path: str, source: str, commit: str, expected: str, ends: str) -> None:
    shutil.rmtree(small / "vendor")
    if source:
        lines = ["# _src_path: mine", f"_commit: {commit}" if commit else "", f"_src_path: {source}", "base: wheel", ""]
        (small / ".copier-answers.yml").write_bytes(ends.join(lines).encode())
    command = sentence(run(small, path), 127).partition(" To restore it: ")[2]
    assert shlex.split(command) == ["cd", str(small), "&&", "uvx", "--from", expected, "gpukit", "vendor"]


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["dirty", "no git"])
@pytest.mark.parametrize("template", ["folder", "repository", "commit"])
def test_the_remedy_restores_the_wheel_and_changes_nothing_else(
    small: Path, path: str, tmp_path: Path, copier_template: Path, plain_template: Path, template: str, tree: str
) -> None:
    source = tmp_path / "a template, in user's folder (50% ä)"
    commit = ""
    if template == "folder":
        shutil.copytree(plain_template, source)
    else:
        git("clone", "-q", str(copier_template), str(source), cwd=tmp_path)
        commit = HERE
    if template == "commit":
        commit = f"9998.0.0-1-g{git('rev-parse', '--short', 'HEAD', cwd=source).strip()}"
        (source / "gpukit/src/gpukit/__init__.py").write_text("raise SystemExit('newer')\n", encoding="utf-8")
        git("commit", "-qam", "newer", cwd=source)
    answers = f"_commit: {commit}\n" * bool(commit) + f"_src_path: {source}\n"
    (small / ".copier-answers.yml").write_text(answers, encoding="utf-8")
    if tree == "dirty":
        git("init", "-q", cwd=small)
        git("add", "-A", cwd=small)
        git("commit", "-qm", "one", cwd=small)
        (small / "Dockerfile").write_text("FROM mine\n", encoding="utf-8")
    (small / "mine.txt").write_text("mine\n", encoding="utf-8")
    before = contents(small)
    DAMAGES["overwritten: cli/main" if tree == "dirty" else "no vendor/"](small / "vendor")
    if template == "folder":
        two(small / "vendor") if tree == "dirty" else None
    said = sentence(run(small, path), 127)
    remedy = said.partition(": To restore it: ")[2] or said.partition("To restore it: ")[2]
    environment = {**os.environ, "UV_OFFLINE": "1", "UV_TOOL_DIR": str(tmp_path / "uv-tools")}
    done = subprocess.run(["sh", "-c", remedy], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = contents(small)
    name = f"vendor/{wheel().name}"
    assert {**after, name: b""} == {**before, name: b""}
    with zipfile.ZipFile(small / name) as restored, zipfile.ZipFile(wheel()) as original:
        assert restored.namelist() == original.namelist()
        assert all(restored.read(each) == original.read(each) for each in original.namelist())
    works(run(small, path))


def test_help_imports_next_to_nothing(small: Path, path: str) -> None:
    """Each import costs milliseconds at every start."""
    code = (
        f"import sys; sys.path.insert(0, {str(wheel())!r})\n"
        "from gpukit.cli.main import parse\n"
        "parse(['--dry-run', 'run', '--', 'true'])\n"
        "ours = ('gpukit', 'json', 'pathlib', 'subprocess')\n"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ours))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "gpukit",
        "gpukit.cli",
        "gpukit.cli.arguments",
        "gpukit.cli.main",
        "gpukit.cli.table",
        "gpukit.project",
        "gpukit.project.interrupts",
        "gpukit.project.messages",
    ]
