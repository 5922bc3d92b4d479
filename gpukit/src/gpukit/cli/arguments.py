"""The arguments of the commands; `NAME ARGUMENT` is that of one command."""

from __future__ import annotations

import re
from typing import Any


def job_id(text: str) -> int | str:
    """The number of a job, or the ID of one on a cluster: s12 on Slurm, kx7f4z on Kubernetes."""
    return text if re.fullmatch(r"s\d+|k[a-z0-9]{5}", text) else int(text)


def hours(text: str) -> float:
    """Hours of 12h, 90m, or 12."""
    return quantity(text, {"h": 1.0, "m": 1 / 60, "": 1.0})


def size(text: str) -> float:
    """Bytes of 20GB, 500MB, or 20, which are GB."""
    return quantity(text, {"TB": 1e12, "GB": 1e9, "MB": 1e6, "B": 1.0, "": 1e9})


def quantity(text: str, units: dict[str, float]) -> float:
    unit = next(unit for unit in units if text.endswith(unit))
    value = float(text[: len(text) - len(unit)])
    if not 0 < value < float("inf"):
        raise ValueError
    return value * units[unit]


def flag(help: str, **options: Any) -> dict[str, Any]:
    """An option without a value."""
    return {"action": "store_true", "help": help, **options}


def value(metavar: str, help: str, **options: Any) -> dict[str, Any]:
    """An option with one value; a text, unless `type` says otherwise."""
    return {"metavar": metavar, "help": help, "default": "", **options}


def many(metavar: str, help: str, **options: Any) -> dict[str, Any]:
    """An option that can be repeated."""
    return {"action": "append", "metavar": metavar, "help": help, "default": [], **options}


