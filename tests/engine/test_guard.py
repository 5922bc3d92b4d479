"""The base's torch is never replaced: every attempt fails, and the error names the package."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterator

import pytest

from gpukit.cli import main as cli
from gpukit.host.cards import data
from gpukit.project.stack import minor

from .conftest import Done, Index, Project

PROTECTED = "/etc/gpukit/protected.txt"


@pytest.fixture(scope="module", params=["wheel", "ngc"])
def guarded(request: pytest.FixtureRequest, project: Callable[..., Project]) -> Iterator[Project]:
    """A project with a running container. After each test, pyproject.toml and the protected packages are unchanged."""
    found = project(request.param, name=f"guarded-{request.param}")
    found.up()
    found.launched("build")
    yield found
    found.stop()


def inside(project: Project, *command: str) -> Done[str]:
    """Run a command in the CLI's container, as its user, but faster than with the CLI."""
    (name,) = project.containers("--filter=label=devcontainer.local_folder")
    return project.engine.ask("exec", "--user=dev", "--workdir=/workspace", name, *command)


@pytest.fixture(autouse=True)
def unchanged(guarded: Project) -> Iterator[None]:
    before = (guarded.path / "pyproject.toml").read_text()
    yield
    assert (guarded.path / "pyproject.toml").read_text() == before
    check = inside(guarded, "python", "-m", "gpukit.image.guard", "check")
    assert (check.returncode, check.stderr) == (0, "")


def version(project: Project, name: str) -> str:
    recorded = inside(project, "cat", PROTECTED).stdout
    return re.search(rf"(?m)^{name}==(\S+)$", recorded)[1]


def named(project: Project, name: str) -> str:
    """A pattern for text that names a package and the recorded version, or the release's range."""
    held = [version(project, name), *re.findall(r"torch(.+)", project.stack["torch_install"]["requirement"])]
    # uv writes nv26.06 as nv26.6
    return rf"\b{name}[=<> ]*({'|'.join(map(re.escape, held))})".replace(r"nv26\.0", r"nv26\.0?")


@pytest.fixture(scope="module")
def unwanted(guarded: Project, index: Index) -> dict[str, str]:
    """Requirements that must be refused. All are on the package index, so only the guard can refuse them."""
    torch = version(guarded, "torch")
    major, minor = torch.split(".")[:2]
    # NVIDIA's build is a pre-release, so even its own release number requires another build
    newer = f"torch>={major}.{minor}" if "a0" in torch else f"torch>={major}.{int(minor) + 1}"
    base = guarded.stack["base"]
    address = f"{index.at(guarded.engine)}/{index.own(f'gputest_for_{base}', newer)}"
    found = {"newer": newer, "another": "torch==2.10.0", "required": f"gputest-for-{base} @ {address}"}
    if "a0" in torch:
        found["numpy"] = "numpy<2.4" if version(guarded, "numpy") >= "2.4" else "numpy>=2.4"
    return found


KINDS = pytest.mark.parametrize(
    ("guarded", "kind"),
    [
        *[("wheel", kind) for kind in ("newer", "another", "required")],
        *[("ngc", kind) for kind in ("newer", "another", "required", "numpy")],
    ],
    indirect=["guarded"],
    scope="module",
)


@KINDS
@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_in_a_running_container(guarded: Project, unwanted: dict[str, str], tool: str, kind: str) -> None:
    name = "numpy" if kind == "numpy" else "torch"
    done = inside(guarded, *tool.split(), "install", unwanted[kind])
    assert done.returncode != 0
    assert re.search(named(guarded, name), done.stdout + done.stderr)


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_no_package_is_built_on_another_torch(guarded: Project, index: Index, tool: str) -> None:
    """As causal-conv1d, whose build requires torch: the package index has the one that is asked for."""
    archive = index.source("gputest_built", "setuptools", "torch==2.10.0")
    done = inside(guarded, *tool.split(), "install", f"{index.at(guarded.engine)}/{archive}")
    assert done.returncode != 0
    assert "torch" in done.stderr and re.search(r"constraint|conflict|unsatisfiable", done.stderr), done.stderr


@pytest.mark.parametrize("guarded", ["wheel"], indirect=True, scope="module")
def test_the_image_builds_a_package_on_its_own_torch(guarded: Project, index: Index) -> None:
    """Although the package's build accepts any torch, and the index has a newer one."""
    wheel = index.folder / index.own("torch", version="99.0")
    newer = index.folder / "torch" / wheel.name
    newer.parent.mkdir(exist_ok=True)
    newer.symlink_to(wheel)
    archive = index.source("gputest_source", "setuptools", "torch")
    package = f'"gputest-source @ {index.at(guarded.engine)}/{archive}"'
    before = (guarded.path / "pyproject.toml").read_text()
    try:
        guarded.write("pyproject.toml", before.replace("dependencies = [\n", f"dependencies = [\n    {package},\n", 1))
        built = guarded.launched("run", "--", "python", "-c", "import gputest_source; print(gputest_source.torch)")
    finally:
        newer.unlink()
        guarded.write("pyproject.toml", before)
    assert built.partition("+")[0].strip() == version(guarded, "torch").partition("+")[0]


