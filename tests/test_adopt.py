"""`gpukit adopt`: repositories of many shapes get the container and its tools, and none of their files changes."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpukit.adopt import choose, look, main
from gpukit.cli import main as cli
from gpukit.cli.main import parse
from gpukit.host import queue
from gpukit.host.cards import data
from gpukit.image import layers
from gpukit.plan import packages
from gpukit.plan.resolve import Answer
from gpukit.project import dependencies, versions
from gpukit.project.dependencies import Line
from gpukit.project.location import EXTRA, place
from gpukit.project.messages import RefusalError
from gpukit.validate.main import Validation
from tests import test_update as releases
from tests.conftest import git
from tests.gpukit.web import Web
from tests.test_launch_update import inside, launch, tree  # noqa: F401
from tests.test_update import NEW, OLD, change, commit

template = releases.template
REAL = {"answer": packages.answer, "indexes": packages.indexes}
FILES = 13
OURS = ("launch", ".gpukit", ".devcontainer/gpukit", ".devcontainer/gpukit-cpu")
SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
# Repositories by shape: their files, and the requirements that the image must then have.
SHAPES: dict[str, tuple[dict[str, str], set[str]]] = {
    "plain scripts": (
        {
            "train.py": "import os\nimport numpy as np\nimport torch, _C\nfrom model import GPT\n",
            "model.py": "import yaml\n",
        },
        {"numpy", "pyyaml", "torch"},
    ),
    "uv": (
        {
            "pyproject.toml": '[project]\nname = "chat"\nversion = "0.1"\ndependencies = ["torch>=2.9", "regex"]\n'
            '[dependency-groups]\ndev = ["pytest", {include-group = "lint"}]\nlint = ["ruff"]\ndocs = ["zensical"]\n'
            '[tool.uv.sources]\nregex = {git = "https://example.org/regex", tag = "v1"}\n',
            "uv.lock": "version = 1\n",
        },
        {"torch>=2.9", "regex @ git+https://example.org/regex@v1", "pytest", "ruff"},
    ),
    "poetry": (
        {
            "pyproject.toml": '[tool.poetry]\nname = "poem"\nversion = "1.2.0"\n[tool.poetry.dependencies]\n'
            'python = "^3.10"\ntorch = "^2.4"\neinops = "~0.8"\nsix = {version = "*", optional = true}\n'
            '[tool.poetry.group.dev.dependencies]\npytest = "^8.0"\n'
            '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n'
        },
        {"torch>=2.4,<3", "einops>=0.8,<0.9", "pytest>=8.0,<9", "poem"},
    ),
    "src layout": (
        {
            "pyproject.toml": f'{SETUPTOOLS}[project]\nname = "deep-thing"\nversion = "3.1"\ndependencies = ["torch"]\n'
            '[project.scripts]\nthink = "deep_thing.cli:main"\n',
            "src/deep_thing/__init__.py": "",
            "src/deep_thing/cli.py": "def main():\n    print('thought')\n",
        },
        {"torch", "deep_thing"},
    ),
    "flat package": (
        {
            "setup.py": 'from setuptools import setup\nNEEDS = ["numpy"]\n'
            'setup(name="flat", version="0.3", install_requires=NEEDS, entry_points={"gui_scripts": ["f=flat:f"]})\n',
            "flat/__init__.py": "def main():\n    pass\n",
        },
        {"numpy", "flat"},
    ),
    "conda": (
        {
            "environment.yml": "name: e\ndependencies:\n  - python=3.10\n  - pytorch=2.9 # the build\n"
            "  - conda-forge::einops\n  - cudatoolkit=11.8\n  - pip:\n    - tiktoken>=0.5\n"
        },
        {"torch==2.9.*", "einops", "tiktoken>=0.5"},
    ),
    "requirements only": (
        {
            "requirements.txt": "-r requirements/base.txt\n--extra-index-url https://example.org\ntqdm # progress\n",
            "requirements/base.txt": "torch==2.9.1+cu126\neinops==0.8.1 \\\n    --hash=sha256:00\n"
            "torchvision @ https://download.pytorch.org/whl/cu126/torchvision-0.24.1%2Bcu126-cp312-cp312-linux_x86_64.whl\n",
        },
        {"tqdm", "torch==2.9.1", "torchvision==0.24.1", "einops==0.8.1"},
    ),
    "own devcontainer": (
        {
            ".devcontainer/devcontainer.json": '{"image": "ubuntu"}\n',
            ".vscode/launch.json": "{}\n",
            "requirements.txt": "torch\n",
        },
        {"torch"},
    ),
    "own Dockerfile and compose": (
        {
            "Dockerfile": "FROM ubuntu\n",
            "compose.yaml": "services:\n  jobs:\n    image: other\n",
            ".dockerignore": "*.txt\n",
            ".gitignore": ".env\n*.whl\nlaunch\n",
            "README.md": "| image | `other` |\n",
            "requirements.txt": "torch\n",
        },
        {"torch"},
    ),
    "a project in a folder": (
        {"one/pyproject.toml": '[project]\nname = "one"\ndependencies = ["torch"]\n', "two/setup.py": "\n"},
        {"torch"},
    ),
}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal and no variables of a project; the index has every package, and they fit together."""
    monkeypatch.setattr(main, "terminal", lambda: False)
    monkeypatch.delenv("GPUKIT_PROJECT", raising=False)
    monkeypatch.setattr(main, "known_names", lambda root, found: found.extra)
    monkeypatch.setattr(packages, "answer", lambda *arguments: (Answer(), 0.0))
    monkeypatch.setattr(packages, "indexes", lambda folder: ())


pytestmark = pytest.mark.usefixtures("inside")


