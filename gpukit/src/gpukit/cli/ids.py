"""The entries of `explain ID`: a check, a sign, or a cause."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gpukit.doctor import main as doctor
from gpukit.errors.conditions import Case, values
from gpukit.errors.machine import Machine
from gpukit.errors.signs import Sign, signs
from gpukit.findings import checks
from gpukit.findings.causes import NATIVE, PLACEHOLDER, STANDALONE, cause, worded
from gpukit.findings.checks import Check
from gpukit.findings.finding import Cause, remedy
from gpukit.plan import main as plan
from gpukit.project.data import data
from gpukit.verify import main as verify
from gpukit.verify import native as natively
from gpukit.verify import standalone


def find(what: str, place: str, machine: Machine) -> list[str]:
    """The entries of a check, a cause, or a sign with this id."""
    every = list(all_checks(place != STANDALONE, place == NATIVE))
    entries = [checks.explain(each, there) for each, there in every if each.id == what]
    known = values(Case("", machine))
    if what in data("knowledge")["causes"]:
        return [*entries, cause_entry(cause(what), place, known)]
    entries += [sign_entry(sign, place, known) for sign in signs() if sign.id == what]
    if not entries:
        found = ((own, there) for each, there in every for own in each.causes if own.id == what)
        entries = [check_cause_entry(own, there, place == NATIVE) for own, there in dict.fromkeys(found)]
    return entries


def all_checks(project: bool, native: bool = False) -> Iterator[tuple[Check, bool]]:
    """All checks, and whether each needs a project. Outside a project, and natively, some have other remedies."""
    yield from ((each, project or each.project) for each in doctor.CHECKS)
    yield from ((replace(each, native=project and native), project or each.project) for each in plan.EXPLAINED)
    for each in natively.adapted(verify.CHECKS) if project and native else verify.CHECKS:
        left_out = project or each.id in standalone.LEFT_OUT
        yield (each if left_out else standalone.adapted(each)), left_out


def unknown_id(what: str) -> str:
    every = (*doctor.CHECKS, *plan.EXPLAINED, *verify.CHECKS)
    ids = [each.id for each in every] + [cause.id for each in every for cause in each.causes]
    ids += [*data("knowledge")["signs"], *data("knowledge")["causes"]]
    similar = dict.fromkeys([*(id for id in ids if what in id), *difflib.get_close_matches(what, ids, 5)])
    advice = f"similar ids: {', '.join([*similar][:8])}" if similar else "`doctor --help` and `verify --help` list ids"
    return f"{what} is neither a file nor a known id; {advice}."


def sign_entry(sign: Sign, place: str, known: dict[str, str]) -> str:
    """The entry of a sign: its error text and its causes."""
    more = worded(data("knowledge")["looks"][sign.more], place)
    rows = [f"{'text':<8}{sign.example}", *(cause_entry(cause, place, known) for cause in sign.causes)]
    return "\n\n".join([*rows, *[f"{'more':<8}{more}"] * bool(more)])


def cause_entry(cause: Any, place: str, known: dict[str, str]) -> str:
    pairs = (("cause", cause.why), ("check", cause.check), ("remedy", cause.remedy))
    return entry([(name, worded(text, place, known)) for name, text in pairs])


def check_cause_entry(cause: Cause, project: bool, native: bool) -> str:
    return entry([("cause", cause.why), ("remedy", remedy(cause, project, native))])


def entry(pairs: list[tuple[str, str]]) -> str:
    filled = (f"{name:<8}{' '.join(PLACEHOLDER.sub('...', text).split())}" for name, text in pairs if text)
    return "\n".join(filled)
