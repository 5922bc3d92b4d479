"""Parse the command line of `gpukit` and of a project's `./launch`."""

from __future__ import annotations

import argparse
import os
import sys

from gpukit.project.messages import RefusalError

PROG = "./launch" if ".whl" in __file__ and os.environ.get("GPUKIT_PROJECT") else "gpukit"  # run by a project's launch
DESCRIPTION = """\
Run this project in its container, the same one that VS Code creates from .devcontainer/devcontainer.json.

  ./launch run -- python -m yourpackage.train     train; Ctrl-C saves a checkpoint first
  ./launch run --nproc 2 -- python -m ...         train on two GPUs with torchrun (gpu: on all GPUs)
  ./launch run -d -- python -m ...                train in the background; see logs and stop
  ./launch --gpus 0,1 run -- ...                  use these GPUs (or set GPUS in the environment or in .env)
  ./launch --native run -- ...                    run without Docker; also build, shell, verify, add, ...

`--help` after a command lists its options, with examples.
"""


def job_id(text: str) -> int | str:
    """The number of a job; that of one on Slurm with an s before it."""
    return text if text[:1] == "s" and text[1:].isdecimal() else int(text)


# command: its help text and its arguments
COMMANDS = {
    "build": ("build the image (other commands build it when needed)", ["--build-arg", "--no-cache"]),
    "up": ("start the long-running container and the services in compose.yaml", []),
    "run": (
        "run a command in a new container, and return its exit status",
        ["-d", "--name", "-e", "-p", "--nproc", "CMD"],
    ),
    "submit": (
        "add a training job to the queue of this machine",
        ["--gpus", "--priority", "--after", "--max-hours", "-e", "--on", "CMD"],
    ),
    "jobs": (
        "list the queue's jobs; run processes the queue; show, logs, cancel, retry, or move one",
        ["ACTION", "ID", "--watch", "-f", "-d"],
    ),
    "shell": ("open a shell in the running container, VS Code's or ours, or start one", ["CMD"]),
    "notebook": ("start JupyterLab in the background and print its address", []),
    "verify": ("check the container and its GPU; outside a project, check PyTorch on this GPU", []),
    "speed": (
        "time the training step in each precision, layout, and batch size; accepts all options of train.py",
        ["--task", "--minutes", "--json"],
    ),
    "doctor": ("check this machine, and what its GPU needs", []),
    "plan": (
        "check, before anything is downloaded, that image, packages, and driver fit a GPU that is not here",
        ["--for", "--driver", "--batch-size", "--prove", "--refresh", "--json"],
    ),
    "explain": (
        "explain an error text (from a file, a pipe, or pasted), or an id that doctor or verify printed",
        ["WHAT", "--machine", "--in-container", "--worked-before", "--json", "--report"],
    ),
    "setup": (
        "show the commands that install what this machine lacks; --apply runs them, --undo reverts them",
        ["--apply", "--undo", "--only", "--hardware", "--mirrors", "--yes"],
    ),
    "update": (
        "bring the template's newest release into the project, and report what that changes",
        ["--check", "--undo", "--to", "--answers", "--accept-driver", "--pull-request"],
    ),
    "add": ("install packages that are compatible with the base image, and add them to pyproject.toml", ["PKG"]),
    "pin": (
        "write the exact package versions of the image to requirements.txt, for later builds",
        ["--digest", "--remove"],
    ),
    "logs": ("show the output of a background run, the notebook, or a service", ["-f", "NAME"]),
    "stop": ("stop all containers of this project; programs have a minute to save", []),
    "clean": (
        "list stopped containers and images, and old checkpoints, and remove them after confirmation",
        ["--images", "--checkpoints", "--keep", "--yes"],
    ),
    "preflight": ("check that the engine grants the GPUs (VS Code runs this before it starts the container)", []),
    "vendor": ("write this gpukit as a wheel to the project's vendor/", ["--from", "--check"]),
}
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
    "--images": {"action": "store_true", "help": "only stopped containers, their networks, and images"},
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
OWN_PARSER = ("verify", "doctor")  # they parse their own options
NO_RUN_OPTIONS = (
    "explain",
    "plan",
    "vendor",
    "update",
    "submit",
)  # they start no container: --cpu, --gpus, ... do not apply
WITH_VALUE = ("--gpus", "--name", "--nproc", "-e", "-p", "--priority", "--after", "--max-hours", "--on")
EPILOGS = {
    "plan": """\
examples:
  ./launch plan                     for all targets of the project
  ./launch plan --for h200          for a GPU that is not one of them
  ./launch plan --for h100 --driver 570
  ./launch plan --json              the findings, and the version of every package

exit code: 0 nothing is wrong, 1 a check fails, 2 something could not be asked, 3 only the memory cannot be computed""",
    "build": """\
examples:
  ./launch build                                    build what has changed
  ./launch build --no-cache                         build all layers again
  ./launch build --build-arg BASE_IMAGE=MIRROR/IMAGE""",
    "run": """\
examples:
  ./launch run -- python -m yourpackage.train       the `--` is optional
  ./launch run --nproc gpu -- python -m yourpackage.train
  ./launch run -d --name baseline -- python -m yourpackage.train
  ./launch logs -f baseline
  ./launch run -e OPENAI_API_KEY -p 8000 -- python serve.py""",
    "submit": """\
examples:
  ./launch submit -- python -m yourpackage.train --lr 1e-3
  ./launch submit --gpus 2 -- torchrun --standalone --nproc-per-node=gpu -m yourpackage.train
  ./launch submit --after 3 --max-hours 8 -e HF_TOKEN -- python -m yourpackage.train
  ./launch submit --on slurm -- python -m yourpackage.train""",
    "jobs": """\
examples:
  ./launch jobs run -d         process the queue in the background; `./launch stop` stops it
  ./launch --native jobs run   the same without Docker, in this terminal
  ./launch jobs --watch
  ./launch jobs logs -f 3
  ./launch jobs retry 3        run the command of a job that has ended again, as a new job""",
    "shell": """\
examples:
  ./launch shell
  ./launch shell -- nvidia-smi""",
    "speed": """\
examples:
  ./launch speed                          the same in a shell of the container: gpukit speed
  ./launch speed --batch-size 128 --json""",
    "add": """\
examples:
  ./launch add einops 'datasets>=4'""",
    "logs": """\
examples:
  ./launch logs -f             follow the newest run
  ./launch logs mlflow         the log of a service""",
    "pin": """\
examples:
  ./launch pin --digest        later builds install the same versions on the same base image
  ./launch pin --remove        follow new releases again""",
    "update": """\
examples:
  ./launch update --check                  report what would change
  ./launch update                          update; commit everything first
  ./launch update --undo                   revert it
  ./launch update --to 0.3.0
  ./launch update --to current --answers workflow=notebook tracking='[mlflow]'

exit code: 1 if files are in conflict (with --check: would be), or if nothing could be updated""",
    "clean": """\
examples:
  ./launch --dry-run clean     only list
  ./launch clean --images      only containers and images
  ./launch clean --keep 3      keep three checkpoints of each run""",
    "explain": """\
examples:
  ./launch explain training.log             a file
  ./launch run -- python train.py 2>&1 | ./launch explain
  ./launch explain                          paste the text, then press Ctrl-D
  ./launch explain --machine machine.json error.txt
  ./launch explain driver-updated           the entry of an id

exit code: 0 the cause is certain, 1 one to three causes are likely, 2 the input cannot be read,
3 the text is unknown, 4 the text reports no error""",
    "setup": """\
steps, in order, each only if this machine lacks it:
  dpkg      repair an interrupted installation
  driver    the NVIDIA driver
  docker    Docker Engine
  engine    start Docker
  toolkit   NVIDIA's Container Toolkit
  runtime   configure Docker to use the toolkit
  cdi       the CDI specification, which lists the GPUs
  group     add you to the group docker
  earlyoom  end a program before memory that CPU and GPU share is full (not tested on a GB10)
  uv        install uv

examples:
  ./launch setup                     show the commands; nothing is changed
  ./launch setup --only driver       only this step
  ./launch setup --hardware rtx-40   for this GPU, before its driver can name it
  ./launch setup --apply             run the steps one by one
  ./launch setup --undo              show what --apply did, and revert it""",
}


