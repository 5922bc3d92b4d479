"""What a rule about an error text is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

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
    look: str = HOST
    level: str = SPECIFIC
    beside: str = ""
    unless: str = ""
    kind: str = ""
    program: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{pattern})" for pattern in self.patterns), re.IGNORECASE | re.MULTILINE)

    @cached_property
    def field(self) -> re.Pattern[str]:
        return re.compile(self.beside, re.IGNORECASE | re.MULTILINE)

    @cached_property
    def other(self) -> re.Pattern[str]:
        return re.compile(self.unless, re.IGNORECASE | re.MULTILINE)

    def find(self, text: str) -> re.Match[str] | None:
        """Where its words are in the text, if what belongs beside them is there and nothing that must not be."""
        found = self.pattern.search(text)
        if not found or (self.beside and not self.field.search(text)):
            return None
        return None if self.unless and self.other.search(text) else found
