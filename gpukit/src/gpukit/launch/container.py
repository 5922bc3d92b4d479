"""Containers of this project: how they are started, found, entered, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gpukit.errors.known import match_signs
from gpukit.host import queue
from gpukit.host.project import Project
from gpukit.launch import compose, image
from gpukit.launch.attend import Attended, age_of, terminal_flags
from gpukit.launch.found import Found, own, vscode
from gpukit.project import interrupts
from gpukit.project.devcontainer import mount_argument
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say

DOCKERS_OWN = re.compile(r"PATH|HOME|(?:DOCKER|BUILDX|SSH|LD)_\w+")  # variables that the docker command itself reads
TRIAL = "Starting the example: importing PyTorch takes a few seconds."
JUST_STARTED = 30  # seconds in which a program may not have printed anything, because it still imports its libraries


def flags(project: Project, name: str, role: str, remote: bool = True) -> list[str]:
    """What every container of this project gets: the same that VS Code makes of the same file."""
    if project.sealed:
        from gpukit.launch import sealed

        return sealed.container_flags(project, name, role)
    config = project.config
    found = [f"--name={name}", f"--label={project.label}", f"--label=gpukit.role={role}"]
    found += [f"--mount={mount_argument(mount)}" for mount in [*workspace(project), *config.mounts]]
    found += environment(project, config.container_env)
    found += [f"--user={config.remote_user}"] if config.remote_user else []
    found += config.run_args
    found += ["--init"] * config.init + [f"--workdir={config.workspace_folder}"]
    found += environment(project, config.remote_env) if remote else []
    if project.as_root:
        found += ["--user=0:0", f"--env=HOME=/home/{config.remote_user or 'dev'}"]
    return found


def workspace(project: Project) -> list[dict[str, Any]]:
    """The mount of the project's folder; for a job, of its checkout and of what it shares with the project."""
    mount = project.config.workspace_mount
    target = project.config.workspace_folder
    if not mount or project.code == project.root:
        return [mount] if mount else []
    from gpukit.host import frozen, shared  # here, because only jobs need them

    places = {target: project.code, **shared.mounts(project.root, target)}
    found = [{**mount, "source": str(source), "target": place} for place, source in places.items()]
    objects = str(frozen.borrowed(project.root, project.code))
    return [*found, {**mount, "source": objects, "target": f"{target}/.git/shared", "readonly": True}]


def environment(project: Project, variables: dict[str, str]) -> list[str]:
    """Variables as flags; what is handed on from the host goes by name, so that no list of processes shows it."""
    handed_on = project.config.by_name & project.env.keys()
    return [f"--env={key}" if key in handed_on else f"--env={key}={value}" for key, value in variables.items()]


def passed(project: Project, variables: list[str]) -> tuple[list[str], dict[str, str]]:
    """The flags of `run -e`, and the values that are given with it.

    `variables`: NAME, with the value that it has here, or NAME=VALUE.
    """
    found = []
    values = {}
    for variable in variables:
        name, given, value = variable.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise RefusalError(f"-e {name!r} is not the name of a variable: write `-e NAME` or `-e NAME=VALUE`.")
        if not given and name not in project.env:
            say(f"{name} is not set here, so the program does not get it.")
        else:
            found.append(f"--env={variable if given and DOCKERS_OWN.fullmatch(name) else name}")
            values.update({name: value} if given else {})
    return found, values


def hand_over(project: Project, values: dict[str, str]) -> None:
    """Let the docker command find these in its environment, so that no list of processes shows them."""
    project.engine.env.update({name: value for name, value in values.items() if not DOCKERS_OWN.fullmatch(name)})


def published(project: Project, ports: list[str]) -> list[str]:
    """The flags of `run -p`: PORT, or HOST:CONTAINER, on the loopback address only."""
    found = []
    for port in ports:
        match = re.fullmatch(r"(?:127\.0\.0\.1:)?(?:(\d{1,5}):)?(\d{1,5})", port)
        if not match and re.fullmatch(r"\S+:\d*:\d+", port):
            elsewhere = "from another machine, use `ssh -L PORT:localhost:PORT`"
            raise RefusalError(f"-p {port}: launch publishes on 127.0.0.1 only, so omit the address; {elsewhere}.")
        if not match or not all(1 <= int(number) <= 65535 for number in match.groups() if number):
            raise RefusalError(f"-p {port}: write a port from 1 to 65535, as in `-p 6006`, or two, as in `-p 8080:80`.")
        found.append(f"--publish=127.0.0.1:{match[1] or match[2]}:{match[2]}")
    if found and on_host_network(project):
        raise RefusalError("With --network=host in runArgs, the program's ports are this machine's own: omit -p.")
    return found


