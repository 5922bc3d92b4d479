"""Read devcontainer.json as the dev container tools do: with comments, variables, and relative paths."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpukit.project import flags, keys
from gpukit.project.messages import RefusalError

# Keys that affect the container and that launch does not support.
VSCODE_ONLY = (
    "features",
    "appPort",
    "overrideCommand",
    "hostRequirements",
    "onCreateCommand",
    "updateContentCommand",
    "postCreateCommand",
    "postStartCommand",
    "postAttachCommand",
)
STRING = r'"(?:\\.|[^"\\])*"'


class ConfigError(RefusalError):
    """devcontainer.json cannot be used; the message is one sentence with the remedy."""


@dataclass(frozen=True)
class Config:
    path: Path
    root: Path
    name: str
    dockerfile: Path
    context: Path
    workspace_folder: str
    workspace_mount: dict[str, Any] | None
    target: str = ""
    build_args: dict[str, str] = field(default_factory=dict)
    run_args: list[str] = field(default_factory=list)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    container_env: dict[str, str] = field(default_factory=dict)
    remote_env: dict[str, str] = field(default_factory=dict)
    by_name: frozenset[str] = frozenset()  # the host's variables, passed by name so that no value is in argv
    remote_user: str = ""
    init: bool = False
    initialize_command: str | list[str] | dict[str, Any] | None = None
    ignored: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()  # keys that are not in the specification, each with its object's place

    @property
    def env_file_paths(self) -> list[Path]:
        return [self.root / value for option, value in flags.options(self.run_args) if option == "--env-file"]

    @property
    def env_files(self) -> list[tuple[str, str | None]]:
        """The variables of each --env-file, as name and value; None: the host's, if any."""
        return [line for path in self.env_file_paths for line in env_file(path)]


def load(path: Path | str, env: Mapping[str, str], root: Path | None = None) -> Config:
    """The configuration in the file `path`, with `env` as the host's environment.

    `root`: localWorkspaceFolder, if that is not the folder with .devcontainer/.
    """
    path = Path(path).absolute()
    root = root or next((parent.parent for parent in path.parents if parent.name == ".devcontainer"), path.parent)
    raw = read(path)
    variables = {"localWorkspaceFolder": str(root), "localWorkspaceFolderBasename": root.name}
    folder = substitute(raw.get("workspaceFolder") or f"/workspaces/{root.name}", variables, env)
    variables.update(containerWorkspaceFolder=folder, containerWorkspaceFolderBasename=folder.rsplit("/", 1)[-1])

    def replaced(value: Any) -> Any:
        return substitute(value, variables, env)

    build = raw.get("build")
    if not isinstance(build, dict) or not isinstance(build.get("dockerfile"), str):
        mistake = next((str(each) for each in keys.mistakes(raw) if each.meant), "")
        if mistake:
            raise ConfigError(f"{path}: {mistake}")
        raise ConfigError(
            f"{path}: launch needs build.dockerfile there; it does not start from image or compose files."
        )
    default_mount = f"type=bind,source=${{localWorkspaceFolder}},target=/workspaces/{root.name}"
    workspace_mount = raw.get("workspaceMount", default_mount)
    containers = raw.get("containerEnv") or {}
    remotes = raw.get("remoteEnv") or {}
    run_args = [str(value) for value in replaced(raw.get("runArgs") or [])] + hardening(raw)
    return Config(
        path=path,
        root=root,
        name=str(replaced(raw.get("name", root.name))),
        dockerfile=(path.parent / replaced(build["dockerfile"])).resolve(),
        context=(path.parent / replaced(build.get("context", "."))).resolve(),
        target=replaced(build.get("target", "")),
        build_args={key: str(value) for key, value in replaced(build.get("args") or {}).items()},
        run_args=run_args,
        mounts=[parse_mount(mount, variables, env) for mount in raw.get("mounts") or []],
        container_env={key: str(value) for key, value in replaced(containers).items()},
        # ${containerEnv:X} is known only inside the running container, where VS Code looks it up
        remote_env={
            k: str(v) for k, v in replaced(remotes).items() if v is not None and "${containerEnv:" not in str(v)
        },
        by_name=frozenset(key for key, value in {**containers, **remotes}.items() if value == f"${{localEnv:{key}}}"),
        remote_user=str(replaced(raw.get("remoteUser") or raw.get("containerUser") or "")),
        workspace_folder=folder,
        workspace_mount=parse_mount(workspace_mount, variables, env) if workspace_mount else None,
        init=raw.get("init") is True,
        initialize_command=replaced(raw.get("initializeCommand")),
        ignored=tuple(key for key in VSCODE_ONLY if raw.get(key) not in (None, {}, [], "")),
        unknown=tuple(keys.unknown(raw)),
    )


