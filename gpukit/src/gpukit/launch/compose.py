"""Projects with a second service: `up` is Docker Compose's, from the same facts."""

from __future__ import annotations

import json
import os
import re
import time

from gpukit.errors.known import match_signs
from gpukit.host import podman
from gpukit.host.memory import VARIABLE
from gpukit.host.preflight import preflight
from gpukit.host.project import Project, secret
from gpukit.host.queue import TOKEN, is_service
from gpukit.launch.found import ALIVE, Found, listed
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, enumerated, say

SECONDS = 120  # to wait for the services; one that takes longer goes on starting
LINES = 10  # of the log of a service that has failed


def there(project: Project) -> bool:
    return (project.root / "compose.yaml").is_file() and not is_adopted(project.root)


def name(project: Project) -> str:
    """Compose's name for this folder, which initialize.sh writes into .env."""
    return project.env.get("COMPOSE_PROJECT_NAME") or project.slug


def override(project: Project) -> str:
    """What compose.yaml cannot say: several GPUs out of one variable, and a host user who is root."""
    lines = []
    if project.gpus and "," in project.gpus and any(flag.startswith("--gpus") for flag in project.config.run_args):
        lines += ["    deploy:", "      resources:", "        reservations:", "          devices: !override"]
        lines += [f"            - {{capabilities: [gpu], device_ids: {json.dumps(project.gpus.split(','))}}}"]
    if project.as_root:
        home = f"/home/{project.config.remote_user or 'dev'}"
        lines += ['    user: "0:0"', "    environment:", f"      HOME: {json.dumps(home)}"]
    parts = [part for service in ["dev"] + ["jobs"] * is_service(project.root) for part in (f"  {service}:", *lines)]
    return "\n".join(["services:", *parts, ""]) if lines else ""


def variables(project: Project) -> dict[str, str]:
    """What compose.yaml reads from the environment and who calls launch need not have set."""
    found = {"USER_UID": str(os.getuid()), "USER_GID": str(os.getgid())}
    if project.cpu and not project.env.get("GPUS"):
        found["GPUS"] = "none"  # compose.yaml may insist on one, though compose.cpu.yaml takes the request away
    if project.fraction:
        found[VARIABLE] = project.env[VARIABLE]
    return found


def command(project: Project, *arguments: str) -> list[str]:
    files = ["compose.yaml"] + ["compose.cpu.yaml"] * project.cpu
    extra = ["--file=-"] if override(project) else []
    return ["compose", *(f"--file={project.root / file}" for file in files), *extra, *arguments]


def up_on_podman(project: Project) -> None:
    """Start the trackers, beside the container that `podman run` starts: requests for GPUs are dropped in silence.

    https://github.com/containers/podman/issues/19338 (2026-11-26)
    """
    project.engine.env.update(variables(project), COMPOSE_PROJECT_NAME=name(project), **podman.COMPOSE)
    code, listed, errors = project.engine.call(
        *command(project, "config", "--services"), stdin=override(project).encode()
    )
    if code:
        raise refusal(project, errors)
    servers = sorted({*listed.split()} - {"dev", "jobs"})
    if is_service(project.root):
        say(
            "Podman's Compose requests no GPU, so the service `jobs` is not started: `./launch jobs run` does its work."
        )
    if not servers:
        return
    say(f"Starting {enumerated(servers)}: each is listed as soon as it responds.")
    start = command(project, "up", "--detach", "--no-deps", *servers)
    code, output = project.engine.stream(*start, stdin=override(project).encode())
    if code:
        raise refusal(project, output)
    if failed := wait(project):
        raise RefusalError(f"{enumerated(failed)} failed: `./launch logs {failed[0]}` shows its whole log.")


def up(project: Project) -> str:
    build = command(project, "build")
    start = command(project, "up", "--detach", "--no-build")
    if project.show_start(*build, stdin=override(project), env=variables(project)):
        project.show(*start, stdin=override(project), env=variables(project))
        return ""
    project.engine.check()
    project.prepare()
    project.engine.env.update(variables(project), COMPOSE_PROJECT_NAME=name(project))
    preflight(project)  # better now than after the build
    before = [found.name for found in all_of(project) if found.running]
    servers = services(project)
    failed: list[str] = []
    try:
        say(f"Building the images of {enumerated(['the project', *servers])}, where they are not built yet.")
        code, output = project.engine.stream(*build, stdin=override(project).encode())
        if not code:
            say(f"Starting {enumerated(['the container', *servers])}: each is listed as soon as it responds.")
            code, output = project.engine.stream(*start, stdin=override(project).encode())
        if not code:
            failed = wait(project)
    except BaseException:
        undo(project, before)
        raise
    if code:
        undo(project, before)
        raise refusal(project, output)
    if failed:
        advice = f"`./launch logs {failed[0]}` shows its whole log, `./launch stop` stops what is running"
        raise RefusalError(f"{enumerated(failed)} failed: {advice}.")
    return running(project)[0].name


