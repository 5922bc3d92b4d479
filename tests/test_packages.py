"""Each use case with all trackers and the notebook's packages, resolved from the real index for each base and CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest

from catalogue import support

pytestmark = pytest.mark.network

PACKAGES = support.load("packages")
BASES = support.load("images")["bases"]
RELEASES = support.load("images")["releases"]
PLATFORM = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
# Packages in NVIDIA's images, which are not resolved; an empty wheel of the right version stands in for torch
IN_THE_IMAGE = [name for name in BASES["ngc"]["brings"] if name not in ("torch", "numpy", "jupyterlab", "tensorboard")]
EXTRAS = [*PACKAGES["workflows"]["notebook"], *PACKAGES["tools"], *chain.from_iterable(PACKAGES["tracking"].values())]
EXTRAS += [*PACKAGES["services"]["jobs"]["packages"], *PACKAGES["services"]["predict"]["export"]]


class Case(NamedTuple):
    base: str
    release: str
    arch: str
    use_case: str  # "all": every use case that supports the release's torch


def resolve(
    folder: Path, requirements: list[str], arch: str, python: str = "3.12", options: tuple[str, ...] = ()
) -> str:
    """Resolve for another platform from wheels only; return the pins, or raise CalledProcessError with uv's message."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in.txt").write_text("\n".join(requirements))
    command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--python-platform", PLATFORM[arch], "--python-version", python, *options, "in.txt"]
    environment = {name: value for name, value in os.environ.items() if name not in ("UV_CONSTRAINT", "UV_OVERRIDE")}
    environment["UV_PYTHON_DOWNLOADS"] = "never"  # only metadata is needed, so any Python works
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


def empty_wheel(folder: Path, name: str, version: str) -> None:
    """An empty wheel with a name and a version."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def requirements_of(case: Case) -> list[str]:
    """The requirements of such a project, without torch."""
    use_cases = allowed(case.base, case.release) if case.use_case == "all" else [case.use_case]
    names = [
        package["name"]
        for package in chain.from_iterable(PACKAGES["use_cases"][use_case]["packages"] for use_case in use_cases)
        if case.arch in package.get("on", PLATFORM) and case.base in package.get("bases", BASES)
    ]
    return [*names, *EXTRAS]


def resolve_case(case: Case, folder: Path) -> str:
    """The pins of a case."""
    release = RELEASES[case.base][case.release]
    if case.base == "ngc":
        empty_wheel(folder / "wheels", "torch", release["torch"])
        constraints = [f"torch=={release['torch']}", f"numpy{release['numpy']}"]
        (folder / "overrides.txt").write_text("\n".join(f"{name}; sys_platform == 'never'" for name in IN_THE_IMAGE))
        options = ("--find-links", "wheels", "--override", "overrides.txt")
    else:
        constraints = [f"torch=={release['torch'].split('+')[0]}", f"torchvision=={release['torchvision']}"]
        options = ()
    (folder / "constraints.txt").write_text("\n".join(constraints))
    options = ("--constraint", "constraints.txt", *options)
    return resolve(folder, ["torch", *requirements_of(case)], case.arch, release["python"], options)


def allowed(base: str, release: str) -> list[str]:
    """The use cases that support a release's torch."""
    torch = RELEASES[base][release]
    return [name for name, case in PACKAGES["use_cases"].items() if not support.outside(torch, case["torch"])]


def cases() -> list[Case]:
    """`current` with each use case, and one pin for each version of torch. The CUDA version makes no difference."""
    machines = support.load("hardware")["hardware"]
    followed = {(base, support.current(base, [machine])) for base in BASES for machine in machines}
    releases = [(base, name) for base in BASES for name in RELEASES[base]]
    found: dict[tuple, list[Case]] = {}
    for base, name in sorted(releases, key=lambda release: release not in followed):
        use_cases = allowed(base, name) if (base, name) in followed else ["all"]
        for arch in RELEASES[base][name]["kernels"]:
            kind = (support.number(RELEASES[base][name]["torch"]), base == "ngc", arch)
            found.setdefault(kind, [Case(base, name, arch, use_case) for use_case in use_cases])
    return list(chain.from_iterable(found.values()))


