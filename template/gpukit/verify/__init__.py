"""Is this container what the project expects, and does its GPU compute? Runs inside: `python -m gpukit.verify`."""

from __future__ import annotations

from gpukit.checks import command
from gpukit.verify import build, compute, device, interpreter, person, places, shared_memory
from gpukit.verify.container import Container

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
    person.user,
    places.mounts,
    places.read_only,
    places.caches,
    shared_memory.shm,
    compute.tensor,
    compute.compiles,
)


def main(argv: list[str] | None = None) -> int:
    return command("verify", "Look at this container: is it what the project expects?", CHECKS, Container, argv)
