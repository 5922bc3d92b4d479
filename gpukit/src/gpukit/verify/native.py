"""verify in a native environment: checks of containers are skipped, and remedies are those of `--native`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpukit.findings.checks import Check
from gpukit.findings.finding import Finding, passed, rewritten, skipped
from gpukit.image import guard
from gpukit.project.stack import Stack
from gpukit.verify import interpreter
from gpukit.verify.device import WITHOUT
from gpukit.verify.packages import OLD_IMAGE
from gpukit.verify.remedies import BUILD, REBUILD, START

RECREATE = "Recreate the environment: `./launch --native build --no-cache`"
# Check -> why it is skipped here.
OF_CONTAINERS = {
    "user": "There is no container: files belong to you, as in any other shell.",
    "mounts": "There is no container: nothing is mounted.",
    "read-only": "There is no container: nothing is mounted.",
    "limits": "There is no container: the limits in devcontainer.json do not apply.",
}
REPLACEMENTS = {  # in this order
    OLD_IMAGE.why: "The environment is older than vendor/: it has another version of gpukit.",
    BUILD: "`./launch --native build`",
    REBUILD: RECREATE,
    "./launch build": "./launch --native build",
    START: "Check this machine with `./launch doctor`",
    WITHOUT: "This is the CPU environment.",
    "The CPU container": "The CPU environment",
    "the GPU container": "the GPU environment",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json": "ulimit -n 65536",
    ", then `docker system df`": "",
    "Add `--cpuset-cpus=": "Start programs with `taskset --cpu-list ",
    "` to runArgs in devcontainer.json": "`",
    " to apt.txt, then rebuild the image": " with this machine's package manager",
    " on the host and `docker stats`": "",
    ", or raise `--memory` in runArgs": "",
    "Recreate the container: `./launch stop`, `./launch up`; for a folder of the host, run ": "",
    "Give the container more memory": "Free memory on this machine",
    "`docker stats` shows its limit, ": "",
    ": `docker stats` shows its limit": "",
    "The container was started without a GPU.": "This machine has no GPU device.",
    " in this container": " here",
    "The container": "This machine",
    "the container": "this machine",
    "This container": "This program",
    "this container": "this machine",
    "On the host: ": "",
    "on the host ": "",
}


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
    if each.id in OF_CONTAINERS:
        return replace(each, judge=lambda saw, stack: skipped(OF_CONTAINERS[each.id]))
    judge = _venv if each.id == interpreter.venv.id else each.judge
    return replace(each, judge=lambda saw, stack: rewritten(judge(saw, installed(stack)), _reword))


def _venv(saw: Any, stack: Stack) -> Finding:
    """The environment itself is one; editors would still use another one in the workspace."""
    return interpreter.STALE(saw.workspace_venv, "no .venv") if saw.workspace_venv else passed(saw.prefixes[0])


def _reword(text: str) -> str:
    for old, new in REPLACEMENTS.items():
        text = text.replace(old, new)
    return text
