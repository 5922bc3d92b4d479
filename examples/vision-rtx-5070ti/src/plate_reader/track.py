"""Where the figures of a run go: one JSON line per report, in metrics.jsonl."""

import json
from pathlib import Path

from .config import Settings


class Tracker:
    """Appends to metrics.jsonl. A step that ran twice, after a kill, is there twice: the later line counts."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.lines = (folder / "metrics.jsonl").open("a", buffering=1)

    def log(self, step: int, **figures: float) -> None:
        self.lines.write(json.dumps({"step": step, **figures}) + "\n")

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *_: object) -> None:
        self.lines.close()
