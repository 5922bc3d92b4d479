"""How long the base image is still looked after."""

from __future__ import annotations

from datetime import date
from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, passed, skipped, warned
from gpukit.stack import Stack

NOTICE_DAYS = 90


@check("base", "Base's support")
def base(saw: Any, stack: Stack) -> Finding:
    """A base past its end of life gets no fixes, and its image may be deleted from the registry."""
    if not stack.end_of_life:
        return skipped("No end of life is known for this base.")
    end = date.fromisoformat(stack.end_of_life)
    left = (end - saw.today).days
    seen = f"{stack.base} {stack.release}, until {stack.end_of_life}"
    if left > NOTICE_DAYS:
        return passed(seen)
    pinned = stack.channel == "pin"
    return warned(
        seen,
        f"more than {NOTICE_DAYS} days",
        cause="Its support has ended." if left < 0 else f"Its support ends in {left} days.",
        remedy="copier update --trust --data release=current" if pinned else "copier update --trust",
    )
