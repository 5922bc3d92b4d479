"""How a training script ends: known errors are reported in one sentence, with a remedy."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator

try:
    from exactrun.checkpoint import DISK, UNCHANGED, CheckpointError
    from exactrun.data import DataError
    from exactrun.errors import TrainingError, is_oom, lost_rank
    from exactrun.observer import HUNG, OBSERVER_FAILED, end
    from gpukit.errors.signs import named
    from gpukit.findings.causes import PROJECT, cause, worded
except KeyboardInterrupt:  # importing torch takes seconds, and where in torch it was interrupted tells nobody anything
    raise SystemExit(128 + signal.SIGINT) from None

# The cause of a failure to load data, by the sign that matches its text; the first one that does counts.
CAUSES = {
    "open-files": "open-files",
    **dict.fromkeys(("shared-memory", "shared-object", "shared-object-gone", "bus-error"), "shared-memory"),
    "worker-killed": "host-memory-full",
    "worker-crashed": "library-crashed",
    **dict.fromkeys(("worker-gone", "worker-ended"), "worker-crashed"),
    "worker-slow": "loader-timeout",
    "fork-after-cuda": "cuda-after-fork",
    "not-picklable": "not-picklable",
}
SIGNS = {sign.id: sign for sign in named(*CAUSES, "worker-raised")}


def error_message(error: BaseException) -> str | None:
    """One sentence for a known error; None for any other, whose traceback is needed."""
    if isinstance(error, (TrainingError, CheckpointError, DataError)):
        text = str(error)
        if SIGNS["worker-raised"].matches(text):  # its traceback stands before it
            return text.strip().splitlines()[-1].partition(": ")[2]
        return text
    if isinstance(error, OSError) and error.errno in DISK:
        what = error.filename or "A file"
        return f"{what} cannot be read or written ({error.strerror}): {DISK[error.errno]}. {UNCHANGED}"
    if message := explain(error):
        return f"{message} Run the same command again to resume from the last checkpoint."
    if is_oom(error):
        return (
            f"Out of memory ({_short(error)}): use a smaller --batch-size, --microbatch, or model, or stop other "
            "programs on this device."
        )
    if isinstance(error, RuntimeError) and lost_rank(error):
        return f"Another process of this run has ended; its own message says why ({_short(error)})."
    return None


def explain(error: BaseException) -> str | None:
    """Why the data loader failed, and the remedy; None for any other error, such as the data set's own.

    Use this for every error that the loop raises: torch reports the death of a worker by a signal, during a step.
    """
    if (id := failure(error)) is None:
        return None
    text = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
    found = cause(id)
    why, remedy = (worded(each, PROJECT) for each in (found.why, found.remedy))
    return f"Loading data failed ({text[:160]}). {why} {remedy}"


def failure(error: BaseException) -> str | None:
    """The id of the cause, if the data loader failed; None if the error is not the loader's."""
    text = str(error)
    each = error
    while each := each.__cause__:
        text += f"\n{each}"
    raised = SIGNS["worker-raised"].matches(text)
    if (isinstance(error, MemoryError) and _passed(error, "torch/utils/data/")) or (
        raised and raised[1] == "MemoryError"
    ):
        return "host-memory-full"
    for id in CAUSES:
        whose = "DataLoader worker" in text or not id.startswith("worker-") or id == "worker-slow"
        if whose and SIGNS[id].matches(text) and not (id == "not-picklable" and raised):
            return CAUSES[id]
    if isinstance(
        error, ConnectionError | EOFError | FileNotFoundError
    ):  # of the sockets by which workers send tensors
        return "worker-crashed" if _passed(error, "torch/multiprocessing/reductions.py") else None
    return None


def _passed(error: BaseException, file: str) -> bool:
    """Whether an error was raised in this file or folder, or below it."""
    return any(file in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def _short(error: object) -> str:
    return str(error).strip().partition("\n")[0][:160]


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Wrap a script: a known error ends it with one sentence on stderr and exit code 1.

    Any other error is raised. If an observer hangs, the process ends without waiting for it, with exit code 3 if
    nothing else failed.
    """
    try:
        yield
    except SystemExit as error:
        _leave(error.code)
    except KeyboardInterrupt:  # before the first step, or after the last one
        if os.environ.get("RANK", "0") == "0":
            print("\nStopped. Run the same command again to resume from the last checkpoint, if any.", file=sys.stderr)
        _leave(128 + signal.SIGINT)
    except Exception as error:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # otherwise torch raises the death of another worker here
        message = error_message(error)
        if message is None:
            raise
        _leave(message)
    _leave(0)


def _leave(code: int | str | None) -> None:
    sys.stdout.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr, flush=True)
        code = 1
    if HUNG:
        end(code or OBSERVER_FAILED)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # gloo's threads may abort the interpreter during its shutdown, after a successful run
        end(code or 0)
    if code:
        raise SystemExit(code) from None
