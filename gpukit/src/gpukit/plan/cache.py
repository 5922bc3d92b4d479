"""Answers of registries and indexes that are kept for a day, and longer while there is no network."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpukit.project.messages import RefusalError
from gpukit.project.pyproject import write

DAY = 86400


def folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gpukit/plan")


def kept(kind: str, inputs: Any, ask: Callable[[], Any], refresh: bool = False) -> tuple[Any, float]:
    """An answer, and when it was given (seconds since the epoch).

    `inputs`: everything that it depends on. `ask` is not called within a day, unless `refresh`.

    Raises:
        RefusalError: there is no answer, and none from before.
    """
    key = hashlib.sha256(json.dumps([kind, inputs], sort_keys=True).encode()).hexdigest()[:32]
    path = folder() / f"{kind}-{key}.json"
    old = _read(path)
    if old is not None and not refresh and time.time() - old[1] < DAY:
        return old
    try:
        answer = ask()
    except RefusalError as error:
        if old is None or error.kind != "network":
            raise
        return old
    now = time.time()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps({"asked": now, "answer": answer}))
    except OSError:
        pass  # without a folder to write to, the next run asks again
    return answer, now


def _read(path: Path) -> tuple[Any, float] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return data["answer"], float(data["asked"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
