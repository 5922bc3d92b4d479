"""How long the base of a project is supported."""

from __future__ import annotations

from datetime import date
from typing import Any

NOTICE_DAYS = 90


def notice(stack: dict[str, Any], today: date) -> str:
    """A sentence if the support of a stack.json ends soon, or has ended."""
    try:
        end = date.fromisoformat(stack["end_of_life"])
        name = f"{stack['base']} {stack['release']}"
        pinned = stack["channel"] == "pin"
    except (KeyError, TypeError, ValueError):  # no date; or not a stack.json, which others report
        return ""
    left = (end - today).days
    if left > NOTICE_DAYS:
        return ""
    remedy = (
        "`./launch update --answers release=current` selects the newest release of the base."
        if pinned
        else "Run `./launch update` again when the template has a newer release."
    )
    when = f"ends in {left} days, on {end}" if left >= 0 else f"ended on {end}"
    return f"The support of {name} {when}. {remedy}"
