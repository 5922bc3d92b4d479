"""Values that must agree between the files. Each rule yields its problems."""

from __future__ import annotations

import contextlib
import csv
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from gpukit.project.flags import mount_fields, options, size, ulimit
from gpukit.project.specification import words
from gpukit.validate.container import Container
from gpukit.validate.problem import CPU, HOST_ENV, MAIN, MISSING, STACK, Problem, quoted

NOTICE_DAYS = 90
CREDENTIALS = re.compile(
    r"/(\.aws(?!/sso/cache$)|\.azure|\.config/gcloud|\.kaggle|\.netrc|\.ssh|\.docker|\.gnupg)(/|$)"
)


def has_gpu(stack: Mapping[str, Any]) -> bool:
    return any(target["capability"] for target in stack["targets"].values())


def ending(stack: Mapping[str, Any], today: date | None = None) -> str:
    """A notice when the support of a pinned release ends: `copier update` does not change a pin."""
    if stack["channel"] != "pin" or not stack["end_of_life"]:
        return ""
    left = (date.fromisoformat(stack["end_of_life"]) - (today or date.today())).days
    if left > NOTICE_DAYS:
        return ""
    when = "gets no fixes after" if left >= 0 else "has had no fixes since"
    remedy = "`./launch update --answers release=current` takes the newest."
    return f"release {stack['release']} is pinned and {when} {stack['end_of_life']}; {remedy}"