def refused(guarded: Project, package: str, name: str) -> None:
    done = guarded.launch("add", package)
    assert done.returncode == 1
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
    assert re.search(rf"\b{name}\b.*(base image|base has {name})", sentence), sentence


@KINDS
def test_launch_add_into_a_running_container(guarded: Project, unwanted: dict[str, str], kind: str) -> None:
    refused(guarded, unwanted[kind], "numpy" if kind == "numpy" else "torch")


def test_launch_add_without_a_container(guarded: Project, unwanted: dict[str, str]) -> None:
    """Of any kind; the container is stopped and started once."""
    guarded.stop()
    try:
        for kind, package in unwanted.items():
            refused(guarded, package, "numpy" if kind == "numpy" else "torch")
    finally:
        guarded.up()


@pytest.mark.parametrize(
    ("guarded", "tool", "kind"),
    [
        *[("wheel", "uv", kind) for kind in ("newer", "another", "required")],
        *[("ngc", "uv", kind) for kind in ("newer", "another", "required", "numpy")],
        ("wheel", "pip", "required"),
        ("ngc", "pip", "numpy"),
    ],
    indirect=["guarded"],
    scope="module",
)
def test_in_the_build(guarded: Project, unwanted: dict[str, str], tool: str, kind: str) -> None:
    """With uv, for pyproject.toml, and with pip, in a step added by a user, which the same constraints refuse."""
    name = "numpy" if kind == "numpy" else "torch"
    image = guarded.engine.inspect(guarded.image)["Id"]
    file = "pyproject.toml" if tool == "uv" else "Dockerfile"
    before = (guarded.path / file).read_text()
    if tool == "uv":
        edited = before.replace("dependencies = [\n", f'dependencies = [\n    "{unwanted[kind]}",\n', 1)
    else:
        edited = f"{before}\nRUN pip install '{unwanted[kind]}'\n"
    assert edited != before
    try:
        guarded.write(file, edited)
        done = guarded.launch("build")
    finally:
        guarded.write(file, before)
    assert done.returncode == 1
    assert re.search(named(guarded, name), done.stderr), done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert guarded.engine.inspect(guarded.image)["Id"] == image


