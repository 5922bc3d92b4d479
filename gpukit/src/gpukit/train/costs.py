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
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # of workers, that are looked at
PREFETCH = (2, 4, 8, 16)
FEW_CPUS = 2  # of which the training process is a part that counts
HANDING = 1.5e-4  # seconds that handing over a batch costs either side, and again for each tensor in it

Plan = tuple[int, int]  # workers, and batches that each may be ahead
ALONE = (0, 2)


@dataclass(frozen=True)
class Costs:
    """What a batch of `samples` samples costs, in seconds: for some batches, how long they waited and computed; that
    includes the time behind other processes.

    `size`: bytes of the tensors of a whole batch; `tensors`: how many; `memory`: bytes that a worker has for itself;
    `objects`: bytes of Python objects that it comes to copy. `step`: the training step's time, `step_cpus`: CPUs that
    it keeps busy. `worker`, `training`: what handing over costs either process. `cpus`: how many there are for all.
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
    worker: float = 2 * HANDING
    training: float = 2 * HANDING
    cpus: float = 1.0

    @property
    def alone(self) -> float:
        """Seconds for a batch that the training process makes itself."""
        return fmean(self.waited) + fmean(self.computed)

    @property
    def varies(self) -> float:
        """How unequal batches are: the deviation of the time that one takes, as a share of the mean."""
        made = [wait + work for wait, work in zip(self.waited, self.computed, strict=True)]
        return pstdev(made) / fmean(made)

    def period(self, workers: int, prefetch: int, spare: float = 1.0) -> float:
        """Seconds from batch to batch, predicted. `spare`: how many times as much as measured the data costs.

        Method: whoever is busiest sets the pace, as in Denning and Buzen, The Operational Analysis of Queueing Network
        Models, ACM Computing Surveys 10 (1978): the CPUs together, or the way of the batches, which `replay` goes.
        """
        if workers == 0:
            return self.alone * spare + self.step
        made = [(wait + work + self.worker) * spare for wait, work in zip(self.waited, self.computed, strict=True)]
        work = (fmean(self.computed) + self.worker) * spare + self.training + self.step * self.step_cpus
        at_work, by_worker = work / self._cpus_for(workers), fmean(made) / workers
        # CPUs idle while all workers wait, and workers wait while they share the CPUs: where neither sets the pace
        # alone they slow each other down, unless all batches are alike; and where the training process is no small
        # part of all that wants a CPU (sweeps of benchmarks/loader.py: with 2 CPUs, 4 workers make 4 % more than 2).
        sharp = 4 if self.varies + fmean(self.waited) / self.alone > 0.2 else 8 if self.cpus <= FEW_CPUS else 200
        shared = at_work * (1 + (by_worker / at_work) ** sharp) ** (1 / sharp)
        return max(shared, replay(made, workers, prefetch, self.step + self.training))

    def _cpus_for(self, workers: int) -> float:
        """CPUs that count for batches taken in order: of three workers on two CPUs, two share one and are waited for.

        The system moves them around, so half of that is what was measured to remain.
        """
        evenly = workers / ceil(workers / self.cpus) if workers > self.cpus else self.cpus
        return (self.cpus + evenly) / 2

    def corrected(self, plan: Plan, seen: Seen) -> Costs:
        """The same with what running a plan has shown; where data was not the limit, only of handing it over."""
        if seen.blocked < 0.1:
            return replace(self, training=max(seen.period - self.step, 0.0))
        each = plan[0] * seen.period  # of a worker's time goes into a batch
        busy = seen.busy if seen.busy is not None else fmean(self.computed) / self.alone
        times = busy * each / max(fmean(self.computed), 1e-9)
        shift = (1 - busy) * each - fmean(self.waited)
        return replace(
            self,
            computed=tuple(one * times for one in self.computed),
            waited=tuple(max(0.0, one + shift) for one in self.waited),
            worker=0.0,  # it is in there now
            training=seen.training,
        )


@dataclass(frozen=True)
class Seen:
    """What running a plan has shown: seconds from batch to batch, and how long the first took to come.

    `training`: CPU seconds of the training process for taking a batch; `blocked`: the share of its time in which it
    waited for one. `busy`: the share of the workers' time in which they computed or waited for a CPU, where the system
    tells.
    """

    period: float
    started: float
    training: float = 0.0
    blocked: float = 0.0
    busy: float | None = None


def replay(made: list[float], workers: int, prefetch: int, step: float) -> float:
    """Seconds from batch to batch where batches that take so long to make, in random order, meet DataLoader's rules.

    Batch i is made by worker i % workers, from when batch i - workers * prefetch is taken; batches are taken in order,
    with a step after each. Source: `_MultiProcessingDataLoaderIter` in torch/utils/data/dataloader.py.
    """
    drawn, rounds = random.Random(0), -(-max(256, 24 * workers) // len(made))
    free, taken, now = [0.0] * workers, [], 0.0
    for batch, seconds in enumerate(each for _ in range(rounds) for each in drawn.sample(made, len(made))):
        worker, before = batch % workers, batch - workers * prefetch
        free[worker] = max(free[worker], taken[before] if before >= 0 else 0.0) + seconds
        taken.append(max(now, free[worker]))
        now = taken[-1] + step
    return (taken[-1] - taken[workers - 1]) / (len(taken) - workers)  # from when each worker has brought one


def plans(costs: Costs) -> list[Plan]:
    """Plans for which there is room, the simplest first: memory for workers, /dev/shm for batches on their way."""
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
    """Workers beyond which no plan is looked at."""
    return max(8, 2 * round(costs.cpus))
