"""Find the causes of an error text: the only matcher of the signs."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from gpukit.errors.conditions import Case, holds, reason, values
from gpukit.errors.machine import Machine, compiled, machine_in_text
from gpukit.errors.reading import joined, plain
from gpukit.errors.signs import BROAD, GENERAL, LEVELS, NOTE, SPECIFIC, Sign, captures, signs
from gpukit.findings.causes import Cause, worded
from gpukit.project.data import data

CERTAIN = "certain"
LIKELY = "likely"
UNKNOWN = "unknown"
NOTHING = "nothing"
MAX_CAUSES = 3  # in a likely diagnosis

NEAR = 2  # lines that belong to a line which says that an error was handled
BLOCK = 20  # lines without an error that end the block of the last one


def says(kind: str, text: str) -> bool:
    """Whether a line, or a text, is of a kind in `lines` of the knowledge."""
    return bool(compiled(data("knowledge")["lines"][kind]).search(text))


class Words(NamedTuple):
    """A cause as it is said in one place. `more`: the command that tells more."""

    why: str
    remedy: str
    check: str
    more: str


class Found(NamedTuple):
    """A possible cause.

    `values`: what is known for its placeholders. `because`: the fact that supports it. `special`: places whose remedies
    come first, such as podman.
    """

    cause: Cause
    sign: Sign
    line: str
    values: dict[str, str]
    because: str = ""
    special: tuple[str, ...] = ()

    def words(self, place: str, hide: Callable[[str], str] = str) -> Words:
        """The cause in words; `hide` removes what is private from values of the text."""
        known = {name: hide(value) for name, value in self.values.items()}
        texts = (self.cause.why, self.cause.remedy, self.cause.check, data("knowledge")["looks"][self.sign.more])
        return Words(*(worded(text, place, known, self.special) for text in texts))


class Diagnosis(NamedTuple):
    """`causes`: one if certain, up to three if likely, the most likely first. `line`: the line that matched.

    If the text reports no error, `causes` has its warnings.
    """

    confidence: str
    causes: tuple[Found, ...] = ()
    line: str = ""
    program: bool = False  # the error is in the user's program, its data, or a server


class Hit(NamedTuple):
    sign: Sign
    match: re.Match[str]
    line: str
    number: int  # of the line


class Text:
    """An error text, prepared for searching."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()
        self.lines = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]
        self.quiet = [says("quiet", line) for line in self.lines]
        informs = [says("inform", line) and not says("inform_error", line) for line in self.lines]
        spoken = [line for line, *kinds in zip(self.lines, self.quiet, informs) if line.strip() and not any(kinds)]
        if spoken or len(self.lines) > 12:
            self.quiet = [any(pair) for pair in zip(self.quiet, informs)]
        for number in self._handled():
            self.quiet[number] = True

    def _handled(self) -> list[int]:
        """The lines of errors that the program handled: it says so near them, and goes on."""
        said = [number for number, line in enumerate(self.lines) if not self.quiet[number] and says("handled", line)]
        if not said:
            return []
        near = {
            each for number in said for each in range(max(0, number - NEAR), min(len(self.lines), number + NEAR + 1))
        }
        going = [
            number
            for number, line in enumerate(self.lines)
            if says("progress", line)
            or reports_success(line)
            or (number not in near and not self.quiet[number] and says("error", line))
        ]
        last = going[-1] if going else -1
        return [number for number in near if number < last and not says("progress", self.lines[number])]

    def number(self, place: int) -> int:
        return bisect_right(self.starts, place) - 1

    @cached_property
    def alarms(self) -> list[int]:
        """The numbers of the lines that report an error."""
        return [
            number
            for number, line in enumerate(self.lines)
            if not self.quiet[number] and says("error", line) and not says("no_error", line)
        ]

    @cached_property
    def block(self) -> int:
        """The first line of the block of errors that is the last."""
        start = self.alarms[-1] if self.alarms else 0
        for number in reversed(self.alarms):
            if start - number > BLOCK:
                break
            start = number
        return max(0, start - BLOCK)

    def hit(self, sign: Sign, whole: str = "") -> Hit | None:
        """The first match in the last block of errors; otherwise the last one before it."""
        matches = [(self.number(match.start()), match) for match in sign.find(self.text, self.lower, whole)]
        matches = [(number, match) for number, match in matches if not self.quiet[number]]
        if not matches:
            return None
        number, match = next((pair for pair in matches if pair[0] >= self.block), matches[-1])
        return Hit(sign, match, self.lines[number].strip(), number)


def diagnose(
    text: str, here: Machine | None = None, kinds: Collection[str] | None = None, stated: Machine | None = None
) -> Diagnosis:
    """The possible causes of a text. What is `stated` of its machine outranks what the text says, and this one, `here`.

    `kinds`: use only signs of these kinds, for commands that handle errors of an engine or uv.
    """
    whole, hits, guessed = _read(text, None if kinds is None else frozenset(kinds))
    text = whole.text
    machine = (stated or Machine()).over(guessed).over(here or Machine()).completed()
    if kinds is None and says("other_language", text) and not says("gpu_software", text):
        return Diagnosis(UNKNOWN, program=True)
    possible = [(hit, causes) for hit in hits if hit.sign.level != NOTE and (causes := _possible(hit, text, machine))]
    notes = tuple(found for hit in hits for found in _possible(hit, text, machine)[:1])
    if kinds is None and _succeeded(whole, [hit for hit, _ in possible]):
        possible = [(hit, causes) for hit, causes in possible if hit.sign.lasting]
        if not possible:
            return Diagnosis(NOTHING, notes)
    if possible:
        return _answer(possible, text)
    noted = {hit.number for hit in hits}
    for hit in hits:
        for match in hit.sign.find(text, whole.lower):
            noted.update(range(whole.number(match.start()), whole.number(match.end()) + 1))
    return Diagnosis(NOTHING, notes) if notes and noted.issuperset(whole.alarms) else Diagnosis(UNKNOWN)


