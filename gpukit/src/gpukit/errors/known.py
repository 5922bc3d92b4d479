"""Functions for code that reacts to error texts, without reading all signs at startup."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpukit.findings.finding import Cause


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


def lookup(text: str, causes: Mapping[str, Cause]) -> Cause | None:
    """The cause in a table for the most likely sign or cause id of a text; None if there is none."""
    return next((causes[id] for id in sign_ids(text) if id in causes), None)


def known_cause(text: str, fallback: Cause) -> Cause:
    """The most likely cause of a text, with the status of `fallback`; `fallback` itself if the text is unknown.

    Errors in a user's program do not count: the programs are gpukit's own.
    """
    from dataclasses import replace

    from gpukit.errors.diagnose import CERTAIN, LIKELY, diagnose
    from gpukit.findings.causes import PROJECT, STANDALONE

    found = diagnose(text)
    if found.confidence not in (CERTAIN, LIKELY) or found.program:
        return fallback
    first = found.causes[0]
    words, standalone = first.words(PROJECT), first.words(STANDALONE)
    return replace(fallback, id=first.cause.id, why=words.why, remedy=words.remedy, standalone=standalone.remedy)
