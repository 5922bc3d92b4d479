"""All error texts that are known, in the order in which they are asked for.

One topic a file; in it, the more specific rule stands before the more general one.
"""

from __future__ import annotations

from gpukit.errors import cuda, driver, engine, files, memory, network, packages, program, ranks, tools
from gpukit.errors.rule import LEVELS, Rule
from gpukit.findings.finding import Cause

# What makes other errors follow comes before what follows.
TOPICS = (driver, tools, engine, memory, cuda, ranks, files, network, packages, program)
RULES: tuple[Rule, ...] = tuple(
    rule for level in LEVELS for topic in TOPICS for rule in topic.RULES if rule.level == level
)


def named(*ids: str) -> tuple[Rule, ...]:
    """The rules with these ids, in their own order: for code that reacts to an error, whose words they decide.

    Raises:
        KeyError: there is no such rule
    """
    found = tuple(rule for rule in RULES if rule.id in ids)
    if missing := set(ids) - {rule.id for rule in found}:
        raise KeyError(*sorted(missing))
    return found


def cause(id: str) -> Cause:
    """A cause by its id.

    Raises:
        KeyError: no rule has it
    """
    for rule in RULES:
        for each in rule.causes:
            if each.id == id:
                return each
    raise KeyError(id)
