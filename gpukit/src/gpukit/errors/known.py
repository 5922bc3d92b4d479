"""Functions for code that reacts to error texts, without importing all rules at startup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.findings.finding import Cause


def rule_ids(text: str) -> list[str]:
    """The ids of a text's rules and causes, the most likely first."""
    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose  # imported here because it is slow

    found = diagnose(text)
    causes = found.causes if found.confidence in (CERTAIN, LIKELY) else ()
    return [id for cause in causes for id in (cause.rule.id, cause.cause.id)]


def match_rules(text: str, *rule_ids: str) -> re.Match[str] | None:
    """The first match of one of these rules in a text, or None; for code that only needs to recognize an error."""
    from gpukit.errors.rules import named  # imported here because it is slow

    return next(filter(None, (rule.matches(text) for rule in named(*rule_ids))), None)


def lookup(text: str, causes: Mapping[str, Cause]) -> Cause | None:
    """The cause in a table for the most likely rule or cause id of a text; None if there is none."""
    return next((causes[id] for id in rule_ids(text) if id in causes), None)


def known_cause(text: str, fallback: Cause) -> Cause:
    """The most likely cause of a text, with the status of `fallback`; `fallback` itself if the text is unknown.

    Errors in a user's program do not count: the programs are gpukit's own.
    """
    from dataclasses import replace

    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose

    found = diagnose(text)
    if found.confidence not in (CERTAIN, LIKELY) or found.program:
        return fallback
    first = found.causes[0]
    return replace(fallback, id=first.cause.id, why=first.why, remedy=first.remedy, standalone=first.standalone)
