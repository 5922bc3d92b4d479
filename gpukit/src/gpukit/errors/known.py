"""What an error text means to a check that has causes of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from gpukit.findings.finding import Cause


def rule_ids(text: str) -> list[str]:
    """The ids of a text's rules and causes, the most likely first."""
    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose  # many patterns, and seldom needed

    found = diagnose(text)
    causes = found.causes if found.confidence in (CERTAIN, LIKELY) else ()
    return [id for cause in causes for id in (cause.rule.id, cause.cause.id)]


def match_rules(text: str, *rule_ids: str) -> re.Match[str] | None:
    """Where a text has the words of one of these rules; None if it has none. A command that reacts to an error asks
    this; what the error means is another question."""
    from gpukit.errors.rules import named  # many patterns, and seldom needed

    return next(filter(None, (rule.matches(text) for rule in named(*rule_ids))), None)


def lookup(text: str, causes: Mapping[str, Cause]) -> Cause | None:
    """What the first known id of a text stands for in a table; None if it holds none of them."""
    return next((causes[id] for id in rule_ids(text) if id in causes), None)


def known_cause(text: str, fallback: Cause) -> Cause:
    """The most likely cause of a text, with the status of `otherwise`; that one itself if the text is unknown.

    What a user's program does wrong is no cause here: the programs are the checks' own.
    """
    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose

    found = diagnose(text)
    if found.confidence not in (CERTAIN, LIKELY) or found.program:
        return fallback
    first = found.causes[0]
    return replace(fallback, id=first.cause.id, why=first.why, remedy=first.remedy, standalone=first.standalone)
