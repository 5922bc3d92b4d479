"""The software: gpukit, Python, torch, the packages, Jupyter, and experiment trackers."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Any

from gpukit.errors.known import diagnosed, match_signs, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Finding, count, passed, problem, skipped, unknown
from gpukit.project.stack import Stack, minor
from gpukit.verify.gpu import on_cpu
from gpukit.verify.probes import Imported
from gpukit.verify.torch_process import last_line


@check("gpukit", "gpukit version", causes="image-older-than-wheel", project=True)
def gpukit(probes: Any, stack: Stack) -> Finding:
    """The gpukit installed here is the one in the project's vendor/."""
    versions = probes.gpukit
    if versions.vendored is None:
        return skipped("not-comparable", versions.installed or "", reason=versions.reason)
    if versions.installed is None:
        return skipped("gpukit-not-installed")
    if versions.installed == versions.vendored:
        return passed(versions.installed)
    return problem("image-older-than-wheel", versions.installed, versions.vendored)


@check("python", "Python", causes="cpu-python-differs python-other-version", project=True)
def python(probes: Any, stack: Stack) -> Finding:
    """The base's compiled packages work with one minor version of Python."""
    expected = minor(stack.python)
    if minor(probes.python) == expected:
        return passed(probes.python, expected)
    if on_cpu(probes, stack):
        return problem("cpu-python-differs", probes.python, expected, here=minor(probes.python), there=expected)
    return problem("python-other-version", probes.python, expected)


@check("venv", "Virtual environment", causes="venv-active workspace-venv", project=True)
def venv(probes: Any, stack: Stack) -> Finding:
    """A virtual environment hides the base's torch, or silently replaces it."""
    prefix, base = probes.prefixes
    if prefix != base:
        return problem("venv-active", prefix, base)
    if probes.workspace_venv:
        return problem("workspace-venv", probes.workspace_venv, "no .venv")
    return passed(prefix)


def local_part(version: str) -> str:
    """The build in a version: cu130 of 2.14.1+cu130, nv25.11 of an NVIDIA build, cpu if there is none."""
    local = version.partition("+")[2]
    nvidia = re.search(r"\bnv(\d+)\.(\d+)", local)
    return f"nv{int(nvidia[1])}.{int(nvidia[2]):02d}" if nvidia else local or "cpu"


def _with_index(probes: Any, text: str) -> str:
    return f"{text}, from the {probes.torch.index}" if probes.torch.index else text


@check(
    "import",
    "Import torch",
    causes="torch-not-installed torch-import-crashes torch-import-hangs torch-library-missing torch-broken",
)
def import_torch(probes: Any, stack: Stack) -> Finding:
    """`import torch` in a separate process, so that a crash or a hang is reported like any other error."""
    error = probes.torch.error
    if error is None:
        return passed(probes.torch.version)
    seen = last_line(error.text or error.log) or error.kind
    expected = "`import torch` works"
    if error.kind == "ModuleNotFoundError" and "other-python" in sign_ids(error.text):
        return problem("torch-not-installed", seen, expected)
    if error.kind == "Death":
        return problem("torch-import-crashes", seen, expected, ending=error.text)
    if error.kind == "Timeout":
        return problem("torch-import-hangs", seen, expected)
    if error.kind in ("ImportError", "OSError"):  # what Python and ctypes raise for it
        return problem("torch-library-missing", seen, expected)
    return diagnosed(f"{error.text}\n{error.log}", "torch-broken", seen, expected)


@check(
    "torch", "torch build", needs="import", causes="cpu-torch-differs cpu-torch torch-other-build torch-other-version"
)
def torch(probes: Any, stack: Stack) -> Finding:
    """The same minor version and the same build as the base's; a newer patch release is accepted."""
    seen = _with_index(probes, probes.torch.version)
    expected = stack.torch
    same_version = minor(seen) == minor(expected)
    if on_cpu(probes, stack) and (stack.cuda is not None or probes.torch.index):
        if same_version:
            return passed(seen, f"{minor(expected)}, any build")
        return problem("cpu-torch-differs", seen, f"{minor(expected)}, any build")
    for_cpu = stack.cuda is not None and probes.torch.cuda is None
    same_build = probes.torch.index or local_part(probes.torch.version) == local_part(expected)
    if same_version and same_build and not for_cpu:  # which CUDA it is for is the next check
        return passed(seen, expected)
    if same_version:
        return problem("cpu-torch" if for_cpu else "torch-other-build", seen, expected)
    return problem("torch-other-version", seen, expected)


@check("cuda", "CUDA of torch", needs="import", causes="torch-cuda-not-needed cpu-torch torch-other-cuda")
def cuda(probes: Any, stack: Stack) -> Finding:
    """The CUDA version that torch was built for. A CPU build has none, and silently uses no GPU."""
    seen = _with_index(probes, probes.torch.cuda or "none")
    if stack.cuda is None:
        if probes.torch.cuda is None or probes.torch.index:
            return passed(seen, "none")
        return problem("torch-cuda-not-needed", seen, "none")
    if on_cpu(probes, stack):
        return skipped("no-gpu-requested", seen)
    if probes.torch.cuda and minor(probes.torch.cuda) == minor(stack.cuda):
        return passed(seen, stack.cuda)
    return problem("cpu-torch" if probes.torch.cuda is None else "torch-other-cuda", seen, stack.cuda)


@check("base-image", "Base image", causes="base-moved", project=True, container=True)
def base_image(probes: Any, stack: Stack) -> Finding:
    """The image was built from the version of the base image that stack.json records."""
    name, _, digest = probes.base_image.partition("@")
    if not stack.digest:
        return skipped("base-without-digest", digest)
    if not digest:
        return skipped("image-without-record")
    if name != stack.image:
        return skipped("other-base-image", digest, name=name)
    return passed(digest, stack.digest) if digest == stack.digest else problem("base-moved", digest, stack.digest)