def on_host_network(project: Project) -> bool:
    return bool(re.search(r"--net(work)?[= ]host\b", " ".join(project.config.run_args)))


@contextlib.contextmanager
def naming_the_port(publish: list[str]) -> Iterator[None]:
    """In the refusal of a start: which of the published ports is in use."""
    try:
        yield
    except RefusalError as refusal:
        taken = match_signs(refusal.output, "port-allocated") if publish and refusal.kind == "port" else None
        port = next(filter(None, taken.groups()), "") if taken else ""
        inside = next((flag.rpartition(":")[2] for flag in publish if f":{port}:" in flag), "")
        if not inside:
            raise
        other = f"-p {int(port) % 65535 + 1}:{inside}"
        raise RefusalError(
            f"Port {port} is in use on this machine: choose another, such as `{other}`.",
            refusal.code,
            kind="port",
            id="port-in-use",
        ) from None


def start(project: Project, *arguments: str, says: str = "") -> None:
    """`docker run --detach`, and say so; when it fails or is interrupted, nothing of it stays."""
    name = next(value[7:] for value in arguments if value.startswith("--name="))
    try:
        interrupts.check()
        code, _, errors = project.engine.call("run", *arguments)
        if not code and says:
            say(says)
    except BaseException:
        project.engine.remove(name)
        raise
    if code:
        if not match_signs(errors, "container-name"):
            project.engine.call("rm", "--force", name)
        raise project.engine.explain(errors, "The container cannot start")


def verify(project: Project, command: list[str]) -> int:
    """Run verify, and tell it what the image was built from: a container cannot see that."""
    if project.dry:
        return run(project, command)
    image.make_ready(project)
    base = image.recorded_base(project)
    return run(project, command, [f"GPUKIT_BASE={base}"] if base else None, ready=True)


def run(
    project: Project,
    command: list[str],
    variables: list[str] | None = None,
    ports: list[str] | None = None,
    ready: bool = False,
    trial: bool = False,
) -> int:
    """Run a command in a container of its own that is gone afterwards.

    `ready`: the image is there. `trial`: the command has failed because of Ctrl-C if that preceded.
    """
    name = f"{project.tag}-run-{secrets.token_hex(2)}"
    publish = published(project, ports or [])
    more, values = passed(project, variables or [])
    own_flags = [*flags(project, name, "run"), *publish, *more]
    arguments = ["run", "--rm", *terminal_flags(), *own_flags, project.tag, *command]
    if project.show_start(*arguments):
        return 0
    if not ready:
        image.make_ready(project)
    hand_over(project, values)
    if trial:
        say(TRIAL)
    attended = Attended(project.engine, name)
    with naming_the_port(publish):
        code = attended.run(*arguments)
    return 128 + attended.stopped if trial and code and attended.stopped else code


def run_sealed(project: Project, without: str, command: list[str], *given: list[str]) -> int:
    """Run a command without credentials, in a checkout of the project's code that is gone afterwards."""
    from gpukit.host import frozen
    from gpukit.launch import sealed

    if is_adopted(project.root):
        raise RefusalError(sealed.UNKNOWN)
    place = project.located(frozen.PLACE)
    for old in place.glob("run-*[0-9]"):
        if not queue.born(int(old.name[len("run-") :])):  # of a command that was killed
            frozen.remove(project.root, old, f"{old.name}-files")
    folder = place / f"run-{os.getpid()}"
    try:
        with frozen.submitting(project.root):
            frozen.check_out(project.root, frozen.freeze(project.root, otherwise=""), folder, links=False)
        copy = Project(folder, project.given, project.cpu, project.chosen_gpus, project.dry)
        copy.sealed = without
        return run(copy, command, *given)
    finally:
        left = frozen.remove(project.root, folder, f"{folder.name}-files")
        if left:
            say(f"{left[0].upper()}{left[1:]}.")


def run_detached(
    project: Project,
    command: list[str],
    name: str = "",
    variables: list[str] | None = None,
    ports: list[str] | None = None,
) -> int:
    refuse_name(name)
    short = name
    name = f"{project.tag}-run-{name}" if name else f"{project.tag}-run"
    publish = published(project, ports or [])
    more, values = passed(project, variables or [])
    arguments = ["--detach", *flags(project, name, "run"), *publish, *more, project.tag, *command]
    if project.show_start("run", *arguments):
        return 0
    make_room(project, name, "give this one a --name, or stop that one with `./launch stop`")
    image.make_ready(project)
    hand_over(project, values)
    says = (
        f"{name} is running: `./launch logs -f{f' {short}' * bool(short)}` shows its output, `./launch stop` stops it."
    )
    with naming_the_port(publish):
        start(project, *arguments, says=says)
    return 0


