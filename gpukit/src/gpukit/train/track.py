"""The metrics of a run: always JSON lines, and the selected experiment trackers, which can never stop the run.

Each tracker works in its own thread, with a bounded queue: one that raises an error is dropped with a message, one that
hangs delays the start and the end of the run by at most a few seconds, and a slow one gets more time.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import math
import os
import queue
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol
from urllib.parse import urlsplit

from gpukit.findings.private import mask
from gpukit.host.project import dotenv
from gpukit.project.location import root

LINES = "metrics.jsonl"
STARTUP = 8.0  # seconds that the run waits for trackers to start
RETRY = 2.0  # seconds between two looks for a server that does not respond
PATIENCE = 15.0  # seconds that a tracker may take at the end, counted from its last progress
MOST = 4  # times PATIENCE is the overall limit
ROOM = 10_000  # length of a tracker's queue
LONGEST = 300  # characters of an error message
PROJECTS_MLFLOW = "http://mlflow:5000"  # compose.yaml's, as containers find it
Rows = list[tuple[int, dict[str, float]]]


class Backend(Protocol):
    """A tracker, called from one thread. Its constructor starts it.

    While its server does not respond, the constructor calls `wait(problem)`, which pauses, and raises an error with
    that text if the run ends. `page` is the address of the run to print at the end, if the tracker does not print it.
    """

    module: ClassVar[str]
    page: str

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[str], None]) -> None: ...

    def log(self, rows: Rows) -> None:
        """Log metrics, (step, name -> value), in order. After an error, the tracker is not called again."""

    def artifact(self, path: Path) -> None:
        """Upload a file of the run."""

    def finish(self, status: str) -> None:
        """Send what is left; `status`: finished, stopped, or failed."""


class TensorBoard:
    """Event files in the folder of the run."""

    module = "torch.utils.tensorboard"
    page = ""

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[str], None]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(run)

    def log(self, rows: Rows) -> None:
        """One scalar per metric (SummaryWriter.add_scalar)."""
        for step, figures in rows:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, step)

    def artifact(self, path: Path) -> None:
        """Nothing to do: the file is in the same folder."""

    def finish(self, status: str) -> None:
        """Write buffered events (SummaryWriter.close)."""
        self.writer.close()


class Wandb:
    """Online with WANDB_API_KEY; without it, the run stays in wandb/ next to the run's folder until `wandb sync`.

    wandb reads WANDB_PROJECT, WANDB_ENTITY, and WANDB_BASE_URL itself.
    """

    module = "wandb"
    page = ""

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[str], None]) -> None:
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

    def log(self, rows: Rows) -> None:
        """One row of the run's history per step (wandb.Run.log)."""
        for step, figures in rows:
            self.run.log(figures, step=step)

    def artifact(self, path: Path) -> None:
        """Upload the file now (wandb.Run.save)."""
        self.run.save(path, base_path=path.parent, policy="now")

    def finish(self, status: str) -> None:
        """Upload what is left, for at most a minute (wandb.Run.finish)."""
        self.run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """The server at MLFLOW_TRACKING_URI; the experiment is the project, or MLFLOW_EXPERIMENT_NAME or _ID."""

    module = "mlflow"

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[str], None]) -> None:
        address = os.environ.get("MLFLOW_TRACKING_URI", "")
        server = _on_the_host(address) or _without_password(address)
        certificate = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
        if certificate and not Path(certificate).exists():
            what = f"MLFLOW_TRACKING_SERVER_CERT_PATH is {certificate}, which does not exist here"
            raise RuntimeError(f"{what}; use a path in the project, relative to its folder")
        _answering(address, wait)
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

    def log(self, rows: Rows) -> None:
        """Log up to 1000 metrics per request, the server's limit."""
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for step, figures in rows for name, value in figures.items()]
        for start in range(0, len(metrics), 1000):
            self.mlflow.MlflowClient().log_batch(self.id, metrics=metrics[start : start + 1000])

    def artifact(self, path: Path) -> None:
        """Upload an artifact (mlflow.log_artifact)."""
        self.mlflow.log_artifact(str(path))

    def finish(self, status: str) -> None:
        """Set the run's status (mlflow.end_run)."""
        self.mlflow.end_run({"finished": "FINISHED", "failed": "FAILED"}.get(status, "KILLED"))


