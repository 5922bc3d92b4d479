"""Jupyter's kernel."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Cause, Finding, passed, skipped
from gpukit.project.stack import Stack
from gpukit.verify.remedies import REBUILD

OTHER_PYTHON = Cause(
    "jupyter-other-python",
    "Jupyter's kernel uses another Python: notebooks have other packages than programs.",
    "`jupyter kernelspec remove -f {name}`, then rebuild the image",
    error_texts=("ModuleNotFoundError: No module named 'torch'",),
)
NO_KERNEL = Cause(
    "jupyter-kernel",
    "Jupyter has no working kernel.",
    REBUILD,
    error_texts=("No such kernel named python3", "ipykernel"),
)


@check("jupyter", "Jupyter kernel", needs=("venv",), causes=(NO_KERNEL, OTHER_PYTHON))
def jupyter(probes: Any, stack: Stack) -> Finding:
    """Notebooks run in this Python."""
    kernel = probes.kernel
    if kernel is None:
        return skipped("Jupyter is not installed.")
    if kernel.message:
        return NO_KERNEL(kernel.message, "a kernel")
    own = probes.prefixes[0]
    if kernel.prefix != own:
        return OTHER_PYTHON(f"{kernel.name}: {kernel.command} in {kernel.prefix}", own, name=kernel.name)
    return passed(f"{kernel.name}: this Python")
