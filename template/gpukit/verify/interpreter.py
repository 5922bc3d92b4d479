"""The Python that everything runs in."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, failed, passed, warned
from gpukit.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import REBUILD


@check("python", "Python")
def python(saw: Any, stack: Stack) -> Finding:
    """The base's compiled packages are made for one minor version of Python."""
    expected = minor(stack.python)
    if minor(saw.python) == expected:
        return passed(saw.python, expected)
    if on_cpu(saw, stack):
        return warned(
            saw.python,
            expected,
            cause="The container without a GPU stands on another Python than the one with it.",
            remedy=f"Keep to what both versions know: {minor(saw.python)} and {expected}.",
        )
    return failed(
        saw.python,
        expected,
        cause="This is another Python than the base's: another base image, or another Python before it on the PATH.",
        remedy=REBUILD,
    )


@check("venv", "No virtual env")
def venv(saw: Any, stack: Stack) -> Finding:
    """In a virtual environment the base's torch is hidden, or replaced without a word."""
    prefix, base = saw.prefixes
    if prefix == base:
        return passed(prefix)
    return failed(
        prefix,
        base,
        cause="A virtual environment is active. Packages go into the image's own Python here.",
        remedy="deactivate",
    )
