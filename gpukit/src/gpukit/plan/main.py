"""`./launch plan`: would everything fit a GPU that is not here? It downloads no package and no image."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime, timezone
from functools import cached_property
from typing import Any, NamedTuple

from gpukit.doctor import disk, engine, project
from gpukit.doctor.host import Host
from gpukit.findings import checks as running
from gpukit.findings.checks import Check, check, place_of, use_color
from gpukit.findings.finding import Finding, exit_code, in_words, map_texts, skipped, table, to_json, unknown
from gpukit.findings.private import mask
from gpukit.host import stacks
from gpukit.host.cards import data
from gpukit.image.guard import RECORD
from gpukit.plan import checks, extensions, image, kernels, memory, packages
from gpukit.plan import prove as proving
from gpukit.plan.resolve import Answer
from gpukit.project.dependencies import wanted
from gpukit.project.location import find_root, root
from gpukit.project.messages import RefusalError, plain, simple
from gpukit.project.stack import Stack, StackError, Target, load

HOUR = 3600


class Probes:
    """What is asked for one target, each once."""

    def __init__(
        self,
        stack: Stack,
        id: str,
        driver: str = "",
        refresh: bool = False,
        today: date | None = None,
        answers: str = "",
        cards: Iterable[int] = (),
        batch_size: int | None = None,
        received: dict[object, object] | None = None,
        others: dict[str, Target] | None = None,
    ) -> None:
        """`answers`: the options of `./launch update` for a stack that supports this target; `cards`: GB of memory.

        `others`: the project's other targets, which have to be supported too.
        """
        self.stack = stack
        self.id = id
        self.driver = driver
        self.refresh = refresh
        self.today = today or date.today()
        self.answers = answers or "--answers"
        self.target: Target = stack.targets[id]
        self.whole = replace(stack, targets={**(others or {}), **stack.targets})
        self.release = stacks.for_driver(stack, self.whole.targets, driver) if driver else None  # for that driver
        self.cards = cards or memories(id)
        self.batch_size = batch_size
        self.asked: dict[str, float] = {}
        self.received: dict[object, object] = {} if received is None else received  # of the package indexes
        self.native = RECORD.is_file() and str(RECORD).startswith(sys.prefix)

    def not_asked(self, error: RefusalError) -> Finding:
        waits = error.kind == "network" and error.id not in ("index-refused", "index-not-readable")
        return unknown("network-did-not-answer" if waits else "not-answered", reason=str(error))

    def as_of(self, what: str) -> str:
        """How old an answer is, if it is not of this hour."""
        at = self.asked.get(what, time.time())
        if time.time() - at < HOUR:
            return ""
        return f" (as of {datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M} UTC)"

    @cached_property
    def image(self) -> dict[str, Any] | RefusalError:
        try:
            found, self.asked["image"] = image.ask(self.stack, self.target.arch, self.refresh)
        except RefusalError as error:
            return error
        return found

    @cached_property
    def trace(self) -> dict[str, Any]:
        return memory.trace(self.target.autocast, self.batch_size)

    @cached_property
    def host(self) -> Host:
        host = Host(self.stack, cpu=True)
        host.prepare([])
        return host


@check("disk", "Disk space here", causes=disk.disk.causes)
def disk_here(probes: Any, stack: Stack) -> Finding:
    """A build on this machine needs room for the image."""
    if RECORD.is_file():
        return skipped("disk-of-build-machine")
    needed = running.run([engine.client, engine.engine], probes.host, stack)
    if any(finding.status in ("FAIL", "SKIP") for finding in needed):
        return skipped("docker-unusable-here")
    return disk.disk.judge(probes.host, stack)


def one_for_each(probes: Any, stack: Stack) -> Finding:
    """The findings are one for each package or capability: `plan` adds them to those of its checks."""
    return skipped("one-for-each")


CHECKS: tuple[Check, ...] = (
    image.image,
    project.base,
    checks.torch,
    checks.driver,
    disk_here,
    memory.memory,
    memory.rent,
)
CAUSES = (*packages.CAUSES, *extensions.CAUSES)
# What `explain` and the documentation describe: also the findings that are one for each package or capability.
EXPLAINED = (
    image.image,
    checks.torch,
    checks.driver,
    memory.memory,
    memory.rent,
    Check("packages", "Packages", one_for_each, causes=CAUSES, about=(packages.__doc__ or ""), project=True),
    Check("kernels", "Packages' kernels", one_for_each, causes=kernels.CAUSES, about=(kernels.__doc__ or "")),
    Check("prove", "Kernels", one_for_each, causes=proving.CAUSES, about=(proving.__doc__ or "")),
)


class Planned(NamedTuple):
    """About one target; `memory`: what the trace prints, empty where there is none."""

    findings: list[Finding]
    answer: Answer | None
    memory: dict[str, Any]


def main(options: argparse.Namespace) -> int:
    """Print one table for each target.

    Returns:
        0 if nothing is wrong, 1 if a check failed, 2 if something could not be asked, 3 if only the memory could not be
        computed

    Raises:
        RefusalError: the hardware is not known, or the project cannot be read
    """
    hide = mask(root())
    project = find_root()
    given = options.targets
    try:
        stack = load() if project else None
    except StackError as error:
        raise RefusalError(f"{error}.", code=2) from None
    asked: dict[str, set[int]] = {} if given or not stack else {id: memories(id) for id in stack.targets}
    for id, cards in map(identified, given):
        asked.setdefault(id, set()).update(cards)
    if not asked:
        known = ", ".join(data("cards"))
        raise RefusalError(f"Outside a project, name the hardware with `gpukit plan --for ID`: {known}.", code=2)
    if options.driver and not re.fullmatch(r"\d{3}(\.\d+)*", options.driver):
        raise RefusalError(f"{options.driver!r} is not a driver's version: write it as in `--driver 580`.", code=2)
    if options.batch_size is not None and options.batch_size < 1:
        raise RefusalError("A batch has at least one sample: write it as in `--batch-size 64`.", code=2)
    found = dict[str, Planned]()
    received = dict[object, object]()
    for id, cards in asked.items():
        of = for_target(stack, id)
        answers = stacks.update_answers(stack, id) if stack else ""
        more = {"answers": answers, "cards": cards, "batch_size": options.batch_size, "received": received}
        more["others"] = stack.targets if stack else {}
        probes = Probes(of, id, options.driver, options.refresh, **more)
        findings, answer = plan(of, probes, project is not None)
        traced = {name: hide(each) if name == "why" else each for name, each in vars(probes).get("trace", {}).items()}
        found[id] = Planned([map_texts(finding, hide) for finding in findings], answer, traced)
    proved = prove(found, stack) if options.prove else []
    return show(found, proved, stack.project if stack else "", options.json)


def memories(id: str, names: Iterable[str] = ()) -> set[int]:
    """How many GB these cards of the hardware have, or all of them."""
    known = data("cards")[id]["memory_gb"]
    return {size for name in known if not names or name in names for size in known[name]}


def identified(text: str) -> tuple[str, set[int]]:
    """The hardware id of a text, and GB of memory: an id, or the name of a card, such as h200."""
    cards = data("cards")
    if text in cards:
        return text, memories(text)

    names = {id: [*each["memory_gb"], each["label"]] for id, each in cards.items()}
    same = [id for id, each in names.items() if simple(text) in map(simple, each)]
    found = same or [id for id, each in names.items() if any(simple(text) in simple(name) for name in each)]
    if len(found) != 1:
        which = f": it can be {' or '.join(found)}" if found else f"; the ids are: {', '.join(cards)}"
        raise RefusalError(f"The hardware {text!r} is not known{which}.", code=2)
    id = found[0]
    named = [name for name in cards[id]["memory_gb"] if simple(name) == simple(text)]
    named = named or [name for name in cards[id]["memory_gb"] if simple(text) in simple(name)]
    return id, memories(id, named)


def for_target(stack: Stack | None, id: str) -> Stack:
    """The project's stack with one target, which may be none of its own; outside a project that of the hardware."""
    if stack is None:
        return stacks.stack([id])
    known = stack.targets.get(id) or stacks.target(data("cards")[id])
    return replace(stack, targets={id: known})


