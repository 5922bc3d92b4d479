"""Podman's words for what launch says to Docker: arguments in, arguments out. `Engine.words` calls it, and nothing else.

Tried with Podman 5.4.2, rootless, 2026-11-26.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gpukit.project.flags import gpus, take

LEAST = "4.3"  # from here on, keep-id takes a uid: https://github.com/containers/podman/pull/15389 (2026-11-26)
CDI_LEAST = "5.1"  # for what Container Toolkit 1.19.1 and newer write: its release notes, Known Issues (2026-11-26)
USER = 1000  # of the image: a rootless engine cannot build a uid outside its user's range
KEEP_ID = f"--userns=keep-id:uid={USER},gid={USER}"  # in the container, this user of the host is that user
UNCONFINED = "--security-opt=label=disable"  # otherwise SELinux denies the project's folder and the GPU
DEVICE = "nvidia.com/gpu"  # the kind of CDI device
INIT_FAILED = b"ERROR (catatonit:"  # how its init reports a program that it cannot start
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
    command, rest = arguments[0] if arguments else "", list(arguments[1:])
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
    """The arguments of `build`: the ids of the image's user, whoever builds it, and a path that may hold a comma."""
    words = [re.sub(r'^--file=(.*,.*)', r'--file="\1"', word) for word in arguments]  # Podman reads a list
    return [re.sub(r"^(--build-arg=USER_[UG]ID=).*", rf"\g<1>{USER}", word) if rootless else word for word in words]


def init_failed(code: int, output: str, arguments: Sequence[str]) -> tuple[int, str]:
    """Exit status and error of `run`, as without --init, where its init ends with 1 and does not name the program."""
    if code != 1 or not output.encode().startswith(INIT_FAILED):
        return code, output
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-"):
        take(rest)
    program, missing = rest[1] if len(rest) > 1 else "", "No such file" in output
    why = "executable file `{0}` not found: No such file or directory" if missing else "the path `{0}`: {1}"
    return (127 if missing else 126), f"Error: crun: {why.format(program, output.rpartition(': ')[2].strip())}"


def is_own(output: str) -> bool:
    """Whether Podman says this of a container that it could not start, with the exit status 126 or 127."""
    return bool(re.search(r"^Error: .*\b(?:crun|runc|OCI|pasta|rootlessport|slirp4netns|netavark)\b", output))


def enforcing() -> bool:
    """Whether SELinux is enforced on this machine."""
    try:
        return ENFORCING.read_text(encoding="ascii").strip() == "1"
    except OSError:
        return False
