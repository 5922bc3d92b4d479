"""`gpukit verify`: in the container, in a native environment, and outside a project."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from gpukit.findings.checks import Check, checks_of, command, natively
from gpukit.findings.finding import FAIL, PASS, STATUSES, WARN, Finding, named, passed, problem
from gpukit.host import facts, stacks
from gpukit.host.cards import data
from gpukit.image import guard
from gpukit.project.location import located
from gpukit.project.stack import Stack, minor, version
from gpukit.verify import compute, gpu, hardware, machine, software
from gpukit.verify.container import Container
from gpukit.verify.torch_process import PACKAGES

# Quick checks first, and last what measures: it runs alone, after what compiles and imports in the background.
CHECKS = (
    *checks_of(software, gpu, machine, compute, hardware, level="quick"),
    *checks_of(compute, software, hardware, level="full"),
)

ABOUT = """\
Check that this container is what the project expects, and that its GPU works. Outside a project: the PyTorch of this
environment against this machine's GPU: its build, the driver, results, speed, and memory. Nothing is installed.

  ./launch verify                      all checks, about half a minute
  ./launch verify --quick              without those that load the GPU or start processes
  ./launch verify --only gpu,kernels   these checks and those that they need
  ./launch verify --stress             also load tests of the GPU, within safe limits
  ./launch verify --report             a file for an issue"""

RUN = (
    "import sys; sys.path[0] = sys.argv.pop(1); import gpukit; del sys.path[0]; "
    "from gpukit.cli.main import main; sys.exit(main(['verify', *sys.argv[1:]]))"
)
HAS_TORCH = (
    "import importlib.util, sys; sys.path.remove(''); "
    "sys.exit(sys.version_info < (3, 9) or not importlib.util.find_spec('torch'))"
)


def main(argv: list[str] | None = None) -> int:
    """In a container, or in an environment that `./launch --native` created."""
    if guard.OWN.is_file():  # records are about images
        return command("verify", ABOUT, [natively(each, native_stack) for each in CHECKS], Container, argv)
    return command("verify", ABOUT, CHECKS, Container, argv, record)


def native_stack(stack: Stack) -> Stack:
    """What to expect: PyTorch's own wheels instead of the base."""
    own = stacks.natively(stack)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = here if here in stack.native.get("pythons", []) else own.python  # launch takes any that has wheels
    return replace(own, python=python)


def outside(argv: list[str] | None = None) -> int:
    """Outside a project: whether this environment's torch works on this machine's GPU."""
    argv = sys.argv[1:] if argv is None else argv
    if importlib.util.find_spec("torch") is None and not {"-h", "--help"} & {*argv}:
        python = next(pythons(), None)
        if python:
            os.execv(python, [python, "-c", RUN, str(PACKAGES), *argv])
        install = stacks.needs(facts.local(None)).native["install"]
        print(f"verify: PyTorch is not installed here. To install it for this machine: {install}", file=sys.stderr)
        return 2
    checks = [standalone(each) for each in CHECKS if not each.project]
    return command("verify", ABOUT, checks, Container, argv, needs=lambda: stacks.needs(facts.local(None)))


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


def standalone(each: Check) -> Check:
    """A check as it is outside a project."""
    if each.id == software.torch.id:
        return replace(each, judge=_torch, causes=("driver-too-old",))
    return replace(each, judge=lambda probes, stack: each.judge(probes, _installed(probes, stack)))


def _installed(probes: Any, stack: Stack) -> Stack:
    """The expected values: those of the installed torch; for one without CUDA, the CUDA that this machine needs."""
    wanted = stack.native["cuda"] if stack.gpu else None
    return replace(stack, torch=probes.torch.version or stack.torch, cuda=probes.torch.cuda or wanted)


def _torch(probes: Any, stack: Stack) -> Finding:
    """Whether the driver is new enough for this build."""
    floor = _floor(probes.torch.cuda or "")
    driver = probes.smi.driver
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


def document(findings: list[Finding], probes: Any, stack: Stack) -> dict[str, Any]:
    """What record.schema.json describes. It has no names of users or machines."""
    not_passed = [finding for finding in findings if finding.status in (WARN, FAIL)]
    return {
        "schema": 1,
        "date": date.today().isoformat(),
        "cards": [{"name": device.name, "capability": device.capability} for device in probes.devices.found],
        "driver": probes.smi.driver or None,
        "base": stack.base,
        "release": stack.release,
        "image": stack.image,
        "torch": probes.torch.version,
        "cuda": probes.torch.cuda,
        "result": FAIL if named(findings, FAIL) else WARN if named(findings, WARN) else PASS,
        "counts": {status: len(named(findings, status)) for status in STATUSES},
        "not_passed": [{"id": each.id, "status": each.status, "cause": each.cause} for each in not_passed],
    }


def record(findings: list[Finding], probes: Any, stack: Stack, file: Path | None) -> str:
    """Write a record if a GPU computed and all checks ran; returns a sentence that says where, or why not."""
    whole = {finding.id for finding in findings} == {each.id for each in CHECKS}
    computed = any(finding.id == "tensor" and finding.status in (PASS, FAIL) for finding in findings)
    if not whole or not computed or not probes.devices.found:
        return "Not recorded: only complete runs on a real GPU are recorded, without --only, --skip, and --quick."
    content = document(findings, probes, stack)
    name = re.sub(r"[^a-z0-9]+", "-", content["cards"][0]["name"].lower()).strip("-")
    file = file or located("outputs") / f"{name}-{stack.base}-{stack.release}-{content['date']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return f"Recorded: {file}; open a pull request that adds it to records/ in the template."
