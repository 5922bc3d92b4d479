"""`add`: find wheels of packages with CUDA code, refuse what plan knows cannot be built here, and install the rest."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import replace

from gpukit.errors.known import match_signs
from gpukit.findings.checks import status_line
from gpukit.findings.finding import Finding
from gpukit.host import stacks
from gpukit.host.facts import arch
from gpukit.host.project import Project
from gpukit.launch import add as adding
from gpukit.launch import native as without_docker
from gpukit.plan import extensions
from gpukit.plan import main as plan
from gpukit.plan import packages as planned
from gpukit.plan.extensions import Found
from gpukit.project import dependencies, pyproject
from gpukit.project.messages import RefusalError, confirmed, plain, say, terminal
from gpukit.project.stack import Stack, StackError, load

# uv reports all else as well as plan does.
REFUSED = (
    "package-needs-torch-to-build",
    "package-not-for-this-cpu",
    "package-not-in-index",
    "pinned-wheel-does-not-fit",
    *extensions.CAUSES,
)


def add(project: Project, packages: list[str], native: bool, yes: bool) -> int:
    names = [package.strip() for package in packages]
    known = any(extensions.facts_of(name) for name in names)
    try:
        stack = load(project.located("stack.json")) if known else None
    except StackError as error:
        raise RefusalError(f"{error}.") from None
    found = wheels(names, stack) if stack else {}
    lines = [line for name in names for line in (found[name].lines if name in found else [name])]

    def judge(new: list[str]) -> None:
        if found:
            confirm(found, yes, names, dependencies.edited(project.root))
        with status_line() as show:
            show(f"Looking for wheels of {', '.join(map(shown, new))}")
            try:
                findings = look(project, new, native)
            except StackError:
                return
        for finding in findings:
            if finding.cause_id in REFUSED and finding.status == "FAIL":
                raise refused(", ".join(map(shown, new)), finding)
        for finding in findings:
            if finding.cause_id == "package-from-source":
                say(f"{finding.title} has no wheel for this machine, so it is built from source, which can take long.")

    def examine(place: adding.Place) -> None:
        if stack and found:
            has_kernels(place, found, stack)

    command = without_docker.add if native else adding.add
    return command(project, lines, judge, examine)


def shown(requirement: str) -> str:
    """A requirement in a sentence: of an address, only the package."""
    return pyproject.name_of(requirement) if "@" in requirement else requirement


def refused(which: str, finding: Finding) -> RefusalError:
    return RefusalError(f"{which} cannot be added: {finding.cause} {finding.remedy}", kind="uv", id=finding.cause_id)


def wheels(names: list[str], stack: Stack) -> dict[str, Found]:
    """For each requirement of a package whose wheels are not on the package index: those that fit all targets."""
    found: dict[str, Found] = {}
    for name in names:
        facts = extensions.facts_of(name)
        if facts is None or pyproject.matches(pyproject.name_of(name), list(stack.protected)):
            continue  # what the base brings is refused in its own words
        with status_line() as show:
            show(f"Looking for wheels of {name}")
            try:
                search = extensions.find(name, stack)
            except RefusalError as error:
                raise RefusalError(f"{name} cannot be added: {error}", kind=error.kind, id=error.id) from None
        if search.wheels:
            found[name] = search
        elif facts.get("jit") and not extensions.lacking(facts, stack):
            if stack.base == "wheel":
                say(f"{name} compiles its kernels at first use, which needs nvcc: the bases `cuda` and `ngc` have it.")
        elif search.missing and not search.unknown_version:
            raise refused(name, plan.finish(search.missing, stack))
    return found


def confirm(found: dict[str, Found], yes: bool, names: list[str], file: str) -> None:
    """Show whose wheels these are, and ask: their publisher is not the package's author. `file`: which would have them.

    Raises:
        RefusalError: there is nobody to ask, or the answer is no.
    """
    for each in found.values():
        for wheel in each.wheels:
            built = wheel.built
            size = f", {wheel.file.size / 1e6:.1f} MB" if wheel.file.size else ""
            say(f"{built.name} {built.version} for {wheel.arch}, built by {wheel.publisher} for {built}{size}:")
            say(f"  {wheel.file.url.partition('#')[0]}")
    if yes:
        return
    if not terminal():
        for line in (line for each in found.values() for line in each.lines):
            say(f"  {json.dumps(line)}," if file.endswith(".toml") else f"  {line}")
        command = f"./launch add --yes {' '.join(names)}"
        raise RefusalError(
            f"Nothing was changed: there is no terminal to ask in. `{command}` adds these lines to {file}.",
            id="no-terminal",
        )
    if not confirmed("Pin and install this?"):
        raise RefusalError("Nothing was changed.", id="not-confirmed")


def has_kernels(place: adding.Place, found: dict[str, Found], stack: Stack) -> None:
    """Refuse wheels whose libraries have no code for a target; what cannot be read is said, and not refused."""
    needs = extensions.needs(stack)
    asked = []
    for wheel in (wheel for each in found.values() for wheel in each.wheels):
        capabilities = needs[wheel.arch].capabilities
        asked.append(
            {"line": wheel.line(), "package": wheel.built.name, "arch": wheel.arch, "capabilities": capabilities}
        )
    with status_line() as show:
        show(f"Downloading {', '.join(found)}, and reading for which GPUs it has code")
        code, output, errors = place(
            ["python", "-m", "gpukit.plan.examine"], json.dumps({"wheels": asked, "cuda": stack.cuda}).encode()
        )
    if code and match_signs(errors, "hash-differs"):
        raise RefusalError(f"Nothing was changed: {plain(errors)}", kind="uv", id="hash-differs", output=errors)
    try:
        answers = json.loads(output) if code == 0 else []
    except ValueError:
        answers = []
    by_wheel = {(each["package"], each["arch"]): each for each in answers}
    for wheel in asked:
        each = by_wheel.get((wheel["package"], wheel["arch"]), {"lacks": [], "unread": "gpukit could not read it"})
        what = f"{wheel['package']} for {wheel['arch']}"
        if each["lacks"]:
            reason = f"has no code for capability {', '.join(each['lacks'])} ({each['seen']})"
            raise RefusalError(f"{what} cannot be added: its wheel {reason}.", id="package-without-kernels")
        if each["unread"]:
            say(f"{what}: not checked for which GPUs it has code: {each['unread']}.")
        else:
            say(f"{what}: it has code for capability {', '.join(wheel['capabilities'])}.")


def look(project: Project, packages: list[str], native: bool) -> Iterable[Finding]:
    """What plan finds about these packages and all that they need, on a machine like this one."""
    whole = load(project.located("stack.json"))
    stack = stacks.natively(whole) if native else whole
    targets = list(stack.targets.values())
    target = next((each for each in targets if each.arch == arch()), replace(targets[0], arch=arch()))
    one = replace(stack, targets={"": target})
    if project.gpus is None:
        target = replace(target, capability=None)
    found = extensions.judge(packages, one)  # which asks nobody
    with contextlib.suppress(RefusalError):  # no uv on this host, or an index that does not respond
        question = planned.question(stack, target, packages, project.root, native)
        answer, _ = planned.answer(question, refresh=False, received={})
        found += planned.judge(answer, question)
    return [plan.finish(each, stack, native) for each in extensions.remedied(found, whole, {})]
