"""Which engine launch uses: Docker or Podman."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from gpukit.project.messages import RefusalError

ENGINES = {"docker": "Docker", "podman": "Podman"}


def choose(env: Mapping[str, str]) -> str:
    """docker or podman: what GPUKIT_ENGINE names; otherwise Docker, unless it is Podman's shim; otherwise Podman.

    Raises:
        RefusalError: GPUKIT_ENGINE names something else.
    """
    named = env.get("GPUKIT_ENGINE", "")
    if named and named not in ENGINES:
        raise RefusalError(f"GPUKIT_ENGINE is {named!r}: it must be `docker` or `podman`.")
    if named:
        return named
    docker = shutil.which("docker", path=env.get("PATH"))
    if docker and not is_shim(docker):
        return "docker"
    return "podman" if shutil.which("podman", path=env.get("PATH")) else "docker"


def is_shim(docker: str) -> bool:
    """Whether this `docker` runs Podman: a link to it, or the script of the package podman-docker."""
    path = Path(docker)
    if path.resolve().name == "podman":
        return True
    with contextlib.suppress(OSError), path.open("rb") as file:
        head = file.read(1024)
        return head.startswith(b"#!") and b"podman" in head
    return False


def known(env: Mapping[str, str]) -> str:
    """The same where a wrong GPUKIT_ENGINE is not refused."""
    try:
        return choose(env)
    except RefusalError:
        return "docker"
