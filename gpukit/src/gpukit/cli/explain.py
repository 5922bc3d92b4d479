"""`explain`: the causes of an error text on a machine, or the entry of an id."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpukit.doctor import main as doctor
from gpukit.errors.diagnose import CERTAIN, LIKELY, NOTHING, UNKNOWN, Diagnosis, diagnose, relevant
from gpukit.errors.machine import Machine, from_json
from gpukit.errors.next_steps import next_steps
from gpukit.errors.reading import NotTextError, read
from gpukit.errors.rule import BUILD, Rule
from gpukit.errors.rules import RULES
from gpukit.findings import checks
from gpukit.findings.checks import Check
from gpukit.findings.finding import Cause, commands, plain, remedy
from gpukit.findings.private import Mask, mask
from gpukit.host import facts
from gpukit.plan import main as plan
from gpukit.project.location import find_root
from gpukit.project.messages import RefusalError
from gpukit.verify import main as verify
from gpukit.verify import native as natively
from gpukit.verify import standalone

EXIT_CODES = {CERTAIN: 0, LIKELY: 1, UNKNOWN: 3, NOTHING: 4}
# Facts that only the user knows. At most one question is asked, on a terminal, if its answer changes the diagnosis.
QUESTIONS = {
    "container": ("in_container", "Did this happen inside a container?"),
    "worked_before": ("worked_before", "Did this work before on this machine?"),
}
MAX_LINE = 600  # characters of a line that are printed


def explain(options: argparse.Namespace) -> int:
    """Print the entry of an id, or the causes of an error text.

    Returns:
        0 if the cause is certain (or for an id), 1 if likely, 3 if the text is unknown, 4 if nothing is wrong

    Raises:
        RefusalError: the input cannot be read (2)
    """
    what, native = options.WHAT, getattr(options, "native", False) or natively.is_native()
    if what and what != "-" and not Path(what).is_file():
        entries = find(what, find_root() is not None, native)
        if entries:
            print("\n\n".join(entries))
            return 0
        if not re.search(r"\s", what):
            raise RefusalError(unknown_id(what), code=2)
    text = read_text(what)
    if not text.strip():
        raise RefusalError("the text is empty.", code=2)
    known = read_machine(options.machine)
    known = replace(known, **{fact: answer == "yes" for fact, answer in given_facts(options).items()})
    machine = known if options.machine else known.over(facts.local(find_root()))
    diagnosis = diagnose(text, machine)
    question = deciding_question(text, machine)
    if question and sys.stdin.isatty() and sys.stdout.isatty() and not options.json:
        diagnosis = diagnose(text, replace(machine, **{question: ask(QUESTIONS[question][1])}))
        question = ""
    hide = mask(find_root() or Path.cwd())
    diagnosis = adapted(diagnosis, find_root() is not None, native)
    if options.json:
        print(json.dumps(to_json(diagnosis, text, hide, native), indent=2))
    else:
        print(show(diagnosis, text, question, hide, native))
    if options.report:
        Path(options.report).write_text(report(diagnosis, text, hide, native), encoding="utf-8")
    return EXIT_CODES[diagnosis.confidence]


def read_text(what: str) -> str:
    if not what and sys.stdin.isatty():
        print("Paste the error text, then press Ctrl-D on a line of its own:", file=sys.stderr)
    try:
        if what and what != "-" and not Path(what).is_file():
            return read(io.BytesIO(what.encode("utf-8", "replace")))
        if what in ("", "-"):
            return read(sys.stdin.buffer)
        with Path(what).open("rb") as stream:
            return read(stream)
    except OSError as error:
        raise RefusalError(f"{what} cannot be read: {error.strerror or error}.", code=2) from None
    except NotTextError as error:
        raise RefusalError(f"{what or 'the input'} cannot be explained: {error}.", code=2) from None


def read_machine(file: str) -> Machine:
    if not file:
        return Machine()
    try:
        return from_json(json.loads(Path(file).read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise RefusalError(f"{file} cannot be read: {error.strerror or error}.", code=2) from None
    except ValueError as error:
        advice = "write it with `gpukit doctor --json` on that machine"
        raise RefusalError(f"{file} does not describe a machine ({error}): {advice}.", code=2) from None


def given_facts(options: argparse.Namespace) -> dict[str, str]:
    return {fact: getattr(options, name) for fact, (name, _) in QUESTIONS.items() if getattr(options, name)}


def deciding_question(text: str, machine: Machine) -> str:
    """The fact that decides which cause comes first; empty if there is none."""
    if diagnose(text, machine).confidence != LIKELY:
        return ""
    for fact in QUESTIONS:
        if getattr(machine, fact) is None:
            yes, no = (diagnose(text, replace(machine, **{fact: answer})).causes[:1] for answer in (True, False))
            if [found.cause.id for found in yes] != [found.cause.id for found in no]:
                return fact
    return ""


def ask(question: str) -> bool | None:
    try:
        answer = input(f"{question} [y/n, Enter if you do not know] ").strip().lower()
    except EOFError:
        return None
    return {"y": True, "n": False}.get(answer[:1])


def show(diagnosis: Diagnosis, text: str, question: str, hide: Mask, native: bool = False) -> str:
    """The diagnosis as text, wrapped for the terminal."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))

    def rows(pairs: list[tuple[str, str]], indent: str = "") -> list[str]:
        lines = []
        for name, value in pairs:
            if value:
                first = f"{indent}{name:<9}"
                lines += textwrap.wrap(
                    clean(value, hide), width, initial_indent=first, subsequent_indent=" " * len(first),
                    break_long_words=False, break_on_hyphens=False,
                )  # fmt: skip
        return lines

    causes = diagnosis.causes
    if diagnosis.confidence == UNKNOWN:
        lines = ["No known error was found in this text. Its most relevant lines:"]
        lines += [f"  {clean(line, hide)}" for line in relevant(text)]
        lines += ["Look at:", *(line for step in steps(text, native) for line in rows([("  -", step)]))]
        return "\n".join(lines)
    if diagnosis.confidence == NOTHING:
        lines = ["This text reports no error."]
        for found in causes:
            lines += ["", *rows([("line", found.line), ("means", found.why), ("to do", found.remedy)])]
        return "\n".join(lines)
    about = "This error is in the program, its data, or a server, not in the GPU software."
    lines = [about] if diagnosis.program else []
    if len(causes) == 1:
        found = causes[0]
        name = "cause" if diagnosis.confidence == CERTAIN else "likely"
        pairs = [("line", found.line), (name, found.why), ("because", found.decided), ("remedy", found.remedy)]
        return "\n".join([*lines, *rows([*pairs, ("more", found.rule.more)])])
    lines += rows([("line", diagnosis.line)])
    lines += [f"{len(causes)} causes are likely, the most likely first:"]
    for number, found in enumerate(causes, 1):
        other = found.line if found.line != diagnosis.line else ""
        pairs = [(f"{number}.", found.why), ("line", other), ("because", found.decided), ("check", found.tell)]
        lines += ["", *rows([*pairs, ("remedy", found.remedy)])]
    lines += ["", *rows([("more", causes[0].rule.more)])]
    if question:
        option = "--" + QUESTIONS[question][0].replace("_", "-")
        lines += rows([("tell", f"{QUESTIONS[question][1]} `{option} yes` or `{option} no` changes the answer.")])
    return "\n".join(lines)


