"""Where the figures of a run go: JSON lines always; a tracker that fails is left out, and training goes on."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from .config import Settings


class Wandb:
    """Online with WANDB_API_KEY; without it the run stays in outputs/wandb until `wandb sync`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        import wandb

        known = folder / "wandb-run"
        self.run = wandb.init(
            project="spark-fine-tuning",
            name=folder.name,
            id=known.read_text() if known.exists() else None,
            resume="allow",
            dir=settings.output_dir,
            config=asdict(settings),
            mode=os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline"),
            settings=wandb.Settings(init_timeout=30, finish_timeout=60),
        )
        known.write_text(self.run.id)

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.run.log(figures, step=step)

    def close(self, finished: bool) -> None:
        self.run.finish(exit_code=0 if finished else 1)


class Tracker:
    """Appends to metrics.jsonl. A step that ran twice, after a kill, is there twice: the later line counts."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.lines = (folder / "metrics.jsonl").open("a", buffering=1)
        self.others = []
        for kind in (Wandb,):
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