CASES = cases()


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for resolving; skips the test if the index does not respond."""
    folder = tmp_path_factory.mktemp("resolve")
    missing = "" if shutil.which("uv") else "uv is not installed"
    if not missing:
        try:
            resolve(folder / "try", ["tyro>=1.0"], "amd64")
        except subprocess.CalledProcessError as error:
            missing = f"the package index does not answer: {error.stderr.strip().splitlines()[-1]}"
    if missing and os.environ.get("CI"):
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    return folder


@pytest.fixture(scope="session")
def resolved(index: Path) -> dict[Case, str]:
    """The result of uv for each case, resolved in parallel."""

    def one(case: Case) -> str:
        folder = index / "-".join(case)
        folder.mkdir()
        try:
            return resolve_case(case, folder)
        except subprocess.CalledProcessError as error:
            return f"error: {error.stderr}"

    with ThreadPoolExecutor(6) as pool:
        return dict(zip(CASES, pool.map(one, CASES)))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_every_case_resolves(case: Case, resolved: dict[Case, str]):
    answer = resolved[case]
    assert not answer.startswith("error"), answer
    pins = dict(line.split("==") for line in answer.splitlines() if "==" in line)
    assert support.number(pins["torch"]) == support.number(RELEASES[case.base][case.release]["torch"])
    assert ("xformers" in pins) is False, "its wheels are of another torch"


def test_every_combination_is_covered():
    chosen = {(case.base == "ngc", case.arch, case.use_case) for case in CASES if case.use_case != "all"}
    assert len(chosen) == 2 * 2 * len(PACKAGES["use_cases"])
    torches = {support.number(release["torch"]) for releases in RELEASES.values() for release in releases.values()}
    assert torches == {support.number(RELEASES[case.base][case.release]["torch"]) for case in CASES}
    for base in BASES:
        for use_case in PACKAGES["use_cases"]:
            assert support.current(base, ["rtx-50"], use_case)
            assert support.current(base, ["dgx-spark"], use_case)


@pytest.mark.parametrize("arch", PLATFORM)
def test_the_smallest_project_needs_few_packages(arch: str, index: Path):
    """`minimal` with scripts and no tracking: at most 10 packages besides torch, numpy, and their dependencies."""
    minimal = [package["name"] for package in PACKAGES["use_cases"]["minimal"]["packages"]]
    wanted = [*minimal, *PACKAGES["workflows"]["scripts"], *PACKAGES["tools"]]
    empty_wheel(index / f"few-{arch}/wheels", "torch", "2.14.1")

    def names(requirements: list[str]) -> set[str]:
        pins = resolve(index / f"few-{arch}", requirements, arch, options=("--find-links", "wheels"))
        return {line.split("==")[0] for line in pins.splitlines()}

    brought = names(["torch==2.14.1", "numpy", "typing-extensions"])
    assert 3 <= len(names(["torch==2.14.1", *wanted]) - brought) <= 11


@pytest.mark.parametrize("entry", PACKAGES["missing"], ids=lambda entry: f"{entry['package']}-{entry['arch']}")
def test_packages_without_wheels_do_not_resolve(entry: dict, index: Path):
    """Packages that have no wheel according to the catalogue cannot be resolved."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        folder = index / f"missing-{entry['package']}"
        resolve(folder, [entry["package"]], entry["arch"], options=("--prerelease", "disallow"))
    assert entry["package"] in error.value.stderr


def test_nvidias_torch_excludes_newer_requirements(index: Path):
    """NVIDIA's pre-release satisfies torch>=2.9, but not torch>=2.10."""
    folder = index / "pre-release"
    version = RELEASES["ngc"]["25.11"]["torch"]
    empty_wheel(folder / "wheels", "torch", version)
    (folder / "constraints.txt").write_text(f"torch=={version}")
    options = ("--find-links", "wheels", "--constraint", "constraints.txt")
    assert version in resolve(folder, ["torch>=2.9"], "amd64", options=options)
    with pytest.raises(subprocess.CalledProcessError):
        resolve(folder, ["torch>=2.10"], "amd64", options=options)


@pytest.mark.parametrize("name", PACKAGES["servers"])
def test_server_images_resolve(name: str, index: Path):
    server = PACKAGES["servers"][name]
    for arch in PLATFORM:
        pins = resolve(index / f"server-{name}-{arch}", [server["requirement"]], arch)
        assert server["requirement"] in pins.splitlines()


def test_mlflow_client_and_server_have_the_same_major_version(resolved: dict[Case, str]):
    server = PACKAGES["servers"]["mlflow"]["requirement"].split("==")[1]
    for answer in resolved.values():
        client = next((line for line in answer.splitlines() if line.startswith("mlflow-skinny==")), "")
        assert not client or support.number(client.split("==")[1])[0] == support.number(server)[0]