def steps(text: str, native: bool = False) -> list[str]:
    """Where to look next, with commands that work here."""
    return [with_commands(step, find_root() is not None, native) for step in next_steps(text)]


def clean(text: str, hide: Mask) -> str:
    return hide.names(plain(text))[:MAX_LINE]


def to_json(diagnosis: Diagnosis, text: str, hide: Mask, native: bool = False) -> dict[str, object]:
    """The document that `--json` prints; docs/explain.md describes it."""
    return {
        "schema": 1,
        "tool": "explain",
        "confidence": diagnosis.confidence,
        "exit_code": EXIT_CODES[diagnosis.confidence],
        "line": clean(diagnosis.line, hide),
        "program": diagnosis.program,
        "causes": [
            {
                "id": found.cause.id,
                "rule": found.rule.id,
                "cause": clean(found.why, hide),
                "remedy": clean(found.remedy, hide),
                "tell": clean(found.tell, hide),
                "because": found.decided,
                "line": clean(found.line, hide),
                "more": found.rule.more,
            }
            for found in diagnosis.causes
        ],
        "look_at": steps(text, native) if diagnosis.confidence == UNKNOWN else [],
    }


def report(diagnosis: Diagnosis, text: str, hide: Mask, native: bool = False) -> str:
    """The text and its diagnosis as Markdown for an issue, without secrets and names."""
    answer = hide.report(show(diagnosis, text, "", hide, native))
    lines = "\n".join(hide.report(plain(line)) for line in text.splitlines()[-200:])
    return f"### explain: {diagnosis.confidence}\n\n```text\n{answer}\n```\n\nThe text:\n\n```text\n{lines}\n```\n"


