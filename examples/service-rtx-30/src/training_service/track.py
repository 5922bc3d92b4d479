"""Where the figures of a run go: JSON lines always; a tracker that fails is left out, and training goes on."""

import json
import os
import socket
import time
from dataclasses import asdict
from pathlib import Path
from urllib.parse import urlsplit

from .config import Settings


class MLflow:
    """The server that MLFLOW_TRACKING_URI names."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        server = urlsplit(os.environ.get("MLFLOW_TRACKING_URI", ""))
        if not server.hostname:
            raise RuntimeError("MLFLOW_TRACKING_URI names no server")
        port = server.port or (443 if server.scheme == "https" else 80)
        until = time.monotonic() + 30
        while True:
            try:  # where no server answers, the client alone would wait for minutes
                socket.create_connection((server.hostname, port), timeout=3).close()
                break
            except OSError as error:
                # refused: its container is there, and the server in it may be starting
                if not isinstance(error, ConnectionRefusedError) or time.monotonic() > until:
                    raise ConnectionError(f"nothing at {server.hostname}:{port}: `./launch up` starts it") from error
            time.sleep(1)
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        import mlflow

        self.mlflow = mlflow
        known = folder / "mlflow-run"
        mlflow.set_experiment("training-service")
        if known.exists():
            mlflow.start_run(run_id=known.read_text())
        else:
            known.write_text(mlflow.start_run(run_name=folder.name).info.run_id)
            mlflow.log_params(asdict(settings))

    def log(self, step: int, figures: dict[str, float]) -> None:
        self.mlflow.log_metrics(figures, step=step)

    def close(self, finished: bool) -> None:
        self.mlflow.end_run("FINISHED" if finished else "KILLED")


class Tracker:
    """Appends to metrics.jsonl. A step that ran twice, after a kill, is there twice: the later line counts."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.lines = (folder / "metrics.jsonl").open("a", buffering=1)
        self.others = []
        for kind in (MLflow,):
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