@check("protected", "Protected packages", causes="protected-changed", project=True)
def protected(probes: Any, stack: Stack) -> Finding:
    """The protected packages have the versions recorded when the image was built."""
    if probes.protected is None:
        return skipped("image-not-from-dockerfile")
    if not probes.protected_changes:
        return passed(f"{count(len(probes.protected), 'package')} unchanged")
    return problem(
        "protected-changed",
        "; ".join(str(change) for change in probes.protected_changes),
        "as recorded when the image was built",
    )


TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")


@check("packages", "Packages", causes="requirement-not-installed requirement-out-of-range", project=True)
def packages(probes: Any, stack: Stack) -> Finding:
    """The packages that pyproject.toml requires are installed, in versions within its ranges, and requirements.txt's
    pins. Only metadata is read."""
    requirements = probes.requirements
    if requirements.reason:
        return skipped("not-comparable", reason=requirements.reason)
    if requirements.unmet:
        first, *others = requirements.unmet
        more = f"; {count(len(others), 'more requirement')} not met" if others else ""
        seen = f"{first.package} {first.seen}" if first.seen else f"{first.package} is not installed"
        id = "requirement-out-of-range" if first.seen else "requirement-not-installed"
        finding = problem(id, seen + more, first.requirement, package=first.package, file=first.file)
        return replace(finding, status=WARN) if first.tool else finding
    return passed(f"{count(requirements.count, 'requirement')} met")


@check(
    "conflicts",
    "Package conflicts",
    causes="torch-packages-mixed packages-conflict package-damaged packages-conflict-beside",
)
def conflicts(probes: Any, stack: Stack) -> Finding:
    """What the installed packages require of each other, by `uv pip check`. Conflicts within the base are ignored.
    torch itself requires exact versions of cuDNN, NCCL, and Triton, and torchvision one of torch."""
    if probes.conflicts is None:
        return skipped("no-uv")
    needed = probes.requirements.needed
    for each in sorted(
        probes.conflicts, key=lambda each: (each.package not in TORCH_PACKAGES, each.package not in needed)
    ):
        if not each.wanted:
            return problem("package-damaged", each.line, package=each.package)
        seen = f"{each.wanted_name} {each.seen or 'is not installed'}"
        id = "packages-conflict" if each.package in needed else "packages-conflict-beside"
        if each.package in TORCH_PACKAGES:
            id = "torch-packages-mixed"
        return problem(id, seen, each.wanted, package=each.package, wanted=each.wanted)
    return passed("none")


@check("jupyter", "Jupyter kernel", needs="venv", causes="jupyter-kernel jupyter-other-python", project=True)
def jupyter(probes: Any, stack: Stack) -> Finding:
    """Notebooks run in this Python."""
    try:
        kernel = probes.kernel
    except subprocess.TimeoutExpired as error:
        reason = f"`{' '.join(error.cmd[:2])}` did not respond within {error.timeout:g} s."
        return unknown("not-answered", reason=reason)
    if kernel is None:
        return skipped("jupyter-not-installed")
    if kernel.message:
        return problem("jupyter-kernel", kernel.message, "a kernel")
    own = probes.prefixes[0]
    if kernel.prefix != own:
        return problem(
            "jupyter-other-python", f"{kernel.name}: {kernel.command} in {kernel.prefix}", own, name=kernel.name
        )
    return passed(f"{kernel.name}: this Python")


# Usual causes of an ImportError that do not apply here: `packages` and `conflicts` have passed.
EXCLUDED = ("other-release",)
# What a package reports that cannot be imported without a GPU.
NEEDS_GPU = ("cuda-not-available", "cpu-torch", "no-gpu-inside")


@check(
    "imports",
    "Imports",
    needs="import packages conflicts",
    causes="package-import-crashes package-broken-on-gpu package-import-broken",
    level="full",
    project=True,
)
def imports(probes: Any, stack: Stack) -> Finding:
    """The dependencies in pyproject.toml can be imported, in a separate process. Packages that need a GPU, such as
    unsloth and flash-attn, are imported and called on the GPU."""
    if not probes.imported:
        return skipped("nothing-to-import")
    failed = [each for each in probes.imported if each.error]
    if on_cpu(probes, stack):
        failed = [each for each in failed if not match_signs(each.error.text, *NEEDS_GPU)]
    silent = [each for each in failed if each.error.kind == "Timeout"]
    failed = [each for each in failed if each not in silent]
    if failed:
        # The shortest traceback is closest to the error: the other packages fail because they import this one.
        first = min(failed, key=lambda each: len(each.error.log))
        others = [each.module for each in failed if each is not first]
        return _broken(first, f"; also {', '.join(others)}" if others else "")
    if silent:
        return unknown("not-answered", reason=f"`import {silent[0].module}`: {silent[0].error.text}.")
    left = [each.module for each in probes.imported if each.skipped or each.error]
    seen = f"{count(len(probes.imported) - len(left), 'package')} imported"
    return passed(f"{seen}; not without a GPU: {', '.join(left)}" if left else seen)


def _broken(each: Imported, others: str) -> Finding:
    error = each.error
    expected = f"`import {each.module}` works"
    names = {"package": each.module}
    if error.kind == "Death":
        return problem("package-import-crashes", f"{each.module}: {error.text}{others}", expected, **names)
    seen = f"{each.module}: {last_line(f'{error.kind}: {error.text}')}{others}"
    fallback = "package-broken-on-gpu" if each.called else "package-import-broken"
    finding = diagnosed(error.log, fallback, seen, expected, **names)
    return problem(fallback, seen, expected, **names) if finding.cause_id in EXCLUDED else finding