ARGUMENTS = {
    "--for": many(
        "ID",
        "a hardware id or a card, such as h100 or h200; repeatable (default: the project's targets)",
        dest="targets",
    ),
    "--driver": value("N", "the driver of that machine, such as 570"),
    "--batch-size": value("N", "samples per step (default: the project's)", type=int, default=None),
    "--prove": flag(
        "also compile Triton kernels, and read which GPUs the installed packages have code for; needs no GPU"
    ),
    "--refresh": flag("ask the registry and the indexes again; answers are kept for a day"),
    "--build-arg": many("K=V", "set a build argument; repeatable"),
    "--no-cache": flag("rebuild every layer"),
    "-d": flag("run in the background", dest="detach"),
    "--name": value("NAME", "with -d: the name of this run; needed to start several"),
    "-e": many(
        "NAME",
        "pass a variable of this shell or of .env by its name, or set it with NAME=VALUE; repeatable",
        dest="variables",
    ),
    "-p": many(
        "PORT",
        "publish a port, or HOST:CONTAINER, on 127.0.0.1 (the program must listen on 0.0.0.0); repeatable",
        dest="ports",
    ),
    "--nproc": value("N", "start N processes with torchrun; gpu: one per GPU"),
    "submit --gpus": value(
        "N",
        "GPUs of the job, on each machine (default: 1; on Kubernetes, as in cluster/job.yaml)",
        type=int,
        default=None,
        dest="count",
    ),
    "--priority": value("P", "higher ones start first (default: 0)", type=int, default=0),
    "--on": {
        "help": "hand the job to a cluster, with its file in cluster/",
        "choices": ("slurm", "kubernetes"),
        "default": "",
    },
    "--nodes": value("N", "on Kubernetes: machines (default: as in cluster/job.yaml)", type=int, default=None),
    "--queue": value("NAME", "on Kubernetes: a LocalQueue of Kueue, which starts the job"),
    "--after": value("ID", "start when this job is finished; hold the job if it fails", type=job_id, default=None),
    "--latest": flag("run the project as it is when the job starts, and not as it is now"),
    "--max-hours": value(
        "H", "save and end the job as `out of time` after it has run for this long", type=float, default=None
    ),
    "submit -e": many(
        "NAME",
        "pass a variable by its name, from .env or from where the queue is processed; on Kubernetes, from the Secret "
        "that cluster/job.yaml names; repeatable",
        dest="variables",
    ),
    "ACTION": {
        "help": "run: process the queue until Ctrl-C; move: let a job be the next one (default: list)",
        "nargs": "?",
        "default": "list",
        "choices": ("list", "run", "show", "logs", "wait", "compare", "cancel", "retry", "move"),
    },
    "ID": {
        "help": "the number of a job; s12 of one on Slurm, kx7f4z of one on Kubernetes",
        "nargs": "*",
        "type": job_id,
    },
    "--metric": value("NAME", "with compare: a metric that the runs log (default: held_out_loss, or loss)"),
    "--csv": flag("with compare: print the table as CSV"),
    "--timeout": value(
        "SECONDS", "with wait: exit with 124 if the jobs have not ended by then", type=float, default=None
    ),
    "--budget": value(
        "HOURS",
        "with run: GPU-hours, such as 12h; running jobs then save and end as `out of time`",
        type=hours,
        default=0,
    ),
    "--keep-free": value(
        "SIZE", "with run: start no job while less of the disk is free, such as 20GB", type=size, default=0
    ),
    "--watch": flag("with list: redraw the list every two seconds"),
    "CMD": {"help": "the command and its arguments, after `--`", "nargs": "*"},
    "WHAT": {
        "help": "a file, `-` for standard input (the default), the text itself, or an id",
        "nargs": "?",
        "default": "",
    },
    "--machine": value(
        "FILE", "output of `doctor --json` from the machine where the error occurred (default: this machine)"
    ),
    "--in-container": {"help": "whether the error occurred in a container", "choices": ("yes", "no"), "default": ""},
    "--worked-before": {"help": "whether it worked on that machine before", "choices": ("yes", "no"), "default": ""},
    "--json": flag("print the result as JSON"),
    "--steps": value("N", "steps of each run (default: 14)", type=int, default=None),
    "--report": value("FILE", "also write a Markdown file for an issue, without secrets"),
    "PKG": {"help": "a package, such as einops or 'einops>=0.8'", "nargs": "+"},
    "--digest": flag("also pin the base image's digest in the Dockerfile"),
    "--remove": flag("remove the pinned versions and the digest"),
    "-f": flag("follow the output; Ctrl-C only stops following", dest="follow"),
    "NAME": {
        "help": "a run's --name, notebook, dev, or a service such as mlflow (default: the newest run or the notebook)",
        "nargs": "?",
        "default": "",
    },
    "PATH": {"help": "a file or folder of the project (default: outputs)", "nargs": "?", "default": ""},
    "fetch --checkpoints": flag("also checkpoints"),
    "--attended": flag("pass signals on to the run, and remove it when it has ended"),
    "--images": flag("only stopped containers, their networks, and images, or native environments"),
    "--checkpoints": flag("only old checkpoints"),
    "--keep": value("N", "checkpoints to keep per run (default: 1)", type=int, default=1),
    "--yes": flag("do not ask for confirmation"),
    "--apply": flag("run the steps one by one, with a log and a record for --undo"),
    "--undo": flag("show what --apply did, and revert it"),
    "--only": value("ID,..", "consider only these steps, such as docker,toolkit"),
    "--hardware": value("ID", "the hardware id of this machine: a target of the project, or outside a project any id"),
    "--mirrors": value("FILE", "JSON file with other repository addresses and keys"),
    "update --check": flag("only report what an update would change; nothing is changed"),
    "update --undo": flag("revert the last update, if nothing was edited since"),
    "--to": value("RELEASE", "a release, branch, or commit of the template; current: the one that the project has"),
    "--answers": value(
        "NAME=VALUE", "change these answers; without any, ask the questions again", nargs="*", default=None
    ),
    "--accept-driver": flag("update even if the new stack needs a newer driver than this machine has", dest="accept"),
    "--pull-request": flag("commit the update to a branch, and open or update a pull request with gh", dest="request"),
    "--from": value("PATH", "build the wheel from this source folder (default: the running gpukit)", dest="source"),
    "--check": flag("only compare the wheel in vendor/ with one built from its source"),
}
