"""Forms of values that a pattern cannot describe: the formats that the schemas name.

Each gets a text and raises ValueError with what is wrong in it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

from gpukit.project.specification import EVENTS

# A field of cron: its name, its range, and the names of its values
# (https://docs.github.com/actions/reference/workflows-and-actions/events-that-trigger-workflows, read 2026-11-26)
CRON = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of the month", 1, 31, ""),
    ("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"),
    ("day of the week", 0, 7, "SUN MON TUE WED THU FRI SAT"),
)
# What an expression of a workflow may name
# (https://docs.github.com/actions/reference/workflows-and-actions/contexts and .../expressions, read 2026-11-26)
CONTEXTS = "github env vars job jobs steps runner secrets strategy matrix needs inputs true false null NaN Infinity"
FUNCTIONS = "contains startsWith endsWith format join toJSON fromJSON hashFiles case success always cancelled failure"
TOKEN = re.compile(
    r"\s*(?:'(?:[^']|'')*'|(?P<name>\.?\s*[A-Za-z_][\w-]*)(?P<call>\s*\()?"
    r"|(?P<sign>&&|\|\||[=!<>]=|[<>!()\[\],*]|\.\*)|0x[\dA-Fa-f]+|-?\d[\d.eE+-]*|(?P<wrong>.))"
)


def cron(text: str) -> None:
    fields = text.split()
    if len(fields) != len(CRON):
        raise ValueError(f"{text!r} has {len(fields)} fields; cron has 5: minute, hour, day, month, day of the week")
    for field, (name, least, most, names) in zip(fields, CRON):
        known = {each: least + index for index, each in enumerate(names.split())}
        for part in field.split(","):
            match = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/0*[1-9]\d*)?", part)
            ends = [known.get(end.upper(), end) for end in match.groups() if end] if match else [""]
            if not all(str(end).isdecimal() and least <= int(end) <= most for end in ends):
                raise ValueError(f"{part!r} is not a {name}, {least} to {most}")


def template(text: str) -> None:
    """A text with expressions in ${{ }}."""
    for begin in [match.end() for match in re.finditer(r"\$\{\{", text)]:
        end = re.match(r"(?:'(?:[^']|'')*'|[^'])*?\}\}", text[begin:])
        if not end:
            raise ValueError("an expression has no closing }}")
        expression(end[0][:-2])


def condition(text: str) -> None:
    """An `if:`, which is an expression with or without ${{ }}."""
    if "${{" in text:
        template(text)
    else:
        expression(text)


def expression(text: str) -> None:
    depth = 0
    for match in TOKEN.finditer(text.strip()):
        name = match["name"] or ""
        if match["wrong"]:
            raise ValueError(f"an expression has no `{match['wrong']}` alone; its texts are in single quotes")
        known = FUNCTIONS if match["call"] else CONTEXTS
        if name and not name.startswith(".") and name.lower() not in known.lower().split():
            raise ValueError(f"an expression has no {'function' if match['call'] else 'context'} `{name}`")
        depth += bool(match["call"]) + (match["sign"] == "(") - (match["sign"] == ")")
        if depth < 0:
            break
    if depth:
        raise ValueError("an expression has a parenthesis without its counterpart")


def event(text: str) -> None:
    if text not in EVENTS.split():
        raise ValueError(f"there is no event {text}")


def shell(text: str, program: str = "bash") -> None:
    """A script that the shell can read. Expressions of a workflow stand for words."""
    text = re.sub(r"\$\{\{.*?\}\}", "x", text, flags=re.DOTALL)
    try:
        done = subprocess.run(
            [program, "-n"], input=text, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:  # without a shell
        return
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["a syntax error"])[0]
        raise ValueError(f"{program} cannot read it: {re.sub(r'^.*?(?=line )|^sh: ', '', first)}")


FORMATS: dict[str, Callable[[str], None]] = {
    "cron": cron,
    "template": template,
    "condition": condition,
    "bash": shell,
    "event": event,
}
