"""What the flags of devcontainer.json came to in a container, as probe.sh prints it: one line, and what is wrong.

What is wrong is never the project: the image, the engine, or this machine does not do what the flags ask for.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIME_LIMIT = 30  # seconds: nvidia-smi takes several if the driver has to load first
SCRIPT = Path(__file__).with_name("probe.sh")
LIMITS = {"memlock": "Max locked memory", "stack": "Max stack size", "nofile": "Max open files"}
LIMITS |= {"nproc": "Max processes", "core": "Max core file size"}
COUNTED = ("nofile", "nproc")  # the others are in bytes
DEFAULT_SHM = 64 << 20  # Docker's, for a container that asks for nothing
CANNOT_EXECUTE = re.compile(r"exec:? \"?/bin/sh\"?", re.IGNORECASE)
MAY_RAISE_LIMITS = 24  # the capability CAP_SYS_RESOURCE

# What is wrong, and what helps. Images
ANOTHER = "`docker pull {image}` fetches it again; `BASE_IMAGE=...` names another image."
NO_SHELL = "{image} has no /bin/sh, so no command of the Dockerfile can run in it. " + ANOTHER
NO_LOADER = (
    "In {image}, nothing can start: /bin/sh is a link to nothing, or the loader that it needs is missing. " + ANOTHER
)
NOT_EXECUTABLE = "In {image}, /bin/sh may not be executed. " + ANOTHER
ENDS = "In {image}, nothing can start: /bin/sh ends with status {status} before its first command{text}. " + ANOTHER
HANGS = (
    "In {image}, nothing starts: /bin/sh has not run its first command after {limit} s and may hang. Check with "
    "`docker run --rm --entrypoint /bin/sh {image} -c 'echo ok'`; `BASE_IMAGE=...` names another image."
)
PLATFORM = "`docker pull --platform=linux/{arch} {image}` fetches the right one, if its publisher has it."
OTHER_ARCHITECTURE = "{image} is built for the architecture {label}, and this machine's is {arch}. " + PLATFORM
OTHER_PROGRAMS = (
    "{image} does not run on this machine's architecture, {arch} (exec format error): its programs are built for "
    "another one, or damaged. " + PLATFORM
)
# The engine, and this machine
STOPS = (
    "In the container, the check did not end (exit status {status}){text}: the engine or this machine stopped it. "
    "`./launch doctor --only engine` checks the engine."
)
MOUNT_HANGS = (
    "{source}, which is mounted at {target}, does not respond, as a network share that is gone. `findmnt -T "
    "{source}` shows where it comes from."
)
DRIVER_HANGS = (
    "nvidia-smi does not end in the container, so the driver on this machine may hang. `./launch doctor --only driver` "
    "checks it."
)
SHM_IGNORED = (
    "/dev/shm has only {seen} in the container, and {flag} asks for {wanted}: the engine does not apply that flag, and "
    "data loaders with workers would fail. `docker info --format '{{{{.DefaultRuntime}}}}'` names the runtime that "
    "does."
)
SHM_OF_HOST = (
    "/dev/shm of this machine, which the container shares, has only {seen}, and data loaders with workers would fail. "
    "`sudo mount -o remount,size=50% /dev/shm` enlarges it."
)
LIMIT_IGNORED = (
    "The limit {name} is {seen} in the container, and --ulimit asks for {wanted}: the engine does not apply that flag. "
    "`docker info --format '{{{{.DefaultRuntime}}}}'` names the runtime that does."
)
SOURCE_CLOSED = (
    "{source}, which is mounted at {target}, is not {access} for your user ({user}). `sudo chown -R {user} {source}` "
    "makes it yours."
)
SOURCE_READ_ONLY = (
    "{source}, which is mounted at {target}, is on a file system that this machine has mounted read-only. `findmnt -T "
    "{source}` shows it."
)
MOUNT_CLOSED = (
    "{target} is not {access} in the container for your user ({user}), although {source} is {access} here. In the "
    "container, you have no other groups than that; user namespaces, SELinux, and Docker Desktop can also be the "
    "reason. `./launch doctor --only mounts,engine` checks them."
)
MOUNT_OPEN = (
    "{target} is writable in the container, although its mount is read-only: the engine does not apply `readonly`. "
    "`docker info` shows which engine it is."
)
NO_GPU_SEEN = (
    "The engine accepted the GPU request, but the container has no GPU{text}. `./launch doctor --only driver,gpu` "
    "checks the driver and NVIDIA's Container Toolkit."
)


@dataclass
class Facts:
    """The facts that probe.sh printed before it ended."""

    started: bool = False
    ended: bool = False
    limits: dict[str, int | None] = field(default_factory=dict)  # None: unlimited
    shm: int | None = 0  # None: not limited by the mount; 0: there is none
    mounts: dict[str, tuple[bool, bool]] = field(default_factory=dict)  # target: readable, writable
    gpus: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    no_gpu: str = ""  # nvidia-smi's error
    other: str = ""  # the last line that is no fact, such as an error of the shell's loader


@dataclass
class Run:
    """How the container with probe.sh ran. `status`: its exit status; None if it did not end in time."""

    output: str
    status: int | None
    has_shell: bool = True

    @property
    def facts(self) -> Facts:
        facts = Facts()
        for line in self.output.splitlines():
            kind, _, rest = line.strip().partition(" ")
            if kind in ("started", "ended"):
                setattr(facts, kind, True)
            elif kind == "limit":
                for name, label in LIMITS.items():
                    if rest.startswith(label):
                        soft = rest.removeprefix(label).split()[0]
                        facts.limits[name] = None if soft == "unlimited" else int(soft)
            elif kind == "shm":
                size = re.search(r"\bsize=(\d+)k", rest)
                facts.shm = int(size[1]) << 10 if size else None
            elif kind == "mount":
                readable, writable, target = rest.split(" ", 2)
                facts.mounts[target] = (readable == "yes", writable == "yes")
            elif kind == "gpu":
                facts.gpus.append(rest)
            elif kind == "device":
                facts.devices.append(rest)
            elif kind == "no-gpu":
                facts.no_gpu = facts.no_gpu or rest
            else:
                facts.other = line.strip() or facts.other
        return facts


@dataclass
class Machine:
    """The container's image, its user, and the architectures of the image and of the engine."""

    image: str
    user: str
    label: str
    arch: str


