"""Docker's client and the engine behind it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from gpukit.checks import check
from gpukit.doctor.host import Answer
from gpukit.finding import Finding, failed, passed, warned
from gpukit.stack import Stack, version

OLDEST = "23.0"  # the first whose `docker build` is BuildKit, which the Dockerfile's cache mounts need
INSTALL = {
    "linux": "Install Docker Engine: https://docs.docker.com/engine/install/",
    "wsl": "Install Docker Desktop on Windows and switch on its WSL integration for this distribution.",
    "macos": "Install Docker Desktop: https://docs.docker.com/desktop/setup/install/mac-install/",
    "windows": "Open this project in WSL 2 and run `./launch doctor` there.",
}
START = {
    "linux": "sudo systemctl start docker",
    "wsl": "Start Docker Desktop on Windows.",
    "macos": "Start Docker Desktop.",
    "windows": "Open this project in WSL 2 and run `./launch doctor` there.",
}
PODMAN = "Podman answers here. It takes the GPU request and the mounts of this project differently."
NOT_PODMAN = "Install Docker Engine beside it: https://docs.docker.com/engine/install/"


def facts(info: Answer) -> dict[str, Any]:
    """What `docker info` said, empty where the engine did not answer."""
    try:
        said = json.loads(info.out)
    except ValueError:
        return {}
    return said if isinstance(said, dict) and said.get("ServerVersion") else {}


def complaint(info: Answer) -> str:
    """What it said instead."""
    said = info.err.strip()
    with contextlib.suppress(ValueError, AttributeError):
        said = said or " ".join(json.loads(info.out).get("ServerErrors") or [])
    return said


def remote(endpoint: str) -> bool:
    """Whether the engine is on another machine, whose disks, folders and driver cannot be seen from here."""
    return endpoint.startswith(("tcp://", "ssh://", "http://", "https://"))


def desktop(said: dict[str, Any]) -> bool:
    return "Docker Desktop" in said.get("OperatingSystem", "")


@check("client", "Docker client")
def client(saw: Any, stack: Stack) -> Finding:
    """Every entrance calls `docker`."""
    said = (saw.client.out + saw.client.err).strip()
    if saw.client.late:
        return failed(said, cause="`docker` does not return.", remedy="docker --version")
    if saw.client.code is None:
        return failed("not found", "docker on the PATH", cause="Docker is not installed.", remedy=INSTALL[saw.system])
    if "podman" in said.lower():
        return failed("Podman, as `docker`", "Docker", cause=PODMAN, remedy=NOT_PODMAN)
    if saw.client.code != 0:
        return failed(said, "a version", cause="`docker` is there and does not work.", remedy=INSTALL[saw.system])
    return passed(saw.client.out)


@check("engine", "Docker engine", needs=("client",))
def engine(saw: Any, stack: Stack) -> Finding:
    """It must answer, to this user, and be Docker with root's daemon."""
    said = facts(saw.info)
    if not said:
        return _silent(complaint(saw.info), saw)
    name = f"Docker {said['ServerVersion']} on {said.get('OperatingSystem', 'an unknown system')}"
    if "podman" in saw.server.out.lower() or "containers/storage" in said.get("DockerRootDir", ""):
        return failed("Podman, through Docker's client", "Docker", cause=PODMAN, remedy=NOT_PODMAN)
    if said.get("OSType", "linux") != "linux":
        return failed(
            f"{name}, for {said['OSType']} containers",
            "Linux containers",
            cause="Docker Desktop is set to Windows containers.",
            remedy="Choose 'Switch to Linux containers' in Docker Desktop's menu.",
        )
    if "name=rootless" in (said.get("SecurityOptions") or []):
        return warned(
            f"{name}, rootless",
            "root's daemon",
            cause="In a rootless engine your user is root inside, and the GPU needs extra set-up.",
            remedy="docker context use default",
        )
    if version(said["ServerVersion"]) < version(OLDEST):
        return warned(
            name,
            f"{OLDEST} or newer",
            cause="This engine's builder does not know the cache mounts of the Dockerfile.",
            remedy="Update Docker: https://docs.docker.com/engine/install/",
        )
    return passed(name)


def _silent(said: str, saw: Any) -> Finding:
    """The engine did not answer: why."""
    text, where = said.lower(), saw.endpoint or "its socket"
    if saw.info.late:
        away = remote(saw.endpoint)
        return failed(
            f"{where}: {said}",
            "an answer",
            cause="The other machine cannot be reached." if away else "The engine hangs.",
            remedy="docker context ls" if away else "sudo systemctl restart docker",
        )
    if "permission denied" in text:
        return failed(
            f"{where}: permission denied",
            "an answer",
            cause="You are not in the group `docker`, or not yet in this login.",
            remedy='sudo usermod -aG docker "$USER", then log out and in again',
        )
    if "context" in text and "not found" in text:
        return failed(
            said, "an answer", cause="The chosen context does not exist.", remedy="docker context use default"
        )
    if remote(saw.endpoint) or "error during connect" in text:
        return failed(
            f"{where}: {said}", "an answer", cause="The other machine cannot be reached.", remedy="docker context ls"
        )
    if any(words in text for words in ("cannot connect", "failed to connect", "connection refused", "no such file")):
        return failed(f"{where}: nobody there", "an answer", cause="Docker is not running.", remedy=START[saw.system])
    return failed(
        said or "no answer", "an answer", cause="The client could not talk to the engine.", remedy="docker info"
    )
