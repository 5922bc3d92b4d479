"""The result of one check, and how it is printed for users and programs."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpukit.findings.causes import cause, worded

PASS = "PASS"
WARN = "WARN"
FAIL = "FAIL"
SKIP = "SKIP"
UNKNOWN = "UNKNOWN"  # of a cause: the check could not be completed, because something did not answer in time
STATUSES = (PASS, WARN, FAIL, SKIP)
COLORS = {PASS: "32", WARN: "33", FAIL: "1;31", SKIP: "2"}


@dataclass(frozen=True)
class Finding:
    """The result of one check. `cause` and `remedy` are filled in by `in_words`, when the place is known.

    `completed` is False if the check raised an error, or something did not answer in time. `link` is the command that
    explains the finding. `values` are those of the cause's placeholders; `special`: places whose sentences come first,
    such as podman.
    """

    id: str
    title: str
    status: str
    seen: str = ""
    expected: str = ""
    cause_id: str = ""
    cause: str = ""
    remedy: str = ""
    completed: bool = True
    seconds: float = 0.0
    link: str = ""
    values: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    special: tuple[str, ...] = field(default=(), compare=False, repr=False)


TEXTS = ("seen", "expected", "cause", "remedy")


def passed(seen: str, expected: str = "") -> Finding:
    return Finding("", "", PASS, seen, expected)


def problem(cause_id: str, seen: str, expected: str = "", **values: Any) -> Finding:
    """What is wrong, by the id of its cause in knowledge/, which also has its status; `values`: of its placeholders.

    Raises:
        KeyError: there is no such cause
    """
    status = cause(cause_id).status
    known = status != UNKNOWN
    return Finding("", "", status if known else SKIP, seen, expected, cause_id, completed=known, values=values)


def skipped(cause_id: str, seen: str = "", expected: str = "", **values: Any) -> Finding:
    """Why something was not checked, by the id of its cause in knowledge/."""
    return replace(problem(cause_id, seen, expected, **values), status=SKIP, completed=True)


def unknown(cause_id: str, **values: Any) -> Finding:
    """Why a check could not be completed: the verdict is then UNKNOWN."""
    return replace(skipped(cause_id, **values), completed=False)


def in_words(finding: Finding, place: str, install: str = "") -> Finding:
    """The finding with its cause and remedy as they are worded in this place, see gpukit.findings.causes.

    Args:
        install: the command that installs PyTorch for this machine
    """
    if not finding.cause_id:
        return finding
    known = {**finding.values, **({"install": install} if install else {})}
    own = cause(finding.cause_id)
    elsewhere = own.host and "container" in finding.special
    texts = {"cause": own.why, "remedy": cause("other-host").remedy if elsewhere else own.remedy}
    words = {name: worded(text, place, known, finding.special) for name, text in texts.items()}
    return replace(finding, **words)


def map_texts(finding: Finding, change: Callable[[str], str]) -> Finding:
    """The same finding with each of its texts changed."""
    return replace(finding, **{name: change(getattr(finding, name)) for name in TEXTS})


def exit_code(findings: list[Finding], strict: bool = False) -> int:
    """0: no check failed. 1: a check failed. 2: a check could not run. 3, if `strict`: there is a warning."""
    if any(finding.status == FAIL for finding in findings):
        return 1
    if not all(finding.completed for finding in findings):
        return 2
    return 3 if strict and any(finding.status == WARN for finding in findings) else 0


def named(findings: list[Finding], status: str) -> list[str]:
    return [finding.id for finding in findings if finding.status == status]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def verdict(findings: list[Finding]) -> str:
    """The whole run in one line."""
    fails, warns, skips = (named(findings, status) for status in (FAIL, WARN, SKIP))
    blind = [finding.id for finding in findings if not finding.completed]
    skips = [check for check in skips if check not in blind]
    rest = f" {count(len(skips), 'check')} skipped." if skips else ""
    if fails:
        advice = "Start with the first." if len(fails) > 1 else "See the remedy above."
        return f"FAIL: {', '.join(fails)}. {advice}{rest}"
    if blind:
        return f"UNKNOWN: could not check {', '.join(blind)}.{rest}"
    if warns:
        return f"PASS, with warnings: {', '.join(warns)}.{rest}"
    if len(skips) == len(findings):
        return f"SKIP: nothing was checked.{rest}"
    return f"PASS: {count(len(findings) - len(skips), 'check')} passed.{rest}"


def table(findings: list[Finding], width: int = 80, color: bool = False) -> str:
    """One line per check, then the details of those that did not pass, then the verdict."""
    width = max(60, min(width, 110))
    title_width = max((len(finding.title) for finding in findings), default=0)
    lines = []
    skipped_for = ""
    for finding in findings:
        shown = finding.cause if finding.status == SKIP and finding.completed else finding.seen
        repeated = bool(shown) and shown == skipped_for
        skipped_for = shown if finding.status == SKIP else ""
        shown = "as above" if repeated and skipped_for else shown
        first, *more = _wrap(shown or finding.cause, width - 8 - title_width)
        if len(more) > 1 and has_details(finding):
            more = [f"{more[0]} ..."]
        lines.append(f"{_colored(finding.status, color)}  {finding.title:<{title_width}}  {first}".rstrip())
        lines += [" " * (8 + title_width) + line for line in more]
    for finding in findings:
        if has_details(finding):
            lines += ["", *_details(finding, width, color)]
    return "\n".join([*lines, "", verdict(findings)])


def markdown(tool: str, about: dict[str, str], findings: list[Finding]) -> str:
    """The whole run as Markdown, for an issue."""
    lines = [f"### {tool}: {_cell(verdict(findings))}", ""]
    lines += [f"- {name}: {_cell(text)}" for name, text in about.items() if text]
    lines += ["", "| status | check | seen |", "|---|---|---|"]
    for finding in findings:
        shown = finding.cause if finding.status == SKIP else finding.seen or finding.cause
        lines.append(f"| {finding.status} | {_cell(finding.title)} (`{finding.id}`) | {_cell(shown)} |")
    for finding in findings:
        if has_details(finding):
            lines += ["", f"**{finding.status}: {_cell(finding.title)}** (`{finding.id}`)", ""]
            lines += [f"- {name}: {_cell(text)}" for name, text in pairs(finding)]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Escape text for Markdown."""
    return re.sub(r"([\\|*_`#\[\]])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def to_json(
    tool: str, project: str, findings: list[Finding], error: str = "", strict: bool = False
) -> dict[str, object]:
    """The document that `--json` prints; findings.schema.json describes it."""
    return {
        "schema": 1,
        "tool": tool,
        "project": project,
        "exit_code": 2 if error else exit_code(findings, strict),
        "verdict": f"UNKNOWN: {error}" if error else verdict(findings),
        "counts": {status: len(named(findings, status)) for status in STATUSES},
        "findings": [
            {each.name: getattr(finding, each.name) for each in fields(finding) if each.repr} for finding in findings
        ],
    }


def has_details(finding: Finding) -> bool:
    """Whether its details are printed below the table."""
    return finding.status in (WARN, FAIL) or bool(finding.remedy)


def _details(finding: Finding, width: int, color: bool) -> list[str]:
    lines = [f"{_colored(finding.status, color)}  {finding.title} [{finding.id}]"]
    for name, text in pairs(finding):
        first, *more = _wrap(text, width - 16)
        lines += [f"      {name:<8}  {first}", *(" " * 16 + line for line in more)]
    return lines


def pairs(finding: Finding) -> list[tuple[str, str]]:
    """Its details: name and text."""
    texts = [(name, getattr(finding, name)) for name in TEXTS]
    return [(name, text) for name, text in [*texts, ("more", finding.link)] if text]


def _wrap(text: str, width: int) -> list[str]:
    # Words are not broken at hyphens: commands and versions are copied from here.
    return textwrap.wrap(text, max(20, width), break_on_hyphens=False) or [""]


def _colored(status: str, color: bool) -> str:
    return f"\033[{COLORS[status]}m{status}\033[0m" if color else status
