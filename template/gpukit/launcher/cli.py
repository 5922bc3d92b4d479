"""The command line of `./launch`: what there is to say, and who does it."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from pathlib import Path

from .devcontainer import ConfigError
from .errors import RefusalError

DESCRIPTION = """\
Run this project in its container: the same container that VS Code makes of .devcontainer/devcontainer.json.

  ./launch run -- python -m yourpackage.train     train; Ctrl-C lets it save
  ./launch run --nproc 2 -- python -m ...         the same on two GPUs, by torchrun; gpu: on all
  ./launch run -d -- python -m ...                detached: logs -f follows it, stop ends it
  ./launch --gpus 0,1 run -- ...                  on these GPUs (or set GPUS in the environment or in .env)
  ./launch --native run -- ...                    without Docker: build, run, shell, notebook, verify, add, logs, stop
"""
# command: what it does, and the arguments that it takes
COMMANDS = {
    "build": ("build the image (the other commands do so when it is needed)", ["--build-arg", "--no-cache"]),
    "up": ("start the container that stays, with its services where there are any", []),
    "run": (
        "run a command in a container of its own; its exit status is the command's",
        ["-d", "--name", "--nproc", "CMD"],
    ),
    "shell": ("enter the running container, also VS Code's; starts one if there is none", ["CMD"]),
    "notebook": ("start JupyterLab in the background and print its address", []),
    "verify": ("check the container and its GPU (--quick --stress --only --report --explain --json ...)", []),
    "doctor": ("check this machine, without a container (--quick --only --report --explain --about --json ...)", []),
    "setup": (
        "show the steps that this machine lacks, as commands; --apply runs and proves each, --undo takes them back",
        ["--apply", "--undo", "--only", "--hardware", "--mirrors", "--yes"],
    ),
    "add": ("install packages and write them into pyproject.toml, if they fit what the base brings", ["PKG"]),
    "pin": ("write the image's exact versions into requirements.txt, for every later build", ["--digest", "--remove"]),
    "logs": ("show what the newest detached run printed and how it ended, or the notebook", ["-f", "NAME"]),
    "stop": ("stop everything of this project; programs get a minute to save", []),
    "clean": (
        "remove ended containers, images and old checkpoints; lists them and asks first",
        ["--keep", "--yes"],
    ),
    "preflight": ("ask the engine whether it grants the GPUs (devcontainer.json does this before VS Code starts)", []),
}
ARGUMENTS = {
    "--build-arg": {"action": "append", "default": [], "metavar": "K=V", "help": "a build argument; may be repeated"},
    "--no-cache": {"action": "store_true", "help": "build every layer again"},
    "-d": {"action": "store_true", "dest": "detach", "help": "run in the background"},
    "--name": {"default": "", "metavar": "NAME", "help": "with -d: a name, so that several can run"},
    "--nproc": {
        "default": "",
        "metavar": "N",
        "help": "that many processes, by torchrun; gpu: one on each GPU",
    },
    "CMD": {"nargs": "*", "help": "the command and its arguments, after `--`"},
    "PKG": {"nargs": "+", "help": "a package, such as einops or 'einops>=0.8'"},
    "--digest": {"action": "store_true", "help": "also write the base image's digest into the Dockerfile"},
    "--remove": {"action": "store_true", "help": "take both pins away"},
    "-f": {"action": "store_true", "dest": "follow", "help": "go on as more comes; Ctrl-C ends only the following"},
    "NAME": {"nargs": "?", "default": "", "help": "that run's --name, or notebook, dev, or a service such as mlflow"},
    "--keep": {"type": int, "default": 1, "metavar": "N", "help": "checkpoints of each run that stay (1)"},
    "--yes": {"action": "store_true", "help": "do not ask"},
    "--apply": {"action": "store_true", "help": "do the steps, one by one; a log and a way back are kept"},
    "--undo": {"action": "store_true", "help": "take back what --apply did, after showing it"},
    "--only": {"default": "", "metavar": "ID,..", "help": "these steps alone, such as docker,toolkit"},
    "--hardware": {"default": "", "metavar": "ID", "help": "which of the project's targets this machine is"},
    "--mirrors": {"default": "", "metavar": "FILE", "help": "JSON with other addresses and keys of the repositories"},
}
PASSED_ON = ("verify", "doctor")


def parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--cpu", action="store_true", help="without a GPU: .devcontainer/cpu/devcontainer.json")
    shared.add_argument("--gpus", metavar="GPUS", help="which GPUs: all, 0, 0,1, or a UUID (as GPUS says too)")
    shared.add_argument("--native", action="store_true", help="without Docker: in an environment that uv makes here")
    shared.add_argument("--dry-run", action="store_true", help="print the exact engine command and do nothing")
    formatter = argparse.RawDescriptionHelpFormatter
    main = argparse.ArgumentParser(
        prog="./launch", description=DESCRIPTION, formatter_class=formatter, parents=[shared], allow_abbrev=False
    )
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (text, arguments) in COMMANDS.items():
        sentence = text[0].upper() + text[1:] + "."
        command = commands.add_parser(name, help=text, description=sentence, parents=[shared], allow_abbrev=False)
        for argument in arguments:
            command.add_argument(argument, **ARGUMENTS[argument])
    return main


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the command to run in the container: `--` before it may be left out."""

    def after_options(start: int) -> int:
        while start < len(argv) and argv[start].startswith("-") and argv[start] != "--":
            start += 2 if argv[start] in ("--gpus", "--name", "--nproc") else 1
        return start

    position = after_options(0)
    if argv[position : position + 1] not in (["run"], ["shell"]):
        return argv, []
    position = after_options(position + 1)
    return argv[:position], argv[position + (argv[position : position + 1] == ["--"]) :]


