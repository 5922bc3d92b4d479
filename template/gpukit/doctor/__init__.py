"""Does this machine have what the container needs? Runs on the host with nothing but Python's standard library."""

from __future__ import annotations

from gpukit.checks import command
from gpukit.doctor import disk, engine, gpu, mounts, support
from gpukit.doctor.host import Host

# A cause stands before its consequences: an engine without a driver cannot grant a GPU.
CHECKS = (
    engine.client,
    engine.engine,
    gpu.driver,
    gpu.card,
    gpu.gpu,
    disk.disk,
    mounts.mounts,
    support.base,
)


def main(argv: list[str] | None = None) -> int:
    return command("doctor", "Look at this machine: can it run this project's container?", CHECKS, Host, argv)