def command(targets: list[str], gpu: bool) -> list[str]:
    return ["-c", SCRIPT.read_text(encoding="utf-8"), "probe", "gpu" if gpu else "no-gpu", *targets]


def broken_image(run: Run, machine: Machine) -> str:
    """What is wrong with the image, in which no command ran; empty if one ran."""
    names = {"image": machine.image, "arch": machine.arch, "status": run.status, "limit": TIME_LIMIT}
    if machine.label != machine.arch:
        return OTHER_ARCHITECTURE.format(label=machine.label, **names)
    if run.facts.started:
        return ""
    if run.status is None:
        return HANGS.format(**names)
    text = run.output.lower()
    if CANNOT_EXECUTE.search(text):
        if "exec format error" in text:
            return OTHER_PROGRAMS.format(**names)
        if "no such file" in text:
            return (NO_LOADER if run.has_shell else NO_SHELL).format(**names)
        if "permission denied" in text:
            return NOT_EXECUTABLE.format(**names)
    return ENDS.format(text=quoted(run.facts.other), **names)


def problems(run: Run, machine: Machine, arguments: Mapping[str, Any], gpu: bool) -> Iterator[str]:
    """The flags without the effect that they ask for: one sentence each, with what helps."""
    facts = run.facts
    yield from limit_problems(facts, arguments)
    yield from shm_problems(facts, arguments)
    for mount in arguments["mounts"]:
        if mount["Target"] in facts.mounts:
            yield from mount_problems(mount, facts.mounts[mount["Target"]], machine.user)
        else:  # the check did not get further
            if run.status is None:
                yield MOUNT_HANGS.format(source=mount["Source"], target=mount["Target"])
            break
    else:
        if run.status is None and not facts.ended:
            yield DRIVER_HANGS if gpu else HANGS.format(image=machine.image, limit=TIME_LIMIT)
        without_tools = facts.devices and "not found" in facts.no_gpu  # as in images for a Jetson
        if gpu and facts.ended and not facts.gpus and not without_tools:
            yield NO_GPU_SEEN.format(text=quoted(facts.no_gpu))
    if run.status is not None and not facts.ended:
        yield STOPS.format(status=run.status, text=quoted(facts.other))


