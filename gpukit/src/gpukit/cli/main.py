"""Parse the command line of `gpukit` and of a project's `./launch`."""

from __future__ import annotations

import argparse
import os
import sys

from gpukit.cli.table import COMMANDS
from gpukit.project import interrupts
from gpukit.project.messages import RefusalError

PROG = "./launch" if ".whl" in __file__ and os.environ.get("GPUKIT_PROJECT") else "gpukit"  # run by a project's launch
DESCRIPTION = """\
Run this project in its container, the same one that VS Code creates from .devcontainer/devcontainer.json.

  ./launch run -- python -m yourpackage.train     train; Ctrl-C saves a checkpoint first
  ./launch run --nproc 2 -- python -m ...         train on two GPUs with torchrun (gpu: on all GPUs)
  ./launch run -d -- python -m ...                train in the background; see logs and stop
  ./launch --gpus 0,1 run -- ...                  use these GPUs (or set GPUS in the environment or in .env)
  ./launch --native run -- ...                    run without Docker; also build, shell, verify, add, ...
  ./launch --host me@box run -- ...               run on another machine, over ssh; also all other commands

`--help` after a command lists its options, with examples.
"""
STARTS_ANOTHER = ("run", "shell", "submit", "rehearse")  # a program of the user, with options of its own


def formatter(prog: str) -> argparse.HelpFormatter:
    try:
        width = os.get_terminal_size().columns - 2
    except OSError:
        width = 110
    return argparse.RawDescriptionHelpFormatter(prog, width=width)  # without `width`, argparse imports shutil (5 ms)


class Parser(argparse.ArgumentParser):
    """Its help has the names of commands and files as they are here."""

    def format_help(self) -> str:
        from gpukit.project.messages import as_called

        return as_called(super().format_help(), PROG == "./launch")


def parser(argv: list[str]) -> argparse.ArgumentParser:
    """The parser. It has only the commands in `argv`, or all without their arguments: adding everything is slow."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, formatter_class=formatter)
    shared.add_argument(
        "--cpu", action="store_true", help="use the configuration without a GPU (.devcontainer/cpu/devcontainer.json)"
    )
    shared.add_argument(
        "--gpus",
        metavar="GPUS",
        help="GPUs to use: all, indexes such as 0 or 0,1, or a UUID (default: the variable GPUS)",
    )
    shared.add_argument(
        "--host",
        metavar="HOST",
        help="another machine, over ssh: sends the project and runs the command there (default: GPUKIT_HOST)",
    )
    shared.add_argument("--native", action="store_true", help="run without Docker, in an environment created by uv")
    shared.add_argument("--dry-run", action="store_true", help="print the exact command without running it")
    sealed = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS, formatter_class=formatter)
    sealed.add_argument(
        "--no-credentials",
        action="store_true",
        help="with run and submit: a container without tokens, caches, .env, and cloud folders, and a copy of the code",
    )
    sealed.add_argument("--no-network", action="store_true", help="the same, also without a network")
    more = ", ".join(name for name, each in COMMANDS.items() if not each.common and not each.hidden)
    main = Parser(
        prog=PROG,
        description=DESCRIPTION,
        epilog=f"more: {more}",
        formatter_class=formatter,
        parents=[shared, sealed],
        allow_abbrev=False,
    )
    commands = main.add_subparsers(dest="command", metavar="COMMAND", required=True, prog=PROG, title="commands")
    given = [name for name in COMMANDS if name in argv]
    if given:
        from gpukit.cli.arguments import ARGUMENTS  # not for --help: compiling it is slow
    for name in given or [name for name in COMMANDS if not COMMANDS[name].hidden]:
        each = COMMANDS[name]
        parents = [shared] if each.run_options else []
        if name in ("run", "submit"):
            parents.append(sealed)
        listed = {"help": each.text} if each.common else {}
        command = commands.add_parser(
            name,
            description=each.text[0].upper() + each.text[1:] + ".",
            epilog=each.epilog,
            formatter_class=formatter,
            parents=parents if given else [],
            allow_abbrev=False,
            add_help=not each.own_parser,  # doctor and verify list their checks themselves
            **listed,
        )
        for argument in each.arguments if given else []:
            command.add_argument(argument, **ARGUMENTS.get(f"{name} {argument}", ARGUMENTS.get(argument, {})))
    return main


def split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split into our own arguments and the command to run in the container; the `--` between them is optional."""
    if not {*argv} & {*STARTS_ANOTHER}:
        return argv, []
    from gpukit.cli.arguments import ARGUMENTS  # compiling it is slow

    flags = {name for name, options in ARGUMENTS.items() if options.get("action") == "store_true"}
    with_value = {"--host", "--gpus", *ARGUMENTS} - flags

    def after_options(start: int) -> int:
        while start < len(argv) and argv[start].startswith("-") and argv[start] != "--":
            start += 2 if argv[start] in with_value else 1
        return start

    position = after_options(0)
    if not {*argv[position : position + 1]} & {*STARTS_ANOTHER}:
        return argv, []
    position = after_options(position + 1)
    return argv[:position], argv[position + (argv[position : position + 1] == ["--"]) :]


