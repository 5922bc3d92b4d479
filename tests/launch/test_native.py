"""`./launch --native`: where its environment is, what is refused, and that nothing installs another torch in it.

Most of it with real uv and real pip, and with wheels of a few lines in torch's place, so that it takes seconds.
test_native_training.py trains with the real one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit.cli import main as cli
from gpukit.host import facts, memory
from gpukit.host.cards import data
from gpukit.host.facts import arch
from gpukit.host.project import Project
from gpukit.host.refusals import explain, lacks_gpu
from gpukit.launch import native
from gpukit.launch.environment import Environment
from gpukit.project import messages
from gpukit.project.location import ADOPTED
from gpukit.project.messages import RefusalError
from gpukit.wheel import writer
from tests.conftest import cannot, started, until
from tests.gpukit.conftest import DATA
from tests.gpukit.test_prove import elf
from tests.gpukit.web import Web, serving
from tests.launch.conftest import JUPYTER
from tests.ports import files_of

from .conftest import write_project

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
FACTS = {
    "torch": "2.14.1+cu130",
    "requirement": "torch>=2.13,<2.14",
    "index": "https://download.pytorch.org/whl/cu130",
    "cpu_index": "https://download.pytorch.org/whl/cpu",
    "cuda": "13.0",
    "package_index": True,
    "python": PYTHON,
    "pythons": [PYTHON],
    "allocator_cap": True,
    "driver": "580",
    "protected": ["torch", "nvidia-*"],
}
TARGETS = {"rtx-50": {"capability": "12.0", "arch": arch(), "unified_memory": False}}
PYPROJECT = """\
[project]
name = "small"
version = "0.1.0"
dependencies = ["torch", "fruit"]

[project.optional-dependencies]
dev = ["jupyterlab"]

[tool.uv]
managed = false
"""


def wheel(
    folder: Path,
    name: str,
    version: str,
    *requires: str,
    cuda: str | None = None,
    script: str = "",
    library: bool = False,
) -> None:
    """A wheel of a few lines; in torch's place it says which build it is, as torch does. `library`: with CUDA code."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"from . import version\n__version__ = {version!r}\n",
        f"{name}/version.py": f"cuda = {cuda!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {line}\n" for line in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if name == "torch":
        files[f"{info}/entry_points.txt"] = "[console_scripts]\ntorchrun = torch:main\n"
    if script:
        files[f"{name}-{version}.data/scripts/jupyter"] = script
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        if library:
            archive.writestr(f"{name}/_C.so", elf(".nv_fatbin"))
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))


BUILT_ON = """
import zipfile, torch
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name, info = "extension-1.0-py3-none-any.whl", "extension-1.0.dist-info"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as archive:
        archive.writestr("extension.py", f"torch = {torch.__version__!r}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: extension\\nVersion: 1.0\\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", "")
    return name
"""


def extension(folder: Path) -> None:
    """A source archive whose build requires torch, and writes down which one it got."""
    files = {
        "PKG-INFO": "Metadata-Version: 2.2\nName: extension\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = ["torch"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "extension"\nversion = "1.0"\n',
        "backend.py": BUILT_ON,
    }
    folder.mkdir()
    with tarfile.open(folder / "extension-1.0.tar.gz", "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"extension-1.0/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))


@pytest.fixture(scope="session")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of them: `pytorch` has torch, `ordinary` everything else and other builds of torch."""
    if sys.version_info < (3, 11) or not shutil.which("uv"):
        cannot("uv and Python 3.11 are needed to make a native environment")
    import ensurepip

    pip = next((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"), None)
    if pip is None:
        cannot("this Python has no pip of its own to put into an environment")
    root = tmp_path_factory.mktemp("indexes")
    for kind, cuda in (("cpu", None), ("cu130", "13.0")):
        wheel(root / kind / "torch", "torch", f"2.13.0+{kind}", cuda=cuda)
    ordinary = root / "ordinary"
    for version in ("2.12.0", "2.13.0", "2.15.0"):
        wheel(ordinary / "torch", "torch", version, cuda="13.2")
    wheel(ordinary / "setuptools", "setuptools", "80.0")  # both for Python 3.11 only
    wheel(ordinary / "wheel", "wheel", "0.45")
    wheel(ordinary / "fruit", "fruit", "1.0")
    wheel(ordinary / "nut", "nut", "1.0", "torch>=2.10")
    wheel(ordinary / "older", "older", "1.0", "torch<2.13", "fruit<1")
    wheel(ordinary / "newer", "newer", "1.0", "torch>=2.15")
    wheel(ordinary / "fruit", "fruit", "0.9")
    extension(ordinary / "extension")
    jupyter = f"#!python\nimport sys\nassert '--ip=127.0.0.1' in sys.argv\n{JUPYTER}"
    wheel(ordinary / "jupyterlab", "jupyterlab", "4.0", script=jupyter)
    (ordinary / "pip").mkdir()
    shutil.copy2(pip, ordinary / "pip")
    for folder in root.glob("*/*"):
        links = [f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>' for file in folder.iterdir()]
        (folder / "index.html").write_text("\n".join(links))
    return root


class Native:
    """A project, and where its native environments are made; both outside of anything of this machine's."""

    def __init__(self, root: Path, indexes: Path, cpu: bool = True) -> None:
        self.root = write_project(root / "small")
        self.home = root / "home"
        self.cpu = cpu
        self.facts()
        tools = root / "path"  # no folder with other Pythons: uv starts each of them, and shims take seconds
        tools.mkdir()
        (tools / "uv").symlink_to(shutil.which("uv"))
        (self.root / "pyproject.toml").write_text(PYPROJECT)
        self.env = {
            **{
                name: value
                for name, value in os.environ.items()
                if not re.match(r"(UV|PIP|CONDA|VIRTUAL)(_|$)|PYTHONPATH", name)
            },
            "HOME": str(root),
            "UV_PYTHON_INSTALL_DIR": str(root / "no-pythons"),
            "UV_CACHE_DIR": str(root / "cache"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_PYTHON_PREFERENCE": "only-system",
            "UV_DEFAULT_INDEX": (indexes / "ordinary").as_uri(),
            "UV_INDEX": f"pytorch={(indexes / ('cpu' if cpu else 'cu130')).as_uri()}",
            "PIP_INDEX_URL": (indexes / "ordinary").as_uri(),
            "GPUKIT_NATIVE": str(self.home),
            "PATH": os.pathsep.join([str(Path(sys.executable).resolve().parent), str(tools), "/usr/bin", "/bin"]),
        }

    def facts(self, **changes: object) -> None:
        native_facts = {**FACTS, "torch": "2.13.0+cu130", **changes}
        stack = {"project": "small", "protected": ["torch", "nvidia-*"], "targets": TARGETS, "native": native_facts}
        (self.root / "stack.json").write_text(json.dumps(stack))

    def argv(self, *arguments: str) -> list[str]:
        return ["/bin/sh", str(self.root / "launch"), "--native", *["--cpu"] * self.cpu, *arguments]

    def launch(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*arguments),
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def refused(self, *arguments: str, **env: str) -> str:
        done = self.launch(*arguments, **env)
        assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("launch: ")]
        return said

    @property
    def path(self) -> Path:
        (found,) = self.home.glob(f"*-{'cpu' if self.cpu else 'cu130'}")
        return found

    def torch(self) -> str:
        look = "import torch; print(torch.__version__)"
        python = [self.path / "bin/python", "-c", look]
        done = subprocess.run(python, env=self.env, capture_output=True, text=True, cwd=self.home)
        return done.stdout.strip() or done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, indexes: Path) -> Native:
    """A project with its environment. Tests leave both as they are."""
    found = Native(tmp_path_factory.mktemp("native"), indexes)
    done = found.launch("build")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(found.path)
    assert str(found.path / "bin/python") in done.stderr and "`Python: Select Interpreter`" in done.stderr
    return found