def engine_matters(text: str) -> bool:
    """Whether facts about the engine, which take long to find, can change the diagnosis of a text."""
    facts = [name for name, fact in data("knowledge")["facts"].items() if "engine." in str(fact["test"])]
    _, hits, _ = _read(text, None)
    used = "".join(f"{cause.when} {cause.why} {cause.remedy}" for hit in hits for cause in hit.sign.causes)
    return any(name in used for name in ("engine.", *facts))


@lru_cache(maxsize=2)  # the same text is diagnosed again with other answers of the user
def _read(text: str, kinds: frozenset[str] | None) -> tuple[Text, list[Hit], Machine]:
    """The plain text, the signs that match it, and the facts about the machine in it."""
    whole = Text(plain(text))
    hits = _hits(whole, [sign for sign in signs() if kinds is None or sign.kind in kinds])
    return whole, hits, machine_in_text(whole.text)


def _hits(whole: Text, wanted: list[Sign]) -> list[Hit]:
    """The matches, in the order of the signs. If no specific sign matches, the text with joined lines counts too."""
    found = {sign.id: hit for sign in wanted if (hit := whole.hit(sign))}
    if not any(hit.sign.level == SPECIFIC for hit in found.values()):
        spoken = "\n".join(line for line, quiet in zip(whole.lines, whole.quiet) if not quiet)
        for each in joined(spoken):
            other = Text(each)
            for sign in wanted:
                if sign.id not in found and sign.level in (SPECIFIC, BROAD) and (hit := other.hit(sign, whole.text)):
                    found[sign.id] = hit._replace(number=whole.number(max(0, whole.text.find(hit.line[:30]))))
    order = [found[sign.id] for sign in wanted if sign.id in found]
    return sorted(order, key=lambda hit: (LEVELS.index(hit.sign.level), hit.number < whole.block))


def _possible(hit: Hit, text: str, machine: Machine) -> list[Found]:
    """The causes of a sign that are not ruled out; those with supporting evidence first."""
    case = Case(text, machine, captures(hit.match))
    known = values(case)
    special = _special_places(text, machine)
    verdicts = [(holds(cause.when, case), cause) for cause in hit.sign.causes]
    order = [cause for wanted in (True, None) for verdict, cause in verdicts if verdict is wanted]
    return [Found(cause, hit.sign, hit.line, known, reason(cause.when, case), special) for cause in order]


def _special_places(text: str, machine: Machine) -> tuple[str, ...]:
    """Places whose remedies may differ, by what is known of the machine and by what the text mentions."""
    mentioned = [place for place in ("slurm", "kubernetes") if says(place, text)]
    engine = ["podman"] if machine.engine.name == "podman" else []
    return (*mentioned, *engine, machine.system or "linux")


def _answer(possible: list[tuple[Hit, list[Found]]], text: str) -> Diagnosis:
    (first, causes), *rest = possible
    specific = [hit.sign.level == SPECIFIC for hit, _ in rest]
    own = first.sign.level == GENERAL or (first.sign.level == BROAD and "Traceback" in text)
    program = first.sign.program or (own and not says("gpu_software", text))
    program = program if isinstance(program, bool) else bool(holds(program, Case(text, Machine())))
    if first.sign.certain and len(causes) == 1 and not any(specific):
        return Diagnosis(CERTAIN, (causes[0],), first.line, program)
    others = [found[0] for hit, found in rest if hit.sign.level in (SPECIFIC, first.sign.level)]
    elsewhere = [found for found in others if found.line != first.line and found.sign.level == SPECIFIC]
    order = [*causes[: MAX_CAUSES - bool(elsewhere)], *elsewhere[:1], *causes, *others]
    chosen: dict[str, Found] = {}
    for found in order:  # includes the other error of a text
        chosen.setdefault(found.cause.id, found)
    return Diagnosis(LIKELY, tuple(chosen.values())[:MAX_CAUSES], first.line, program)


def _succeeded(whole: Text, hits: list[Hit]) -> bool:
    """Whether the program continued to its end after what looks like an error."""
    last = max((hit.number for hit in hits), default=-1)
    after = [line for line in whole.lines[last + 1 :] if line.strip()]
    if not after or (last >= 0 and any(number > last for number in whole.alarms)):
        return False
    # what a script prints after a traceback, such as `done`, it prints after a failure too
    traced = "Traceback (most recent" in "\n".join(whole.lines[max(last - 100, 0) :])
    ended = not traced and any(map(reports_success, after[-8:]))
    if last < 0 and whole.alarms:
        return ended
    goes_on = ended or sum(says("progress", line) for line in after) >= 2
    calm = len(after) >= 5 and says("gpu_software", whole.text) and not says("trouble", whole.text)
    return goes_on or (last < 0 and (any(whole.quiet) or calm))


def reports_success(line: str) -> bool:
    return says("success", line) and not says("no_success", line)


def relevant(text: str) -> Iterator[str]:
    """The most relevant lines of an unknown text."""
    whole = Text(plain(text))
    chosen = (whole.alarms or [number for number, line in enumerate(whole.lines) if line.strip()])[-3:]
    return (whole.lines[number].strip() for number in chosen)
