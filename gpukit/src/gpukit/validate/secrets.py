"""Rules about credentials: no value in a file, on a command line, or in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.project.devcontainer import env_file
from gpukit.project.flags import as_mapping, options
from gpukit.validate.problem import Problem

SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|(?:API)?KEY|SECRET|PASSWORD|PASSWD)S?(?:_|$)(?!.*(?:FILE|PATH|DIR)$)", re.I)
SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{30,})"
)
HOST_VARIABLE = re.compile(r"\$\{(?:(?:localEnv|env|containerEnv):)?(\w+)")


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


def env_file_secrets(project: Path, name: str) -> Iterator[Problem]:
    if (project / name).is_file():
        for variable, value in env_file(project / name):
            yield from secret(name, f"/{variable}", variable, value, "the bare name ({}, without a value)")


def compose_secrets(name: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    for key, entry in content["services"].items():
        if not isinstance(entry, Mapping):
            continue
        for variable, value in as_mapping(entry.get("environment")).items():
            place = f"/services/{key}/environment/{variable}"
            yield from secret(name, place, variable, value, "the bare name ({}, without a value) to environment")
        build = entry.get("build")
        for variable, value in as_mapping(build.get("args") if isinstance(build, Mapping) else None).items():
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
        what = "the value of a secret is visible to everyone who reads the file"
    yield Problem(file, place, what, f"remove it and add {instead.format(hosts[0] if hosts else variable)}")


def secret_values(project: Path, name: str) -> Iterator[Problem]:
    path = project / name
    if path.is_file():
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if SECRET_VALUE.search(line):
                what = "this looks like a secret token"
                yield Problem(
                    name, f"line {number}", what, "remove it, revoke it where it was created, and pass it by name"
                )
