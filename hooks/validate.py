"""Hold what was generated, or what an update merged, against what a GPU project must be. It reads and never writes.

Two kinds of rules: hooks/schemas/ says what a file must have, and this file what must agree between files:
stack.json (what the project expects), .devcontainer/devcontainer.json (how its container runs), the
configuration without a GPU, compose.yaml and the Dockerfile. A problem is one line: file, place, what is wrong, what
to do. No value of a variable is ever printed: it could be a secret.

Only the schemas need a package (jsonschema), and compose.yaml needs PyYAML. Without them the rest is still checked.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from gpukit.project import devcontainer

FINE, WRONG, SKIPPED = 0, 10, 11
SCHEMAS = Path(__file__).with_name("schemas")
STACK = "stack.json"
MAIN = ".devcontainer/devcontainer.json"
CPU = ".devcontainer/cpu/devcontainer.json"
COMPOSE, COMPOSE_CPU = "compose.yaml", "compose.cpu.yaml"
DAYS_BEFORE_AN_END = 90

# The host that both files are read for: how GPUS is set decides what they ask for, so agreement is tried in each case.
HOST = {"HOME": "/home/you", "USER": "you", "BASE_IMAGE": "mirror/base:1", "UV_INDEX": "pytorch=https://mirror/whl"}
CHOICES = ({}, {"GPUS": "0"}, {"GPUS": "0,1"}, {"GPUS": "GPU-8f7c2d31"})

SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|(?:API)?KEY|SECRET|PASSWORD|PASSWD)S?(?:_|$)(?!.*(?:FILE|PATH|DIR)$)", re.I)
SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{30,})"
)
HOST_VARIABLE = re.compile(r"\$\{(?:(?:localEnv|env|containerEnv):)?(\w+)")
CREDENTIALS = re.compile(r"/(\.aws|\.azure|\.config/gcloud|\.kaggle|\.netrc|\.ssh|\.docker|\.gnupg)(/|$)")

# docker run's one-letter options, and those without a value: needed to read `--ipc host` as well as `--ipc=host`.
LONG = {"-e": "--env", "-h": "--hostname", "-l": "--label", "-m": "--memory", "-p": "--publish", "-u": "--user"}
LONG.update({"-v": "--volume", "-w": "--workdir", "-P": "--publish-all", "--net": "--network"})
SWITCHES = {"--init", "--privileged", "--publish-all", "--read-only", "--rm", "--no-healthcheck", "--oom-kill-disable"}


class Problem(NamedTuple):
    file: str
    place: str  # a JSON pointer, or "line 7"
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place + ': ' if self.place else ''}{self.what}; {self.remedy}"


class Mount(NamedTuple):
    type: str
    source: str
    read_only: bool

    def __str__(self) -> str:
        return f"{self.type} of {self.source or 'nothing named'}, {'read-only' if self.read_only else 'writable'}"


@dataclass
class Container:
    """How a container runs, whichever file says it. A variable of value None comes from the host, by name."""

    gpu: str = ""
    runtime: str = ""
    ipc: str = "private"
    shm_size: int | None = None
    ulimits: dict[str, str] = field(default_factory=dict)
    init: bool = False
    network: str = ""
    mounts: dict[str, Mount] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    build_args: dict[str, str] = field(default_factory=dict)
    ports: list[str] = field(default_factory=list)


def run(project: Path) -> int:
    """Print what is wrong, or one line when nothing is, and return FINE, WRONG or SKIPPED."""
    validation = Validation(project)
    problems = validation.problems()
    for problem in problems:
        print(f"validate: {problem}", file=sys.stderr)
    if problems:
        print(f"validate: {len(problems)} to mend; this check changed nothing.", file=sys.stderr, flush=True)
        return WRONG
    skipped = f"; not checked: {' and '.join(validation.skipped)}" if validation.skipped else ""
    print(f"validate: {', '.join(validation.read)} are complete and agree{skipped}.", flush=True)
    if validation.ending:
        print(f"validate: notice: {validation.ending}", flush=True)
    return SKIPPED if validation.skipped else FINE


class Validation:
    """One look at one project: what was read, what was found, and what could not be looked at."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.read: list[str] = []
        self.skipped: list[str] = []
        self.found: list[Problem] = []
        self.ending = ""
        self.validator: Any = None
        try:
            from jsonschema.validators import Draft202012Validator
        except ImportError:
            self.skipped.append("the schemas (no jsonschema here)")
        else:
            self.validator = Draft202012Validator

    def problems(self) -> list[Problem]:
        stack = self.file(STACK, lambda path: json.loads(path.read_text(encoding="utf-8")), "stack")
        gpu = stack is not None and self.attempt(has_gpu, stack)
        configs = {}
        for name in (MAIN, CPU):
            if name == CPU and not (self.project / CPU).exists():
                if gpu:
                    self.found.append(Problem(CPU, "", "is missing", "restore it: laptops and CI have no GPU"))
                continue
            raw = self.file(name, devcontainer.read, "devcontainer")
            if raw is not None:
                configs[name] = raw
                self.attempt(devcontainer_secrets, name, raw)
                self.attempt(safe, name, self.container(name))
        if stack is not None:
            self.ending = self.attempt(ending, stack) or ""
            self.attempt(dockerfile, self.project / "Dockerfile", stack)
            self.attempt(readme, self.project / "README.md", stack)
            for name, raw in configs.items():
                self.attempt(user_and_mounts, name, raw, self.container(name), stack)
            if CPU in configs:
                self.attempt(without_cuda, configs[CPU])
            if MAIN in configs and not any(problem[:2] == (MAIN, "/runArgs") for problem in self.found):
                self.attempt(gpu_and_memory, self.container(MAIN), self.container(MAIN, {"GPUS": "0"}), stack)
        self.compose(configs)
        for name in (MAIN, CPU, COMPOSE, COMPOSE_CPU, "Dockerfile", ".env.example"):
            self.attempt(secret_values, self.project, name)
        return list(dict.fromkeys(self.found))

    def compose(self, configs: Mapping[str, Any]) -> None:
        if not (self.project / COMPOSE).exists():
            return
        try:
            import yaml
        except ImportError:
            self.skipped.append("compose.yaml (no PyYAML here)")
            return
        base = self.file(COMPOSE, lambda path: compose_yaml(yaml, path), "compose")
        if base is None:
            return
        self.attempt(compose_secrets, COMPOSE, base)
        if MAIN in configs:
            self.agreement(MAIN, COMPOSE, base)
        if CPU in configs:
            override = self.file(COMPOSE_CPU, lambda path: compose_yaml(yaml, path))
            if override is not None:
                both = merged(base, override)
                self.attempt(compose_secrets, COMPOSE_CPU, override)
                self.agreement(CPU, COMPOSE_CPU, both)

    def agreement(self, devcontainer: str, compose: str, content: Mapping[str, Any]) -> None:
        """The service `dev` and the configuration, in each way that GPUS may be set: a difference is told once."""
        for choice in CHOICES:
            here = self.attempt(service, content, self.project, {**HOST, **choice})
            there = self.container(devcontainer, choice)
            if here is None or there is None:
                return
            told = {problem.place for problem in self.found if problem.file == COMPOSE != compose}
            problems = list(differences(compose, here, devcontainer, there, choice.get("GPUS", "unset")))
            problems = [problem for problem in problems if problem.place not in told]
            self.found += problems
            if problems:
                return

    def container(self, name: str, choice: Mapping[str, str] | None = None) -> Container | None:
        try:
            config = devcontainer.load(self.project / name, {**HOST, **(choice or {})})
        except devcontainer.ConfigError as error:
            what = str(error).replace(f"{self.project / name}: ", "").rstrip(".")
            self.found.append(Problem(name, "", what, "`git diff` shows what changed"))
            return None
        return self.attempt(configured, config)

    def file(self, name: str, read: Callable[[Path], Any], schema: str = "") -> Any:
        """What a file holds, or None where it cannot be read or is not an object; either is a problem."""
        path = self.project / name
        try:
            content = read(path)
        except FileNotFoundError:
            self.found.append(Problem(name, "", "is missing", "restore it with `git checkout`, or generate again"))
            return None
        except (OSError, ValueError, devcontainer.ConfigError) as error:
            if not path.exists():
                return self.file(name, Path.read_bytes)
            text = " ".join(str(error).split()).replace(f"{path} ", "").rstrip(".")
            line = re.search(r"\(?line (\d+)", text)
            what = re.sub(r":? \(?line \d+.*", "", text)
            place = f"line {line[1]}" if line else ""
            self.found.append(Problem(name, place, what, "mend that line, or restore it with `git checkout`"))
            return None
        self.read.append(name)
        if not isinstance(content, dict):
            self.found.append(Problem(name, "", "holds no mapping of names", "restore it with `git checkout`"))
            return None
        if schema and self.validator:
            rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))
            for error in self.validator(rules).iter_errors(content):
                self.found += schema_problems(name, error, rules)
        return content

    def attempt(self, rule: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a rule. One that stumbles over what the schema already calls wrong has nothing to add."""
        if any(argument is None for argument in arguments):
            return None
        try:
            result = rule(*arguments)
            if not isinstance(result, Iterator):
                return result
            self.found += result
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            if not self.found:
                raise
        return None


# The rules. Each yields its problems.


def has_gpu(stack: Mapping[str, Any]) -> bool:
    return any(target["capability"] for target in stack["targets"].values())


def ending(stack: Mapping[str, Any], today: date | None = None) -> str:
    """A pin stays where it is on `copier update`, so somebody has to say when its fixes end."""
    if stack["channel"] != "pin" or not stack["end_of_life"]:
        return ""
    left = (date.fromisoformat(stack["end_of_life"]) - (today or date.today())).days
    if left > DAYS_BEFORE_AN_END:
        return ""
    when = "gets no fixes after" if left >= 0 else "has had no fixes since"
    remedy = "`copier update --trust -d release=current` takes the newest."
    return f"release {stack['release']} is pinned and {when} {stack['end_of_life']}; {remedy}"


def gpu_and_memory(default: Container, first: Container, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """What stack.json says of the hardware; `default` is the container with GPUS unset, `first` with GPUS=0."""
    targets = ", ".join(stack["targets"])
    request = stack.get("request") or {}
    asks = "runtime" if first.runtime == "nvidia" else "gpus" if first.gpu else ""
    wanted = request.get("kind", asks or "gpus") if has_gpu(stack) else ""
    spelled = {
        "gpus": '"--gpus=\\"device=${localEnv:GPUS:all}\\""',
        "runtime": '"--runtime=nvidia" with NVIDIA_VISIBLE_DEVICES in containerEnv',
    }
    if asks and not wanted:
        remedy = "take the request out"
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
        yield Problem(MAIN, "/runArgs", f"all GPUs are requested, and {targets} must not be asked for all", remedy)

    memory = stack["memory"]
    pairs = [("--ipc", default.ipc, memory["ipc"] or "private")]
    pairs.append(("--shm-size", default.shm_size, size(memory["shm_size"])))
    for name, value in (memory.get("ulimits") or {}).items():
        pairs.append((f"--ulimit {name}", default.ulimits.get(name), ulimit(value)))
    for flag, here, there in pairs:
        if here != there:
            what = f"{flag} is {told_value(here)}, and the memory policy in {STACK} says {told_value(there)}"
            yield Problem(MAIN, "/runArgs", what, "make the flag what the policy says")


def user_and_mounts(
    name: str, raw: Mapping[str, Any], container: Container, stack: Mapping[str, Any]
) -> Iterator[Problem]:
    key = "remoteUser" if "remoteUser" in raw else "containerUser"
    if key in raw and raw[key] != stack["user"]:
        what = f"{told_value(raw[key])}, and the image's user is {told_value(stack['user'])} ({STACK})"
        yield Problem(name, f"/{key}", what, f"write {told_value(stack['user'])}")
    for target in [*stack["mounts"], *stack["read_only"]]:
        mount, read_only = container.mounts.get(target), target in stack["read_only"]
        if mount is None:
            what = f"nothing is mounted at {target}, which {STACK} expects"
            yield Problem(name, "/mounts", what, f'add "type=bind,source=...,target={target}{",readonly" * read_only}"')
        elif mount.read_only != read_only:
            modes = ("read-only", "writable") if mount.read_only else ("writable", "read-only")
            what = f"{target} is mounted {modes[0]}, and {STACK} has it {modes[1]}"
            yield Problem(name, "/mounts", what, f"{'add' if read_only else 'take out'} `readonly`")


def without_cuda(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """The configuration beside one with a GPU: the Dockerfile's defaults are for the GPU, so it must say otherwise."""
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


def devcontainer_secrets(name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    for section in ("containerEnv", "remoteEnv"):
        for variable, value in (raw.get(section) or {}).items():
            yield from secret(name, f"/{section}/{variable}", variable, value, '"--env={}" to runArgs')
    for option, value in options(raw.get("runArgs") or []):
        variable, equals, value = value.partition("=")
        if option == "--env" and equals:
            yield from secret(name, "/runArgs", variable, value, '"--env={}" to runArgs')
    for variable, value in (raw["build"].get("args") or {}).items():
        yield from secret(name, f"/build/args/{variable}", variable, value, "`--mount=type=secret` to the Dockerfile")


def compose_secrets(name: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    for key, entry in content["services"].items():
        if not isinstance(entry, Mapping):
            continue
        for variable, value in named(entry.get("environment")).items():
            place = f"/services/{key}/environment/{variable}"
            yield from secret(name, place, variable, value, "the bare name ({}, without a value) to environment")
        build = entry.get("build")
        for variable, value in named(build.get("args") if isinstance(build, Mapping) else None).items():
            place = f"/services/{key}/build/args/{variable}"
            yield from secret(name, place, variable, value, "`--mount=type=secret` to the Dockerfile")


def secret(file: str, place: str, variable: str, value: Any, instead: str) -> Iterator[Problem]:
    if value in (None, ""):
        return
    hosts = [name for name in HOST_VARIABLE.findall(str(value)) if SECRET_NAME.search(name)]
    if not SECRET_NAME.search(variable) and not hosts:
        return
    if hosts:
        what = f"the value of {hosts[0]} would reach command lines and logs"
    else:
        what = "a value stands here for everyone who reads the file"
    yield Problem(file, place, what, f"take it out and add {instead.format(hosts[0] if hosts else variable)}")


def secret_values(project: Path, name: str) -> Iterator[Problem]:
    path = project / name
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if SECRET_VALUE.search(line):
                what = "this looks like a secret token"
                yield Problem(
                    name, f"line {number}", what, "take it out, have it revoked where it was made, pass it by name"
                )


def dockerfile(path: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    name, image = path.name, stack["image"]
    if not path.is_file():
        yield Problem(name, "", "is missing", "restore it with `git checkout`, or generate again")
        return
    default = re.compile(r"^\s*ARG\s+BASE_IMAGE=[\"']?([^\s\"']+)|\$\{BASE_IMAGE:-([^}]+)\}")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = default.search(line)
        if match and not line.lstrip().startswith("#"):
            base = match[1] or match[2]
            if base != image and not re.fullmatch(re.escape(image) + r"@sha256:[0-9a-f]{64}", base):
                what = f"the base image is {base}, and {STACK} says {image}"
                remedy = f"write {image} (a digest may follow: {image}@sha256:...), or run `copier update`"
                yield Problem(name, f"line {number}", what, remedy)
            return
    yield Problem(name, "", "has no default for BASE_IMAGE", f"add `ARG BASE_IMAGE={image}` before the first FROM")


def readme(path: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The table at the top of README.md; where its owner has rewritten it, nothing is wrong."""
    said = {
        "image": r"^\| Base \|.*`([^`]+)`",
        "torch": r"^\| Inside \|.*\bPyTorch ([^\s,;]+)",
        "cuda": r"^\| Inside \|.*\bCUDA (\d+\.\d+)",
        "python": r"^\| Inside \|.*\bPython (\d+\.\d+)",
    }
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        for key, pattern in said.items():
            match = re.search(pattern, line)
            if match and match[1] != stack[key]:
                what = f"{key} is {match[1]} here, and {told_value(stack[key])} in {STACK}"
                yield Problem(path.name, f"line {number}", what, "make them the same")


def differences(file: str, here: Container, other: str, there: Container, gpus: str) -> Iterator[Problem]:
    """Where the service `dev` of a compose file runs otherwise than the configuration that VS Code and launch read."""

    def problem(key: str, mine: Any, theirs: Any, remedy: str = "make them the same") -> Problem:
        return Problem(
            file, f"/services/dev/{key}", f"{told_value(mine)} here, {told_value(theirs)} in {other}", remedy
        )

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
            yield Problem(file, "/services/dev/volumes", what, f"take {target} out, or add it there")
        elif mine != theirs:
            what = f"{target} is a {mine}, and in {other} a {theirs}"
            yield Problem(file, "/services/dev/volumes", what, "make them the same")
    yield from named_differences(file, "environment", here.env, other, there.env)
    ids = ("USER_UID", "USER_GID")  # VS Code gives the image the host's ids itself
    args = {name: value for name, value in here.build_args.items() if name not in ids}
    yield from named_differences(file, "build/args", args, other, there.build_args)


def named_differences(
    file: str, key: str, here: Mapping[str, str | None], other: str, there: Mapping[str, str | None]
) -> Iterator[Problem]:
    for name in sorted({*here, *there}):
        place = f"/services/dev/{key}/{name}"
        if here.get(name, "") == there.get(name, "") == "":
            continue  # one says nothing, the other says that it is empty
        if name not in here:
            yield Problem(file, place, f"is missing, and {other} has it", f"add {name}")
        elif name not in there:
            yield Problem(file, place, f"{other} does not have it", f"take {name} out, or add it there")
        elif here[name] != there[name] and None not in (here[name], there[name]):
            yield Problem(file, place, f"has another value in {other}", "make them the same")


# Reading: the two files' ways of saying how a container runs.


def configured(config: Any) -> Container:
    """A container from launch's reading of devcontainer.json."""
    container = Container(init=config.init, build_args=dict(config.build_args))
    container.env.update({k: None if k in config.by_name else v for k, v in config.container_env.items()})
    mounts = [config.workspace_mount, *config.mounts]
    for option, value in options(config.run_args):
        if option == "--gpus":
            container.gpu = gpus(value)
        elif option == "--device" and value.startswith("nvidia.com/gpu="):
            container.gpu = ",".join(filter(None, (container.gpu, value.partition("=")[2])))
        elif option == "--runtime":
            container.runtime = value
        elif option == "--ipc":
            container.ipc = value
        elif option == "--shm-size":
            container.shm_size = size(value)
        elif option == "--ulimit":
            name, _, limit = value.partition("=")
            container.ulimits[name] = ulimit(limit)
        elif option == "--init":
            container.init = value != "false"
        elif option == "--network":
            container.network = value
        elif option == "--env":
            name, equals, text = value.partition("=")
            container.env[name] = text if equals else None
        elif option in ("--publish", "--publish-all"):
            container.ports.append(value if option == "--publish" else "by --publish-all")
        elif option == "--mount":
            mounts.append(mount_fields(value))
        elif option == "--volume":
            mounts.append(short_volume(value))
    for mount in filter(None, mounts):
        source = os.path.normpath(mount["source"]) if mount["type"] == "bind" else mount["source"]
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, bool(mount["readonly"]))
    return container


def service(content: Mapping[str, Any], project: Path, env: Mapping[str, str]) -> Container:
    """A container from the service `dev` of a compose file, with `env` as the host's environment."""
    entry = interpolated(content["services"]["dev"], env)
    container = Container(init=entry.get("init") is True, ipc=entry.get("ipc") or "private")
    container.runtime = entry.get("runtime") or ""
    container.shm_size = size(entry.get("shm_size"))
    container.ulimits = {name: ulimit(value) for name, value in (entry.get("ulimits") or {}).items()}
    container.env = named(entry.get("environment"))
    build = entry.get("build")
    args = named(build.get("args") if isinstance(build, Mapping) else None)
    container.build_args = {name: env.get(name, "") if value is None else value for name, value in args.items()}
    reservations = ((entry.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    for device in reservations.get("devices") or []:
        if "gpu" in (device.get("capabilities") or []) or device.get("driver") == "cdi":
            ids, count = device.get("device_ids"), device.get("count", "all")
            names = ",".join(str(item).replace("nvidia.com/gpu=", "") for item in ids or [])
            container.gpu = (f"{count} of them" if count != "all" else "all") if ids is None else names
    container.network = entry.get("network_mode") or interpolated(joined_network(content, entry), env)
    for volume in entry.get("volumes") or []:
        mount = short_volume(volume) if isinstance(volume, str) else volume
        source = str(mount.get("source") or "")
        if mount["type"] == "bind":
            source = re.sub(r"^~(?=/|$)", env["HOME"], source)
            source = os.path.normpath(project.absolute() / source)
        read_only = bool(mount.get("read_only") or mount.get("readonly"))
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, read_only)
    return container


def joined_network(content: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    names = list(entry.get("networks") or ["default"])
    declared = (content.get("networks") or {}).get(names[0]) or {}
    return declared.get("name") or names[0]


def options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """docker run's options as (long name, value), whichever way they are written."""
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
        else:
            name, equals, value = argument[:2], argument[2:], argument[2:].removeprefix("=")
        name = LONG.get(name, name)
        if name in SWITCHES:
            yield name, value or "true"
        else:
            yield name, value if equals else next(rest, "")


def gpus(value: str) -> str:
    """What --gpus asks for: "all", ids with commas between, or a number of GPUs as "3 of them"."""
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


def named(entries: Any) -> dict[str, str | None]:
    """Compose's environment or args, written as a mapping or as a list; None where there is only the name."""
    if isinstance(entries, Mapping):
        return {str(name): None if value is None else scalar(value) for name, value in entries.items()}
    pairs = (str(entry).partition("=") for entry in entries or [])
    return {name: value if equals else None for name, equals, value in pairs}


def scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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


class Reset:
    """What `!reset` stands for: the key is taken away."""


class Override(NamedTuple):
    """What `!override` stands for: the value replaces the one below instead of being merged into it."""

    value: Any


def compose_yaml(yaml: Any, path: Path) -> Any:
    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        pass

    def override(loader: Any, node: Any) -> Override:
        if isinstance(node, yaml.MappingNode):
            return Override(loader.construct_mapping(node, deep=True))
        if isinstance(node, yaml.SequenceNode):
            return Override(loader.construct_sequence(node, deep=True))
        return Override(loader.construct_scalar(node))

    Loader.add_constructor("!reset", lambda loader, node: Reset())
    Loader.add_constructor("!override", override)
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise ValueError(f"is not YAML: {getattr(error, 'problem', None) or error}{line}") from error


def merged(base: Any, over: Any) -> Any:
    """Two compose files as Compose joins them, as far as the service `dev` needs it."""
    if isinstance(over, Override):
        return over.value
    if isinstance(base, dict) and isinstance(over, dict):
        result = dict(base)
        for key, value in over.items():
            if isinstance(value, Reset):
                result.pop(key, None)
            else:
                result[key] = merged(result.get(key), value)
        return result
    if isinstance(base, list) and isinstance(over, list):
        return [*base, *over]
    return over


VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<how>:?[-+?])(?P<text>[^${}]*))?\}|\$(?P<bare>\w+)")


def interpolated(value: Any, env: Mapping[str, str]) -> Any:
    """Compose's ${NAME:-default}, innermost first, in all strings of `value`."""
    if isinstance(value, dict):
        return {key: interpolated(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, env) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return match[0]
        name, how, text = match["name"] or match["bare"], match["how"] or "", match["text"] or ""
        present = env.get(name, "") if how.startswith(":") else env.get(name)
        there = bool(present) if how.startswith(":") else present is not None
        if how.endswith("+"):
            return text if there else ""
        if how.endswith("-"):
            return str(present) if there else text
        return str(present or "")  # ${NAME:?message}: that it must be set is for the moment of the start

    for _ in range(8):
        replaced = VARIABLE.sub(replacement, value)
        if replaced == value:
            break
        value = replaced
    return value.replace("$$", "$")


# Telling.


def schema_problems(file: str, error: Any, rules: Mapping[str, Any]) -> Iterator[Problem]:
    """A finding of jsonschema, in our words and with the remedy that the schema knows; values stay unsaid."""
    place = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in error.absolute_path)
    remedy = remedy_of(error, rules) or "restore it with `git checkout`, or run `copier update`"
    kind, wanted, instance = error.validator, error.validator_value, error.instance
    if kind == "required":
        for name in wanted:
            if name not in instance:
                known = error.schema.get("properties", {}).get(name, {})
                yield Problem(file, f"{place}/{name}", "is missing", known.get("remedy", remedy))
        return
    if kind == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        what = f"is {type_name(instance)} and must be {' or '.join(names)}"
    elif kind == "const":
        what = f"must be {json.dumps(wanted)}"
    elif kind == "enum":
        what = f"must be one of {', '.join(map(json.dumps, wanted))}"
    elif kind == "contains":
        what = "what is needed is not in the list"
    elif kind == "additionalProperties" and wanted is False:
        extra = sorted(set(instance) - set(error.schema.get("properties", {})))
        what = f"unknown: {', '.join(extra)}"
    elif kind in ("minLength", "minItems"):
        what = "is empty"
    elif kind in ("not", "anyOf", "oneOf"):
        what = "is not allowed"
    elif kind == "pattern" and isinstance(instance, str):
        what = f"{told_value(instance)} is not right here"
    else:
        what = f"breaks the rule {kind}"
    yield Problem(file, place, what, remedy)


def remedy_of(error: Any, rules: Mapping[str, Any]) -> str:
    """The remedy nearest to the rule that was broken, on its way down from the schema's root."""
    node: Any = rules
    remedy = rules.get("remedy", "")
    for part in error.absolute_schema_path:
        if isinstance(node, Mapping) and part not in node and "$ref" in node:  # jsonschema's paths leave $ref out
            node = rules["$defs"][node["$ref"].rpartition("/")[2]]
            remedy = node.get("remedy", remedy)
        node = node[part]
        if isinstance(node, Mapping):
            remedy = node.get("remedy", remedy)
    return remedy


def type_name(value: Any) -> str:
    names = {bool: "boolean", str: "string", dict: "object", list: "array", int: "integer", float: "number"}
    return names.get(type(value), "null")


def told_value(value: Any) -> str:
    if value is None:
        return "not set"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else scalar(value)
    return text if len(text) <= 90 else f"{text[:87]}..."


if __name__ == "__main__":
    sys.exit(1 if run(Path.cwd()) == WRONG else 0)
