"""What a rule about an error text is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from gpukit.errors.anchors import anchors
from gpukit.findings.finding import Cause

# Where to look for more, and how to see an asynchronous CUDA error at the call that made it.
HOST, DRIVER, VERIFY = "`./launch doctor`", "`./launch doctor --only driver`", "`./launch verify`"
ENGINE, GRANT = "`./launch doctor --only engine`", "`./launch doctor --only gpu`"
MOUNTS, CARD = "`./launch doctor --only mounts`", "`./launch doctor --only card`"
BUILD, KERNEL_LOG = "`./launch build`", "`sudo dmesg | grep -i -e nvrm -e xid`"
TRACE = "`CUDA_LAUNCH_BLOCKING=1`"

# The order in which rules are asked, whatever their topic.
LEVELS = SPECIFIC, BROAD, GENERAL, NOTE = "specific", "broad", "general", "note"


@dataclass(frozen=True)
class Rule:
    """Words that an error text has, and what they can mean.

    Attributes:
        id: what `explain` takes
        example: the text as people meet it
        patterns: regular expressions, one of which must be found; case does not count
        causes: what it can be, the most frequent first, at most three. `{0}` in a sentence is what the first group
            of the pattern caught
        certain: these words have this one cause on every machine and in every program; only then is it called certain
        look: the command that tells more
        level: BROAD: words that leave the cause open; GENERAL: words of no program in particular, such as "Permission
            denied"; NOTE: a warning, and nothing is wrong
        beside: a pattern that the text must have as well, where other programs use the same words
        unless: a pattern that the text must not have, where it shows another cause
        kind: what an engine or uv refused, for the commands that react to it
        program: the error is in the user's program, its data, or a server, not in the GPU's software
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
        """Words in lower case, one of which every text of this rule has; none if that cannot be told."""
        found = [anchors(pattern) for pattern in self.patterns]
        return () if None in found else tuple(word for words in found for word in words or ())

    def matches(self, text: str) -> re.Match[str] | None:
        """The first place of its words in a short text, such as the message of one exception."""
        return self.find(text, text.lower())

    def find(self, text: str, lower: str, ignored: Callable[[int], bool] = lambda place: False) -> re.Match[str] | None:
        """The first place of its words in a text, if what belongs beside them is there and nothing that must not be.

        Args:
            lower: the same text in lower case
            ignored: whether a place in the text does not count
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
