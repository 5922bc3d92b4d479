"""The arguments of the commands; `NAME ARGUMENT` is that of one command."""

from __future__ import annotations


def job_id(text: str) -> int | str:
    """The number of a job; that of one on Slurm with an s before it."""
    return text if text[:1] == "s" and text[1:].isdecimal() else int(text)


ARGUMENTS = {
    "--for": {
        "action": "append",
        "default": [],
        "dest": "targets",
        "metavar": "ID",
        "help": "a hardware id or a card, such as h100 or h200; repeatable (default: the project's targets)",
    },
    "--driver": {"default": "", "metavar": "N", "help": "the driver of that machine, such as 570"},
    "--batch-size": {"type": int, "metavar": "N", "help": "samples per step (default: the project's)"},
    "--prove": {
        "action": "store_true",
        "help": "also compile Triton kernels, and read which GPUs the installed packages have code for; needs no GPU",
    },
    "--refresh": {"action": "store_true", "help": "ask the registry and the indexes again; answers are kept for a day"},
    "--build-arg": {"action": "append", "default": [], "metavar": "K=V", "help": "set a build argument; repeatable"},
    "--no-cache": {"action": "store_true", "help": "rebuild every layer"},
    "-d": {"action": "store_true", "dest": "detach", "help": "run in the background"},
    "--name": {"default": "", "metavar": "NAME", "help": "with -d: the name of this run; needed to start several"},
    "-e": {
        "action": "append",
        "default": [],
        "dest": "variables",
        "metavar": "NAME",
        "help": "pass a variable of this shell or of .env by its name, or set it with NAME=VALUE; repeatable",
    },
    "-p": {
        "action": "append",
        "default": [],
        "dest": "ports",
        "metavar": "PORT",
        "help": "publish a port, or HOST:CONTAINER, on 127.0.0.1 (the program must listen on 0.0.0.0); repeatable",
    },
    "--nproc": {
        "default": "",
        "metavar": "N",
        "help": "start N processes with torchrun; gpu: one per GPU",
    },
    "submit --gpus": {
        "type": int,
        "default": 1,
        "dest": "count",
        "metavar": "N",
        "help": "GPUs of the job (default: 1)",
    },
    "--priority": {"type": int, "default": 0, "metavar": "P", "help": "higher ones start first (default: 0)"},
    "--on": {"choices": ("slurm",), "default": "", "help": "hand the job to Slurm, with cluster/train.sbatch"},
    "--after": {"type": job_id, "metavar": "ID", "help": "start when this job is finished; hold the job if it fails"},
    "--max-hours": {
        "type": float,
        "metavar": "H",
        "help": "save and end the job as `out of time` after it has run for this long",
    },
    "submit -e": {
        "action": "append",
        "default": [],
        "dest": "variables",
        "metavar": "NAME",
        "help": "pass a variable by its name, from .env or from where the queue is processed; repeatable",
    },
    "ACTION": {
        "nargs": "?",
        "default": "list",
        "choices": ("list", "run", "show", "logs", "cancel", "retry", "move"),
        "help": "run: process the queue until Ctrl-C; move: let a job be the next one (default: list)",
    },
    "ID": {"nargs": "?", "type": job_id, "help": "the number of a job; s12: of one on Slurm"},
    "--watch": {"action": "store_true", "help": "with list: redraw the list every two seconds"},
    "CMD": {"nargs": "*", "help": "the command and its arguments, after `--`"},
    "WHAT": {
        "nargs": "?",
        "default": "",
        "help": "a file, `-` for standard input (the default), the text itself, or an id",
    },
    "--machine": {
        "default": "",
        "metavar": "FILE",
        "help": "output of `doctor --json` from the machine where the error occurred (default: this machine)",
    },
    "--in-container": {"choices": ("yes", "no"), "default": "", "help": "whether the error occurred in a container"},
    "--worked-before": {"choices": ("yes", "no"), "default": "", "help": "whether it worked on that machine before"},
    "--json": {"action": "store_true", "help": "print the result as JSON"},
    "--task": {
        "default": "",
        "metavar": "MODULE:FUNCTION",
        "help": "the function that builds the task (default: this project's)",
    },
    "--minutes": {"type": float, "default": 3.0, "metavar": "N", "help": "measure for at most N minutes (default: 3)"},
    "--report": {"default": "", "metavar": "FILE", "help": "also write a Markdown file for an issue, without secrets"},
    "PKG": {"nargs": "+", "help": "a package, such as einops or 'einops>=0.8'"},
    "--digest": {"action": "store_true", "help": "also pin the base image's digest in the Dockerfile"},
    "--remove": {"action": "store_true", "help": "remove the pinned versions and the digest"},
    "-f": {"action": "store_true", "dest": "follow", "help": "follow the output; Ctrl-C only stops following"},
    "NAME": {
        "nargs": "?",
        "default": "",
        "help": "a run's --name, notebook, dev, or a service such as mlflow (default: the newest run or the notebook)",
    },
    "--images": {
        "action": "store_true",
        "help": "only stopped containers, their networks, and images, or native environments",
    },
    "--checkpoints": {"action": "store_true", "help": "only old checkpoints"},
    "--keep": {"type": int, "default": 1, "metavar": "N", "help": "checkpoints to keep per run (default: 1)"},
    "--yes": {"action": "store_true", "help": "do not ask for confirmation"},
    "--apply": {"action": "store_true", "help": "run the steps one by one, with a log and a record for --undo"},
    "--undo": {"action": "store_true", "help": "show what --apply did, and revert it"},
    "--only": {"default": "", "metavar": "ID,..", "help": "consider only these steps, such as docker,toolkit"},
    "--hardware": {
        "default": "",
        "metavar": "ID",
        "help": "the hardware id of this machine: a target of the project, or outside a project any id",
    },
    "--mirrors": {"default": "", "metavar": "FILE", "help": "JSON file with other repository addresses and keys"},
    "update --check": {"action": "store_true", "help": "only report what an update would change; nothing is changed"},
    "update --undo": {"action": "store_true", "help": "revert the last update, if nothing was edited since"},
    "--to": {
        "default": "",
        "metavar": "RELEASE",
        "help": "a release, branch, or commit of the template; current: the one that the project has",
    },
    "--answers": {
        "nargs": "*",
        "metavar": "NAME=VALUE",
        "help": "change these answers; without any, ask the questions again",
    },
    "--accept-driver": {
        "action": "store_true",
        "dest": "accept",
        "help": "update even if the new stack needs a newer driver than this machine has",
    },
    "--pull-request": {
        "action": "store_true",
        "dest": "request",
        "help": "commit the update to a branch, and open or update a pull request with gh",
    },
    "--from": {
        "default": "",
        "dest": "source",
        "metavar": "PATH",
        "help": "build the wheel from this source folder (default: the running gpukit)",
    },
    "--check": {
        "action": "store_true",
        "help": "only compare the wheel in vendor/ with one built from its source",
    },
}
