"""`./launch setup`: print the commands of the steps that this host lacks; --apply runs them, --undo reverts them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpukit.doctor import engine as engines
from gpukit.findings.causes import PROJECT, cause, worded
from gpukit.findings.finding import count
from gpukit.host import facts, stacks
from gpukit.host.cards import data
from gpukit.project.location import find_root, located
from gpukit.project.messages import RefusalError, as_called, say
from gpukit.project.stack import Stack, StackError, load
from gpukit.setup import apply as running
from gpukit.setup.machine import Machine
from gpukit.setup.steps import IDS, Context, Step, as_user, missing_steps, other_problems
from gpukit.setup.systems import DRIVER, READ_ON, SYSTEMS, TOOLKIT, docker_page, read_mirrors, repositories


def main(root: Path, options: argparse.Namespace) -> int:
    """Returns the exit status: 0 if nothing is missing or all steps succeeded, 1 if one failed, 130 if interrupted."""
    if Path("/etc/gpukit").is_dir():
        raise RefusalError("This is the inside of the container: run setup on the host.")
    if options.undo:
        if options.only:
            raise RefusalError("--undo reverts every step, the last one first: omit --only.")
        return running.undo(options.yes, dry=getattr(options, "dry_run", False))
    refresh = _context(root, options)
    context = refresh()
    steps = missing_steps(context)
    if not options.apply or getattr(options, "dry_run", False):
        return show(context, steps)
    for sentence in other_problems(context):
        say(f"setup: {as_called(sentence, project=not context.stack.standalone)}")
    if not steps:
        say(f"setup: {context.system.name} has everything that setup can install.")
        return 0
    return running.apply(context, steps, refresh, options.yes)


def _context(root: Path, options: argparse.Namespace) -> Callable[[], Context]:
    """A function that examines the machine; it refuses machines that the steps do not support."""
    stack = _stack(root, options.hardware)
    wanted = tuple(word.strip() for word in options.only.split(",") if word.strip())
    for step in wanted:
        if step not in IDS:
            raise RefusalError(f"There is no step {step}; the steps are {', '.join(IDS)}.")
    mirrors = read_mirrors(options.mirrors)

    def look() -> Context:
        probes: Any = Machine(stack, root)
        _refuse_unsupported(probes)
        system = SYSTEMS[probes.release.get("ID", ""), probes.release.get("VERSION_ID", "")]
        target = stack.targets.get(options.hardware)
        found = repositories(system, probes.arch, mirrors)
        return Context(probes, stack, system, found, target, wanted, running.Journal().interrupted)

    return look


def _stack(root: Path, hardware: str) -> Stack:
    """The project's stack; outside a project, the stack for this machine's GPU or for --hardware."""
    if find_root() is not None:
        try:
            stack = load(located("stack.json", root))
        except StackError as error:
            raise RefusalError(f"{error}.") from None
        if hardware and hardware not in stack.targets:
            raise RefusalError(f"This project is not for {hardware}; it is for {', '.join(stack.targets)}.")
        return stack
    if not hardware:
        return stacks.needs(facts.local(None))
    if hardware not in data("cards"):
        raise RefusalError(f"There is no hardware {hardware}; the ids are {', '.join(data('cards'))}.")
    return stacks.stack([hardware], facts.arch())


def _refuse_unsupported(probes: Any) -> None:
    """Refuse machines that setup does not support, with links to the vendors' pages."""
    if probes.system in ("macos", "windows"):
        remedy = worded(cause("docker-not-installed").remedy, PROJECT, special=(probes.system,))
        raise RefusalError(f"setup is for Linux and WSL 2. {remedy}")
    if engines.remote(probes.endpoint):
        raise RefusalError("The engine is on another machine. Run setup there.")
    if probes.root and probes.user != "root":
        raise RefusalError(f"Run setup as {probes.user}, without sudo: it uses sudo where a step needs it.")
    release = probes.release
    if (release.get("ID", ""), release.get("VERSION_ID", "")) not in SYSTEMS:
        known = ", ".join(system.name for system in SYSTEMS.values())
        raise RefusalError(
            f"setup supports {known}; this is {release.get('PRETTY_NAME', 'another')}. See the vendors' pages: Docker "
            f"{docker_page(release)}, NVIDIA's driver {DRIVER}/, NVIDIA's Container Toolkit {TOOLKIT}"
        )


def show(context: Context, steps: list[Step]) -> int:
    """Print the commands to stdout, ready to paste, with explanations as comments; other messages go to stderr."""
    here = partial(as_called, project=not context.stack.standalone)
    lines = []
    for number, step in enumerate(steps, 1):
        lines += ["", f"# {number}. {step.title} ({step.id})", f"#    {step.why}"]
        lines += [f"#    {step.source(context)} (read {READ_ON})"]
        reason = step.blocks(context) or step.waits(context)
        lines += [f"#    {note}" for note in [*[reason] * bool(reason), *step.notes(context)]]
        lines += [as_user(line, context) for line in step.commands(context)]
        lines += [f"# check: {as_user(step.check(context), context)}"]
    if lines:
        print(here("\n".join(lines[1:])), flush=True)
        say("")
    for sentence in other_problems(context):
        say(f"setup: {here(sentence)}")
    if not steps:
        say(
            here(
                f"setup: {context.system.name} has everything that setup can install. `./launch doctor` checks the "
                f"rest."
            )
        )
        return 0
    named = f" --hardware {next(iter(context.stack.targets))}" if context.target and context.stack.standalone else ""
    say(
        here(
            f"setup: {context.system.name} lacks {count(len(steps), 'step')}; nothing was changed. `./launch "
            f"setup{named} "
            "--apply` runs them one by one, verifies each, and keeps a log so that --undo can revert them."
        )
    )
    return 0
