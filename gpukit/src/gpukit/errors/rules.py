"""Error texts as people meet them, and what each one means. Used by `./launch explain`.

A rule names a cause only where its words leave no doubt about it; where they do, it says what it may be and how to
tell (`maybe`), and is asked after those that name one. One topic a file; the more particular stands before the more
general, what only its form tells comes later (`LATE`), and a warning that ends nothing last of all (`NOTES`).
What only an engine says is in refusals.py.
"""

from __future__ import annotations

from gpukit.errors import cuda, driver, engine, files, memory, network, packages, program, ranks, tools
from gpukit.errors.rule import Words

# In the order in which they are asked: what makes other errors follow comes before what follows.
TOPICS = (driver, tools, engine, memory, cuda, ranks, files, network, packages, program)


def _part(name: str, is_open: bool) -> tuple[Words, ...]:
    return tuple(rule for topic in TOPICS for rule in getattr(topic, name, ()) if bool(rule.maybe) == is_open)


PARTICULAR, OPEN = _part("RULES", False), _part("RULES", True)
GENERAL = (*_part("LATE", False), *_part("LATE", True), *_part("NOTES", False))
RULES = (*PARTICULAR, *OPEN, *GENERAL)

__all__ = ["GENERAL", "OPEN", "PARTICULAR", "RULES", "Words"]