def parse(argv: list[str]) -> argparse.Namespace:
    argv, rest = split(argv)
    main = parser()
    options, unknown = main.parse_known_args(argv)
    if options.command in PASSED_ON:
        options.rest = unknown
    elif unknown:
        main.error(f"`{options.command}` does not know {' '.join(unknown)}")
    else:
        options.rest = rest
    if options.command == "run" and options.name and not options.detach:
        main.error("`--name` goes with `-d`")
    if options.command == "run" and not options.rest:
        main.error("`run` needs a command: ./launch run -- python -V")
    return options


def main(root: Path, argv: list[str]) -> int:
    options = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was begun is undone
    try:
        return act(root, options)
    except (RefusalError, ConfigError) as refusal:
        print(f"launch: {refusal}", file=sys.stderr)
        return getattr(refusal, "code", 1)


def act(root: Path, options: argparse.Namespace) -> int:
    command = options.command
    if command == "doctor":
        return importlib.import_module("gpukit.doctor").main(options.rest)
    if command == "setup":
        return importlib.import_module("gpukit.setup").main(root, options)
    from . import container, torchrun
    from .project import Project

    given = vars(options)
    project = Project(root, os.environ, given.get("cpu", False), given.get("gpus", ""), given.get("dry_run", False))
    if command == "run" and options.nproc:
        options.rest = torchrun.command(options.rest, options.nproc, project.gpus)
    if given.get("native"):
        return importlib.import_module("gpukit.launcher.native").act(project, options)
    if command == "run" and options.detach:
        return container.run_detached(project, options.rest, options.name)
    if command == "run":
        return container.run(project, options.rest)
    if command == "verify":
        return container.run(project, ["python", "-m", "gpukit.verify", *options.rest])
    if command == "shell":
        return container.shell(project, options.rest)
    if command == "logs":
        return container.logs(project, options.NAME, options.follow)
    if command == "stop":
        return container.stop(project)
    if command == "up":
        container.up(project)
        return 0
    if command == "build":
        pairs = [pair.partition("=") for pair in options.build_arg]
        importlib.import_module("gpukit.launcher.image").build(
            project, {key: value or project.env.get(key, "") for key, _, value in pairs}, options.no_cache
        )
        return 0
    module = importlib.import_module(f"gpukit.launcher.{command}")
    if command == "add":
        return module.add(project, [package.strip() for package in options.PKG])
    if command == "pin":
        return module.pin(project, options.digest, options.remove)
    if command == "clean":
        return module.clean(project, options.keep, options.yes)
    return getattr(module, command)(project)
