"""Finds the largest batch that fits in memory, by training with several sizes in separate processes.

    python -m gpukit.train.finder                     # for this project, with the options of train.py
    found = find(build, settings)                     # the same from a script or a notebook

Every trial runs a few steps of the project's own training (trial.py); search.py chooses the sizes. Trials run without
torch.compile, which is slow and depends on the size; the result is confirmed in a fresh process with more steps, and
compiled if the settings say so, because earlier trials leave memory in another state than training will find. With
several processes, each measures its own GPU, and all use the smallest result.
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
    """No batch size can be found; the message is one sentence for the user."""


def find(
    task: str | Callable[..., Task] | None = None,
    settings: Any = (),
    *,
    limit: int | None = None,
    ceiling: int | None = None,
    ranks: Ranks | None = None,
    progress: Callable[[str], object] = print,
) -> Found:
    """Find the largest number of samples that one step of this process can use.

    `task`: the function that builds the task, or its name as "package.module:build"; None: this project's. It must be
    in a module, since other processes import it. `settings`: its settings, or command-line arguments for them. `limit`:
    use at most this many bytes. `ceiling`: the largest size to try; the size of the data set (divided by the number of
    processes) is also a limit. `ranks`: all of them must call this, and all get the smallest result. `progress`
    receives a line per trial.

    Batches repeat the largest of 64 samples of the data set (trial.py, `Samples`). Memory that other processes use now
    is not available; if they use more later, `Step` splits the batch.

    Raises:
        FinderError: not even one sample fits, or training fails for another reason than memory.
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
        raise FinderError("Another process of this run found no batch size that fits; its own message says why.")
    if least < found.batch_size:
        found = replace(found, batch_size=least, reason="another process has no memory for more")
    say(f"Batch size {found.batch_size}{' per process' * (ranks.world > 1)}: {found.reason}.")
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
    say("Finding the largest batch that fits: training with several sizes in separate processes.")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if ranks.world > 1 else 1
    options = {
        "task": base64.b64encode(pickle.dumps((spec, settings))).decode(),
        "limit": limit,
        "local_rank": ranks.local_rank,
        "shared_by": processes,
    }
    with _Trials(options, compile=bool(getattr(settings, "compile", False)), say=say) as trials:
        budget, about = trials.start()
        most = about["samples"] // ranks.world
        if most < 1:
            raise FinderError(
                f"The data set has fewer samples ({about['samples']}) than there are processes ({ranks.world})."
            )
        say(f"{about['device']}: {_gib(budget)} available ({about['how']}); {about['data']}.")
        found = search(trials.trial, budget, confirm=trials.confirm, ceiling=min(most, ceiling or most))
    if not found.batch_size:
        if all(each.outcome.ceiling for each in found.trials):
            raise FinderError(f"Training fails, but not because of memory: {found.trials[0].outcome.why}")
        raise FinderError(f"N{found.reason[1:]} in {_gib(budget)}: use a smaller model or smaller samples.")
    if found.batch_size == most:
        found = replace(found, reason=f"the data set has {most} samples" + " per process" * (ranks.world > 1))
    return found


class _Trials:
    """The processes in which trials run, one at a time. A context manager: none is left behind."""

    def __init__(self, options: dict[str, Any], compile: bool, say: Callable[[str], object]) -> None:
        self.options, self.compile, self.say = options, compile, say
        self.child: _Child | None = None
        self.largest = 0  # size that this child has tried
        self.budget = 0

    def start(self, compile: bool = False) -> tuple[int, dict[str, Any]]:
        """Start a fresh process; return the budget and its description."""
        self.close()
        self.child, self.largest = _Child(), 0
        about = self.child.ask({**self.options, "compile": compile})
        if "memory" in about:
            raise FinderError(
                f"The model does not fit in memory even without data ({about['memory']}): use a smaller one."
            )
        if "died" in about:
            raise FinderError(f"The model cannot be built: {about['died']}.")
        if "error" in about:
            raise FinderError(f"The task cannot be built: {about['error']}")
        if about["budget"] <= 0:
            raise FinderError(f"No memory is available ({about['how']}): stop the programs that use it.")
        self.budget = self.budget or about["budget"]
        self.options["limit"] = self.budget
        self.missing = max(0, self.budget - about["budget"])  # less memory is free than for the first process
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
            over = "" if peak <= self.budget else f"{_gib(peak)} exceed the available memory"
            outcome = replace(outcome, peak_bytes=peak, fits=not over, why=over)
        if outcome.fits:
            self.say(f"{size:>9} samples fit: {_gib(outcome.peak_bytes)}, {seconds:.1f} s{how}")
        else:
            self.say(f"{size:>9} samples do not fit: {outcome.why}, {seconds:.1f} s{how}")
            self.close()  # memory is fragmented now, and after some errors the process cannot use the GPU
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
        self.stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpukit.train.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            text=True,
            env=env,
            start_new_session=True,  # on Ctrl-C, `end` kills it together with the compilers that it started
        )

    def ask(self, what: dict[str, Any]) -> dict[str, Any]:
        """Its answer, or {"died": how} if the process ended."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line.endswith("\n"):
            return json.loads(line)
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        self.stderr.seek(0)
        last = self.stderr.read().strip().splitlines()[-1:]
        return {"died": f"its process ended with {how}" + "".join(f" ({line[:200]})" for line in last)}

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.stderr.close()


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
        raise FinderError("Other processes import the task: define its function and its settings in a module.")
    return f"{module}:{task.__qualname__}", settings


def _gib(value: float) -> str:
    return f"{value / GIB:.2f} GiB"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gpukit.train.finder",
        description="Find the largest batch that fits in memory. Also accepts all options of the training script.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--task", metavar="MODULE:FUNCTION", help="the function that builds the task (default: this project's)"
    )
    parser.add_argument("--limit-gb", type=float, metavar="GB", help="use at most this much memory (GiB)")
    parser.add_argument("--max", type=int, metavar="SAMPLES", help="the largest batch to try")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, and progress to stderr")
    given, rest = parser.parse_known_args(arguments)
    if given.limit_gb is not None and not given.limit_gb > 0:
        parser.error("--limit-gb must be greater than 0")
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
