"""`explain`: the causes of an error text on a machine, or the entry of an id."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import textwrap
from pathlib import Path

from gpukit.errors.diagnose import CERTAIN, LIKELY, NOTHING, UNKNOWN, Diagnosis, diagnose, engine_matters, relevant
from gpukit.errors.machine import Machine, from_json, machine_in_text
from gpukit.errors.reading import NotTextError, read
from gpukit.findings.causes import NATIVE, PROJECT, STANDALONE, worded
from gpukit.findings.private import Mask, mask
from gpukit.project.data import data
from gpukit.project.location import find_root, root
from gpukit.project.messages import RefusalError, plain

EXIT_CODES = {CERTAIN: 0, LIKELY: 1, UNKNOWN: 3, NOTHING: 4}
# Facts that only the user knows. At most one question is asked, on a terminal, if its answer changes the diagnosis.
QUESTIONS = {
    "container": ("in_container", "Did this happen inside a container?"),
    "worked_before": ("worked_before", "Did this work before on this machine?"),
}
MAX_LINE = 600  # characters of a line that are printed
MAX_STEPS = 3


def explain(options: argparse.Namespace) -> int:
    """Print the entry of an id, or the causes of an error text.

    Returns:
        0 if the cause is certain (or for an id), 1 if likely, 3 if the text is unknown, 4 if nothing is wrong

    Raises:
        RefusalError: the input cannot be read (2)
    """
    what = options.WHAT
    place = current_place(options)
    if what and what != "-" and not re.search(r"\s", what) and not Path(what).is_file():
        from gpukit.cli import ids  # imported here because it is slow

        entries = ids.find(what, place, this_machine())
        if not entries:
            raise RefusalError(ids.unknown_id(what), code=2)
        print("\n\n".join(entries))
        return 0
    text = read_text(what)
    if not text.strip():
        raise RefusalError("The text is empty: name a file with the error, or paste it and press Ctrl-D.", code=2)
    stated = read_machine(options.machine)
    answers = {fact: getattr(options, name) for fact, (name, _) in QUESTIONS.items()}
    stated = stated._replace(**{fact: answer == "yes" for fact, answer in answers.items() if answer})
    here = Machine() if options.machine else this_machine(engine_matters(text))
    named = machine_in_text(text)
    if named.system not in (None, here.system) or (named.gpus and here.gpus == ()):
        here = Machine(targets=here.targets)  # the text is from another machine
    diagnosis = diagnose(text, here, stated=stated)
    question = deciding_question(text, here, stated) if diagnosis.confidence == LIKELY else ""
    if question and sys.stdin.isatty() and sys.stdout.isatty() and not options.json:
        stated = stated._replace(**{question: ask(QUESTIONS[question][1])})
        diagnosis = diagnose(text, here, stated=stated)
        question = ""
    hide = mask(find_root() or Path.cwd())
    if options.json:
        print(json.dumps(to_json(diagnosis, text, hide, place), indent=2))
    else:
        print(show(diagnosis, text, question, hide, place))
    if options.report:
        Path(options.report).write_text(report(diagnosis, text, hide, place), encoding="utf-8")
    return EXIT_CODES[diagnosis.confidence]


def current_place(options: argparse.Namespace) -> str:
    if find_root() is None:
        return STANDALONE
    from gpukit.image import guard  # imported here because it is slow

    return NATIVE if getattr(options, "native", False) or guard.OWN.is_file() else PROJECT


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


def this_machine(ask_engine: bool = True) -> Machine:
    from gpukit.host import choice, facts  # imported here because they are slow, and not needed with --machine
    from gpukit.host.project import settings

    engine = choice.known(settings(root())) if ask_engine else ""
    return facts.local(find_root(), ask_engine, engine)


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


def deciding_question(text: str, here: Machine, stated: Machine) -> str:
    """The fact that decides which cause comes first; empty if there is none."""
    for fact in QUESTIONS:
        if getattr(stated.over(here), fact) is None:
            yes, no = (
                diagnose(text, here, stated=stated._replace(**{fact: answer})).causes[:1] for answer in (True, False)
            )
            if [found.cause.id for found in yes] != [found.cause.id for found in no]:
                return fact
    return ""


def ask(question: str) -> bool | None:
    try:
        answer = input(f"{question} [y/n, Enter if you do not know] ").strip().lower()
    except EOFError:
        return None
    return {"y": True, "n": False}.get(answer[:1])


def show(diagnosis: Diagnosis, text: str, question: str, hide: Mask, place: str) -> str:
    """The diagnosis as text, wrapped for the terminal."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))

    def rows(pairs: list[tuple[str, str]], indent: str = "") -> list[str]:
        lines = []
        for name, value in pairs:
            if value:
                first = f"{indent}{name:<9}"
                lines += textwrap.wrap(
                    value, width, initial_indent=first, subsequent_indent=" " * len(first),
                    break_long_words=False, break_on_hyphens=False
                )  # fmt: skip
        return lines

    causes = diagnosis.causes
    if diagnosis.confidence == UNKNOWN:
        lines = ["No known error was found in this text. Its most relevant lines:"]
        lines += [f"  {clean(line, hide)}" for line in relevant(text)]
        lines += ["Look at:", *(line for step in steps(text, place) for line in rows([("  -", step)]))]
        return "\n".join(lines)
    if diagnosis.confidence == NOTHING:
        lines = ["This text reports no error."]
        for found in causes:
            words = found.words(place, hide.names)
            lines += ["", *rows([("line", clean(found.line, hide)), ("means", words.why), ("to do", words.remedy)])]
        return "\n".join(lines)
    about = "This error is in the program, its data, or a server, not in the GPU software."
    lines = [about] if diagnosis.program else []
    lines += rows([("line", clean(diagnosis.line, hide))])
    several = len(causes) > 1
    if several:
        lines.append(f"{len(causes)} causes are likely, the most likely first:")
    for number, found in enumerate(causes, 1):
        words = found.words(place, hide.names)
        name = f"{number}." if several else "cause" if diagnosis.confidence == CERTAIN else "likely"
        other = clean(found.line, hide) if found.line != diagnosis.line else ""
        pairs = [(name, words.why), ("line", other), ("because", quoted(found.because, hide))]
        pairs += [("check", words.check if several else ""), ("remedy", words.remedy)]
        lines += [*[""] * several, *rows(pairs)]
    lines += [*[""] * several, *rows([("more", causes[0].words(place).more)])]
    if question:
        option = "--" + QUESTIONS[question][0].replace("_", "-")
        lines += rows([("tell", f"{QUESTIONS[question][1]} `{option} yes` or `{option} no` changes the answer.")])
    return "\n".join(lines)


