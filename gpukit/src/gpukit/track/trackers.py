"""Experiment trackers, which can never stop the run whose metrics they get.

Each tracker works in its own thread, with a bounded queue: one that raises an error is dropped with a message, and one
that hangs delays the start and the end of the run by at most a few seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from exactrun.metrics import LINES
from exactrun.observer import Observer
from gpukit.findings.private import mask
from gpukit.host.project import dotenv
from gpukit.project.location import located, root

STARTUP = 8.0  # seconds that the run waits for trackers to start
PATIENCE = 15.0  # seconds without progress after which a tracker is abandoned at the end
ROOM = 10_000  # length of a tracker's queue
LONGEST = 300  # characters of an error message
PROJECTS_MLFLOW = "http://mlflow:5000"  # compose.yaml's, as containers find it


class Backend:
    """A tracker, called from one thread: its constructor with the run's folder, settings, and project, then `log` with
    the values of a step, `artifact` with a file, and `finish` with a status. After an error, it is not called again.

    `page`: the address of the run, if the tracker does not print it.
    """

    module: ClassVar[str]
    page = ""

    def artifact(self, path: Path) -> None: ...


class TensorBoard(Backend):
    """An event file in the folder of the run.

    Not by SummaryWriter: on a full disk, its thread prints a traceback (tensorboard 2.21.0).
    """

    module = "torch.utils.tensorboard"

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


class Wandb(Backend):
    """Online with WANDB_API_KEY; without it, the run stays in wandb/ next to the run's folder until `wandb sync`.

    wandb reads WANDB_PROJECT, WANDB_ENTITY, and WANDB_BASE_URL itself.
    """

    module = "wandb"

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

    def artifact(self, path: Path) -> None:
        self.run.save(path, base_path=path.parent, policy="now")

    def finish(self, status: str) -> None:
        self.run.finish(exit_code=0 if status == "finished" else 1)


class MLflow(Backend):
    """The server at MLFLOW_TRACKING_URI; the experiment is the project, or MLFLOW_EXPERIMENT_NAME or _ID."""

    module = "mlflow"

    def __init__(self, run: Path, settings: dict[str, Any], project: str) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not address:
            raise RuntimeError("MLFLOW_TRACKING_URI is not set")
        if _is_the_projects(address):
            try:
                socket.create_connection((urlsplit(address).hostname, urlsplit(address).port), STARTUP / 2).close()
            except OSError:
                raise RuntimeError(f"no server responds at {address}; start it with `./launch up`") from None
        server = _for_a_browser(address)
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        if server:  # MLflow's own links have the address among containers, which no browser can open, or the password
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
        # Without workflowType, MLflow 3 opens its view for language model applications (routes of 3.17.2's web page).
        place = f"experiments/{info.experiment_id}/runs/{self.id}?workflowType=machine_learning"
        self.page = f"{server}/#/{place}" if server else ""

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.mlflow.log_metrics(figures, step, run_id=self.id)

    def artifact(self, path: Path) -> None:
        self.mlflow.log_artifact(str(path))

    def finish(self, status: str) -> None:
        self.mlflow.end_run({"finished": "FINISHED", "failed": "FAILED"}.get(status, "KILLED"))


KINDS: dict[str, type[Backend]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


class Tracker(Observer):
    """Sends metrics to trackers; `log` and `artifact` return at once.

    `trackers`: names in `KINDS` (stack.json, "tracking"). `hung`: whether one did not respond at the end.
    """

    def __init__(self, trackers: Iterable[str], project: str = "") -> None:
        self.names = list(trackers)
        self.project = project
        self.couriers = list[_Courier]()
        self.say: Callable[[str], object] = print

    def open(self, run: Any) -> None:
        """Start the trackers of a run, with its `folder`, `settings`, and `say`."""
        self.say = run.say
        project = self.project or run.folder.name
        self.couriers = [_Courier(KINDS[name], run.folder, run.settings, project) for name in self.names]
        until = time.monotonic() + STARTUP
        try:
            for courier in self.couriers:
                if not courier.settled.wait(max(0.0, until - time.monotonic())):
                    self.say(f"{courier.name} has not responded for {STARTUP:g} s: training starts without it.")
        except KeyboardInterrupt:
            self.close("stopped", patience=0)
            raise
        self._report()

    def log(self, step: int, figures: dict[str, Any]) -> None:
        """Send the metrics of a step."""
        for courier in self.couriers:
            courier.put("log", step, figures)
        self._report()

    def artifact(self, path: Path) -> None:
        """Upload a file of the run, such as the plot of its loss."""
        for courier in self.couriers:
            courier.put("artifact", path)

    def close(self, status: str, patience: float | None = None) -> list[str]:
        """Wait for the trackers; return a message for each that lacks metrics.

        A tracker without progress for `patience` seconds (default: `PATIENCE`) is abandoned, and each on
        KeyboardInterrupt. `status`: "finished", "stopped", or "failed".
        """
        self._report()
        for courier in self.couriers:
            courier.put("finish", status)
        why = self._wait(PATIENCE if patience is None else patience)
        messages = list[str]()
        for courier in self.couriers:
            if not courier.done.is_set():
                self.hung = True
                courier.leave_out(why)
            elif courier.page and not courier.failed:
                self.say(f"{courier.name}: {courier.page}")
            if courier.failed and not courier.messages:  # reported before
                courier.messages.append(courier.lacking())
            messages += courier.messages
        return messages

    def _wait(self, patience: float) -> str:
        """Wait until each is done or abandoned; return why."""
        begun = time.monotonic()
        try:
            for one in self.couriers:
                if not one.done.wait(min(2, patience)) and patience > 2:
                    self.say(f"Waiting for {one.name} to receive the last metrics; press Ctrl-C to skip.")
                while not one.done.wait(0.05) and time.monotonic() < max(begun, one.moved) + patience:
                    pass
        except KeyboardInterrupt:
            return "Ctrl-C was pressed while waiting for it"
        return "it does not respond"

    def _report(self) -> None:
        for one in self.couriers:
            while one.messages:
                self.say(one.messages.popleft())


class _Courier:
    """Sends metrics to a tracker, from a thread that may hang."""

    def __init__(self, kind: type[Backend], *given: Any) -> None:
        self.name = kind.__name__
        self.page = ""
        self.messages = deque[str]()
        self.started = self.failed = False
        self.settled = threading.Event()  # it has started or failed
        self.done = threading.Event()  # it has ended
        self.taken: int | None = None  # the last step
        self.moved = time.monotonic()  # when it made progress
        self.queue: queue.Queue[tuple[Any, ...]] = queue.Queue(ROOM)
        with contextlib.suppress(Exception):  # the thread reports it
            # Not in the thread: a worker forked meanwhile would wait forever for a half-finished import.
            importlib.import_module(kind.module)
        threading.Thread(target=self._work, args=(kind, *given), daemon=True).start()

    def put(self, what: str, *arguments: Any) -> None:
        try:
            if not self.failed:
                self.queue.put_nowait((what, *arguments))
        except queue.Full:
            self.leave_out(f"its queue of {ROOM} entries is full")

    def leave_out(self, why: str) -> None:
        if not self.failed:
            self.messages.append(f"{self.name} is not used{' from here on' * self.started}: {why}.")
        self.failed = True

    def lacking(self) -> str:
        what = "has no metrics" if self.taken is None else f"lacks the metrics after step {self.taken}"
        return f"{self.name} {what}; {LINES} has them."

    def _work(self, kind: type[Backend], *given: Any) -> None:
        try:
            tracker = kind(*given)
            self.started = True
            self.page = tracker.page
            self.settled.set()
            what = ""
            while what != "finish" and not self.failed:
                what, *arguments = self.queue.get()
                getattr(tracker, what)(*arguments)
                self.moved = time.monotonic()
                if what == "log":
                    self.taken = arguments[0]
        except BaseException as error:
            self.leave_out(_one_line(error))
        finally:
            self.settled.set()
            self.done.set()


def _one_line(error: BaseException) -> str:
    """The first line of the message, without secrets."""
    text = mask(root())(str(error)).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:LONGEST]


def _is_the_projects(address: str) -> str:
    """The port of the project's own MLflow server on the host, if the address is that server's; "" for another."""
    port = {**dotenv(located(".env")), **os.environ}.get("MLFLOW_PORT") or "5000"
    ours = (PROJECTS_MLFLOW, f"http://127.0.0.1:{port}")  # from a container; with --native
    return port if address.rstrip("/") in ours else ""


def _for_a_browser(address: str) -> str:
    """Where a browser finds a server, without the password in the address; "" if it is no web server."""
    if port := _is_the_projects(address):
        return f"http://localhost:{port}"
    server = urlsplit(address)
    return server._replace(netloc=server.netloc.rpartition("@")[2]).geturl().rstrip("/") * (server.scheme[:4] == "http")