def refuse_name(name: str) -> None:
    """Refuse a name of a run that no container can have."""
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise RefusalError(f"--name {name!r}: use ASCII letters, digits, dots, dashes, and underscores.")


def make_room(project: Project, name: str, otherwise: str) -> None:
    """Take away a container of this name that has ended; refuse where it still runs."""
    for found in own(project):
        if found.name == name and found.running:
            raise RefusalError(f"{name} is already running: {otherwise}.")
        if found.name == name:
            project.engine.call("rm", name)


def up(project: Project) -> str:
    """Start the container that stays, unless it runs; its name."""
    if compose.there(project) and not project.engine.podman:
        return compose.up(project)
    name = f"{project.tag}-dev"
    arguments = ["--detach", *flags(project, name, "dev", remote=False), project.tag, "sleep", "infinity"]
    if project.show_start("run", *arguments):
        return name
    if any(found.name == name and found.running for found in own(project)):
        say(f"{name} is already running: `./launch shell` opens a shell in it.")
    else:
        make_room(project, name, "")
        image.make_ready(project)
        says = f"{name} is up: `./launch shell` opens a shell in it, `./launch stop` stops it."
        start(project, *arguments, says=says)
    if compose.there(project):  # and the engine is Podman
        compose.up_on_podman(project)
    return name


def running(project: Project) -> Found | None:
    """The container to work in: ours, compose's, or the one that VS Code started."""
    mine = [found for found in own(project) if found.role == "dev" and found.running]
    mine = [found for found in mine if found.name == f"{project.tag}-dev"] or ([] if project.cpu else mine)
    theirs = [found for found in vscode(project) if found.running and found.cpu >= project.cpu]
    return next(iter(mine + compose.running(project) + theirs), None)


def workplaces(project: Project) -> list[Found]:
    """All running containers that somebody works in; the one that `shell` enters is the first."""
    mine = [found for found in own(project) if found.role in ("dev", "notebook") and found.running]
    theirs = [found for found in vscode(project) if found.running]
    first = running(project)
    return list(dict.fromkeys([first] * bool(first) + mine + compose.running(project) + theirs))


def enter(project: Project, found: Found, command: list[str], interactive: bool = True) -> list[str]:
    """`docker exec` into a running container, as the user and in the folder that VS Code uses."""
    arguments = ["exec", *(terminal_flags() if interactive else []), f"--workdir={project.config.workspace_folder}"]
    if found.role == "vscode" and project.config.remote_user:  # ours run as that user already
        arguments.append(f"--user={project.config.remote_user}")
    return [*arguments, *environment(project, project.config.remote_env), found.name, *command]


