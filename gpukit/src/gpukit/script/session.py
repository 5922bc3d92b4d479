"""A run of a project's own training script: processes, device, folder, batches, and progress from its settings.

    with Session(settings) as run:
        task = build(settings, run.device)
        train_step = Step(task, run.device, run.ranks, clip=settings.clip, microbatch=settings.microbatch)
        run.keep(model=task.model, optimizer=task.optimizer, scheduler=task.scheduler, train_step=train_step)
        for batch in run.steps(task, run.batch_size(build)):
            loss = train_step(batch, run.seed)
            run.step(loss=loss, **(evaluate(task.model, run) if run.due else {}))

Unlike those of Run's other loops, batches depend only on the seed and the step (data.py). Therefore a run can also be
resumed with another number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from exactrun import checkpoint
from exactrun.errors import TrainingError, check_finite
from exactrun.folder import Folder, as_json, on_main
from exactrun.ranks import Ranks
from exactrun.run import Loop, Run
from exactrun.seeds import seed_all, seed_step
from gpukit.project.stack import load
from gpukit.script import runs
from gpukit.script.device import Device, from_settings
from gpukit.script.finder import find
from gpukit.script.loader import length, loader
from gpukit.script.reduction import Reduction
from gpukit.script.settings import RunSettings
from gpukit.script.step import Step, describe_batch
from gpukit.script.task import Task, scale_lr
from gpukit.script.tuner import Feed
from gpukit.track.curve import curve
from gpukit.track.observers import observers


def choose_batch_size(settings: RunSettings, build: Callable[..., Task], ranks: Ranks, folder: Folder) -> int:
    """The global batch size: as set, or the largest that fits, measured once per run and stored in its run.json."""
    if settings.batch_size != "auto":
        return settings.batch_size
    if "batch_size" not in folder.facts:
        folder.keep(batch_size=find(build, settings, ranks=ranks) * ranks.world)
    return folder.facts["batch_size"]


def start(settings: RunSettings) -> tuple[Ranks, Device, Folder]:
    """Join the processes of the run, choose the device, and open the run's folder, which the caller closes."""
    on_gpu = settings.device != "cpu" and torch.cuda.is_available()
    ranks = Ranks.start("cuda" if on_gpu else "cpu")
    device = from_settings(settings, ranks.local_rank)
    place = settings.output_dir, settings.name, settings.resume
    return ranks, device, on_main(ranks, lambda: runs.start(*place, asdict(settings), load()))


