"""Does this machine have what the container needs? Runs on the host with nothing but Python's standard library."""

from __future__ import annotations

import argparse
import sys

from gpukit.doctor import card, disk, driver, engine, grant, machine, mounts, ports, project, running, support
from gpukit.doctor.host import Host
from gpukit.findings.checks import command

ABOUT = """\
Look at this machine: can it run this project's container?

  --early    instead: one line for each problem that would stop the container; the exit code is always 0"""

# A cause stands before its consequences: an engine without a driver cannot grant a GPU.
CHECKS = (
    engine.client,
    engine.engine,
    project.merge,
    mounts.mounts,
    driver.driver,
    card.card,
    machine.mig,
    machine.mixed,
    machine.fabric,
    grant.gpu,
    running.running,
    running.reload,
    running.restart,
    disk.disk,
    disk.caches,
    project.venv,
    ports.ports,
    support.base,
)


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--early", action="store_true")
    ours = parser.parse_known_args(argv)[0]
    if ours.early:
        from gpukit.doctor.early import early

        return early(CHECKS)
    return command("doctor", ABOUT, CHECKS, Host, argv)