def find(what: str, project: bool, native: bool = False) -> list[str]:
    """The entries of a check, a rule, or a cause with this id."""
    every = list(all_checks(project, native))
    entries = [checks.explain(each, there) for each, there in every if each.id == what]
    rules = (rule for rule in RULES if what == rule.id or what in [cause.id for cause in rule.causes])
    entries += [rule_entry(rule, project, native) for rule in rules]
    if not entries:
        causes = ((cause, there) for each, there in every for cause in each.causes if cause.id == what)
        entries = [cause_entry(cause, there, native) for cause, there in dict.fromkeys(causes)]
    return entries


def all_checks(project: bool, native: bool = False) -> Iterator[tuple[Check, bool]]:
    """All checks, and whether each needs a project. Outside a project, and natively, some have other remedies."""
    yield from ((each, project or each.project) for each in doctor.CHECKS)
    yield from ((replace(each, native=project and native), project or each.project) for each in plan.EXPLAINED)
    for each in natively.adapted(verify.CHECKS) if project and native else verify.CHECKS:
        left_out = project or each.id in standalone.LEFT_OUT
        yield (each if left_out else standalone.adapted(each)), left_out


def with_commands(text: str, project: bool, native: bool = False) -> str:
    """A sentence with commands that work here; outside a project, without checks that need a project."""
    if project:
        return commands(text, project, native) if native else text
    known = standalone_ids()

    def fewer(found: re.Match[str]) -> str:
        ids = [id for id in found[2].split(",") if id in known]
        return f"{found[1]} --only {','.join(ids)}" if ids else found[1]

    text = re.sub(r"(\./launch (?:doctor|verify)) --only ([\w,-]+)", fewer, text)
    return commands("" if text == BUILD else text, project)


@cache
def standalone_ids() -> set[str]:
    return {each.id for each, there in all_checks(project=False) if not there}


def remedy_for(cause: Any, project: bool, native: bool = False) -> str:
    if not project:
        return with_commands(cause.standalone or cause.remedy, project)
    return remedy(natively.reworded_cause(cause) if native else cause, project, native)


def adapted(diagnosis: Diagnosis, project: bool, native: bool = False) -> Diagnosis:
    """The diagnosis with remedies and commands that work here."""
    causes = (
        replace(
            found,
            remedy=remedy_for(found, project, native),
            tell=with_commands(found.tell, project, native),
            rule=replace(found.rule, more=with_commands(found.rule.more, project, native)),
        )
        for found in diagnosis.causes
    )
    return replace(diagnosis, causes=tuple(causes))


def unknown_id(what: str) -> str:
    every = (*doctor.CHECKS, *plan.EXPLAINED, *verify.CHECKS)
    ids = [each.id for each in every] + [cause.id for each in every for cause in each.causes]
    ids += [rule.id for rule in RULES] + [cause.id for rule in RULES for cause in rule.causes]
    similar = dict.fromkeys([*(id for id in ids if what in id), *difflib.get_close_matches(what, ids, 5)])
    advice = f"similar ids: {', '.join([*similar][:8])}" if similar else "`doctor --help` and `verify --help` list ids"
    return f"{what} is neither a file nor a known id; {advice}."


def rule_entry(rule: Rule, project: bool, native: bool = False) -> str:
    """The entry of a rule: its error text and its causes."""
    more = with_commands(rule.more, project, native)
    rows = [f"{'text':<8}{rule.example}", *(cause_entry(cause, project, native) for cause in rule.causes)]
    return "\n\n".join([*rows, *[f"{'more':<8}{more}"] * bool(more)])


def cause_entry(cause: Cause, project: bool, native: bool = False) -> str:
    pairs = (
        ("cause", cause.why),
        ("check", with_commands(cause.tell, project, native)),
        ("remedy", remedy_for(cause, project, native)),
    )
    filled = (f"{name:<8}{' '.join(re.sub(r'{[^}]*}', '...', text).split())}" for name, text in pairs if text)
    return "\n".join(filled)
