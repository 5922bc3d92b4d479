"""Functions for code that reacts to error texts, without reading all signs at startup."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.findings.finding import Finding


def sign_ids(text: str) -> list[str]:
    """The ids of a text's signs and causes, the most likely first."""
    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose  # imported here because it is slow

    found = diagnose(text)
    causes = found.causes if found.confidence in (CERTAIN, LIKELY) else ()
    return [id for cause in causes for id in (cause.sign.id, cause.cause.id)]


def match_signs(text: str, *ids: str) -> re.Match[str] | None:
    """The first match of one of these signs in a text, or None; for code that only needs to recognize an error."""
    from gpukit.errors.signs import named  # imported here because it is slow

    return next(filter(None, (sign.matches(text) for sign in named(*ids))), None)


def lookup(text: str, ids: Collection[str], means: Mapping[str, str] | None = None) -> str:
    """The most likely sign or cause of a text that is one of these ids; empty if none is.

    `means`: the cause of a sign, or of another cause, where the text is from.
    """
    found = ((means or {}).get(id, id) for id in sign_ids(text))
    return next((id for id in found if id in ids), "")


def diagnosed(text: str, fallback: str, seen: str, expected: str = "", **values: str) -> Finding:
    """The finding for an error text: its most likely cause, with the status of `fallback`, or `fallback` itself.

    Errors in a user's program do not count: the programs are gpukit's own.
    """
    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose
    from gpukit.findings.finding import problem

    finding = problem(fallback, seen, expected, **values)
    found = diagnose(text)
    if found.confidence not in (CERTAIN, LIKELY) or found.program:
        return finding
    first = found.causes[0]
    return replace(finding, cause_id=first.cause.id, values=first.values, special=first.special)