def parse(text: str) -> Any:
    """JSON with comments and trailing commas. Raises ValueError, with the line, if it is invalid."""
    # comments are replaced with spaces, so that error messages have the right line
    text = re.sub(rf"{STRING}|//[^\n]*|/\*.*?\*/", _blank, text, flags=re.DOTALL)
    return strict(re.sub(rf"({STRING})|,(?=\s*[}}\]])", lambda match: match[1] or " ", text))


def strict(text: str) -> Any:
    """JSON without comments."""
    return json.loads(text, object_pairs_hook=without_repetition)


def without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, in which no key may stand twice: the last would replace the others without a message."""
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has {next(name for name in names if names.count(name) > 1)} twice")
    return content


def read(path: Path) -> dict[str, Any]:
    try:
        content = parse(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): this is not a generated project.") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON with comments: {error}.") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must be a JSON object ({{...}}).")
    return content


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


def substitute(value: Any, variables: Mapping[str, str], env: Mapping[str, str]) -> Any:
    """Replace ${localEnv:NAME:default} and the workspace's variables in all strings of `value`."""
    if isinstance(value, dict):
        return {key: substitute(item, variables, env) for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, variables, env) for item in value]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        kind, *arguments = match[1].split(":")
        if kind in ("localEnv", "env") and arguments:
            # as in the dev container tools: the default is for a variable that is not set, not for an empty one
            return env.get(arguments[0], arguments[1] if len(arguments) > 1 else "")
        return variables.get(kind, match[0])

    return re.sub(r"\$\{(.*?)\}", replacement, value)


def parse_mount(mount: Any, variables: Mapping[str, str], env: Mapping[str, str]) -> dict[str, Any]:
    """A mount as type, source, target, readonly, options. Variables are replaced after the split: paths hold commas."""
    if isinstance(mount, dict):
        parts = [f"{key}={value}" for key, value in mount.items() if key in ("type", "source", "target")]
    else:
        parts = next(csv.reader([str(mount)]), [])
    return flags.mount(substitute(part, variables, env) for part in parts)


def mount_argument(mount: Mapping[str, Any]) -> str:
    """The value of docker's --mount. It reads CSV, so a path with a comma or a quote needs quoting."""
    fields = [f"type={mount['type']}"]
    fields += [f"{key}={mount[key]}" for key in ("source", "target") if mount[key]]
    fields += ["readonly"] * bool(mount["readonly"]) + list(mount["options"])
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def hardening(raw: Mapping[str, Any]) -> list[str]:
    """privileged, capAdd and securityOpt as docker run takes them."""
    found = ["--privileged"] if raw.get("privileged") is True else []
    found += [f"--cap-add={value}" for value in raw.get("capAdd") or []]
    return found + [f"--security-opt={value}" for value in raw.get("securityOpt") or []]


def env_file(path: Path) -> list[tuple[str, str | None]]:
    """The variables of an --env-file, in order; Docker leaves out a bare name that the host has not set.

    Source: https://docs.docker.com/reference/cli/docker/container/run/#env, and tried with Docker 26 (2026-11-23).
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"{path} cannot be read ({reason}): restore it, or take its --env-file out of runArgs."
        ) from None
    pairs = (line.partition("=") for line in map(str.lstrip, lines) if line and not line.startswith("#"))
    return [(name.strip(), value if equals else None) for name, equals, value in pairs]


def wrong(config: Config) -> str:
    """The first key or flag that does not exist, with the remedy: what can be told before a start.

    Raises:
        ConfigError: an --env-file cannot be read.
    """
    for place, key in config.unknown:
        mistake = keys.Unknown(f"{place}/{key}", *keys.explain(place, key))
        if mistake.meant:
            return str(mistake)
    for what, remedy in flags.mistakes(config.run_args):
        return f"/runArgs: {what}; {remedy}"
    for path in config.env_file_paths:
        env_file(path)  # refuses one that cannot be read
    return ""


def gpu_arguments(config: Config) -> list[str]:
    """The flags of runArgs that request GPUs, and the variables that NVIDIA's runtime reads."""
    found: list[str] = []
    arguments = iter(config.run_args)
    for argument in arguments:
        if re.match(r"--(gpus|runtime|device)(=|$)", argument):
            found += [argument] if "=" in argument else [argument, next(arguments, "")]
    runtime = [f"--env={k}={v}" for k, v in config.container_env.items() if k.startswith("NVIDIA_")]
    return found + runtime if found else []
