"""How long the base image is still looked after."""

from __future__ import annotations

from datetime import date
from typing import Any

from gpukit.checks import check
from gpukit.finding import WARN, Cause, Finding, passed, skipped
from gpukit.stack import Stack

NOTICE_DAYS = 90
ENDED = Cause(
    "Its support has ended: it gets no fixes, and its image may be deleted from the registry.",
    "{update}",
    ("manifest unknown",),
    status=WARN,
)
ENDING = Cause("Its support ends in {days} days.", "{update}", status=WARN)


@check("base", "Base's support", causes=(ENDED, ENDING))
def base(saw: Any, stack: Stack) -> Finding:
    """A base past its end of life gets no fixes, and its image may be deleted from the registry."""
    if not stack.end_of_life:
        return skipped("No end of life is known for this base.")
    end = date.fromisoformat(stack.end_of_life)
    left = (end - saw.today).days
    seen = f"{stack.base} {stack.release}, until {stack.end_of_life}"
    if left > NOTICE_DAYS:
        return passed(seen)
    command = "copier update --trust --data release=current" if stack.channel == "pin" else "copier update --trust"
    expected = f"more than {NOTICE_DAYS} days"
    return ENDED(seen, expected, update=command) if left < 0 else ENDING(seen, expected, days=left, update=command)
