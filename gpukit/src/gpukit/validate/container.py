"""How a container runs, as read from devcontainer.json or from a compose file."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpukit.project import flags
from gpukit.project.devcontainer import Config, ConfigError, env_file

BY_NAME = "the host's"  # the value of a variable that is passed by name


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
    mounts: dict[str, Mount] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    build_args: dict[str, str] = field(default_factory=dict)
    ports: list[str] = field(default_factory=list)

    def settings(self) -> dict[str, Any]:
        """What must be the same in both files, by the place in compose.yaml."""
        user = self.user if not self.user.isdecimal() or self.user == "0" else ""  # another number is the host user's
        return {
            "deploy": " by ".join(filter(None, [self.gpu or "none", self.runtime])),
            "ipc": self.ipc,
            "shm_size": self.shm_size,
            "init": self.init,
            "networks": self.network,
            **({"user": user} if user else {}),
            **{f"ulimits/{name}": limit for name, limit in self.ulimits.items()},
            **{f"volumes/{target}": str(mount) for target, mount in self.mounts.items()},
            **{
                f"environment/{name}": BY_NAME if value is None else value
                for name, value in self.env.items()
                if value != ""
            },
            **{f"build/args/{name}": value for name, value in self.build_args.items() if value != ""},
        }


def from_devcontainer(config: Config) -> Container:
    """A container from launch's reading of devcontainer.json."""
    container = Container(init=config.init, user=config.remote_user, build_args=dict(config.build_args))
    for path in config.env_file_paths:
        with contextlib.suppress(ConfigError):  # it is not on this machine
            container.env.update(env_file(path))
    container.env.update({k: None if k in config.by_name else v for k, v in config.container_env.items()})
    mounts = [config.workspace_mount, *config.mounts]
    for option, value in flags.options(config.run_args):
        if option == "--gpus":
            container.gpu = flags.gpus(value)
        elif option == "--device" and value.startswith("nvidia.com/gpu="):
            container.gpu = ",".join(filter(None, (container.gpu, value.partition("=")[2])))
        elif option == "--runtime":
            container.runtime = value
        elif option == "--ipc":
            container.ipc = value
        elif option == "--shm-size":
            container.shm_size = flags.size(value)
        elif option == "--ulimit":
            name, _, limit = value.partition("=")
            container.ulimits[name] = flags.ulimit(limit)
        elif option == "--init":
            container.init = value != "false"
        elif option == "--network":
            container.network = value
        elif option == "--user":
            container.user = value.partition(":")[0]
        elif option == "--env":
            name, equals, text = value.partition("=")
            container.env[name] = text if equals else None
        elif option in ("--publish", "--publish-all"):
            container.ports.append(value if option == "--publish" else "by --publish-all")
        elif option == "--mount":
            mounts.append(flags.long_mount(value))
        elif option == "--volume":
            mounts.append(flags.short_mount(value))
    for mount in filter(None, mounts):
        source = os.path.normpath(mount["source"]) if mount["type"] == "bind" else mount["source"]
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, bool(mount["readonly"]))
    return container
