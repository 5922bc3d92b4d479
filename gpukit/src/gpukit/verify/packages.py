"""gpukit's own version, and whether the installed packages meet the requirements of PyTorch and of the project."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.image.guard import normalised
from gpukit.project.stack import Stack, version
from gpukit.verify.remedies import BUILD, REBUILD

ASKING = ("torch", "torchvision", "torchaudio")
UNMET = Cause(
    "torch-packages-mixed",
    "PyTorch's packages are from different releases: {package} requires {wanted}.",
    f"Remove what requires another version from pyproject.toml. {REBUILD}",
    says=(
        "operator torchvision::nms does not exist",
        "Detected that PyTorch and torchvision were compiled with different CUDA versions",
    ),
)


OLD_IMAGE = Cause("image-older-than-wheel", "The image is older than vendor/: it has another version of gpukit.", BUILD)
BEHIND = Cause(
    "requirement-not-installed",
    "The image does not have {package}, which the project requires: it was added after the image was built.",
    REBUILD,
    status=WARN,
    says=("ModuleNotFoundError: No module named",),
)


def missing(project: Path, path: list[str] | None = None) -> list[tuple[str, str]]:
    """The requirements of pyproject.toml and requirements.txt that are not installed, or not in the pinned version."""
    try:
        from gpukit.image.layers import name, wanted  # needs the image's own Python, 3.11 or newer

        lines = wanted(project)
    except (ImportError, OSError, ValueError, KeyError):
        return []
    there = _there(path)
    missing = []
    for line in lines:
        if ";" in line or not name(line) or re.match(r"\S+://", line):  # conditional, or without a name
            continue
        seen = there[name(line)].version if name(line) in there else "nothing"
        pinned = re.fullmatch(r"[\w.\[\],-]+\s*==\s*([\w.!-]+)(\+\S+)?(?:\s.*)?", line)
        if seen == "nothing" or (pinned and pinned[1] != seen.partition("+")[0]):
            missing.append(
                (line.partition(" ")[0], f"{name(line)} {seen if seen != 'nothing' else 'is not installed'}")
            )
    return missing


def _there(path: list[str] | None) -> dict[str, Any]:
    """The installed distributions by name; of two with the same name, the one that Python imports."""
    there: dict[str, Any] = {}
    for distribution in metadata.distributions(**({} if path is None else {"path": path})):
        if distribution.metadata["Name"]:
            there.setdefault(normalised(distribution.metadata["Name"]), distribution)
    return there


def unmet(path: list[str] | None = None) -> tuple[int, list[tuple[str, str, str]]]:
    """The number of exact requirements, and those not met: package, requirement, installed version.

    Only the numbers of a version are compared: another check compares the build (+cu130, +nv26.07).
    """
    there = _there(path)
    asked, missed = 0, []
    for name in ASKING:
        for line in (there[name].requires or ()) if name in there else ():
            requirement, _, marker = line.partition(";")
            exact = re.fullmatch(r"([\w.-]+)\s*\(?==\s*([\w.+!-]+)\)?\s*", requirement)
            if not exact or "extra" in marker or normalised(exact[1]) not in there:
                continue
            asked += 1
            wanted, seen = exact[2], there[normalised(exact[1])].version
            if version(wanted) != version(seen):
                missed.append((name, f"{normalised(exact[1])} {wanted}", seen))
    return asked, missed


@check("gpukit", "gpukit version", causes=(OLD_IMAGE,))
def gpukit(saw: Any, stack: Stack) -> Finding:
    """The gpukit installed here is the one in the project's vendor/."""
    versions = saw.gpukit
    if versions.vendored is None:
        return skipped(versions.reason, versions.installed or "")
    if versions.installed is None:
        return skipped("gpukit is not installed in this Python: it runs from its source or from the wheel.")
    if versions.installed == versions.vendored:
        return passed(versions.installed)
    return OLD_IMAGE(versions.installed, versions.vendored)


@check("packages", "Packages", causes=(UNMET, BEHIND))
def packages(saw: Any, stack: Stack) -> Finding:
    """torch requires exact versions of cuDNN, NCCL, and Triton, and torchvision one of torch. pyproject.toml and
    requirements.txt list what the image must have."""
    asked, missed = saw.torch_requirements
    if missed:
        package, wanted, seen = missed[0]
        return UNMET(f"{wanted.partition(' ')[0]} {seen}", wanted, package=package, wanted=wanted)
    if saw.missing_requirements:
        wanted, seen = saw.missing_requirements[0]
        return BEHIND(seen, wanted, package=wanted)
    return passed(
        f"{count(asked, 'version')} as PyTorch requires"
        if asked
        else "PyTorch's packages require no exact versions here"
    )