@pytest.mark.parametrize("guarded", ["ngc"], indirect=True, scope="module")
def test_pins_from_the_image_without_a_gpu(guarded: Project) -> None:
    """They hold for NVIDIA's image too; a pin that does not is named."""
    try:
        guarded.launched("--cpu", "pin")
        pins = (guarded.path / "requirements.txt").read_text()
        assert re.search(r"(?m)^tyro==", pins) and "\n# torch==" in pins
        guarded.launched("build")
        guarded.write("requirements.txt", f"{pins}torch=={version(guarded, 'torch').partition('a0')[0]}\n")
        done = guarded.launch("build")
        (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
        assert done.returncode == 1 and "requirements.txt pins torch==" in sentence
    finally:
        guarded.launched("pin", "--remove")
        guarded.launched("build")


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_without_the_constraints(guarded: Project, index: Index, tool: str) -> None:
    """Without the constraints, the folders still do not let a regular user replace files."""
    address = f"{index.at(guarded.engine)}/{index.own('torch', version='99.0')}"
    without = ("env", "--unset=PIP_CONSTRAINT", "--unset=UV_CONSTRAINT")
    done = inside(guarded, *without, *tool.split(), "install", "--no-deps", address)
    assert done.returncode != 0
    assert re.search(r"not permitted|permission denied", done.stdout + done.stderr, re.IGNORECASE)


def pinned(guarded: Project, index: Index, name: str, digest: str = "") -> list[str]:
    """The lines that pin a wheel for this machine's CPU, and one that is nowhere for another CPU."""
    path = index.own(name)
    digest = digest or hashlib.sha256((index.folder / path).read_bytes()).hexdigest()
    line = "{} @ {}/{}#sha256={} ; sys_platform == 'linux' and platform_machine {} '{}'"
    return [
        line.format(name.replace("_", "-"), index.at(guarded.engine), file, digest, operator, platform.machine())
        for operator, file in (("==", path), ("!=", "nowhere/x-1.0-py3-none-any.whl"))
    ]


def test_an_added_package_is_available_everywhere(guarded: Project, index: Index) -> None:
    """In Python, torchrun, and Jupyter's kernel; in the running container, and after the next build."""
    before = (guarded.path / "pyproject.toml").read_text()
    packages = pinned(guarded, index, "gputest_added")
    try:
        guarded.launched("add", *packages)
        assert all(f'"{package}"' in (guarded.path / "pyproject.toml").read_text() for package in packages)
        guarded.write("seen.py", "import gputest_added, torch; print('seen', gputest_added.here)\n")
        assert inside(guarded, "python", "seen.py").stdout == "seen True\n"
        assert "seen True" in inside(guarded, "torchrun", "--nproc-per-node=1", "seen.py").stdout
        assert guarded.launched("run", "--", "python", "seen.py") == "seen True\n"
        done = inside(guarded, "python", "-m", "gpukit.image.guard", "check")
        assert done.returncode == 0, done.stderr
    finally:
        guarded.write("pyproject.toml", before)


def test_a_file_that_is_not_the_pinned_one(guarded: Project, index: Index) -> None:
    packages = pinned(guarded, index, "gputest_other", "0" * 64)
    found = hashlib.sha256((index.folder / index.own("gputest_other")).read_bytes()).hexdigest()
    done = guarded.launch("add", *packages)
    assert done.returncode == 1 and "0" * 64 in done.stderr and found in done.stderr


def test_add_finds_and_pins_a_wheel_with_cuda_code(
    guarded: Project, index: Index, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On NVIDIA's image, whose torch is a pre-release, there is none."""
    before = (guarded.path / "pyproject.toml").read_text()
    stack = guarded.stack
    tags = f"py3-none-linux_{platform.machine()}"
    own = index.folder / index.own("mamba_ssm", version=f"2.0+cu.{stack['cuda']}.torch.{minor(stack['torch'])}")
    folder = index.folder / "mamba-ssm"
    folder.mkdir(exist_ok=True)
    wheel = own.rename(folder / own.name.replace("py3-none-any", tags))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}#sha256={digest}">{wheel.name}</a>')
    page = f"{index.at(guarded.engine)}/{{package}}/"
    for name, each in data("extensions")["indexes"].items():
        monkeypatch.setitem(each, "page", page if name == "astral" else f"{page}{name}")
    for name, value in {**guarded.environment, "GPUKIT_PROJECT": str(guarded.path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(guarded.path)
    try:
        code = cli.main(["add", "--yes", "mamba-ssm"])
        said = capfd.readouterr().err
        if guarded.stack["base"] == "ngc":
            assert code == 1 and "mamba-ssm cannot be added" in said
            return
        assert code == 0 and "not checked" in said, said
        assert f"#sha256={digest} ; " in (guarded.path / "pyproject.toml").read_text()
        assert inside(guarded, "python", "-c", "import mamba_ssm").returncode == 0
        assert guarded.launched("run", "--", "python", "-c", "import mamba_ssm; print('seen')") == "seen\n"
    finally:
        guarded.write("pyproject.toml", before)


def verified(project: Project) -> dict[str, dict]:
    done = inside(project, "gpukit", "verify", "--json", "--only", "gpukit,protected,packages,conflicts,imports")
    return {each["id"]: each for each in json.loads(done.stdout)["findings"]}


def test_verify_reports_no_conflict_in_a_new_image(guarded: Project) -> None:
    """It also ignores conflicts within the base."""
    assert [each for each in verified(guarded).values() if each["status"] != "PASS"] == []


def test_verify_names_a_conflicting_package(guarded: Project, index: Index) -> None:
    address = f"{index.at(guarded.engine)}/{index.own('gputest_conflict', 'numpy>=99')}"
    done = inside(guarded, "uv", "pip", "install", "--no-deps", address)
    assert done.returncode == 0, done.stderr
    try:
        found = verified(guarded)["conflicts"]
        assert (found["status"], found["cause_id"]) == ("WARN", "packages-conflict-beside")
        assert "gputest-conflict" in found["cause"] and "numpy>=99" in found["expected"]
    finally:
        inside(guarded, "uv", "pip", "uninstall", "gputest-conflict")


def test_jupyters_interpreter_is_the_same(guarded: Project) -> None:
    """torchrun and Jupyter start the Python that pip and uv install into."""
    scripts = ["torchrun", "pip", *(["jupyter"] if (guarded.path / "notebooks").is_dir() else [])]
    lines = inside(guarded, "sh", "-c", 'for x in "$@"; do head -1 "$(command -v "$x")"; done', "sh", *scripts).stdout
    python = inside(guarded, "python", "-c", "import os, sys; print(os.path.realpath(sys.executable))").stdout.strip()
    for line in lines.splitlines():
        real = inside(guarded, "realpath", line.removeprefix("#!").split()[0]).stdout.strip()
        assert real == python, line
