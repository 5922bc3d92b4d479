"""The batches of a training loop, from a loader that is tuned during the first steps.

The best number of workers depends on how long a step takes, which only the loop itself shows. So its first steps are
timed, and so is the worker that loads their batches; then the number of workers is chosen (tuner.py) for the rest. The
batches are the same in any case: they depend only on the seed and the step (data.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median
from typing import Any, Literal

import torch
from torch.utils.data import Dataset

from gpukit.train.data import Loading, loader
from gpukit.train.ranks import Ranks
from gpukit.train.task import Task
from gpukit.train.tuner import Trial, alone, choose


class Feed:
    """Endless batches from `first_step` for one loop: this rank's part of `batch_size` samples each.

    `source`: a data set, or a task with its data set and `collate`. `workers`: a number, or "auto". `loading`: the
    current settings of the loader; `say` reports them once they are chosen. Raises the errors of `loader`.
    """

    def __init__(
        self,
        source: Task | Dataset,
        batch_size: int,
        seed: int,
        *,
        collate: Callable[[list[Any]], Any] | None = None,
        first_step: int = 0,
        workers: int | Literal["auto"] = "auto",
        ranks: Ranks | None = None,
        device: torch.device | str = "cpu",
        say: Callable[[str], object] = print,
    ) -> None:
        self.dataset, self.collate = source, collate
        if isinstance(source, Task):
            self.dataset, self.collate = source.dataset, source.collate
        self.batch_size, self.seed, self.step = batch_size, seed, first_step
        self.ranks, self.device, self.say = ranks or Ranks(), torch.device(device), say
        self.tuned = workers != "auto"
        self.loading = Loading(workers if self.tuned else 1)

    def __iter__(self) -> Iterator[Any]:
        if not self.tuned:
            yield from self._first()
        yield from self._loader()

    def _first(self) -> Iterator[Any]:
        """The batches of the first steps, from one worker."""
        trial, steps = Trial(self._loader()), []
        with closing(iter(trial)) as batches:  # its worker would take CPUs from those that follow
            while not trial.enough:
                try:
                    batch = next(batches)
                except Exception as error:
                    self.loading = alone(error)
                    break
                wall, work = time.perf_counter(), time.process_time()
                yield batch
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                steps.append((time.perf_counter() - wall, time.process_time() - work))
                self.step += 1
            else:
                step, busy = (median(each) for each in zip(*steps, strict=True))
                self.loading = choose(trial.costs(step, busy), max(1, self.batch_size // self.ranks.world))
        self.tuned = True
        self.say(f"Loading data with {self.loading.reason}.")

    def _loader(self) -> Any:
        return loader(
            self.dataset,
            self.batch_size,
            self.seed,
            first_step=self.step,
            loading=self.loading,
            ranks=self.ranks,
            collate=self.collate,
            device=self.device,
        )
