"""Checks, and the command line that runs them: each is a pure function from probe results to a finding."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

from gpukit.findings.causes import NATIVE, PROJECT, STANDALONE, cause, shown
from gpukit.findings.finding import (
    FAIL,
    WARN,
    Finding,
    exit_code,
    in_words,
    map_texts,
    markdown,
    skipped,
    table,
    to_json,
    unknown,
)
from gpukit.findings.private import mask
from gpukit.project.location import find_root, located, root
from gpukit.project.messages import as_called, plain
from gpukit.project.stack import Stack, StackError, load

ISSUE = "you can attach it to an issue: secrets and the names of users and machines are hidden"


@dataclass(frozen=True)
class Check:
    """`judge` gets the probes (an object whose attributes are evaluated on first access) and the stack.

    `causes`: the ids of what it can report, in the order in which it checks. `level`: --quick skips "full".
    `project`: it checks a project, and is left out outside one. `container`: it is about a container, and is skipped
    natively. `native`: it runs in a native environment.
    """

    id: str
    title: str
    judge: Callable[[Any, Stack], Finding]
    needs: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    level: str = "quick"
    about: str = ""
    project: bool = False
    container: bool = False
    native: bool = False

    def __call__(self, probes: Any, stack: Stack) -> Finding:
        finding = self.judge(probes, stack)
        finding = replace(finding, special=(*finding.special, *getattr(probes, "special_places", ())))
        finding = in_words(finding, place_of(stack, self.native), stack.native.get("install", ""))
        return map_texts(finding, plain)


def place_of(stack: Stack, native: bool) -> str:
    """Where the remedies of a run are to be followed."""
    if stack.standalone:
        return STANDALONE
    return NATIVE if native else PROJECT


def check(
    id: str,
    title: str,
    needs: str = "",
    causes: str | Iterable[str] = (),
    level: str = "quick",
    project: bool = False,
    container: bool = False,
    skip: Callable[[Any, Stack], Finding | None] = lambda probes, stack: None,
) -> Callable[[Callable[[Any, Stack], Finding]], Check]:
    """Turn a function into a check; its docstring is the description in `explain` and the docs.

    Args:
        needs: the ids of the checks that it needs, separated by spaces
        causes: the ids of the causes that it can report, separated by spaces, or a list
        skip: why there is nothing to check; None if there is
    """
    ids = tuple(causes.split() if isinstance(causes, str) else causes)

    def decorated(judge: Callable[[Any, Stack], Finding]) -> Check:
        def judged(probes: Any, stack: Stack) -> Finding:
            return skip(probes, stack) or judge(probes, stack)

        about = " ".join((judge.__doc__ or "").split())
        return Check(id, title, judged, tuple(needs.split()), ids, level, about, project, container)

    return decorated


def natively(each: Check, own: Callable[[Stack], Stack]) -> Check:
    """A check in a native environment, where nothing is about a container. `own`: the stack as it is there."""

    def judged(probes: Any, stack: Stack) -> Finding:
        return skipped("not-used-natively") if each.container else each.judge(probes, own(stack))

    return replace(each, judge=judged, native=True)


def checks_of(*modules: ModuleType, level: str = "") -> list[Check]:
    """The checks of these modules, in the order in which they are written there; of one level, if it is given."""
    checks = [each for module in modules for each in vars(module).values() if isinstance(each, Check)]
    return [each for each in checks if level in ("", each.level)]


def select(
    checks: Iterable[Check], only: Iterable[str] = (), skip: Iterable[str] = (), quick: bool = False
) -> list[Check]:
    """The selected checks and those that they need, in the original order."""
    checks = list(checks)
    only = list(only)
    skip = set(skip)
    if quick and not only:
        only = [each.id for each in checks if each.level == "quick"]
    known = {each.id: each for each in checks}
    for name in [*only, *sorted(skip)]:
        if name not in known:
            raise KeyError(name)
    wanted = set(only or known)
    for each in reversed(checks):  # a check comes after those that it needs
        if each.id in wanted:
            wanted.update(each.needs)
    return [each for each in checks if each.id in wanted and each.id not in skip]


def run(
    checks: Iterable[Check],
    probes: Any,
    stack: Stack,
    progress: Callable[[int, Check], None] = lambda number, each: None,
) -> list[Finding]:
    """One finding per check. Checks that depend on a failed one are skipped, so that each fault is reported once."""
    findings: list[Finding] = []
    failed: dict[str, str] = {}  # a check that failed or was skipped -> the failed check
    for number, each in enumerate(checks):
        progress(number, each)
        started = time.monotonic()
        culprit = next((failed[need] for need in each.needs if need in failed), None)
        if culprit is not None:
            finding = in_words(skipped("needed-check-failed", check=culprit), PROJECT)
        else:
            finding = _run_check(each, probes, stack)
            culprit = each.id if finding.status == FAIL or not finding.completed else None
        if culprit is not None:
            failed[each.id] = culprit
        seconds = round(time.monotonic() - started, 3)
        findings.append(replace(finding, id=each.id, title=each.title, seconds=seconds))
    return findings


def _run_check(each: Check, probes: Any, stack: Stack) -> Finding:
    try:
        return each(probes, stack)
    except Exception as error:  # a defect in one check must not hide the findings of the others
        finding = unknown("check-itself-failed", error=f"{type(error).__name__}: {error}")
        return map_texts(in_words(finding, PROJECT), plain)


def command(
    tool: str,
    about: str,
    checks: Iterable[Check],
    look: Callable[[Stack], contextlib.AbstractContextManager[Any]],
    argv: list[str] | None = None,
    record: Callable[[list[Finding], Any, Stack, Path | None], str] | None = None,
    needs: Callable[[], Stack] | None = None,
    more: Callable[[Any, Stack], tuple[dict[str, Any], str]] = lambda probes, stack: ({}, ""),
) -> int:
    """The command line that doctor and verify share.

    `record` stores a run and returns a message with its path, or why it was not stored. `needs`: the requirements of
    this machine's hardware, which replace stack.json outside a project; checks of a project are then left out. `more`:
    what is added to the findings, in the JSON document and below the table.
    """
    checks = list(checks)
    options = _parser(tool, about, checks, record is not None).parse_args(argv)
    if options.stack is not None or find_root() is not None:
        needs = None
    if needs:
        checks = [each for each in checks if not each.project]
    for stream in (sys.stdout, sys.stderr):  # a character that the terminal's encoding lacks must not raise
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    hide = mask(root())

    def refuse(reason: str) -> int:
        return _report_error(tool, hide(reason), options.json)

    try:
        chosen = select(checks, options.only, options.skip, options.quick)
    except KeyError as error:
        known = ", ".join(each.id for each in checks)
        where = " outside a project" if needs else ""
        return refuse(f"there is no check {error.args[0]!r}{where}; the checks are: {known}")
    if not chosen:
        return refuse("no check is left to run")
    try:
        stack = needs() if needs else load(options.stack)
    except StackError as error:
        return refuse(str(error))
    notes = []
    with look(stack) as probes:
        if hasattr(probes, "prepare"):
            probes.prepare([each.id for each in chosen], options.stress)
        with status_line() as say:
            findings = run(
                chosen, probes, stack, lambda number, each: say(f"[{number + 1}/{len(chosen)}] {each.title}")
            )
        findings = [replace(map_texts(finding, hide), link=_link(finding, stack)) for finding in findings]
        document, text = more(probes, stack)
        try:
            if options.report:
                notes.append(f"Written: {_report(tool, options, findings, stack)}; {ISSUE}.")
            if getattr(options, "record", None) and record is not None:
                notes.append(record(findings, probes, stack, None if options.record is True else Path(options.record)))
        except OSError as error:
            return refuse(f"{error.filename} cannot be written: {error.strerror or error}")
    if options.json:
        print(json.dumps({**to_json(tool, stack.project, findings, strict=options.strict), **document}, indent=2))
    else:
        print(table(findings, shutil.get_terminal_size().columns, use_color(sys.stdout)))
        if text:
            print(f"\n{text}")
    sys.stdout.flush()
    for note in notes:
        print(hide(note), file=sys.stderr)
    return exit_code(findings, options.strict)


def _link(finding: Finding, stack: Stack) -> str:
    explained = finding.status in (WARN, FAIL) or not finding.completed
    return as_called(f"./launch explain {finding.id}", not stack.standalone) if explained else ""


def _report(tool: str, options: argparse.Namespace, findings: list[Finding], stack: Stack) -> Path:
    """Write the report, a Markdown file. The image's own user is not hidden: every image has the same one."""
    hide = mask(root(), spare=(stack.user,))
    about = {
        "date": date.today().isoformat(),
        "project": "none" if stack.standalone else "",
        "stack": f"{stack.base} {stack.release} ({stack.channel}), PyTorch {stack.torch}, CUDA {stack.cuda or 'none'}",
        "image": stack.image,
        "targets": ", ".join(stack.targets),
        "options": " ".join(name for name in ("quick", "stress") if getattr(options, name)),
    }
    folder = root() if stack.standalone else located("outputs")
    file = folder / f"{tool}-report.md" if options.report is True else Path(options.report)
    file.parent.mkdir(parents=True, exist_ok=True)
    about = {name: hide.report(text) for name, text in about.items()}
    text = markdown(tool, about, [map_texts(finding, hide.report) for finding in findings])
    file.write_text(text, encoding="utf-8")
    return file


