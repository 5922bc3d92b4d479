"""Docker's client and its engine."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

from gpukit.errors.known import known_cause, lookup
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed
from gpukit.host.engine import remote
from gpukit.host.process import Result, hide_home
from gpukit.project.stack import Stack, version

MIN_VERSION = "23.0"  # from here on, `docker build` uses BuildKit, which the Dockerfile's cache mounts need
ENGINE_IS_REMOTE = "The engine is on another machine, which cannot be checked from here."
INSTALL = {
    "linux": "Install Docker Engine: `./launch setup` shows the commands, and runs them with --apply.",
    "wsl": "Install Docker Desktop on Windows and enable its WSL integration for this distribution.",
    "macos": "Install Docker Desktop: https://docs.docker.com/desktop/setup/install/mac-install/",
    "windows": "Install WSL 2 with `wsl --install`, and work there.",
}
START = {
    "linux": "`sudo systemctl start docker`",
    "wsl": "Start Docker Desktop on Windows.",
    "macos": "Start Docker Desktop.",
    "windows": "Install WSL 2 with `wsl --install`, and work there.",
}
NOT_INSTALLED = Cause(
    "docker-not-installed", "Docker is not installed.", INSTALL["linux"], ("docker: command not found",)
)
WSL_INTEGRATION = Cause(
    "wsl-integration",
    "Docker Desktop is not enabled for this WSL distribution.",
    "Enable this distribution in Docker Desktop: Settings, Resources, WSL integration.",
    ("The command 'docker' could not be found in this WSL 2 distro.",),
)
CLIENT_HANGS = Cause("docker-client-hangs", "`docker` does not return.", "`docker --version`")
CLIENT_BROKEN = Cause("docker-client-broken", "`docker` is installed but does not work.", INSTALL["linux"])
PODMAN = "`docker` is Podman here, which handles requests for GPUs and mounts differently."
IS_PODMAN = Cause("docker-is-podman", PODMAN, "Also install Docker Engine: https://docs.docker.com/engine/install/")
NOT_RUNNING = Cause(
    "docker-down",
    "Docker is not running.",
    START["linux"],
    (
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        "failed to connect to the docker API at unix:///var/run/docker.sock",
    ),
)
PERMISSION_DENIED = Cause(
    "docker-denied",
    "You are not in the group `docker`, or you joined it after logging in.",
    '`sudo usermod -aG docker "$USER"`, then log out and in again',
    ("permission denied while trying to connect to the Docker daemon socket",),
)
HANGS = Cause("docker-hangs", "The engine does not respond.", "`sudo systemctl restart docker`")
UNREACHABLE = Cause(
    "docker-host-silent",
    "The machine that runs the engine cannot be reached.",
    "`docker context ls`",
    ("error during connect",),
)
NO_CONTEXT = Cause(
    "docker-context", "The chosen context does not exist.", "`docker context use default`", ("context not found",)
)
CLIENT_TOO_OLD = Cause(
    "client-too-old",
    "The Docker client is too old for this engine.",
    "Update Docker's client: https://docs.docker.com/engine/install/",
    ("client version 1.41 is too old. Minimum supported API version is 1.44",),
)
UNKNOWN = Cause("docker-unknown-error", "The client could not talk to the engine.", "`docker info`")
WINDOWS_CONTAINERS = Cause(
    "windows-containers",
    "Docker Desktop is set to Windows containers.",
    "Choose 'Switch to Linux containers' in Docker Desktop's menu.",
)
DESKTOP_ON_LINUX = Cause(
    "docker-desktop-on-linux",
    "Docker Desktop for Linux runs containers in a virtual machine, which has no GPU.",
    "`docker context use default`, which is Docker Engine where that is installed as well",
)
ROOTLESS = Cause(
    "docker-rootless",
    "The engine is rootless: your user is root in the container, and GPUs need extra setup.",
    "`docker context use default`",
    status=WARN,
)
BUILDER_TOO_OLD = Cause(
    "docker-builder-too-old",
    "This engine's builder does not support the cache mounts in the Dockerfile.",
    "Update Docker: https://docs.docker.com/engine/install/",
    ("the --mount option requires BuildKit",),
    status=WARN,
)


def facts(info: Result) -> dict[str, Any]:
    """The output of `docker info`; empty if the engine did not respond."""
    try:
        found = json.loads(info.out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("ServerVersion") else {}


def failure(info: Result) -> str:
    """The error message of `docker info`."""
    message = info.err.strip()
    with contextlib.suppress(ValueError, AttributeError):
        message = message or " ".join(json.loads(info.out).get("ServerErrors") or [])
    return hide_home(message or info.out.strip())


def hide_host(text: str, endpoint: str) -> str:
    """Hide the user and host names of the engine's address."""
    address = endpoint.partition("://")[2].partition("/")[0]
    host = address.rpartition("@")[2].partition(":")[0]
    for name in (address, host) if remote(endpoint) else ():
        text = text.replace(name, "<host>") if name else text
    return text


