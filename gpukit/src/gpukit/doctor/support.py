"""How long the base image is supported."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.cards import data
from gpukit.project.stack import Stack
from gpukit.project.support import NOTICE_DAYS

UPDATE = "./launch update"
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
    superseded = data("stacks")["releases"].get(stack.base, {}).get(stack.release, {}).get("superseded")
    newer = ", superseded by a newer release" if superseded else ""
    if not stack.end_of_life:
        policy = data("stacks")["support"].get(stack.base, "No end of life is known for this base.")
        return skipped(f"{stack.base} {stack.release}{newer}: {policy}")
    end = date.fromisoformat(stack.end_of_life)
    left = (end - probes.today).days
    seen = f"{stack.base} {stack.release}, until {stack.end_of_life}"
    if left > NOTICE_DAYS:
        return passed(seen + newer)
    command = f"{UPDATE} --answers release=current" if stack.channel == "pin" else UPDATE
    expected = f"more than {NOTICE_DAYS} days"
    cause = replace(ENDED if left < 0 else ENDING, remedy=f"`{command}`")
    return cause(seen, expected, days=left)
