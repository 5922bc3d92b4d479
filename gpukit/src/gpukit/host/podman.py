"""Podman's words for what launch says to Docker: arguments in, arguments out, for `Engine.words`.

Tried with Podman 5.4.2, rootless, 2026-11-26.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpukit.project.flags import gpus, take

LEAST = "4.3"  # from here on, keep-id takes a uid: https://github.com/containers/podman/pull/15389 (2026-11-26)
# Container Toolkit 1.19.1 and newer write a CDI specification that Podman reads from 5.1 on.
# https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/release-notes.html#known-issues (2026-11-26)
CDI_SINCE = "1.19.1"
CDI_LEAST = "5.1"
# https://github.com/containers/podman/blob/main/RELEASE_NOTES.md, 5.0.0: before, --gpus had no effect (2026-11-26)
GPUS_LEAST = "5.0"
CONFIG = ".devcontainer/podman/devcontainer.json"  # for VS Code, which passes --gpus as it is
SERVICE = ("CONTAINER_HOST", "CONTAINER_CONNECTION")  # variables that name Podman's service, maybe another machine's
CONNECTIONS = ("system", "connection", "list", "--format={{.Name}} {{.URI}}")
USER = 1000  # of the image: a rootless engine cannot build a uid outside its user's range
KEEP_ID = f"--userns=keep-id:uid={USER},gid={USER}"  # in the container, this user of the host is that user
UNCONFINED = "--security-opt=label=disable"  # otherwise SELinux denies the project's folder and the GPU
DEVICE = "nvidia.com/gpu"  # the kind of CDI device
COMPOSE = {"PODMAN_COMPOSE_WARNING_LOGS": "false"}  # otherwise it names its provider at each call
INIT_FAILED = b"ERROR (catatonit:"  # how its init reports a program that it cannot start
SPECIFICATIONS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where Podman looks for CDI devices
ENFORCING = Path("/sys/fs/selinux/enforce")

# Fields of Go templates that Podman has under another name, or in another form.
FIELDS = {
    "inspect": {
        "{{.State.StartedAt}}": '{{.State.StartedAt.UTC.Format "2006-01-02T15:04:05"}}',
        "{{.Image}}": "sha256:{{.Image}}",
    },
    "image": {"{{.Id}}": "sha256:{{.Id}}"},
    "history": {"{{.Size}}": "{{.ImageHistoryLayer.Size}}"},  # in bytes: --human=false does not do it
    "version": {"{{json .Server}}": "{{json .Client}}"},
}


def words(arguments: tuple[str, ...], rootless: bool) -> list[str]:
    """The arguments of the docker command as those of podman."""
    command = arguments[0] if arguments else ""
    rest = list(arguments[1:])
    if command == "run":
        rest = run(rest, rootless)
    elif command == "build":
        rest = build(rest, rootless)
    elif command == "rm" and "--force" in rest:
        rest.insert(0, "--time=0")  # Docker kills it at once, Podman would wait for ten seconds
    for docker, podman in FIELDS.get(command, {}).items():
        rest = [word.replace(docker, podman) for word in rest]
    return [*arguments[:1], *rest]


def run(arguments: list[str], rootless: bool) -> list[str]:
    """The arguments of `run`: its GPUs as CDI devices, the host's user as the image's, no SELinux label."""
    options = []
    while arguments and arguments[0].startswith("-"):  # up to the image
        options.append(take(arguments))
    found = [KEEP_ID] if rootless else []
    found += [UNCONFINED] if enforcing() else []
    visible = "all"  # the GPUs for NVIDIA's runtime, which reads this variable
    for option in options:
        if option.name == "--env" and option.value.startswith("NVIDIA_VISIBLE_DEVICES="):
            visible = option.value.partition("=")[2]
    for option in options:
        if option.name == "--gpus":
            found += devices(gpus(option.value))
        elif option.name == "--runtime" and option.value == "nvidia":
            found += devices(visible)
        elif option.value in ("", "true"):
            found.append(option.name)
        else:
            found.append(f"{option.name}={option.value}")
    return [*found, *arguments]


def devices(chosen: str) -> list[str]:
    """The flags for GPUs: `all`, ids separated by commas, or a number, as in `2 of them`."""
    number = re.fullmatch(r"(\d+) of them", chosen)
    ids = map(str, range(int(number[1]))) if number else chosen.split(",")
    return [f"--device={DEVICE}={gpu}" for gpu in ids]


def build(arguments: list[str], rootless: bool) -> list[str]:
    """The arguments of `build`: the image's user is the same whoever builds it, and names are complete."""
    file = next((word.partition("=")[2] for word in arguments if word.startswith("--file=")), "")
    found = []
    for word in arguments:
        if word.startswith("--file=") and "," in word:  # Podman reads a list, as CSV
            word = f'--file="{file}"'
        elif word == "--build-arg=BASE_IMAGE=":
            word += full_name(Path(file))
        elif rootless and word.startswith(("--build-arg=USER_UID=", "--build-arg=USER_GID=")):
            word = f"{word.rpartition('=')[0]}={USER}"
        found.append(word)
    return found