def desktop(info: dict[str, Any]) -> bool:
    return "Docker Desktop" in info.get("OperatingSystem", "")


def cdi(info: dict[str, Any]) -> bool:
    """Whether the engine has found NVIDIA GPUs in a CDI specification."""
    found = info.get("DiscoveredDevices") or []
    return any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in found)


@check("client", "Docker client", causes=(NOT_INSTALLED, WSL_INTEGRATION, CLIENT_HANGS, IS_PODMAN, CLIENT_BROKEN))
def client(probes: Any, stack: Stack) -> Finding:
    """Everything that starts the container calls `docker`."""
    output = probes.client.text
    if probes.client.timed_out:
        return CLIENT_HANGS(output)
    if probes.client.code and lookup(output, {WSL_INTEGRATION.id: WSL_INTEGRATION}):
        return WSL_INTEGRATION("no docker in this distribution", "docker on the PATH")
    if probes.client.code is None:
        return replace(NOT_INSTALLED, remedy=INSTALL[probes.system])("not found", "docker on the PATH")
    if "podman" in output.lower():
        return IS_PODMAN("Podman, as `docker`", "Docker")
    if probes.client.code != 0:
        return replace(CLIENT_BROKEN, remedy=INSTALL[probes.system])(output, "a version")
    return passed(probes.client.out)


@check(
    "engine",
    "Docker engine",
    needs=("client",),
    causes=(
        NOT_RUNNING,
        PERMISSION_DENIED,
        HANGS,
        UNREACHABLE,
        NO_CONTEXT,
        CLIENT_TOO_OLD,
        IS_PODMAN,
        WINDOWS_CONTAINERS,
        DESKTOP_ON_LINUX,
        ROOTLESS,
        BUILDER_TOO_OLD,
        UNKNOWN,
    ),
)
def engine(probes: Any, stack: Stack) -> Finding:
    """It must respond to this user, and must be Docker with its root daemon."""
    info = facts(probes.info)
    if not info:
        return _no_response(hide_host(failure(probes.info), probes.endpoint), probes)
    name = f"Docker {info['ServerVersion']} on {info.get('OperatingSystem', 'an unknown system')}"
    if "podman" in probes.server.out.lower() or "containers/storage" in info.get("DockerRootDir", ""):
        return IS_PODMAN("Podman, through Docker's client", "Docker")
    if info.get("OSType", "linux") != "linux":
        return WINDOWS_CONTAINERS(f"{name}, for {info['OSType']} containers", "Linux containers")
    if desktop(info) and probes.system == "linux" and stack.gpu:
        return DESKTOP_ON_LINUX(name, "Docker Engine")
    if any(option.startswith("name=rootless") for option in info.get("SecurityOptions") or []):
        return ROOTLESS(f"{name}, rootless", "root's daemon")
    if version(info["ServerVersion"]) < version(MIN_VERSION):
        return BUILDER_TOO_OLD(name, f"{MIN_VERSION} or newer")
    return passed(f"{name}, on another machine" if remote(probes.endpoint) else name)


def _no_response(message: str, probes: Any) -> Finding:
    """Why the engine did not respond."""
    expected = "a response"
    scheme = probes.endpoint.partition("://")[0]
    where = f"its address ({scheme})" if remote(probes.endpoint) else hide_home(probes.endpoint) or "its socket"
    if probes.info.timed_out:
        return (UNREACHABLE if remote(probes.endpoint) else HANGS)(f"{where}: {message}", expected)
    cause = lookup(message, {each.id: each for each in (NO_CONTEXT, CLIENT_TOO_OLD, PERMISSION_DENIED, NOT_RUNNING)})
    if cause is NO_CONTEXT:
        return NO_CONTEXT(message, expected)
    if cause is CLIENT_TOO_OLD:
        return CLIENT_TOO_OLD(message, "a client as new as the engine")
    if remote(probes.endpoint):
        return UNREACHABLE(f"{where}: {message}", expected)
    if cause is PERMISSION_DENIED:
        return PERMISSION_DENIED(f"{where}: permission denied", expected)
    if cause is NOT_RUNNING:
        return replace(NOT_RUNNING, remedy=START[probes.system])(f"{where}: no response", expected)
    return known_cause(message, UNKNOWN)(message or "no response", expected)
