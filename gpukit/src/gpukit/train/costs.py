"""The cost of batches, and the predicted speed of a loader plan: arithmetic only, no process is started here."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import fmean, pstdev

import torch

from gpukit.train.device import Device, budget

SHM = Path("/dev/shm")
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # numbers of workers to consider
PREFETCH = (2, 4, 8, 16)
FEW_CPUS = 2  # up to here, the training process takes a considerable share of the CPUs
HANDOVER = 1.5e-4  # seconds that transferring a batch costs each side, and again for each tensor in it

Plan = tuple[int, int]  # workers, and batches that each prefetches
ALONE = (0, 2)


@dataclass(frozen=True)
class Costs:
    """What a batch of `samples` samples costs, in seconds: the waiting and computing times of several batches,
    including the time spent waiting for a CPU.

    `size`: bytes of the tensors of a whole batch; `tensors`: their number; `memory`: private bytes of a worker;
    `objects`: bytes of Python objects that each worker will copy. `step`: duration of the training step; `step_cpus`:
    CPUs that it keeps busy. `worker`, `training`: cost of the transfer for each of the two processes. `cpus`: CPUs
    for all processes together.
    """

    samples: int
    waited: tuple[float, ...]
    computed: tuple[float, ...]
    size: int = 0
    tensors: int = 1
    memory: int = 0
    objects: int = 0
    step: float = 0.0
    step_cpus: float = 0.0
    worker: float = 2 * HANDOVER
    training: float = 2 * HANDOVER
    cpus: float = 1.0

    @property
    def alone(self) -> float:
        """Seconds for a batch that the training process loads itself."""
        return fmean(self.waited) + fmean(self.computed)

    @property
    def varies(self) -> float:
        """The standard deviation of a batch's time, relative to the mean."""
        made = [wait + work for wait, work in zip(self.waited, self.computed, strict=True)]
        return pstdev(made) / fmean(made)

    def period(self, workers: int, prefetch: int, spare: float = 1.0) -> float:
        """Predicted seconds per batch. `spare`: a factor on the measured cost of the data.

        Method: the bottleneck sets the pace, as in Denning and Buzen, The Operational Analysis of Queueing Network
        Models, ACM Computing Surveys 10 (1978): either all CPUs together, or the pipeline that `replay` simulates.
        """
        if workers == 0:
            return self.alone * spare + self.step
        made = [(wait + work + self.worker) * spare for wait, work in zip(self.waited, self.computed, strict=True)]
        work = (fmean(self.computed) + self.worker) * spare + self.training + self.step * self.step_cpus
        at_work, by_worker = work / self._cpus_for(workers), fmean(made) / workers
        # CPUs are idle while all workers wait, and workers wait while they share CPUs. If neither is clearly the
        # bottleneck, they slow each other down, unless all batches cost the same. The same applies if the training
        # process takes a considerable share of the CPUs (benchmarks/loader.py: with 2 CPUs, 4 workers are 4 % faster
        # than 2).
        sharp = 4 if self.varies + fmean(self.waited) / self.alone > 0.2 else 8 if self.cpus <= FEW_CPUS else 200
        shared = at_work * (1 + (by_worker / at_work) ** sharp) ** (1 / sharp)
        return max(shared, replay(made, workers, prefetch, self.step + self.training))

    def _cpus_for(self, workers: int) -> float:
        """Effective CPUs if batches are taken in order: of three workers on two CPUs, two share one and delay the rest.

        The scheduler moves them between CPUs, so that about half of this effect was measured.
        """
        evenly = workers / ceil(workers / self.cpus) if workers > self.cpus else self.cpus
        return (self.cpus + evenly) / 2

    def corrected(self, plan: Plan, seen: PlanResult) -> Costs:
        """The costs, corrected by running a plan; if data was not the bottleneck, only the transfer is corrected."""
        if seen.blocked < 0.1:
            return replace(self, training=max(seen.period - self.step, 0.0))
        each = plan[0] * seen.period  # seconds of a worker per batch
        busy = seen.busy if seen.busy is not None else fmean(self.computed) / self.alone
        times = busy * each / max(fmean(self.computed), 1e-9)
        shift = (1 - busy) * each - fmean(self.waited)
        return replace(
            self,
            computed=tuple(one * times for one in self.computed),
            waited=tuple(max(0.0, one + shift) for one in self.waited),
            worker=0.0,  # included above
            training=seen.training,
        )


@dataclass(frozen=True)
class PlanResult:
    """The result of running a plan: seconds per batch, and seconds until the first batch.

    `training`: CPU seconds of the training process per batch; `blocked`: the share of its time that it waited for
    batches. `busy`: the share of the workers' time that they computed or waited for a CPU; None if unknown.
    """

    period: float
    started: float
    training: float = 0.0
    blocked: float = 0.0
    busy: float | None = None


def replay(made: list[float], workers: int, prefetch: int, step: float) -> float:
    """Seconds per batch if a DataLoader loads batches with these times, in random order.

    Worker i % workers loads batch i as soon as batch i - workers * prefetch is taken; batches are taken in order, with
    a step after each. Source: `_MultiProcessingDataLoaderIter` in torch/utils/data/dataloader.py.
    """
    drawn, rounds = random.Random(0), -(-max(256, 24 * workers) // len(made))
    free, taken, now = [0.0] * workers, [], 0.0
    for batch, seconds in enumerate(each for _ in range(rounds) for each in drawn.sample(made, len(made))):
        worker, before = batch % workers, batch - workers * prefetch
        free[worker] = max(free[worker], taken[before] if before >= 0 else 0.0) + seconds
        taken.append(max(now, free[worker]))
        now = taken[-1] + step
    return (taken[-1] - taken[workers - 1]) / (len(taken) - workers)  # after each worker's first batch


def plans(costs: Costs) -> list[Plan]:
    """Plans that fit in memory (workers) and in /dev/shm (prefetched batches), the simplest first."""
    counts = {*COUNTS, round(costs.cpus)}
    there = os.statvfs(SHM) if SHM.is_dir() else None
    shared = 0.8 * there.f_bavail * there.f_frsize / processes() if there else 0.0
    memory = 0.8 * budget(Device(torch.device("cpu"))).free / processes()
    fitting = [ALONE]
    for workers in sorted(each for each in counts if each <= most(costs)):
        room = min(shared, memory - workers * (costs.memory + costs.objects))
        fitting += [(workers, each) for each in PREFETCH if costs.size * (workers * each + 2) <= room]
    return fitting


def processes() -> int:
    """Training processes that share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def most(costs: Costs) -> int:
    """The largest number of workers to consider."""
    return max(8, 2 * round(costs.cpus))
