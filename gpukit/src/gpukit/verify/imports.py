"""Whether the project's imports work, tested in a separate process while other checks run."""

from __future__ import annotations

from typing import Any

from gpukit.errors.known import diagnosed
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack
from gpukit.verify.probes.imported import Imported
from gpukit.verify.torch_process import last_line

# Usual causes of an ImportError that do not apply here: `packages` and `conflicts` have passed.
EXCLUDED = ("other-release",)


@check(
    "imports",
    "Imports",
    needs=("import", "packages", "conflicts"),
    causes=("package-import-crashes", "package-broken-on-gpu", "package-import-broken"),
    level="full",
)
def imports(probes: Any, stack: Stack) -> Finding:
    """The import statements in src/ and notebooks/ work, and the dependencies in pyproject.toml can be imported, in a
    separate process. Packages that need a GPU, such as unsloth and flash-attn, are imported and called on the GPU."""
    if not probes.imported:
        return skipped("nothing-to-import")
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
        return problem("package-import-crashes", f"{each.statement}: {error.text}{others}", each.place, **names)
    seen = f"{each.statement}: {last_line(f'{error.kind}: {error.text}')}{others}"
    fallback = "package-broken-on-gpu" if each.called else "package-import-broken"
    finding = diagnosed(error.log, fallback, seen, each.place, **names)
    return problem(fallback, seen, each.place, **names) if finding.cause_id in EXCLUDED else finding