def explain(each: Check, place: str = PROJECT) -> str:
    """A check and all causes that it can report, as plain text, with the remedies for this place."""
    lines = [f"{each.title} [{each.id}]", *([f"  {each.about}"] if each.about else [])]
    if each.needs:
        lines.append(f"  Needs: {', '.join(each.needs)}.")
    for own in map(cause, each.causes):
        lines += ["", f"  {own.status}  {shown(own.why, place)} [{own.id}]"]
        lines.append(f"        remedy      {shown(own.remedy, place)}")
    return "\n".join(lines)


def use_color(stream: Any) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _parser(tool: str, about: str, checks: list[Check], records: bool) -> argparse.ArgumentParser:
    width = max(len(each.id) for each in checks)
    outside = find_root() is None
    rows = ((each.id, each.title + " (in a project)" * (outside and each.project)) for each in checks)
    listed = "\n".join(f"  {id:<{width}}  {title}" for id, title in rows)
    codes = "exit code: 0 no check fails, 1 a check fails, 2 a check could not run, 3 with --strict: a warning"
    codes += "\nalso --cpu, --gpus, --native, --dry-run: see `./launch --help`" if find_root() is not None else ""
    project = find_root() is not None and not Path("/etc/gpukit").is_dir()  # in the container, the command is `gpukit`
    parser = argparse.ArgumentParser(
        prog=as_called(f"./launch {tool}", project),
        description=as_called(about, project),
        epilog=as_called(f"checks, in the order they run:\n{listed}\n\n{codes}", project),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--stack", type=Path, metavar="FILE", help="file with the expected values (default: stack.json)"
    )
    parser.add_argument(
        "--only", type=_id_list, default=[], metavar="ID,..", help="run only these checks and those that they need"
    )
    parser.add_argument("--skip", type=_id_list, default=[], metavar="ID,..", help="skip these checks")
    parser.add_argument("--quick", action="store_true", help="run only the quick checks")
    parser.add_argument("--strict", action="store_true", help="exit with 3 if there are warnings")
    parser.add_argument("--stress", action="store_true", help="also run load tests, within safe limits")
    parser.add_argument(
        "--report",
        nargs="?",
        const=True,
        metavar="FILE",
        help=f"write a Markdown file for an issue, without secrets or names (default: outputs/{tool}-report.md, or "
        f"{tool}-report.md outside a project)",
    )
    if records:
        parser.add_argument(
            "--record",
            nargs="?",
            const=True,
            metavar="FILE",
            help="write the run as a small JSON file for the template's table of verified hardware; needs a GPU",
        )
    return parser


def _id_list(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _report_error(tool: str, reason: str, as_json: bool) -> int:
    reason = plain(reason)
    if as_json:
        print(json.dumps(to_json(tool, "", [], reason), indent=2))
    print(f"{tool}: {reason}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show what is done on one line, which is cleared at the end; only if stderr is a terminal."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(text: str) -> None:
        if shown:
            print(f"\r\033[K{text} ...", end="", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
