"""gpukit's own version, and whether the installed packages meet the requirements of the project and of each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import BUILD, REBUILD

TORCH_PACKAGES = ("torch", "torchvision", "torchaudio")
OLD_IMAGE = Cause("image-older-than-wheel", "The image is older than vendor/: it has another version of gpukit.", BUILD)
NOT_INSTALLED = Cause(
    "requirement-not-installed",
    "{package} is not installed, and {file} requires it: it was added after the image was built, or removed since.",
    BUILD,
    error_texts=("ModuleNotFoundError: No module named",),
)
OUT_OF_RANGE = Cause(
    "requirement-out-of-range",
    "{package} was replaced, or {file} was changed: this version is outside the range that it requires.",
    BUILD,
    error_texts=("ImportError: cannot import name",),
)
NOT_LISTED = Cause(
    "import-not-installed",
    "{place} imports {module}, and no installed package has it.",
    "Add the package that has it, often of the same name: `./launch add {module}`",
    error_texts=("ModuleNotFoundError: No module named",),
)
TORCH_MIXED = Cause(
    "torch-packages-mixed",
    "PyTorch's packages are from different releases: {package} requires {wanted}.",
    f"Remove what requires another version from pyproject.toml. {REBUILD}",
    error_texts=(
        "operator torchvision::nms does not exist",
        "Detected that PyTorch and torchvision were compiled with different CUDA versions",
    ),
)
CONFLICT = Cause(
    "packages-conflict",
    "Installed packages conflict, and the project needs them: {package} requires {wanted}.",
    BUILD,
    error_texts=("but you have", "which is incompatible"),
)
CONFLICT_BESIDE = Cause(
    "packages-conflict-beside",
    "Installed packages conflict: {package} requires {wanted}. pyproject.toml does not require {package}.",
    "Uninstall {package}, or let uv find versions that fit together: `./launch add {package}`",
    status=WARN,
)
DAMAGED = Cause("package-damaged", "The installation of {package} is not complete, or is there twice.", REBUILD)


@check("gpukit", "gpukit version", causes=(OLD_IMAGE,))
def gpukit(probes: Any, stack: Stack) -> Finding:
    """The gpukit installed here is the one in the project's vendor/."""
    versions = probes.gpukit
    if versions.vendored is None:
        return skipped(versions.reason, versions.installed or "")
    if versions.installed is None:
        return skipped("gpukit is not installed in this Python: it runs from its source or from the wheel.")
    if versions.installed == versions.vendored:
        return passed(versions.installed)
    return OLD_IMAGE(versions.installed, versions.vendored)


@check("packages", "Packages", causes=(NOT_INSTALLED, OUT_OF_RANGE, NOT_LISTED))
def packages(probes: Any, stack: Stack) -> Finding:
    """The packages that pyproject.toml requires are installed, in versions within its ranges, and requirements.txt's
    pins. The sources import no other packages. Only metadata is read."""
    requirements = probes.requirements
    if requirements.reason:
        return skipped(requirements.reason)
    if requirements.unmet:
        first, *others = requirements.unmet
        more = f"; {count(len(others), 'more requirement')} not met" if others else ""
        seen = f"{first.package} {first.seen}" if first.seen else f"{first.package} is not installed"
        cause = OUT_OF_RANGE if first.seen else NOT_INSTALLED
        finding = cause(seen + more, first.requirement, package=first.package, file=first.file)
        return replace(finding, status=WARN) if first.tool else finding
    if probes.unknown_imports:
        first = probes.unknown_imports[0]
        finding = NOT_LISTED(f"no module {first.module}", first.statement, place=first.place, module=first.module)
        own = first.place.startswith(f"src/{stack.package}/")
        return finding if own else replace(finding, status=WARN)
    return passed(f"{count(requirements.count, 'requirement')} met")


@check("conflicts", "Package conflicts", causes=(TORCH_MIXED, CONFLICT, DAMAGED, CONFLICT_BESIDE))
def conflicts(probes: Any, stack: Stack) -> Finding:
    """What the installed packages require of each other, by `uv pip check`. Conflicts within the base are ignored.
    torch itself requires exact versions of cuDNN, NCCL, and Triton, and torchvision one of torch."""
    if probes.conflicts is None:
        return skipped("uv, which finds conflicts, is not installed or does not run.")
    needed = probes.requirements.needed
    for each in sorted(
        probes.conflicts, key=lambda each: (each.package not in TORCH_PACKAGES, each.package not in needed)
    ):
        if not each.wanted:
            return DAMAGED(each.line, package=each.package)
        seen = f"{each.wanted_name} {each.seen or 'is not installed'}"
        cause = (
            TORCH_MIXED if each.package in TORCH_PACKAGES else CONFLICT if each.package in needed else CONFLICT_BESIDE
        )
        return cause(seen, each.wanted, package=each.package, wanted=each.wanted)
    return passed("none")
