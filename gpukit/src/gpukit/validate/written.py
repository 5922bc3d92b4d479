"""A letter too many, too few, changed, or exchanged, or no `\\`, in a line of the template (data/written.json)."""

from __future__ import annotations

import re
from functools import cache

from gpukit.project.data import data

WORD = re.compile(r"[A-Za-z_]+")
SHORTEST = 5  # letters of a word; a shorter one resembles too many others: units, options, models of GPUs


def mistyped(content: str) -> tuple[int, str, str] | None:
    """A line's number, in what it differs from one of the template, and what to do.

    It is the first of a file that has the template's line nowhere.
    """
    missing = [line for line in lines() if line not in content and any(half in content for half in halves(line))]
    rows = content.splitlines()
    for number, line in enumerate(rows, 1):
        text = line.strip(" ,\t")
        if f"{text} \\" in missing and rows[number : number + 1] and rows[number].startswith((" ", "\t")):
            return number, "lacks the `\\` at its end, and the next line is part of the command", "add it"
        if not text or text.startswith(("#", "//")) or text in known():
            continue
        for wanted in missing:
            found = one_letter(text, wanted)
            if found:
                word, meant = found
                return number, f"`{word}` differs from the template's word in one letter", f"did you mean `{meant}`?"
    return None


@cache
def lines() -> list[str]:
    """Long ones first: a line may contain the part that another project has of it."""
    return sorted(data("written")["lines"], key=len, reverse=True)


@cache
def known() -> frozenset[str]:
    return frozenset(lines())


def halves(wanted: str) -> tuple[str, str]:
    """One of them has no mistake."""
    half = len(wanted) // 2
    return wanted[:half], wanted[half:]


def one_letter(text: str, wanted: str) -> tuple[str, str] | None:
    """The words in which a part of the text differs from the wanted one by one letter; None if it does not."""
    first, last = halves(wanted)
    start = text.find(first)
    if start >= 0:
        at = mistake(text[start:], wanted)
        return at and words(text, start + at[0], wanted, at[0], at[1])
    end = text.rfind(last)
    if end >= 0:
        end += len(last)
        at = mistake(text[:end][::-1], wanted[::-1])
        return at and words(text, end - at[0] - 1, wanted, len(wanted) - at[0] - 1, at[1])
    return None


def mistake(text: str, wanted: str) -> tuple[int, str] | None:
    """Where a text that begins like the wanted one has its only mistake, and the characters that differ."""
    at = next((i for i, (one, other) in enumerate(zip(text, wanted)) if one != other), len(text))
    for mine, theirs in ((1, 0), (0, 1), (1, 1), (2, 2)):
        exchanged = mine < 2 or text[at : at + 2] == wanted[at : at + 2][::-1]
        if exchanged and at < len(wanted) and text[at + mine :].startswith(wanted[at + theirs :]):
            return at, text[at : at + mine] + wanted[at : at + theirs]
    return None


def words(text: str, here: int, wanted: str, there: int, changed: str) -> tuple[str, str] | None:
    """The two words, unless the other one may be meant: a plural, or a short one as in 16gb, -euo, and A100."""
    mine = around(text, here)
    theirs = around(wanted, there)
    plural = {f"{mine}s", f"{theirs}s"} & {mine, theirs}
    other = mine.lower() != theirs.lower()  # what accepts one case only is checked where it is known
    letters = re.search(r"[A-Za-z_]", changed)
    return (mine, theirs) if letters and other and len(theirs) >= SHORTEST and not plural else None


def around(text: str, at: int) -> str:
    return next((match[0] for match in WORD.finditer(text) if match.start() <= at <= match.end()), "")
