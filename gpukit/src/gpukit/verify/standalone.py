"""verify outside a project: whether this environment's torch works on this machine's GPU."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpukit.findings.checks import Check, command
from gpukit.findings.finding import Finding, passed, problem
from gpukit.host import facts, stacks
from gpukit.host.cards import data
from gpukit.project.stack import Stack, minor, version
from gpukit.verify import build, requirements
from gpukit.verify.container import Container
from gpukit.verify.rich_table import rich_table
from gpukit.verify.torch_process import PACKAGES

ABOUT = """\
Check the PyTorch of this environment against this machine's GPU: its build, the driver, the results of computations,
speed, and memory. Nothing is installed.

  gpukit verify                      all checks, about half a minute
  gpukit verify --quick              without those that load the GPU or start processes
  gpukit verify --only gpu,kernels   these checks and those that they need
  gpukit verify --json               the findings as JSON"""
# Checks of the container, the project, and its image.
LEFT_OUT = (
    "gpukit",
    "python",
    "venv",
    "protected",
    "base-image",
    "packages",
    "card",
    "user",
    "mounts",
    "read-only",
    "caches",
    "room",
)
LEFT_OUT += ("limits", "clock", "credentials", "jupyter", "tracking", "imports", "train")
RUN = (
    "import sys; sys.path[0] = sys.argv.pop(1); import gpukit; del sys.path[0]; "
    "from gpukit.verify.standalone import main; sys.exit(main(sys.argv[1:]))"
)
HAS_TORCH = (
    "import importlib.util, sys; sys.path.remove(''); "
    "sys.exit(sys.version_info < (3, 9) or not importlib.util.find_spec('torch'))"
)


class Environment(Container):
    """This environment. A pyproject.toml in the current folder may belong to anything."""

    @property
    def requirements(self) -> requirements.Requirements:
        return requirements.Requirements(reason="There is no project.")


def main(argv: list[str] | None = None) -> int:
    from gpukit.verify.main import CHECKS

    argv = sys.argv[1:] if argv is None else argv
    if importlib.util.find_spec("torch") is None and not {"-h", "--help"} & {*argv}:
        python = next(pythons(), None)
        if python:
            os.execv(python, [python, "-c", RUN, str(PACKAGES), *argv])
        return _no_torch()
    checks = [adapted(each) for each in CHECKS if each.id not in LEFT_OUT]
    return command(
        "verify", ABOUT, checks, Environment, argv, None, rich_table, lambda: stacks.needs(facts.local(None))
    )


def _no_torch() -> int:
    stack = stacks.needs(facts.local(None))
    print(
        f"verify: PyTorch is not installed here. To install it for this machine: {stack.native['install']}",
        file=sys.stderr,
    )
    return 2


def pythons() -> Iterator[str]:
    """Other interpreters with torch: of an active environment, of .venv, then on the PATH."""
    environments = [os.environ.get("VIRTUAL_ENV"), os.environ.get("CONDA_PREFIX"), ".venv"]
    places = [Path(each, "bin").absolute() for each in environments if each]
    places += [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    tried = {os.path.realpath(Path(sys.prefix, "bin"))}
    for folder in places:
        if os.path.realpath(folder) in tried:
            continue
        tried.add(os.path.realpath(folder))
        python = shutil.which("python", path=str(folder)) or shutil.which("python3", path=str(folder))
        if python and _has_torch(python):
            yield python


def _has_torch(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", HAS_TORCH], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def adapted(each: Check) -> Check:
    if each.id == "torch":
        return replace(each, judge=_torch, causes=("driver-too-old",))
    judge = _cuda if each.id == "cuda" else each.judge
    return replace(each, judge=lambda probes, stack: judge(probes, _installed(probes, stack)))


def _installed(probes: Any, stack: Stack) -> Stack:
    """The expected values: those of the installed torch; for one without CUDA, the CUDA that this machine needs."""
    if not stack.gpu:
        return replace(stack, cuda=None)
    return replace(stack, torch=probes.torch.version or stack.torch, cuda=probes.torch.cuda or stack.native["cuda"])


def _torch(probes: Any, stack: Stack) -> Finding:
    """Whether the driver is new enough for this build."""
    floor, driver = _floor(probes.torch.cuda or ""), probes.smi.driver
    if floor and driver and version(driver) < version(floor):
        reason = f"this PyTorch, which is built for CUDA {minor(probes.torch.cuda)}"
        seen = f"{probes.torch.version}, driver {driver}"
        return problem("driver-too-old", seen, f"driver {floor} or newer", reason=reason, floor=floor)
    return passed(probes.torch.version)


def _floor(cuda: str) -> str | None:
    """The oldest driver for a version of CUDA: that of the releases for the same major version."""
    for name, release in data("stacks")["releases"]["wheel"].items():
        if cuda and f"-cu{version(cuda)[0]}" in name:
            return release["driver"]
    return None


def _cuda(probes: Any, stack: Stack) -> Finding:
    if not stack.gpu:
        return passed(probes.torch.cuda or "none")
    return build.cuda.judge(probes, stack)
