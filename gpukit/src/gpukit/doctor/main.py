"""`./launch doctor`: check whether this machine has what the container needs, or PyTorch outside a project."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

from gpukit.doctor import card, disk, driver, engine, grant, health, project
from gpukit.doctor.host import Host
from gpukit.doctor.needs import report
from gpukit.errors.machine import Machine
from gpukit.findings.checks import Check, checks_of, command, natively, run
from gpukit.findings.finding import FAIL, Finding, problem, skipped
from gpukit.findings.private import mask
from gpukit.host import facts, stacks
from gpukit.project.location import find_root, root
from gpukit.project.stack import Stack, StackError, load

ABOUT = """\
Check this machine: can it run this project's container? Outside a project: is it ready for PyTorch on its GPU, and
which driver, image, and PyTorch does the GPU need? Nothing is written and nothing is installed.

  ./launch doctor                     all checks
  ./launch doctor --quick             without those that start a container
  ./launch doctor --only driver,gpu   these checks and those that they need
  ./launch doctor --json              the findings, and `machine`, which `./launch explain --machine FILE` reads
  ./launch doctor --report            a file for an issue
  ./launch --cpu doctor               without the checks of the GPU
  ./launch doctor --early             one line for each problem that would stop the container; exits with 0"""

# Causes come before their consequences: without a driver, an engine cannot grant a GPU.
CHECKS = checks_of(engine, project, disk, driver, card, health, grant)
ENGINE_CHECKS = ("engine", "gpu", "reload", "disk")
# `./launch preflight` runs next and checks `gpu`; the other checks are not about starting a container.
EARLY_CHECKS = ("client", "engine", "merge", "mounts", "driver", "card", "mig", "mixed", "fabric", "memory", "disk")
# Warnings for `./launch`, but VS Code cannot start the container, or the machine may freeze.
BLOCKING = (
    *("comma-in-path", "engine-on-other-machine"),
    *("shared-memory-taken", "shared-memory-swapped", "shared-memory-cached"),
)


def main(argv: list[str] | None = None, cpu: bool = False, native: bool = False) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if "--early" in argv:
        return early()
    native = native and find_root() is not None
    here: list[Machine] = []

    def look(stack: Stack) -> contextlib.AbstractContextManager[Host]:
        project = Path.cwd() if stack.standalone else None
        probes = Host(stack, project, cpu=cpu, local=here[0] if here else None, native=native)
        return contextlib.nullcontext(probes)

    def needed() -> Stack:
        here.append(facts.local(None))
        return stacks.needs(here[0], cpu)

    def more(probes: Any, stack: Stack) -> tuple[dict[str, Any], str]:
        document = {"machine": facts.to_json(probes.local)}
        text = ""
        if stack.standalone:
            document["needs"], text = report(probes.local, stack)
        return document, text

    return command("doctor", ABOUT, adapted(CHECKS, cpu, native), look, argv, needs=needed, more=more)


def adapted(checks: Iterable[Check], cpu: bool = False, native: bool = False) -> list[Check]:
    """The checks, adapted to --cpu and --native, and outside a project to machines without Docker or without a GPU."""
    if native:
        checks = [natively(each, stacks.natively) for each in checks]
    return [replace(each, judge=partial(_judged, each, cpu)) for each in checks]


def _judged(each: Check, cpu: bool, probes: Any, stack: Stack) -> Finding:
    if not stack.standalone:
        return each.judge(probes, stacks.without_gpu(stack) if cpu else stack)
    if each.id in ENGINE_CHECKS and probes.client.code is None and not probes.client.timed_out:
        return skipped("docker-absent")
    finding = each.judge(probes, stack)
    if finding.cause_id == "docker-not-installed":
        return skipped("docker-not-needed")
    if finding.cause_id == "no-gpu-requested" and not cpu:
        found = probes.local.gpus
        if found and each.id == "card":
            seen = ", ".join(f"{each.name} ({each.capability})" for each in found)
            return problem("card-not-supported", seen, "a GPU that PyTorch has a build for")
        return skipped("no-build-for-gpu" if found else "no-gpu-in-machine")
    return finding


def early() -> int:
    """Before VS Code starts the container: a line for each problem that would stop it; always succeeds."""
    try:
        stack = load()
        hide = mask(root())
        cpu = os.environ.get("GPUKIT_DEVICE") == "cpu"
        chosen = [each for each in adapted(CHECKS, cpu) if each.id in EARLY_CHECKS]
        for finding in run(chosen, Host(stack, cpu=cpu), stack):
            if finding.status == FAIL or not finding.completed or finding.cause_id in BLOCKING:
                seen = shorten(finding.seen, 80, placeholder=" ...")
                print(hide(f"doctor: {finding.title}: {seen}. {finding.cause} {finding.remedy}"), flush=True)
    except (StackError, OSError):
        pass  # starting the container reports it
    return 0