@pytest.fixture
def fresh(tmp_path: Path, indexes: Path) -> Native:
    return Native(tmp_path, indexes)


def project(root: Path, facts: dict[str, Any] | None = None, **env: str) -> Project:
    """Its --cpu is the tests' configuration without a GPU. `facts`: other ones in stack.json."""
    stack = {"project": "small", "targets": TARGETS, "native": FACTS, **(facts or {})}
    (root / "stack.json").write_text(json.dumps(stack))
    return Project(root, {"HOME": str(root.parent), **env})


# Where it lies, and what is refused


def test_where_it_lies(small: Path) -> None:
    """Outside the project, and apart for each folder, processor and build: a home directory may be shared."""
    path = Environment(project(small, GPUKIT_NATIVE="/somewhere")).path
    assert path.parent == Path("/somewhere")
    assert re.fullmatch(rf"small-[0-9a-f]{{8}}-{os.uname().machine}-cu130", path.name)
    assert Environment(project(small, XDG_DATA_HOME="/data")).path.parent == Path("/data/gpu-template")
    without = Project(small, {"GPUKIT_NATIVE": "/somewhere"}, cpu=True)
    assert Environment(without).path.name == path.name.replace("cu130", "cpu")
    with pytest.raises(RefusalError, match="outside the project"):
        Environment(project(small, GPUKIT_NATIVE=str(small / "envs")))
    with pytest.raises(RefusalError, match="blank"):
        Environment(project(small, GPUKIT_NATIVE="/some where"))


def test_a_project_of_before_is_told_to_update(small: Path) -> None:
    with pytest.raises(RefusalError, match="launch update"):
        Environment(Project(small, {}))


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\nGCC version: 12\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"


@pytest.mark.parametrize(("text", "version"), [(OPEN, "580.95.05"), (CLOSED, "535.183.01"), ("what?\n", "")])
def test_the_loaded_driver(tmp_path: Path, text: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "WSL_DEVICE", str(tmp_path / "no-dxg"))
    monkeypatch.setattr(facts, "DRIVER", str(tmp_path / "version"))
    assert native.driver() is None
    (tmp_path / "version").write_text(text)
    assert native.driver() == version


