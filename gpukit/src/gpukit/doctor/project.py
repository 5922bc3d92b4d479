"""The project: unfinished updates, environments that hide the image's Python, its ports, and its base's support."""

from __future__ import annotations

from datetime import date
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host.cards import data
from gpukit.project.messages import some
from gpukit.project.stack import Stack
from gpukit.project.support import NOTICE_DAYS


@check("merge", "Update finished", causes="conflict-markers update-rejected", project=True)
def merge(probes: Any, stack: Stack) -> Finding:
    """A file with conflict markers is neither valid configuration nor valid code."""
    if files := probes.merge.conflicts:
        return problem("conflict-markers", some(files), "no conflicts", files=" ".join(files[:5]))
    if rejected := probes.merge.rejected:
        return problem("update-rejected", some(rejected), "no .rej files", files=" ".join(rejected[:5]))
    return passed("no conflicts")


@check("base", "Base's support", causes="base-support-ended base-support-ending", project=True, container=True)
def base(probes: Any, stack: Stack) -> Finding:
    """A base past its end of life gets no fixes, and its image may be deleted from the registry."""
    superseded = data("stacks")["releases"].get(stack.base, {}).get(stack.release, {}).get("superseded")
    newer = ", superseded by a newer release" if superseded else ""
    if not stack.end_of_life:
        policy = data("stacks")["support"].get(stack.base, "No end of life is known for this base.")
        return skipped("no-end-of-life", base=f"{stack.base} {stack.release}{newer}", policy=policy)
    end = date.fromisoformat(stack.end_of_life)
    left = (end - probes.today).days
    seen = f"{stack.base} {stack.release}, until {stack.end_of_life}"
    if left > NOTICE_DAYS:
        return passed(seen + newer)
    expected = f"more than {NOTICE_DAYS} days"
    options = " --answers release=current" * (stack.channel == "pin")
    return problem(
        "base-support-ended" if left < 0 else "base-support-ending", seen, expected, days=left, options=options
    )
