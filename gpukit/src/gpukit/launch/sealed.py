"""`--no-credentials`: the project's container without what lets a program act as its user.

It has a checkout of the code instead of the project's folder, which holds .env, git's configuration, and tokens; no
variables of the host, no caches, and no cloud folders. Only the checkout, outputs/, /tmp, and the home directory can be
written; the last two are in memory. A container is not a virtual machine: it shares the kernel and the GPU's driver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpukit.host import frozen
from gpukit.host.project import Project
from gpukit.project import devcontainer, flags
from gpukit.project.devcontainer import mount_argument

# Why an adopted repository cannot be sealed.
UNKNOWN = (
    "--no-credentials keeps secrets from a program, and what git ignores in this repository may be data or secrets: "
    "leave it out, or run the program in a generated project."
)
# what a container is without
CREDENTIALS = "credentials"
NETWORK = "network"
# Variables of the host that configurations may contain.
HARMLESS = ("HOME", "USER", "GPUS", "GPUKIT_MEMORY_FRACTION", "BASE_IMAGE", "UV_INDEX", "UV_HTTP_TIMEOUT")
# Of runArgs: how the container computes. All others may give access to files, networks, or privileges of the host.
KEPT = ("--gpus", "--runtime", "--ipc", "--shm-size", "--ulimit", "--memory", "--cpus", "--cpuset-cpus", "--network")


def container_flags(project: Project, name: str, role: str) -> list[str]:
    """What a container without credentials gets; `project.code` is its checkout."""
    own = {name: value for name, value in project.env.items() if name in HARMLESS}
    config = devcontainer.load(project.config.path, own, project.root)
    target = config.workspace_folder
    found = [f"--name={name}", f"--label={project.label}", f"--label=gpukit.role={role}"]
    places = {target: project.code, f"{target}/outputs": project.root / "outputs"}
    mounts = [{"source": str(source), "target": place, "readonly": False} for place, source in places.items()]
    data = [{"source": str(project.root / name), "target": f"{target}/{name}"} for name in frozen.SHARED[1:]]
    data += [
        mount for mount in config.mounts if mount["readonly"] and is_data(mount, Path(project.env.get("HOME", "/")))
    ]
    mounts += [{**mount, "readonly": True} for mount in data]
    found += [f"--mount={mount_argument({'type': 'bind', 'options': (), **mount})}" for mount in mounts]
    constant = {**config.container_env, **config.remote_env}
    found += [f"--env={key}={value}" for key, value in constant.items() if key not in config.by_name]
    found += [f"--user={config.remote_user}"] if config.remote_user else []
    sealed_off = NETWORK in project.sealed
    for option, value in flags.options(config.run_args):
        if option in KEPT and not (sealed_off and option == "--network"):
            found.append(f"{option}={value}")
    home = f"/home/{config.remote_user or 'dev'}"
    found += ["--network=none"] * sealed_off + ["--init"] * config.init + [f"--workdir={target}"]
    found += ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    found += [f"--tmpfs={place}:exec,mode=1777" for place in ("/tmp", home)]
    return found + (["--user=0:0", f"--env=HOME={home}"] if project.as_root else [])


def is_data(mount: dict[str, Any], home: Path) -> bool:
    """Whether a mount is a folder of data: no part of its path is hidden, and it does not contain `home`."""
    source = Path(mount["source"])
    hidden = any(part.startswith(".") for part in source.parts)
    everything = source == home or source in home.parents
    return source.is_dir() and not hidden and not everything and not mount["target"].startswith(("/home", "/root"))
