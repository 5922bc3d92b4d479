"""Projects with a second service: `up` is Docker Compose's, from the same facts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from .errors import explain
from .preflight import preflight
from .project import Project, say

if TYPE_CHECKING:
    from .container import Found


def there(project: Project) -> bool:
    return (project.root / "compose.yaml").is_file()


def override(project: Project) -> str:
    """What compose.yaml cannot say: several GPUs out of one variable, and a host user who is root."""
    lines = []
    if project.gpus and "," in project.gpus and any(flag.startswith("--gpus") for flag in project.config.run_args):
        lines += ["    deploy:", "      resources:", "        reservations:", "          devices: !override"]
        lines += [f"            - {{capabilities: [gpu], device_ids: {json.dumps(project.gpus.split(','))}}}"]
    if project.as_root:
        home = f"/home/{project.config.remote_user or 'dev'}"
        lines += ['    user: "0:0"', "    environment:", f"      HOME: {json.dumps(home)}"]
    return "\n".join(["services:", "  dev:", *lines, ""]) if lines else ""


def command(project: Project, *arguments: str) -> list[str]:
    files = ["compose.yaml"] + ["compose.cpu.yaml"] * project.cpu
    extra = ["--file=-"] if override(project) else []
    return ["compose", *(f"--file={project.root / file}" for file in files), *extra, *arguments]


def up(project: Project) -> str:
    arguments = command(project, "up", "--detach", "--build")
    if project.show(*arguments, stdin=override(project)):
        return ""
    project.engine.check()
    project.engine.env.update(USER_UID=str(os.getuid()), USER_GID=str(os.getgid()))
    project.prepare()
    preflight(project)  # better now than after the build
    code, said = project.engine.stream(*arguments, stdin=override(project).encode())
    if code:
        for found in all_of(project):
            if not found.running:  # half made
                project.engine.ask("rm", found.name)
        raise explain(said, "Docker Compose cannot start the services", project.engine.cpu_helps)
    name = running(project)[0].name
    say(f"{name} is up with its services: `./launch shell` enters it, `./launch stop` ends them.")
    return name


def all_of(project: Project) -> list[Found]:
    """Compose's containers of this folder; their role is their service."""
    from .container import listed

    label = f"com.docker.compose.project.working_dir={project.root}"
    return listed(project, label, role='{{.Label "com.docker.compose.service"}}')


def running(project: Project) -> list[Found]:
    return [found for found in all_of(project) if found.role == "dev" and found.running]
