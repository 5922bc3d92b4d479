"""Compose files: reading, merging, substituting variables, and how the service `dev` runs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpukit.host import git
from gpukit.project.devcontainer import ConfigError, env_file
from gpukit.project.flags import as_mapping, short_mount, size, ulimit
from gpukit.project.messages import RefusalError, alike
from gpukit.validate import image, values
from gpukit.validate.container import Container, Mount
from gpukit.validate.files import creates
from gpukit.validate.problem import COMPOSE, COMPOSE_CPU, HOST_ENV, INITIALIZE, RESTORE, Problem

VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<how>:?[-+?])(?P<text>[^${}]*))?\}|\$(?P<bare>\w+)")
WITHOUT_DEFAULT = re.compile(r"\$(?:\w|\{\w+(?:\}|:?[?+]))")
USER = ("USER_UID", "USER_GID")
LISTENS = ("UVICORN_", "MLFLOW_HOST")  # variables that say where a server listens
CHECKED = re.compile(r"(?:/dev/tcp/(?:127\.0\.0\.1|localhost)/|(?:127\.0\.0\.1|localhost):)(\d+)")


class Reset:
    """The tag `!reset`: the key is removed."""


class Override(NamedTuple):
    """The tag `!override`: the value replaces the one in the base file instead of being merged into it."""

    value: Any


def read(path: Path) -> Any:
    return parse(path.read_text(encoding="utf-8-sig"))


def parse(text: str, kind: str = "SafeLoader", several: bool = False) -> Any:
    """A YAML file, with Compose's !reset and !override. With BaseLoader, all values are strings, also the key `on`.

    `several`: it may have several documents, as for Kubernetes; they are values by their kind.

    Raises:
        ValueError: it is not YAML.
    """

    class Loader(getattr(yaml, f"C{kind}", getattr(yaml, kind))):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            # Without merged ones, which stand before: another mapping that merges this one has added them to it.
            own = [key for key, _ in node.value if key.start_mark.index >= node.start_mark.index]
            names = [key.value for key in own]
            for key in own:
                if names.count(key.value) > 1 and key.value != "<<":  # Compose refuses it, PyYAML takes the last
                    raise yaml.constructor.ConstructorError(None, None, f"it has {key.value} twice", key.start_mark)
            return super().construct_mapping(node, deep)

    def override(loader: Any, node: Any) -> Override:
        if isinstance(node, yaml.MappingNode):
            return Override(loader.construct_mapping(node, deep=True))
        if isinstance(node, yaml.SequenceNode):
            return Override(loader.construct_sequence(node, deep=True))
        return Override(loader.construct_scalar(node))

    Loader.add_constructor("!reset", lambda loader, node: Reset())
    Loader.add_constructor("!override", override)
    try:
        return by_kind(yaml.load_all(text, Loader)) if several else yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        near = text.splitlines()[max(mark.line - 1, 0) : mark.line + 1] if mark else []
        problem = getattr(error, "problem", None)
        if any(": {{" in each for each in near):
            problem = "`{{` begins a mapping: put the value in quotes"
        raise ValueError(f"{problem or error}{line}") from error


def by_kind(documents: Iterable[Any]) -> dict[str, Any]:
    """Documents by their kind; another one of the same kind, or one without, by its number."""
    found: dict[str, Any] = {}
    for number, each in enumerate(documents):
        kind = str(each.get("kind", number)) if isinstance(each, dict) else str(number)
        found[str(number) if kind in found else kind] = each
    return found


def merged(base: Any, over: Any) -> Any:
    """Merge two compose files as Compose does, as far as the service `dev` needs it."""
    if isinstance(over, Override):
        return over.value
    if over is None:
        return base
    if isinstance(over, dict) and isinstance(base, (dict, type(None))):
        result = dict(base or {})
        for key, value in over.items():
            if isinstance(value, Reset):
                result.pop(key, None)
            else:
                result[key] = merged(result.get(key), value)
        return result
    if isinstance(base, list) and isinstance(over, list):
        return [*base, *over]
    return over


def interpolated(value: Any, env: Mapping[str, str]) -> Any:
    """Replace Compose's ${NAME:-default}, innermost first, in all strings of `value`."""
    if isinstance(value, dict):
        return {key: interpolated(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, env) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return match[0]
        name = match["name"] or match["bare"]
        how = match["how"] or ""
        text = match["text"] or ""
        present = env.get(name, "") if how.startswith(":") else env.get(name)
        there = bool(present) if how.startswith(":") else present is not None
        if how.endswith("+"):
            return text if there else ""
        if how.endswith("-"):
            return str(present) if there else text
        return str(present or "")  # ${NAME:?message} is checked when the service starts

    for _ in range(8):
        replaced = VARIABLE.sub(replacement, value)
        if replaced == value:
            break
        value = replaced
    return value.replace("$$", "$")


def service(content: Mapping[str, Any], project: Path, env: Mapping[str, str]) -> Container:
    """A container from the service `dev` of a compose file, with `env` as the host's environment."""
    entry = interpolated(content["services"]["dev"], env)
    container = Container(init=entry.get("init") is True, ipc=entry.get("ipc") or "private")
    container.runtime = entry.get("runtime") or ""
    container.user = str(entry.get("user") or "").partition(":")[0]
    container.shm_size = size(entry.get("shm_size"))
    container.ulimits = {name: ulimit(value) for name, value in (entry.get("ulimits") or {}).items()}
    for file in env_files(entry):
        with contextlib.suppress(ConfigError):  # it is not on this machine
            container.env.update(env_file(project / file))
    container.env.update(as_mapping(entry.get("environment")))
    args = {name: env.get(name, "") if value is None else value for name, value in arguments(entry).items()}
    container.build_args = {name: value for name, value in args.items() if name not in USER}
    for device in gpus(entry):
        ids = device.get("device_ids")
        count = device.get("count", "all")
        names = ",".join(str(item).replace("nvidia.com/gpu=", "") for item in ids or [])
        container.gpu = (f"{count} of them" if count != "all" else "all") if ids is None else names
    container.network = entry.get("network_mode") or interpolated(network(content, entry)[0], env)
    for mount in mounts(entry):
        source = str(mount.get("source") or "")
        if mount["type"] == "bind":
            source = re.sub(r"^~(?=/|$)", env["HOME"], source)
            source = os.path.normpath(project.absolute() / source)
        read_only = bool(mount.get("read_only") or mount.get("readonly"))
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, read_only)
    return container


