"""Checks and how they are run: in order, each as a pure function from what a probe saw to a finding."""

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
from pathlib import Path
from typing import Any

from gpukit.finding import FAIL, Finding, exit_code, plain, skipped, table, to_json
from gpukit.stack import BESIDE, Stack, StackError, load


@dataclass(frozen=True)
class Check:
    """`judge` gets what the probes saw (an object whose attributes look when they are read) and the stack."""

    id: str
    title: str
    judge: Callable[[Any, Stack], Finding]
    needs: tuple[str, ...] = ()

    def __call__(self, saw: Any, stack: Stack) -> Finding:
        finding = replace(self.judge(saw, stack), id=self.id, title=self.title)
        texts = {name: plain(getattr(finding, name)) for name in ("seen", "expected", "cause", "remedy")}
        return replace(finding, **texts)


def check(id: str, title: str, needs: Iterable[str] = ()) -> Callable[[Callable[[Any, Stack], Finding]], Check]:
    return lambda judge: Check(id, title, judge, tuple(needs))


def select(checks: Iterable[Check], only: Iterable[str] = (), skip: Iterable[str] = ()) -> list[Check]:
    """Those asked for, with those they need, in the order they stand."""
    checks, only, skip = list(checks), list(only), set(skip)
    known = {each.id: each for each in checks}
    for name in [*only, *sorted(skip)]:
        if name not in known:
            raise KeyError(name)
    wanted = set(only or known)
    for each in reversed(checks):  # a check stands after those it needs
        if each.id in wanted:
            wanted.update(each.needs)
    return [each for each in checks if each.id in wanted and each.id not in skip]


def run(
    checks: Iterable[Check], saw: Any, stack: Stack, progress: Callable[[int, Check], None] = lambda number, each: None
) -> list[Finding]:
    """One finding for each check. What depends on a failed check is skipped, and says so instead of failing again."""
    findings: list[Finding] = []
    failed: dict[str, str] = {}  # a check that failed, or was skipped for one that did -> the one that failed
    for number, each in enumerate(checks):
        progress(number, each)
        started = time.monotonic()
        culprit = next((failed[need] for need in each.needs if need in failed), None)
        if culprit is not None:
            finding = replace(skipped(f"`{culprit}` failed, and this depends on it."), id=each.id, title=each.title)
        else:
            finding = _looked(each, saw, stack)
            culprit = each.id if finding.status == FAIL or not finding.looked else None
        if culprit is not None:
            failed[each.id] = culprit
        findings.append(replace(finding, seconds=round(time.monotonic() - started, 3)))
    return findings


def _looked(each: Check, saw: Any, stack: Stack) -> Finding:
    try:
        return each(saw, stack)
    except Exception as error:  # a check that breaks must not hide what the others have to say
        cause = plain(f"The check itself broke: {type(error).__name__}: {error}")
        return replace(skipped(cause), id=each.id, title=each.title, looked=False)


def command(
    tool: str,
    about: str,
    checks: Iterable[Check],
    look: Callable[[Stack], contextlib.AbstractContextManager[Any]],
    argv: list[str] | None = None,
) -> int:
    """The command line that doctor and verify share."""
    checks = list(checks)
    options = _parser(tool, about, checks).parse_args(argv)
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal's encoding lacks must not end the run
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _command(tool, checks, look, options)
    except KeyboardInterrupt:
        print(f"\n{tool}: stopped before the end", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader left, as in `verify | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _command(
    tool: str,
    checks: list[Check],
    look: Callable[[Stack], contextlib.AbstractContextManager[Any]],
    options: argparse.Namespace,
) -> int:
    try:
        chosen = select(checks, options.only, options.skip)
    except KeyError as error:
        known = ", ".join(each.id for each in checks)
        return _blind(tool, f"there is no check {error.args[0]!r}; there are: {known}", options.json)
    if not chosen:
        return _blind(tool, "no check is left to run", options.json)
    try:
        stack = load(options.stack)
    except StackError as error:
        return _blind(tool, str(error), options.json)
    with look(stack) as saw, _progress(len(chosen)) as progress:
        findings = run(chosen, saw, stack, progress)
    if options.json:
        print(json.dumps(to_json(tool, stack.project, findings), indent=2))
    else:
        print(table(findings, shutil.get_terminal_size().columns, colourful(sys.stdout)))
    sys.stdout.flush()
    return exit_code(findings)


def colourful(stream: Any) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _parser(tool: str, about: str, checks: list[Check]) -> argparse.ArgumentParser:
    width = max(len(each.id) for each in checks)
    listed = "\n".join(f"  {each.id:<{width}}  {each.title}" for each in checks)
    codes = "exit code: 0 nothing fails, 1 a check fails, 2 could not look"
    parser = argparse.ArgumentParser(
        prog=tool,
        description=about,
        epilog=f"checks, in the order they run:\n{listed}\n\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--stack", type=Path, default=BESIDE, metavar="FILE", help="what to expect (default: gpukit/stack.json)"
    )
    parser.add_argument("--only", type=_ids, default=[], metavar="ID,..", help="run these checks and those they need")
    parser.add_argument("--skip", type=_ids, default=[], metavar="ID,..", help="leave these checks out")
    return parser


def _ids(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _blind(tool: str, reason: str, as_json: bool) -> int:
    reason = plain(reason)
    if as_json:
        print(json.dumps(to_json(tool, "", [], reason), indent=2))
    print(f"{tool}: {reason}", file=sys.stderr)
    return 2


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int, Check], None]]:
    """Which check is running, on one line that is gone when the run ends; nothing where stderr is no terminal."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def show(number: int, each: Check) -> None:
        if shown:
            print(f"\r\033[K[{number + 1}/{total}] {each.title} ...", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
