"""A rule that matches an error text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from gpukit.errors.anchors import anchors
from gpukit.findings.finding import Cause

# Commands that tell more; TRACE reports an asynchronous CUDA error at the call that caused it.
HOST, DRIVER, VERIFY = "`./launch doctor`", "`./launch doctor --only driver`", "`./launch verify`"
ENGINE, GRANT = "`./launch doctor --only engine`", "`./launch doctor --only gpu`"
MOUNTS, CARD = "`./launch doctor --only mounts`", "`./launch doctor --only card`"
BUILD, KERNEL_LOG = "`./launch build`", "`sudo dmesg | grep -i -e nvrm -e xid`"
TRACE = "`CUDA_LAUNCH_BLOCKING=1`"

# The order in which rules are tried, whatever their topic.
LEVELS = SPECIFIC, BROAD, GENERAL, NOTE = "specific", "broad", "general", "note"


@dataclass(frozen=True)
class Rule:
    """Patterns of an error text, and its possible causes.

    Attributes:
        id: the id for `explain`
        example: the error text as users see it
        patterns: regular expressions, one of which must match; case is ignored
        causes: the possible causes, the most frequent first, at most three. `{0}` in a sentence is the first group of
            the pattern
        certain: this text has this one cause on every machine and in every program
        more: the command that tells more
        level: BROAD: a text that leaves the cause open; GENERAL: a text of no program in particular, such as
            "Permission denied"; NOTE: a warning that is no error
        requires: a pattern that the text must also match, if other programs print the same message
        excludes: a pattern that the text must not match, because it shows another cause
        kind: the kind of refusal of an engine or uv, for commands that handle it
        program: the error is in the user's program, its data, or a server, not in the GPU software
    """

    id: str
    example: str
    patterns: tuple[str, ...]
    causes: tuple[Cause, ...]
    certain: bool = False
    more: str = HOST
    level: str = SPECIFIC
    requires: str = ""
    excludes: str = ""
    kind: str = ""
    program: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return _compiled("|".join(f"(?:{pattern})" for pattern in self.patterns))

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Strings in lower case, one of which every matching text contains; empty if there are none."""
        found = [anchors(pattern) for pattern in self.patterns]
        return () if None in found else tuple(anchor for each in found for anchor in each or ())

    def matches(self, text: str) -> re.Match[str] | None:
        """The first match in a short text, such as the message of an exception."""
        return self.find(text, text.lower())

    def find(self, text: str, lower: str, ignored: Callable[[int], bool] = lambda place: False) -> re.Match[str] | None:
        """The first match in a text, subject to `requires` and `excludes`.

        Args:
            lower: the same text in lower case
            ignored: whether a match at this position does not count
        """
        if self.anchors and not any(word in lower for word in self.anchors):
            return None
        found = next((match for match in self.pattern.finditer(text) if not ignored(match.start())), None)
        if not found or (self.requires and not _compiled(self.requires).search(text)):
            return None
        return None if self.excludes and _compiled(self.excludes).search(text) else found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)
