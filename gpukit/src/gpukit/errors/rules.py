"""All rules, in the order in which they are tried.

Each topic has its own file; in it, more specific rules come before more general ones.
"""

from __future__ import annotations

from gpukit.errors import cuda, driver, engine, files, memory, network, packages, program, ranks, tools
from gpukit.errors.rule import LEVELS, Rule
from gpukit.findings.finding import Cause

# Topics whose errors cause other errors come first.
TOPICS = (driver, tools, engine, memory, cuda, ranks, files, network, packages, program)
RULES: tuple[Rule, ...] = tuple(
    rule for level in LEVELS for topic in TOPICS for rule in topic.RULES if rule.level == level
)


def named(*ids: str) -> tuple[Rule, ...]:
    """The rules with these ids, in their own order.

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
