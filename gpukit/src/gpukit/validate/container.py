"""How a container runs, as read from devcontainer.json or from a compose file."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpukit.project.flags import gpus, mount_fields, options, short_volume, size, ulimit


class Mount(NamedTuple):
    type: str
    source: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.type} of {self.source or 'nothing named'}, {'read-only' if self.read_only else 'writable'}"


@dataclass
class Container:
    """How a container runs, from either file. A variable with the value None is passed from the host by name."""

    gpu: str = ""
    runtime: str = ""
    ipc: str = "private"
    shm_size: int | None = None
    ulimits: dict[str, str] = field(default_factory=dict)
    init: bool = False
    user: str = ""
    network: str = ""
    external: bool = True  # whether the network is there before
    mounts: dict[str, Mount] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    build_args: dict[str, str] = field(default_factory=dict)
    ports: list[str] = field(default_factory=list)


def from_devcontainer(config: Any) -> Container:
    """A container from launch's reading of devcontainer.json."""
    container = Container(init=config.init, user=config.remote_user, build_args=dict(config.build_args))
    container.env.update(config.env_files)
    container.env.update({k: None if k in config.by_name else v for k, v in config.container_env.items()})
    mounts = [config.workspace_mount, *config.mounts]
    for option, value in options(config.run_args):
        if option == "--gpus":
            container.gpu = gpus(value)
        elif option == "--device" and value.startswith("nvidia.com/gpu="):
            container.gpu = ",".join(filter(None, (container.gpu, value.partition("=")[2])))
        elif option == "--runtime":
            container.runtime = value
        elif option == "--ipc":
            container.ipc = value
        elif option == "--shm-size":
            container.shm_size = size(value)
        elif option == "--ulimit":
            name, _, limit = value.partition("=")
            container.ulimits[name] = ulimit(limit)
        elif option == "--init":
            container.init = value != "false"
        elif option == "--network":
            container.network = value
        elif option == "--env":
            name, equals, text = value.partition("=")
            container.env[name] = text if equals else None
        elif option in ("--publish", "--publish-all"):
            container.ports.append(value if option == "--publish" else "by --publish-all")
        elif option == "--mount":
            mounts.append(mount_fields(value))
        elif option == "--volume":
            mounts.append(short_volume(value))
    for mount in filter(None, mounts):
        source = os.path.normpath(mount["source"]) if mount["type"] == "bind" else mount["source"]
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, bool(mount["readonly"]))
    return container
