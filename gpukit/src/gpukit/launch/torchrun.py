"""`run --nproc N`: a Python program in N processes that train together, as torchrun starts them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from gpukit.project.messages import RefusalError


def command(argv: list[str], processes: str, gpus: str | None) -> list[str]:
    """The command that starts `argv`, written as for one process, in several; it says so where that makes no sense.

    `processes`: a number, or `gpu` for one on each GPU. `gpus`: which are asked for, as Project.gpus has it.
    Source: https://docs.pytorch.org/docs/stable/elastic/run.html (2026-11-20)
    """
    if not re.fullmatch(r"gpu|[1-9]\d*", processes):
        raise RefusalError(f"--nproc is {processes!r}: it must be a number of processes, or gpu for one on each GPU.")
    if processes == "gpu" and gpus is None:
        raise RefusalError("--nproc gpu needs GPUs, and there is none: use a number.")
    chosen = len(gpus.split(",")) if gpus and gpus != "all" else 0
    if chosen and processes != "gpu" and int(processes) > chosen:
        raise RefusalError(
            f"--nproc {processes} needs as many GPUs, but GPUS chooses {chosen} ({gpus}): change one of them."
        )
    name = PurePosixPath(argv[0]).name
    program = argv[1:] if re.fullmatch(r"python[\d.]*", name) else argv
    if name == "torchrun" or program[:2] == ["-m", "torch.distributed.run"]:
        raise RefusalError("torchrun starts the processes itself: omit --nproc or torchrun.")
    module = program[:1] == ["-m"] and len(program) > 1
    if not module and not (program and program[0].endswith(".py")):
        raise RefusalError(
            "--nproc starts a Python module or file: ./launch run --nproc 2 -- python -m yourpackage.train"
        )
    return ["torchrun", "--standalone", f"--nproc-per-node={processes}", *program]