def parse(argv: list[str]) -> argparse.Namespace:
    argv, rest = split(argv)
    main = parser(argv)
    words = [each for each in argv if not each.startswith("-")]
    if words and not {*words} & {*COMMANDS}:
        from difflib import get_close_matches

        for word in words:
            for command in get_close_matches(word, COMMANDS, 1):
                main.error(f"there is no command `{word}`; did you mean `{command}`?")
    options, unknown = main.parse_known_args(argv)
    if COMMANDS[options.command].own_parser:
        options.rest = [*unknown, *rest]
    elif options.command == "jobs" and not options.ID and not any(word.startswith("-") for word in unknown):
        from gpukit.cli.arguments import job_id

        try:
            options.ID = [job_id(word) for word in unknown]  # `jobs logs -f 3`: argparse takes these only in one piece
        except ValueError:
            main.error(f"`jobs` does not know {' '.join(unknown)}")
    elif unknown:
        main.error(f"`{options.command}` does not know {' '.join(unknown)}")
    else:
        options.rest = argv[argv.index("plan") + 1 :] if options.command == "plan" else rest
    if options.command == "run" and options.name and not options.detach:
        main.error("`--name` goes with `-d`")
    if options.command == "run" and options.json and not options.detach:
        main.error("`--json` goes with `-d`")
    if options.command == "run" and not options.rest:
        main.error(f"`run` needs a command: {PROG} run -- python -V")
    return options


def as_json(refusal: RefusalError, sentence: str) -> str:
    """The sentence, the cause's id if it is known, and the remedy, which is the sentence's second part otherwise."""
    import json

    from gpukit.findings.causes import PROJECT, worded
    from gpukit.project.data import data

    known = data("knowledge")["causes"].get(refusal.id, {})
    remedy = worded(known.get("remedy", ""), PROJECT) or sentence.partition(": ")[2]
    return json.dumps({"error": {"id": refusal.id or "refused", "message": sentence, "remedy": remedy}})


def main(argv: list[str] | None = None) -> int:
    options = argparse.Namespace()
    try:
        argv = sys.argv[1:] if argv is None else argv
        if not argv:
            parser([]).print_help(sys.stderr)
            return 2
        options = parse(argv)
        import signal

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that cleanup runs
        from gpukit.cli.commands import act_or_ask

        interrupts.watch()
        code = act_or_ask(options, argv)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader has closed the pipe, as in `explain ID | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except RefusalError as refusal:
        from gpukit.project.location import find_root
        from gpukit.project.messages import as_called

        sentence = as_called(str(refusal), find_root() is not None)
        if vars(options).get("json") and options.command in ("submit", "jobs", "run", "logs"):
            print(as_json(refusal, sentence))
            return refusal.code
        print(f"{PROG.lstrip('./')}: {sentence}", file=sys.stderr)
        return refusal.code
    except KeyboardInterrupt:
        print(f"{PROG.lstrip('./')}: interrupted.", file=sys.stderr)
        return 130
