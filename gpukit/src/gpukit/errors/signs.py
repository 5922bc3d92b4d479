"""Signs: patterns that point to causes in an error text, from data/knowledge.json."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from gpukit.errors.machine import compiled
from gpukit.findings.causes import Cause, cause
from gpukit.project.data import data

# The order in which signs are tried, whatever their topic.
LEVELS = SPECIFIC, BROAD, GENERAL, NOTE = "specific", "broad", "general", "note"
MAX_MATCHES = 1_000  # of one pattern


class Sign(NamedTuple):
    """Patterns of an error text; `causes` are its possible causes, the most frequent first.

    Attributes:
        text: each pattern with strings in lower case, one of which every matching text contains, if there are any
        named: the ids of the causes, and what differs for this sign
        certain: this text has this one cause on every machine and in every program
        more: the id of the command that tells more
        level: BROAD: a text that leaves the cause open; GENERAL: a text of no program in particular, such as
            "Permission denied"; NOTE: a warning that is no error
        requires: a pattern that the text must also match, if other programs print the same message
        excludes: a pattern that the text must not match, because it shows another cause
        kind: the kind of refusal of an engine or uv, for commands that handle it
        lasting: a success that follows does not mean that this was handled: nothing runs on the GPU
        program: the error is in the user's program, its data, or a server, not in the GPU software; or a condition
    """

    id: str
    topic: str
    example: str
    text: list[list[str]]
    named: list[dict[str, Any]]
    requires: str = ""
    excludes: str = ""
    more: str = "host"
    level: str = SPECIFIC
    kind: str = ""
    program: Any = False
    certain: bool = False
    lasting: bool = False

    @property
    def causes(self) -> list[Cause]:
        return [cause(**each) for each in self.named]

    def matches(self, text: str) -> re.Match[str] | None:
        """The first match in a short text, such as the message of an exception."""
        return next(iter(self.find(text, text.lower())), None)

    def find(self, text: str, lower: str, whole: str = "") -> list[re.Match[str]]:
        """The matches in a text, subject to `requires` and `excludes`. Only patterns that can match are compiled.

        Args:
            lower: the same text in lower case
            whole: the text that `requires` and `excludes` are searched in, if the first is only a part of it
        """
        found: list[re.Match[str]] = []
        for pattern, *words in self.text:
            if not words or any(map(lower.__contains__, words)):
                found += islice(compiled(pattern).finditer(text), MAX_MATCHES)
        whole = whole or text
        if not found or (self.requires and not compiled(self.requires).search(whole)):
            return []
        return [] if self.excludes and compiled(self.excludes).search(whole) else sorted(found, key=re.Match.start)


@cache
def signs() -> tuple[Sign, ...]:
    """All signs, in the order in which they are tried."""
    every = [
        Sign(id, named=entry["causes"], **{name: value for name, value in entry.items() if name != "causes"})
        for id, entry in data("knowledge")["signs"].items()
    ]
    return tuple(sorted(every, key=lambda sign: LEVELS.index(sign.level)))


def named(*ids: str) -> tuple[Sign, ...]:
    """The signs with these ids, in their own order.

    Raises:
        KeyError: there is no such sign
    """
    found = tuple(sign for sign in signs() if sign.id in ids)
    if missing := set(ids) - {sign.id for sign in found}:
        raise KeyError(*sorted(missing))
    return found


def captures(match: re.Match[str]) -> dict[str, str]:
    """What a pattern captured, by name; `name2` is `name` in another part of the pattern."""
    found: dict[str, str] = {}
    for name, value in match.groupdict().items():
        if value:
            found.setdefault(name.rstrip("0123456789"), " ".join(value.split()).rstrip("."))
    return found