class Session(Run):
    """The run that the settings name: new, or resumed from its newest valid checkpoint; use it in a `with` statement.

    `device`, `ranks`, and `folder` are those of this process. Raises what Run and Ranks.start raise.
    """

    def __init__(self, settings: RunSettings) -> None:
        self.given, self.settings = settings, asdict(settings)
        self.ranks, self.device, files = start(settings)
        self.save_steps, self.log_steps, self.kept_checkpoints = settings.save_steps, settings.log_steps, settings.keep
        self.best, self.last, self._notes = "held_out_loss", settings.max_steps, list[Step]()
        self._open(files, observers(profile=settings.profile), self.ranks.main)
        self.say(self.device.describe())
        seed_all(settings.seed)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *details: object) -> None:
        super().__exit__(kind, error, *details)
        if kind is None:
            self.ranks.stop()

    def batch_size(self, build: Callable[..., Task]) -> int:
        """Samples per step over all processes: as set, or the largest number that fits, measured once per run."""
        return choose_batch_size(self.given, build, self.ranks, self.files)

    def keep(self, **objects: Any) -> None:
        """As Run.keep; models start with the values of the first process, and a Step reports its messages."""
        for one in objects.values():
            if isinstance(one, nn.Module):
                Reduction(self.ranks).same_start(one)
        super().keep(**objects)
        self._notes += [one for one in objects.values() if isinstance(one, Step)]

    @property
    def seed(self) -> int:
        """For the randomness of the present step (dropout); different on each process."""
        return seed_step(self.given.seed, self.completed, self.ranks.rank)

    @property
    def due(self) -> bool:
        """Whether to evaluate the model at the end of the present step: when a checkpoint is saved, and early on."""
        return self._evaluates_at(self.completed + 1)

    def steps(self, source: Task | Dataset, batch_size: int) -> Iterator[Any]:
        """This process's part of `batch_size` samples for each step up to `max_steps`, or until `max_minutes` are over;
        call `step` for each.

        Raises:
            TrainingError, CheckpointError, DataError: the batch is larger than the data set, or the data, batch size,
                or seed is not that of the run that is resumed.
        """
        dataset, settings = source.dataset if isinstance(source, Task) else source, self.given
        if batch_size > (count := length(dataset)):
            raise TrainingError(f"--batch-size {batch_size} is larger than the data set ({count} samples): reduce it.")
        about = {"samples": count, "batch_size": batch_size, "seed": settings.seed}
        if self._pending:
            checkpoint.compare(self.saved.path, self._pending[0]["batches"].get("about", {}), about)
        self._began(batch_size)
        if self.completed >= self.last and self.files.facts.get("finished", {}).get("step") == self.completed:
            new = "another --name" if settings.name else "--no-resume"
            more = f"Use --max-steps {2 * self.completed} to continue, or {new}."
            self.say(f"{self.folder} is finished at step {self.completed}. {more}")
            return
        self.feed = Feed(
            source,
            batch_size,
            settings.seed,
            first_step=self.completed,
            workers=settings.workers,
            ranks=self.ranks,
            device=self.device.device,
            say=self.say,
        )
        self._inner.append(False)
        self._loops.append(Loop(batches=_Position(about)))
        self._begin()
        with closing(iter(self.feed)) as batches:
            until = time.monotonic() + 60 * settings.max_minutes if settings.max_minutes else None
            self.progress.until = until
            while self.completed < self.last:
                if until is not None and self.ranks.any(time.monotonic() > until):
                    self.last = self.completed + 1
                before = self.completed
                yield self._next(batches)
                if self.completed == before:
                    raise TrainingError("A step ended without run.step: call it as the last line of the loop's body.")
                self._loops[-1].steps = 0
        self._loops.clear()
        self._done()

    def _began(self, batch_size: int) -> None:
        """Report what is resumed, and let another learning rate apply from here on."""
        settings = self.given
        if self.saved:
            factor = settings.lr / self.saved.state["settings"].get("lr", settings.lr)
            if factor != 1:
                scale_lr(factor, *self._objects.values())
            self._restore_generators()
            if changed := runs.changed(self.files, self.settings):
                values = (f"{name} from {then} to {now}" for name, (then, now) in changed.items())
                self.say(f"Settings changed: {', '.join(values)}.")
        self.files.keep(settings=as_json(self.settings))
        self._pending, self.saved = [], None
        self.progress.total, self.progress.samples, self.progress.device = self.last, batch_size, self.device.device
        self.say(describe_batch(batch_size, self.ranks, self._notes[0].microbatch if self._notes else None))
        if settings.compile:
            self.say("The first step compiles the model, which can take minutes.")

    def once(self, data: Dataset) -> Iterator[Any]:
        """One pass over held-out data: this process's part, on the device; it ends early after a signal."""
        size = self.progress.samples
        if self._notes and self._notes[0].microbatch:
            size = min(size, self._notes[0].microbatch * self.ranks.world)
        batches = loader(
            data, size, 0, loading=self.feed.loading, ranks=self.ranks, device=self.device.device, shuffle=False
        )
        for batch in islice(batches, batches.batch_sampler.batches_per_epoch):
            if self._stop.number:
                return
            yield self.device.move(batch)

    @property
    def interrupted(self) -> bool:
        """Whether any process received a signal, so that `once` may have ended early; all of them must ask."""
        return self.ranks.any(self._stop.number != 0)

    def step(self, loss: Tensor | float | None = None, **metrics: Any) -> None:
        """End a step, as Run.step; TrainingError if the loss is NaN or infinite when it is logged or saved."""
        done = self.completed + 1
        if isinstance(loss, Tensor) and (self._saves_at(done) or self._logs_at(done)):
            check_finite("the loss", [loss], done)
        super().step(loss, **metrics)
        for one in self._notes:
            while one.notes:
                self.say(one.notes.pop(0))

    def _saves_at(self, step: int) -> bool:
        return super()._saves_at(step) or step == self.last

    def _logs_at(self, step: int) -> bool:
        return super()._logs_at(step) or self._evaluates_at(step)

    def _evaluates_at(self, step: int) -> bool:
        return runs.is_evaluated(step, self.save_steps) or step == self.last

    def _settled(self) -> bool:
        return True  # Step accumulates within a step

    def _of_this_rank(self, saved: checkpoint.Loaded) -> Any:
        return saved.state["ranks"][min(self.ranks.rank, len(saved.state["ranks"]) - 1)]

    def _done(self) -> None:
        self._saver_wait()
        self.files.keep(finished={"step": self.completed, **self.metrics})
        scores = "".join(f"{name.replace('_', ' ')} {value:.4g}, " for name, value in self.metrics.items())
        self.say(f"Done: step {self.completed}, {scores}in {self.folder}")
        if self.ranks.main and (picture := curve(self.folder)):
            self._observers.artifact(picture)
            self.say(f"Plot of the loss: {picture}")


class _Position:
    """What a checkpoint holds of the batches: the step says which one is next."""

    nests = False

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = about

    def state(self) -> dict[str, Any]:
        return {"about": self.about}

    def close(self) -> None: ...