def repository(folder: Path, files: dict[str, str]) -> Path:
    for name, text in {"LICENSE": "mine\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git("init", "-q", cwd=folder)
    git("add", "-A", "-f", cwd=folder)
    git("commit", "-qm", "theirs", cwd=folder)
    return folder


@pytest.fixture
def adopt(plain_template: Path) -> Callable[..., int]:
    def call(root: Path, *arguments: str, template: Path = plain_template) -> int:
        given = ["adopt", f"--template={template}", "--hardware=rtx-40", "--yes", *arguments]
        return main.adopt(root, parse(given))

    return call


def new(before: dict[str, Any], root: Path) -> list[str]:
    """The new files; all others must be as before."""
    after = tree(root)
    assert {name: after.get(name) for name in before} == before
    return sorted(name for name in after if name not in before and (root / name).is_file())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_repository_gets_all_of_it_and_none_of_its_files_changes(
    shape: str, tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    files, expected = SHAPES[shape]
    top = repository(tmp_path / "theirs", files)
    root = top / "one" if shape == "a project in a folder" else top
    before = tree(top)
    assert adopt(root) == 0
    mine = new(before, top)
    assert len(mine) == FILES
    assert all((top / name).relative_to(root).as_posix().startswith(OURS) for name in mine)
    assert (root / "launch").stat().st_mode & 0o111
    said = capsys.readouterr().out
    assert ("git add -f" in said) == (shape == "own Dockerfile and compose")  # whose .gitignore excludes launch
    assert [str(problem) for problem in Validation(root, wheel=True).problems()] == []
    assert image_requirements(root, tmp_path) == expected
    again = refusal(adopt, root)
    assert again == "adopted-already"
    assert main.adopt(root, parse(["adopt", "--undo"])) == 0
    assert tree(top) == before


def image_requirements(root: Path, place: Path) -> set[str]:
    """What a build installs, from nothing but the files that its COPY lines take; a package by its name."""
    source = place / "source"
    target = place / "layers"
    text = (root / ".gpukit/Dockerfile").read_text(encoding="utf-8")
    ignored = (root / ".gpukit/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for words in re.findall(r"^COPY (.*) (/source/\S*)$", text, re.MULTILINE):
        for pattern in words[0].split():
            assert f"!{pattern}" in ignored or pattern == ".gpukit/*.whl"
            for path in root.glob(pattern):
                to = source / words[1][len("/source/") :] / path.name
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
    layers.main(source, place / "state", target)
    lines = (target / "dependencies/all.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        if "file://" in line:
            assert (target / "dependencies" / line.rpartition("/")[2]).is_file()
    return {line.partition(" @ file")[0] for line in lines}


def test_an_adopted_package_has_its_commands_its_version_and_its_folder(
    tmp_path: Path, adopt: Callable[..., int]
) -> None:
    root = repository(tmp_path / "theirs", SHAPES["src layout"][0])
    adopt(root)
    wheel = layers.editable.write(root, tmp_path / "wheel", str(root))
    assert wheel
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    assert (site / "deep_thing-3.1.dist-info/entry_points.txt").read_text() == (
        "[console_scripts]\nthink = deep_thing.cli:main\n"
    )
    program = (
        f"import site; site.addsitedir({str(site)!r}); from importlib import metadata; "
        "print(metadata.version('deep-thing')); metadata.entry_points(name='think')['think'].load()()"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["3.1", "thought"], done.stderr


PROJECT = '[project]\nname = "p"\n[build-system]\nrequires = []\n'
POETRY = '[tool.poetry]\nname = "p"\npackages = [{include = "p", from = "python"}]\n'


@pytest.mark.parametrize(
    ("file", "text", "folder"),
    [
        ("pyproject.toml", f'{PROJECT}[tool.setuptools.packages.find]\nwhere = ["lib", "python"]\n', "python"),
        ("pyproject.toml", f'{PROJECT}[tool.setuptools]\npackage-dir = {{"" = "python"}}\n', "python"),
        ("pyproject.toml", f'{PROJECT}[tool.hatch.build.targets.wheel]\npackages = ["a/b/p"]\n', "a/b"),
        ("pyproject.toml", f'{PROJECT}[tool.pdm.build]\npackage-dir = "python"\n', "python"),
        ("pyproject.toml", f'{PROJECT}[tool.uv.build-backend]\nmodule-root = ""\n', "."),
        ("pyproject.toml", POETRY, "python"),
        ("pyproject.toml", PROJECT, "."),
        ("pyproject.toml", PROJECT, "src"),
        ("setup.py", "from setuptools import setup\nsetup(name='p', package_dir={'': 'python'})\n", "python"),
        ("setup.cfg", "[metadata]\nname = p\n[options]\npackage_dir =\n    = python\n", "python"),
        ("setup.cfg", "[metadata]\nname = p\n[options.packages.find]\nwhere = python\n", "python"),
    ],
)
def test_a_package_is_found_in_the_folder_that_its_build_names(
    file: str, text: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a job finds that of its checkout."""
    root = tmp_path / "theirs"
    checkout = tmp_path / "checkout"
    for each in (root, checkout):
        (each / folder / "p").mkdir(parents=True)
        (each / folder / "p/__init__.py").touch()
    (root / file).write_text(text)
    (root / ".gpukit").mkdir()
    (root / ".gpukit/stack.json").write_text(json.dumps({"dependencies": [file]}))
    wheel = layers.editable.write(root, tmp_path / "wheel", str(root))
    assert wheel
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import p; print(p.__file__)"
    for project in ("", str(checkout)):
        monkeypatch.setenv("GPUKIT_PROJECT", project)
        done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd=tmp_path)
        place = Path(project or root, folder, "p/__init__.py")
        assert done.stdout.strip() == str(place), done.stderr


# Refusals


def refusal(adopt: Callable[..., int], root: Path, *arguments: str) -> str:
    before = tree(root)
    with pytest.raises(RefusalError) as error:
        adopt(root, *arguments)
    assert tree(root) == before
    return error.value.id


def uncommitted(root: Path) -> None:
    (root / "LICENSE").write_text("changed")


def ignored(root: Path) -> None:
    (root / ".gpukit").mkdir()
    (root / ".gpukit/Dockerfile").write_text("FROM mine\n")


def without_git(root: Path) -> None:
    shutil.rmtree(root / ".git")


def nothing(root: Path) -> None:
    """The files alone are refused."""


@pytest.mark.parametrize(
    ("files", "then", "id"),
    [
        ({"requirements.txt": "torch\n", "launch": "#!/bin/sh\n"}, nothing, "adopt-taken"),
        ({"requirements.txt": "torch\n"}, lambda root: (root / "launch").mkdir(), "adopt-taken"),
        ({"requirements.txt": "torch\n", ".devcontainer/gpukit/devcontainer.json": "{}"}, nothing, "adopt-taken"),
        ({"requirements.txt": "torch\n", ".gitignore": ".gpukit\n"}, ignored, "adopt-taken"),
        ({"requirements.txt": "torch\n"}, uncommitted, "adopt-dirty"),
        ({"requirements.txt": "torch\n"}, without_git, "adopt-no-git"),
        ({"stack.json": "{}", ".copier-answers.yml": "_commit: 1\n"}, nothing, "adopt-generated"),
        ({"stack.json": "{}", ".copier-answers.yml": "_commit: 1\n"}, without_git, "adopt-generated"),
        ({"a/pyproject.toml": "[project]\nname='a'\n", "b/setup.py": ""}, nothing, "adopt-workspace"),
        (
            {
                "pyproject.toml": "[project]\nname='top'\n[tool.uv.workspace]\nmembers=['packages/*']\n",
                "packages/a/pyproject.toml": "",
                "packages/b/pyproject.toml": "",
            },
            nothing,
            "adopt-workspace",
        ),
        ({"a/requirements.txt": "torch\n", "b/requirements.txt": "torch\n"}, nothing, "adopt-workspace"),
        ({"requirements-docker.txt": "torch\n", "requirements-gpu.txt": "torch\n"}, nothing, "adopt-which"),
        ({"a.yml": "channels:\ndependencies:\n", "b.yml": "channels:\ndependencies:\n"}, nothing, "adopt-which"),
        (
            {"requirements-dev.txt": "ruff\n", "a/pyproject.toml": "[project]\nname='a'\n", "b/setup.py": ""},
            nothing,
            "adopt-workspace",
        ),
    ],
)
def test_what_cannot_be_adopted(
    files: dict[str, str], then: Callable[[Path], None], id: str, tmp_path: Path, adopt: Callable[..., int]
) -> None:
    root = repository(tmp_path / "theirs", files)
    then(root)
    assert refusal(adopt, root) == id


def test_a_folder_that_is_no_project_of_its_own(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch\n", "code/train.py": "import torch\n"})
    assert refusal(adopt, root / "code") == "adopt-not-root"


def test_what_setup_py_computes_is_named_and_not_guessed(tmp_path: Path) -> None:
    script = (
        "from setuptools import setup\nNEEDS = ['torch']\nNEEDS += ['einops']\nEXTRAS = {}\nEXTRAS['dev'] = ['ruff']\n"
    )
    files = {"setup.py": f"{script}setup(name='p', install_requires=NEEDS, extras_require=EXTRAS)\n"}
    found = look.look(repository(tmp_path / "theirs", files), [])
    assert found.computed == "setup.py" and not found.lines
    assert any("extras" in each and "--extra" in each for each in found.left_out)


def test_links_out_of_the_repository_are_named(tmp_path: Path) -> None:
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch\n", "inside/a": ""})
    (tmp_path / "disk").mkdir()
    (root / "data").symlink_to(tmp_path / "disk")
    (root / "more").symlink_to("../disk")
    (root / "near").symlink_to("inside")
    (root / "itself").symlink_to("itself")
    named = look.look(root, []).left_out
    disk = tmp_path.resolve() / "disk"
    mounts = [f"type=bind,source={disk},target={place}" for place in (tmp_path / "disk", "/disk")]
    assert [re.search(r"`(type=.*?)`", each)[1] for each in named] == mounts  # type: ignore[index]


def test_the_imports_of_notebooks_count(tmp_path: Path) -> None:
    cells = [("code", "%matplotlib inline\nimport torch\n"), ("code", "!pip install x\nfrom sklearn import svm")]
    cells += [("code", "from google.colab import drive"), ("code", "not python"), ("markdown", "import no")]
    text = json.dumps({"cells": [{"cell_type": kind, "source": [source]} for kind, source in cells]})
    files = {"lecture.ipynb": text, "old.ipynb": "{}", "broken.ipynb": "{", "plain.py": "import no_longer\n<<<<\n"}
    found = look.look(repository(tmp_path / "theirs", files), [])
    assert found.extra == ["ipykernel", "scikit-learn", "torch"]
    assert [each.partition(":")[0] for each in found.left_out] == ["google"], "which package it is of is not guessed"


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("setup.py", "from setuptools import setup\nsetup(name='p', python_requires='~=3.6')\n", "~=3.6"),
        ("setup.cfg", "[metadata]\nname = p\n[options]\npython_requires = >=3.8\n", ">=3.8"),
        ("environment.yml", "dependencies:\n  - python>=3.8, < 3.10\n  - numpy\n", ">=3.8,<3.10"),
        ("pixi.toml", '[dependencies]\npython = "3.11.*"\n', "==3.11.*"),
    ],
)
def test_the_versions_of_python_that_a_repository_is_for(file: str, text: str, expected: str, tmp_path: Path) -> None:
    found = look.look(repository(tmp_path / "theirs", {file: text}), [])
    assert found.python == expected
    assert not any(line.startswith("python") for line in found.extra)


def test_imports_that_a_script_need_not_have_and_those_of_other_projects(tmp_path: Path) -> None:
    script = "import torch, common\ntry:\n    import wandb\nexcept ImportError:\n    import flash_attn\n"
    script += "if TYPE_CHECKING:\n    import einops\ntry:\n    import tqdm\nfinally:\n    pass\n"
    top = repository(tmp_path / "theirs", {"one/train.py": script, "lib/src/common/__init__.py": "", "torch/x.txt": ""})
    found = look.look(top / "one", [])
    assert found.extra == ["torch", "tqdm"] and found.left_out == [
        "common: the container does not have lib/src/common of this repository"
    ]
    (top / "one/requirements.txt").write_text("torch\n-e ../lib\n")
    (left_out,) = look.look(top / "one", []).left_out
    assert left_out.startswith("../lib (requirements.txt): ") and "container" in left_out


def test_what_an_import_needs_beside_its_package_counts_and_what_only_some_have_does_not(tmp_path: Path) -> None:
    script = "from torch.utils.tensorboard import SummaryWriter\n"
    script += "if is_flax_available() or _JAX_AVAILABLE:\n    import jax\n"
    root = repository(tmp_path / "theirs", {"train.py": script, "more.py": "from torch.utils import tensorboard\n"})
    assert look.look(root, []).extra == ["tensorboard", "torch"]
    assert look.unnamed(root, ["torch"]) and not look.unnamed(root, ["torch", "tensorboard"])


def test_what_has_its_name_from_conda_is_named_and_not_installed(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", {"requirements.txt": "python==3.6\npytorch==1.3.1\neinops\n"})
    assert any("pytorch" in each and "--extra torch" in each for each in look.look(root, []).left_out)
    adopt(root)
    assert image_requirements(root, tmp_path) == {"einops"}


def test_imports_are_never_installed_unasked(
    tmp_path: Path, plain_template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "theirs", SHAPES["plain scripts"][0])
    before = tree(root)
    command = ["adopt", f"--template={plain_template}", "--hardware=rtx-40"]
    with pytest.raises(RefusalError) as error:
        main.adopt(root, parse(command))
    assert error.value.id == "adopt-no-dependencies"
    assert tree(root) == before
    assert main.adopt(root, parse([*command, "--extra=torch", "--extra=numpy<3"])) == 0
    assert "pyyaml" in capsys.readouterr().out, "what is left out is named"
    assert image_requirements(root, tmp_path) == {"torch", "numpy<3"}


# PyTorch


def project(*lines: str, groups: str = "") -> dict[str, str]:
    return {"pyproject.toml": f"[project]\nname = 'p'\ndependencies = {json.dumps(lines)}\n{groups}"}


@pytest.mark.parametrize(
    ("files", "arguments", "where"),
    [
        ({"requirements.txt": "torch==1.13.1\n"}, [], "requirements.txt"),
        ({"requirements.txt": "-r more.txt\n", "more.txt": "torch<2.0\n"}, [], "more.txt"),
        (project("torch>=2.7", "torch<2.4"), [], "pyproject.toml"),
        (project("torch~=1.12"), [], "pyproject.toml"),
        ({"requirements.txt": "torchaudio==2.0.2\n"}, [], "requirements.txt"),
        ({"requirements.txt": "torchaudio>=2.0,<2.1.2\n"}, [], "requirements.txt"),
        ({"requirements.txt": "torchvision~=0.14.0\n"}, [], "requirements.txt"),
        ({"requirements.txt": "torchvision<=0.20\n"}, [], "requirements.txt"),
        (project("torch>=2.7", groups="[dependency-groups]\ndev = ['torch==2.2.0']\n"), [], "pyproject.toml"),
        (
            project("numpy", groups="[project.optional-dependencies]\ngpu = ['torch==1.9']\n"),
            ["--with=gpu"],
            "pyproject",
        ),
        ({"environment.yml": "dependencies:\n  - pytorch=1.7.0\n"}, [], "environment.yml"),
        (
            {"pyproject.toml": "[tool.poetry]\nname='p'\n[tool.poetry.dependencies]\ntorch = '^1.13'\n"},
            [],
            "pyproject.toml",
        ),
    ],
)
def test_a_range_of_torch_that_no_release_has_is_named_before_a_build(
    files: dict[str, str],
    arguments: list[str],
    where: str,
    tmp_path: Path,
    adopt: Callable[..., int],
) -> None:
    root = repository(tmp_path / "theirs", files)
    before = tree(root)
    with pytest.raises(RefusalError) as error:
        adopt(root, *arguments)
    assert error.value.id == "torch-range-unavailable"
    assert where in str(error.value)
    assert tree(root) == before


def helped(adopt: Callable[..., int], root: Path) -> str:
    """What a refusal says, whose command adopts."""
    with pytest.raises(RefusalError) as error:
        adopt(root)
    said = re.search(r"`gpukit adopt (.*?)`", str(error.value))
    assert said
    assert adopt(root, *shlex.split(said[1])) == 0
    return str(error.value)


def test_what_the_refusal_of_a_range_says_helps(
    tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch==2.0.1\ntorchaudio==2.0.2\n"})
    nearest = re.search(r"nearest is (\S+)\. ", helped(adopt, root))
    assert "excludes torch" not in capsys.readouterr().err
    assert nearest and json.loads((root / ".gpukit/stack.json").read_text())["torch"].startswith(nearest[1])
    assert all(versions.allows(line, nearest[1]) for line in image_requirements(root, tmp_path))


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    """The index that is asked, with torch and numpy."""
    from tests.gpukit.web import serving

    for name, function in REAL.items():
        monkeypatch.setattr(packages, name, function)
    with serving() as found:
        found.package("torch", "2.14.1-py3-none-any", "2.0.1-py3-none-any")
        found.package("numpy", "2.0-py3-none-any")
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{found.url}/simple")
        monkeypatch.setenv("UV_INDEX", f"pytorch={found.url}/simple")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield found


def test_a_package_that_pins_another_torch_is_named_before_a_build(
    web: Web, tmp_path: Path, adopt: Callable[..., int]
) -> None:
    web.package("one", "1.0-py3-none-any", v1_0=["torch==2.0.1"])
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch\none\n"})
    assert refusal(adopt, root) == "adopt-packages-contradict"


@pytest.mark.parametrize(("requires", "chosen"), [("2.9.1", "2.9.1"), ("2.0.1", "2.9.1"), ("2.10.*", "2.10.0")])
def test_what_the_refusal_of_a_package_that_pins_another_torch_says_helps(
    requires: str, chosen: str, web: Web, tmp_path: Path, adopt: Callable[..., int]
) -> None:
    web.package("torch", *(f"{version}-py3-none-any" for version in ("2.14.1", "2.10.0", "2.9.1")))
    files = [f"{version}-py3-none-any" for version in ("1.0", "2.0", "3.0")]
    web.package("one", *files, v1_0=["torch==2.9.0"], v2_0=[f"torch=={requires}"], v3_0=["torch"])
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch\none<3\n"})
    helped(adopt, root)
    assert json.loads((root / ".gpukit/stack.json").read_text())["torch"].startswith(chosen)


def test_an_address_that_does_not_answer_leaves_the_other_packages_checked(
    web: Web, tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    web.package("one", "1.0-py3-none-any", "2.0-py3-none-any", v1_0=["torch==2.0.1"], v2_0=["torch"])
    far = "far @ http://127.0.0.1:9/far-1.0-py3-none-any.whl"
    root = repository(tmp_path / "theirs", {"requirements.txt": f"torch\none==1.0\n{far}\n"})
    assert refusal(adopt, root) == "adopt-packages-contradict"
    assert adopt(root, "--extra=one>=2") == 0
    assert re.search(r"note .*\bfar\b", capsys.readouterr().out)


def test_an_index_without_this_torch_is_not_a_contradiction(
    web: Web, tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    web.package("torch", "2.14.1-cp311-cp311-manylinux_2_28_x86_64", "2.13.0+cpu-py3-none-any")
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch>=2.14\nnumpy\n"})
    assert adopt(root) == 0
    assert "127.0.0.1 has no torch 2.14.1" in capsys.readouterr().err


def test_scripts_are_read_once(
    web: Web,
    tmp_path: Path,
    adopt: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "known_names", lambda root, found: found.extra)
    root = repository(tmp_path / "theirs", {"train.py": "import torch, numpy\n"})
    parsed = []
    nodes = look.nodes
    monkeypatch.setattr(look, "nodes", lambda text: parsed.append(text) or nodes(text))
    assert adopt(root) == 0
    assert len(parsed) == 1


def test_what_scripts_import_and_nothing_installs_and_what_has_no_wheel_is_named(
    web: Web, tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    web.package("one", "1.0-py3-none-any", v1_0=["numpy", "old"])
    web.package("old", "1.0")
    files = {"requirements.txt": "torch\none\n", "train.py": "import numpy, torch, torchvision\n"}
    root = repository(tmp_path / "theirs", files)
    assert adopt(root) == 0
    out = capsys.readouterr().out
    assert re.findall(r"--extra (\S+)`", out) == ["torchvision"]
    assert "old 1.0" in out
    assert main.adopt(root, parse(["adopt", "--undo"])) == 0
    assert adopt(root, "--answers=base=ngc") == 0
    assert "--extra" not in capsys.readouterr().out, "the base has it"


@pytest.mark.parametrize(
    ("requirement", "version", "allowed"),
    [
        ("torch>=2.4,<2.9", "2.8.1+cu128", True),
        ("torch<2.9", "2.9.0a0+x.nv25.09", False),
        ("torch>=2.13", "2.13.0a0+9186a08.nv26.07", False),
        ("torch==2.9.*", "2.9.1+cu128", True),
        ("torch==2.9.1+cu126", "2.9.1+cu128", False),
        ("torch~=2.4", "2.14.1", True),
        ("torch~=2.4.0", "2.5.0", False),
        ("torch!=2.9.1,>2", "2.9.1", False),
        ("torch", "2.14.1", True),
        ("torch (==2.9.*)", "2.9.1", True),
        ("torch~=nightly", "2.14.1", True),
    ],
)
def test_ranges_of_versions(requirement: str, version: str, allowed: bool) -> None:
    assert versions.allows(requirement, version) == allowed


def test_the_range_of_torch_chooses_the_release() -> None:
    assert choose.choose(["rtx-40"], [Line("torchvision==0.24.1", "f")], {})["release"].startswith("2.9.")
    assert choose.choose(["rtx-40"], [Line("torchaudio==2.11.0", "f")], {}) == {}
    for text in ("torch", "torch==2.9.1", "torch<2.9", "torch==2.9.1 ; sys_platform == 'linux'"):
        found = choose.choose(["rtx-40"], [Line(text, "f")], {})
        assert bool(found) == (text != "torch")
        releases = data("stacks")["releases"]
        assert not found or versions.allows(text, releases[found["base"]][found["release"]]["torch"])
    elsewhere = [Line("torch<1 ; sys_platform == 'darwin'", "f"), Line("torch<1; python_version < '3.9'", "f")]
    assert choose.choose(["rtx-40"], elsewhere, {}) == {}


# Interruption, undo, update


WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree", "subprocess.Popen")


def signalled(number: int, at: int, root: Path, *argv: str) -> int:
    """The exit status of a command of gpukit that gets a signal before its write `at`, in a process of its own."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    writes = itertools.count()

    def send(event: str, arguments: tuple[Any, ...]) -> None:
        writing = event in WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if writing and next(writes) == at:
            os.kill(os.getpid(), number)

    code: Any = 1
    try:
        os.chdir(root)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a worker of the tests may ignore
        sys.addaudithook(send)
        code = cli.main([*argv])
    except SystemExit as end:
        code = end.code
    finally:
        os._exit(code if isinstance(code, int) else 1)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["adopt", "undo"])
def test_interrupted_at_any_write_it_leaves_their_files_alone_and_works_again(
    command: str,
    tmp_path: Path,
    adopt: Callable[..., int],
    plain_template: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Ctrl-C, SIGTERM, and SIGKILL; only the last leaves something half done."""
    root = repository(tmp_path / "theirs", SHAPES["own devcontainer"][0])
    before = tree(root)
    shutil.copytree(root, tmp_path / "adopt", symlinks=True)
    rendered = main.render
    made: list[Path] = []

    def once(*arguments: Any) -> Path:
        made[:] = made or [shutil.copytree(rendered(*arguments), tmp_path / "rendered", symlinks=True)]
        return made[0]

    monkeypatch.setattr(main, "render", once)
    adopt(root)
    adopted = tree(root)
    shutil.copytree(root, tmp_path / "undo", symlinks=True)
    undo = ["adopt", "--undo"]
    argv = undo if command == "undo" else ["adopt", f"--template={plain_template}", "--hardware=rtx-40", "--yes"]
    for turn in itertools.count():
        root = shutil.copytree(tmp_path / command, tmp_path / f"{turn}", symlinks=True)
        if command == "undo" and turn % 2:
            commit(root, "adopted")
        number = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[turn % 3]
        code = signalled(number, 4 * turn, root, *argv)
        now = tree(root)
        assert {name: now.get(name) for name in before} == before
        assert number == signal.SIGKILL or now in (before, adopted)
        if code == 0:
            break
        assert code in (130, 143, -signal.SIGKILL)
        signalled(0, -1, root, *undo)
        assert tree(root) == before
    assert turn > 10
    signalled(0, -1, root, *undo)
    git("add", "-A", cwd=root)
    git("commit", "-q", "--allow-empty", "-m", "undone", cwd=root)
    assert adopt(root) == 0


def test_undo_keeps_what_was_edited(
    tmp_path: Path, adopt: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "theirs", SHAPES["uv"][0])
    before = tree(root)
    adopt(root)
    commit(root, "adopted")
    (root / EXTRA).write_text("einops\n")
    (root / ".gpukit/jobs").mkdir()
    (root / ".gpukit/jobs/1.log").write_text("step 1")
    (root / ".gpukit/huggingface").symlink_to(tmp_path)
    (tmp_path / "mine").write_text("outside")
    (root / ".gpukit/outputs").mkdir()
    worker = queue.WorkerLock(root / ".gpukit/jobs")
    worker.take()
    with pytest.raises(RefusalError):
        main.adopt(root, parse(["adopt", "--undo"]))
    worker.release()
    assert git("status", "--porcelain", cwd=root).split() == ["M", EXTRA]
    assert main.adopt(root, parse(["adopt", "--undo"])) == 0
    assert EXTRA in capsys.readouterr().out
    assert new(before, root) == [EXTRA]
    assert (tmp_path / "mine").read_text() == "outside"


def test_adopted_again_it_uses_the_files_that_undo_kept(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", SHAPES["uv"][0])
    before = tree(root)
    adopt(root)
    mine = {EXTRA: "einops\ntorch>=2.8\n", ".gpukit/apt.txt": "g++\n", ".gpukit/.env": "WANDB_API_KEY=secret\n"}
    for name, text in mine.items():
        (root / name).write_text(text)
    for _ in range(2):  # kept again, also if adopting did not write them
        assert main.adopt(root, parse(["adopt", "--undo"])) == 0
        assert set(new(before, root)) == {*mine, ".gpukit/.gitignore"}
        assert ".gpukit/.env" not in git("status", "--porcelain", "-uall", cwd=root)
        assert adopt(root) == 0
        assert {name: (root / name).read_text() for name in mine} == mine
    assert {"einops", "torch>=2.8", "pytest"} <= image_requirements(root, tmp_path)
    main.adopt(root, parse(["adopt", "--undo"]))
    assert adopt(root, "--extra=einops<1", "--extra=tqdm") == 0
    assert set((root / EXTRA).read_text().split()) == {"einops<1", "torch>=2.8", "tqdm"}


def test_tokens_stay_out_of_git_on_a_branch_that_has_not_adopted(tmp_path: Path, adopt: Callable[..., int]) -> None:
    top = repository(tmp_path / "theirs", {"one/requirements.txt": "torch\n"})
    root = top / "one"
    exclude = top / ".git/info/exclude"
    exclude.write_text("mine")
    git("switch", "-qc", "adopted", cwd=top)
    adopt(root)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GPUKIT_ENTRANCE": "launch"}
    for _ in range(2):
        subprocess.run(["sh", ".gpukit/initialize.sh"], cwd=root, env=variables, check=True)
    commit(top, "adopted")
    (root / ".gpukit/.env").write_text("WANDB_API_KEY=secret\n")
    (root / EXTRA).write_text("einops\n")
    assert git("status", "--porcelain", cwd=top).split() == ["M", f"one/{EXTRA}"]
    git("stash", "-q", cwd=top)
    git("switch", "-q", "-", cwd=top)
    assert (root / ".gpukit/.env").is_file()
    assert git("status", "--porcelain", "-uall", cwd=top) == ""
    git("switch", "-q", "-", cwd=top)
    main.adopt(root, parse(["adopt", "--undo"]))
    assert exclude.read_text() == "mine"


def test_after_a_reset_to_the_commit_before_it_is_adopted_again(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", SHAPES["uv"][0])
    before = tree(root)
    adopt(root)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "GPUKIT_ENTRANCE": "launch"}
    subprocess.run(["sh", ".gpukit/initialize.sh"], cwd=root, env=variables, check=True)
    commit(root, "adopted")
    (root / ".gpukit/jobs").mkdir(exist_ok=True)
    (root / ".gpukit/jobs/1.log").write_text("step 1")
    git("reset", "-q", "--hard", "HEAD~1", cwd=root)
    assert adopt(root) == 0
    assert (root / ".gpukit/jobs/1.log").is_file()
    assert main.adopt(root, parse(["adopt", "--undo"])) == 0
    assert tree(root) == before


def test_undo_refuses_edits_that_git_does_not_have(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", SHAPES["uv"][0])
    adopt(root)
    (root / ".gpukit/Dockerfile").write_text("FROM mine\n")
    before = tree(root)
    with pytest.raises(RefusalError) as error:
        main.adopt(root, parse(["adopt", "--undo"]))
    assert error.value.id == "edited-since-adopt"
    assert tree(root) == before


@pytest.mark.slow
@pytest.mark.parametrize("edited", [False, True])
def test_an_update_changes_only_what_adopting_wrote(
    edited: bool, tmp_path: Path, template: Path, adopt: Callable[..., int]
) -> None:
    root = repository(tmp_path / "theirs", SHAPES["own Dockerfile and compose"][0])
    before = tree(root)
    adopt(root, f"--to={OLD}", template=template)
    mine = {EXTRA: "einops\n", ".gpukit/apt.txt": "g++\nffmpeg\n"}
    for name, text in mine.items() if edited else ():
        (root / name).write_text(text)
    git("add", "-A", "-f", cwd=root)
    git("commit", "-qm", "adopted", cwd=root)
    for name in ("adopt/.gpukit/Dockerfile.dockerignore.jinja", "template/apt.txt"):
        with (template / name).open("a") as file:
            file.write("# new\n")
    change(template / "template/Dockerfile.jinja", "WORKDIR /workspace", "WORKDIR /workspace\nLABEL new=1")
    change(template / "fragments/container.jinja", "'ms-python.debugpy']", "'ms-python.debugpy', 'new.one']")
    (template / "template/README.md.jinja").write_text("new\n")
    releases.release(template)
    assert launch(root) == 0
    changed = git("diff", "HEAD", "--name-only", cwd=root).split()
    assert changed
    assert all(name.startswith(OURS) for name in changed)
    assert {name: tree(root)[name] for name in before} == before
    assert git("ls-files", "-u", cwd=root) == ""
    assert "LABEL new=1" in (root / ".gpukit/Dockerfile").read_text()
    if edited:
        assert {name: (root / name).read_text() for name in mine} == mine
    assert f"_commit: {NEW}" in (root / place(root, ".copier-answers.yml")).read_text()


# What both layouts share


def test_launch_is_the_same_file_in_both_layouts_and_a_new_project_knows_nothing_of_it(
    tmp_path: Path, adopt: Callable[..., int], generate: Callable[..., Path]
) -> None:
    root = repository(tmp_path / "theirs", SHAPES["uv"][0])
    adopt(root)
    other = generate(hardware="rtx-40")
    for name in ("launch", "apt.txt"):
        assert (root / place(root, name)).read_bytes() == (other / name).read_bytes()
    texts = [path.read_text(errors="replace") for path in other.rglob("*") if path.is_file() and path.name != "launch"]
    assert not any(".gpukit" in text or "existing" in text.split("project:")[-1][:12] for text in texts)


def test_add_writes_a_line_to_extra_txt() -> None:
    text = "# theirs\neinops>=0.7 # why\nnumpy"
    assert dependencies.Lines(text).set("einops>=0.8") == "# theirs\neinops>=0.8\nnumpy"
    assert dependencies.Lines(text).set("tqdm").endswith("numpy\ntqdm\n")
    assert dependencies.Lines(text).only(["numpy @ https://a/b.whl"]) == (
        "# theirs\neinops>=0.7 # why\nnumpy @ https://a/b.whl\n"
    )


def test_what_is_given_stands_above_what_conda_names(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", {"environment.yml": "dependencies:\n  - numpy\n  - einops\n"})
    assert adopt(root, "--extra", "numpy>=2") == 0
    given, _, theirs = (root / ".gpukit/extra.txt").read_text().partition("# From environment.yml.\n")
    assert given.endswith("\nnumpy>=2\n\n") and theirs == "einops\n"


def test_only_our_own_folder_is_not_watched(tmp_path: Path, adopt: Callable[..., int]) -> None:
    root = repository(tmp_path / "theirs", {"requirements.txt": "torch\n"})
    assert adopt(root) == 0
    settings = json.loads((root / ".devcontainer/gpukit/devcontainer.json").read_text())["customizations"]["vscode"]
    assert [*settings["settings"]["files.watcherExclude"]] == [".gpukit/**"]


def test_condas_ranges(tmp_path: Path) -> None:
    lines = ["numpy=1.26.4=py310_0", "scipy=1.26.*", "a>=1, <2", "b=1.2", "c==3"]
    lines += ["d 1.8*", "e[version='>1']", "f>=2|3", "ffmpeg"]
    (tmp_path / "conda.yml").write_text("dependencies:\n" + "".join(f"- {line}\n" for line in lines))
    found, left_out = look.conda_lines(tmp_path, "conda.yml")
    assert found == ["numpy==1.26.4", "scipy==1.26.*", "a>=1,<2", "b==1.2.*", "c==3"]
    assert [each.partition(":")[0] for each in left_out] == lines[5:]


def test_conda_beside_more_requirements(tmp_path: Path) -> None:
    pips = ["-r more.in", "-e .", "-e git+https://example.org/a.git@main#egg=a", "tqdm"]
    pips.append("git+https://example.org/b.git#subdirectory=part&egg=b")
    text = "dependencies:\n  - einops\n  - pip:\n" + "".join(f"    - {line}\n" for line in pips)
    files = {"environment.yml": text, "more.in": "regex\n-c limits.txt\n", "dev.in": "ruff\n"}
    found = look.look(repository(tmp_path / "theirs", files), ["dev.in"])
    addresses = ["a @ git+https://example.org/a.git@main", "b @ git+https://example.org/b.git#subdirectory=part"]
    assert found.extra == ["regex", addresses[0], "tqdm", addresses[1], "einops"]
    assert [line.text for line in found.lines] == ["ruff"]
    assert any("-c limits.txt" in each for each in found.left_out)


SETUP = "from setuptools import setup\nEXTRAS = {'dev': ['ruff'], 'all': 'ruff\\nregex'}\n"
CONDA = "name: e\nchannels: [pytorch]\ndependencies:\n  - einops\n"
PIXI = """[workspace]
channels = ["conda-forge"]
[dependencies]
python = "3.12.*"
pytorch = ">=2.8.0,<3"
numpy = "2.1.*"
regex = "*"
curl = ">=8"
[pypi-dependencies]
tqdm = { version = ">=4", extras = ["notebook"] }
mine = { path = ".", editable = true }
[target.win-64.dependencies]
einops = "*"
"""


@pytest.mark.parametrize(
    ("files", "more", "expected"),
    [
        ({"setup.py": f"{SETUP}setup(name='p', install_requires='torch\\nnumpy')\n"}, [], {"torch", "numpy"}),
        (
            {
                "setup.cfg": "[metadata]\nname = p\n[options]\ninstall_requires = file: requirements.txt\n",
                "requirements.txt": "torch\nnumpy\n",
            },
            [],
            {"torch", "numpy"},
        ),
        (
            {"setup.py": f"{SETUP}setup(name='p', install_requires=['torch'], extras_require=EXTRAS)\n"},
            ["all"],
            {"torch", "ruff", "regex"},
        ),
        (
            {"setup.cfg": "[metadata]\nname = p\n[options.extras_require]\ndev =\n    ruff\n", "a.py": "import x\n"},
            ["dev"],
            {"ruff"},
        ),
        (
            {
                "pyproject.toml": "[project]\nname = 'p'\ndynamic = ['dependencies']\n"
                "[tool.hatch.metadata.hooks.requirements_txt]\nfiles = ['needs.txt']\n",
                "needs.txt": "einops\n",
            },
            [],
            {"einops"},
        ),
        (
            {
                "pyproject.toml": "[project]\nname = 'p'\ndependencies = ['torch', 'deep_ep', 'pinned']\n"
                "[tool.uv]\ndev-dependencies = ['ruff']\noverride-dependencies = ['protobuf<6']\n"
                "[tool.uv.sources]\npinned = [{url = 'https://a/b.whl', group = 'a'}]\n"
                "deep_ep = [{index = 'a', marker = 'python_version > \"3\"'}]\n"
                "[tool.pdm.dev-dependencies]\ntest = ['pytest']\n",
            },
            [],
            {"torch", "deep_ep", "ruff", "pytest"},
        ),
        (
            {"pyproject.toml": "[project]\nname = 'p'\ndependencies = []\n[tool.rye]\ndev-dependencies = ['ruff']\n"},
            [],
            {"ruff"},
        ),
        ({"requirements.txt": "torch\n", "requirements-gpu.txt": "regex\n"}, [], {"torch"}),
        (
            {"requirements.txt": "torch\n", "requirements-gpu.txt": "regex\n"},
            ["requirements-gpu.txt"],
            {"torch", "regex"},
        ),
        ({"cpu.yml": CONDA, "gpu.yaml": CONDA, "ci.yml": "name: x\n"}, ["gpu.yaml"], {"einops"}),
        ({"parts/gpu.yaml": CONDA, "requirements.txt": "torch\n"}, ["parts/gpu.yaml"], {"torch", "einops"}),
        ({"gpu.yaml": CONDA, "requirements-dev.txt": "ruff\n"}, [], {"einops"}),
        ({"pixi.toml": PIXI}, [], {"torch>=2.8.0,<3", "numpy==2.1.*", "regex", "tqdm[notebook]>=4"}),
        ({"pixi.toml": PIXI, "requirements.txt": "einops\n"}, [], {"einops"}),
        (
            {"requirements-dev.txt": "ruff\n", "setup.py": "import setuptools\n", "train.py": "import torch\n"},
            [],
            {"torch"},
        ),
    ],
)
def test_where_dependencies_can_stand(
    files: dict[str, str], more: list[str], expected: set[str], tmp_path: Path
) -> None:
    found = look.look(repository(tmp_path / "theirs", files), more)
    assert {line.text for line in found.lines} | {*found.extra} == expected
    for unused in {"pinned", "protobuf<6"} & {*re.findall(r"pinned|protobuf<6", str(files))}:
        assert any(unused in each for each in found.left_out), "what is not installed is named"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, []),
        ("data\n# .gpukit\n*.pt\n", []),
        (".*\n", [".gpukit"]),
        ("**/.*\n", [".gpukit"]),
        ("/.gpukit/**\n", [".gpukit"]),
        ("*\n", [".gpukit", "parts/all.txt"]),
        ("*\n!.gpukit\n!parts\n", []),
        ("parts\n", ["parts/all.txt"]),
        ("!.gpukit\n.gpukit/\n", [".gpukit"]),
    ],
)
def test_what_the_repositorys_own_dockerignore_keeps_from_vs_code(
    text: str | None, kept: list[str], tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / ".dockerignore").write_text(text, encoding="utf-8")
    assert look.kept_from_builds(tmp_path, [".gpukit", "parts/all.txt", ".gpukit"]) == kept
