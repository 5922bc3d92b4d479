"""The Python that everything runs in."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import REBUILD

CPU_PYTHON = Cause(
    "The container without a GPU stands on another Python than the one with it.",
    "Keep to what both versions know: {here} and {there}.",
    status=WARN,
)
ANOTHER = Cause(
    "This is another Python than the base's: another base image, or another Python before it on the PATH.", REBUILD
)
VENV = Cause(
    "A virtual environment is active. Packages go into the image's own Python here.",
    "deactivate",
    says=("No module named 'torch'",),
)
STALE = Cause(
    "The workspace holds a virtual environment, from the host or from an earlier project: editors and uv take it "
    "instead of the image's own Python.",
    "rm -r .venv",
    status=WARN,
)


@check("python", "Python", causes=(CPU_PYTHON, ANOTHER))
def python(saw: Any, stack: Stack) -> Finding:
    """The base's compiled packages are made for one minor version of Python."""
    expected = minor(stack.python)
    if minor(saw.python) == expected:
        return passed(saw.python, expected)
    if on_cpu(saw, stack):
        return CPU_PYTHON(saw.python, expected, here=minor(saw.python), there=expected)
    return ANOTHER(saw.python, expected)


@check("venv", "No virtual env", causes=(VENV, STALE))
def venv(saw: Any, stack: Stack) -> Finding:
    """In a virtual environment the base's torch is hidden, or replaced without a word."""
    prefix, base = saw.prefixes
    if prefix != base:
        return VENV(prefix, base)
    if saw.workspace_venv:
        return STALE(saw.workspace_venv, "no .venv")
    return passed(prefix)
