"""The commands with --host: send the project, run its own `./launch` there, and bring back what belongs here."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shlex
import sys
from pathlib import Path, PurePosixPath

from gpukit.host.project import Project, dotenv, slug
from gpukit.launch.clean import CHECKPOINTS
from gpukit.launch.container import DOCKERS_OWN
from gpukit.launch.notebook import free_port
from gpukit.project import dependencies, flags
from gpukit.project.location import place
from gpukit.project.messages import CALLED, say
from gpukit.remote import files
from gpukit.remote.connection import LOST, Host

ABOUT_WHAT_IS_THERE = ("logs", "stop", "clean", "fetch")  # they send no files first
OF_JOBS = ("list", "show", "logs", "wait", "compare", "cancel", "move")  # the same for `jobs`
WITH_PROGRAM = ("run", "shell", "submit", "rehearse")  # the rest of their arguments is a program's
OF_LAUNCH = ("GPUS", "GPUKIT_MEMORY_FRACTION", "GPUKIT_REGISTRY")  # variables that launch itself reads


class Remote:
    def __init__(self, root: Path, options: argparse.Namespace, name: str) -> None:
        given = vars(options)
        self.root = root
        self.options = options
        self.dry = given.get("dry_run", False)
        self.project = Project(root, os.environ, given.get("cpu", False), given.get("gpus", ""), self.dry)
        self.host = Host(name, f"gpukit/{slug(self.project.stack.get('project') or root.name)}")
        self.launch = "./launch" + f" --host {shlex.quote(name)}" * ("host" in given)
        names = ("cpu", "native", "no_credentials", "no_network")
        self.flags = [f"--{name.replace('_', '-')}" for name in names if given.get(name)]
        self.sealed = bool(given.get("no_credentials") or given.get("no_network"))
        self.gpus = [f"--gpus={given['gpus']}"] if given.get("gpus") else []
        self.absent = f"launch: There is nothing in {self.host} yet: {self.advice('verify')} sends the project."

    def advice(self, command: str) -> str:
        return f"`{' '.join([self.launch, *self.flags, command])}`"

    # What goes there

    def variables(self) -> dict[str, str]:
        """What is set here or in .env of: variables that containers get by name, mirrors, GPUs; and those of `-e`."""
        project = self.project
        config = self.project.config
        env = {**dotenv(project.located(".env")), **project.given}  # without the cap for this machine's memory
        names = {*config.build_args, *OF_LAUNCH}
        if not self.sealed:
            names |= {*config.by_name, *(name for name, value in config.env_files if value is None)}
            names |= {value for option, value in flags.options(config.run_args) if option == "--env"}
        given = [variable.partition("=") for variable in vars(self.options).get("variables", [])]
        names |= {name for name, equals, _ in given if not equals}
        found = {name: env[name] for name in names if name in env}
        found.update({name: value for name, equals, value in given if equals and not DOCKERS_OWN.fullmatch(name)})
        if "GPUKIT_ENGINE" in os.environ:  # that in .env is this machine's
            found["GPUKIT_ENGINE"] = os.environ["GPUKIT_ENGINE"]
        # there, this command is the one that was called, and no other machine is meant
        return {**found, "GPUKIT_HOST": "", CALLED: self.launch}

    def arguments(self, argv: list[str]) -> list[str]:
        """The command line for the other machine: ours without --host and --dry-run."""
        program = self.options.rest if self.options.command in WITH_PROGRAM else []
        found = []
        rest = argv[: len(argv) - len(program)]
        while rest:
            word = rest.pop(0)
            if word == "--host":
                rest = rest[1:]
            elif word != "--dry-run" and not word.startswith("--host="):
                found.append(word)
        return [*found, *program]

    def run_arguments(self, name: str) -> list[str]:
        """Those of `run`, in the background there; values of `-e` are not among them."""
        background = self.options.detach or not self.sealed
        found = [*self.flags, *self.gpus, "run", *["-d"] * background]
        found += [f"--name={name}"] if name and background else []
        for variable in self.options.variables:
            own = variable.partition("=")[0]
            found += ["-e", variable if DOCKERS_OWN.fullmatch(own) else own]
        found += [f"-p={port}" for port in self.options.ports]
        if self.options.nproc:
            found.append(f"--nproc={self.options.nproc}")
        if self.options.json:
            found.append("--json")
        return [*found, "--", *self.options.rest]

    # Commands

    def act(self, argv: list[str]) -> int:
        command = self.options.command
        say(f"{self.host.destination}: {command}, in {self.host.folder}")
        sends = command not in ABOUT_WHAT_IS_THERE and not (command == "jobs" and self.options.ACTION in OF_JOBS)
        if self.dry:
            return self.show(argv, sends)
        if sends:
            self.send()
        if command == "fetch":
            return self.fetch(self.options.PATH or place(self.root, "outputs"), self.options.checkpoints)
        if command == "run" and not self.options.detach and not self.sealed:
            return self.run()
        if command == "run":
            return self.start(self.run_arguments(self.options.name))
        if command == "logs" and self.options.follow:
            return self.follow([*self.flags, "follow", *[self.options.NAME] * bool(self.options.NAME)])
        if command == "notebook":
            return self.notebook(argv)
        if command == "explain":
            return self.explain(argv)
        code = self.start(self.arguments(argv))
        edited = {"add": [dependencies.edited(self.root)], "pin": ["requirements.txt", "Dockerfile"]}
        for path in edited.get(command, []) if code == 0 else []:
            files.fetch(self.host, self.root, path, [])
        return code

    def show(self, argv: list[str], sends: bool) -> int:
        """--dry-run: what would be sent, and what would run."""
        if sends:
            names = files.sources(self.root)
            say(f"{len(names)} files would be compared with those there, and sent if they differ.")
        run = self.options.command == "run"
        there = self.run_arguments(self.options.name or "NAME") if run else self.arguments(argv)
        command = f"cd {shlex.quote(self.host.folder)} && ./launch {shlex.join(there)}"
        print(shlex.join(["ssh", self.host.destination, command]))
        return 0

    def send(self) -> None:
        path = files.send(self.host, self.root, self.launch)
        if path:
            say(f"To open it in VS Code: code --remote ssh-remote+{self.host.destination} {shlex.quote(path)}")

    def fetch(self, path: str, checkpoints: bool) -> int:
        asked = PurePosixPath(path)
        named = any(each.match(pattern) for each in (asked, asked / "x") for pattern in CHECKPOINTS)
        files.fetch(self.host, self.root, path.rstrip("/"), [] if checkpoints or named else list(CHECKPOINTS))
        return 0

    def start(self, arguments: list[str]) -> int:
        """Run a command there, on this terminal if there is one."""
        self.host.connect()
        if os.isatty(0) and os.isatty(1):
            return self.host.run_on_terminal(arguments, self.variables(), self.absent)
        ended = self.host.run(arguments, self.variables(), self.absent)
        if ended.lost:
            say(f"The connection to {self.host.destination} is lost.")
        return ended.code

    def run(self) -> int:
        """Start it there in the background, and follow it: a lost connection does not end it."""
        name = f"run-{secrets.token_hex(3)}"
        with self.host.passing_on():
            code = self.start(self.run_arguments(name))
            if code == LOST and not self.host.signals:
                say(f"{self.advice('logs')} shows whether the run has started.")
            if code and not self.host.signals:
                return code
            self.host.unsent = list(self.host.signals)  # they may have come too late to stop the start
            follow = [*self.flags, "follow", "--attended", name]
            ended = self.host.run(follow, self.variables(), self.absent, held=True)
        if ended.lost:
            say(
                f"The connection to {self.host.destination} is lost, and the run goes on there: "
                f"{self.advice(f'logs -f {name}')} follows it again, {self.advice('stop')} stops it."
            )
        return ended.code

    def follow(self, arguments: list[str], text: bytes = b"") -> int:
        self.host.connect()
        ended = self.host.run(arguments, self.variables(), self.absent, text=text)
        if ended.lost:
            say(f"The connection to {self.host.destination} is lost: run the same command again.")
        return ended.code

    def explain(self, argv: list[str]) -> int:
        """Explain a text by what is known of the other machine; files and standard input are read here."""
        what = self.options.WHAT
        arguments = self.arguments(argv)
        file = Path(what)
        if what in ("", "-"):
            if sys.stdin.isatty():
                say("Paste the error text, then press Ctrl-D on a line of its own:")
            text = sys.stdin.buffer.read()
        elif file.is_file():
            text = file.read_bytes()
            arguments.remove(what)
        else:
            return self.start(arguments)
        return self.follow(arguments, text)

    def notebook(self, argv: list[str]) -> int:
        """Start JupyterLab there, and forward its port until Ctrl-C."""
        self.host.connect()
        ended = self.host.run(self.arguments(argv), self.variables(), self.absent, capture=True)
        address = re.search(r"http://127\.0\.0\.1:(\d+)(/\S*)", ended.output)
        if ended.lost:
            say(f"The connection to {self.host.destination} is lost: run the same command again.")
        if ended.code or not address:
            return ended.code or 1
        port = free_port(int(address[1]))
        try:
            with self.host.forwarding(port, int(address[1])) as line:
                print(f"http://127.0.0.1:{port}{address[2]}", flush=True)
                say(f"Ctrl-C ends the forwarding; JupyterLab runs there until {self.advice('stop')}.")
                line.wait()
        except KeyboardInterrupt:
            return 0
        say(f"The connection to {self.host.destination} is lost: run the same command again; JupyterLab still runs.")
        return LOST


def act(root: Path, options: argparse.Namespace, argv: list[str], name: str) -> int:
    return Remote(root, options, name).act(argv)
