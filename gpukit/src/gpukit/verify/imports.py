"""Whether the project's imports work, tested in a separate process while other checks run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose
from gpukit.findings.causes import PROJECT
from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.probes.imported import Imported
from gpukit.verify.remedies import REBUILD
from gpukit.verify.torch_process import last_line

BROKEN = Cause(
    "package-import-broken",
    "{package} is installed, but it or one of the packages that it needs is broken.",
    REBUILD,
    error_texts=("ImportError: cannot import name", "undefined symbol"),
)
CRASHES = Cause(
    "package-import-crashes",
    "Python crashed or did not end while it imported {package}: a compiled package does not fit this machine or this "
    "torch.",
    REBUILD,
    error_texts=("Segmentation fault", "Illegal instruction"),
)
BROKEN_ON_GPU = Cause(
    "package-broken-on-gpu",
    "{package} can be imported, but it does not compute on this GPU: its build is for other GPUs or another CUDA.",
    "Use a release of {package} that supports this GPU, or remove it from pyproject.toml. " + REBUILD,
    error_texts=("no kernel image is available for execution on the device",),
)
# Usual causes of an ImportError that do not apply here: `packages` and `conflicts` have passed.
EXCLUDED = ("other-release",)


@check(
    "imports",
    "Imports",
    needs=("import", "packages", "conflicts"),
    causes=(CRASHES, BROKEN_ON_GPU, BROKEN),
    level="full",
)
def imports(probes: Any, stack: Stack) -> Finding:
    """The import statements in src/ and notebooks/ work, and the dependencies in pyproject.toml can be imported, in a
    separate process. Packages that need a GPU, such as unsloth and flash-attn, are imported and called on the GPU."""
    if not probes.imported:
        return skipped("The project has no sources or dependencies.")
    failed = [each for each in probes.imported if each.error]
    if failed:
        # The shortest traceback is closest to the error: the other packages fail because they import this one.
        first = min(failed, key=lambda each: len(each.error.log))
        others = [each.module for each in failed if each is not first]
        return _broken(first, f"; also {', '.join(others)}" if others else "")
    left = [each.module for each in probes.imported if each.skipped]
    seen = f"{count(len(probes.imported) - len(left), 'package')} imported"
    return passed(f"{seen}; not without a GPU: {', '.join(left)}" if left else seen)


def _broken(each: Imported, others: str) -> Finding:
    error, names = each.error, {"package": each.module}
    if error.kind in ("Death", "Timeout"):
        return CRASHES(f"{each.statement}: {error.text}{others}", each.place, **names)
    seen = f"{each.statement}: {last_line(f'{error.kind}: {error.text}')}{others}"
    cause = BROKEN_ON_GPU if each.called else BROKEN
    text = diagnose(error.log)
    named = text.confidence in (CERTAIN, LIKELY) and not text.program
    first = text.causes[0] if named else None
    if first is not None and first.cause.id not in EXCLUDED:
        words = first.words(PROJECT)
        return replace(cause, id=first.cause.id, why=words.why, remedy=words.remedy)(seen, each.place)
    return cause(seen, each.place, **names)
