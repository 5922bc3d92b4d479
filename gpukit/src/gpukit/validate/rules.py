"""Values that must agree between the files. Each rule yields its problems."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.project import flags
from gpukit.project.devcontainer import Config
from gpukit.project.flags import size, ulimit
from gpukit.project.messages import alike
from gpukit.validate.container import Container
from gpukit.validate.problem import CPU, MAIN, STACK, Problem, quoted
from gpukit.validate.values import wrong, wrong_mount

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


def targets(stack: Mapping[str, Any]) -> Iterator[Problem]:
    """Each target must be hardware that gpukit knows, and torch must have a kernel for it."""
    known = data("cards")
    for id, target in stack["targets"].items():
        place, kernels = f"/targets/{id}", stack["kernels"].get(target["arch"]) or {"sass": [], "ptx": []}
        if id not in known:
            meant = alike(id, known)
            remedy = f"did you mean `{meant}`?" if meant else "restore it with `git checkout`"
            yield Problem(STACK, place, "is no hardware that gpukit knows", remedy)
        elif target["capability"] and not runs(target["capability"], tuple(kernels["sass"]), tuple(kernels["ptx"])):
            what = f"/kernels have no code for {target['arch']} and {target['capability']}"
            yield Problem(STACK, place, what, "restore it with `git checkout`, or run `./launch update`")


def gpu_request(default: Container, first: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The GPU in stack.json; `default` is the container with GPUS unset, `first` with GPUS=0."""
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
    if wanted == asks == "runtime" and "NVIDIA_VISIBLE_DEVICES" not in first.env:
        remedy = f'write "NVIDIA_VISIBLE_DEVICES": "${{localEnv:GPUS:{request.get("devices") or "all"}}}"'
        yield Problem(MAIN, "/containerEnv/NVIDIA_VISIBLE_DEVICES", "is missing: no GPU would be visible", remedy)
    cap = first.env.get("PYTORCH_ALLOC_CONF") or ""
    if stack["memory"]["fraction"] and "per_process_memory_fraction" not in cap:
        what = "sets no per_process_memory_fraction, and too large an allocation freezes a machine with unified memory"
        yield Problem(MAIN, "/containerEnv/PYTORCH_ALLOC_CONF", what, "restore it with `git checkout`")


