"""`./launch --native`: the same commands without Docker, in an environment on this machine (environment.py)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpukit.host import queue
from gpukit.host.engine import foreground, stream
from gpukit.host.facts import FIRST_JETPACK_7, arch, driver, jetson_release
from gpukit.host.memory import CAP, VARIABLE
from gpukit.host.project import Project
from gpukit.host.refusals import no_gpu
from gpukit.image import guard
from gpukit.launch import add as adding
from gpukit.launch import clean, container
from gpukit.launch import notebook as jupyter
from gpukit.launch.environment import Environment
from gpukit.project import dependencies, interrupts, pyproject
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say
from gpukit.project.stack import version

# Wheels for an older JetPack are NVIDIA's own.
FOR_JETSON = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/index.html"
WITHOUT = "without a GPU: `./launch --native --cpu ...`"
DOCTOR = "`./launch doctor --only driver` says why"
# What runs in the background is a shell that waits for the program, and writes its exit status to a file and the log.
AND_TELL = """\
trap : INT TERM; file=$1; shift; "$@"; status=$?
echo $status >"$file"; echo "launch: it ended with status $status." >&2; exit $status"""
TOLD = re.compile(rb"launch: it ended with status \d+\.\n\Z")


# The GPU


def gpu_serves(environment: Environment, loaded: str | None, system: tuple[int, ...]) -> None:
    """Refuse what torch would fail on later, and with fewer words."""
    if not environment.gpu:
        return
    torch = f"PyTorch {environment.torch}"
    floor = environment.driver
    targets = environment.project.stack.get("targets", {}).values()
    if arch() not in {target["arch"] for target in targets if target["capability"]}:
        raise RefusalError(f"No GPU that this project is for is in a machine like this one ({arch()}); {WITHOUT}.")
    if system:
        if system[0] < FIRST_JETPACK_7:
            seen = ".".join(map(str, system))
            raise RefusalError(f"{torch} needs JetPack 7, and this Jetson has R{seen}: {FOR_JETSON} has what fits it.")
        return
    if loaded is None and environment.project.lacks_gpu(native=True):
        raise no_gpu("./launch --native --cpu ...")
    if loaded is None:
        raise RefusalError(f"No NVIDIA driver is loaded on this machine: {DOCTOR}; {WITHOUT}.")
    if loaded and floor and version(loaded) < version(floor):
        raise RefusalError(f"The NVIDIA driver here is {loaded}, and {torch} needs {floor} or newer; {WITHOUT}.")


# What programs find


def variables(project: Project, environment: Environment) -> dict[str, str]:
    """The environment of programs: this shell's, what devcontainer.json sets, and the Python of the environment."""
    config = project.config
    env = dict(project.env)
    mounts = [*config.mounts, *([config.workspace_mount] if config.workspace_mount else [])]
    places = {mount["target"]: mount["source"] for mount in mounts if mount["target"] and mount["type"] == "bind"}
    defaults = {name: value for name, value in config.env_files if value is not None}
    for name, value in {**defaults, **config.container_env, **config.remote_env}.items():
        for target, source in places.items():
            if value == target or value.startswith(f"{target}/"):
                value = source + value[len(target) :]
        # a service of compose.yaml, as it is found from outside
        value = re.sub(r"^http://mlflow:5000", f"http://127.0.0.1:{env.get('MLFLOW_PORT') or 5000}", value)
        env.setdefault(name, value)
    for name in ("PYTHONHOME", "CONDA_PREFIX", "PIP_USER", "JUPYTER_TOKEN"):
        env.pop(name, None)
    capabilities = sorted({target["capability"] for target in project.stack.get("targets", {}).values()} - {None})
    if not environment.allocator_cap and "PYTORCH_ALLOC_CONF" not in project.env:
        env.pop("PYTORCH_ALLOC_CONF", None)  # it is for the image's torch
    elif project.fraction and environment.gpu:
        env.setdefault("PYTORCH_ALLOC_CONF", f"{CAP}:{env[VARIABLE]}")
    if environment.gpu:
        env.setdefault("TORCH_CUDA_ARCH_LIST", ";".join(sorted(capabilities, key=version)))
        if chooses(project) and project.gpus != "all":
            env.update(CUDA_VISIBLE_DEVICES=str(project.gpus), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    else:
        env["GPUKIT_DEVICE"] = "cpu"
    return {
        **env,
        "VIRTUAL_ENV": str(environment.path),
        "PATH": f"{environment.path / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}",
        "PYTHONPATH": environment.pythonpath,
        "GPUKIT_PROJECT": str(project.code),
        "PYTHONNOUSERSITE": "1",
        **environment.holding(),
        "PIP_CONSTRAINT": str(environment.record),
        "PIP_BUILD_CONSTRAINT": str(environment.record.with_name(guard.BUILD)),
    }


def chooses(project: Project) -> bool:
    """Whether GPUS says which GPUs, or its default; where they are given already, as Slurm does, that counts."""
    return "GPUS" in project.env or "CUDA_VISIBLE_DEVICES" not in project.env


def ready(project: Project, fresh: bool = False, here: bool = True, exact: bool = False) -> Environment:
    """The environment, created and held. `here`: a program will run on this machine's GPU."""
    environment = Environment(project)
    os.chdir(project.code)
    if here:
        gpu_serves(environment, driver(), jetson_release())
        if environment.gpu and chooses(project):
            project.gpu_is_chosen()
    if not project.dry:
        environment.ensure(fresh, exact)
        project.located("outputs").mkdir(exist_ok=True)  # trackers look for it
    return environment


# The commands


def act(project: Project, options: Any) -> int:
    command = options.command
    if command == "build":
        environment = ready(project, options.no_cache, here=False, exact=True)
        print(environment.path)
        say(f"In an editor, use this Python: {environment.interpreter}")
        say("VS Code: enter it in `Python: Select Interpreter`, or set `python.defaultInterpreterPath` to it.")
        return 0
    if command == "run":
        if options.ports:
            say("-p has no effect without a container: the program's ports are this machine's own.")
        values = container.passed(project, options.variables)[1]
        if options.detach:
            code = detach(project, options.rest, options.name, values)
            if options.json:
                print(json.dumps({"name": options.name or "run", "running": True}))
            return code
        return run(project, options.rest, values)
    if command == "rehearse":
        return run(project, options.rest)
    if command in ("verify", "plan"):
        return run(project, ["gpukit", command, *options.rest], here=command != "plan")
    if command == "shell":
        return shell(project, options.rest)
    if command == "notebook":
        return notebook(project)
    if command == "logs":
        return logs(project, options.NAME, options.follow, options.json)
    if command == "follow":
        return follow(project, options.NAME, options.attended)
    if command == "stop":
        return stop(project)
    if command == "clean":
        return clean.clean(project, options.keep, options.yes, options.images, options.checkpoints, native=True)
    raise RefusalError(f"`{command}` is about containers and images: leave `--native` out.")


def run(project: Project, command: list[str], values: dict[str, str] | None = None, here: bool = True) -> int:
    """Become the command. What holds the environment goes on with it, and signals are its own."""
    environment = ready(project, here=here)
    env = {**variables(project, environment), **(values or {})}
    if project.dry:
        print(shlex.join(["env", *(f"{name}={env[name]}" for name in ("VIRTUAL_ENV", "PYTHONPATH")), *command]))
        return 0
    for file in environment.held:
        os.set_inheritable(file, True)
    interrupts.check()
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        what = "no command" if isinstance(error, FileNotFoundError) else "no program that can be run"
        raise RefusalError(f"There is {what} `{command[0]}` here.", 127) from None


def run_and_return(project: Project, command: list[str]) -> int:
    """Run the command as `run` does, and return its exit status; 130 if it failed after Ctrl-C."""
    if project.dry:
        return run(project, command)
    environment = ready(project)
    say(container.TRIAL)
    return foreground(command, variables(project, environment), environment.held, trial=True)


def shell(project: Project, command: list[str]) -> int:
    """As the user's own shell is set up, and with the environment first on its PATH."""
    return run(project, command or ["bash", "--rcfile", str(Environment(project).path / "bashrc"), "-i"])


def add(project: Project, packages: list[str], judge: adding.Judge, examine: adding.Examine) -> int:
    path = project.root / dependencies.edited(project.root)
    text = pyproject.read(path)
    edited = adding.apply(project, text, packages, native=True)
    if edited == text:
        return 0
    wanted = adding.requirements(project, edited, packages)
    if project.dry:
        environment = ready(project, here=False)
        print(f"{shlex.join(environment.command(*adding.INSTALL[1:]))} <<'END'\n{wanted}END")
        return 0
    judge(packages)
    environment = ready(project, here=False)

    def place(command: list[str], stdin: bytes) -> tuple[int, str, str]:
        env = {**variables(project, environment), **environment.settings({})}
        done = subprocess.run([environment.interpreter, *command[1:]], env=env, input=stdin, capture_output=True)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    with tempfile.NamedTemporaryFile("w", prefix="add-", suffix=".txt", dir=environment.path) as file:
        file.write(wanted)
        file.flush()
        install = ["pip", "install", f"--requirement={file.name}"]
        code, output = adding.resolve(lambda **env: environment.ask(*install, "--dry-run", **env))
        if code == 0:
            examine(place)
            code, output = stream(environment.command(*install), environment.settings({}))
        if code:
            held = environment.record.read_text(encoding="utf-8")
            raise adding.refusal(project, output, packages, held, "the environment")
    environment.check()
    adding.write(path, text, edited)
    environment.finish(environment.wanted())
    where = dependencies.edited(project.root)
    say(f"Added {adding.named(packages)} to {where} and to the environment; the image's next build has it too.")
    if (project.root / "requirements.txt").is_file() and not is_adopted(project.root):
        say("requirements.txt pins what was there before: `./launch pin` adds the new ones to it.")
    return 0


# In the background


def folder(project: Project) -> Path:
    """Where it is kept what runs in the background here."""
    place = project.located(".launch/native")
    try:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RefusalError(f"{place} cannot be made ({error.strerror}): give the folder to this user.") from None
    return place


def known(project: Project) -> dict[str, dict[str, Any]]:
    """What was started in the background, by name, newest first."""
    files = sorted(folder(project).glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def alive(entry: dict[str, Any]) -> bool:
    return entry["host"] == socket.gethostname() and queue.born(entry["pid"]) == entry["born"] != ""


def start(
    project: Project, name: str, command: list[str], values: dict[str, str] | None = None, **facts: Any
) -> dict[str, Any]:
    environment = ready(project)
    log = folder(project) / f"{name}.log"
    status = folder(project) / f"{name}.status"
    status.unlink(missing_ok=True)
    env = {**variables(project, environment), **(values or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", AND_TELL, "sh", str(status), *command],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=environment.held,
        )
    entry = {"pid": process.pid, "born": queue.born(process.pid), "host": socket.gethostname(), **facts}
    pyproject.write(folder(project) / f"{name}.json", json.dumps(entry) + "\n")
    return entry


def detach(project: Project, command: list[str], name: str = "", values: dict[str, str] | None = None) -> int:
    container.refuse_name(name)
    name = name or "run"
    if project.dry:
        return run(project, command)
    if name in known(project) and alive(known(project)[name]):
        raise RefusalError(
            f"{name} is running already: give this one --name, or end that one with `./launch --native stop`."
        )
    start(project, name, command, values)
    say(f"{name} is running: `./launch --native logs -f {name}` shows its output, `./launch --native stop` stops it.")
    return 0


def logs(project: Project, name: str = "", follow: bool = False, as_json: bool = False) -> int:
    entries = known(project)
    name = name or next(iter(entries), "")
    if name not in entries:
        raise RefusalError(f"There are no logs{f' of {name}' * bool(name)}: nothing was started in the background.")
    entry = entries[name]
    log = folder(project) / f"{name}.log"
    if as_json:
        text = log.read_text(encoding="utf-8", errors="replace")
        print(json.dumps({"name": name, "running": alive(entry), "text": text}))
        return 0
    if not follow and alive(entry):
        age = time.time() - (folder(project) / f"{name}.json").stat().st_mtime
        if not container.wait_for_output(
            name, lambda: not log.stat().st_size and alive(entry), age, "./launch --native"
        ):
            return 0
    following = ["-f", f"--pid={entry['pid']}"] if follow and alive(entry) else []
    return os.execvp("tail", ["tail", "-n", "+1", *following, str(log)])


def follow(project: Project, name: str = "", attended: bool = False) -> int:
    """As container.follow."""
    name = name or next(iter(known(project)), "")
    if name not in known(project):
        container.refuse_to_attend(name, attended)
        return logs(project, name, follow=True)
    entry = known(project)[name]
    files = {kind: folder(project) / f"{name}.{kind}" for kind in ("log", "status", "json")}
    passing_on = container.passing_on(lambda number: os.killpg(entry["pid"], number), attended)
    with passing_on, files["log"].open("rb") as log:
        running = True
        while running:
            running = alive(entry)
            text = log.read()
            sys.stdout.buffer.write(TOLD.sub(b"", text) if attended else text)
            sys.stdout.flush()
            time.sleep(0.1 * running)
    try:
        status = int(files["status"].read_text(encoding="ascii"))
    except (OSError, ValueError):
        say(f"{name} was ended from outside, for example because the machine restarted: its exit status is unknown.")
        return 1
    if attended:
        for file in files.values():
            file.unlink(missing_ok=True)
    return status


def stop(project: Project) -> int:
    """End what runs in the background here; programs get a minute to save."""
    worked = queue.stop(project.root, project.dry)
    entries = known(project)
    for name, entry in entries.items():
        if entry["host"] != socket.gethostname():
            say(f"{name} was started on {entry['host']}: `./launch --native stop` there ends it.")
    running = {name: entry for name, entry in entries.items() if alive(entry)}
    if not running and worked:
        return 0
    if not running:
        say("Nothing of this project runs in the background here.")
        return 0
    if project.dry:
        for entry in running.values():
            print(shlex.join(["kill", "-TERM", "--", f"-{entry['pid']}"]))
        return 0
    say(f"Stopping {', '.join(running)}: programs have a minute to save.")
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + queue.A_MINUTE
        for entry in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(entry["pid"], number)
        while any(alive(entry) for entry in running.values()) and time.monotonic() < until:
            time.sleep(0.1)
        running = {name: entry for name, entry in running.items() if alive(entry)}
    return 0


def notebook(project: Project) -> int:
    """JupyterLab on this machine's own address only, with the project's token, until `stop` or a restart."""
    jupyter.refuse_without_notebooks(project)
    entry = known(project).get("notebook")
    if project.dry:
        return run(project, ["jupyter", "lab", "--ip=127.0.0.1"])
    if entry and alive(entry):
        say("The notebook is running already; `./launch --native stop` ends it.")
    else:
        port = jupyter.free_port()
        jupyter.token(project)
        project.env["JUPYTER_TOKEN_FILE"] = str(project.located(".launch/jupyter-token"))
        flags = ["--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0", "--no-browser"]
        root = ["--allow-root"] * project.as_root
        entry = start(project, "notebook", ["jupyter", "lab", *flags, *root], port=port)
        if port != jupyter.PORTS[0]:
            say(f"Port {jupyter.PORTS[0]} is in use, so this uses port {port}.")
    log = folder(project) / "notebook.log"
    jupyter.wait(entry["port"], lambda: None if alive(entry) else log.read_text(errors="replace")[-2000:].strip())
    print(jupyter.address(project, entry["port"]), flush=True)
    return 0
