"""The metrics of a run, as JSON lines in its folder."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from exactrun.observer import Observer

LINES = "metrics.jsonl"


def is_logged(step: int, every: int) -> bool:
    """Whether the loss of a step is logged: of the first ten steps, of every tenth up to 100, and so on, until this is
    rarer than `every`; and of each step that is a multiple of `every`."""
    dense = 1
    while dense * 10 <= step:
        dense *= 10
    return step % every == 0 or (dense < every and step % dense == 0)


def read(run: Path) -> list[dict[str, Any]]:
    """The metrics in metrics.jsonl, one dict per step; null becomes NaN.

    If a killed run was resumed from a checkpoint, the steps that it repeated replace the earlier ones.
    """
    steps: dict[int, dict[str, Any]] = {}
    text = (run / LINES).read_text(encoding="utf-8", errors="replace") if (run / LINES).exists() else ""
    for line in text.splitlines():
        try:
            figures = json.loads(line)
            step = figures["step"]
        except (ValueError, KeyError, TypeError):
            continue  # cut off by a kill or a full disk
        if steps and next(reversed(steps)) > step:
            steps = {earlier: known for earlier, known in steps.items() if earlier < step}
        known = {name: math.nan if value is None else value for name, value in figures.items()}
        steps.setdefault(step, {}).update(known)
    return list(steps.values())


class Lines(Observer):
    """Writes metrics.jsonl, each line at once, so that none is lost when the process is killed.

    Training continues if a line cannot be written, because the disk is full.
    """

    def open(self, run: Any) -> None:
        """Append to the file in the run's folder."""
        self.path = run.folder / LINES
        self.say = run.say
        self.lost = 0
        self.file = self.path.open("ab", buffering=0)
        # A kill or a full disk has cut the last line off.
        self.torn = bool(self.file.tell()) and not self.path.read_bytes().endswith(b"\n")

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Write a line."""
        invalid = {name: None for name, one in figures.items() if isinstance(one, float) and not math.isfinite(one)}
        line = json.dumps({"step": step, **figures, **invalid}, default=str).encode() + b"\n"
        line = b"\n" + line if self.torn else line
        self.torn = True
        try:
            written = self.file.write(line)
            self.file.write(line[written:])  # raises the error that has cut the line off
            self.torn = False
        except OSError as error:
            if not self.lost:
                self.say(f"{self.path} cannot be written ({error.strerror}). Training goes on without these lines.")
            self.lost += 1

    def close(self, status: str) -> list[str]:
        """Report lines that are lost."""
        self.file.close()
        return [f"{self.path} lacks {self.lost} lines of metrics: it could not be written."] if self.lost else []
