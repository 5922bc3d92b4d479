"""The project's folder: unfinished updates, and virtual environments that hide the image's Python."""

from __future__ import annotations

from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed
from gpukit.project.stack import Stack

UNMERGED = Cause(
    "conflict-markers",
    "An update conflicts with your changes; the files contain both versions.",
    "Choose in each file between <<<<<<< and >>>>>>>, then: `git add {files}`",
    ("<<<<<<< before updating", "error: Committing is not possible because you have unmerged files."),
)
REJECTED = Cause(
    "update-rejected",
    "An update could not apply some of its changes and left them in .rej files.",
    "Apply those changes by hand, then: `rm {files}`",
    status=WARN,
)
HIDES_PYTHON = Cause(
    "workspace-venv",
    "The container sees this folder too, and VS Code and `uv run` use a virtual environment in it instead of the "
    "image's Python, which has the base's torch.",
    "`mv {name} ~/{name}-of-this-project`",
    ("ModuleNotFoundError: No module named 'torch'",),
    status=WARN,
)


@check("merge", "Update finished", causes=(UNMERGED, REJECTED), project=True)
def merge(probes: Any, stack: Stack) -> Finding:
    """A file with conflict markers is neither valid configuration nor valid code."""
    files = sorted({*probes.merge.unmerged, *probes.merge.marked})
    if files:
        return UNMERGED(_first_files(files), "no conflicts", files=" ".join(files[:5]))
    if probes.merge.rejected:
        rejected = probes.merge.rejected
        return REJECTED(_first_files(rejected), "no .rej files", files=" ".join(rejected[:5]))
    return passed("no conflicts")


@check("venv", "Virtual environments", causes=(HIDES_PYTHON,), project=True)
def venv(probes: Any, stack: Stack) -> Finding:
    """Packages go into the image's own Python; an environment in the project's folder hides it."""
    if probes.environments:
        return HIDES_PYTHON(", ".join(probes.environments), "none in the project", name=probes.environments[0])
    return passed("none in the project")


def _first_files(files: Any) -> str:
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return ", ".join(files[:5]) + more
