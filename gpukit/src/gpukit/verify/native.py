"""verify in a native environment: checks of containers are skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpukit.findings.checks import Check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.image import guard
from gpukit.project.stack import Stack
from gpukit.verify import interpreter

CONTAINER_CHECKS = ("base-image", "user", "mounts", "read-only", "limits")


def is_native() -> bool:
    """Whether this Python is that of an environment that `./launch --native` created."""
    return guard.OWN.is_file()


def installed(stack: Stack) -> Stack:
    """What to expect: PyTorch's own wheels instead of the base."""
    facts = stack.native
    driver = facts["driver"] if stack.gpu else None
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = here if here in facts.get("pythons", []) else facts["python"]  # launch takes any that has wheels
    return replace(stack, torch=facts["torch"], cuda=facts["cuda"], python=python, driver=driver)


def adapted(checks: Iterable[Check]) -> list[Check]:
    """The checks for a native environment."""
    return [_adapted(each) for each in checks]


def _adapted(each: Check) -> Check:
    each = replace(each, native=True)
    if each.id in CONTAINER_CHECKS:
        return replace(each, judge=lambda probes, stack: skipped("no-container"))
    judge = _venv if each.id == interpreter.venv.id else each.judge
    return replace(each, judge=lambda probes, stack: judge(probes, installed(stack)))


def _venv(probes: Any, stack: Stack) -> Finding:
    """The environment itself is one; editors would still use another one in the workspace."""
    if probes.workspace_venv:
        return problem("workspace-venv", probes.workspace_venv, "no .venv")
    return passed(probes.prefixes[0])
