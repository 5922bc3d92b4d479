"""The batches of a training loop, from a loader that is tuned during the first steps.

The best number of workers depends on how long a step takes, which only the loop itself shows. So its first steps are
timed, with batches from one worker; then the loader is tuned (tuner.py) and used for the rest. The batches are the same
in any case: they depend only on the seed and the step (data.py). This process reads no sample until it is clear that
there will be no workers: forked workers would share the file position of any file that the data set has opened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median
from typing import Any, Literal

import torch

from gpukit.train.data import Loading, loader
from gpukit.train.ranks import Ranks
from gpukit.train.task import Task
from gpukit.train.tuner import tune
from gpukit.train.workers import close, stays

TIMED = 12  # steps: enough for a median that slow first steps (compilation) do not change


class Feed:
    """Endless batches from `first_step` for one loop: this rank's part of `batch_size` samples each.

    `workers`: a number, or "auto". `loading`: the current settings of the loader; `say` reports them once they are
    known. Raises the errors of `loader` and `tune`.
    """

    def __init__(
        self,
        task: Task,
        batch_size: int,
        seed: int,
        *,
        first_step: int = 0,
        workers: int | Literal["auto"] = "auto",
        ranks: Ranks | None = None,
        device: torch.device | str = "cpu",
        say: Callable[[str], object] = print,
    ) -> None:
        self.task, self.batch_size, self.seed, self.step = task, batch_size, seed, first_step
        self.ranks, self.device, self.say = ranks or Ranks(), torch.device(device), say
        self.tuned = workers != "auto"
        self.loading = Loading(workers if self.tuned else 1)

    def __iter__(self) -> Iterator[Any]:
        if not self.tuned:
            took, timed = [], self._timed()
            for batch in islice(timed, TIMED):
                began = time.perf_counter()
                yield batch
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)
                took.append(time.perf_counter() - began)
            timed.close()  # with its worker, which would take CPUs from what is measured next
            self.step += len(took)
            self._tune(median(took))
        yield from self._loader()

    def _timed(self) -> Iterator[Any]:
        batches = iter(self._loader())
        try:
            first = next(batches)
        except Exception as error:
            if not stays(error):
                raise
            close(batches)
            self.loading = Loading(0)
            batches = iter(self._loader())
            first = next(batches)
        try:
            yield first
            yield from batches
        finally:
            close(batches)

    def _loader(self) -> Any:
        return loader(
            self.task.dataset,
            self.batch_size,
            self.seed,
            first_step=self.step,
            loading=self.loading,
            ranks=self.ranks,
            collate=self.task.collate,
            device=self.device,
        )

    def _tune(self, step_seconds: float) -> None:
        mine = max(1, self.batch_size // self.ranks.world)
        found = tune(self.task.dataset, mine, collate=self.task.collate, step_seconds=step_seconds, device=self.device)
        self.tuned, self.loading = True, found.loading
        self.say(f"Loading data with {found.reason}.")
