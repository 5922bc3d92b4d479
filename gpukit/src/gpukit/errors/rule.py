"""What a rule about an error text is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

HOST, DRIVER, VERIFY = "./launch doctor", "./launch doctor --only driver", "./launch verify"
ENGINE, GRANT, MOUNTS = "./launch doctor --only engine", "./launch doctor --only gpu", "./launch doctor --only mounts"
CARD, BUILD, KERNEL_LOG = "./launch doctor --only card", "./launch build", "sudo dmesg | grep -i -e nvrm -e xid"
TRACE = "CUDA_LAUNCH_BLOCKING=1"


@dataclass(frozen=True)
class Words:
    """One cause that an error text can name, and the one thing to do.

    `says` is the text as people meet it, for the page. `when`: patterns, one of which must be found; case does not
    count. `{0}` in a sentence is what the first group that matched has caught. `look`: the command that tells more.
    `maybe` is for words that leave the cause open: what it may be, each with what it is told by. `cause` then says no
    more than is certain, and `remedy` what to do first. `beside`: what must stand somewhere in the text as well,
    where other programs say the same words. `unless`: what must not, where it shows another cause.
    """

    id: str
    says: str
    when: tuple[str, ...]
    cause: str
    remedy: str
    look: str = HOST
    maybe: tuple[tuple[str, str], ...] = ()
    beside: str = ""
    unless: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{pattern})" for pattern in self.when), re.IGNORECASE | re.MULTILINE)

    @cached_property
    def field(self) -> re.Pattern[str]:
        return re.compile(self.beside, re.IGNORECASE | re.MULTILINE)

    @cached_property
    def other(self) -> re.Pattern[str]:
        return re.compile(self.unless, re.IGNORECASE | re.MULTILINE)

    def find(self, text: str) -> re.Match[str] | None:
        """Where its words stand in the text, which must have what belongs beside them and nothing that must not."""
        found = self.pattern.search(text)
        if not found or (self.beside and not self.field.search(text)):
            return None
        return None if self.unless and self.other.search(text) else found
