"""The folder of a run: its settings and versions (run.json), and a lock against other processes."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import torch

from exactrun import checkpoint
from exactrun.checkpoint import Loaded
from exactrun.ranks import Ranks

FACTS = "run.json"
KINDS = {"settings": dict, "starts": list}  # of what a later start reads

Result = TypeVar("Result")


def on_main(ranks: Ranks, do: Callable[[], Result]) -> Result:
    """Run `do()` on rank 0; return its result on all ranks. If it fails, rank 0 raises its error; the others exit."""
    if ranks.world == 1:
        return do()
    result = failure = None
    if ranks.main:
        try:
            result = do()
        except Exception as error:
            failure = error
    failed, result = ranks.share((failure is not None, result))
    if failure is not None:
        raise failure
    if failed:
        raise SystemExit(1)
    return result


@dataclass
class Folder:
    """The folder of a run. `facts`: the contents of run.json, which only the first rank writes.

    A context manager: while it is open, no other process can train in the folder.
    """

    path: Path
    facts: dict[str, Any]
    claim: contextlib.ExitStack | None = None

    @classmethod
    def open(cls, path: Path, settings: dict[str, Any], ranks: Ranks) -> Folder:
        """The run in this folder, which is created if it does not exist; all ranks call this.

        Raises:
            CheckpointError: another process trains in it, or it cannot be written.
        """

        def start() -> Folder:
            with checkpoint.file_errors(path):
                path.mkdir(parents=True, exist_ok=True)
                run = cls.claimed(path)
                run.begin(settings)
            return run

        return on_main(ranks, start)

    def begin(self, settings: dict[str, Any]) -> None:
        """Record a start in run.json."""
        versions = {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        self.facts.setdefault("settings", as_json(settings))
        start = {
            "at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
            "command": sys.argv,
            "settings": as_json(settings),
            "world": int(os.environ.get("WORLD_SIZE", "1")),
            "versions": versions | {"gpu": gpu},
        }
        self.facts.setdefault("starts", []).append(start)
        self.keep()

    @classmethod
    def claimed(cls, folder: Path) -> Folder:
        """The run in an existing folder, which no other process can train in from now on."""
        claim = contextlib.ExitStack()
        claim.enter_context(checkpoint.claim(folder))
        return cls(folder, read(folder / FACTS), claim)

    def keep(self, **facts: Any) -> None:
        """Add facts to run.json, atomically. Values that JSON does not support are written as strings."""
        self.facts = {**self.facts, **facts}
        if self.claim is None:
            return
        aside = self.path / f".{FACTS}.tmp"
        with aside.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self.facts, indent=2, default=str) + "\n")
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path / FACTS)

    def newest(self, ranks: Ranks) -> Loaded | None:
        """Load the newest valid checkpoint on all ranks; rank 0 decides which one it is."""
        found: list[Loaded | None] = []

        def find() -> Path | None:
            found.append(checkpoint.newest(self.path))
            return found[0] and found[0].path

        path = on_main(ranks, find)
        return found[0] if found else path and checkpoint.load(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "claim": None}  # for other ranks

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self.claim is not None:
            self.claim.close()


def read(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(facts, dict) and all(isinstance(facts.get(name, kind()), kind) for name, kind in KINDS.items())
    return facts if whole else {}


def as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with values that JSON supports; others become strings."""
    return json.loads(json.dumps(settings, default=str))
