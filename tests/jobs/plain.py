"""A worker whose jobs are plain processes: `python plain.py PROJECT SLOTS`; SLOTS: the GPUs, such as 0,1, or none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpukit.host.project import Project
from gpukit.host.queue import WorkerLock, folder
from gpukit.jobs import worker
from gpukit.jobs.runners import Native
from gpukit.jobs.table import Table
from gpukit.project.messages import RefusalError


class Plain(Native):
    def prepare(self, gpus: str, folder: Path) -> tuple[dict[str, str], list[int]]:
        return {**self.make(gpus, folder).env, "CUDA_VISIBLE_DEVICES": gpus}, []


def main(root: Path, slots: str) -> None:
    worker.TICK = worker.IDLE = 0.02
    place = folder(root)
    lock = WorkerLock(place)
    if not lock.take(0.2):
        raise RefusalError("locked")
    lock.sign()
    with Table(place) as table:
        make = lambda gpus, folder=root: Project(folder, os.environ, cpu=True, gpus=gpus)  # noqa: E731
        limits = worker.Limits(float(os.environ.get("BUDGET", "inf")), float(os.environ.get("KEEP_FREE", "0")))
        gpus = slots.split(",") if slots else None
        queue = worker.Worker(place, table, Plain(make), gpus, lambda: make(""), limits)
        queue.grace = float(os.environ.get("GRACE", "2"))
        queue.run()
        queue.not_started()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
