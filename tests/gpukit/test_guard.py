import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpukit.image import guard

SCRIPT = Path(__file__).resolve().parents[2] / "gpukit/src/gpukit/image/guard.py"


def install(folder, name, version, stem=None):
    info = folder / f"{stem or name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return info


@pytest.fixture
def packages(tmp_path):
    folder = tmp_path / "packages"
    install(folder, "torch", "2.10.0a0+b558c986e8.nv25.11")
    install(folder, "Nvidia_NCCL.cu13", "2.28.9", stem="nvidia_nccl_cu13")
    install(folder, "transformer-engine-torch", "2.9.0+70f53666")
    install(folder, "numpy", "2.1.0")
    return folder


def test_names_are_compared_as_indexes_do(packages):
    assert guard.installed(["Torch", "NVIDIA_*", "transformer.engine*"], [str(packages)]) == {
        "nvidia-nccl-cu13": "2.28.9",
        "torch": "2.10.0a0+b558c986e8.nv25.11",
        "transformer-engine-torch": "2.9.0+70f53666",
    }


def test_the_first_on_the_path_counts(packages, tmp_path):
    other = tmp_path / "other"
    install(other, "torch", "2.15.0")
    assert guard.installed(["torch"], [str(other), str(packages)]) == {"torch": "2.15.0"}
    assert guard.installed(["torch"], [str(packages), str(other)])["torch"].endswith("nv25.11")


def test_leftovers_and_broken_packages_do_not_count(packages):
    install(packages, "torch", "2.15.0", stem="~orch")
    (packages / "broken-1.0.dist-info").mkdir()
    (packages / "broken-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\n", encoding="utf-8")
    assert guard.installed(["*"], [str(packages)])["torch"].endswith("nv25.11")
    assert "broken" not in guard.installed(["*"], [str(packages)])


def test_the_record_is_a_constraint_file_for_pip_and_uv(packages, tmp_path):
    requirements = pytest.importorskip("packaging.requirements")
    install(packages, "python-apt", "2.7.7+ubuntu1build1~24.04")  # Debian's versions are not Python's
    to = tmp_path / "etc/gpukit/protected.txt"
    guard.write(guard.installed(["*"], [str(packages)]), to)
    lines = to.read_text(encoding="utf-8").splitlines()
    assert lines[-2:] == ["torch==2.10.0a0+b558c986e8.nv25.11", "transformer-engine-torch==2.9.0+70f53666"]
    for line in lines:
        assert line.startswith("# python-apt==") or requirements.Requirement(line).specifier
    assert guard.recorded(to) == guard.installed(["*"], [str(packages)])
    assert to.stat().st_mode & 0o777 == 0o644
    builds = to.with_name(guard.BUILD)
    assert set(to.parent.iterdir()) == {to, builds}, "drafts are gone"
    assert builds.read_text() == "torch==2.10.0a0\n", "for isolated builds, only PyTorch's release counts"


@pytest.mark.parametrize(
    ("version", "valid"),
    [
        ("2.10.0a0+b558c986e8.nv25.11", True),
        ("2.14.1+cu130", True),
        ("13.0.48", True),
        ("1!2.0rc1.post2.dev3", True),
        ("2.7.7+ubuntu1build1~24.04", False),
        ("1.1build1", False),
        ("unknown", False),
    ],
)
def test_valid_versions(version, valid):
    packaging = pytest.importorskip("packaging.version")
    assert bool(guard.VALID.fullmatch(version)) == valid
    try:
        packaging.Version(version)
    except packaging.InvalidVersion:
        assert not valid


def test_changes_are_named(packages, tmp_path):
    was = guard.installed(["torch", "nvidia-*"], [str(packages)])
    install(packages, "nvidia-cublas", "13.0.2")  # new, not changed
    assert guard.changed(was, [str(packages)]) == []
    (packages / "nvidia_nccl_cu13-2.28.9.dist-info/METADATA").unlink()
    newer = tmp_path / "newer"
    install(newer, "torch", "2.15.0")
    assert [str(change) for change in guard.changed(was, [str(newer), str(packages)])] == [
        "nvidia-nccl-cu13 is gone here and was 2.28.9 in the base",
        "torch is 2.15.0 here and was 2.10.0a0+b558c986e8.nv25.11 in the base",
    ]


def script(*argv, packages):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(packages)}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, argv)], capture_output=True, text=True, env=environment, check=False
    )


def test_as_the_dockerfile_calls_it(packages, tmp_path, stack_file):
    stack = stack_file()
    to = tmp_path / "protected.txt"
    done = script("record", "--stack", stack, "--to", to, packages=packages)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"guard: 2 protected packages recorded in {to}\n"
    done = script("check", "--against", to, packages=packages)
    assert (done.returncode, done.stderr) == (0, "")

    newer = tmp_path / "newer"
    install(newer, "torch", "2.15.0")
    done = script("check", "--against", to, packages=f"{newer}:{packages}")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "torch is 2.15.0 here and was 2.10.0a0+b558c986e8.nv25.11 in the base" in line


def test_guard_reports_failures(packages, tmp_path, stack_file):
    to = tmp_path / "protected.txt"
    none = script("record", "--stack", stack_file(protected=["jax"]), "--to", to, packages=packages)
    assert (none.returncode, to.exists()) == (1, False)
    assert "none of jax is installed" in none.stderr
    (tmp_path / "bad.json").write_text(json.dumps({"project": "x"}), encoding="utf-8")
    for argv in (("check", "--against", to), ("record", "--stack", tmp_path / "bad.json", "--to", to)):
        done = script(*argv, packages=packages)
        assert done.returncode == 2
        assert done.stderr.startswith("guard: ")
        assert "Traceback" not in done.stderr


def test_shared_folders_let_users_add_but_not_replace(tmp_path, monkeypatch):
    """Sticky and world-writable, as /tmp is: the package folders themselves, and every folder below etc and share."""
    folders = {name: tmp_path / name for name in ("purelib", "platlib", "scripts")}
    (tmp_path / "share/jupyter/kernels").mkdir(parents=True)
    (tmp_path / "lib").mkdir()
    (tmp_path / "purelib/torch").mkdir(parents=True)
    folders["scripts"].mkdir()  # there is no platlib
    monkeypatch.setattr(guard.sysconfig, "get_path", lambda name: str({**folders, "data": tmp_path}[name]))
    assert guard.main(["share"]) == 0
    shared = {path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o7777 == 0o1777}
    wanted = ("purelib", "scripts", "share", "share/jupyter", "share/jupyter/kernels")
    assert shared == {tmp_path / name for name in wanted}
