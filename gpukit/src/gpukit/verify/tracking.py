"""Experiment trackers: whether each can log without a network and an account."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack
from gpukit.verify.torch_errors import summary

MODULES = {"tensorboard": "TensorBoard", "wandb": "Weights & Biases", "mlflow": "MLflow"}


def dry_run(module: str) -> dict[str, Any]:
    """Log one metric to a temporary folder. Runs in the worker."""
    with tempfile.TemporaryDirectory(prefix="gpukit-tracker-") as folder:
        {"tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}[module](folder)
        return {"files": sum(len(files) for _, _, files in os.walk(folder))}


def _tensorboard(folder: str) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)
    writer.add_scalar("loss", 1.0, 0)
    writer.close()


def _wandb(folder: str) -> None:
    import wandb

    run = wandb.init(mode="offline", dir=folder, project="verify", settings=wandb.Settings(silent=True, console="off"))
    run.log({"loss": 1.0})
    run.finish()


def _mlflow(folder: str) -> None:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # only in this process: the project logs to a server
    for name in ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"):
        os.environ.pop(name, None)  # an experiment on that server
    import mlflow

    mlflow.set_tracking_uri(Path(folder, "runs").as_uri())
    with mlflow.start_run():
        mlflow.log_metric("loss", 1.0)


@check(
    "tracking", "Trackers", needs=("import", "room"), causes=("tracker-fails", "tracker-writes-nothing"), level="full"
)
def tracking(probes: Any, stack: Stack) -> Finding:
    """Each installed tracker logs one metric, offline, to a temporary folder."""
    if not probes.trackers:
        return skipped("no-tracker")
    for outcome in probes.trackers:
        tracker = MODULES[outcome.device]
        if outcome.error:
            return problem("tracker-fails", f"{tracker}: {summary(outcome.error)}", "a logged metric", tracker=tracker)
        if not outcome.answer["files"]:
            return problem("tracker-writes-nothing", f"{tracker}: no file", "a logged metric", tracker=tracker)
    return passed(f"{', '.join(MODULES[outcome.device] for outcome in probes.trackers)}: logged offline")