def gpu_and_memory(default: Container, first: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The hardware in stack.json; `default` is the container with GPUS unset, `first` with GPUS=0."""
    targets = ", ".join(stack["targets"])
    request = stack.get("request") or {}
    asks = "runtime" if first.runtime == "nvidia" else "gpus" if first.gpu else ""
    wanted = request.get("kind", asks or "gpus") if has_gpu(stack) else ""
    spelled = {
        "gpus": '"--gpus=\\"device=${localEnv:GPUS:all}\\""',
        "runtime": '"--runtime=nvidia" with NVIDIA_VISIBLE_DEVICES in containerEnv',
    }
    if asks and not wanted:
        remedy = "remove the request"
        yield Problem(MAIN, "/runArgs", f"a GPU is requested, and {STACK} names none ({targets})", remedy)
    elif wanted and asks != wanted:
        seen = (
            f"the GPU is requested by {'--runtime' if asks == 'runtime' else '--gpus'}"
            if asks
            else "no GPU is requested"
        )
        yield Problem(MAIN, "/runArgs", f"{seen}, and {STACK} is for {targets}", f"request it by {spelled[wanted]}")
    elif default.gpu == "all" and request.get("devices") not in (None, "all"):
        remedy = f'"--gpus=\\"device=${{localEnv:GPUS:{request["devices"]}}}\\""'
        yield Problem(MAIN, "/runArgs", f"all GPUs are requested, which {targets} does not allow", remedy)

    memory = stack["memory"]
    pairs = [("--ipc", default.ipc, memory["ipc"] or "private")]
    pairs.append(("--shm-size", default.shm_size, size(memory["shm_size"])))
    for name, value in (memory.get("ulimits") or {}).items():
        pairs.append((f"--ulimit {name}", default.ulimits.get(name), ulimit(value)))
    for flag, here, there in pairs:
        if here != there:
            what = f"{flag} is {quoted(here)}, and the memory policy in {STACK} says {quoted(there)}"
            yield Problem(MAIN, "/runArgs", what, "change the flag to match the policy")


# https://docs.docker.com/reference/cli/docker/container/run/, read on 2026-11-25
LIMITS = words("core cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack")
IPC = re.compile(r"|none|private|shareable|host|container:.+")
MOUNT_FIELDS = {"type", "source", "src", "target", "destination", "dst", "readonly", "ro", "consistency"}
MOUNT_FAMILIES = ("bind-", "volume-", "tmpfs-", "image-")


def flag_values(name: str, arguments: list[str]) -> Iterator[Problem]:
    """Values that `docker run` refuses, with the host's variables already replaced."""
    for option, value in options(arguments):
        wrong = ""
        if option == "--ulimit":
            limit, _, numbers = value.partition("=")
            if limit not in LIMITS:
                wrong = f"there is no limit {limit!r}; the limits are {', '.join(sorted(LIMITS))}"
            elif not re.fullmatch(r"-?\d+(:-?\d+)?", numbers):
                wrong = f"write it as --ulimit={limit}=NUMBER"
        elif option == "--ipc" and not IPC.fullmatch(value):
            wrong = "it must be host, private, shareable, none, or container:NAME"
        elif option in ("--shm-size", "--memory"):
            try:
                size(value)
            except ValueError:
                wrong = "write a number with a unit, such as 16g"
        elif option == "--mount":
            fields = {part.partition("=")[0] for part in next(csv.reader([value]), [])}
            unknown = sorted(f for f in fields - MOUNT_FIELDS if not f.startswith(MOUNT_FAMILIES))
            if unknown or not mount_fields(value)["target"]:
                wrong = f"`{unknown[0]}` is not a field of a mount" if unknown else "it needs a target"
        if wrong:
            yield Problem(name, "/runArgs", f"{option} is {quoted(value)}", wrong)


INSTRUCTIONS = words(
    """ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME
    WORKDIR"""
)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The instructions of a Dockerfile with their line numbers, without comments and here-documents."""
    held, first, until = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if until:
            until = "" if line.strip() == until else until
        elif not line.lstrip().startswith("#"):
            first = first if held else number
            held += line.rstrip("\\") + " "
            if not line.endswith("\\"):
                document = re.search(r"<<-?[\"']?(\w+)", held)
                until = document[1] if document else ""
                if held.strip():
                    yield first, held.strip()
                held = ""


def instructions(path: Path) -> Iterator[Problem]:
    """What a build refuses, or takes for something else: unknown instructions, missing sources, no regular user."""
    if not path.is_file():
        return  # reported by `dockerfile`
    user, arguments = "root", set()
    for number, line in logical_lines(path.read_text(encoding="utf-8")):
        word, _, rest = line.partition(" ")
        place = f"line {number}"
        if word.upper() not in INSTRUCTIONS:
            yield Problem(path.name, place, f"{word} is not an instruction", "correct that line")
        elif word.upper() == "USER":
            user = rest.strip()
        elif word.upper() == "FROM":
            user = "root"
        elif word.upper() == "ARG":
            arguments |= {part.partition("=")[0] for part in rest.split()}
        elif word.upper() in ("COPY", "ADD") and "--from=" not in rest and "<<" not in rest:
            sources = [part for part in rest.split()[:-1] if not part.startswith("--")]
            for source in sources:
                elsewhere = source in (STACK, "pyproject.toml") or re.search(r"[*?\[$]|://", source)
                if not elsewhere and not (path.parent / source).exists():
                    yield Problem(path.name, place, f"{source} does not exist", "restore it with `git checkout`")
    if user.split(":")[0] in ("root", "0"):
        remedy = "end it with `USER ${USER_UID}`: files that root writes to the workspace belong to root on the host"
        yield Problem(path.name, "", "the container's user is root", remedy)
    for name in ("BASE_IMAGE", "UV_INDEX", "USER_UID", "USER_GID"):
        if name not in arguments:
            yield Problem(
                path.name, "", f"does not declare ARG {name}, which every entry point passes", f"add ARG {name}"
            )


def files(project: Path, configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Problem]:
    """Files that a start or a build needs, and what can be seen in them without running them."""
    restore = "restore it with `git checkout`"
    scripts = ["launch"]
    for name, raw in configs.items():
        text = str(raw.get("initializeCommand", ""))
        if raw.get("initializeCommand") and "initialize.sh" not in text:
            remedy = "also run `sh .devcontainer/initialize.sh`: it creates the mount sources before they are mounted"
            yield Problem(name, "/initializeCommand", "does not run initialize.sh", remedy)
            continue
        scripts += re.findall(r"\.devcontainer/[\w.-]+\.sh", text)
    for script in dict.fromkeys(scripts):
        if not (project / script).is_file():
            yield Problem(script, "", MISSING, restore)
            continue
        with contextlib.suppress(OSError):
            checked = subprocess.run(["sh", "-n", script], cwd=project, capture_output=True, text=True)
            if checked.returncode:
                what = checked.stderr.strip().splitlines()[0] if checked.stderr.strip() else "has a syntax error"
                yield Problem(script, "", what, restore)
    if not (project / "pyproject.toml").is_file():
        yield Problem("pyproject.toml", "", MISSING, restore)
    else:
        yield from pyproject(project / "pyproject.toml")
    if (project / HOST_ENV).is_file():
        for number, line in enumerate((project / HOST_ENV).read_text(encoding="utf-8").splitlines(), 1):
            variable = line.partition("=")[0]
            if line.strip() and not line.startswith("#") and not re.fullmatch(r"\s*[A-Za-z_][\w.-]*\s*", variable):
                yield Problem(HOST_ENV, f"line {number}", "is not the name of a variable", "one name in each line")


def pyproject(path: Path) -> Iterator[Problem]:
    try:
        import tomllib
    except ImportError:  # before Python 3.11
        return
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        yield Problem(path.name, "", f"is not TOML: {error}", "correct that line, or restore it with `git checkout`")
        return
    if not isinstance(content.get("project", {}).get("dependencies"), list):
        yield Problem(path.name, "[project] dependencies", MISSING, "the image installs what it lists; [] if nothing")
    if content.get("tool", {}).get("uv", {}).get("managed") is not False:
        remedy = "write `managed = false`: otherwise `uv run` creates a .venv, with another PyTorch"
        yield Problem(path.name, "[tool.uv] managed", "is not false", remedy)


def references(file: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    """Services, networks, and volumes that are named must be defined."""
    services = content["services"]
    for name, service in services.items():
        if not isinstance(service, Mapping):
            continue
        place = f"/services/{name}"
        for needed in service.get("depends_on") or []:
            if needed not in services:
                yield Problem(file, f"{place}/depends_on", f"there is no service {needed}", "correct the name")
        for network in service.get("networks") or []:
            if network not in {"default", *(content.get("networks") or {})}:
                yield Problem(file, f"{place}/networks", f"there is no network {network}", "define it under networks")
        for volume in service.get("volumes") or []:
            source = volume.partition(":")[0] if isinstance(volume, str) else volume.get("source", "")
            bound = isinstance(volume, Mapping) and volume.get("type") != "volume"
            named = re.fullmatch(r"[A-Za-z0-9][\w.-]*", str(source)) and not bound
            if named and source not in (content.get("volumes") or {}):
                yield Problem(file, f"{place}/volumes", f"there is no volume {source}", "define it under volumes")


def user_and_mounts(
    name: str, raw: Mapping[str, Any], container: Container, stack: Mapping[str, Any]
) -> Iterator[Problem]:
    key = "remoteUser" if "remoteUser" in raw else "containerUser"
    if key in raw and raw[key] != stack["user"]:
        what = f"{quoted(raw[key])}, and the image's user is {quoted(stack['user'])} ({STACK})"
        yield Problem(name, f"/{key}", what, f"write {quoted(stack['user'])}")
    for target in [*stack["mounts"], *stack["read_only"]]:
        mount, read_only = container.mounts.get(target), target in stack["read_only"]
        if mount is None:
            what = f"nothing is mounted at {target}, which {STACK} expects"
            place = "/workspaceMount" if target == "/workspace" else "/mounts"
            yield Problem(name, place, what, f'add "type=bind,source=...,target={target}{",readonly" * read_only}"')
        elif mount.read_only != read_only and not (read_only and CREDENTIALS.search(target)):  # `safe` reports those
            modes = ("read-only", "writable") if mount.read_only else ("writable", "read-only")
            what = f"{target} is mounted {modes[0]}, and {STACK} has it {modes[1]}"
            yield Problem(name, "/mounts", what, f"{'add' if read_only else 'remove'} `readonly`")


def without_cuda(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """The CPU configuration must override the Dockerfile's defaults, which are for the GPU."""
    if raw["build"]["args"].get("TORCH_BACKEND") != "cpu":
        remedy = 'write "TORCH_BACKEND": "cpu", so that torch is installed without CUDA'
        yield Problem(CPU, "/build/args/TORCH_BACKEND", "is not cpu", remedy)


def safe(name: str, container: Container) -> Iterator[Problem]:
    for target, mount in container.mounts.items():
        if CREDENTIALS.search(target) and not mount.read_only:
            what = f"credentials are mounted writable at {target}"
            yield Problem(name, "/mounts", what, "add `readonly`: no training needs to change them")
    for port in container.ports:
        if not port.startswith(("127.0.0.1:", "[::1]:")):
            what = f"port {port} is open to the network"
            yield Problem(
                name, "/runArgs", what, "publish it as 127.0.0.1:PORT:PORT, or leave it to VS Code and ./launch"
            )


def dockerfile(path: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    name, image = path.name, stack["image"]
    if not path.is_file():
        yield Problem(name, "", MISSING, "restore it with `git checkout`, or generate again")
        return
    default = re.compile(r"^\s*ARG\s+BASE_IMAGE=[\"']?([^\s\"']+)|\$\{BASE_IMAGE:-([^}]+)\}")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = default.search(line)
        if match and not line.lstrip().startswith("#"):
            base = match[1] or match[2]
            if base != image and not re.fullmatch(re.escape(image) + r"@sha256:[0-9a-f]{64}", base):
                what = f"the base image is {base}, and {STACK} says {image}"
                remedy = f"write {image} (a digest may follow: {image}@sha256:...), or run `./launch update`"
                yield Problem(name, f"line {number}", what, remedy)
            return
    yield Problem(name, "", "has no default for BASE_IMAGE", f"add `ARG BASE_IMAGE={image}` before the first FROM")


def readme(path: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The table at the top of README.md; a table that its owner has rewritten is not checked."""
    patterns = {
        "image": r"^\| Base \|.*`([^`]+)`",
        "torch": r"^\| Contents \|.*\bPyTorch ([^\s,;]+)",
        "cuda": r"^\| Contents \|.*\bCUDA (\d+\.\d+)",
        "python": r"^\| Contents \|.*\bPython (\d+\.\d+)",
    }
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        for key, pattern in patterns.items():
            match = re.search(pattern, line)
            if match and match[1] != stack[key]:
                what = f"{key} is {match[1]} here, and {quoted(stack[key])} in {STACK}"
                yield Problem(path.name, f"line {number}", what, "make them the same")


def differences(file: str, here: Container, other: str, there: Container, gpus: str) -> Iterator[Problem]:
    """Differences between the service `dev` of a compose file and the configuration that VS Code and launch read."""

    def problem(key: str, mine: Any, theirs: Any, remedy: str = "make them the same") -> Problem:
        return Problem(file, f"/services/dev/{key}", f"{quoted(mine)} here, {quoted(theirs)} in {other}", remedy)

    if (here.gpu, here.runtime) != (there.gpu, there.runtime):
        mine, theirs = (f"{c.gpu or 'no GPU'}{' by ' + c.runtime if c.runtime else ''}" for c in (here, there))
        what = f"with GPUS {'=' * (gpus != 'unset')}{gpus} it asks for {mine}, and {other} for {theirs}"
        remedy = "give deploy.resources.reservations.devices and runtime what runArgs ask for"
        yield Problem(file, "/services/dev/deploy", what.replace("GPUS =", "GPUS="), remedy)
    for key, attribute in (("ipc", "ipc"), ("shm_size", "shm_size"), ("init", "init")):
        mine, theirs = getattr(here, attribute), getattr(there, attribute)
        if mine != theirs:
            yield problem(key, mine, theirs)
    if there.network and here.network != there.network:
        yield problem("networks", here.network, there.network)
    for key in sorted({*here.ulimits, *there.ulimits}):
        if here.ulimits.get(key) != there.ulimits.get(key):
            yield problem(f"ulimits/{key}", here.ulimits.get(key), there.ulimits.get(key))
    for target in sorted({*here.mounts, *there.mounts}):
        mine, theirs = here.mounts.get(target), there.mounts.get(target)
        if mine is None:
            yield Problem(
                file, "/services/dev/volumes", f"{target} is not mounted, and {other} mounts it", f"add {target}"
            )
        elif theirs is None:
            what = f"{target} is mounted, and {other} does not mount it"
            yield Problem(file, "/services/dev/volumes", what, f"remove {target}, or add it there")
        elif mine != theirs:
            what = f"{target} is a {mine}, and in {other} a {theirs}"
            yield Problem(file, "/services/dev/volumes", what, "make them the same")
    yield from named_differences(file, "environment", here.env, other, there.env)
    ids = ("USER_UID", "USER_GID")  # VS Code sets the ids itself
    args = {name: value for name, value in here.build_args.items() if name not in ids}
    yield from named_differences(file, "build/args", args, other, there.build_args)


def named_differences(
    file: str, key: str, here: Mapping[str, str | None], other: str, there: Mapping[str, str | None]
) -> Iterator[Problem]:
    for name in sorted({*here, *there}):
        place = f"/services/dev/{key}/{name}"
        if here.get(name, "") == there.get(name, "") == "":
            continue  # unset in one file and empty in the other
        if name not in here:
            yield Problem(file, place, f"is missing, and {other} has it", f"add {name}")
        elif name not in there:
            yield Problem(file, place, f"{other} does not have it", f"remove {name}, or add it there")
        elif here[name] != there[name] and None not in (here[name], there[name]):
            yield Problem(file, place, f"has another value in {other}", "make them the same")
