"""Compose files: reading, merging, substituting variables, and how the service `dev` runs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpukit.project.devcontainer import ConfigError, env_file
from gpukit.project.flags import as_mapping, short_volume, size, ulimit
from gpukit.project.messages import alike
from gpukit.validate.container import Container, Mount
from gpukit.validate.files import creates
from gpukit.validate.problem import HOST_ENV, INITIALIZE, Problem

# The keys that each mapping may have; * stands for any key or position.
# Source: https://github.com/compose-spec/compose-spec/blob/main/schema/compose-spec.json, read 2026-11-25.
KEYS = {
    "": "configs include models name networks secrets services version volumes",
    "/services/*": (
        "annotations attach blkio_config build cap_add cap_drop cgroup cgroup_parent command configs container_name "
        "cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares cpus cpuset "
        "credential_spec depends_on deploy develop device_cgroup_rules devices dns dns_opt dns_search domainname "
        "entrypoint env_file environment expose extends external_links extra_hosts gpus group_add healthcheck "
        "hostname image init ipc isolation label_file labels links logging mac_address mem_limit mem_reservation "
        "mem_swappiness memswap_limit models network_mode networks oom_kill_disable oom_score_adj pid pids_limit "
        "platform ports post_start pre_stop privileged profiles provider pull_policy pull_refresh_after read_only "
        "restart runtime scale secrets security_opt shm_size stdin_open stop_grace_period stop_signal storage_opt "
        "sysctls tmpfs tty ulimits use_api_socket user userns_mode uts volumes volumes_from working_dir"
    ),
    "/services/*/build": (
        "additional_contexts args cache_from cache_to context dockerfile dockerfile_inline entitlements extra_hosts "
        "isolation labels network no_cache platforms privileged provenance pull sbom secrets shm_size ssh tags target "
        "ulimits"
    ),
    "/services/*/deploy": (
        "endpoint_mode labels mode placement replicas resources restart_policy rollback_config update_config"
    ),
    "/services/*/deploy/resources": "limits reservations",
    "/services/*/deploy/resources/limits": "cpus memory pids",
    "/services/*/deploy/resources/reservations": "cpus devices generic_resources memory",
    "/services/*/deploy/resources/reservations/devices/*": "capabilities count device_ids driver options",
    "/services/*/healthcheck": "disable interval retries start_interval start_period test timeout",
    "/services/*/volumes/*": "bind consistency image read_only source target tmpfs type volume",
    "/services/*/ports/*": "app_protocol host_ip mode name protocol published target",
    "/services/*/env_file/*": "format path required",
    "/networks/*": "attachable driver driver_opts enable_ipv4 enable_ipv6 external internal ipam labels name",
    "/volumes/*": "driver driver_opts external labels name",
}
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
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key.value for key, _ in node.value]
            for key, _ in node.value:
                if names.count(key.value) > 1 and key.value != "<<":  # Compose refuses it, PyYAML takes the last
                    raise yaml.constructor.ConstructorError(None, None, f"has {key.value} twice", key.start_mark)
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
    container.runtime, container.user = entry.get("runtime") or "", str(entry.get("user") or "").partition(":")[0]
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
    network, declared = joined_network(content, entry)
    container.network = entry.get("network_mode") or interpolated(network, env)
    container.external = bool(entry.get("network_mode") or declared.get("external"))
    for volume in entry.get("volumes") or []:
        mount = short_volume(volume) if isinstance(volume, str) else volume
        source = str(mount.get("source") or "")
        if mount["type"] == "bind":
            source = re.sub(r"^~(?=/|$)", env["HOME"], source)
            source = os.path.normpath(project.absolute() / source)
        read_only = bool(mount.get("read_only") or mount.get("readonly"))
        container.mounts[mount["target"].rstrip("/")] = Mount(mount["type"], source, read_only)
    return container


def joined_network(content: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The network's name, which is empty for the one that Compose creates for the project, and its declaration."""
    names = list(entry.get("networks") or ["default"])
    declared = (content.get("networks") or {}).get(names[0]) or {}
    return declared.get("name") or names[0].replace("default", ""), declared


def references(name: str, content: Mapping[str, Any], project: Path) -> Iterator[Problem]:
    """Names of services, networks, and volumes that the file, or host.env, uses and the file does not declare."""
    services = content["services"]
    declared = {key: {*(content.get(key) or {})} for key in ("networks", "volumes", "services")}
    declared["networks"].add("default")
    path = project / INITIALIZE
    script = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not {"command", "entrypoint", "tty", "stdin_open", "extends"} & {*services["dev"]}:
        what = "is missing, so that the container ends at once"
        yield Problem(name, "/services/dev/command", what, "write `command: sleep infinity`")
    for key, entry in services.items():
        used = [("services", each, "depends_on") for each in entry.get("depends_on") or []]
        used += [("networks", each, "networks") for each in entry.get("networks") or []]
        for volume in entry.get("volumes") or []:
            mount = short_volume(volume) if isinstance(volume, str) else volume
            source = str(mount.get("source") or "")
            folder = source.removeprefix("./")
            there = source == folder or (project / folder).exists() or not script
            made = creates(script, folder) or f"mkdir -p {folder}/" in script  # mkdir -p creates the parents too
            if mount["type"] == "bind" and not (there or made):
                what = f"does not create {folder}, which the service {key} mounts"
                yield Problem(INITIALIZE, "", what, f"add the line `mkdir -p {folder}`, or create the folder")
            if mount["type"] == "volume" and source and "$" not in source:
                used.append(("volumes", source, "volumes"))
        for kind, used_name, place in used:
            if used_name not in declared[kind]:
                meant = alike(used_name, declared[kind])
                remedy = f"did you mean `{meant}`?" if meant else f"add it under {kind}:"
                what = f"{used_name} is not declared under {kind}:"
                yield Problem(name, f"/services/{key}/{place}", what, remedy)
    try:
        variables = env_file(project / HOST_ENV)
    except ConfigError:
        return
    for variable, value in variables:
        host = re.match(r"https?://([A-Za-z][\w-]*)(?=[:/]|$)", value or "")
        if host and host[1] not in (*services, "localhost"):
            what = f"{variable} in {HOST_ENV} names the service {host[1]}, which is not here"
            yield Problem(name, "/services", what, f"add {host[1]}, or change {variable}")
