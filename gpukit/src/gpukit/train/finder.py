"""The batch finder: the largest batch that fits, found by training with some sizes in processes of their own.

    python -m gpukit.train.finder                      # for this project, with the settings that train.py takes
    found = find(build, settings)                     # the same from a script or a notebook

Every trial is some steps of the project's own training (trial.py); search.py says which size comes next. Trials run
without torch.compile, which takes long and depends on the size; what they find is confirmed, compiled where that is
asked for, in a fresh process with more steps, because what earlier trials leave in memory is not what training will
find there. With several processes each finds its own, on its own GPU, and all take the least.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

from gpukit.train.errors import TrainingError
from gpukit.train.ranks import Ranks
from gpukit.train.search import Found, Outcome, search
from gpukit.train.task import Task, load_task

STEPS = 3  # of a trial: the optimizer has its state from the second on
CONFIRMING = 8  # steps of a confirmation
GIB = 2**30
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_RUN_ID")


class FinderError(TrainingError):
    """No size can be found; the text is one sentence for a person."""


def find(
    task: str | Callable[..., Task] | None = None,
    settings: Any = (),
    *,
    limit: int | None = None,
    ceiling: int | None = None,
    ranks: Ranks | None = None,
    progress: Callable[[str], object] = print,
) -> Found:
    """The largest number of samples that one step of this process can take, and why not more.

    `task`: the function that builds it, or its name as in "package.module:build"; None: this project's. It must stand
    in a module, since other processes import it. `settings`: what it is called with, or command-line arguments that say
    so. `limit`: bytes, as if the device had no more. `ceiling`: the largest size of interest; the length of the data
    set (over the processes) is one anyway. `ranks`: all of them call this at the same time, and all get the least.
    `progress` gets a line for each trial. FinderError where not even one sample fits, or where training fails for
    another reason than memory.

    A batch is made of the largest among 64 samples of the data set (trial.py, `Samples`). What other processes leave
    free is taken as it is now; should it be less later, `Step` splits the batch.
    """
    ranks, found, failed = ranks or Ranks(), None, None
    say = progress if ranks.main else lambda line: None
    try:
        found = _find(task, settings, limit, ceiling, ranks, say)
    except FinderError as error:
        failed = error
    least = ranks.least(found.batch_size if found else 0)
    if failed:
        raise failed
    if not least:
        raise FinderError("Another process of this run found no batch size that fits: it says why itself.")
    if least < found.batch_size:
        found = replace(found, batch_size=least, reason="another process has room for no more")
    say(f"Batch size {found.batch_size}{' on each of them' * (ranks.world > 1)}: {found.reason}.")
    return found


def _find(
    task: str | Callable[..., Task] | None,
    settings: Any,
    limit: int | None,
    ceiling: int | None,
    ranks: Ranks,
    say: Callable[[str], object],
) -> Found:
    spec, settings = _named(task, settings)
    say("Looking for the largest batch that fits, in processes that train with some sizes.")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if ranks.world > 1 else 1
    told = {
        "task": base64.b64encode(pickle.dumps((spec, settings))).decode(),
        "limit": limit,
        "local_rank": ranks.local_rank,
        "shared_by": processes,
    }
    with _Trials(told, compile=bool(getattr(settings, "compile", False)), say=say) as trials:
        budget, about = trials.start()
        most = about["samples"] // ranks.world
        if most < 1:
            raise FinderError(f"There are fewer samples ({about['samples']}) than processes ({ranks.world}).")
        say(f"On {about['device']}: {_gib(budget)} to use ({about['how']}); {about['data']}.")
        found = search(trials.trial, budget, confirm=trials.confirm, ceiling=min(most, ceiling or most))
    if not found.batch_size:
        if all(each.outcome.ceiling for each in found.trials):
            raise FinderError(f"Training fails, and not for lack of memory: {found.trials[0].outcome.why}")
        raise FinderError(f"N{found.reason[1:]} in {_gib(budget)}: take a smaller model or smaller samples.")
    if found.batch_size == most:
        found = replace(found, reason="there are no more samples" + " for each process" * (ranks.world > 1))
    return found


class _Trials:
    """The processes in which trials run, one at a time. A context manager: none is left behind."""

    def __init__(self, told: dict[str, Any], compile: bool, say: Callable[[str], object]) -> None:
        self.told, self.compile, self.say = told, compile, say
        self.child: _Child | None = None
        self.largest = 0  # of the sizes that this child has tried
        self.budget = 0

    def start(self, compile: bool = False) -> tuple[int, dict[str, Any]]:
        """A fresh process; -> the budget, and what it says of itself."""
        self.close()
        self.child, self.largest = _Child(), 0
        about = self.child.ask({**self.told, "compile": compile})
        if "memory" in about:
            raise FinderError(f"The model does not fit even without data ({about['memory']}): take a smaller one.")
        if "died" in about:
            raise FinderError(f"Batch sizes cannot be tried: while the model was made, {about['died']}.")
        if "error" in about:
            raise FinderError(f"The task cannot be made: {about['error']}")
        if about["budget"] <= 0:
            raise FinderError(f"There is no memory left to use ({about['how']}): end what else takes it.")
        self.budget = self.budget or about["budget"]
        self.told["limit"] = self.budget
        self.missing = max(0, self.budget - about["budget"])  # less is free than for the first
        return self.budget, about

    def trial(self, size: int) -> Outcome:
        if self.child is None or size <= self.largest:
            self.start()
        return self.run(size, STEPS, "")

    def confirm(self, size: int) -> Outcome:
        self.start(self.compile)
        outcome = self.run(size, CONFIRMING, ", in a fresh process" + ", compiled" * self.compile)
        self.close()
        return outcome

    def run(self, size: int, steps: int, how: str) -> Outcome:
        since, self.largest = time.monotonic(), size
        answer = self.child.ask({"size": size, "steps": steps})
        seconds = time.monotonic() - since
        if "died" in answer:
            answer = {"fits": False, "why": answer["died"]}
        if "error" in answer:
            raise FinderError(f"A trial with {size} samples failed: {answer['error']}")
        outcome = Outcome(**answer, seconds=seconds)
        if outcome.fits:
            peak = outcome.peak_bytes + self.missing
            over = "" if peak <= self.budget else f"{_gib(peak)} are more than there are"
            outcome = replace(outcome, peak_bytes=peak, fits=not over, why=over)
        if outcome.fits:
            self.say(f"{size:>9} samples fit: {_gib(outcome.peak_bytes)}, {seconds:.1f} s{how}")
        else:
            self.say(f"{size:>9} samples do not: {outcome.why}, {seconds:.1f} s{how}")
            self.close()  # memory is in pieces now, and after some errors a GPU is lost to this process
        return outcome

    def close(self) -> None:
        if self.child is not None:
            self.child.end()
            self.child = None

    def __enter__(self) -> _Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Child:
    """One process of trial.py."""

    def __init__(self) -> None:
        env = {key: value for key, value in os.environ.items() if key not in OF_TORCHRUN}
        env["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpukit.train.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env=env,
            start_new_session=True,  # Ctrl-C ends it by `end`, together with compilers that it has started
        )

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """Its answer; {"died": how} where it ended instead."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.said.seek(0)
        last = self.said.read().strip().splitlines()[-1:]
        return {"died": f"its process ended with {how}" + "".join(f" ({line[:200]})" for line in last)}

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.said.close()