@pytest.mark.parametrize(
    ("loaded", "system", "words"),
    [
        (None, (), "No NVIDIA driver is loaded"),
        ("570.86.16", (), "is 570.86.16, and PyTorch 2.14.1+cu130 needs 580 or newer"),
        ("580.65.06", (), ""),
        ("", (), ""),  # a driver that does not tell
        (None, (36, 4, 3), "needs JetPack 7, and this Jetson has R36.4.3: https://docs.nvidia.com/"),
        (None, (38, 2), ""),
    ],
)
def test_the_driver_must_serve(
    small: Path, loaded: str | None, system: tuple[int, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Environment(project(small))
    monkeypatch.setattr(facts, "no_gpu", lambda: False)
    with pytest.raises(RefusalError, match=re.escape(words)) if words else contextlib.nullcontext():
        native.gpu_serves(found, loaded, system)
    native.gpu_serves(Environment(Project(small, {}, cpu=True)), None, (36, 4, 3))


def test_without_a_gpu_no_driver_is_asked_for(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "no_gpu", lambda: True)
    with pytest.raises(RefusalError) as refused:
        native.gpu_serves(Environment(project(small)), None, ())
    assert lacks_gpu(refused.value)


def test_a_machine_of_another_kind_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Environment(project(small))
    monkeypatch.setattr(native, "arch", lambda: "riscv64")
    with pytest.raises(RefusalError, match="riscv64"):
        native.gpu_serves(found, "999", ())


@pytest.mark.parametrize(
    ("said", "cause", "words"),
    [
        (
            "error: Request failed after 3 retries\n  cause: Failed to fetch: `https://download.pytorch.org/whl/cpu/a/`",
            "uv-unreachable",
            "https://download.pytorch.org",
        ),
        ("error: No interpreter found for Python 3.12 in managed installations", "uv-python", "Python 3.12"),
        (
            "  x No solution found when resolving dependencies:\n  ╰─▶ Because torch==2.13.0+cpu has no wheels with a "
            "matching Python ABI tag (e.g., `cp314`) and you require torch, your requirements are unsatisfiable.",
            "no-wheel-for-python",
            "Python",
        ),
        ("No solution found when resolving dependencies:\n Because you require a", "packages-contradict", ""),
        ("error: failed to write to file: No space left on device (os error 28)", "uv-disk-full", "GPUKIT_NATIVE"),
        ("  x Failed to build `flash-attn==2.8.3`\n", "wheel-not-built", "flash-attn==2.8.3"),
        ("error: something new", "", "something new"),
    ],
)
def test_what_uv_says_becomes_a_sentence(said: str, cause: str, words: str) -> None:
    refusal = explain(said, "uv failed", kinds=("uv",), native=True)
    assert refusal.id == cause and words in str(refusal)


@pytest.mark.parametrize(
    ("image", "native_torch", "own", "expected"),
    [
        (True, True, {}, "0.30"),
        (False, True, {}, "0.30"),
        (True, False, {}, None),
        (True, True, {"GPUKIT_MEMORY_FRACTION": "0.5"}, "0.5"),
        (True, True, {"PYTORCH_ALLOC_CONF": "mine"}, "mine"),
    ],
)
def test_the_cap_on_shared_memory(
    small: Path, monkeypatch, image: bool, native_torch: bool, own: dict[str, str], expected: str | None
) -> None:
    """By what the environment's torch supports, which may be another than the image's."""
    monkeypatch.setattr(memory, "meminfo", lambda: {"MemTotal": 100, "MemAvailable": 35})
    if image:
        path = small / ".devcontainer/devcontainer.json"
        config = json.loads(path.read_text())
        cap = "per_process_memory_fraction:${localEnv:GPUKIT_MEMORY_FRACTION:0.8}"
        config["containerEnv"]["PYTORCH_ALLOC_CONF"] = cap
        path.write_text(json.dumps(config))
    spark = {"capability": "12.1", "arch": "arm64", "unified_memory": True}
    facts = {**FACTS, "allocator_cap": native_torch}
    stack = {"targets": {"dgx-spark": spark}, "memory": {"fraction": 0.8}, "native": facts}
    there = project(small, stack, **own)
    found = native.variables(there, Environment(there)).get("PYTORCH_ALLOC_CONF")
    assert found == (f"{memory.CAP}:{expected}" if expected and expected[0] == "0" else expected)


def test_what_programs_find(small: Path) -> None:
    """What devcontainer.json sets, with this machine's paths; which GPUs; and no variable that leads elsewhere."""
    (small / ".env").write_text("HF_TOKEN=mine\n")
    config = json.loads((small / ".devcontainer/devcontainer.json").read_text())
    config["containerEnv"].update(DATA_DIR="/data")
    config["runArgs"] += ["--env-file", ".devcontainer/host.env"]
    (small / ".devcontainer/host.env").write_text(
        "# names\nMLFLOW_TRACKING_URI=http://mlflow:5000\nMLFLOW_TRACKING_URI\nWANDB_PROJECT\n"
    )
    config["mounts"].append("type=bind,source=/srv/images,target=/data,readonly")
    (small / ".devcontainer/devcontainer.json").write_text(json.dumps(config))
    own = {"PYTHONHOME": "/elsewhere", "CUDA_VISIBLE_DEVICES": "3", "MLFLOW_PORT": "5001"}
    there = project(small, **own)
    env = native.variables(there, Environment(there))
    assert env["WANDB_DIR"] == str(small / "outputs")
    assert (env["DATA_DIR"], env["MLFLOW_TRACKING_URI"]) == ("/srv/images", "http://127.0.0.1:5001")
    assert "WANDB_PROJECT" not in env
    mine = project(small, MLFLOW_TRACKING_URI="http://mlflow.example", WANDB_PROJECT="p")
    theirs = native.variables(mine, Environment(mine))
    assert (theirs["MLFLOW_TRACKING_URI"], theirs["WANDB_PROJECT"]) == ("http://mlflow.example", "p")
    assert env["HF_TOKEN"] == "mine" and "PYTHONHOME" not in env
    assert env["CUDA_VISIBLE_DEVICES"] == "3"  # as Slurm gives it
    assert "PYTORCH_ALLOC_CONF" not in env
    chosen = project(small, **own, GPUS="0,1")
    assert native.variables(chosen, Environment(chosen))["CUDA_VISIBLE_DEVICES"] == "0,1"
    plain = project(small)
    assert "CUDA_VISIBLE_DEVICES" not in native.variables(plain, Environment(plain))
    without = Project(small, {}, cpu=True)
    assert native.variables(without, Environment(without))["GPUKIT_DEVICE"] == "cpu"


@pytest.mark.slow
def test_without_uv(fresh: Native) -> None:
    tools = fresh.home.parent / "tools"
    tools.mkdir()
    for name, program in {"python3": sys.executable, "dirname": shutil.which("dirname")}.items():
        (tools / name).symlink_to(str(program))
    assert "https://docs.astral.sh/uv/" in fresh.refused("build", PATH=str(tools), UV="")
    assert not fresh.home.joinpath("x").parent.exists() or not list(fresh.home.glob("*/pyvenv.cfg"))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["up", "pin", "preflight"])
def test_what_is_about_containers_is_refused(fresh: Native, command: str) -> None:
    assert "leave `--native` out" in fresh.refused(command)


def test_a_gpu_project_without_a_gpu_says_so(tmp_path: Path, indexes: Path) -> None:
    found = Native(tmp_path, indexes, cpu=False)
    if native.driver() is None and not native.jetson_release():
        assert "--native --cpu" in found.refused("run", "--", "true")


# Setting up


def test_programs_run_in_it(made: Native) -> None:
    look = "import os, sys, torch, fruit, gpukit; print(torch.__version__, sys.prefix, os.getcwd())"
    done = made.launch("run", "--", "python", "-c", look)
    assert done.stdout.split() == ["2.13.0+cpu", str(made.path), str(made.root)], done.stderr
    assert made.launch("run", "sh", "-c", "exit 7").returncode == 7
    assert made.launch("run", "--", "no-such-command").returncode == 127
    look = "import os; print(os.environ['GIVEN'], os.environ['HERE'])"
    done = made.launch("run", "-e", "GIVEN=1", "-e", "HERE", "-p", "6006", "--", "python", "-c", look, HERE="2")
    assert done.stdout == "1 2\n" and "-p has no effect" in done.stderr


def test_the_second_time_uv_is_not_even_needed(made: Native) -> None:
    done = made.launch("run", "--", str(made.path / "bin/python"), "-c", "", PATH="/usr/bin:/bin")
    assert done.returncode == 0 and not done.stderr


def test_nothing_of_it_is_in_the_project(made: Native) -> None:
    names = {path.name for path in made.root.iterdir()}
    assert not names & {".venv", "uv.toml", "uv.lock", "requirements.txt"}
    assert (made.root / "pyproject.toml").read_text() == PYPROJECT


@pytest.mark.slow
def test_what_changes_in_pyproject_is_installed(fresh: Native) -> None:
    fresh.launch("build")
    edited = PYPROJECT.replace('"fruit"', '"fruit", "nut"')
    (fresh.root / "pyproject.toml").write_text(edited)
    done = fresh.launch("run", "--", "python", "-c", "import nut, torch; print(torch.__version__)")
    assert done.stdout.strip() == "2.13.0+cpu", done.stderr
    (fresh.root / "pyproject.toml").write_text(PYPROJECT.replace('"fruit"', '"fruit", "older"'))
    assert "No solution found" in fresh.launch("run", "--", "true").stderr
    (fresh.root / "pyproject.toml").write_text(edited)
    (fresh.root / "requirements.txt").write_text("fruit==7.0\n")
    assert "requirements.txt pins fruit==7.0" in fresh.refused("run", "--", "true")
    assert fresh.torch() == "2.13.0+cpu"


def test_an_adopted_repository_whose_files_name_no_torch(fresh: Native) -> None:
    """And whose settings of uv would forbid the Python."""
    (fresh.root / "vendor").rename(fresh.root / ".gpukit")
    for name in ("stack.json", "Dockerfile", ".devcontainer/devcontainer.json", ".devcontainer/cpu/devcontainer.json"):
        (fresh.root / ADOPTED[name]).parent.mkdir(exist_ok=True)
        (fresh.root / name).rename(fresh.root / ADOPTED[name])
    (fresh.root / "pyproject.toml").write_text("[tool.uv]\npython-preference = 'only-managed'\n")
    (fresh.root / ".gpukit/extra.txt").write_text("fruit\n")
    done = fresh.launch("run", "--", "python", "-c", "import fruit, torch; print(torch.__version__)")
    assert done.stdout.strip() == "2.13.0+cpu", done.stderr


@pytest.mark.slow
def test_what_was_taken_away_is_put_back(fresh: Native) -> None:
    fresh.launch("build")
    (info,) = fresh.path.glob("lib/*/site-packages/fruit-*.dist-info")
    shutil.rmtree(info)
    shutil.rmtree(info.parent / "fruit")
    assert fresh.launch("run", "--", "python", "-c", "import fruit").returncode == 0


@pytest.mark.slow
def test_build_repairs_what_a_user_replaced(fresh: Native) -> None:
    """Other commands leave it: a user may try another version. What is within its range stays."""
    (fresh.root / "pyproject.toml").write_text(PYPROJECT.replace('"fruit"', '"fruit>=1"'))
    fresh.launch("build")
    (site,) = fresh.path.glob("lib/python*/site-packages")
    install = ["uv", "pip", "install", "--quiet", f"--python={fresh.path / 'bin/python'}", "fruit==0.9"]
    subprocess.run(install, env=fresh.env, check=True)
    assert fresh.launch("run", "true").returncode == 0 and list(site.glob("fruit-0.9.dist-info"))
    done = fresh.launch("build")
    assert done.returncode == 0 and list(site.glob("fruit-1.0.dist-info")), done.stderr
    (fresh.root / "pyproject.toml").write_text(PYPROJECT)
    subprocess.run(install, env=fresh.env, check=True)
    assert fresh.launch("build").returncode == 0 and list(site.glob("fruit-0.9.dist-info"))
    assert fresh.launch("build", PATH="/usr/bin:/bin").returncode == 0  # uv is not needed: nothing changed


def slow_uv(found: Native, when: str, seconds: str = "60") -> dict[str, str]:
    """A PATH on which uv sleeps after a command that begins so, and counts how often."""
    tools = found.home.parent / "tools"
    tools.mkdir()
    uv = shutil.which("uv", path=found.env["PATH"])
    (tools / "uv").write_text(
        f'#!/bin/sh\n{shlex.quote(str(uv))} "$@" || exit\n'
        f'case "$*" in "{when}"*) echo once >> {tools}/count; exec sleep {seconds};; esac\n'
    )
    (tools / "uv").chmod(0o755)
    return {"PATH": os.pathsep.join([str(tools), found.env["PATH"]])}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_set_up_is_done_again(fresh: Native, how: signal.Signals) -> None:
    env = {**fresh.env, **slow_uv(fresh, "pip install")}
    with started(*fresh.argv("build"), env=env, stderr=subprocess.PIPE, start_new_session=True) as process:
        counted = fresh.home.parent / "tools/count"
        until(counted.exists)
        os.killpg(process.pid, how)
        process.communicate(timeout=60)
    assert not (fresh.path / "stamp.json").exists()
    done = fresh.launch("run", "--", "python", "-c", "import torch, fruit")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_two_at_once_wait_for_each_other(fresh: Native) -> None:
    env = {**fresh.env, **slow_uv(fresh, "venv", "2")}
    command = fresh.argv("run", "--", "python", "-c", "import torch, fruit")
    with contextlib.ExitStack() as stack:
        options = {"env": env, "stderr": subprocess.PIPE, "text": True}
        both = [stack.enter_context(started(*command, **options)) for _ in range(2)]
        said = [process.communicate(timeout=100)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert (fresh.home.parent / "tools/count").read_text() == "once\n"
    assert sum("waiting for it" in words for words in said) == 1


@pytest.mark.slow
def test_clean_removes_the_environment_unless_a_program_runs_in_it(fresh: Native) -> None:
    assert fresh.launch("build").returncode == 0
    other = fresh.home / "other-project"
    other.mkdir()
    started = fresh.root / "started"
    program = fresh.argv("run", "--", "sh", "-c", "touch started; exec sleep 60")
    with subprocess.Popen(program, env=fresh.env) as running:
        until(started.exists)
        said = fresh.refused("clean", "--yes")
        running.kill()
    assert "A program still runs in" in said and fresh.path.is_dir()
    listed = fresh.launch("clean")
    assert str(fresh.path) in listed.stdout and "MB" in listed.stdout and "pass --yes" in listed.stderr
    done = fresh.launch("clean", "--yes")
    assert done.returncode == 0 and "Removed 1 environment." in done.stderr, done.stderr
    assert [path for path in fresh.home.iterdir() if path.is_dir()] == [other]


@pytest.mark.slow
def test_an_environment_in_use_is_not_recreated(fresh: Native) -> None:
    fresh.launch("build")
    process = subprocess.Popen(fresh.argv("run", "--", "python", "-c", "print(1, flush=True); input()"), env=fresh.env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    with process:
        assert process.stdout and process.stdout.readline()
        fresh.facts(requirement="torch==2.13.0")
        assert "still runs" in fresh.refused("run", "--", "true")
        assert fresh.torch() == "2.13.0+cpu"
        process.communicate(b"\n")
    assert fresh.launch("run", "--", "true").returncode == 0


def test_a_slow_first_import_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 1\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(messages, "ANNOUNCED", 0.01)
    with pytest.raises(RefusalError, match="status 3"):
        Environment.assert_build(SimpleNamespace(interpreter=python, path=tmp_path))
    assert capsys.readouterr().err.startswith("Importing PyTorch")


@pytest.mark.slow
def test_a_build_of_another_kind_is_refused(tmp_path: Path, indexes: Path) -> None:
    """As an index does that has only builds for CPUs under the version that was asked for."""
    found = Native(tmp_path, indexes, cpu=False)
    said = found.refused("build", UV_INDEX=f"pytorch={(indexes / 'cpu').as_uri()}")
    assert "torch 2.13.0+cpu" in said and "without CUDA" in said and "CUDA 13.0" in said and "UV_INDEX" in said
    assert not (found.path / "stamp.json").exists()
    assert found.launch("build").returncode == 0
    assert found.torch() == "2.13.0+cu130"


@pytest.mark.slow
def test_a_python_that_no_wheel_supports(fresh: Native) -> None:
    fresh.facts(python="3.99", pythons=["3.99"])
    assert "Python 3.99" in fresh.refused("build")


@pytest.mark.slow
def test_without_the_network(fresh: Native, indexes: Path) -> None:
    """With what uv has kept it is made again; without, the address is named that does not answer."""
    with files_of(indexes) as address:
        env = {
            "UV_INDEX": f"pytorch={address}/cpu",
            "UV_DEFAULT_INDEX": f"{address}/ordinary",
            "UV_HTTP_RETRIES": "0",
        }
        assert f"({address})" not in fresh.launch("build", **env).stderr
    done = fresh.launch("build", "--no-cache", **env)
    assert done.returncode == 0 and "cache alone" in done.stderr, done.stderr
    assert fresh.torch() == "2.13.0+cpu"
    shutil.rmtree(fresh.env["UV_CACHE_DIR"])
    assert f"({address})" in fresh.refused("build", "--no-cache", **env)


# gpukit, Python, and PyTorch's index


@pytest.mark.slow
def test_a_changed_wheel_reinstalls_only_gpukit(fresh: Native) -> None:
    fresh.launch("build")
    (old,) = (fresh.root / "vendor").iterdir()
    version = writer.version(writer.read(old))
    members = {
        name.replace(version, "9.0.0"): content.replace(version.encode(), b"9.0.0")
        for name, content in {**writer.read(old), "gpukit/newer.py": b""}.items()
    }
    old.unlink()
    writer.write(members, fresh.root / "vendor")
    (fruit,) = fresh.path.glob("lib/*/site-packages/fruit-*.dist-info")
    before = fruit.stat().st_mtime_ns
    look = "import gpukit.newer, os; print(os.environ['PYTHONPATH'], os.environ['GPUKIT_PROJECT'])"
    offline = {"UV_INDEX": "pytorch=http://127.0.0.1:9", "UV_DEFAULT_INDEX": "http://127.0.0.1:9"}
    done = fresh.launch("run", "--", "python", "-c", look, **offline)
    assert done.stdout.split() == [str(fresh.root / "src"), str(fresh.root)], done.stderr
    assert fruit.stat().st_mtime_ns == before
    assert not fresh.launch("run", "--", "gpukit", "--help", **offline).stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "pythons", "found"),
    [
        (PYTHON, [PYTHON], True),
        ("3.99", ["3.98", PYTHON, "3.99"], True),  # not the image's, but there are wheels for it
        ("3.99", ["3.98"], False),  # uv then downloads the image's
    ],
)
def test_an_installed_python_behind_failing_shims(fresh: Native, python: str, pythons: list[str], found: bool) -> None:
    fresh.facts(python=python, pythons=pythons)
    shims = fresh.home.parent / "shims"
    shims.mkdir()
    for name in ("python", "python3", *(f"python3.{minor}" for minor in range(9, 16)), "python3.99"):
        (shims / name).write_text(f'#!/bin/sh\necho "pyenv: {name}: command not found" >&2\nexit 127\n')
        (shims / name).chmod(0o755)
    (shims / "python3.98").write_text("not a program of this machine")
    (shims / "python3.98").chmod(0o755)
    env = {**fresh.env, "PATH": os.pathsep.join([str(shims), fresh.env["PATH"]])}
    chosen = Environment(Project(fresh.root, env, cpu=True)).python()
    assert Path(chosen).samefile(sys.base_prefix + f"/bin/python{PYTHON}") if found else chosen == python
    if found:
        fresh.facts(python=python, pythons=pythons)
        done = fresh.launch("run", "--", "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        assert done.stdout.strip() == PYTHON, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("status", "cpu"), [(None, True), (403, True), (None, False), (403, False)])
def test_without_pytorchs_index(tmp_path: Path, indexes: Path, status: int | None, cpu: bool) -> None:
    """Another server's build is installed only if it is the same one, or if any does; and this is recorded."""
    found = Native(tmp_path, indexes, cpu=cpu)
    del found.env["UV_INDEX"]
    with serving() as web:
        web.status = status or 0
        address = web.url if status else "http://127.0.0.1:9"
        urls = {"index": f"{address}/whl/cu130", "cpu_index": f"{address}/whl/cpu"}
        found.facts(**urls, cuda="13.0")  # the package index's is built for CUDA 13.2
        done = found.launch("build")
        assert (done.returncode == 0) == cpu, done.stderr
        if not cpu:
            assert not (found.path / "stamp.json").exists()
            found.facts(**urls, cuda="13.2")
            done = found.launch("build", "--no-cache")
    assert sum("does not respond" in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert found.torch() == "2.13.0" and (found.path / "torch-index.txt").read_text() == "package index\n"


@pytest.mark.slow
def test_what_uv_kept_of_pytorchs_index_comes_first(fresh: Native, indexes: Path) -> None:
    del fresh.env["UV_INDEX"]
    with files_of(indexes) as address:
        fresh.facts(cpu_index=f"{address}/cpu")
        assert fresh.launch("build").returncode == 0
    done = fresh.launch("build", "--no-cache")
    assert done.returncode == 0 and fresh.torch() == "2.13.0+cpu", done.stderr
    assert not (fresh.path / "torch-index.txt").exists()


@pytest.mark.slow
def test_cloned_elsewhere_without_the_network(fresh: Native, indexes: Path) -> None:
    with files_of(indexes) as address:
        env = {"UV_INDEX": f"pytorch={address}/cpu", "UV_DEFAULT_INDEX": f"{address}/ordinary", "UV_HTTP_RETRIES": "0"}
        assert fresh.launch("build", **env).returncode == 0
    fresh.root = fresh.root.rename(fresh.root.parent / "elsewhere")
    look = "import gpukit.project.location as place; print(place.root())"
    done = fresh.launch("run", "--", "python", "-c", look, **env)
    assert done.stdout.strip() == str(fresh.root), done.stderr


# The guard


EACH = [
    "uv run --with older python -c 'import torch'",
    "uv run --with newer python -c 'import torch'",
    "uv sync",
    "uv sync --inexact",
    "uv sync --active",
    "uv add older",
    "uv lock",
    "uv pip install older",
    "uv pip install --upgrade newer",
    "uv pip install --reinstall torch==2.12.0",
    "uv pip sync /dev/null --allow-empty-requirements",
    "uv pip uninstall torch",
    "pip install older",
    "python -m pip install --upgrade torch==2.15.0",
    "pip uninstall --yes torch",
]


def files_of_torch(made: Native) -> list[Path]:
    files = [*made.path.glob("bin/torchrun"), *made.path.glob("lib/*/site-packages/torch*/**/*")]
    return sorted(path for path in files if "__pycache__" not in path.parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "elsewhere"),
    [("activated", False), ("activated", True), ("VIRTUAL_ENV", True), ("constraints taken away", False)],
)
@pytest.mark.parametrize("command", EACH)
def test_no_way_in_puts_another_torch_there(made: Native, command: str, way: str, elsewhere: bool, tmp_path) -> None:
    """Refused, by name where something was to be done; and torch is as it was, to the last file."""
    own = str(made.path)
    env = dict(made.env)
    if way == "activated":
        line = f". {own}/bin/activate && {command}"
    else:
        line = re.sub(r"^(python|pip)", rf"{own}/bin/\1", command)
        env["VIRTUAL_ENV"] = own
    if way == "constraints taken away":
        env.update(UV_NO_CONFIG="1", UV_CONSTRAINT="", PIP_CONFIG_FILE="/dev/null", PIP_CONSTRAINT="")
    before = files_of_torch(made)
    cwd = tmp_path if elsewhere else made.root
    done = subprocess.run(["bash", "-c", line], cwd=cwd, env=env, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode != 0, said
    unmanaged = re.match(r"uv (sync|add|lock)", command)
    named = r"unmanaged|No `pyproject.toml` found" if unmanaged else r"\btorch\b"
    assert re.search(named, said), said
    assert made.torch() == "2.13.0+cpu"
    assert files_of_torch(made) == before
    if "pip sync" in command:  # it takes away the others first, and the next command puts them back
        assert made.launch("run", "--", "python", "-c", "import fruit, jupyterlab").returncode == 0
    assert not (made.root / ".venv").exists() and not (made.root / "uv.lock").exists()


@pytest.mark.slow
def test_a_pythonpath_with_another_torch(fresh: Native, indexes: Path) -> None:
    """As a shell has one that was set up for ROS, or for a cluster's modules: set-up and runs go without it."""
    other = fresh.root.parent / "other"
    with zipfile.ZipFile(indexes / "ordinary/torch/torch-2.15.0-py3-none-any.whl") as archive:
        archive.extractall(other)
    env = {"PYTHONPATH": str(other)}
    look = ["python", "-c", "import torch; print(torch.__version__)"]
    assert fresh.launch("build", **env).returncode == 0
    assert fresh.launch("run", "--", *look, **env).stdout == "2.13.0+cpu\n"
    line = f". {fresh.path}/bin/activate && {shlex.join(look)}"
    done = subprocess.run(["bash", "-c", line], env={**fresh.env, **env}, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    words = "torch is 2.15.0 here and was 2.13.0+cpu in the base, because of PYTHONPATH: unset it.\n"
    assert done.stderr == words


@pytest.mark.slow
def test_what_fits_is_let_in(fresh: Native) -> None:
    """By uv and by pip; the guard holds what is protected, and nothing else."""
    fresh.launch("build")
    for command in ("uv pip install nut", "uv pip uninstall nut", "pip install nut", "pip install fruit==0.9"):
        line = f". {fresh.path}/bin/activate && {command}"
        done = subprocess.run(["bash", "-c", line], cwd=fresh.root, env=fresh.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    done = fresh.launch("run", "--", "python", "-c", "import fruit, nut; print(fruit.__version__)")
    assert done.stdout == "0.9\n", done.stderr


def test_deactivate_takes_the_constraint_away(made: Native) -> None:
    line = f'. {made.path}/bin/activate && echo "$UV_CONSTRAINT" && deactivate && echo "[$UV_CONSTRAINT]"'
    done = subprocess.run(["bash", "-c", line], env=made.env, capture_output=True, text=True)
    assert done.stdout.split() == [str(made.path / "protected.txt"), "[]"]


@pytest.mark.slow
def test_what_went_round_the_guard_is_named(fresh: Native) -> None:
    """Who takes away the folder in RECORD's place lets every installer do as it likes: the next start says so."""
    fresh.launch("build")
    (info,) = fresh.path.glob("lib/*/site-packages/torch-*.dist-info")
    info.rename(info.with_name("torch-2.12.0.dist-info"))
    metadata = info.with_name("torch-2.12.0.dist-info") / "METADATA"
    text = metadata.read_text()
    metadata.unlink()  # uv's cache has the same file
    metadata.write_text(text.replace("2.13.0+cpu", "2.12.0"))
    said = fresh.refused("run", "--", "true")
    assert "torch is 2.12.0 here and was 2.13.0+cpu" in said and "--no-cache" in said
    assert fresh.launch("build", "--no-cache").returncode == 0
    assert fresh.torch() == "2.13.0+cpu" and fresh.launch("run", "--", "true").returncode == 0


def test_names_to_import_are_known_without_record(made: Native) -> None:
    """What libraries ask when they look whether torch is there."""
    look = "from importlib.metadata import packages_distributions as known; print(known()['torch'])"
    assert made.launch("run", "--", "python", "-c", look).stdout == "['torch']\n"


# add


@pytest.mark.slow
def test_add(fresh: Native) -> None:
    assert "\nnut\n" in fresh.launch("--dry-run", "add", "nut").stdout.partition("--requirement=-")[2]
    done = fresh.launch("add", "nut")
    assert done.returncode == 0, done.stderr
    edited = (fresh.root / "pyproject.toml").read_text()
    assert edited == PYPROJECT.replace('"fruit"', '"fruit", "nut"')
    assert not fresh.launch("run", "--", "python", "-c", "import nut").stderr  # nothing is left to be set up
    for package, words in {
        "older": "it needs torch<2.13, and the environment has torch 2.13.0+cpu",
        "torch==2.12.0": "is part of the environment",
        "no-such-package": "there is no package no-such-package",
    }.items():
        assert words in fresh.refused("add", package)
        assert (fresh.root / "pyproject.toml").read_text() == edited
    said = fresh.refused("add", "other", UV_DEFAULT_INDEX="http://127.0.0.1:9", UV_CACHE_DIR=str(fresh.home / "empty"))
    assert "other cannot be added: http://127.0.0.1:9 does not respond; check" in said and "cause" not in said
    assert (fresh.root / "pyproject.toml").read_text() == edited
    assert fresh.torch() == "2.13.0+cpu"


CUOBJDUMP = """\
#!/bin/sh
echo "ELF file    1: library.1.sm_$(cat {capability}).cubin"
"""


@pytest.fixture
def extension_index(fresh: Native, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    """One with a wheel that has code for a GPU, for this machine; `tmp_path/capability` says for which one."""
    name = "mamba_ssm"
    version = "2.0+cu.13.0.torch.2.13"
    tags = f"cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-linux_{platform.machine()}"
    wheel(tmp_path, name, version, library=True)
    body = (tmp_path / f"{name}-{version}-py3-none-any.whl").read_bytes()
    tool = tmp_path / "cuobjdump"
    tool.write_text(CUOBJDUMP.format(capability=tmp_path / "capability"))
    tool.chmod(0o755)
    targets = {"rtx-50": {**DATA["targets"]["rtx-50"], "arch": arch()}}
    facts = {"targets": targets, "torch": "2.13.0+cu130", "cuda": "13.0", "python": PYTHON}
    stack = {**DATA, **json.loads((fresh.root / "stack.json").read_text()), **facts}
    stack["native"]["size_gb"] = 1
    (fresh.root / "stack.json").write_text(json.dumps(stack))
    for each, value in {**fresh.env, "TRITON_CUOBJDUMP_PATH": str(tool)}.items():
        monkeypatch.setenv(each, value)
    monkeypatch.setenv("GPUKIT_PROJECT", str(fresh.root))
    monkeypatch.chdir(fresh.root)
    with serving() as web:
        file = f"{name}-{version}-{tags}.whl"
        digest = hashlib.sha256(body).hexdigest()
        listed = {"filename": file, "url": f"/{file}", "hashes": {"sha256": digest}, "size": len(body)}
        web.answers["/mamba-ssm/"] = ("application/vnd.pypi.simple.v1+json", json.dumps({"files": [listed]}).encode())
        web.answers[f"/{file}"] = ("application/zip", body)
        monkeypatch.setitem(data("extensions")["indexes"]["astral"], "page", f"{web.url}/{{package}}/")
        yield web


@pytest.mark.slow
def test_add_pins_a_wheel_with_cuda_code(
    fresh: Native, extension_index: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyproject = fresh.root / "pyproject.toml"
    capability = tmp_path / "capability"
    (path,) = (path for path in extension_index.answers if path.endswith(".whl"))
    digest = hashlib.sha256(extension_index.answers[path][1]).hexdigest()

    def add(*options: str, package: str = "mamba-ssm") -> str:
        capsys.readouterr()
        assert (cli.main(["--native", "--cpu", "add", *options, package]) == 0) is ("mamba" in pyproject.read_text())
        return capsys.readouterr().err

    elsewhere = f"mamba-ssm @ https://nowhere.invalid{path.replace('torch.2.13', 'torch.2.9')}"
    assert "has torch 2.13" in add(package=elsewhere), "what the name says counts although nobody answers"

    said = add()  # without a terminal
    assert f"#sha256={digest} ; sys_platform == 'linux'" in said and "`./launch add --yes mamba-ssm`" in said
    capability.write_text("90")
    said = add("--yes")
    assert "no code for capability 12.0" in said and "for torch 2.13, CUDA 13.0" in said
    capability.write_text("120")
    assert "has code for capability 12.0" in add("--yes")
    (line,) = re.findall(r'"(mamba-ssm.*?)"', pyproject.read_text())
    assert line.startswith(f"mamba-ssm @ {extension_index.url}{path}#sha256={digest} ; ")
    assert not fresh.launch("run", "--", "python", "-c", "import mamba_ssm").stderr
    assert "already in pyproject.toml" in add("--yes")

    wheel(tmp_path / "changed", "mamba_ssm", "2.0+cu.13.0.torch.2.13", "fruit", library=True)
    (other,) = (file.read_bytes() for file in (tmp_path / "changed").iterdir())
    extension_index.answers[path] = ("application/zip", other)
    done = fresh.launch("build", GPUKIT_NATIVE=str(tmp_path / "another"), UV_CACHE_DIR=str(tmp_path / "another cache"))
    assert done.returncode and digest in done.stderr and hashlib.sha256(other).hexdigest() in done.stderr


@pytest.mark.slow
def test_a_file_that_is_edited_meanwhile_is_left_as_it_is(
    fresh: Native, extension_index: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "capability").write_text("120")
    edited = PYPROJECT.replace('"fruit"', '"fruit>=0.9"')
    monkeypatch.setattr(Environment, "check", lambda _: (fresh.root / "pyproject.toml").write_text(edited))
    assert cli.main(["--native", "--cpu", "add", "--yes", "mamba-ssm"]) == 1
    assert (fresh.root / "pyproject.toml").read_text() == edited


@pytest.mark.slow
def test_a_package_is_never_built_on_another_torch(fresh: Native) -> None:
    """Although the newest torch is another one, and uv has kept a build on that one."""
    assert fresh.launch("build").returncode == 0
    look = "import extension; print(extension.torch)"
    other = fresh.home / "other"
    env = {name: value for name, value in fresh.env.items() if name != "UV_INDEX"}
    subprocess.run(["uv", "venv", "-q", str(other)], env=env, check=True)
    subprocess.run(["uv", "pip", "install", "-q", f"--python={other}", "extension"], env=env, check=True)
    built = subprocess.run([other / "bin/python", "-c", look], capture_output=True, text=True).stdout
    assert built == "2.15.0\n", "in another project"
    done = fresh.launch("add", "extension")
    assert done.returncode == 0, done.stderr
    again = ["uv", "pip", "install", "--reinstall", "--no-deps", "--refresh", "extension"]
    for command in (["true"], again):
        done = fresh.launch("run", "--", *command)
        assert done.returncode == 0, done.stderr
        assert fresh.launch("run", "--", "python", "-c", look).stdout.startswith("2.13.0")
    fresh.launch("run", "--", "pip", "install", "--force-reinstall", "extension")  # pip before 25.3 refuses it
    assert fresh.launch("run", "--", "python", "-c", look).stdout.startswith("2.13.0")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/proc/nowhere", "/etc/hostname"])
def test_a_place_for_environments_that_cannot_be_written(fresh: Native, place: str) -> None:
    fresh.env["GPUKIT_NATIVE"] = place
    assert "GPUKIT_NATIVE names another place" in fresh.refused("run", "--", "true")


@pytest.mark.slow
def test_plan_needs_no_gpu_here(fresh: Native) -> None:
    """It is about other machines, so that a missing driver is no reason to refuse it."""
    fresh.cpu = False
    done = fresh.launch("--dry-run", "plan", "--for", "h200", "--batch-size", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(" gpukit plan --for h200 --batch-size 8\n")


# In the background


@pytest.mark.slow
def test_detached_runs(made: Native) -> None:
    script = "import signal, sys, time; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(3)));"
    done = made.launch(
        "run", "-d", "--name", "long", "--", "python", "-c", f"{script} print('up', flush=True); time.sleep(60)"
    )
    assert done.returncode == 0, done.stderr
    log = made.root / ".launch/native/long.log"
    until(lambda: "up" in log.read_text())
    assert "running already" in made.refused("run", "-d", "--name", "long", "--", "true")
    pid = json.loads((made.root / ".launch/native/long.json").read_text())["pid"]
    assert made.launch("--dry-run", "stop").stdout == f"kill -TERM -- -{pid}\n"
    assert made.launch("logs", "long").stdout == "up\n"
    assert made.launch("stop").returncode == 0
    assert made.launch("logs", "long").stdout.splitlines() == ["up", "saved", "launch: it ended with status 3."]
    assert "Nothing of this project" in made.launch("stop").stderr
    assert "no logs of short" in made.refused("logs", "short")


def test_notebook(made: Native) -> None:
    try:
        first = made.launch("notebook")
        place = r"/lab/tree/notebooks/quickstart\.ipynb"
        found = re.fullmatch(rf"http://127\.0\.0\.1:(\d+){place}\?token=(\S{{30,}})\n", first.stdout)
        assert found, first.stderr
        token = made.root / ".launch/jupyter-token"
        assert token.read_text() == found[2] and token.stat().st_mode & 0o777 == 0o600
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/api", timeout=60) as answer:
            assert answer.status == 200
        entry = json.loads((made.root / ".launch/native/notebook.json").read_text())
        arguments = Path(f"/proc/{entry['pid']}/cmdline")
        assert "jupyter" in arguments.read_text() and found[2] not in arguments.read_text()
        assert made.launch("notebook").stdout == first.stdout
    finally:
        made.launch("stop")
    # The port is no evidence: by now, it can be another notebook's.
    assert not arguments.exists() or arguments.read_text() == ""
