"""Options and values of `docker run` and Compose, in every notation."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpukit.project.messages import alike

# docker run's options, by the kind of their value as `docker run --help` names it (Docker 28.2, tried 2026-11-25).
KINDS = {
    "": "detach disable-content-trust help init interactive no-healthcheck oom-kill-disable privileged publish-all "
    "quiet read-only rm sig-proxy tty use-api-socket",
    "bytes": "kernel-memory memory memory-reservation memory-swap shm-size",
    "decimal": "cpus",
    "duration": "health-interval health-start-interval health-start-period health-timeout",
    "gpu-request": "gpus",
    "int": "cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares health-retries memory-swappiness "
    "oom-score-adj pids-limit stop-timeout",
    "list": "add-host attach blkio-weight-device cap-add cap-drop device device-cgroup-rule device-read-bps "
    "device-read-iops device-write-bps device-write-iops dns dns-option dns-search env env-file expose group-add "
    "label label-file link link-local-ip log-opt network-alias publish security-opt storage-opt tmpfs volume "
    "volumes-from",
    "map": "annotation sysctl",
    "mount": "mount",
    "network": "network",
    "string": "cgroup-parent cgroupns cidfile cpuset-cpus cpuset-mems detach-keys domainname entrypoint health-cmd "
    "hostname ip ip6 ipc isolation log-driver mac-address name pid platform pull restart runtime stop-signal user "
    "userns uts volume-driver workdir",
    "uint16": "blkio-weight",
    "ulimit": "ulimit",
}
# Options that only Podman has, without and with a value (https://docs.podman.io, podman-run, read 2026-11-25).
PODMAN = {
    "": "env-host http-proxy no-hostname no-hosts passwd read-only-tmpfs replace rmi rootfs tls-verify unsetenv-all",
    "string": "arch authfile cert-dir cgroup-conf cgroups chrootdirs conmon-pidfile cpuset creds decryption-key "
    "env-merge gidmap group-entry health-log-destination health-max-log-count health-max-log-size health-on-failure "
    "health-startup-cmd health-startup-interval health-startup-retries health-startup-success health-startup-timeout "
    "hosts-file hostuser image-volume init-path os passwd-entry personality pidfile pod pod-id-file preserve-fd "
    "preserve-fds rdt-class requires retry retry-delay sdnotify seccomp-policy secret shm-size-systemd subgidname "
    "subuidname systemd timeout tz uidmap umask unsetenv variant",
}
# Other spellings, some of which `--help` does not list.
LONG = {"-a": "--attach", "-c": "--cpu-shares", "-d": "--detach", "-e": "--env", "-h": "--hostname"}
LONG.update({"-i": "--interactive", "-l": "--label", "-m": "--memory", "-p": "--publish", "-P": "--publish-all"})
LONG.update({"-q": "--quiet", "-t": "--tty", "-u": "--user", "-v": "--volume", "-w": "--workdir"})
LONG.update({"--net": "--network", "--net-alias": "--network-alias", "--dns-opt": "--dns-option"})
KIND = {f"--{name}": kind for kinds in (PODMAN, KINDS) for kind, names in kinds.items() for name in names.split()}
ALL = {*KIND, *(name for name in LONG if name.startswith("--"))}


class Option(NamedTuple):
    """An option as docker reads it: its long name, its value, and the argument in which it was found."""

    name: str
    value: str
    argument: str
    wrong: str = ""  # why docker does not read it


def read(arguments: Iterable[str]) -> Iterator[Option]:
    """docker run's options in any notation: `--ipc=host`, `--ipc host`, `-eA=1`, `-it`."""
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
        else:
            name, equals, value = argument[:2], argument[2:], argument[2:].removeprefix("=")
        name = LONG.get(name, name)
        if not argument.startswith("-"):
            yield Option(argument, "", argument, "is not an option, so docker would take it for the image")
        elif name not in KIND:
            if not equals and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            yield Option(name, value, argument, f"docker run has no option `{name}`")
        elif KIND[name]:
            missing = not equals and not rest
            value = value if equals or missing else rest.pop(0)
            yield Option(name, value, argument, f"`{name}` needs a value" if missing else "")
        else:
            yield Option(name, value if argument.startswith("--") and equals else "true", argument)
            if equals and not argument.startswith("--"):  # one-letter switches can stand together
                rest.insert(0, f"-{value}")


def options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """docker run's options as (long name, value)."""
    return ((option.name, option.value) for option in read(arguments))


def mistakes(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """What docker refuses before it starts anything, and the remedy: an option that does not exist, or has no value."""
    for option in read(arguments):
        if not option.wrong:
            continue
        word = re.split(r"[=\s]", option.argument)[0]
        meant = alike(word, ALL)
        if not option.argument.startswith("-"):
            fits = f"--{word}" in ALL and "=" in option.argument
            remedy = f"write `--{option.argument}`" if fits else "write an option and its value as --NAME=VALUE"
            yield f"`{option.argument}` {option.wrong}", remedy
        elif " " in option.argument and word in ALL:
            yield option.wrong, f"write `{word}=VALUE`, or two strings"
        elif option.name in KIND:
            yield option.wrong, f"write `{option.name}=VALUE`, or remove it"
        else:
            yield option.wrong, f"did you mean `{meant}`?" if meant else "remove it, or correct its name"


def gpus(value: str) -> str:
    """The GPUs that --gpus requests: "all", ids separated by commas, or a number of GPUs as "3 of them"."""
    ids = ""
    for part in next(csv.reader([value]), []):
        key, equals, text = part.partition("=")
        if key == "device":
            ids = text
        elif key == "count" or not equals:
            ids = "all" if (text or key) == "all" else f"{text or key} of them"
    return ids


def ulimit(value: Any) -> str:
    """A limit as soft:hard, from 5, "5:6" or {soft: 5, hard: 6}."""
    if isinstance(value, Mapping):
        return f"{value['soft']}:{value['hard']}"
    soft, _, hard = str(value).partition(":")
    return f"{soft}:{hard or soft}"


def size(value: Any) -> int | None:
    if value in (None, ""):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)(?:i?b)?", str(value).lower())
    if not match:
        raise ValueError(f"{value} is not a size")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def mount_fields(text: str) -> dict[str, Any]:
    names = {"src": "source", "dst": "target", "destination": "target", "ro": "readonly"}
    mount: dict[str, Any] = {"type": "volume", "source": "", "target": "", "readonly": False}
    for part in next(csv.reader([text]), []):
        key, equals, value = part.partition("=")
        mount[names.get(key, key)] = value if equals else True
    return mount


def short_volume(text: str) -> dict[str, Any]:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not target:
        source, target = "", source
    kind = "bind" if source.startswith(("/", ".", "~")) else "volume"
    return {"type": kind, "source": source, "target": target, "readonly": "ro" in mode.split(",")}


def as_mapping(entries: Any) -> dict[str, str | None]:
    """Compose's environment or args, written as a mapping or as a list; the value is None if only the name is given."""
    if isinstance(entries, Mapping):
        return {str(name): None if value is None else scalar(value) for name, value in entries.items()}
    pairs = (str(entry).partition("=") for entry in entries or [])
    return {name: value if equals else None for name, equals, value in pairs}


def scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
