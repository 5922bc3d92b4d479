"""The metrics of a run, as JSON lines in its folder."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

from exactrun.observer import Observer

LINES = "metrics.jsonl"
ROOM = 10_000  # lines that wait for a full disk


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

    Lines that cannot be written, because the disk is full, are written when that is possible.
    """

    def open(self, run: Any) -> None:
        """Append to the file in the run's folder."""
        self.path = run.folder / LINES
        self.say = run.say
        self.reported = False
        self.waiting: deque[bytes] = deque(maxlen=ROOM)
        self.file = self.path.open("ab+", buffering=0)
        if size := self.file.tell():
            self.file.seek(size - 1)
            if self.file.read() != b"\n":  # a kill cut the last line off
                self.waiting.append(b"\n")

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Write a line."""
        invalid = {name: None for name, one in figures.items() if isinstance(one, float) and not math.isfinite(one)}
        self.waiting.append(json.dumps({"step": step, **figures, **invalid}, default=str).encode() + b"\n")
        self._flush()

    def _flush(self) -> None:
        try:
            while self.waiting:
                written = self.file.write(self.waiting[0])
                self.waiting[0] = self.waiting[0][written:]
                if not self.waiting[0]:
                    self.waiting.popleft()
        except OSError as error:
            if not self.reported:
                why = f"{self.path} cannot be written ({error.strerror})"
                self.say(f"{why}. Training goes on; the metrics are written as soon as that is possible.")
            self.reported = True

    def close(self, status: str) -> list[str]:
        """Write the lines that wait."""
        self._flush()
        self.file.close()
        if not self.waiting:
            return []
        return [f"{self.path} lacks the last {len(self.waiting)} lines of metrics: it could not be written."]