def plan(stack: Stack, probes: Probes, project: bool) -> tuple[list[Finding], Answer | None]:
    """The findings about one target, and its packages."""
    selected = [each for each in CHECKS if project or not each.project]
    if probes.native:
        stack = stacks.natively(stack)
        selected = [checks.driver, memory.memory, memory.rent]
    with running.status_line() as say:
        findings = running.run(selected, probes, stack, lambda _, each: say(f"{probes.id}: {each.title}"))
        say(f"{probes.id}: Packages")
        more, answer = look_at_packages(probes, stack)
    return [*findings, *(finish(finding, stack, probes.native) for finding in more)], answer


def look_at_packages(probes: Probes, stack: Stack) -> tuple[list[Finding], Answer | None]:
    started = time.monotonic()
    folder = root()
    if stack.standalone and not (folder / "pyproject.toml").is_file():
        found = [skipped("no-pyproject")]
        answer = None
    elif probes.target.arch not in stack.kernels:
        found = [skipped("needed-check-failed", check="torch")]
        answer = None
    else:
        requirements = wanted(folder)
        pinned = extensions.judge(requirements, stack)  # which asks nobody
        try:
            asked = packages.question(stack, probes.target, requirements, folder, probes.native)
            answer, probes.asked["packages"] = packages.answer(asked, probes.refresh, probes.received)
            found = [*packages.judge(answer, asked), *pinned]
            found = extensions.remedied(found, probes.whole, probes.received)
            found[0] = replace(found[0], seen=found[0].seen + probes.as_of("packages"))
            versions = {name: each.version for name, each in answer.packages.items()}
            required_by = {name: each.required_by for name, each in answer.packages.items()}
            target = probes.target
            found += kernels.kernels(versions, target.capability or "", target.arch, stack.cuda or "", required_by)
        except RefusalError as error:
            found = [probes.not_asked(error), *pinned]
            answer = None
    if not found[0].id:
        found[0] = replace(found[0], id="packages", title="Packages")
    found[0] = replace(found[0], seconds=round(time.monotonic() - started, 3))
    return found, answer


