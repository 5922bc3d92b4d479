"""Where the figures of a run go: JSON lines always, and the trackers that were chosen, none of which can stop the run.

Each tracker works in a thread of its own, behind a queue of limited length: one that raises is left out and the reason
told, one that hangs costs at most a few seconds at the end of the run; one that is slow has longer.
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
from gpukit.project.location import root

LINES = "metrics.jsonl"
PATIENCE = 15.0  # seconds that trackers have at the end, from the last thing that they took
MOST = 4  # times as long at most, however much they still take
ROOM = 10_000  # reports that a tracker may be behind
LONGEST = 300  # characters of an error that is told
Rows = list[tuple[int, dict[str, float]]]


class Backend(Protocol):
    """A tracker; all calls come from one thread. Making it starts it, `wait(seconds)` asks for more time to do so."""

    module: ClassVar[str]

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[float], None]) -> None: ...

    def log(self, rows: Rows) -> None:
        """Take figures, (step, name -> value) in the order they came. After an error it is asked for nothing more."""

    def artifact(self, path: Path) -> None:
        """Take a file of the run."""

    def finish(self, status: str) -> None:
        """Deliver what is left; `status`: finished, stopped or failed."""


class TensorBoard:
    """Event files beside the checkpoints."""

    module = "torch.utils.tensorboard"

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[float], None]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(run)

    def log(self, rows: Rows) -> None:
        """A scalar for each figure (SummaryWriter.add_scalar)."""
        for step, figures in rows:
            for name, value in figures.items():
                self.writer.add_scalar(name, value, step)

    def artifact(self, path: Path) -> None:
        """The file lies beside the event files already."""

    def finish(self, status: str) -> None:
        """Write what is buffered (SummaryWriter.close)."""
        self.writer.close()


class Wandb:
    """Online with WANDB_API_KEY; without it the run stays in wandb/ beside the run's folder until `wandb sync`."""

    module = "wandb"

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[float], None]) -> None:
        import wandb

        known = run / "wandb-run"
        self.run = wandb.init(
            project=project,
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
        """A row of the run's history for each step (wandb.Run.log)."""
        for step, figures in rows:
            self.run.log(figures, step=step)

    def artifact(self, path: Path) -> None:
        """A file of the run, sent at once (wandb.Run.save)."""
        self.run.save(path, base_path=path.parent, policy="now")

    def finish(self, status: str) -> None:
        """Send what is left, for at most a minute (wandb.Run.finish)."""
        self.run.finish(exit_code=0 if status == "finished" else 1)


class MLflow:
    """The server that MLFLOW_TRACKING_URI names."""

    module = "mlflow"

    def __init__(self, run: Path, settings: dict[str, Any], project: str, wait: Callable[[float], None]) -> None:
        _answering(os.environ.get("MLFLOW_TRACKING_URI", ""), wait)
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        import mlflow

        self.mlflow = mlflow
        known = run / "mlflow-run"
        mlflow.set_experiment(project)
        if known.exists():
            self.id = mlflow.start_run(run_id=known.read_text()).info.run_id
        else:
            self.id = mlflow.start_run(run_name=run.name).info.run_id
            known.write_text(self.id)
            mlflow.log_params(settings)

    def log(self, rows: Rows) -> None:
        """All in one request, or some: a server takes 1000 figures at once, and each request takes it milliseconds."""
        from mlflow.entities import Metric

        now = round(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for step, figures in rows for name, value in figures.items()]
        for start in range(0, len(metrics), 1000):
            self.mlflow.MlflowClient().log_batch(self.id, metrics=metrics[start : start + 1000])

    def artifact(self, path: Path) -> None:
        """An artifact of the run (mlflow.log_artifact)."""
        self.mlflow.log_artifact(str(path))

    def finish(self, status: str) -> None:
        """Set the run's status (mlflow.end_run)."""
        self.mlflow.end_run({"finished": "FINISHED", "failed": "FAILED"}.get(status, "KILLED"))


KINDS: dict[str, type[Backend]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": MLflow}


class Tracker:
    """`log` and `artifact` return at once; what became of a tracker is told by `say`, and by `finish` at the end.

    `trackers`: names of `KINDS` (stack.json, "tracking"). `main`: False on all ranks but one, where it does nothing.
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

    def log(self, step: int, **figures: Any) -> None:
        """The figures of a step: numbers, or tensors of one number, which are waited for."""
        if self.lines is None:
            return
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in figures.items()}
        self.lines.write(step, plain)
        for courier in self.couriers:
            courier.put("log", (step, plain))
        for trouble in self._news():
            self.say(trouble)

    def artifact(self, path: Path) -> None:
        """A file of the run, such as the picture of its loss."""
        for courier in self.couriers:
            courier.put("artifact", path)

    def finish(self, status: str, patience: float = PATIENCE) -> list[str]:
        """Wait for the trackers; what is to be told of those that lack something.

        One that takes nothing for `patience` seconds is given up, each after `MOST` times as long, all of them at a
        KeyboardInterrupt. `status`: "finished", "stopped" or "failed". Sets `hung` where one did not answer: leave with
        `end` then.
        """
        for courier in self.couriers:
            courier.put("finish", status)
        interrupted = not self._waited(patience)
        for courier in self.couriers:
            if not courier.done.is_set():
                self.hung = True
                slow = time.monotonic() - courier.moved < patience
                courier.leave_out(
                    "Ctrl-C came while it was waited for"
                    if interrupted
                    else f"it was not done {MOST * patience:g} s after the end"
                    if slow
                    else f"it did not answer within {patience:g} s at the end"
                )
        lacking = [one.lacking() for one in self._all() if one.told]
        return self._news() + lacking

    def _waited(self, patience: float) -> bool:
        """Until each is done or given up; False where somebody did not want to wait."""
        begun = time.monotonic()
        tell = begun + 2
        with contextlib.suppress(KeyboardInterrupt):
            while waiting := [one for one in self.couriers if not one.done.is_set() and not one.over(begun, patience)]:
                if time.monotonic() > tell:
                    names = " and ".join(one.name for one in waiting)
                    self.say(f"Waiting for {names} to take the last figures; Ctrl-C gives that up.")
                    tell = math.inf
                waiting[0].done.wait(0.05)  # a join that Ctrl-C breaks takes the thread for ended
            return True
        return False

    def _all(self) -> list[_Lines | _Courier]:
        return [*([self.lines] if self.lines else []), *self.couriers]

    def _news(self) -> list[str]:
        """What was not told yet."""
        news = [one for one in self._all() if one.trouble and not one.told]
        for one in news:
            one.told = True
        return [one.trouble for one in news]


def end(code: int) -> NoReturn:
    """Leave this process although a tracker hangs: its own handlers at the end of Python would wait for it."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def read(run: Path) -> list[dict[str, Any]]:
    """The figures in metrics.jsonl, one dict for each step; what is no number is nan.

    Where a killed run went back to its checkpoint, what it had said from there on no longer counts.
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
    """metrics.jsonl: opened for each line, so that none is half written or kept back when the process is killed."""

    def __init__(self, path: Path) -> None:
        self.path, self.trouble, self.told = path, "", False
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
            self.trouble = (
                self.trouble or f"{self.path} cannot be written ({error.strerror}): figures are lost from here."
            )

    def lacking(self) -> str:
        return f"{self.path} lacks figures, the last at step {self.since}."


def _cut_off(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
    return False


class _Courier:
    """Brings figures to a tracker, from a thread that may hang."""

    def __init__(self, kind: type[Backend], run: Path, settings: dict[str, Any], project: str) -> None:
        self.name, self.trouble, self.told = kind.__name__, "", False
        self.taken: int | None = None  # the last step
        self.moved = self.more_until = 0.0
        self.queue: queue.Queue[tuple[str, Any]] = queue.Queue(ROOM)
        self.done = threading.Event()
        with contextlib.suppress(Exception):  # it says why below
            # Not in the thread: in a worker forked meanwhile, what is half imported would stay so, and be waited for.
            importlib.import_module(kind.module)
        threading.Thread(target=self._work, args=(kind, run, settings, project), daemon=True).start()

    def put(self, what: str, argument: Any) -> None:
        try:
            if not self.trouble:
                self.queue.put_nowait((what, argument))
        except queue.Full:
            self.leave_out(f"it is {ROOM} reports behind")

    def leave_out(self, why: str) -> None:
        self.trouble = self.trouble or f"{self.name} is left out from here: {why}."

    def over(self, begun: float, patience: float) -> bool:
        """Whether its time at the end, which has `begun`, is up."""
        until = min(max(self.moved, begun) + patience, begun + MOST * patience)
        return time.monotonic() > max(until, self.more_until)

    def lacking(self) -> str:
        what = "has no figures" if self.taken is None else f"lacks the figures after step {self.taken}"
        return f"{self.name} {what}; {LINES} has them."

    def _wait(self, seconds: float) -> None:
        self.more_until = time.monotonic() + seconds

    def _work(self, *given: Any) -> None:
        kind, *rest = given
        try:
            tracker = kind(*rest, self._wait)
            self.moved = time.monotonic()
        except BaseException as error:
            self.trouble = f"{self.name} is left out: {_said(error)}."
            self.done.set()
            return
        try:
            self._deliver(tracker)
        except BaseException as error:
            self.leave_out(_said(error))
        self.done.set()

    def _deliver(self, tracker: Backend) -> None:
        what = ""
        while what != "finish" and not self.trouble:
            what, argument = self.queue.get()
            rows = []
            while what == "log":  # all that wait, at once
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


def _said(error: BaseException) -> str:
    """One line of it, without secrets."""
    text = mask(root())(str(error)).strip() or type(error).__name__
    line = text.splitlines()[0].rstrip(".")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def _answering(address: str, wait: Callable[[float], None]) -> None:
    """Until a server answers at the address; ConnectionError where none does. One that is just starting has 30 s."""
    server = urlsplit(address)
    if not server.scheme or (server.scheme in ("http", "https") and not server.hostname):
        raise RuntimeError("MLFLOW_TRACKING_URI names no server")
    if not server.hostname or (
        server.scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(server.hostname)
    ):
        return  # a folder, or a server behind a proxy: only the client can tell
    port = server.port or (443 if server.scheme == "https" else 80)
    until = time.monotonic() + 30
    while True:
        try:  # where no server answers, the client alone would wait for minutes
            socket.create_connection((server.hostname, port), timeout=3).close()
            return
        except OSError as error:
            # refused: its container is there, and the server in it may be starting
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() > until:
                said = f"no server answers at {server.hostname}:{port}: `./launch up` starts it"
                raise ConnectionError(said) from error
        wait(PATIENCE)
        time.sleep(1)