def memory(name: str, raw: Mapping[str, Any], container: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    policy = stack["memory"]
    pairs = [("--ipc", container.ipc, policy["ipc"] or "private")]
    pairs.append(("--shm-size", container.shm_size, size(policy["shm_size"])))
    for limit, value in (policy.get("ulimits") or {}).items():
        pairs.append((f"--ulimit {limit}", container.ulimits.get(limit), ulimit(value)))
    differing = [(flag, quoted(here), quoted(there)) for flag, here, there in pairs if here != there]
    if differing:
        seen = ", ".join(f"{flag} is {here}" for flag, here, _ in differing)
        wanted = ", ".join(there for _, _, there in differing)
        what = f"{seen}, and the memory policy in {STACK} says {wanted}"
        yield Problem(name, "/runArgs", what, "change the flags to match the policy")


def user(name: str, raw: Mapping[str, Any], container: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    key = "remoteUser" if "remoteUser" in raw else "containerUser"
    if key in raw and raw[key] != stack["user"]:
        what = f"{quoted(raw[key])}, and the image's user is {quoted(stack['user'])} ({STACK})"
        yield Problem(name, f"/{key}", what, f"write {quoted(stack['user'])}")


def mounts(name: str, raw: Mapping[str, Any], container: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    absent = [target for target in [*stack["mounts"], *stack["read_only"]] if target not in container.mounts]
    if absent:
        key = "/workspaceMount" if absent == ["/workspace"] else "/mounts"
        what = f"nothing is mounted at {', '.join(absent)}, which {STACK} expects"
        end = ",readonly" if absent[0] in stack["read_only"] else ""
        yield Problem(name, key, what, f'add "type=bind,source=...,target={absent[0]}{end}"')
    for target in [*stack["mounts"], *stack["read_only"]]:
        mount, read_only = container.mounts.get(target), target in stack["read_only"]
        if mount is None:
            continue
        if mount.read_only != read_only:
            modes = ("read-only", "writable") if mount.read_only else ("writable", "read-only")
            what = f"{target} is mounted {modes[0]}, and {STACK} has it {modes[1]}"
            yield Problem(name, "/mounts", what, f"{'add' if read_only else 'remove'} `readonly`")


def options(name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    for what, remedy in flags.mistakes(raw["runArgs"]):
        yield Problem(name, "/runArgs", what, remedy)


def regular_user(name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    if not {"containerUser", "remoteUser"} & {*raw}:
        remedy = "name the image's regular user: files that root writes to the workspace belong to root on the host"
        yield Problem(name, "/containerUser", "is missing", remedy)


def values(config: Config, name: str) -> Iterator[Problem]:
    """Values of flags and mounts that no engine accepts."""
    for option in flags.read(config.run_args):
        what = "" if option.wrong else wrong(option.name, option.value)
        if what:
            yield Problem(name, "/runArgs", what, "correct it, or remove it")
    if config.workspace_mount and wrong_fields(config.workspace_mount):
        yield Problem(name, "/workspaceMount", wrong_fields(config.workspace_mount), "correct it")
    for position, mount in enumerate(config.mounts):
        if wrong_fields(mount):
            yield Problem(name, f"/mounts/{position}", wrong_fields(mount), 'write "type=bind,source=...,target=/..."')


def wrong_fields(mount: Mapping[str, Any]) -> str:
    return wrong_mount([*(f"{key}={mount[key]}" for key in ("type", "source", "target")), *mount["options"]])


def without_gpu(raw: Mapping[str, Any], container: Container) -> Iterator[Problem]:
    """The CPU configuration must request no GPU, and override the Dockerfile's defaults, which are for the GPU."""
    if container.gpu or container.runtime == "nvidia":
        yield Problem(CPU, "/runArgs", "a GPU is requested in the configuration without one", "remove the request")
    if container.env.get("GPUKIT_DEVICE") != "cpu":
        remedy = 'write "GPUKIT_DEVICE": "cpu", so that programs look for no GPU'
        yield Problem(CPU, "/containerEnv/GPUKIT_DEVICE", "is not cpu", remedy)
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


def readme(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The table at the top of README.md; a table that its owner has rewritten is not checked."""
    patterns = {
        "image": r"^\| Base \|.*`([^`]+)`",
        "torch": r"^\| Contents \|.*\bPyTorch ([^\s,;]+)",
        "cuda": r"^\| Contents \|.*\bCUDA (\d+\.\d+)",
        "python": r"^\| Contents \|.*\bPython (\d+\.\d+)",
    }
    path = project / "README.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        for key, pattern in patterns.items():
            match = re.search(pattern, line)
            if match and match[1] != stack[key]:
                what = f"{key} is {match[1]}, and {STACK} says {stack[key]}"
                yield Problem(path.name, f"line {number}", what, "make them the same")


def differences(file: str, here: Container, other: str, there: Container, gpus: str) -> list[Problem]:
    """Differences between the service `dev` of a compose file and the configuration that VS Code and launch read.

    Several in one section are one problem.
    """
    found = []
    for section in ("deploy", "", "networks", "user", "ulimits", "volumes", "environment", "build/args"):
        problems = [each for each in one_by_one(file, here, other, there, gpus) if each.section == section]
        if section and len(problems) > 1:
            names = ", ".join(each.name for each in problems)
            what = f"differs from {other}: {names}"
            found.append(Problem(file, f"/services/dev/{section}", what, "make them the same"))
        else:
            found += [Problem(file, f"/services/dev/{each.place}", each.what, each.remedy) for each in problems]
    return found


class Difference(NamedTuple):
    section: str
    name: str
    what: str
    remedy: str = "make them the same"

    @property
    def place(self) -> str:
        named = self.section in ("", "ulimits", "environment", "build/args")
        return "/".join(filter(None, [self.section, self.name])) if named else self.section


def one_by_one(file: str, here: Container, other: str, there: Container, gpus: str) -> Iterator[Difference]:
    def differing(section: str, name: str, mine: Any, theirs: Any) -> Iterator[Difference]:
        if mine != theirs:
            yield Difference(section, name, f"{quoted(mine)} here, {quoted(theirs)} in {other}")

    if (here.gpu, here.runtime) != (there.gpu, there.runtime):
        mine, theirs = (f"{c.gpu or 'no GPU'}{' by ' + c.runtime if c.runtime else ''}" for c in (here, there))
        what = f"with GPUS {'=' * (gpus != 'unset')}{gpus} it asks for {mine}, and {other} for {theirs}"
        remedy = "give deploy.resources.reservations.devices and runtime what runArgs ask for"
        yield Difference("deploy", "", what.replace("GPUS =", "GPUS="), remedy)
    for key in ("ipc", "shm_size", "init"):
        yield from differing("", key, getattr(here, key), getattr(there, key))
    yield from differing("networks", "", here.network, there.network)
    if there.network and here.network == there.network and not here.external:
        what = f"{here.network} is not external, and initialize.sh creates it before Compose does"
        yield Difference("networks", "", what, "add `external: true` to the network")
    if here.user == "0" or not (here.user or "0").isdecimal():  # another number is the host user's
        yield from differing("user", "", here.user, there.user)
    for key in sorted({*here.ulimits, *there.ulimits}):
        yield from differing("ulimits", key, here.ulimits.get(key), there.ulimits.get(key))
    for target in sorted({*here.mounts, *there.mounts}):
        mine, theirs = here.mounts.get(target), there.mounts.get(target)
        if mine is None:
            yield Difference("volumes", target, f"{target} is not mounted, and {other} mounts it", f"add {target}")
        elif theirs is None:
            what = f"{target} is mounted, and {other} does not mount it"
            yield Difference("volumes", target, what, f"remove {target}, or add it there")
        elif mine != theirs:
            yield Difference("volumes", target, f"{target} is a {mine}, and in {other} a {theirs}")
    yield from named_differences("environment", here.env, other, there.env)
    ids = ("USER_UID", "USER_GID")  # VS Code sets the ids itself
    for name in ids:
        if name not in here.build_args:
            what = "is missing, so that files created in the container belong to another user"
            yield Difference("build/args", name, what, f"add `{name}: ${{{name}}}`")
    args = {name: value for name, value in here.build_args.items() if name not in ids}
    yield from named_differences("build/args", args, other, there.build_args)


def named_differences(
    section: str, here: Mapping[str, str | None], other: str, there: Mapping[str, str | None]
) -> Iterator[Difference]:
    for name in sorted({*here, *there}):
        if here.get(name, "") == there.get(name, "") == "":
            continue  # unset in one file and empty in the other
        if name not in here:
            yield Difference(section, name, f"is missing, and {other} has it", f"add {name}")
        elif name not in there:
            yield Difference(section, name, f"{other} does not have it", f"remove {name}, or add it there")
        elif here[name] != there[name] and None not in (here[name], there[name]):
            yield Difference(section, name, f"has another value in {other}")