def wait(project: Project) -> list[str]:
    """Say of each service when it responds, and where; those that failed."""
    containers = project.engine.call(*command(project, "ps", "--all", "--quiet"), stdin=override(project).encode())[1]
    form = "{{.Name}},{{.State.Status}},{{.State.ExitCode}},{{.RestartCount}}"
    form += ',{{if .State.Health}}{{.State.Health.Status}}{{end}},{{index .Config.Labels "com.docker.compose.service"}}'
    until = time.monotonic() + SECONDS
    reported = set[str]()
    failed = list[str]()
    while True:
        starting = {}
        found = project.engine.call("inspect", f"--format={form}", *containers.split())[1]
        for row in found.splitlines():
            name, *facts, service = row.split(",")
            state = state_of(*facts)
            if state == "starting":
                starting[service] = name.lstrip("/")
            elif name not in reported:
                reported.add(name)
                if not report(project, name.lstrip("/"), service, state):
                    failed.append(service)
        if not starting:
            return failed
        if time.monotonic() > until:
            for service, name in starting.items():
                places = addresses(project, name, service)
                place = f"{places} does not respond yet" if places else "still starting"
                say(f"  {service}: {place}; `./launch logs -f {service}` shows its output")
            return failed
        time.sleep(1)


def state_of(status: str, code: str, restarts: str, health: str) -> str:
    """`up`, `starting`, or how it ended. One that runs and is unhealthy may only be slow."""
    if status == "restarting" or (health == "starting" and restarts != "0"):
        return f"ended with status {code}, and is restarted again and again"
    if status in ("exited", "dead"):
        return f"ended with status {code}"
    if status == "created":
        return "starting"
    return "up" if health in ("", "healthy") else "starting"


def report(project: Project, name: str, service: str, state: str) -> bool:
    """Print a service's state and address; whether all is well with it."""
    if state == "up":
        found = addresses(project, name, service)
        if service == "dev":
            say(f"  {name} is up: `./launch shell` opens a shell in it, `./launch stop` stops all of them")
        if found or service != "dev":
            say(f"  {service}: {found or 'up'}")
        return True
    if state == "ended with status 0":  # as it was meant to: what is restarted has another state
        say(f"  {service}: {state}")
        return True
    _, output, errors = project.engine.call("logs", f"--tail={LINES}", name)
    say(f"  {service}: {state}; the end of its log:")
    for line in [*output.splitlines(), *errors.splitlines()][-LINES:]:
        say(f"    {line}")
    return False


def addresses(project: Project, name: str, service: str) -> str:
    """Where a service responds on this machine; "" if nowhere."""
    token = f"/#{secret(project.root / TOKEN)}" if service == "jobs" else ""
    return " ".join(f"http://localhost:{port}{token}" for port in ports(project, name))


def services(project: Project) -> list[str]:
    """Those beside the container."""
    listed = project.engine.call(*command(project, "config", "--services"), stdin=override(project).encode())[1]
    return sorted({*listed.split()} - {"dev"}) or ["its services"]


def undo(project: Project, before: list[str]) -> None:
    """After an `up` that failed: nothing stays of it; what ran before does."""
    if not before:
        project.engine.call(*command(project, "down", "--timeout=5"), stdin=override(project).encode())
    for found in all_of(project):
        if not found.running:  # half made
            project.engine.call("rm", found.name)


def refusal(project: Project, output: str) -> RefusalError:
    """Why the services cannot start; of a port that is taken also its number, and the variable that moves it."""
    found = project.engine.explain(output, f"{project.engine.title} Compose cannot start the services")
    taken = match_signs(output, "port-allocated")
    port = next(filter(None, taken.groups()), "") if taken else ""
    if not port:
        return found
    text = (project.root / "compose.yaml").read_text(encoding="utf-8")
    for variable, default in re.findall(r"\$\{(\w+):?-(\d+)\}:\d+", text):
        if (project.env.get(variable) or default) == port:
            moved = f"{variable}={int(port) + 1} {project.launch('up')}"
            return _taken(f"Port {port} is in use on this machine: choose another with `{moved}` (or in .env).")
    return _taken(f"Port {port} is in use on this machine: choose another in compose.yaml.")


def _taken(message: str) -> RefusalError:
    return RefusalError(message, kind="port", id="port-in-use")


def all_of(project: Project) -> list[Found]:
    """Compose's containers of this folder; their role is their service. Those of an adopted repository are its own."""
    if is_adopted(project.root):
        return []
    label = "com.docker.compose.project.working_dir"
    rows = listed(project, label, '{{.Label "com.docker.compose.service"}}', f'{{{{.Label "{label}"}}}}')
    # by folder, however its path was written: a copy of this project has the same name until its first start
    ours = [row for row in rows if os.path.realpath(row[3]) == str(project.root)]
    return [Found(row[0], row[1] in ALIVE, row[2]) for row in ours]


def running(project: Project) -> list[Found]:
    return [found for found in all_of(project) if found.role == "dev" and found.running]


def ports(project: Project, name: str) -> list[str]:
    """A container's ports on this machine."""
    listed = project.engine.call("port", name)[1]
    return [*dict.fromkeys(re.findall(r"/tcp -> .*:(\d+)$", listed, re.MULTILINE))]