def full_name(dockerfile: Path) -> str:
    """The default of BASE_IMAGE with Docker Hub's name, where it has an owner and no registry; empty for others.

    Podman looks a name without a registry up in registries.conf, which lists images such as `python`.
    """
    with contextlib.suppress(OSError):
        default = re.search(r"\$\{BASE_IMAGE:-(([^/.:}]+)/[^}]+)\}", dockerfile.read_text(encoding="utf-8"))
        return f"docker.io/{default[1]}" if default else ""
    return ""


def init_failed(code: int, output: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and error of `run`, as without --init, where its init ends with 1 and does not name the program."""
    if code != 1 or not output.encode().startswith(INIT_FAILED):
        return code, output
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-"):
        take(rest)
    program = rest[1] if len(rest) > 1 else ""
    missing = "No such file" in output
    why = "executable file `{0}` not found: No such file or directory" if missing else "the path `{0}`: {1}"
    return (127 if missing else 126), f"Error: crun: {why.format(program, output.rpartition(': ')[2].strip())}"


def is_own(output: str) -> bool:
    """Whether Podman says this of a container that it could not start, with the exit status 126 or 127."""
    return bool(re.search(r"^Error: .*\b(?:crun|runc|OCI|pasta|rootlessport|slirp4netns|netavark)\b", output))


def info(text: str) -> dict[str, Any]:
    """The facts of `docker info` in JSON, or those of `podman info` with Docker's keys; empty if it is neither."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(found, dict) or "host" not in found:
        return found if isinstance(found, dict) else {}
    host = found["host"]
    store = found.get("store") or {}
    system = (host.get("distribution") or {}).get("distribution", "")
    return {
        "Podman": True,
        "ServerVersion": (found.get("version") or {}).get("Version", ""),
        "OperatingSystem": system or "an unknown system",
        "SecurityOptions": ["name=rootless"] if (host.get("security") or {}).get("rootless") else [],
        "DockerRootDir": store.get("graphRoot", ""),
        "CgroupDriver": host.get("cgroupManager", ""),
        "DiscoveredDevices": [{"ID": f"{DEVICE}=all"}] if any(map(lists_gpus, SPECIFICATIONS)) else [],
    }


def endpoint(env: Mapping[str, str], connections: Callable[[], str]) -> str:
    """The address of Podman's service; empty if Podman works without one. `connections` lists names and addresses."""
    host = env.get("CONTAINER_HOST", "")
    name = env.get("CONTAINER_CONNECTION", "")
    if host or not name:
        return host
    for line in connections().splitlines():
        known, _, address = line.partition(" ")
        if known == name:
            return address.strip()
    return ""


def speaks(info: dict[str, Any]) -> bool:
    """Whether Podman answers, by itself or through Docker's client."""
    return "Podman" in info or "containers/storage" in info.get("DockerRootDir", "")


def lists_gpus(folder: Path) -> bool:
    """Whether a CDI specification in this folder has NVIDIA GPUs; Podman itself does not tell."""
    with contextlib.suppress(OSError):
        files = [path for path in folder.iterdir() if path.suffix in (".yaml", ".json")]
        return any(DEVICE in path.read_text(encoding="utf-8", errors="replace") for path in files)
    return False


def enforcing() -> bool:
    """Whether SELinux is enforced on this machine."""
    try:
        return ENFORCING.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False
