"""Before VS Code starts the container: print one line for each problem that would stop it, and always succeed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from textwrap import shorten

from gpukit.doctor.host import Host
from gpukit.findings.checks import Check, run
from gpukit.findings.finding import FAIL
from gpukit.findings.private import mask
from gpukit.project.location import root
from gpukit.project.stack import StackError, load

# `./launch preflight` runs next and checks `gpu`; the other checks are not about starting a container.
EARLY_CHECKS = ("client", "engine", "merge", "mounts", "driver", "card", "mig", "mixed", "fabric", "memory", "disk")
GPU_CHECKS = ("driver", "card", "mig", "mixed", "fabric", "memory")
# Warnings for `./launch`, but VS Code cannot start the container, or the machine may freeze.
BLOCKING = (
    "comma-in-path",
    "engine-on-other-machine",
    "shared-memory-taken",
    "shared-memory-swapped",
    "shared-memory-cached",
)


def early(checks: Iterable[Check]) -> int:
    try:
        stack, hide = load(), mask(root())
        without = GPU_CHECKS if os.environ.get("GPUKIT_DEVICE") == "cpu" else ()
        chosen = [check for check in checks if check.id in EARLY_CHECKS and check.id not in without]
        with Host(stack, gpu=not without) as probes:
            for finding in run(chosen, probes, stack):
                if finding.status == FAIL or not finding.completed or finding.cause_id in BLOCKING:
                    seen = shorten(finding.seen, 80, placeholder=" ...")
                    print(hide(f"doctor: {finding.title}: {seen}. {finding.cause} {finding.remedy}"), flush=True)
    except (StackError, OSError):
        pass  # starting the container reports it
    return 0