KINDS: dict[str, type[Backend]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


class Tracker:
    """Logs metrics to metrics.jsonl and to trackers. `log` and `artifact` return at once; `say` reports problems.

    `trackers`: names in `KINDS` (stack.json, "tracking"). `main`: False on all ranks but one, where it does nothing.
    """

    def __init__(
        self,
        run: Path,
        settings: dict[str, Any],
        trackers: list[str],
        project: str,
        *,
        main: bool = True,
        say: Callable[[str], object] = print,
    ) -> None:
        self.hung, self.say = False, say
        self.lines = _Lines(run / LINES) if main else None
        self.couriers = [_Courier(KINDS[name], run, settings, project) for name in trackers if main]
        until = time.monotonic() + STARTUP
        for courier in self.couriers:
            courier.settled.wait(max(0.0, until - time.monotonic()))
        self._report()

    def log(self, step: int, **figures: Any) -> None:
        """Log the metrics of a step: numbers, or tensors with one element, which are synchronized."""
        if self.lines is None:
            return
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        self.lines.write(step, plain)
        for courier in self.couriers:
            courier.put("log", (step, plain))
        self._report()

    def artifact(self, path: Path) -> None:
        """Upload a file of the run, such as the plot of its loss."""
        for courier in self.couriers:
            courier.put("artifact", path)

    def finish(self, status: str, patience: float = PATIENCE) -> list[str]:
        """Wait for the trackers; return a message for each that lacks metrics.

        A tracker without progress for `patience` seconds is abandoned, each of them after `MOST` times as long, and all
        of them on KeyboardInterrupt. `status`: "finished", "stopped", or "failed". Sets `hung` if one did not respond:
        exit with `end` then.
        """
        for courier in self.couriers:
            courier.ending.set()
            courier.put("finish", status)
        interrupted = not self._waited(patience)
        for courier in self.couriers:
            if not courier.done.is_set():
                self.hung = True
                slow = time.monotonic() - courier.moved < patience
                courier.leave_out(
                    "Ctrl-C was pressed while waiting for it"
                    if interrupted
                    else f"it had not finished {MOST * patience:g} s after the end"
                    if slow
                    else f"it did not respond for {patience:g} s at the end"
                )
        for courier in self.couriers:
            if courier.page and not courier.problem:
                self.say(f"{courier.name}: {courier.page}")
        lacking = [one.lacking() for one in self._all() if one.problem and one.problem == one.reported]
        return self._new_messages() + lacking

    def _waited(self, patience: float) -> bool:
        """Wait until each is done or abandoned; False on Ctrl-C."""
        begun = time.monotonic()
        report_at = begun + 2
        with contextlib.suppress(KeyboardInterrupt):
            while waiting := [one for one in self.couriers if not one.done.is_set() and not one.over(begun, patience)]:
                if time.monotonic() > report_at:
                    names = " and ".join(one.name for one in waiting)
                    self.say(f"Waiting for {names} to receive the last metrics; press Ctrl-C to skip.")
                    report_at = math.inf
                waiting[0].done.wait(0.05)  # not join: if Ctrl-C interrupts it, it takes the thread for finished
            return True
        return False

    def _all(self) -> list[_Lines | _Courier]:
        return [*([self.lines] if self.lines else []), *self.couriers]

    def _report(self) -> None:
        for courier in self.couriers:
            message = courier.delayed()
            if message:
                self.say(message)
        for message in self._new_messages():
            self.say(message)

    def _new_messages(self) -> list[str]:
        new = [one for one in self._all() if one.problem and one.problem != one.reported]
        for one in new:
            one.reported = one.problem
        return [one.problem for one in new]


def end(code: int) -> NoReturn:
    """Exit although a tracker hangs: Python's normal exit would wait for it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def read(run: Path) -> list[dict[str, Any]]:
    """The metrics in metrics.jsonl, one dict per step; null becomes NaN.

    If a killed run was resumed from a checkpoint, the steps that it repeated replace the earlier ones.
    """
    steps: dict[int, dict[str, Any]] = {}
    for line in (run / LINES).read_text(encoding="utf-8", errors="replace").splitlines():
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


class _Lines:
    """metrics.jsonl: opened for each line, so that no line is lost in a buffer when the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path, self.problem, self.reported = path, "", ""
        self.begin = b"\n" if _cut_off(path) else b""

    def write(self, step: int, figures: dict[str, Any]) -> None:
        valid = {
            name: None if isinstance(one, float) and not math.isfinite(one) else one for name, one in figures.items()
        }
        line = self.begin + json.dumps({"step": step, **valid}, default=str).encode() + b"\n"
        try:
            with self.path.open("ab", buffering=0) as file:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.begin = b""
        except OSError as error:
            self.begin = b"\n"
            self.since = step
            self.problem = (
                self.problem or f"{self.path} cannot be written ({error.strerror}): metrics are lost from here on."
            )

    def lacking(self) -> str:
        return f"{self.path} lacks metrics, the last at step {self.since}."


def _cut_off(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
    return False


class _Courier:
    """Sends metrics to a tracker, from a thread that may hang."""

    def __init__(self, kind: type[Backend], run: Path, settings: dict[str, Any], project: str) -> None:
        self.name, self.problem, self.reported, self.page = kind.__name__, "", "", ""
        self.started = self.late = False
        self.delay = ""  # why it has not started yet
        self.settled = threading.Event()  # it has started, failed, or waits for its server
        self.ending = threading.Event()
        self.taken: int | None = None  # the last step
        self.moved = 0.0
        self.queue: queue.Queue[tuple[str, Any]] = queue.Queue(ROOM)
        self.done = threading.Event()
        with contextlib.suppress(Exception):  # the thread reports it
            # Not in the thread: a worker forked meanwhile would wait forever for a half-finished import.
            importlib.import_module(kind.module)
        threading.Thread(target=self._work, args=(kind, run, settings, project), daemon=True).start()

    def put(self, what: str, argument: Any) -> None:
        try:
            if not self.problem:
                self.queue.put_nowait((what, argument))
        except queue.Full:
            self.leave_out(f"its queue of {ROOM} entries is full")

    def leave_out(self, why: str) -> None:
        self.problem = self.problem or f"{self.name} is not used from here on: {why}."

    def over(self, begun: float, patience: float) -> bool:
        """Whether its time at the end of the run is over."""
        return time.monotonic() > min(max(self.moved, begun) + patience, begun + MOST * patience)

    def lacking(self) -> str:
        what = "has no metrics" if self.taken is None else f"lacks the metrics after step {self.taken}"
        return f"{self.name} {what}; {LINES} has them."

    def delayed(self) -> str:
        """What to report of a start that takes long: once that it does, and once that it is over."""
        if self.problem or self.late == (not self.started):
            return ""
        self.late = not self.started
        if self.started:
            return f"{self.name} responds now and gets all metrics."
        why = self.delay or f"it has not responded for {STARTUP:g} s"
        return f"{self.name} is not used yet: {why}. Training goes on, with all metrics in {LINES}."

    def _wait(self, problem: str) -> None:
        self.delay, self.reported = problem, f"{self.name} is not used: {problem}."
        self.settled.set()
        if self.ending.wait(RETRY):
            raise ConnectionError(problem)

    def _work(self, *given: Any) -> None:
        kind, *rest = given
        try:
            tracker = kind(*rest, self._wait)
            self.started, self.moved, self.page = True, time.monotonic(), tracker.page
        except BaseException as error:
            self.problem = f"{self.name} is not used: {_one_line(error)}."
            self.done.set()
            return
        finally:
            self.settled.set()
        try:
            self._deliver(tracker)
        except BaseException as error:
            self.leave_out(_one_line(error))
        self.done.set()

    def _deliver(self, tracker: Backend) -> None:
        what = ""
        while what != "finish" and not self.problem:
            what, argument = self.queue.get()
            rows = []
            while what == "log":  # everything in the queue, at once
                rows.append(argument)
                try:
                    what, argument = self.queue.get_nowait()
                except queue.Empty:
                    what = ""
            if rows:
                tracker.log(rows)
                self.taken = rows[-1][0]
                self.moved = time.monotonic()
            if what:
                getattr(tracker, what)(argument)
                self.moved = time.monotonic()


def _one_line(error: BaseException) -> str:
    """The first line of the message, without secrets."""
    text = mask(root())(str(error)).strip() or type(error).__name__
    line = text.splitlines()[0].rstrip(".")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def _on_the_host(address: str) -> str:
    """Where a browser finds the project's own MLflow server; "" for another server."""
    port = {**dotenv(root() / ".env"), **os.environ}.get("MLFLOW_PORT") or "5000"
    ours = (PROJECTS_MLFLOW, f"http://127.0.0.1:{port}")  # from a container; with --native
    return f"http://localhost:{port}" if address.rstrip("/") in ours else ""


def _without_password(address: str) -> str:
    """A server's address without the user name and password in it; "" if it has none."""
    server = urlsplit(address)
    given, _, host = server.netloc.rpartition("@")
    return server._replace(netloc=host).geturl().rstrip("/") if given and server.scheme in ("http", "https") else ""


def _answering(address: str, wait: Callable[[str], None]) -> None:
    """Wait until a server responds at the address; without one, the client would hang for minutes."""
    server = urlsplit(address)
    if not address or (server.scheme in ("http", "https") and not server.hostname):
        raise RuntimeError("MLFLOW_TRACKING_URI is not the address of a server")
    if server.scheme not in ("http", "https") or (
        server.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(server.hostname)
    ):
        return  # a database, Databricks, or a server behind a proxy: only the client can tell
    port = server.port or (443 if server.scheme == "https" else 80)
    remedy = "check MLFLOW_TRACKING_URI"
    if _on_the_host(address):
        remedy = "start it with `./launch up`"
    elif server.hostname in ("localhost", "127.0.0.1", "::1") and Path("/etc/gpukit").is_dir():
        remedy = "in the container, localhost is the container itself, so use this machine's address"
    while True:
        try:
            socket.create_connection((server.hostname, port), timeout=STARTUP / 2).close()
            return
        except OSError:
            wait(f"no server responds at {server.hostname}:{port}; {remedy}")
