"""The Python interpreter."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import on_cpu


@check("python", "Python", causes=("cpu-python-differs", "python-other-version"))
def python(probes: Any, stack: Stack) -> Finding:
    """The base's compiled packages work with one minor version of Python."""
    expected = minor(stack.python)
    if minor(probes.python) == expected:
        return passed(probes.python, expected)
    if on_cpu(probes, stack):
        return problem("cpu-python-differs", probes.python, expected, here=minor(probes.python), there=expected)
    return problem("python-other-version", probes.python, expected)


@check("venv", "Virtual environment", causes=("venv-active", "workspace-venv"))
def venv(probes: Any, stack: Stack) -> Finding:
    """A virtual environment hides the base's torch, or silently replaces it."""
    prefix, base = probes.prefixes
    if prefix != base:
        return problem("venv-active", prefix, base)
    if probes.workspace_venv:
        return problem("workspace-venv", probes.workspace_venv, "no .venv")
    return passed(prefix)
