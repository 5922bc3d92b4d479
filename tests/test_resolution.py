"""The packages that `./launch --native` installs on each machine of the catalogue, resolved from wheels.

PyTorch's CUDA builds are only on PyTorch's own index. If it cannot be reached, its test is skipped, even in CI, because
the network is the only possible reason. All other packages, and torch from PyPI, come from the default index, as in
test_packages.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from catalogue import support

from .test_packages import PLATFORM, index

pytestmark = pytest.mark.network
HARDWARE = support.load("hardware")["hardware"]
RELEASES = support.load("images")["releases"]
EVERYTHING = {"use_case": "llm", "workflow": "notebook", "tracking": ["tensorboard", "wandb", "mlflow"]}
# only these come from PyTorch's index, as when the environment is created
FROM_PYTORCH = """
[[tool.uv.index]]
name = "pytorch"
url = "{url}"
explicit = true

[tool.uv.sources]
torch = {{ index = "pytorch" }}
torchvision = {{ index = "pytorch" }}
"""
__all__ = ["index"]  # the fixture


def compiled(folder: Path, project: Path, arch: str, requirement: str, more: str = "") -> str:
    """The pins of a project's pyproject.toml on a platform; if it cannot be resolved, fails with uv's message."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text((project / "pyproject.toml").read_text(encoding="utf-8") + more)
    (folder / "constraints.txt").write_text(requirement + "\n")
    python = json.loads((project / "stack.json").read_text(encoding="utf-8"))["native"]["python"]
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--python-platform", PLATFORM[arch], "--python-version", python, "--constraint", "constraints.txt"]
    others = ("UV_INDEX", "UV_CONSTRAINT", "UV_OVERRIDE")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    environment["UV_PYTHON_DOWNLOADS"] = "never"
    done = subprocess.run(
        [*command, "--extra", "dev", "pyproject.toml"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(project: Path) -> dict:
    return json.loads((project / "stack.json").read_text(encoding="utf-8"))["native"]


@pytest.mark.parametrize("base", ["wheel", "ngc", "cuda"])
@pytest.mark.parametrize("hardware", HARDWARE)
def test_native_wheels_support_the_machine(generate: Callable[..., Path], hardware: str, base: str) -> None:
    """Kernels, CUDA, and driver of the native packages suit the machine, for each base that it can have."""
    if not support.current(base, [hardware]):
        return  # not offered by the questions
    native = facts(generate(hardware=hardware, base=base))
    same = [item for item in RELEASES["wheel"].values() if item["torch"] == native["torch"]]
    assert len(same) == 1 and same[0]["index"] == native["index"]
    assert not support.supports(HARDWARE[hardware], same[0])
    assert native["cuda"] or hardware == "cpu"
    if base == "cuda":
        own = json.loads((generate(hardware=hardware, base=base) / "stack.json").read_text(encoding="utf-8"))
        assert own["torch"] == native["torch"]


@pytest.fixture(scope="session")
def resolved(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], str]:
    """The pins from the default index, resolved once for all machines with the same requirements."""
    known: dict[str, str] = {}

    def resolve(project: Path, arch: str) -> str:
        torch = facts(project)["torch"].partition("+")[0]
        key = f"{arch} {torch} {(project / 'pyproject.toml').read_text(encoding='utf-8')}"
        if key not in known:
            known[key] = compiled(tmp_path_factory.mktemp("pins"), project, arch, f"torch=={torch}")
        return known[key]

    return resolve


@pytest.mark.parametrize("hardware", HARDWARE)
def test_every_package_has_a_wheel(generate: Callable[..., Path], hardware: str, resolved: Callable) -> None:
    """With all options. Packages without a wheel are listed in the catalogue and not required."""
    project = generate(hardware=hardware, **EVERYTHING)
    arch = HARDWARE[hardware]["arch"]
    pins = resolved(project, arch)
    missing = {each["package"] for each in support.load("packages")["missing"] if each["arch"] == arch}
    assert not missing & set(re.findall(r"(?m)^([\w.-]+)==", pins))


@pytest.fixture(scope="session")
def answering(index: Path) -> Callable[[str], str]:
    """The address of PyTorch's index; skips the test if it does not respond."""

    def look(url: str) -> str:
        try:
            with urllib.request.urlopen(f"{url}/torch/", timeout=20) as answer:
                answer.read(1)
        except urllib.error.HTTPError:
            raise  # it responds without such a page, so the network works
        except OSError as error:
            pytest.skip(f"PyTorch's index does not answer here: {error}")
        return url

    return look


@pytest.mark.parametrize("hardware", HARDWARE)
def test_pytorchs_index_has_the_torch_of_stack_json(
    generate: Callable[..., Path], hardware: str, answering: Callable[[str], str], tmp_path: Path
) -> None:
    """PyTorch's own index has exactly this build; for a GPU, it is a CUDA build, also on arm64."""
    project = generate(hardware=hardware, **EVERYTHING)
    native = facts(project)
    more = FROM_PYTORCH.format(url=answering(native["index"]))
    pins = compiled(tmp_path, project, HARDWARE[hardware]["arch"], native["requirement"], more)
    found = re.search(r"(?m)^torch==(\S+)$", pins)
    assert found and support.number(found[1]) == support.number(native["torch"])
    assert found[1].partition("+")[2] == native["torch"].partition("+")[2]
    assert ("cu" in found[1].partition("+")[2]) == bool(HARDWARE[hardware]["capability"])
