"""A run of any training loop: its state is saved while it trains, and the same command resumes it exactly.

    run = Run("outputs/x")
    run.keep(model=model, optimizer=optimizer, scheduler=scheduler)      # restores at once
    state = run.state(best_loss=inf)
    for epoch in run.epochs(range(10)):
        for i, batch in run.enumerate(loader):                           # continues with the batch that comes next
            ...
            run.step(loss=loss)                                          # the last line of the loop's body

A checkpoint is only saved in `step` (and after the last epoch), so it holds the state between two steps: that of the
kept objects and variables, of all random generators, and the position in the loops. To resume, the script runs from its
start; `epochs` and `enumerate` pass over what was done, and restore the state where the run was interrupted.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import copy
import hashlib
import io
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_map_only

from exactrun import checkpoint, shards, trial, workers
from exactrun.checkpoint import CheckpointError
from exactrun.data import DataError
from exactrun.errors import TrainingError, check_finite, end
from exactrun.folder import Folder, as_json
from exactrun.metrics import Lines, is_logged
from exactrun.observer import Observer, Observers
from exactrun.passes import SEQUENCES, Items, Sources
from exactrun.progress import Progress, announce
from exactrun.ranks import Ranks
from exactrun.seeds import KINDS
from exactrun.settings import Settings, changed, different, in_words, missing, optimizer_settings
from exactrun.state import (
    COMPILED,
    capture,
    generators_now,
    like,
    modes,
    put_back,
    restored,
    set_generators,
    set_modes,
    unwrapped,
)
from exactrun.state import values as plain
from exactrun.stop import StopSignals
from exactrun.vector_math import settle

settle()
ENDS = 16  # loops of a body whose end is known
SEEDS = ("batch", "sample")
OFTEN = 10.0  # seconds between two saves, at least
SHARE = 20  # and at least this multiple of what one takes


@dataclass(eq=False)
class Loop:
    """A loop that is running. `inner`: for each loop that began in its present body, whether it contained steps, and
    if so, how it ended."""

    before: list[Any] = field(default_factory=list)  # `inner` of the loop around it, when this one began
    inner: list[Any] = field(default_factory=list)
    key: int = 0
    batches: Any = None
    entered: dict[str, Any] | None = None  # the generators when the present body began, if it may contain a loop
    began: int = -1  # the steps before the present body
    owned: dict[str, Any] = field(default_factory=dict)  # kept generators when the loop began, which a stream may use
    steps: int = 0  # in the present body


class _Values(NamedTuple):
    """Values of a namespace, which were kept inside of so many loops."""

    space: dict[str, Any]
    names: tuple[str, ...]
    loops: int

    def now(self) -> dict[str, Any]:
        return {name: self.space[name] for name in self.names}

    def put(self, saved: dict[str, Any]) -> None:
        for name, value in saved.items():
            self.space[name] = like(copy.deepcopy(value), self.space[name])


class Run:
    """A run in `folder`: new, or resumed from its newest valid checkpoint.

    `save_steps`: save every this many steps; None: as often as it takes at most 5 % of the time, but not more often
    than every 10 seconds. `keep`: the number of checkpoints to keep. `log_steps`: write the loss and other metrics to
    metrics.jsonl every this many steps, and more often at first. `best`: also save the step with the lowest value of
    this metric, and keep its checkpoint. `max_steps`, `max_minutes`: end the loops, with a checkpoint, after this step
    of the run, or after these minutes; a larger number continues exactly. `seeds`: what a DataLoader's samples draw
    follows from the "batch" that they are in, or from the pass and the "sample" alone, also with another batch size or
    number of processes; that takes at least 10 us for each. `other_processes`: resume a run of another number of
    processes, which then continues, but with other numbers. `settings`: of this run, stored in run.json. `observers`:
    what follows the run (observer.py). `progress`: print steps, loss, and rate; None: on a terminal.

    With several processes, create it after init_process_group; the first one writes, and all call the same methods.

    Raises:
        CheckpointError: another process trains in the folder, it cannot be written, or its checkpoints cannot be used.
    """

    settled = False  # the step can be saved: gradients are not accumulated, and a resumed run can enter the outer loops
    _trial: Any = None

    def __init__(
        self,
        folder: str | Path,
        *,
        save_steps: int | None = None,
        keep: int = 3,
        log_steps: int = 10,
        best: str = "",
        max_steps: int | None = None,
        max_minutes: float | None = None,
        other_processes: bool = False,
        seeds: str = "batch",
        settings: dict[str, Any] | None = None,
        observers: Iterable[Observer] = (),
        progress: bool | None = None,
    ) -> None:
        if seeds not in SEEDS:
            raise TrainingError(f'seeds must be "batch" or "sample", not {seeds!r}.')
        self.save_steps = save_steps
        self.log_steps = log_steps
        self.kept_checkpoints = keep
        self.best = best
        self.last = max_steps
        self._minutes = max_minutes
        self._until: float | None = None
        self.other_processes = other_processes
        self.seeds = seeds
        self.ranks = Ranks.joined()
        self.settings = settings or {}
        folder = Path(folder)
        if INTERACTIVE and (earlier := _runs.get(folder.resolve())):
            earlier._note_error()
            with contextlib.suppress(CheckpointError):  # that its last save failed, which was said
                earlier.finish()
        workers.watch_loaders()
        self._trial = trial.current()
        if self._trial is not None:
            for one in (*reversed(folder.parents), folder):  # the script may save something there itself
                one.mkdir(exist_ok=True)
            folder = self._trial.folder()
            observers = ()
            progress = False
        self._open(Folder.open(folder, self.settings, self.ranks), observers, progress)
        if self._trial is not None:
            self._trial.begin(self)

    def _open(self, files: Folder, observers: Iterable[Observer], progress: bool | None) -> None:
        self.files = files
        self.folder = files.path
        _report_in_a_sentence()
        with announce(f"Loading the newest checkpoint of {self.folder}", self.ranks.main):
            self.saved = self.files.newest(self.ranks)
        self._objects: dict[str, Any] = {}
        self._values: dict[str, _Values] = {}
        self._loops = list[Loop]()
        self._inner = list[Any]()
        self._left = False  # a loop was left after a step in it
        self._mine = restored(self._of_this_rank(self.saved)) if self.saved else {}
        if (before := self._mine.get("seeds", self.seeds)) != self.seeds:
            raise CheckpointError(f"{self.folder} was begun with seeds={before!r}: use it again, or start a new run.")
        self._sources = Sources(self._mine.get("loaders", {}), self.seeds == "sample")
        self._pending: list[dict[str, Any]] = list(self._mine.get("loops", ()))
        self.completed = self.saved.step if self.saved else 0  # steps, also of earlier starts
        self.metrics: dict[str, float] = self.saved.state["metrics"] if self.saved else {}
        self._lowest: float | None = self.saved.state.get("best") if self.saved else None  # of the metric `best`
        self._score: float | None = None  # its value in the present step
        self._unsaved: CheckpointError | None = None  # why the last save failed: the disk is full
        self._due = False
        self._next_save = time.monotonic() + OFTEN
        self._optimizers = dict[str, Optimizer]()
        self._kept_at = dict[str, int]()  # objects -> the steps before the one in which each was kept
        self._restored = set[str]()  # objects
        self._stepped = dict[str, int]()  # kept optimizers -> the steps before the one in which each was stepped last
        self._made_with: dict[str, Settings] = {}  # of each kept optimizer, before it was restored
        self._kept_with: dict[str, Settings] = {}  # and after it was kept
        self._began_with: dict[str, Settings] | None = None  # where the loops begin, in a run that is new
        self._own_settings: dict[str, Settings] = {}  # those that this run shall use instead of the saved ones
        self._hook = register_optimizer_step_post_hook(self._was_updated)
        shown = self.ranks.main and (sys.stdout.isatty() if progress is None else progress)
        self.progress = Progress(self.last, shown)
        for message in self.saved.passed_over if self.saved else ():
            self.say(message)
        self.say(f"Resuming {self.folder} at step {self.completed}." if self.saved else f"Starting {self.folder}.")
        if self.saved and len(self.saved.state["ranks"]) != self.ranks.world:
            self.say("It was saved by another number of processes, so an uninterrupted run would have other numbers.")
        self.waited = 0.0  # seconds in which the loop waited for a batch
        self.tokens = 0  # of this start, if the script counts them
        self._observers = Observers([Lines(), *observers] if self.ranks.main else [])
        self._observers.open(self)
        self._signals = contextlib.ExitStack()
        self._stop: StopSignals | None = None
        self._status = "finished"
        self._error = getattr(sys, "last_value", None)  # of a notebook's cell
        self._cut = False  # a loop ended before its last batch
        self._ended = False
        atexit.register(self._at_exit)
        _runs[self.folder.resolve()] = self

    # What is kept

    def keep(self, **objects: Any) -> None:
        """Keep these objects in checkpoints, and restore them now if the run is resumed.

        A module, an optimizer, a scheduler, or anything else with `state_dict` and `load_state_dict`; generators,
        tensors, arrays, lists, dicts, sets, deques; or an object whose attributes are such values, functions, or types.
        """
        for name, one in objects.items():
            if name in self._objects and not self._loops:
                raise TrainingError(
                    f"run.keep already has an object with the name {name}: use another name, or run.epochs for the "
                    "loop around it."
                )
            state = shards.local(capture(one, name))
            if not isinstance(one, nn.Module):
                checkpoint.storages(plain(state, name), name)
            self._objects[name] = one
            self._kept_at[name] = self.completed
            if isinstance(one, Optimizer) and not self._loops:
                self._made_with[name] = optimizer_settings(one)
            if isinstance(one, nn.Module) and (first := next(one.parameters(), None)) is not None:
                self.progress.device = first.device
            if self.saved and not (self._pending and self._grew(name, one)):
                self._restore_object(name, one)
            if name in self._made_with:
                self._kept_with[name] = optimizer_settings(one)
        kept = {name: one for name, one in self._objects.items() if isinstance(one, Optimizer)}
        self._optimizers = {name: getattr(one, "optimizer", one) for name, one in kept.items()}  # accelerate wraps them
        self._restore_generators()

    def state(self, **values: Any) -> SimpleNamespace:
        """Keep values that the script changes: `state = run.state(best=inf, step=0)`, and later `state.step += 1`.

        Call it directly before the loop that changes them, in a module, a function, or the body of another loop, where
        the call runs again each time. Returns the values given here, or those restored if the run is resumed.
        """
        state = SimpleNamespace(**values)
        self._keep_values(vars(state), tuple(values))
        return state

    def variables(self, namespace: dict[str, Any], *names: str) -> None:
        """Keep variables of a namespace, such as `globals()` or `vars(object)`, and restore them now.

        For scripts that are not to be changed much; others use `state`. Local variables of a function cannot be set
        from outside.
        """
        for name in names:
            if name not in namespace:
                raise TrainingError(f"run.variables: there is no variable {name}; call it after {name} is set.")
        self._keep_values(namespace, names)

    def _keep_values(self, space: dict[str, Any], names: tuple[str, ...]) -> None:
        for name in names:
            checkpoint.storages(plain(space[name], name), name)
        place = f"{len(self._loops)}: {', '.join(names)}"
        kept = self._values.get(place)
        if kept is not None and kept.space is space:
            return
        self._values[place] = kept = _Values(space, names, len(self._loops))
        if self.saved:
            ended = self._passed()  # the loop that follows will not run again
            known = ended["values"] if isinstance(ended, dict) else {} if ended else self._mine["values"]
            kept.put(known.get(place, {}))
        self._restore_generators()

    # The loops

    def epochs(self, numbers: Iterable[Any]) -> Iterator[Any]:
        """Loop over a range or list of epochs, or `itertools.count()`; a resumed run continues in the one that was
        interrupted.

        After the last one, the state is saved once more, so that a finished run is not repeated.
        """
        return self._loop(numbers, epochs=True)

    def enumerate(self, source: Iterable[Any], start: int = 0) -> Iterator[tuple[int, Any]]:
        """Like `enumerate(source)`; a resumed run continues with the batch that comes next.

        `source`: a DataLoader, whose samples draw random numbers that depend only on the pass and the batch; a range,
        list, or tuple; or a stream, which a resumed run reads again from the start of the pass. The result has its
        length.
        """
        return _Numbered(self, source, self._loop(source), start)

    def _loop(self, source: Iterable[Any], epochs: bool = False) -> Iterator[Any]:
        if len(self._pending) == 1 and self._entering() and not self._passed():
            # Also for a script that asks for no batch any more, because it calls `next` as often as a counter says.
            set_generators(self._mine["generators"])
        return self._bodies(source, epochs)

    def _bodies(self, source: Iterable[Any], epochs: bool) -> Iterator[Any]:
        error = getattr(sys, "last_value", None)
        if INTERACTIVE and self._cut and error is not self._error:
            raise TrainingError(
                "An error has ended the loop of this run: create it again with Run(...), which resumes it from its "
                "newest checkpoint."
            )
        self._error = error
        if self._began_with is None:
            self._note_settings()
        around = self._loops[-1].inner if self._loops else self._inner
        loop = Loop(before=list(around))
        self._report_left()
        ended = self._passed()
        if ended:
            around.append(ended)
            if isinstance(ended, dict):
                self._draw_from(ended)
            return
        state = self._entering() if ended is None else None
        around.append(bool(state))  # one that continues had steps before
        loop.key = state["key"] if state else int(torch.empty((), dtype=torch.int64).random_())
        position = state and state["batches"]
        if state and len(self._pending) > 1:  # around the loop that was interrupted: its present batch again
            position = position | {"done": position["done"] - 1}
        if state:
            self._set_kept_generators(state["owned"])
        loop.owned = self._kept_generators()
        if position and ("sequence" in position) != (epochs or isinstance(source, SEQUENCES)):
            raise self._other_loops()
        loop.batches = Items(source, position) if epochs else self._sources.begin(source, loop.key, position)
        if not isinstance(loop.batches, Items):
            self.progress.samples = (getattr(source, "batch_size", None) or 1) * self.ranks.world
        self._loops.append(loop)
        place = len(self._loops)
        ended_early = True
        try:
            if state:
                yield from self._resumed(loop, state)
            while True:
                if loop not in self._loops:
                    raise TrainingError(
                        "The loop around this one of run.enumerate went on before it ended: give both to one, as in "
                        "`run.enumerate(zip(first, second))`."
                    )
                del self._loops[place:]
                batch = self if self._is_over() else self._next(loop.batches, epochs)
                if batch is self:
                    loop.steps = 0
                    ended_early = False
                    break
                # A body that ends with a step contains no loop with steps, and the next one is like it, as a rule.
                loop.entered = None if loop.steps and not any(loop.inner) else self._drawing()
                loop.inner = []
                loop.steps = 0
                loop.began = self.completed
                # What the loop's body kept the last time, it keeps again.
                if self._values and any(one.loops >= place for one in self._values.values()):
                    self._values = {name: one for name, one in self._values.items() if one.loops < place}
                yield batch
        finally:
            if loop in self._loops:
                self._cut = ended_early
                del self._loops[place - 1 :]
                if loop.steps and not any(loop.inner):
                    self._left = True
                self._note_end(around)
            if not self._ended:
                loop.batches.close()
        if epochs and not self._loops:
            self._finished(loop)

    def _note_settings(self) -> None:
        """Before the first loop: which settings of optimizers a resumed run was given that it did not have before."""
        now = {name: optimizer_settings(self._objects[name]) for name in self._kept_with}
        self._began_with = now | (self._mine.get("began_with", {}) if self.saved else {})
        if not self.saved:
            return
        for name, began in self._began_with.items():
            set_since = changed(self._kept_with.get(name, []), now.get(name, []))
            own = [different(old, new) for old, new in zip(began, set_since)]
            made = self._mine.get("made_with", {}).get(name, [])
            other = changed(made, self._made_with.get(name, []))
            if any(own):
                self._own_settings[name] = own
                self._began_with[name] = [old | new for old, new in zip(began, own)]
            elif any(other):
                self.say(
                    f"{name} is made with {in_words(other)}, unlike when {self.folder} began. It continues with "
                    "what was saved; set it after run.keep to use it."
                )
        self._made_with |= self._mine.get("made_with", {})

    def _is_over(self) -> bool:
        """Whether the loops end here: the last step was made and saved. When the minutes are over, one more is made."""
        if self._minutes and not self._pending:
            now = time.monotonic()
            if self._until is None:
                self._until = now + 60 * self._minutes
            if self.ranks.any(now > self._until):
                self._minutes = None
                self.last = min(self.completed + 1, self.last or self.completed + 1)
        return self.last is not None and self.completed >= self.last and not self._due

    def _next(self, batches: Any, epochs: bool) -> Any:
        if self._trial is not None and not self._trial.batch(self, None if epochs else batches.done):
            next(batches, None)  # as before a `break`: a sampler's own generator is drawn from with the first batch
            return self
        began = time.monotonic()
        batch = next(batches, self)  # the run itself stands for the end
        self.waited += time.monotonic() - began
        return batch

    def _entering(self) -> dict[str, Any] | None:
        """The state to continue from, of a loop that begins now; None: it begins at its start."""
        inside = self._pending and len(self._loops) == self._mine["depth"] - len(self._pending)
        return self._pending[0] if inside else None

    def _passed(self) -> Any:
        """How the loop that begins next ended before the run was interrupted; None or False if it did not."""
        wanted = self._entering()
        around = self._loops[-1].inner if self._loops else self._inner
        if wanted is None or len(around) >= len(wanted["before"]):
            return None
        return wanted["before"][len(around)]

    def _note_end(self, around: list[Any]) -> None:
        """Note how a loop that contained steps ended, for a resumed run, in which it will not run again."""
        if around[-1]:
            with contextlib.suppress(CheckpointError):  # raised where the run is saved
                values = restored(plain(self._values_now(), "a value"))
                around[-1] = self._drawing() | {"values": values}
            if len(around) > ENDS:
                around[-ENDS - 1] = bool(around[-ENDS - 1])

    def _resumed(self, loop: Loop, state: dict[str, Any]) -> Iterator[Any]:
        """Restore what was saved; for a loop around the one that was interrupted, enter its body again."""
        self._pending.pop(0)
        if not self._pending:
            self._restore_all()
            return
        loop.inner = []
        loop.steps = 0
        loop.entered = state["entered"]
        loop.began = self.completed
        if (batch := next(loop.batches, self)) is self:
            raise self._other_loops()
        self._draw_from(state["entered"])
        yield batch

    def _finished(self, loop: Loop) -> None:
        """After the last epoch: save what followed its last step, unless that was already saved."""
        if self._is_over():
            pass  # the last step was saved
        elif loop.began >= 0 and self.completed and not self._pending:
            self._save([self._describe(loop)])
        elif self.completed:
            self.say("All epochs were completed before.")
        stop = self._stop
        self._stop = None
        self._signals.close()
        if stop is not None and stop.number:
            self.check_saved()
            self._status = "stopped"
            raise stop.ending()

    # Steps

    def step(self, loss: Tensor | float | None = None, **metrics: Any) -> None:
        """End a step: call this once for each, as the last line of the loop's body.

        Saves when it is due, if a kept optimizer has made a step (not while gradients are accumulated). On Ctrl-C,
        SIGTERM, or SIGUSR1, saves and raises SystemExit.
        """
        if self._left:
            self._report_left()
        if self._loops:
            self._count()
        stepped = self.completed in self._stepped.values() or not (self._stepped or self._accumulates())
        self.settled = settled = stepped and all(loop.entered for loop in self._loops[:-1])
        self.completed += 1
        if self._stop is None:
            self._begin()
        if self._trial is not None:
            self._due = self._trial.step(self, loss) or self._due
        else:
            self._due = self._is_due(metrics) or self._due
        number = self._stop.number * settled
        due = self._due and settled
        if self.ranks.world > 1:  # rank 0 decides when to save; any rank may have received a signal
            code = -int(self.ranks.least(-(2 * number + (due and self.ranks.main))))
            number = code // 2
            due = bool(code % 2) or bool(code // 2)
        logged = is_logged(self.completed, self.log_steps) or self._score is not None
        if logged or number or (due and (self.save_steps or self.completed == self.last)):
            self._log(loss, metrics)
        if due or number:
            self._save()
            if self._trial is not None:
                self._trial.saved(self)
            number = -int(self.ranks.least(-self._stop.number))  # also one that came while it was saved
        if number:
            self.check_saved()
            self._stop.number = number
            self._status = "stopped"
            name = signal.Signals(number).name
            self.say(f"{name}: saved step {self.completed} in {self.folder}; run the same command again to resume.")
            raise self._stop.ending()

    def _accumulates(self) -> bool:
        """Whether there are gradients; until an optimizer makes its first step, as while a replay buffer is filled."""
        groups = [group for one in self._optimizers.values() for group in one.param_groups]
        return any(one.grad is not None for group in groups for one in group["params"])

    def _count(self) -> None:
        """Count the step in each loop."""
        if self._loops[-1].steps:
            raise TrainingError(
                "run.step was called twice in one pass of the loop's body: use run.enumerate for the inner loop "
                "(for a `while`, of itertools.count()), or call it once, at the end."
            )
        outer = self._inner
        for loop in self._loops:
            loop.steps += 1
            outer[-1] = True
            outer = loop.inner
            if loop is not self._loops[-1] and not getattr(loop.batches, "nests", True):
                raise TrainingError("A loop inside of this one cannot resume: use run.enumerate for one of them.")

    def _is_due(self, metrics: dict[str, Any]) -> bool:
        """Whether the step that has just ended is to be saved."""
        self._score = metrics.get(self.best)
        if self._score is not None and (self._lowest is None or self._score < self._lowest):
            self._lowest = float(self._score)
            return True
        if self.last is not None and self.completed >= self.last:
            return True
        if self.save_steps:
            return self.completed % self.save_steps == 0
        return time.monotonic() >= self._next_save

    def save(self) -> None:
        """Save at the end of the present step."""
        self._due = True

    def _other_loops(self) -> TrainingError:
        return TrainingError(
            f"{self.folder} was saved in other loops than those of this script: resume it with the script that began "
            "it, or use another folder."
        )

    def check_saved(self) -> None:
        """Raise CheckpointError if the last save failed, since the disk is full."""
        failed = self._unsaved
        self._unsaved = None  # `finish` does not raise it again
        if failed is not None:
            raise failed

    def finish(self) -> None:
        """Complete the trackers; CheckpointError if the last save failed. Called when the script ends, if it was not
        before."""
        if self._ended:
            return
        self._ended = True
        self._report_left()
        if not self.completed and self._objects and self._status == "finished":
            self.say("run.step was never called, so nothing was saved.")
        while self._loops:  # that are read with `next`; their generators end with the interpreter
            self._loops.pop().batches.close()
        self._hook.remove()
        atexit.unregister(self._at_exit)
        if self._unsaved is not None:
            self._status = "failed"
        self._signals.close()
        for sentence in self._observers.close(self._status):
            print(sentence, file=sys.stderr, flush=True)
        self.files.__exit__()
        self.check_saved()

    def _note_error(self) -> None:
        """Note how the run ended, if an error ended the script, or in a notebook the run's loop."""
        error = getattr(sys, "last_value", None)
        ended = error is not None and (not INTERACTIVE or (self._cut and error is not self._error))
        if ended and self._status == "finished":
            self._status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"

    def _at_exit(self) -> None:
        self._note_error()
        try:
            self.finish()
        except CheckpointError as error:  # Python would print it, and exit with 0
            print(error, file=sys.stderr, flush=True)
            end(1)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        if kind is not None and self._status == "finished" and getattr(error, "code", 1):
            self._status = "stopped" if issubclass(kind, KeyboardInterrupt) else "failed"
        try:
            self.finish()
        except CheckpointError as failed:
            if kind is None or not getattr(error, "code", 1):  # otherwise, the script would end well
                raise
            self.say(str(failed))

    def _begin(self) -> None:
        """Before the first step ends: from here on, signals wait for the end of a step."""
        if self._pending:
            raise self._other_loops()
        for name, kept_before in self._mine.get("stepped", {}).items():
            if name not in self._restored and (kept_before or name not in self._objects):
                raise CheckpointError(f"{self.folder} was saved after a step of {name}: keep it before this loop, too.")
        if text := missing(self._objects):
            self.say(text)
        self.saved = None  # what is kept from now on starts with its own values
        self._stop = self._signals.enter_context(StopSignals())
        self.progress.begin(self.completed)
        self._observers.begin(self)

    def _log(self, loss: Any, metrics: dict[str, Any]) -> None:
        figures = {name: value for name, value in metrics.items() if value is not None}
        figures = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        self.metrics = figures
        if loss is not None:
            check_finite("the loss", [torch.as_tensor(loss)], self.completed)
            figures = {"loss": loss.item() if isinstance(loss, Tensor) else float(loss), **figures}
        self.progress.report(self.completed, figures.get("loss"))
        self._observers.log(self.completed, figures)

    def say(self, text: str) -> None:
        """Print a message, in the first process."""
        if self.ranks.main:
            self.progress.say(text) if self.progress.shown else print(text, file=sys.stderr, flush=True)

    # Saving

    def _was_updated(self, optimizer: Optimizer, *_: Any) -> None:
        # One that wraps another, as SAM does, has its groups, and is not always stepped itself.
        first = optimizer.param_groups[0]
        for name, one in self._optimizers.items():
            if one.param_groups[0] is first:
                self._stepped[name] = self.completed

    def _describe(self, loop: Loop) -> dict[str, Any]:
        return {
            "before": loop.before,
            "key": loop.key,
            "batches": loop.batches.state(),
            "entered": loop.entered,
            "owned": loop.owned,
            "began": loop.began,
        }

    def _save(self, loops: list[dict[str, Any]] | None = None) -> None:
        """Save the state after a step; with `loops`, after the last epoch."""
        began = time.monotonic()
        if loops is None:
            loops = [self._describe(loop) for loop in self._loops]
        stepped = [name for name, step in self._stepped.items() if step == self.completed - 1]
        mine = plain(
            {
                "loops": loops,
                "depth": len(loops),
                "seeds": self.seeds,
                "loaders": self._sources.generator_states(),
                "generators": generators_now(),
                "stepped": {name: bool(loops) and self._kept_at[name] < loops[-1]["began"] for name in stepped},
                "made_with": self._made_with,
                "began_with": self._began_with or {},
                "values": self._values_now(),
                "own": self._own_states(),
                "modes": {name: modes(one) for name, one in self._objects.items() if isinstance(one, nn.Module)},
            },
            "this run",
        )
        ranks = self._of_all_ranks(mine)
        weights = dict[str, Tensor]()
        kept = dict[str, Any]()
        for name, one in self._objects.items():
            if isinstance(one, nn.Module):
                inner = unwrapped(one)
                parameters = shards.local([*inner.parameters()])
                check_finite(f"a weight of {name}", parameters, self.completed, self.ranks)
            state = shards.whole(capture(one, name), self.ranks.main)
            if not self.ranks.main:
                continue
            if isinstance(one, nn.Module):
                state = {key: each.detach() if isinstance(each, Tensor) else each for key, each in state.items()}
            if name == "model" and isinstance(one, nn.Module):
                weights = {key: each for key, each in state.items() if isinstance(each, Tensor)}
                state = {key: each for key, each in state.items() if key not in weights}
            kept[name] = plain(state, name)
        if self.ranks.main:
            state = {"kept": kept, "ranks": ranks, "metrics": self.metrics, "settings": as_json(self.settings)}
            self._write(weights, state | {"best": self._lowest})
        self._due = False
        now = time.monotonic()
        self._next_save = now + max(OFTEN, SHARE * (now - began))

    def _write(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint. While the disk is full, training continues, and each save tries again."""
        step = self.completed
        metric = None if self._score is None else float(self._score)
        options = {"about": self._about(), "keep": self.kept_checkpoints, "metric": metric}
        try:
            checkpoint.save(self.folder, step, weights, state, **options)
        except CheckpointError as error:
            if not error.full:
                raise
            if self._unsaved is None:
                self.say(
                    f"Step {step} was not saved: {error.full}. Training continues, and the next save tries again. "
                    f"{checkpoint.UNCHANGED}"
                )
            self._unsaved = error
        else:
            if self._unsaved is not None:
                self.say(f"There is space again: step {step} is saved.")
            self._unsaved = None

    def _of_all_ranks(self, mine: dict[str, Any]) -> list[dict[str, Any]]:
        """The states of all ranks; as files, since pickle cannot load tensors of unsigned integers."""
        if self.ranks.world == 1:
            return [mine]
        file = io.BytesIO()
        torch.save(mine, file)
        files = map(io.BytesIO, self.ranks.gather(file.getvalue()))
        return [torch.load(one, map_location="cpu", weights_only=True) for one in files]

    def _own_states(self) -> dict[str, Any]:
        """Buffers, generators, counts that differ from the first rank's. Parameters and optimizers do not differ."""
        if self.ranks.world == 1:
            return {}
        states = dict[str, Any]()
        digests = dict[str, bytes]()
        for name, one in self._objects.items():
            if isinstance(one, Optimizer):
                continue
            state = capture(one, name)
            if isinstance(one, nn.Module):
                same = {key.replace(COMPILED, "") for key, _ in unwrapped(one).named_parameters(remove_duplicate=False)}
                state = {key: each for key, each in state.items() if key not in same}
            # A file of tensors on GPUs names each rank's device, so that all would differ.
            states[name] = tree_map_only(Tensor, lambda one: one.detach().cpu(), plain(shards.whole(state), name))
            file = io.BytesIO()
            torch.save(states[name], file)
            digests[name] = hashlib.sha256(file.getbuffer()).digest()
        first = self.ranks.share(digests)
        return {name: state for name, state in states.items() if digests[name] != first.get(name)}

    def _about(self) -> dict[str, Any]:
        modules = {name: unwrapped(one) for name, one in self._objects.items() if isinstance(one, nn.Module)}
        return {"processes": self.ranks.world} | {name: checkpoint.fingerprint(one) for name, one in modules.items()}

    def _values_now(self) -> dict[str, dict[str, Any]]:
        return {place: one.now() for place, one in self._values.items()}

    # Restoring

    def _of_this_rank(self, saved: checkpoint.Loaded) -> Any:
        before = len(saved.state["ranks"])
        if before != self.ranks.world and not self.other_processes:
            raise CheckpointError(
                f"{self.folder} was saved with {before} processes, but this run has {self.ranks.world}: resume with "
                f"{before}, start a new run, or allow other numbers with other_processes."
            )
        return saved.state["ranks"][min(self.ranks.rank, before - 1)]

    def _restore_all(self) -> None:
        """Where the run was interrupted: restore everything, since the script has run up to here again."""
        self._pending.clear()
        for name, one in self._objects.items():
            self._restore_object(name, one)
        for place, one in self._values.items():
            one.put(self._mine["values"].get(place, {}))
        set_generators(self._mine["generators"])
        for name, groups in self._own_settings.items():
            for group, own in zip(self._objects[name].param_groups, groups):
                group.update(own)
            self.say(f"{name} continues with {in_words(groups)} from here on, as set after run.keep.")
        self.saved = None

    def _report_left(self) -> None:
        """Whether the script left a loop after the step that may have been saved as one within that loop."""
        if self._left and self._status == "finished":
            self.say(
                "A loop was left after run.step (by `break`, `return`, or `islice`), so a run that is resumed there "
                "would go on in it: leave it before the step, as in `if number == 9: break`."
            )
        self._left = False

    def _drawing(self) -> dict[str, Any]:
        """The states of all generators: the global ones, and those that are kept."""
        return generators_now() | {"kept": self._kept_generators()}

    def _draw_from(self, states: dict[str, Any]) -> None:
        set_generators(states)
        self._set_kept_generators(states["kept"])

    def _kept_generators(self) -> dict[str, Any]:
        return {name: plain(capture(one, name), name) for name, one in self._objects.items() if isinstance(one, KINDS)}

    def _set_kept_generators(self, states: dict[str, Any]) -> None:
        for name, state in states.items():
            if name in self._objects:
                put_back(self._objects[name], restored(state), name)

    def _restore_object(self, name: str, one: Any) -> None:
        saved = self.saved
        if name not in saved.state["kept"]:
            raise CheckpointError(
                f"{saved.path} has no {name}: resume with the script that saved it, {checkpoint.NEW_RUN}."
            )
        state = restored(saved.state["kept"][name])
        own = copy.deepcopy(self._mine.get("own", {}).get(name))
        if isinstance(one, nn.Module):
            wanted = {name: checkpoint.fingerprint(unwrapped(one))}
            checkpoint.compare(saved.path, saved.about, wanted)
            state |= saved.weights if name == "model" else {}
            state |= own or {}
        elif own is not None:
            state = own
        put_back(one, state, name)
        self._restored.add(name)
        if isinstance(one, nn.Module):
            set_modes(one, self._mine.get("modes", {}).get(name))

    def _grew(self, name: str, one: Any) -> bool:
        """Whether an optimizer was given more groups of parameters after it was kept; the loop's body adds them."""
        saved = self.saved.state["kept"].get(name)
        return isinstance(one, Optimizer) and len(saved["param_groups"] if saved else ()) > len(one.param_groups)

    def _restore_generators(self) -> None:
        if self.saved and not self._pending:  # otherwise the script draws the same again up to its loop
            set_generators(self._mine["generators"])


INTERACTIVE = hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")  # such as a notebook
_runs = WeakValueDictionary[Path, Run]()  # of this process, by folder


def _report_in_a_sentence() -> None:
    """From now on, errors whose message is a sentence for the user end the script without a traceback."""
    before = sys.excepthook
    if before.__module__ == __name__:
        return

    def report(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, (TrainingError, CheckpointError, DataError)):
            print(error, file=sys.stderr, flush=True)
        else:
            before(kind, error, trace)

    sys.excepthook = report


class _Numbered(Iterator[tuple[int, Any]]):
    """What `enumerate` returns. It has a length, which what is put around it may need, such as a progress bar."""

    def __init__(self, run: Run, source: Any, batches: Iterator[Any], start: int) -> None:
        self.run = run
        self.source = source
        self.batches = batches
        self.start = start

    def __next__(self) -> tuple[int, Any]:
        batch = next(self.batches)
        return self.start + self.run._loops[-1].batches.done - 1, batch

    def __len__(self) -> int:
        return len(self.source)
