"""Forms of values that a pattern cannot describe: the formats that the schemas name.

Each gets a text and raises ValueError with what is wrong in it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import partial

from gpukit.project.messages import alike
from gpukit.project.specification import ACTIVITIES, EVENTS
from gpukit.validate.problem import quoted

# A field of cron: its name, its range, and the names of its values
# (https://docs.github.com/actions/reference/workflows-and-actions/events-that-trigger-workflows, read 2026-11-26)
CRON = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of the month", 1, 31, ""),
    ("month", 1, 12, "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"),
    ("day of the week", 0, 7, "SUN MON TUE WED THU FRI SAT"),
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


# https://docs.github.com/actions/reference/workflows-and-actions/expressions (read 2026-11-26)
EXPRESSION = re.compile(r"\$\{\{((?:'[^']*'|(?!\}\})[^'])*)\}\}")
TOKENS = re.compile(r"(?:\s|'[^']*'|[\w.*-]+(?![\w.*-])|[=!<>]=|&&|\|\||[!<>()\[\],])*")

# https://docs.github.com/actions/reference/workflows-and-actions/contexts (read 2026-11-27)
CONTEXTS = "github env vars job jobs steps runner secrets strategy matrix needs inputs"


def expressions(text: str) -> None:
    if "${{" in EXPRESSION.sub("", text):
        raise ValueError("an expression has no }} at its end")
    for inside in EXPRESSION.findall(text):
        if not TOKENS.fullmatch(inside):
            rest = inside[TOKENS.match(inside).end() :].split()[0]
            raise ValueError(f"the expression cannot be read from `{rest}` on, in {quoted(inside.strip())}")
        for name in re.findall(r"(?<![\w.*-])([A-Za-z_][\w-]*)\.", re.sub(r"'[^']*'", "''", inside)):
            if name.lower() not in CONTEXTS.split():
                meant = alike(name, CONTEXTS.split())
                raise ValueError(f"an expression has no context `{name}`{f', but `{meant}`' if meant else ''}")


def condition(text: str) -> None:
    """What `if:` has, which is an expression also without ${{ }}."""
    if "${{" not in text:
        expressions(f"${{{{ {text} }}}}")


def similar(kind: str, known: list[str], text: str) -> None:
    meant = "" if text in known else alike(text, known)
    if meant:  # GitHub adds others
        raise ValueError(f"there is no {kind} {text}, but there is {meant}")


HERE = re.compile(r"((?<!<)<<-?\s*[\"']?([A-Za-z_]\w*)[\"']?[^\n]*)\n(?:.*\n)*?\s*\2(?=\s|$)")  # a here-document
QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<!\S)#[^\n]*")  # or a comment


def shell(text: str, program: str = "bash") -> None:
    """A script that the shell can read. Expressions of a workflow stand for words."""
    plain = QUOTED.sub("x", HERE.sub(r"\1", text))
    if "\n" not in text.strip() and re.search(r"\s\\ +-", plain):
        raise ValueError("its lines have become one, with `\\` inside: begin it with `|` in the line of its key")
    if spaced := re.search(r"(?m)^[ \t]*([A-Za-z_]\w*) += *(?!=)", plain):
        raise ValueError(f"{spaced[1]} has a space before its `=`, so that it is a program for the shell")
    for exported in re.findall(r"(?m)(?:^|[;&])[ \t]*export ([^\n;&|(`]*)(?=[\n;&|]|$)", plain):
        other = [word for word in exported.split() if not re.fullmatch(r"[A-Za-z_]\w*(\+?=.*)?|-\w+|.*\$.*", word)]
        if other:
            raise ValueError(f"`export` has {other[0]}, which is no variable: two lines may have become one")
    if re.search(r"(?m)\\[ \t]+$", plain):
        raise ValueError("a line ends in `\\` and a space, so that the command ends there")
    commands = plain.replace("\\\n", " ")
    while (shorter := re.sub(r"\([^()]*\)", "x", commands)) != commands:  # the items of a list may begin with -
        commands = shorter
    if lost := re.search(r"(?m)^[ \t]*(--?[A-Za-z][\w-]*)(?!.*\))", commands):
        raise ValueError(f"{lost[1]} begins a command: the line before has lost the `\\` at its end")
    if re.search(r"\$!", plain) and not re.search(r"(?<![&<>|])&(?![&>])|\bcoproc\b", plain):
        raise ValueError("`$!` is the program that a `&` started, and no command ends with one")
    text = EXPRESSION.sub("x", text)
    try:
        done = subprocess.run(
            [program, "-n"], input=text, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:  # without a shell
        return
    if done.returncode:
        first = (done.stderr.strip().splitlines() or ["a syntax error"])[0]
        raise ValueError(f"{program} cannot read it: {re.sub(r'^.*?(?=line )|^sh: ', '', first)}")


def brackets(text: str) -> None:
    """Whether brackets and quotes are closed, as in all languages of expressions."""
    rest = re.sub(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|#.*", "", text)
    while (shorter := re.sub(r"\([^()\[\]{}\"']*\)|\[[^()\[\]{}\"']*\]|\{[^()\[\]{}\"']*\}", "", rest)) != rest:
        rest = shorter
    if left := re.search(r"[()\[\]{}\"']", rest):
        raise ValueError(f"a `{left[0]}` has no other half")


FORMATS: dict[str, Callable[[str], None]] = {
    "brackets": brackets,
    "activity": partial(similar, "activity", ACTIVITIES.split()),
    "condition": condition,
    "cron": cron,
    "bash": shell,
    "event": partial(similar, "event", EVENTS.split()),
    "expressions": expressions,
}