def limit_problems(facts: Facts, arguments: Mapping[str, Any]) -> Iterator[str]:
    for limit in arguments["ulimits"]:
        name = limit["Name"]
        wanted = None if limit["Soft"] < 0 else limit["Soft"]
        if name in facts.limits and below(facts.limits[name], wanted) and not clamped(name, facts.limits[name]):
            yield LIMIT_IGNORED.format(name=name, seen=shown(name, facts.limits[name]), wanted=shown(name, wanted))


def shm_problems(facts: Facts, arguments: Mapping[str, Any]) -> Iterator[str]:
    wanted = arguments.get("shm_size")
    if arguments.get("ipc_mode") == "host":
        if facts.shm is not None and facts.shm <= DEFAULT_SHM:
            here = size_of("/dev/shm")
            sentence = SHM_IGNORED if here is None or here > DEFAULT_SHM else SHM_OF_HOST
            yield sentence.format(seen=amount(facts.shm), flag="--ipc=host", wanted="that of this machine")
    elif wanted and below(facts.shm, wanted):
        yield SHM_IGNORED.format(seen=amount(facts.shm), flag="--shm-size", wanted=amount(wanted))


def mount_problems(mount: Mapping[str, Any], seen: tuple[bool, bool], user: str) -> Iterator[str]:
    readable, writable = seen
    source = mount["Source"]
    target = mount["Target"]
    if mount["ReadOnly"] and writable:
        yield MOUNT_OPEN.format(target=target)
    access = "readable" if not readable else "writable" if not (writable or mount["ReadOnly"]) else ""
    if access:
        sentence = SOURCE_CLOSED
        if os.access(source, os.R_OK if access == "readable" else os.W_OK):
            sentence = MOUNT_CLOSED
        elif access == "writable" and os.statvfs(source).f_flag & os.ST_RDONLY:
            sentence = SOURCE_READ_ONLY
        yield sentence.format(source=source, target=target, access=access, user=user)


def summary(run: Run, arguments: Mapping[str, Any], gpu: bool) -> str:
    """What the flags came to, in one line."""
    facts = run.facts
    parts = []
    for limit in arguments["ulimits"]:
        name = limit["Name"]
        wanted = None if limit["Soft"] < 0 else limit["Soft"]
        if name in facts.limits:
            seen = facts.limits[name]
            most = " (all that this machine allows)" if below(seen, wanted) and clamped(name, seen) else ""
            parts.append(f"{name} {shown(name, seen)}{most}")
    parts.append("no /dev/shm" if facts.shm == 0 else f"/dev/shm {amount(facts.shm)}")
    parts += [f"{len(facts.mounts)} mounts ({sum(writable for _, writable in facts.mounts.values())} writable)"]
    if gpu and facts.gpus:
        parts.append(f"GPU {', '.join(facts.gpus)}")
    return ", ".join(parts)


def below(seen: int | None, wanted: int | None) -> bool:
    """Whether a limit is lower than wanted; None is unlimited."""
    return seen is not None and (wanted is None or seen < wanted)


def clamped(name: str, seen: int | None) -> bool:
    """Whether this machine allows nobody a higher limit, root included."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return seen == hard and not may_raise_limits()


def may_raise_limits() -> bool:
    try:
        found = re.search(r"^CapBnd:\s*(\w+)", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return True
    return not found or bool(int(found[1], 16) >> MAY_RAISE_LIMITS & 1)


def size_of(folder: str) -> int | None:
    try:
        about = os.statvfs(folder)
    except OSError:
        return None
    return about.f_blocks * about.f_frsize


def shown(name: str, value: int | None) -> str:
    return "unlimited" if value is None else str(value) if name in COUNTED else amount(value)


def amount(value: int | None) -> str:
    if value is None:
        return "without a limit of its own"
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} bytes"


def quoted(text: str) -> str:
    return f": {text}" if text else ""
