"""Experiment trackers, which do not stop the run whose metrics they get.

One that raises an error is dropped with a message. A server that does not respond raises one after some seconds: the
backends set the time limits of their libraries.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exactrun.metrics import LINES
from exactrun.observer import Observer
from exactrun.progress import announce
from gpukit.findings.private import mask
from gpukit.project.location import root

LONGEST = 300  # characters of an error message
PROJECTS = ("mlflow", "127.0.0.1")  # where the project's MLflow is: in compose.yaml, and with --native


class TensorBoard:
    """An event file in the folder of the run.

    Not by SummaryWriter: on a full disk, its thread prints a traceback (tensorboard 2.21.0).
    """

    def __init__(self, run: Path, *_: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.event = Event
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self.writer = RecordWriter((run / name).open("ab", buffering=0))
        self.write(file_version="brain.Event:2")

    def write(self, **fields: Any) -> None:
        self.writer.write(self.event(wall_time=time.time(), **fields).SerializeToString())

    def log(self, step: int, figures: dict[str, float]) -> None:
        from torch.utils.tensorboard.summary import scalar

        for name, value in figures.items():
            self.write(step=step, summary=scalar(name, value))

    def finish(self, status: str) -> None:
        self.writer.close()


class Wandb:
    """Online with WANDB_API_KEY; without it, the run stays in wandb/ next to the run's folder until `wandb sync`.

    wandb reads WANDB_PROJECT, WANDB_ENTITY, and WANDB_BASE_URL itself.
    """

    def __init__(self, run: Path, settings: dict[str, Any], project: str) -> None:
        import wandb

        known = run / "wandb-run"
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or project,
            name=run.name,
            id=known.read_text() if known.exists() else None,
            resume="allow",
            dir=run.parent,
            config=settings,
            mode=os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline"),
            settings=wandb.Settings(init_timeout=30, finish_timeout=60),
        )
        known.write_text(self.run.id)

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.run.log(figures, step=step)

    def finish(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """The server at MLFLOW_TRACKING_URI; the experiment is the project, or MLFLOW_EXPERIMENT_NAME or _ID."""

    def __init__(self, run: Path, settings: dict[str, Any], project: str) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not address:
            raise RuntimeError("MLFLOW_TRACKING_URI is not set")
        server = urlsplit(address)
        if server.hostname in PROJECTS:
            try:
                socket.create_connection((server.hostname, server.port or 80), 4).close()
            except OSError:
                raise RuntimeError(f"no server responds at {address}; start it with `./launch up`") from None
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        if server.hostname == "mlflow" or server.password:  # no link that no browser can open, or with a password
            os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        import mlflow

        self.mlflow = mlflow
        known = run / "mlflow-run"
        if known.exists():
            info = mlflow.start_run(run_id=known.read_text()).info
        else:
            if not (os.environ.get("MLFLOW_EXPERIMENT_NAME") or os.environ.get("MLFLOW_EXPERIMENT_ID")):
                mlflow.set_experiment(project)
            info = mlflow.start_run(run_name=run.name).info
            known.write_text(info.run_id)
            mlflow.log_params(settings)
        self.id = info.run_id

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.mlflow.log_metrics(figures, step, run_id=self.id)

    def finish(self, status: str) -> None:
        self.mlflow.end_run({"finished": "FINISHED", "failed": "FAILED"}.get(status, "KILLED"))


KINDS = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


class Tracker(Observer):
    """Sends the metrics of a run to a tracker.

    `name`: one of `KINDS` (stack.json, "tracking"), a class that is created with the run's folder, settings, and
    project, then gets `log` with the values of a step, and `finish` with a status.
    """

    def __init__(self, name: str, project: str = "") -> None:
        self.kind = KINDS[name]
        self.project = project
        self.backend: TensorBoard | Wandb | MLflow | None = None  # None: it is not used
        self.last: int | None = None  # step that it has

    def open(self, run: Any) -> None:
        """Start the tracker of a run, with its `folder`, `settings`, and `say`."""
        self.say: Callable[[str], object] = run.say
        with announce(f"Waiting for {self.kind.__name__}"), self._dropped_if_it_fails():
            self.backend = self.kind(run.folder, run.settings, self.project or run.folder.name)

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Send the metrics of a step."""
        if self.backend is not None:
            with self._dropped_if_it_fails():
                self.backend.log(step, figures)
                self.last = step

    def close(self, status: str) -> list[str]:
        """End it; a message if it lacks metrics. `status`: "finished", "stopped", or "failed"."""
        if self.backend is not None:
            with announce(f"Waiting for {self.kind.__name__}"), self._dropped_if_it_fails():
                self.backend.finish(status)
        if self.backend is not None:
            return []
        what = "has no metrics" if self.last is None else f"lacks the metrics after step {self.last}"
        return [f"{self.kind.__name__} {what}; {LINES} has them."]

    @contextlib.contextmanager
    def _dropped_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            later = " from here on" if self.backend is not None else ""
            self.backend = None
            self.say(f"{self.kind.__name__} is not used{later}: {_one_line(error)}.")


def _one_line(error: BaseException) -> str:
    """The first line of the message, without secrets."""
    text = mask(root())(str(error)).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:LONGEST]
