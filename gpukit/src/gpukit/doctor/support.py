"""How long the base image is supported."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack

NOTICE_DAYS = 90
UPDATE = "copier update --trust"
ENDED = Cause(
    "base-support-ended",
    "Its support has ended: it gets no fixes, and its image may be deleted from the registry.",
    f"`{UPDATE}`",
    ("manifest unknown",),
    status=WARN,
)
ENDING = Cause("base-support-ending", "Its support ends in {days} days.", f"`{UPDATE}`", status=WARN)


@check("base", "Base's support", causes=(ENDED, ENDING), project=True)
def base(probes: Any, stack: Stack) -> Finding:
    """A base past its end of life gets no fixes, and its image may be deleted from the registry."""
    if not stack.end_of_life:
        return skipped("No end of life is known for this base.")
    end = date.fromisoformat(stack.end_of_life)
    left = (end - probes.today).days
    seen = f"{stack.base} {stack.release}, until {stack.end_of_life}"
    if left > NOTICE_DAYS:
        return passed(seen)
    command = f"{UPDATE} --data release=current" if stack.channel == "pin" else UPDATE
    expected = f"more than {NOTICE_DAYS} days"
    cause = replace(ENDED if left < 0 else ENDING, remedy=f"`{command}`")
    return cause(seen, expected, days=left)
