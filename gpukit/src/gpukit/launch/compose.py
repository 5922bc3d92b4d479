"""Projects with a second service: `up` is Docker Compose's, from the same facts."""

from __future__ import annotations

import json
import os
import re

from gpukit.errors.known import match_rules
from gpukit.host.memory import VARIABLE
from gpukit.host.preflight import preflight
from gpukit.host.project import Project, secret
from gpukit.host.queue import TOKEN
from gpukit.launch.found import ALIVE, Found, listed
from gpukit.project.messages import RefusalError, say

SECONDS = 120  # in which the servers must answer


def there(project: Project) -> bool:
    return (project.root / "compose.yaml").is_file()


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
    parts = [part for service in ["dev"] + ["jobs"] * has_jobs(project) for part in (f"  {service}:", *lines)]
    return "\n".join(["services:", *parts, ""]) if lines else ""


def has_jobs(project: Project) -> bool:
    """Whether the queue is one of the services, on the same image and GPUs."""
    path = project.root / "compose.yaml"
    return path.is_file() and bool(re.search(r"^  jobs:", path.read_text(encoding="utf-8"), re.MULTILINE))


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


def up(project: Project) -> str:
    build = command(project, "build")
    start = command(project, "up", "--detach", "--no-build", "--wait", f"--wait-timeout={SECONDS}")
    if project.show_start(*build, stdin=override(project), env=variables(project)):
        project.show(*start, stdin=override(project), env=variables(project))
        return ""
    project.engine.check()
    project.prepare()
    project.engine.env.update(variables(project), COMPOSE_PROJECT_NAME=name(project))
    preflight(project)  # better now than after the build
    before = [found.name for found in all_of(project) if found.running]
    servers = " and ".join(services(project))
    try:
        say(f"Building the images of the project and of {servers}, where they are not built yet.")
        code, output = project.engine.stream(*build, stdin=override(project).encode())
        if not code:
            say(f"Starting the container and waiting for {servers} to respond, for up to {SECONDS} s.")
            code, output = project.engine.stream(*start, stdin=override(project).encode())
    except BaseException:
        undo(project, before)
        raise
    if code:
        late = late_servers(project) if match_rules(output, "unhealthy") else []
        if late:
            advice = f"`./launch logs {late[0]}` shows why, `./launch stop` stops what is running"
            raise RefusalError(f"{' and '.join(late)} did not respond within {SECONDS} s: {advice}.")
        undo(project, before)
        raise refusal(project, output)
    container = running(project)[0].name
    say(f"{container} is up with its services: `./launch shell` opens a shell in it, `./launch stop` stops them.")
    for service, port in published(project):
        token = f"/#{secret(project.root / TOKEN)}" if service == "jobs" else ""
        say(f"  {service}: http://localhost:{port}{token}")
    return container


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
    found = project.engine.explain(output, "Docker Compose cannot start the services")
    taken = match_rules(output, "port-allocated")
    port = next(filter(None, taken.groups()), "") if taken else ""
    if not port:
        return found
    text = (project.root / "compose.yaml").read_text(encoding="utf-8")
    for variable, default in re.findall(r"\$\{(\w+):?-(\d+)\}:\d+", text):
        if (project.env.get(variable) or default) == port:
            moved = f"{variable}={int(port) + 1} ./launch up"
            return _taken(f"Port {port} is in use on this machine: choose another with `{moved}` (or in .env).")
    return _taken(f"Port {port} is in use on this machine: choose another in compose.yaml.")


def _taken(message: str) -> RefusalError:
    return RefusalError(message, kind="port", id="port-in-use")


def all_of(project: Project) -> list[Found]:
    """Compose's containers of this folder; their role is their service."""
    label = "com.docker.compose.project.working_dir"
    rows = listed(project, label, '{{.Label "com.docker.compose.service"}}', f'{{{{.Label "{label}"}}}}')
    # by folder, however its path was written: a copy of this project has the same name until its first start
    ours = [row for row in rows if os.path.realpath(row[3]) == str(project.root)]
    return [Found(row[0], row[1] in ALIVE, row[2]) for row in ours]


def running(project: Project) -> list[Found]:
    return [found for found in all_of(project) if found.role == "dev" and found.running]


def published(project: Project) -> list[tuple[str, str]]:
    """The running services that have a port on this machine, and that port."""
    found = []
    for one in sorted(all_of(project), key=lambda one: one.role):
        ports = project.engine.call("port", one.name)[1] if one.running else ""
        found += [(one.role, port) for port in dict.fromkeys(re.findall(r"/tcp -> .*:(\d+)$", ports, re.MULTILINE))]
    return found


def late_servers(project: Project) -> list[str]:
    """The running services whose health check has not passed yet."""
    form = "--format={{if .State.Health}}{{.State.Health.Status}}{{end}}"
    states = [(one.role, project.engine.call("inspect", form, one.name)[1].strip()) for one in all_of(project)]
    return [role for role, state in states if state in ("starting", "unhealthy")]
