"""Is this container what the project expects, and does its GPU compute? Runs inside: `python -m gpukit.verify`."""

from __future__ import annotations

from gpukit.checks import command
from gpukit.verify import (
    build,
    compute,
    device,
    hardware,
    interpreter,
    machine,
    notebook,
    person,
    places,
    several,
)
from gpukit.verify.container import Container
from gpukit.verify.record import record
from gpukit.verify.rich_table import rich_table

# Software first, then where and who, then what takes seconds; a check stands after those it needs.
CHECKS = (
    interpreter.python,
    interpreter.venv,
    build.imports,
    build.torch,
    build.cuda,
    build.protected,
    device.gpu,
    device.card,
    device.kernels,
    device.ptxas,
    hardware.health,
    hardware.xid,
    person.user,
    places.mounts,
    places.read_only,
    places.caches,
    places.room,
    several.shm,
    machine.limits,
    machine.cpus,
    person.credentials,
    notebook.jupyter,
    compute.tensor,
    compute.matmul,
    compute.convolution,
    compute.attention,
    compute.amp,
    several.loader,
    several.collective,
    compute.compiles,
    compute.training,
    hardware.memory,
    hardware.oom,
    hardware.transfer,
    hardware.gemm,
    hardware.clocks,
)


def main(argv: list[str] | None = None) -> int:
    about = "Look at this container: is it what the project expects?"
    return command("verify", about, CHECKS, Container, argv, record, rich_table)
