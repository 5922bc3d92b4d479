"""How a training script ends: known errors are reported in one sentence, with a remedy."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator

try:
    from exactrun.checkpoint import DISK, UNCHANGED, CheckpointError
    from exactrun.data import DataError
    from exactrun.errors import TrainingError, end, first_line, is_oom
except KeyboardInterrupt:  # importing torch takes seconds, and where in torch it was interrupted tells nobody anything
    raise SystemExit(128 + signal.SIGINT) from None


# What gloo, NCCL, and the store report in the other processes of a run after one of them has ended.
LOST_RANK = re.compile(
    r"gloo|nccl|Connection (?:closed|reset) by (?:remote )?peer|Broken pipe|Failed to recv, got 0 bytes|"
    r"remote server shutdown|RendezvousClosedError|collective operation timeout",
    re.IGNORECASE,
)


def error_message(error: BaseException) -> str | None:
    """One sentence for a known error; None for any other, whose traceback is needed (and which `./launch explain`
    may know)."""
    if isinstance(error, (TrainingError, CheckpointError, DataError)):
        text = str(error)
        if text.startswith("Caught "):  # in a data loader worker, whose traceback stands before it
            return text.strip().splitlines()[-1].partition(": ")[2]
        return text
    if isinstance(error, OSError) and error.errno in DISK:
        what = error.filename or "A file"
        return f"{what} cannot be read or written ({error.strerror}): {DISK[error.errno]}. {UNCHANGED}"
    if is_oom(error):
        return (
            f"Out of memory ({first_line(error)}): use a smaller --batch-size, --microbatch, or model, or stop other "
            "programs on this device."
        )
    if isinstance(error, RuntimeError) and LOST_RANK.search(str(error)):
        return f"Another process of this run has ended; its own message says why ({first_line(error)})."
    return None


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Wrap a script: a known error ends it with one sentence on stderr and exit code 1.

    Any other error is raised.
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
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # gloo's threads may abort the interpreter during its shutdown, after a successful run
        end(code or 0)
    if code:
        raise SystemExit(code) from None
