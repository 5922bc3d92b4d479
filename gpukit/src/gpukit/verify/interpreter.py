"""The Python interpreter."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import REBUILD

CPU_PYTHON = Cause(
    "cpu-python-differs",
    "The CPU container has another version of Python than the GPU container.",
    "Use only features that Python {here} and {there} both have.",
    status=WARN,
)
OTHER_VERSION = Cause(
    "python-other-version",
    "This is another version of Python than the base's: another base image, or another Python earlier on PATH.",
    REBUILD,
)
VENV_ACTIVE = Cause(
    "venv-active",
    "A virtual environment is active. The packages are installed in the image's own Python.",
    "`deactivate`",
    error_texts=("No module named 'torch'",),
)
WORKSPACE_VENV = Cause(
    "workspace-venv",
    "The workspace has a virtual environment, from the host or an earlier project: editors and uv use it "
    "instead of the image's own Python.",
    "`rm -r .venv`",
    status=WARN,
)


@check("python", "Python", causes=(CPU_PYTHON, OTHER_VERSION))
def python(probes: Any, stack: Stack) -> Finding:
    """The base's compiled packages work with one minor version of Python."""
    expected = minor(stack.python)
    if minor(probes.python) == expected:
        return passed(probes.python, expected)
    if on_cpu(probes, stack):
        return CPU_PYTHON(probes.python, expected, here=minor(probes.python), there=expected)
    return OTHER_VERSION(probes.python, expected)


@check("venv", "Virtual environment", causes=(VENV_ACTIVE, WORKSPACE_VENV))
def venv(probes: Any, stack: Stack) -> Finding:
    """A virtual environment hides the base's torch, or silently replaces it."""
    prefix, base = probes.prefixes
    if prefix != base:
        return VENV_ACTIVE(prefix, base)
    if probes.workspace_venv:
        return WORKSPACE_VENV(probes.workspace_venv, "no .venv")
    return passed(prefix)