def finish(finding: Finding, stack: Stack, native: bool = False) -> Finding:
    """The finding as it is printed in a project, or outside one."""
    worded = in_words(finding, place_of(stack, native), stack.native.get("install", ""))
    return map_texts(worded, plain)


def prove(found: dict[str, Any], stack: Stack | None) -> list[Finding]:
    """The findings about what is installed here, for the capabilities of all targets."""
    targets = [for_target(stack, id) for id in found]
    capabilities = [each for of in targets for each in of.capabilities]
    with running.status_line() as say:
        say("Compiling kernels and reading libraries")
        return [finish(finding, targets[0]) for finding in proving.prove(capabilities)]


def show(found: dict[str, Planned], proved: list[Finding], project: str, as_json: bool) -> int:
    """Print everything; the exit code of all."""
    every = [finding for each in found.values() for finding in each.findings] + proved
    untraceable = any("untraceable" in each.memory for each in found.values())
    code = exit_code(every) or (2 if untraceable else 0)
    if as_json:
        targets = {
            id: {
                **to_json("plan", project, each.findings),
                "packages": each.answer.to_json()["packages"] if each.answer else {},
                "bytes": each.answer.bytes if each.answer else 0,
                "memory": each.memory,
            }
            for id, each in found.items()
        }
        document = {"schema": 1, "tool": "plan", "project": project, "exit_code": code, "targets": targets}
        print(json.dumps({**document, **({"prove": to_json("plan", project, proved)} if proved else {})}, indent=2))
        return code
    width = shutil.get_terminal_size().columns
    color = use_color(sys.stdout)
    sections = []
    for id, each in found.items():
        lines = [f"{id}: {data('cards')[id]['label']}", "", table(each.findings, width, color)]
        if each.answer and (named := listed(each.answer)):
            lines += ["", named]
        sections.append("\n".join(lines))
    if proved:
        sections.append("\n".join(["What is installed here", "", table(proved, width, color)]))
    print("\n\n".join(sections))
    return code


def listed(answer: Answer) -> str:
    """The packages that the project names: the version, what it is, and the newest that the project allows."""
    rows = [
        (name, each.version, each.kind, f"newest allowed: {each.newest}" if each.newest != each.version else "")
        for name, each in answer.packages.items()
        if each.newest
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return "\n".join("  ".join(f"{text:<{w}}" for text, w in zip(row, [*widths, 0])).rstrip() for row in rows)
