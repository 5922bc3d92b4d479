"""Compose files: reading, merging, substituting variables, and how the service `dev` runs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpukit.project.devcontainer import ConfigError, env_file
from gpukit.project.flags import as_mapping, short_volume, size, ulimit
from gpukit.validate.container import Container, Mount

VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<how>:?[-+?])(?P<text>[^${}]*))?\}|\$(?P<bare>\w+)")


class Reset:
    """The tag `!reset`: the key is removed."""


class Override(NamedTuple):
    """The tag `!override`: the value replaces the one in the base file instead of being merged into it."""

    value: Any


def read(path: Path) -> Any:
    """A compose file, with its !reset and !override tags.

    Raises:
        ValueError: it is not YAML.
    """

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
    """Merge two compose files as Compose does, as far as the service `dev` needs it."""
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
        name, how, text = match["name"] or match["bare"], match["how"] or "", match["text"] or ""
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
    container.shm_size = size(entry.get("shm_size"))
    container.ulimits = {name: ulimit(value) for name, value in (entry.get("ulimits") or {}).items()}
    files = entry.get("env_file") or []
    for file in [files] if isinstance(files, (str, Mapping)) else files:
        with contextlib.suppress(ConfigError):  # then its variables are missing, which is reported
            container.env.update(env_file(project / (file["path"] if isinstance(file, Mapping) else file)))
    container.env.update(as_mapping(entry.get("environment")))
    build = entry.get("build")
    args = as_mapping(build.get("args") if isinstance(build, Mapping) else None)
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
