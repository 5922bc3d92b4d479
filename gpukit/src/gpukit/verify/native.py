"""verify in a native environment: what is said of a container is left out there, and remedies are the native ones."""

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
from gpukit.verify.remedies import REBUILD, START

ANEW = "`./launch --native build --no-cache` makes the environment anew"
# Check -> why it has nothing to look at here.
OF_CONTAINERS = {
    "user": "There is no container: files are made by you, as in any other shell.",
    "mounts": "There is no container: nothing is mounted.",
    "read-only": "There is no container: nothing is mounted.",
    "limits": "There is no container: devcontainer.json sets limits for one, and these are the machine's own.",
}
WORDS = {  # in this order
    REBUILD: ANEW,
    "./launch build": "./launch --native build",
    START: "Look at this machine with `./launch doctor`",
    WITHOUT: "This is the environment without a GPU.",
    "Add `--ulimit=nofile=65536` to runArgs in devcontainer.json": "ulimit -n 65536",
    ", then `docker system df`": "",
    "Add `--cpuset-cpus=": "Start programs with `taskset --cpu-list ",
    "` to runArgs in devcontainer.json": "`",
    ", or raise `--memory` in runArgs": "",
    "Start afresh: `./launch stop`, `./launch up`; where it is a folder of the host, ": "",
    "Give the container more memory": "Free memory on this machine",
    "The container was started without a GPU.": "No GPU can be seen from here.",
    "The container": "This machine",
    "the container": "this machine",
    "This container": "This program",
    "this container": "this machine",
    "On the host: ": "",
    "on the host ": "",
}


def is_native() -> bool:
    """Whether this Python is that of an environment that `./launch --native` made."""
    return guard.OWN.is_file()


def installed(stack: Stack) -> Stack:
    """What is to be found: PyTorch's own wheels in place of the base."""
    facts = stack.native
    driver = facts["driver"] if stack.gpu else None
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = here if here in facts.get("pythons", []) else facts["python"]  # launch takes any that has wheels
    return replace(stack, torch=facts["torch"], cuda=facts["cuda"], python=python, driver=driver)


def adapted(checks: Iterable[Check]) -> list[Check]:
    """The same checks, as they are to judge in a native environment."""
    return [_adapted(each) for each in checks]


def _adapted(each: Check) -> Check:
    if each.id in OF_CONTAINERS:
        return replace(each, judge=lambda saw, stack: skipped(OF_CONTAINERS[each.id]))
    judge = _venv if each.id == interpreter.venv.id else each.judge
    return replace(each, judge=lambda saw, stack: rewritten(judge(saw, installed(stack)), _reworded))


def _venv(saw: Any, stack: Stack) -> Finding:
    """The environment itself is one; another in the workspace would still be taken for this project's."""
    return interpreter.STALE(saw.stale, "no .venv") if saw.stale else passed(saw.prefixes[0])


def _reworded(text: str) -> str:
    for words, own in WORDS.items():
        text = text.replace(words, own)
    return text
