"""Rules about credentials: no value in a file, on a command line, or in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpukit.project.devcontainer import env_file
from gpukit.project.flags import as_mapping, options
from gpukit.validate.problem import Problem

NAME = re.compile(r"(?:^|_)(?:TOKEN|(?:API)?KEY|SECRET|PASSWORD|PASSWD)S?(?:_|$)(?!.*(?:FILE|PATH|DIR)$)", re.I)
VALUE = re.compile(
    rb"\b(hf_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|sk-[A-Za-z0-9_-]{30,})"
)
HOST_VARIABLE = re.compile(r"\$\{(?:(?:localEnv|env|containerEnv):)?(\w+)")
IN_THE_IMAGE = "`--mount=type=secret` to the Dockerfile"


def devcontainer(name: str, raw: Mapping[str, Any]) -> Iterator[Problem]:
    for section in ("containerEnv", "remoteEnv"):
        for variable, value in (raw.get(section) or {}).items():
            yield from secret(name, f"/{section}/{variable}", variable, value, '"--env={}" to runArgs')
    for option, value in options(raw["runArgs"]):
        variable, _, value = value.partition("=")
        if option == "--env":
            yield from secret(name, "/runArgs", variable, value, '"--env={}" to runArgs')
    for variable, value in raw["build"]["args"].items():
        yield from secret(name, f"/build/args/{variable}", variable, value, IN_THE_IMAGE)


def host_env(project: Any, name: str) -> Iterator[Problem]:
    for variable, value in env_file(project / name):
        yield from secret(name, f"/{variable}", variable, value, "the bare name ({}, without a value)")


def compose(name: str, content: Mapping[str, Any]) -> Iterator[Problem]:
    for key, entry in content["services"].items():
        build = entry.get("build") if isinstance(entry.get("build"), Mapping) else {}
        for variable, value in as_mapping(entry.get("environment")).items():
            if key != "dev" and HOST_VARIABLE.match(str(value)):
                continue  # Compose starts it, and not a command line, as ./launch does with dev
            place = f"/services/{key}/environment/{variable}"
            yield from secret(name, place, variable, value, "the bare name ({}, without a value) to environment")
        for variable, value in as_mapping(build.get("args")).items():
            yield from secret(name, f"/services/{key}/build/args/{variable}", variable, value, IN_THE_IMAGE)


def secret(file: str, place: str, variable: str, value: Any, instead: str) -> Iterator[Problem]:
    if value in (None, ""):
        return
    hosts = [name for name in HOST_VARIABLE.findall(str(value)) if NAME.search(name)]
    if hosts:
        what = f"the value of {hosts[0]} would reach command lines and logs"
        yield Problem(file, place, what, f"remove it and add {instead.format(hosts[0])}")
    elif NAME.search(variable):
        what = "the value of a secret is visible to everyone who reads the file"
        yield Problem(file, place, what, f"remove it and add {instead.format(variable)}")