def steps(text: str, place: str) -> list[str]:
    """Where to look if a text is unknown: the first three steps whose pattern it has."""
    known = data("knowledge")["steps"]
    fitting = [step["look"] for step in known if re.search(step["text"], text, re.IGNORECASE)]
    return [worded(look, place) for look in fitting[:MAX_STEPS]]


def clean(text: str, hide: Mask) -> str:
    return hide.names(plain(text))[:MAX_LINE]


def quoted(because: str, hide: Mask) -> str:
    """A reason: only what it quotes from the text can be private."""
    return re.sub(r'"[^"]*"', lambda found: hide.names(found[0]), because)


def to_json(diagnosis: Diagnosis, text: str, hide: Mask, place: str) -> dict[str, object]:
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
                "sign": found.sign.id,
                "cause": words.why,
                "remedy": words.remedy,
                "check": words.check,
                "because": quoted(found.because, hide),
                "line": clean(found.line, hide),
                "more": words.more,
            }
            for found, words in ((found, found.words(place, hide.names)) for found in diagnosis.causes)
        ],
        "look_at": steps(text, place) if diagnosis.confidence == UNKNOWN else [],
    }


def report(diagnosis: Diagnosis, text: str, hide: Mask, place: str) -> str:
    """The text and its diagnosis as Markdown for an issue, without secrets and names."""
    answer = hide.report(show(diagnosis, text, "", hide, place))
    lines = "\n".join(hide.report(plain(line)) for line in text.splitlines()[-200:])
    return f"### explain: {diagnosis.confidence}\n\n```text\n{answer}\n```\n\nThe text:\n\n```text\n{lines}\n```\n"
