"""Run a parsed command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from gpukit.project.location import find_root, is_adopted, located, root
from gpukit.project.messages import RefusalError

# What VS Code runs before it starts a container here (as with `doctor --early`), and what works on the project's files.
ON_THIS_MACHINE = ("preflight", "update", "validate", "vendor")


def act_or_ask(options: argparse.Namespace, argv: list[str]) -> int:
    """Run it; if the engine has no GPU for it because this machine has none, ask whether to do without."""
    host = host_of(options)
    if host:
        return import_module("gpukit.remote.main").act(root(), options, argv, host)
    without = argparse.Namespace(**{**vars(options), "cpu": True})  # `act` changes its options
    try:
        return act(options)
    except RefusalError as refusal:
        asking = import_module("gpukit.launch.without_gpu")
        lacking = import_module("gpukit.host.refusals").lacks_gpu(refusal)
        native = vars(options).get("native", False)
        if not lacking or options.command not in asking.COMMANDS or not asking.is_wanted(options.command, native):
            raise
    return act(without)


def host_of(options: argparse.Namespace) -> str:
    """The machine on which a command is to run: --host, or GPUKIT_HOST; empty: this one."""
    given = vars(options)
    here = options.command in ON_THIS_MACHINE or (options.command == "pin" and options.remove)
    if "host" in options:
        if here and options.host:
            raise RefusalError(f"`{options.command}` is about the files on this machine: leave --host out.")
        return options.host
    if here or "--early" in given.get("rest", []) or given.get("machine"):
        return ""
    project = find_root()
    if project is None or Path("/etc/gpukit").is_dir():  # the latter: in a container
        return ""
    if "GPUKIT_HOST" in os.environ:
        return os.environ["GPUKIT_HOST"]
    try:
        found = b"GPUKIT_HOST" in located(".env", project).read_bytes()
    except OSError:
        return ""
    return import_module("gpukit.host.project").dotenv(located(".env", project)).get("GPUKIT_HOST", "") if found else ""


def act(options: argparse.Namespace) -> int:
    command = options.command
    given = vars(options)
    if command == "fetch":
        raise RefusalError("`fetch` brings files from another machine: name it with --host, or as GPUKIT_HOST in .env.")
    if command == "doctor":
        return import_module("gpukit.doctor.main").main(
            options.rest, given.get("cpu", False), given.get("native", False)
        )
    if command == "explain":
        return import_module("gpukit.cli.explain").explain(options)
    if command == "vendor":
        vendor = import_module("gpukit.wheel.vendor")
        try:
            return vendor.vendor(find_root(), options.source, options.check)
        except vendor.VendorError as error:
            raise RefusalError(f"{error}.") from None
    if command == "adopt":
        return import_module("gpukit.adopt.main").adopt(Path.cwd(), options)
    if command == "update":
        renew = import_module("gpukit.plan.extensions").renew
        return import_module("gpukit.update.main").update(find_root(), options, renew)
    if command == "validate":
        return import_module("gpukit.validate.main").command(find_root())
    if command == "setup":
        return import_module("gpukit.setup.main").main(root(), options)
    if command == "plan" and not given.get("native"):
        if options.prove and ".whl" in __file__ and import_module("gpukit.image.guard").RECORD.is_file():
            os.execvp("gpukit", ["gpukit", *sys.argv[1:]])  # ./launch runs without site-packages, where Triton is
        return import_module("gpukit.plan.main").main(options)
    if command in ("submit", "jobs"):
        return import_module("gpukit.jobs.commands").act(root(), options)
    if command == "try":
        chosen = given.get("cpu", False), given.get("gpus", ""), given.get("native", False), given.get("dry_run", False)
        return import_module("gpukit.launch.first_run").first_run(root(), *chosen)
    asks = command in ("verify", "rehearse")
    inside = import_module("gpukit.image.guard").RECORD.is_file() if asks else False
    if inside and command == "rehearse":
        rehearsal = rehearsed(options, import_module("gpukit.project.stack").read(located("stack.json")))
        os.execvp(rehearsal[0], rehearsal)
    if inside and ".whl" in __file__:  # ./launch runs without site-packages, and these need torch
        os.execvp("gpukit", ["gpukit", command, *options.rest])
    if inside:
        return import_module("gpukit.verify.main").main(options.rest)
    if command == "verify" and find_root() is None:
        return import_module("gpukit.verify.main").outside(options.rest)
    if command == "verify" and {"-h", "--help"} & {*options.rest}:
        return import_module("gpukit.verify.main").main(["--help"])
    return in_project(options)


def in_project(options: argparse.Namespace) -> int:
    """Run a command that needs the project; this process is on the host."""
    from gpukit.host.project import Project
    from gpukit.launch import container, torchrun

    command = options.command
    given = vars(options)
    project = Project(root(), os.environ, given.get("cpu", False), given.get("gpus", ""), given.get("dry_run", False))
    if command == "rehearse":
        options.rest = rehearsed(options, project.stack)
    if command in ("run", "up", "notebook", "verify", "rehearse"):
        project.refuse_another_gpukit()
    if command == "run" and options.nproc:
        options.rest = torchrun.command(options.rest, options.nproc, project.gpus)
    if command == "add":
        return import_module("gpukit.cli.add").add(project, options.PKG, given.get("native", False), options.yes)
    without = " ".join(name for name in ("credentials", "network") if given.get(f"no_{name}"))
    if without and (command != "run" or options.detach or given.get("native")):
        raise RefusalError("--no-credentials and --no-network go with `run` in a container, and with `submit`.")
    if without:
        return container.run_sealed(project, without, options.rest, options.variables, options.ports)
    if given.get("native"):
        return import_module("gpukit.launch.native").act(project, options)
    return with_engine(project, options)


def with_engine(project: Any, options: argparse.Namespace) -> int:
    """Run a command that is about the project's containers and images."""
    from gpukit.launch import container

    command = options.command
    if command == "run" and options.detach:
        code = container.run_detached(project, options.rest, options.name, options.variables, options.ports)
        if options.json:
            print(json.dumps({"name": options.name or "run", "running": True}))
        return code
    if command == "run":
        return container.run(project, options.rest, options.variables, options.ports)
    if command == "verify":
        return container.verify(project, ["gpukit", command, *options.rest])
    if command == "rehearse":
        return container.run(project, options.rest)
    if command == "shell":
        return container.shell(project, options.rest)
    if command == "logs":
        return container.logs(project, options.NAME, options.follow, options.json)
    if command == "follow":
        return container.follow(project, options.NAME, options.attended)
    if command == "stop":
        return container.stop(project)
    if command == "up":
        container.up(project)
        return 0
    if command == "build":
        pairs = [pair.partition("=") for pair in options.build_arg]
        import_module("gpukit.launch.image").build(
            project, {key: value or project.env.get(key, "") for key, _, value in pairs}, options.no_cache
        )
        return 0
    if command == "preflight":
        return import_module("gpukit.host.preflight").preflight(project)
    module = import_module(f"gpukit.launch.{command}")
    if command == "pin":
        return module.pin(project, options.digest, options.remove)
    if command == "clean":
        return module.clean(project, options.keep, options.yes, options.images, options.checkpoints)
    return getattr(module, command)(project)


def rehearsed(options: argparse.Namespace, stack: dict[str, Any]) -> list[str]:
    """The command that rehearses a script; without one, the project's, as small as for a trial."""
    if not options.rest and is_adopted(root()):
        raise RefusalError("Name the script to rehearse, as in `./launch rehearse -- python train.py`.")
    steps = ["--steps", str(options.steps)] if options.steps else []
    script = options.rest or ["python", "-m", f"{stack['package']}.train", *stack.get("trial", [])]
    return ["python", "-m", "exactrun", "rehearse", *steps, "--", *script]
