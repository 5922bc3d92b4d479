"""The entries of `explain ID`: a check, a sign, or a cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from gpukit.doctor import main as doctor
from gpukit.errors.conditions import Case, values
from gpukit.errors.machine import Machine
from gpukit.errors.signs import Sign, signs
from gpukit.findings import checks
from gpukit.findings.causes import PLACEHOLDER, STANDALONE, Cause, cause, worded
from gpukit.findings.checks import Check
from gpukit.plan import main as plan
from gpukit.project.data import data
from gpukit.verify import main as verify

CHECKS = (*doctor.CHECKS, *plan.EXPLAINED, *verify.CHECKS)


def find(what: str, place: str, machine: Machine) -> list[str]:
    """The entries of a check, a cause, or a sign with this id."""
    entries = [checks.explain(each, place) for each in here(place) if each.id == what]
    known = values(Case("", machine))
    if what in data("knowledge")["causes"]:
        return [*entries, cause_entry(cause(what), place, known)]
    return [*entries, *(sign_entry(sign, place, known) for sign in signs() if sign.id == what)]


def here(place: str) -> Iterator[Check]:
    """The checks as they are in this place."""
    for each in CHECKS:
        outside = place == STANDALONE and each in verify.CHECKS and not each.project
        yield verify.standalone(each) if outside else each


def unknown_id(what: str) -> str:
    ids = [*(each.id for each in CHECKS), *data("knowledge")["signs"], *data("knowledge")["causes"]]
    containing = sorted((id for id in ids if what in id), key=lambda id: not id.startswith(what))
    similar = dict.fromkeys([*containing, *difflib.get_close_matches(what, ids, 5)])
    advice = f"similar ids: {', '.join([*similar][:8])}" if similar else "`doctor --help` and `verify --help` list ids"
    return f"{what} is neither a file nor a known id; {advice}."


def sign_entry(sign: Sign, place: str, known: dict[str, str]) -> str:
    """The entry of a sign: its error text and its causes."""
    more = worded(data("knowledge")["looks"][sign.more], place)
    rows = [f"{'text':<8}{sign.example}", *(cause_entry(cause, place, known) for cause in sign.causes)]
    return "\n\n".join([*rows, *[f"{'more':<8}{more}"] * bool(more)])


def cause_entry(cause: Cause, place: str, known: dict[str, str]) -> str:
    texts = {"cause": cause.why, "check": cause.check, "remedy": cause.remedy}
    words = {name: PLACEHOLDER.sub("...", worded(text, place, known)) for name, text in texts.items()}
    return "\n".join(f"{name:<8}{' '.join(text.split())}" for name, text in words.items() if text)