def formatter(prog: str) -> argparse.HelpFormatter:
    try:
        width = os.get_terminal_size().columns - 2
    except OSError:
        width = 110
    return argparse.RawDescriptionHelpFormatter(prog, width=width)  # without `width`, argparse imports shutil (5 ms)


def parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser. Only the commands in `argv` get their arguments: adding all of them is slow."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, formatter_class=formatter)
    shared.add_argument(
        "--cpu", action="store_true", help="use the configuration without a GPU (.devcontainer/cpu/devcontainer.json)"
    )
    shared.add_argument(
        "--gpus",
        metavar="GPUS",
        help="GPUs to use: all, indexes such as 0 or 0,1, or a UUID (default: the variable GPUS)",
    )
    shared.add_argument("--native", action="store_true", help="run without Docker, in an environment created by uv")
    shared.add_argument("--dry-run", action="store_true", help="print the exact command without running it")
    description = DESCRIPTION.replace("./launch", PROG)
    main = argparse.ArgumentParser(
        prog=PROG, description=description, formatter_class=formatter, parents=[shared], allow_abbrev=False
    )
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True, prog=PROG)
    for name, (text, arguments) in COMMANDS.items():
        sentence = text[0].upper() + text[1:] + "."
        given = name in argv
        parents = [shared] if given and name not in NO_RUN_OPTIONS else []
        command = commands.add_parser(
            name,
            help=text,
            description=sentence,
            epilog=EPILOGS.get(name, "").replace("./launch", PROG),
            formatter_class=formatter,
            parents=parents,
            allow_abbrev=False,
            add_help=name not in OWN_PARSER,  # doctor and verify list their checks themselves
        )
        for argument in arguments if given else []:
            command.add_argument(argument, **ARGUMENTS.get(f"{name} {argument}", ARGUMENTS.get(argument, {})))
    return main


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split into our own arguments and the command to run in the container; the `--` between them is optional."""

    def after_options(start: int) -> int:
        while start < len(argv) and argv[start].startswith("-") and argv[start] != "--":
            start += 2 if argv[start] in WITH_VALUE else 1
        return start

    position = after_options(0)
    if argv[position : position + 1] not in (["run"], ["shell"], ["submit"]):
        return argv, []
    position = after_options(position + 1)
    return argv[:position], argv[position + (argv[position : position + 1] == ["--"]) :]


def parse(argv: list[str]) -> argparse.Namespace:
    argv, rest = split(argv)
    main = parser(argv)
    options, unknown = main.parse_known_args(argv)
    if options.command in (*OWN_PARSER, "speed"):
        options.rest = unknown
    elif options.command == "jobs" and options.ID is None and len(unknown) == 1 and unknown[0].lstrip("s").isdecimal():
        options.ID = job_id(unknown[0])  # `jobs logs -f 3`: argparse takes optional positionals only in one piece
    elif unknown:
        main.error(f"`{options.command}` does not know {' '.join(unknown)}")
    else:
        options.rest = argv[argv.index("plan") + 1 :] if options.command == "plan" else rest
    if options.command == "run" and options.name and not options.detach:
        main.error("`--name` goes with `-d`")
    if options.command == "run" and not options.rest:
        main.error(f"`run` needs a command: {PROG} run -- python -V")
    return options


def main(argv: list[str] | None = None) -> int:
    options = argparse.Namespace()
    try:
        options = parse(sys.argv[1:] if argv is None else argv)
        import signal

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that cleanup runs
        from gpukit.cli.commands import act

        code = act(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe, as in `explain ID | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RefusalError as refusal:
        from gpukit.findings.finding import commands
        from gpukit.project.location import find_root

        sentence = commands(str(refusal), find_root() is not None, getattr(options, "native", False))
        print(f"{PROG.lstrip('./')}: {sentence}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        return 130
