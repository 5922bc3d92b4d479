"""Words that a text must have if a regular expression is to match: searching for words is a hundred times faster."""

from __future__ import annotations

import re

MIN_LENGTH = 4
TOKENS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d*,?\d*\}|[^\\\[\](){}.*+?^$|]+|.", re.DOTALL)
OPTIONAL = re.compile(r"[?*]|\{0?,|\{0")


def anchors(pattern: str) -> list[str] | None:
    """One word, in lower case, for each alternative of a pattern; None if some alternative has none.

    Only literal characters outside of groups and classes are looked at, so that a word is always a necessary one.
    """
    found, longest, run, depth = [], "", "", 0
    for token in [*TOKENS.findall(pattern), "|"]:
        first = token[0]
        if first == "(":
            depth += 1
        elif first == ")":
            depth -= 1
        elif depth:
            continue
        elif first == "\\" and not token[1].isalnum():
            run += token[1]
            continue
        elif first not in "\\[{.*+?^$|":
            run += token
            continue
        if run:
            run = run[:-1] if OPTIONAL.match(token) else run
            longest, run = max(longest, run, key=len), ""
        if first == "|" and not depth:
            if len(longest) < MIN_LENGTH:
                return None
            found.append(longest.lower())
            longest = ""
    return found
