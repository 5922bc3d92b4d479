"""Where the figures of a run go: JSON lines always; a tracker that fails is left out, and training goes on."""

import json
from pathlib import Path

from .config import Settings


class TensorBoard:
    """Event files beside the checkpoints."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder)

    def log(self, step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        self.writer.close()


class Tracker:
    """Appends to metrics.jsonl. A step that ran twice, after a kill, is there twice: the later line counts."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.lines = (folder / "metrics.jsonl").open("a", buffering=1)
        self.others = []
        for kind in (TensorBoard,):
            try:
                self.others.append(kind(folder, settings))
            except Exception as error:
                print(f"{kind.__name__} is left out: {error}", flush=True)

    def log(self, step: int, **figures: float) -> None:
        self.lines.write(json.dumps({"step": step, **figures}) + "\n")
        self.each("log", step, figures)

    def each(self, method: str, *arguments: object) -> None:
        for other in list(self.others):
            try:
                getattr(other, method)(*arguments)
            except Exception as error:
                self.others.remove(other)
                print(f"{type(other).__name__} is left out from here: {error}", flush=True)

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, failure: type | None, *_: object) -> None:
        self.each("close", failure is None)
        self.lines.close()
