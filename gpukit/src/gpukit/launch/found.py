"""Containers of this project, whoever started them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gpukit.host.project import CPU, MAIN, Project
from gpukit.project.location import is_adopted

ALIVE = ("running", "paused", "restarting")


class Found(NamedTuple):
    name: str
    running: bool
    role: str
    cpu: bool = False  # known of VS Code's only


def listed(project: Project, label: str, *fields: str) -> list[list[str]]:
    """Name, state and these fields of all containers with a label, newest first."""
    form = "--format=" + "\t".join(["{{.Names}}", "{{.State}}", *fields])
    output = project.engine.get("ps", "--all", f"--filter=label={label}", form)
    rows = [line.split("\t") for line in output.splitlines()]
    return rows[::-1] if project.engine.podman else rows  # it lists the oldest first


def own(project: Project) -> list[Found]:
    rows = listed(project, project.label, '{{.Label "gpukit.role"}}')
    return [Found(name, state in ALIVE, role) for name, state, role in rows]


def vscode(project: Project) -> list[Found]:
    """VS Code's containers of this folder, however its path was written; of the chosen configuration first.

    Of an adopted repository, only those of our configurations: it may have its own.
    """
    labels = ('{{.Label "devcontainer.local_folder"}}', '{{.Label "devcontainer.config_file"}}')
    rows = listed(project, "devcontainer.local_folder", *labels)
    ours = [row for row in rows if os.path.realpath(row[2]) == str(project.root)]
    main = project.located(MAIN).parent.name
    without_gpu = project.located(CPU).parent.name
    if is_adopted(project.root):
        ours = [row for row in ours if Path(row[3]).parent.name in (main, without_gpu)]
    ours.sort(key=lambda row: os.path.realpath(row[3]) != str(project.config.path))
    return [Found(row[0], row[1] in ALIVE, "vscode", Path(row[3]).parent.name == without_gpu) for row in ours]
