"""How a training script ends: what is known to go wrong is told in one sentence, with what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
from collections.abc import Iterator

from gpukit.train.batch import is_oom
from gpukit.train.checkpoint import CheckpointError
from gpukit.train.data import DataError, explain
from gpukit.train.track import Tracker, end

UNHEARD = 3  # the exit code where training finished, and a tracker did not take its figures


class TrainingError(Exception):
    """Training cannot go on; the text is one sentence for a person, with what to do."""


DISK = {
    errno.ENOSPC: "the disk is full: free some space (`./launch clean` removes old checkpoints)",
    errno.EDQUOT: "your quota on this disk is used up: free some space (`./launch clean` removes old checkpoints)",
    errno.EROFS: "the file system is read-only: --output-dir names another place",
    errno.EACCES: "it may not be written: change its owner or mode, or name another place with --output-dir",
    errno.EPERM: "it may not be written: change its owner or mode, or name another place with --output-dir",
}
LOST_RANK = re.compile(r"gloo|Connection (closed|reset) by (remote )?peer|ProcessGroup|NCCL", re.IGNORECASE)


def in_words(error: BaseException) -> str | None:
    """The sentence for an error that is known, None for any other: that is a defect, and its traceback wanted."""
    if isinstance(error, (TrainingError, CheckpointError, DataError)):
        text = str(error)
        if text.startswith("Caught "):  # from a data loading worker, with its traceback before it
            return text.strip().splitlines()[-1].partition(": ")[2]
        return text
    if isinstance(error, OSError) and error.errno in DISK:
        return f"{error.filename or 'A file'} cannot be written: {DISK[error.errno]}; what was saved before is whole."
    if said := explain(error):
        return f"{said} Starting again goes on from the last checkpoint."
    if is_oom(error):
        return (
            f"Memory ran out outside of a training step ({_short(error)}): take a smaller model, or end what "
            "else is on this device."
        )
    if isinstance(error, RuntimeError) and LOST_RANK.search(str(error)):
        return f"Another process of this run has ended, and says why itself ({_short(error)})."
    return None


def _short(error: object) -> str:
    return str(error).strip().partition("\n")[0][:160]


@contextlib.contextmanager
def tracked(tracker: Tracker) -> Iterator[Tracker]:
    """Finishes a tracker however the run ends, and tells on stderr what it lacks; `told` knows of one that hangs."""
    status = "failed"
    try:
        yield tracker
        status = "finished"
    except (SystemExit, KeyboardInterrupt) as stopped:
        status = "failed" if isinstance(getattr(stopped, "code", 0), str) else "stopped"
        raise
    finally:
        for sentence in tracker.finish(status):
            print(sentence, file=sys.stderr, flush=True)
        if tracker.hung:
            _hung.append(tracker)


_hung: list[Tracker] = []


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Around what a script does: an error that is known ends it with the sentence on stderr and exit code 1.

    Any other error passes, with its traceback. Where a tracker hangs the process ends without waiting for it: with exit
    code 3 where all else is well.
    """
    try:
        yield
    except SystemExit as error:
        _leave(error.code)
    except KeyboardInterrupt:  # before the first step, or in the midst of the last words
        if os.environ.get("RANK", "0") == "0":
            print("\nStopped. Starting again goes on from the last checkpoint, if there is one.", file=sys.stderr)
        _leave(128 + signal.SIGINT)
    except Exception as error:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # by it torch raises the death of a second worker, anywhere
        sentence = in_words(error)
        if sentence is None:
            raise
        _leave(sentence)
    _leave(0)


def _leave(code: int | str | None) -> None:
    sys.stdout.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr, flush=True)
        code = 1
    if _hung:
        end(code or UNHEARD)
    if os.environ.get("WORLD_SIZE", "1") != "1":
        # gloo's threads may abort an interpreter that takes itself apart, of a run that has ended well
        end(code or 0)
    if code:
        raise SystemExit(code) from None
