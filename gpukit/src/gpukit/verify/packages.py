"""gpukit's own version, and whether the installed packages meet the requirements of the project and of each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack

TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")


@check("gpukit", "gpukit version", causes=("image-older-than-wheel",))
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


@check("packages", "Packages", causes=("requirement-not-installed", "requirement-out-of-range", "import-not-installed"))
def packages(probes: Any, stack: Stack) -> Finding:
    """The packages that pyproject.toml requires are installed, in versions within its ranges, and requirements.txt's
    pins. The sources import no other packages. Only metadata is read."""
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
    if probes.unknown_imports:
        first = probes.unknown_imports[0]
        finding = problem(
            "import-not-installed", f"no module {first.module}", first.statement, place=first.place, module=first.module
        )
        own = first.place.startswith(f"src/{stack.package}/")
        return finding if own else replace(finding, status=WARN)
    return passed(f"{count(requirements.count, 'requirement')} met")


@check(
    "conflicts",
    "Package conflicts",
    causes=("torch-packages-mixed", "packages-conflict", "package-damaged", "packages-conflict-beside"),
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