def env_files(entry: Mapping[str, Any]) -> dict[str, bool]:
    """The files that env_file names, each with whether it must be there."""
    given = entry.get("env_file") or []
    items = given if isinstance(given, list) else [given]
    files = [item if isinstance(item, Mapping) else {"path": item} for item in items]
    return {file["path"]: file.get("required", True) for file in files}


def gpus(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The requests for GPUs."""
    reservations = ((entry.get("deploy") or {}).get("resources") or {}).get("reservations") or {}
    devices = reservations.get("devices") or []
    return [each for each in devices if "gpu" in (each.get("capabilities") or []) or each.get("driver") == "cdi"]


def notices(base: Mapping[str, Any], both: Mapping[str, Any]) -> Iterator[str]:
    """What services that the user added need: a Compose that knows `gpus:`, and a GPU.

    https://github.com/compose-spec/compose-spec/blob/main/05-services.md#gpus (read 2026-11-26; 2.26.1 was tried)
    """
    for name, entry in both["services"].items():
        if (base["services"].get(name) or {}).get("gpus"):
            what = "older ones ignore `gpus:` and start it without a GPU"
            yield f"{COMPOSE}: the service {name} needs Compose 2.30 or newer; {what}."
        section = "deploy" if gpus(entry) else "gpus" if entry.get("gpus") else ""
        if section and not entry.get("profiles"):
            remedy = f"To start it without, add `{section}: !reset null`; or give it `profiles:`."
            yield f"{COMPOSE_CPU}: the service {name} requests a GPU. {remedy}"


def added(over: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Problem]:
    """A service that was meant to change one of compose.yaml: it has no image, and another name."""
    for name, entry in over["services"].items():
        meant = alike(name, base["services"])
        if meant and name not in base["services"] and "image" not in (entry or {}):
            yield Problem(COMPOSE_CPU, f"/services/{name}", f"is not in {COMPOSE}", f"did you mean `{meant}`?")


def without_gpu(both: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Problem]:
    """Services with the image of `dev`, as the queue of jobs, must have it without a GPU, too, and request none."""
    builds = {key: entry.get("build") for key, entry in base["services"].items()}
    dev = arguments(both["services"]["dev"])
    for key, entry in both["services"].items():
        if key == "dev" or not builds["dev"] or builds.get(key) != builds["dev"] or entry.get("profiles"):
            continue  # dev is compared with the configuration, and a service with a profile starts only if asked for
        differing = [name for name, value in dev.items() if arguments(entry).get(name) != value]
        if gpus(entry) or entry.get("gpus"):
            section = "deploy" if gpus(entry) else "gpus"
            remedy = f"write `{section}: !reset null`"
            yield Problem(COMPOSE_CPU, f"/services/{key}/{section}", "requests a GPU", remedy)
        elif differing:
            what = f"differs from the service dev in {', '.join(differing)}, so that another image is built"
            yield Problem(COMPOSE_CPU, f"/services/{key}/build/args", what, "make them the same")


def arguments(entry: Mapping[str, Any]) -> dict[str, str | None]:
    build = entry.get("build")
    return as_mapping(build.get("args")) if isinstance(build, Mapping) else {}


def mounts(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [short_mount(each) if isinstance(each, str) else each for each in entry.get("volumes") or []]


def network(content: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, bool]:
    """The network's name, which is empty for the one that Compose creates, and whether it is there before."""
    name = next(iter(entry.get("networks") or ["default"]))
    declared = (content.get("networks") or {}).get(name) or {}
    return declared.get("name") or name.replace("default", ""), bool(declared.get("external"))


def unended(name: str, value: Any, place: str = "") -> Iterator[Problem]:
    """Variables that Compose refuses, such as one without its closing brace."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unended(name, item, f"{place}/{key}")
        return
    while isinstance(value, str) and (rest := VARIABLE.sub("", value)) != value:
        value = rest
    if isinstance(value, str) and re.search(r"\$\{([^}]*$|\w+:(?![-?+]))", value):
        remedy = "write ${NAME} or ${NAME:-DEFAULT}, or $$ for a $ of the text itself"
        yield Problem(name, place, "a variable has no closing brace, or no - before its default", remedy)


def rules(content: Mapping[str, Any], project: Path) -> Iterator[Problem]:
    """What the services need of each other, of initialize.sh, and of host.env."""
    services = content["services"]
    dev = content["services"]["dev"]
    for key, entry in content.items():
        if isinstance(entry, Mapping) and {"image", "build"} & {*entry} and not key.startswith("x-"):
            yield Problem(COMPOSE, f"/{key}", "is a service, and stands beside services:", "indent it below services:")
    if not {"command", "entrypoint", "tty", "stdin_open", "extends"} & {*dev}:
        what = "is missing, so that the container ends at once"
        yield Problem(COMPOSE, "/services/dev/command", what, "write `command: sleep infinity`")
    for name in USER:  # VS Code and ./launch set the ids themselves
        if name not in arguments(dev) and "extends" not in dev:
            what = "is missing, so that files created in the container belong to another user"
            yield Problem(COMPOSE, f"/services/dev/build/args/{name}", what, f"add `{name}: ${{{name}}}`")
    script = (project / INITIALIZE).read_text(encoding="utf-8")
    unset = [name for name in USER if f"${{{name}:?" in str(dev) and not re.search(rf"\b{name}=", script)]
    if unset:
        yield Problem(INITIALIZE, "", f"does not write {' and '.join(unset)} to .env, as {COMPOSE} requires", RESTORE)
    joined, external = network(content, dev)
    if joined and not external:
        what = f"{joined} is not external, and initialize.sh creates it before Compose does"
        yield Problem(COMPOSE, "/networks", what, "add `external: true` to the network")
    for key, entry in services.items():
        if key != "dev":  # it mounts what devcontainer.json does
            yield from sources(key, entry, project)
        inline = isinstance(entry.get("build"), Mapping) and entry["build"].get("dockerfile_inline")
        if inline and (problem := image.mistake(image.instructions(interpolated(inline, {})))):
            yield problem._replace(file=COMPOSE, place=f"/services/{key}/build/dockerfile_inline")
        limited = "ALL" in (entry.get("cap_drop") or []) and not {"cap_add", "user"} & {*entry}
        if limited and inline and "USER" not in inline and any(mount["type"] == "bind" for mount in mounts(entry)):
            what = "is missing: root without its capabilities cannot write to the folders of another user"
            yield Problem(COMPOSE, f"/services/{key}/user", what, "add `user: ${USER_UID}:${USER_GID}`")
        for file, required in env_files(entry).items():
            there = not required or (project / file).is_file() or file.endswith(HOST_ENV)  # which is reported
            if not there and not private(project, file):
                what = f"{file} does not exist"
                yield Problem(COMPOSE, f"/services/{key}/env_file", what, "correct it, or add `required: false`")
    yield from ports(services)
    with contextlib.suppress(ConfigError):
        for variable, value in env_file(project / HOST_ENV):
            host = re.match(r"https?://([A-Za-z][\w-]*)(?:(?=/|$)|:(\d+))", value or "")
            if not host:
                continue
            if host[1] == "localhost":  # of any other variable, it may be meant: a server in the container, or a link
                own = [
                    key for key in services if variable.lower().startswith(key) and host[2] in ports_of(services[key])
                ]
                if own and "network_mode" not in {**dev, **services[own[0]]}:
                    what = f"{variable} names localhost, which in the container is the container itself"
                    yield Problem(HOST_ENV, "", what, f"write http://{own[0]}:{host[2]}")
            elif host[1] in services:
                listens = ports_of(services[host[1]])
                if host[2] and listens and host[2] not in listens:
                    what = f"{variable} names port {host[2]}, and the service {host[1]} listens on {listens[0]}"
                    yield Problem(HOST_ENV, "", what, f"write {listens[0]}")
            else:
                meant = alike(host[1], services)
                if meant or variable.lower().startswith(host[1]):  # any other may be a machine in the network
                    what = f"{variable} in {HOST_ENV} names the service {host[1]}, which is not here"
                    remedy = f"rename {meant}" if meant else "add it"
                    yield Problem(COMPOSE, "/services", what, f"{remedy}, or change {variable}")


def private(project: Path, file: str) -> bool:
    """Whether a file is only on the machines that need it: outside of the project, or not in git."""
    if re.search(r"^[/~]|\$|(^|/)\.env", file):
        return True
    with contextlib.suppress(RefusalError):  # without git
        return bool(git.would_ignore(project, [file]))
    return False


def ports_of(entry: Mapping[str, Any]) -> list[str]:
    """The port on which a service listens, if its command is a server of one port, and says it."""
    command = str(entry.get("command"))
    return re.findall(r"--port['\",=\s]+(\d+)(?![\w.:/-])", command) if image.serves(command) else []


def ports(services: Mapping[str, Any]) -> Iterator[Problem]:
    """Ports of the host that two services publish, if both always run, and one that no command listens on."""
    used: dict[str, str] = {}
    for key, entry in services.items():
        if entry.get("profiles"):
            continue
        short = [port for port in entry.get("ports") or [] if isinstance(port, str)]
        texts = [interpolated(port, {}) for port in short]
        listens = ports_of(entry)
        said = "env_file" in entry or any(name.startswith(LISTENS) for name in as_mapping(entry.get("environment")))
        elsewhere = entry.get("network_mode") == "host" or said
        if texts and image.only_inside(str(entry.get("command"))) and not elsewhere:
            yield Problem(COMPOSE, f"/services/{key}/command", *image.ONLY_INSIDE)
        checked = CHECKED.findall(str((entry.get("healthcheck") or {}).get("test")))
        for port in checked if listens and not entry.get("network_mode") else ():
            if port not in listens:
                what = f"asks port {port}, and the command listens on {listens[0]}"
                yield Problem(COMPOSE, f"/services/{key}/healthcheck", what, f"write {listens[0]}")
        pattern, form = values.FORMS["--publish"]
        for port, text in zip(short, texts):
            known = "$" not in text and not WITHOUT_DEFAULT.search(port)
            if known and not re.fullmatch(pattern, text, re.IGNORECASE):
                yield Problem(
                    COMPOSE, f"/services/{key}/ports", f"{text} is not a published port", f"write it as {form}"
                )
        for host, _, inner in [text.removesuffix("/tcp").rpartition(":") for text in texts]:
            if listens and len(texts) == 1 and inner.isdecimal() and inner not in listens:
                what = f"publishes port {inner} of the container, and the command listens on {listens[0]}"
                yield Problem(COMPOSE, f"/services/{key}/ports", what, f"end it with :{listens[0]}")
            protocol = inner.partition("/")[2]
            owner = used.setdefault(f"{host}/{protocol}", key) if host[-1:].isdecimal() else key
            if owner != key:
                what = f"port {host.rpartition(':')[2]} is also that of the service {owner}"
                yield Problem(COMPOSE, f"/services/{key}/ports", what, "publish it as another one")


def numbers(name: str, node: Any, key: str = "") -> Iterator[Problem]:
    """Versions of Python that YAML reads as numbers: 3.10 is 3.1."""
    if isinstance(node, yaml.MappingNode):
        for inner, value in node.value:
            yield from numbers(name, value, inner.value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from numbers(name, value, key)
    elif "python" in key and not node.style and re.fullmatch(r"\d+\.\d*0", node.value):
        what = f"{node.value} is the number {float(node.value)}"
        yield Problem(name, f"line {node.start_mark.line + 1}", what, f'write "{node.value}", with its quotes')


def sources(key: str, entry: Mapping[str, Any], project: Path) -> Iterator[Problem]:
    """Folders of the project that a service mounts, and that nothing creates: Docker would, as root."""
    script = (project / INITIALIZE).read_text(encoding="utf-8")
    build = entry.get("build") or {}
    context = build if isinstance(build, str) else build.get("context") or "."
    elsewhere = re.search(r"[$:~]|^/|^\.\./", context)  # which another machine need not have
    if not elsewhere and not entry.get("profiles") and not (project / context).is_dir():
        yield Problem(COMPOSE, f"/services/{key}/build", f"there is no folder {context}", "correct it, or create it")
    for mount in mounts(entry):
        source = str(mount.get("source") or "")
        folder = source.removeprefix("./")
        inside = mount["type"] == "bind" and source != folder
        made = creates(script, folder) or f"mkdir -p {folder}/" in script  # mkdir -p creates the parents too
        if inside and not (project / folder).exists() and not made:
            what = f"does not create {folder}, which the service {key} mounts"
            yield Problem(INITIALIZE, "", what, f"add the line `mkdir -p {folder}`, or create the folder")
