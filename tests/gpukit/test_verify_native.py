"""Environments that cannot train, with the real torch: each fault is named by verify, and its remedy repairs it."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launch.test_native_training import Trained, environment, wheels

__all__ = ["wheels"]  # a fixture
pytestmark = pytest.mark.network
CHECKS = ("gpukit", "protected", "packages", "conflicts")  # those that import nothing, which takes seconds


class Broken(Trained):
    @functools.cached_property
    def path(self) -> Path:
        return Path(self.launch("build").strip())

    def install(self, *arguments: str) -> None:
        python = f"--python={self.path / 'bin/python'}"
        subprocess.run(["uv", "pip", "install", "--quiet", python, *arguments], env=self.env, check=True)

    def verify(self, path: Path, *options: str) -> dict[str, dict]:
        """As in an activated environment: `./launch --native verify` would repair some faults before."""
        env = {
            **{name: value for name, value in self.env.items() if name != "UV_INDEX"},
            "GPUKIT_PROJECT": str(self.root),
            "GPUKIT_DEVICE": "cpu",
            "PATH": os.pathsep.join([str(path / "bin"), self.env["PATH"]]),
        }
        command = [path / "bin/python", "-m", "gpukit", "verify", "--json", *options]
        done = subprocess.run(command, env=env, cwd=self.root, capture_output=True, text=True, timeout=300)
        assert done.stdout, done.stderr
        return {each["id"]: each for each in json.loads(done.stdout)["findings"]}


@pytest.fixture(scope="module")
def healthy(generate: Callable[..., Path], wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Broken:
    root = shutil.copytree(
        generate(hardware="cpu", workflow="scripts", project_name="Broken"), tmp_path_factory.mktemp("it") / "project"
    )
    found = Broken(root, environment(root, wheels, tmp_path_factory.mktemp("native")))
    found.launch("build")
    return found


def replace(path: Path, text: str) -> None:
    """By another file, because this one may also be in uv's cache, as a hard link."""
    path.unlink()
    path.write_text(text, encoding="utf-8")


def violated(it: Broken, site: Path) -> None:
    it.install("tyro<1")


def conflicting(it: Broken, site: Path) -> None:
    it.install("--no-deps", "typeguard<3")


def removed(it: Broken, site: Path) -> None:
    it.install("--no-deps", "typeguard")
    subprocess.run(["uv", "pip", "uninstall", "-q", f"--python={it.path / 'bin/python'}", "typeguard"], check=True)


def truncated(it: Broken, site: Path) -> None:
    replace(site / "tyro/_cli.py", "def cli(")


def displaced(it: Broken, site: Path) -> None:
    """As an installer that ignores the list of files leaves it."""
    (info,) = site.glob("torch-*.dist-info")
    text = (info / "METADATA").read_text(encoding="utf-8")
    replace(info / "METADATA", text.replace("Version: 2.13.0", "Version: 2.12.0", 1))


def newer_wheel(it: Broken, site: Path) -> None:
    (wheel,) = (it.root / "vendor").glob("*.whl")
    wheel.rename(wheel.with_name(wheel.name.replace("gpukit-0", "gpukit-99", 1)))


FAULTS = {
    "a violated range": (violated, "packages", "requirement-out-of-range", "tyro"),
    "a conflict": (conflicting, "conflicts", "packages-conflict", "typeguard"),
    "a package that is gone": (removed, "conflicts", "packages-conflict", "typeguard"),
    "a broken import": (truncated, "imports", "package-import-broken", "tyro"),
    "torch displaced": (displaced, "protected", "protected-changed", "torch is 2.12.0"),
    "an environment older than the wheel": (newer_wheel, "gpukit", "image-older-than-wheel", "0.2"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_its_remedy_repairs_it(healthy: Broken, name: str) -> None:
    break_it, check, cause, words = FAULTS[name]
    path = healthy.path
    only = f"--only={','.join({*CHECKS, check})}"
    wheel = next((healthy.root / "vendor").glob("*.whl"))
    (site,) = path.glob("lib/python*/site-packages")
    break_it(healthy, site)
    try:
        found = healthy.verify(path, only)
        assert [each["id"] for each in found.values() if each["status"] in ("WARN", "FAIL")] == [check]
        assert found[check]["cause_id"] == cause
        assert words in found[check]["seen"] + found[check]["cause"]
        command = re.search(r"`\./launch --native (build[^`]*)`", found[check]["remedy"])[1]
    finally:
        for other in (healthy.root / "vendor").glob("*.whl"):
            other.rename(wheel)
    healthy.launch(*command.split())
    repaired = healthy.verify(path, only)
    assert [each for each in repaired.values() if each["status"] != "PASS"] == []


def test_in_a_healthy_environment_nothing_is_reported(healthy: Broken) -> None:
    found = healthy.verify(healthy.path)
    assert [each for each in found.values() if each["status"] in ("WARN", "FAIL")] == []
    assert found["imports"]["status"] == found["conflicts"]["status"] == "PASS"
    assert found["gemm"]["status"] == "SKIP" and found["gemm"]["cause"]
