"""Jupyter's kernel."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack


@check("jupyter", "Jupyter kernel", needs=("venv",), causes=("jupyter-kernel", "jupyter-other-python"))
def jupyter(probes: Any, stack: Stack) -> Finding:
    """Notebooks run in this Python."""
    kernel = probes.kernel
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
