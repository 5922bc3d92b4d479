"""The result of one check, and how it is printed for users and programs."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"
STATUSES = (PASS, WARN, FAIL, SKIP)
COLORS = {PASS: "32", WARN: "33", FAIL: "1;31", SKIP: "2"}


@dataclass(frozen=True)
class Finding:
    """`completed` is False if the check itself raised an error. `link` is the command that explains the finding.

    `standalone`: the remedy outside a project, if it differs; see `for_standalone`.
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
    standalone: str = ""
    names: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # values of the placeholders


# What `./launch add` does not install: options, folders, packages of the bases, and the installers themselves.
NOT_FOR_ADD = re.compile(r"[-.]|(?:torch|triton|numpy|nvidia-|cuda-|flash-attn|apex|pip|uv|docker)(?!codec)")
# Commands that run natively with `--native`, see gpukit.launch.native.
NATIVE_COMMANDS = re.compile(r"\./launch (?!--native)((?:--cpu )?(?:build|run|shell|notebook|verify|add|logs|stop)\b)")
IMAGE = re.compile(
    r"apt\.txt|Dockerfile|the image\b"
)  # a remedy that changes the image, which a native environment lacks
TEXTS = ("seen", "expected", "cause", "remedy")


@dataclass(frozen=True)
class Cause:
    """One thing that can be wrong, and its remedy. Code uses only `id`; the sentences are for users.

    `why` and `remedy` may contain placeholders in braces, filled in when the cause is found. `error_texts`: error
    messages that users see. `tell`: how to distinguish it from other causes of the same error text. `given`: the
    evidence for or against it. `standalone`: the remedy outside a project, if the other one needs a project;
    `{install}` in it becomes the command that installs PyTorch for this machine.
    """

    id: str
    why: str
    remedy: str
    error_texts: tuple[str, ...] = ()
    status: str = FAIL
    tell: str = ""
    given: Any = None
    standalone: str = ""

    def __call__(self, seen: str, expected: str = "", **names: Any) -> Finding:
        why, remedy = (text.format(**names) if names else text for text in (self.why, self.remedy))
        standalone = self.standalone.format(**{"install": "{install}", **names}) if names else self.standalone
        return Finding("", "", self.status, seen, expected, self.id, why, remedy, standalone=standalone, names=names)

    def found(self, finding: Finding) -> bool:
        """Whether a check found this cause."""
        return finding.status in (WARN, FAIL) and finding.cause_id == self.id


def passed(seen: str, expected: str = "") -> Finding:
    return Finding("", "", PASS, seen, expected)


def skipped(cause: str, seen: str = "", expected: str = "", *, remedy: str = "") -> Finding:
    return Finding("", "", SKIP, seen, expected, cause=cause, remedy=remedy)


def commands(text: str, project: bool, native: bool = False) -> str:
    """A text with our commands as they are called here: `./launch doctor` in a project, `gpukit doctor` outside one.

    In a project, packages are installed with `./launch add`, except those of the base. `native`: in a native
    environment, where commands need `--native`.
    """
    if not project:
        return re.sub(r"\./launch\b", "gpukit", text.replace("./launch add ", "pip install "))
    text = re.sub(r"`pip install (?:-U )?([^`]+)`", _with_add, text)
    return NATIVE_COMMANDS.sub(r"./launch --native \1", text) if native else text


def _with_add(found: re.Match[str]) -> str:
    packages = shlex.split(found[1])
    return found[0] if any(map(NOT_FOR_ADD.match, packages)) else f"`./launch add {found[1]}`"


def remedy(cause: Any, project: bool, native: bool = False) -> str:
    """The remedy of a cause or finding, for a project, for its native environment, or outside a project."""
    changes_image = bool(IMAGE.search(cause.remedy))
    text = cause.standalone if cause.standalone and (not project or (native and changes_image)) else cause.remedy
    return commands(text, project, native)


def for_standalone(finding: Finding, install: str = "pip install torch") -> Finding:
    """The finding with the texts for use outside a project; `install`: the command that installs PyTorch."""
    remedy = (finding.standalone or finding.remedy).replace("{install}", install)
    return map_texts(replace(finding, remedy=remedy, standalone=""), lambda text: commands(text, project=False))


def map_texts(finding: Finding, change: Callable[[str], str]) -> Finding:
    """The same finding with each of its texts changed."""
    return replace(finding, **{name: change(getattr(finding, name)) for name in TEXTS})


def exit_code(findings: list[Finding]) -> int:
    """0: no check failed. 1: a check failed. 2: a check could not run."""
    if any(finding.status == FAIL for finding in findings):
        return 1
    return 0 if all(finding.completed for finding in findings) else 2


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
    for finding in findings:
        shown = finding.cause if finding.status == SKIP else finding.seen
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


def to_json(tool: str, project: str, findings: list[Finding], error: str = "") -> dict[str, object]:
    """The document that `--json` prints; findings.schema.json describes it."""
    return {
        "schema": 1,
        "tool": tool,
        "project": project,
        "exit_code": 2 if error else exit_code(findings),
        "verdict": f"UNKNOWN: {error}" if error else verdict(findings),
        "counts": {status: len(named(findings, status)) for status in STATUSES},
        "findings": [
            {
                each.name: getattr(finding, each.name)
                for each in fields(finding)
                if each.name not in ("standalone", "names")
            }
            for finding in findings
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
