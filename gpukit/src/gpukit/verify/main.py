"""`gpukit verify`: whether this container is what the project expects, and whether its GPU works."""

from __future__ import annotations

from functools import partial

from gpukit.findings.checks import command
from gpukit.verify import (
    build,
    compute,
    device,
    hardware,
    health,
    imports,
    interpreter,
    library,
    machine,
    multiprocess,
    native,
    notebook,
    packages,
    places,
    tracking,
    user,
)
from gpukit.verify.container import Container
from gpukit.verify.record import record
from gpukit.verify.rich_table import rich_table

# Software first, then user and folders, then what takes seconds. A check comes after those that it needs.
CHECKS = (
    packages.gpukit,
    interpreter.python,
    interpreter.venv,
    build.imports,
    build.torch,
    build.cuda,
    build.protected,
    build.base_image,
    packages.packages,
    packages.conflicts,
    device.gpu,
    device.card,
    device.cap,
    device.kernels,
    device.ptxas,
    health.health,
    health.mode,
    health.xid,
    user.user,
    places.mounts,
    places.read_only,
    places.caches,
    places.room,
    multiprocess.shm,
    machine.limits,
    machine.cpus,
    machine.ram,
    machine.clock,
    user.credentials,
    notebook.jupyter,
    compute.tensor,
    compute.matmul,
    compute.convolution,
    compute.attention,
    compute.amp,
    multiprocess.loader,
    multiprocess.peers,
    multiprocess.collective,
    tracking.tracking,
    imports.imports,
    compute.compiles,
    compute.training,
    library.train,
    hardware.memory,
    hardware.oom,
    hardware.transfer,
    hardware.gemm,
    hardware.clocks,
)


ABOUT = """\
Check that this container is what the project expects, and that its GPU works.

  ./launch verify                      all checks, about half a minute
  ./launch verify --quick              without those that load the GPU or start processes
  ./launch verify --only gpu,kernels   these checks and those that they need
  ./launch verify --stress             also load tests of the GPU, within safe limits
  ./launch verify --report             a file for an issue
  ./launch --cpu verify                the container without a GPU"""


def main(argv: list[str] | None = None) -> int:
    if native.is_native():  # records are about images
        return command("verify", ABOUT, native.adapted(CHECKS), Container, argv, None, rich_table)
    return command("verify", ABOUT, CHECKS, Container, argv, partial(record, CHECKS), rich_table)
