"""Docker's client and its engine."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from gpukit.errors.known import diagnosed, lookup
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.host import podman
from gpukit.host.engine import remote
from gpukit.host.process import Result, hide_home
from gpukit.project.stack import Stack, version

MIN_VERSION = "23.0"  # from here on, `docker build` uses BuildKit, which the Dockerfile's cache mounts need


def facts(info: Result) -> dict[str, Any]:
    """The output of `docker info`, or of `podman info` with the same keys; empty if the engine did not respond."""
    found = podman.info(info.out)
    return found if found.get("ServerVersion") else {}


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


def elsewhere(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if the engine is on another machine, which cannot be checked from here."""
    return skipped("engine-elsewhere") if remote(probes.endpoint) else None


def without_gpu(probes: Any, stack: Stack) -> Finding | None:
    """SKIP if no GPU of this machine is requested."""
    return elsewhere(probes, stack) if stack.gpu else skipped("no-gpu-requested")


def desktop(info: dict[str, Any]) -> bool:
    return "Docker Desktop" in info.get("OperatingSystem", "")


def cdi(info: dict[str, Any]) -> bool:
    """Whether the engine has found NVIDIA GPUs in a CDI specification."""
    found = info.get("DiscoveredDevices") or []
    return any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in found)


@check(
    "client",
    "Docker client",
    causes=(
        "docker-not-installed podman-not-installed wsl-integration docker-client-hangs docker-is-podman "
        "docker-client-broken"
    ),
    container=True,
)
def client(probes: Any, stack: Stack) -> Finding:
    """Everything that starts the container calls `docker`, or `podman`."""
    output = probes.client.text
    if probes.client.timed_out:
        return problem("docker-client-hangs", output)
    if probes.client.code and lookup(output, ("wsl-integration",)):
        return problem("wsl-integration", "no docker in this distribution", "docker on the PATH")
    if probes.client.code is None and probes.engine_name == "podman":
        return problem("podman-not-installed", "not found", "podman on the PATH")
    if probes.client.code is None:
        return problem("docker-not-installed", "not found", "docker on the PATH")
    if "podman" in output.lower() and probes.engine_name == "docker":
        return problem("docker-is-podman", "Podman, as `docker`", "Docker")
    if probes.client.code != 0:
        return problem("docker-client-broken", output, "a version")
    return passed(probes.client.out)


@check(
    "engine",
    "Docker engine",
    needs="client",
    causes=(
        "docker-down docker-denied docker-hangs docker-host-silent docker-context client-too-old docker-is-podman "
        "windows-containers docker-desktop-on-linux docker-rootless docker-builder-too-old docker-unknown-error "
        "podman-too-old podman-older-than-cdi podman-ignores-gpus"
    ),
    container=True,
)
def engine(probes: Any, stack: Stack) -> Finding:
    """It must respond to this user, and be new enough."""
    info = facts(probes.info)
    if not info:
        return _no_response(hide_host(failure(probes.info), probes.endpoint), probes)
    if probes.engine_name == "podman":
        return _podman(info, probes, stack)
    name = f"Docker {info['ServerVersion']} on {info.get('OperatingSystem', 'an unknown system')}"
    if "podman" in probes.server.out.lower() or podman.speaks(info):
        return problem("docker-is-podman", "Podman, through Docker's client", "Docker")
    if info.get("OSType", "linux") != "linux":
        return problem("windows-containers", f"{name}, for {info['OSType']} containers", "Linux containers")
    if desktop(info) and probes.system == "linux" and stack.gpu:
        return problem("docker-desktop-on-linux", name, "Docker Engine")
    if any(option.startswith("name=rootless") for option in info.get("SecurityOptions") or []):
        return problem("docker-rootless", f"{name}, rootless", "root's daemon")
    if version(info["ServerVersion"]) < version(MIN_VERSION):
        return problem("docker-builder-too-old", name, f"{MIN_VERSION} or newer")
    return passed(f"{name}, on another machine" if remote(probes.endpoint) else name)


def _podman(info: dict[str, Any], probes: Any, stack: Stack) -> Finding:
    rootless = ", rootless" if info["SecurityOptions"] else ""
    name = f"Podman {info['ServerVersion']}{rootless}"
    if version(info["ServerVersion"]) < version(podman.LEAST):
        return problem("podman-too-old", name, f"{podman.LEAST} or newer")
    too_new = version(probes.toolkit.version) >= version(podman.CDI_SINCE)
    if too_new and version(info["ServerVersion"]) < version(podman.CDI_LEAST):
        return problem("podman-older-than-cdi", f"{name}, toolkit {probes.toolkit.version}", podman.CDI_LEAST)
    if version(info["ServerVersion"]) < version(podman.GPUS_LEAST) and stack.gpu and probes.for_podman:
        return problem("podman-ignores-gpus", name, f"{podman.GPUS_LEAST} or newer for VS Code")
    return passed(name)


def _no_response(message: str, probes: Any) -> Finding:
    """Why the engine did not respond."""
    expected = "a response"
    scheme = probes.endpoint.partition("://")[0]
    where = f"its address ({scheme})" if remote(probes.endpoint) else hide_home(probes.endpoint) or "its socket"
    if probes.info.timed_out:
        id = "docker-host-silent" if remote(probes.endpoint) else "docker-hangs"
        return problem(id, f"{where}: {message}", expected)
    id = lookup(message, ("docker-context", "client-too-old", "docker-denied", "docker-down"))
    if remote(probes.endpoint) and id not in ("docker-context", "client-too-old"):
        return problem("docker-host-silent", f"{where}: {message}", expected)
    if id:
        return problem(id, f"{where}: {message}", expected)
    return diagnosed(message, "docker-unknown-error", message or "no response", expected)