def ask(project: Project, show: bool, *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """`docker exec`: exit status, output, errors; `show`: with its progress on stderr. Once more if nothing ran.

    Raises:
        RefusalError: the container cannot be entered, so the status would be the engine's and not the program's.
    """
    call = project.engine.stream if show else project.engine.call
    for again in (True, False):
        code, *said = call(*arguments, stdin=stdin)
        text = "".join(said)
        if not code or not match_signs(text, "exec-not-started", "no-such-container", "container-stopped"):
            break
        if not again or not match_signs(text, "exec-not-started"):
            raise project.engine.explain(text, "The container cannot be entered")
    return code, said[0], said[-1]


def shell(project: Project, command: list[str]) -> int:
    name = f"{project.tag}-dev"
    if project.show(*enter(project, Found(name, True, "dev"), command or ["bash"])):
        return 0
    found = running(project)
    if not found:
        try:
            found = Found(up(project), True, "dev")
        except RefusalError as refusal:
            found = running(project)
            if not found:
                raise
            say(str(refusal))  # of a service beside it, which a shell does not need
    return project.engine.become(*enter(project, found, command or ["bash"]))


def logs(project: Project, name: str = "", follow: bool = False, as_json: bool = False) -> int:
    """The output of the newest run, else of the notebook, else of the container that stays."""
    found = own(project) + compose.all_of(project)
    found = [one for one in found if not name or one.name.endswith(f"-{name}") or one.role == name != "run"]
    order = ("run", "notebook", "dev")
    found.sort(key=lambda one: order.index(one.role) if one.role in order else len(order))
    if not found:
        raise RefusalError(
            f"There are no logs{f' of {name}' * bool(name)}: nothing of this project runs in the background."
        )
    if as_json:
        text = "".join(project.engine.call("logs", found[0].name)[1:])
        print(json.dumps({"name": found[0].name, "running": found[0].running, "text": text}))
        return 0
    arguments = ["logs", *["--follow"] * follow, found[0].name]
    if project.show(*arguments):
        return 0
    if not follow and found[0].running and not has_output(project, found[0].name):
        return 0
    code = project.engine.become(*arguments)
    ended(project, found[0].name)
    return code


def follow(project: Project, name: str = "", attended: bool = False) -> int:
    """The output of a run in the background, from its beginning, and then its exit status.

    `attended`: as if it ran in the foreground. Signals are passed on to it, and when it has ended, it is removed.
    """
    found = [one for one in own(project) if one.role == "run" and (not name or one.name.endswith(f"-{name}"))]
    if not found:
        refuse_to_attend(name, attended)
        return logs(project, name, follow=True)
    run = found[0].name
    with passing_on(lambda number: project.engine.call("kill", f"--signal={number}", run), attended):
        command = project.engine.argv("logs", "--follow", run)
        process = subprocess.Popen(command, env=project.engine.env, start_new_session=attended)
        try:
            process.wait()
        finally:
            process.terminate()
        status = int(project.engine.get("wait", run))
    if attended:
        project.engine.call("rm", run)
    else:
        ended(project, run)
    return status


def refuse_to_attend(name: str, attended: bool) -> None:
    if attended:
        raise RefusalError(f"{name} has not started.", 128 + signal.SIGINT)


@contextlib.contextmanager
def passing_on(tell: Callable[[int], object], attended: bool) -> Iterator[None]:
    """If `attended`, pass on Ctrl-C and SIGTERM, and do not end because of them; end at SIGHUP, after cleanup.

    One that came before was blocked by what has started us over ssh (remote/there.py).
    """

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            tell(number)

    handlers = {signal.SIGINT: pass_on, signal.SIGTERM: pass_on, signal.SIGHUP: lambda *_: sys.exit(129)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items() if attended}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_output(name: str, silent: Callable[[], bool], age: float, launch: str = "./launch") -> bool:
    """Whether a program is not silent, which is waited for if it has just started; `age`: for how long it has run."""
    limit = time.monotonic() + JUST_STARTED - max(age, 0)
    announced = False
    while silent():
        if time.monotonic() > limit:
            say(f"{name} is running and has not printed anything yet: `{launch} logs -f` waits for its output.")
            return False
        if not announced:
            say(f"{name} has just started: waiting for its output.")
            announced = True
        time.sleep(0.3)
    return True


def has_output(project: Project, name: str) -> bool:
    """Whether a running container has printed something; see `wait_for_output`."""

    def silent() -> bool:
        if any(project.engine.call("logs", "--tail=1", name)[1:]):
            return False
        return project.engine.call("inspect", "--format={{.State.Running}}", name)[1].strip() == "true"

    age = age_of(project.engine, name) if silent() else None
    return wait_for_output(name, silent, age or 0.0)


def ended(project: Project, name: str) -> None:
    """Where a container has ended, say how."""
    form = "--format={{.State.Status}} {{.State.ExitCode}} {{.State.OOMKilled}}"
    state, status, killed = [*project.engine.call("inspect", form, name)[1].split(), "", "", ""][:3]
    if state == "exited":
        say(f"{name} ended with status {status}" + (": it ran out of memory." if killed == "true" else "."))


def stop(project: Project) -> int:
    """End everything of this project. Programs get a minute to save; runs stay for `logs`, and VS Code's container."""
    worked = queue.stop(project.root, project.dry)
    ours = own(project) + compose.all_of(project)
    alive = [found.name for found in ours + vscode(project) if found.running]
    seconds = "75" if any(found.role == "jobs" for found in ours) else "60"  # the service ends what has not saved
    if project.dry:
        return int(not all(project.show("stop", "-t", seconds, name) for name in alive))
    if alive:
        say(f"Stopping {', '.join(alive)}: programs have one minute to save.")
        project.engine.get("stop", "-t", seconds, *alive)
    gone = [found.name for found in ours if found.role != "run"]
    if gone:
        project.engine.call("rm", *gone)
    if not alive and not worked:
        say("Nothing of this project is running.")
    return 0
