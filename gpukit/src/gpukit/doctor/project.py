"""The project's folder: unfinished updates, and virtual environments that hide the image's Python."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.project.stack import Stack


@check("merge", "Update finished", causes=("conflict-markers", "update-rejected"), project=True)
def merge(probes: Any, stack: Stack) -> Finding:
    """A file with conflict markers is neither valid configuration nor valid code."""
    files = sorted({*probes.merge.unmerged, *probes.merge.marked})
    if files:
        return problem("conflict-markers", _first_files(files), "no conflicts", files=" ".join(files[:5]))
    if probes.merge.rejected:
        rejected = probes.merge.rejected
        return problem("update-rejected", _first_files(rejected), "no .rej files", files=" ".join(rejected[:5]))
    return passed("no conflicts")


@check("venv", "Virtual environments", causes=("workspace-venv",), project=True)
def venv(probes: Any, stack: Stack) -> Finding:
    """Packages go into the image's own Python; an environment in the project's folder hides it."""
    if probes.environments:
        return problem(
            "workspace-venv", ", ".join(probes.environments), "none in the project", name=probes.environments[0]
        )
    return passed("none in the project")


def _first_files(files: Any) -> str:
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return ", ".join(files[:5]) + more
