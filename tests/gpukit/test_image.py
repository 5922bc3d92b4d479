"""What the Dockerfile runs: the files of each layer, and the installation of PyTorch with a stand-in for uv."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpukit.test_guard import install as distribution

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "gpukit/src/gpukit/image"
INDEX = "https://download.pytorch.org/whl/"
# What uv 0.13 prints where that name does not resolve.
UNREACHABLE = f"""\
error: Request failed after 3 retries in 9.9s
  cause: Failed to fetch: {INDEX}cu130/torch/
  cause: error sending request for url ({INDEX}cu130/torch/)
  cause: client error (Connect)
  cause: dns error
"""
CONFLICT = f"""\
  x No solution found when resolving dependencies:
  Because only torch<2.15 is available and you require torch>=2.99, your requirements are unsatisfiable.
      hint: `torch` was found on {INDEX}cu130, but not at the requested version (torch>=2.99).
"""
FACTS = {
    "requirements": ["torch>=2.11,<2.15"],
    "protected": ["torch", "nvidia-*"],
    "index": INDEX,
    "cuda": "13.0",
    "package_index": True,
}
# It "installs" the torch of $PACKAGES/wheels, unless $FAILS names the index that it is given. PyTorch's index names
# the build in the version. Where $FORBIDDEN is set it answers 403, and uv takes the package index's wheel.
UV = """\
#!/bin/sh
case "$*" in "pip check"*) exit 0;; esac
echo "${UV_INDEX-default} $*" >> "$PACKAGES/calls"
case "${UV_INDEX-default}" in *"$FAILS"*) printf '%s' "$MESSAGE" >&2; exit 2;; esac
cp -r "$PACKAGES/wheels/." "$PACKAGES/site"
[ -n "${UV_INDEX-}" ] && [ -z "${FORBIDDEN-}" ] || exit 0
cd "$PACKAGES/site" && mv torch-2.14.1.dist-info torch-2.14.1+cu130.dist-info
sed -i 's/^Version: .*/Version: 2.14.1+cu130/' torch-2.14.1+cu130.dist-info/METADATA
"""


@pytest.fixture
def install(tmp_path):
    """`install(cuda="12.8", UV_INDEX=...)`: run install.py as the Dockerfile does. Its result, and uv's calls."""
    image = tmp_path / "gpukit"
    packages = tmp_path / "packages"
    tools = tmp_path / "bin"
    for folder in (image, packages / "wheels", packages / "site", tools):
        folder.mkdir(parents=True)
    for name in ("guard.py", "install.py"):
        shutil.copy(IMAGE / name, image)
    (image / "protected.txt").touch()
    (tools / "uv").write_text(UV, encoding="utf-8")
    (tools / "uv").chmod(0o755)

    def torch(folder, cuda):
        distribution(folder, "torch", "2.14.1")
        (folder / "torch.py").write_text(f"class version: cuda = {cuda!r}\n__version__ = '2.14.1'\n", encoding="utf-8")

    def run(cuda="13.0", base="", message=UNREACHABLE, fails="pytorch.org", backend="cu130", facts=None, **variables):
        torch(packages / "wheels", cuda)
        if base:
            distribution(packages / "site", "torch", base)
        (image / "torch.json").write_text(json.dumps({**FACTS, **(facts or {})}), encoding="utf-8")
        environment = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "PYTHONPATH": str(packages / "site"),
            "PACKAGES": str(packages),
            "TORCH_BACKEND": backend,
            "FAILS": fails,
            "MESSAGE": message,
            **variables,
        }
        command = [sys.executable, "install.py", "torch.json"]
        done = subprocess.run(command, cwd=image, env=environment, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        calls = (packages / "calls").read_text(encoding="utf-8").splitlines()
        return done, [call.partition(" ") for call in calls]

    run.index = image / "torch-index.txt"
    run.protected = image / "protected.txt"
    return run


def test_pytorchs_index_responds(install):
    done, [(index, _, arguments)] = install(fails="nothing", UV_INDEX="")
    assert done.returncode == 0, done.stderr
    assert (index, arguments) == (f"pytorch={INDEX}cu130", "pip install torch>=2.11,<2.15")
    assert install.protected.read_text() == "torch==2.14.1+cu130\n"
    assert not install.index.exists()


@pytest.mark.parametrize(("cuda", "status"), [("13.0", 0), ("12.8", 1)])
def test_an_index_that_answers_403_is_recorded_too(install, cuda, status):
    done, calls = install(cuda=cuda, fails="nothing", FORBIDDEN="1")
    assert (done.returncode, len(calls)) == (status, 1), done.stderr
    assert install.index.exists() == (status == 0)


def test_the_package_index_stands_in_where_pytorchs_does_not_respond(install):
    done, calls = install()
    assert done.returncode == 0, done.stderr
    assert [index for index, *_ in calls] == [f"pytorch={INDEX}cu130", "default"]
    assert f"{INDEX}cu130 does not respond" in done.stdout
    assert UNREACHABLE in done.stdout
    assert install.index.read_text() == "package index\n"
    assert install.protected.read_text() == "torch==2.14.1\n"


def test_where_its_build_does_not_support_every_target_the_build_ends(install):
    done, calls = install(facts={"package_index": False})
    assert done.returncode == 1
    assert len(calls) == 1
    assert UNREACHABLE in done.stdout
    (sentence,) = done.stderr.splitlines()
    assert "UV_INDEX=pytorch=URL" in sentence
    assert not install.index.exists()


def test_a_mirror_that_does_not_respond_is_not_replaced(install):
    done, calls = install(fails="mirror", message="error: Failed to fetch: https://mirror/x", UV_INDEX="pytorch=mirror")
    assert done.returncode != 0
    assert [index for index, *_ in calls] == ["pytorch=mirror"]
    assert not install.index.exists()
    assert "https://mirror/x" in done.stdout


def test_what_is_not_the_network_is_not_repeated(install):
    """Another version is asked for than there is; uv's message has the index's address too."""
    done, calls = install(message=CONFLICT)
    assert done.returncode != 0
    assert len(calls) == 1
    assert CONFLICT in done.stdout


def test_neither_index_responds(install):
    done, calls = install(fails="")
    assert done.returncode != 0
    assert len(calls) == 2
    assert not install.index.exists()


@pytest.mark.parametrize("allowed", [True, False])
def test_any_build_serves_without_a_gpu(install, allowed):
    done, calls = install(backend="cpu", facts={"package_index": allowed, "cuda": "12.6"})
    assert done.returncode == 0, done.stderr
    assert [index for index, *_ in calls] == [f"pytorch={INDEX}cpu", "default"]
    assert install.index.exists()


@pytest.mark.parametrize("cuda", ["12.8", None])
def test_another_cuda_ends_the_build(install, cuda):
    done, _ = install(cuda=cuda)
    assert done.returncode == 1
    (sentence,) = done.stderr.splitlines()
    assert f"CUDA {cuda}" in sentence and "CUDA 13.0" in sentence
    assert not install.index.exists()


def test_the_bases_torch_is_not_reported_as_the_package_indexs(install):
    """Only torchvision is installed then; the base's torch is recorded before, and stays."""
    done, _ = install(base="2.10.0a0+b558c986e8.nv25.11", backend="cpu", facts={"cuda": "13.0"})
    assert done.returncode == 0, done.stderr
    assert not install.index.exists()


# The files of the layers

PYPROJECT = """\
[project]
name = "Demo.Project"
dependencies = ["torch", "torchvision>=0.26; platform_machine == 'x86_64'", "einops>=0.8", "Foo_Bar[x]>=1"]

[project.optional-dependencies]
dev = ["ruff", "demo-project[docs, lint]"]
docs = ["sphinx", "demo_project[dev]"]
lint = ["mypy>=1; python_version < '3.14'"]
"""
LINES = [
    "torch",
    "torchvision>=0.26; platform_machine == 'x86_64'",
    "einops>=0.8",
    "Foo_Bar[x]>=1",
    "ruff",
    "sphinx",
    "mypy>=1; python_version < '3.14'",
]
INSTALL = {"requirement": "torch>=2.11,<2.15", "index": INDEX, "package_index": True}


@pytest.fixture
def layered(tmp_path, stack_data):
    """`layered(driver="590")`: the files that layers.py writes, by path."""
    pytest.importorskip("tomllib")
    source = tmp_path / "source"
    state = tmp_path / "state"
    source.mkdir()
    (source / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")

    def run(**changes):
        stack = stack_data(**{"torch_install": INSTALL, **changes})
        (source / "stack.json").write_text(json.dumps(stack), encoding="utf-8")
        target = tmp_path / f"layers-{len(list(tmp_path.iterdir()))}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "gpukit/src")}
        command = [sys.executable, "-m", "gpukit.image.layers", source, state, target]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}

    run.source = source
    run.state = state
    return run


def lines(files, name):
    return files[f"dependencies/{name}.txt"].decode().splitlines()


def test_what_each_layer_gets(layered):
    files = layered()
    assert set(files) == {f"torch/{name}" for name in ("guard.py", "install.py", "torch.json")} | {
        f"dependencies/{name}.txt" for name in ("first", "all")
    }
    assert files["torch/guard.py"] == (IMAGE / "guard.py").read_bytes()
    assert lines(files, "all") == LINES
    assert lines(files, "first") == LINES[2:]
    facts = json.loads(files["torch/torch.json"])
    assert facts["requirements"] == [*LINES[:2], "torch>=2.11,<2.15"]
    assert facts | {"requirements": FACTS["requirements"]} == FACTS


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"driver": "999"},
        {"targets": {}},
        {"release": "2.14.2-cu130", "image": "python:3.13-slim", "size_gb": 99, "end_of_life": "2030-01-01"},
        {"memory": {"ipc": "private", "shm_size": "16gb", "fraction": 0.5, "ulimits": {}}},
    ],
    ids=["nothing", "driver floor", "targets", "release", "memory"],
)
def test_what_torch_does_not_need_changes_no_file(layered, change):
    assert layered() == layered(**change)