def _named(task: str | Callable[..., Task] | None, settings: Any) -> tuple[str, Any]:
    """The task as "module:function", which another process can import, and its settings as an object."""
    if not is_dataclass(settings):
        build, settings = load_task(task if isinstance(task, str) else None, list(settings))
        task = task if callable(task) else build
    elif not callable(task):
        task, _ = load_task(task, [])
    module = task.__module__
    if module == "__main__":
        module = getattr(sys.modules["__main__"].__spec__, "name", "")
    if not module or "<" in task.__qualname__ or type(settings).__module__ == "__main__":
        raise FinderError("Other processes must import the task: let its function and its settings stand in a module.")
    return f"{module}:{task.__qualname__}", settings


def _gib(value: float) -> str:
    return f"{value / GIB:.2f} GiB"


def main(arguments: list[str] | None = None) -> int:
    """The command; -> its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gpukit.train.finder",
        description="Find the largest batch that fits. All other options are those of the training script.",
        allow_abbrev=False,
    )
    parser.add_argument("--task", metavar="MODULE:FUNCTION", help="what builds the task (this project's)")
    parser.add_argument("--limit-gb", type=float, metavar="GB", help="as if there were only so much memory (GiB)")
    parser.add_argument("--max", type=int, metavar="SAMPLES", help="the largest batch of interest")
    parser.add_argument("--json", action="store_true", help="the result as JSON; progress goes to stderr")
    given, rest = parser.parse_known_args(arguments)
    if given.limit_gb is not None and not given.limit_gb > 0:
        parser.error("--limit-gb must be more than 0")
    if given.max is not None and given.max < 1:
        parser.error("--max must be at least 1")
    limit = int(given.limit_gb * GIB) if given.limit_gb else None
    progress = (lambda line: print(line, file=sys.stderr, flush=True)) if given.json else _line
    try:
        found = find(given.task, rest, limit=limit, ceiling=given.max, progress=progress)
    except FinderError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if given.json:
        print(json.dumps(asdict(found), indent=2))
    return 0


def _line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
