"""The error of a run that cannot continue, and what other errors mean."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterable
from typing import NoReturn

import torch

from exactrun.ranks import Ranks


class TrainingError(Exception):
    """Training cannot continue; the message is one sentence for the user, with the remedy."""


# What PyTorch, CUDA's libraries, and C++ say when memory ran out. Origins: tests/train/oom-words.txt.
OUT_OF_MEMORY = re.compile(
    r"out of memory|ALLOC(?:ATION)?_FAILED|Failed to CUDA calloc|valid cuDNN algorithm to run|bad_alloc|"
    r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|could not create a primitive\Z",
    re.IGNORECASE,
)


def is_oom(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, means that the GPU or the host ran out of memory.

    The text counts only for RuntimeError, which PyTorch raises.
    """
    while error is not None:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        if isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)):
            return True
        error = error.__cause__
    return False


def check_finite(what: str, tensors: Iterable[torch.Tensor], step: int, ranks: Ranks | None = None) -> None:
    """TrainingError if a tensor contains NaN or infinity, on any of `ranks`; all of them must call this."""
    valid = [one.isfinite().all() for one in tensors]
    failed = bool(valid) and not torch.stack(valid).all().item()
    if ranks.any(failed) if ranks else failed:
        raise TrainingError(
            f"Training diverged: {what} is NaN or infinite at step {step}. Resume from the last checkpoint with a "
            "smaller learning rate."
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def end(code: int) -> NoReturn:
    """Exit now, without Python's normal exit, which would set another code or wait for threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # what a script puts in its place may have no `flush`
            stream.flush()
    os._exit(code)