@pytest.mark.parametrize(
    "change",
    [{"protected": ["torch"]}, {"cuda": "13.2"}, {"torch_install": {**INSTALL, "requirement": "torch==2.14.1"}}],
    ids=["protected", "cuda", "requirement"],
)
def test_what_torch_needs_changes_its_layer(layered, change):
    before = layered()
    after = layered(**change)
    assert {name for name in before if before[name] != after[name]} == {"torch/torch.json"}


def test_what_is_added_leaves_the_first_layer_alone(layered):
    file = layered.source / "pyproject.toml"
    before = layered()
    file.write_text(PYPROJECT.replace('"einops', '"humanize", "einops'), encoding="utf-8")
    after = layered()
    assert {name for name in before if before[name] != after[name]} == {"dependencies/all.txt"}
    assert "humanize" in lines(after, "all")
    file.write_text(PYPROJECT.replace('"einops>=0.8", ', ""), encoding="utf-8")
    assert lines(layered(), "first") == [line for line in LINES[2:] if not line.startswith("einops")]


def test_pinned(layered):
    """By `./launch pin`: its lines replace those of pyproject.toml, and its comments are no requirements."""
    pins = "# from `./launch pin`\neinops==0.8.1  # via me\n# nvidia-nccl-cu13==2.28.9\ntorch==2.14.1\nfoo-bar==2.0\n"
    (layered.source / "requirements.txt").write_text(pins, encoding="utf-8")
    files = layered()
    assert lines(files, "all") == ["einops==0.8.1", "torch==2.14.1", "foo-bar==2.0", LINES[1], *LINES[4:]]
    requirements = json.loads(files["torch/torch.json"])["requirements"]
    assert requirements == ["torch==2.14.1", LINES[1], "torch>=2.11,<2.15"]
