"""Edits of a generated project: each that breaks it is one problem, at its place; legal ones are none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpukit.host.project import Project
from gpukit.project import specification
from gpukit.project.messages import RefusalError
from gpukit.project.specification import KEYS, OPTIONS, SWITCHES
from gpukit.validate.main import Validation
from tests.conftest import ROOT

MAIN, CPU = ".devcontainer/devcontainer.json", ".devcontainer/cpu/devcontainer.json"
COMPOSE, HOST_ENV = "compose.yaml", ".devcontainer/host.env"
REFERENCE = ROOT.parent / "shared/reference/devContainer.base.schema.json"
ANSWERS = {"hardware": "rtx-50", "tracking": ["mlflow"], "credentials": ["aws"], "use_case": "vision"}
FIRST = '  "name": '
GPU = '"--gpus=\\"device=${localEnv:GPUS:all}\\""'

# file, the text in it, what replaces it (None: the file is removed), and the file where that is a problem.
BROKEN = {
    "runArgs misspelled": (MAIN, '"runArgs"', '"runArg"'),
    "runArgs in lower case": (MAIN, '"runArgs"', '"runargs"'),
    "mounts misspelled": (MAIN, '"mounts"', '"mount"'),
    "containerEnv misspelled": (MAIN, '"containerEnv"', '"containerEnvs"'),
    "build misspelled": (MAIN, '"build"', '"biuld"'),
    "args misspelled": (MAIN, '"args"', '"arg"'),
    "dockerfile misspelled": (MAIN, '"dockerfile"', '"dockerFile"'),
    "initializeCommand misspelled": (MAIN, '"initializeCommand"', '"initialiseCommand"'),
    "workspaceMount misspelled": (MAIN, '"workspaceMount"', '"workspaceMounts"'),
    "containerUser misspelled": (MAIN, '"containerUser"', '"containeruser"'),
    "a key of compose": (MAIN, FIRST, '  "gpus": "all",\n' + FIRST),
    "a flag as a key": (MAIN, FIRST, '  "shmSize": "16g",\n' + FIRST),
    "hostRequirements misspelled": (MAIN, FIRST, '  "hostRequirement": {"gpu": true},\n' + FIRST),
    "a key in hostRequirements": (MAIN, FIRST, '  "hostRequirements": {"gpus": true},\n' + FIRST),
    "extensions of an old format": (MAIN, FIRST, '  "extensions": [],\n' + FIRST),
    "settings of an old format": (MAIN, FIRST, '  "settings": {},\n' + FIRST),
    "dockerFile of an old format": (MAIN, FIRST, '  "dockerFile": "../Dockerfile",\n' + FIRST),
    "a flag misspelled": (MAIN, "--ulimit=memlock", "--ulimt=memlock"),
    "a flag that does not exist": (MAIN, GPU, GPU + ', "--turbo"'),
    "a stray word": (MAIN, GPU, GPU + ', "host"'),
    "no such limit": (MAIN, "--ulimit=memlock=-1", "--ulimit=memlok=-1"),
    "no such limit, where none is expected": (MAIN, GPU, GPU + ', "--ulimit=files=10"'),
    "a limit that is no number": (MAIN, GPU, GPU + ', "--ulimit=nofile=many"'),
    "no such ipc": (MAIN, "--ipc=host", "--ipc=hots"),
    "a size that is none": (MAIN, GPU, GPU + ', "--memory=much"'),
    "a mount's field": (MAIN, GPU, GPU + ', "--mount=type=bind,source=/opt,targt=/opt"'),
    "ipc removed": (MAIN, '    "--ipc=host",\n', ""),
    "memlock removed": (MAIN, '    "--ulimit=memlock=-1",\n', ""),
    "the GPU removed": (MAIN, f"    {GPU},\n", ""),
    "privileged": (MAIN, GPU, GPU + ', "--privileged"'),
    "init is a string": (MAIN, '"init": true', '"init": "true"'),
    "init is false": (MAIN, '"init": true', '"init": false'),
    "user is root": (MAIN, '"containerUser": "dev"', '"containerUser": "root"'),
    "another user": (MAIN, '"containerUser": "dev"', '"containerUser": "vscode"'),
    "another workspace": (MAIN, "target=/workspace", "target=/work"),
    "a port to the network": (MAIN, GPU, GPU + ', "--publish=8888:8888"'),
    "a secret": (MAIN, '"containerEnv": {', '"containerEnv": {"HF_TOKEN": "${localEnv:HF_TOKEN}",'),
    "ports as a number": (MAIN, FIRST, '  "forwardPorts": 8888,\n' + FIRST),
    "features as a list": (MAIN, FIRST, '  "features": [],\n' + FIRST),
    "a comma too few": (MAIN, '"init": true,', '"init": true'),
    "credentials writable": (MAIN, "target=/home/dev/.aws,readonly", "target=/home/dev/.aws"),
    "initialize.sh is not run": (MAIN, ".devcontainer/initialize.sh", ".devcontainer/other.sh"),
    "the CPU configuration requests a GPU": (CPU, '"runArgs": [', '"runArgs": ["--gpus=all",'),
    "the CPU configuration with CUDA": (CPU, '"TORCH_BACKEND": "cpu"', '"TORCH_BACKEND": "cu130"'),
    "the CPU configuration's flag misspelled": (CPU, "--env-file", "--envfile"),
    "no configuration": (MAIN, None, None),
    "no CPU configuration": (CPU, None, None),
    "no stack.json": ("stack.json", None, None),
    "no Dockerfile": ("Dockerfile", None, None),
    "no initialize.sh": (".devcontainer/initialize.sh", None, None),
    "no launch": ("launch", None, None),
    "no pyproject.toml": ("pyproject.toml", None, None),
    "stack.json: no memory": ("stack.json", '"memory"', '"memry"'),
    "stack.json: another image": ("stack.json", re.compile(r'"image": "[^"]+"'), '"image": "ubuntu:24.04"'),
    "stack.json is cut": ("stack.json", re.compile(r"\}\s*$"), ""),
    "Dockerfile: an instruction misspelled": ("Dockerfile", "\nWORKDIR /etc/gpukit", "\nWORKDRI /etc/gpukit"),
    "Dockerfile: root": ("Dockerfile", "USER ${USER_UID}", "USER root"),
    "Dockerfile: no UV_INDEX": ("Dockerfile", "ARG UV_INDEX\n", ""),
    "Dockerfile: a file that is not there": ("Dockerfile", "COPY apt.txt ./", "COPY apts.txt ./"),
    "Dockerfile: another base": ("Dockerfile", re.compile(r"BASE_IMAGE:-[^}]+"), "BASE_IMAGE:-ubuntu:24.04"),
    "host.env: a sentence": (HOST_ENV, re.compile(r"^"), "HF TOKEN\n"),
    "initialize.sh: a quote too many": (".devcontainer/initialize.sh", re.compile(r"$"), "\necho 'unfinished\n"),
    "launch: a syntax error": ("launch", re.compile(r"$"), "\nif then\n"),
    "pyproject.toml is not TOML": ("pyproject.toml", "[project]", "[project"),
    "uv manages the environment": ("pyproject.toml", "managed = false", "managed = true"),
    "compose: ipc removed": (COMPOSE, re.compile(r" +ipc: host\n"), ""),
    "compose: no GPU": (COMPOSE, re.compile(r" +deploy:\n(?: {6,}.*\n)+"), ""),
    "compose: dev renamed": (COMPOSE, "\n  dev:", "\n  deev:"),
    "compose: a dependency that is not there": (COMPOSE, re.compile(r"\n  dev:\n"), "\n  dev:\n    depends_on: [ml]\n"),
    "compose is not YAML": (COMPOSE, "services:", "services: ["),
}
LEGAL = {
    "a comment, a trailing comma": (MAIN, '"init": true,', '"init": true, // as always\n  "overrideCommand": true,'),
    "features": (MAIN, FIRST, '  "features": {"ghcr.io/devcontainers/features/git:1": {}},\n' + FIRST),
    "commands": (MAIN, FIRST, '  "postCreateCommand": {"one": "true", "two": ["echo", "2"]},\n' + FIRST),
    "ports": (MAIN, FIRST, '  "forwardPorts": [6006, "db:5432"], "portsAttributes": {"6006": {}},\n' + FIRST),
    "requirements": (MAIN, FIRST, '  "hostRequirements": {"gpu": "optional", "memory": "32gb"},\n' + FIRST),
    "secrets by name": (MAIN, FIRST, '  "secrets": {"HF_TOKEN": {"description": "Hub"}},\n' + FIRST),
    "capabilities": (MAIN, FIRST, '  "capAdd": ["SYS_PTRACE"], "securityOpt": ["seccomp=unconfined"],\n' + FIRST),
    "a key of another tool": (MAIN, FIRST, '  "x-studio": {"theme": 1},\n' + FIRST),
    "a schema": (MAIN, FIRST, '  "$schema": "https://example.com/schema.json",\n' + FIRST),
    "flags as two strings": (MAIN, '"--ipc=host"', '"--ipc", "host"'),
    "more flags": (MAIN, GPU, GPU + ', "--cpus=4", "-l", "A=1", "-it", "--pids-limit", "-1", "--memory=8g"'),
    "the Dockerfile's comment": ("Dockerfile", re.compile(r"^"), "# Mine\n"),
    "an instruction in lower case": ("Dockerfile", "\nWORKDIR /workspace", "\nworkdir /workspace"),
    "a here-document": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN <<END\necho 1\nEND\nWORKDIR /workspace"),
    "initialize.sh and more": (MAIN, '"initializeCommand": [', '"initializeCommand": ["env", "A=1",'),
    "a dependency": ("pyproject.toml", "dependencies = [", 'dependencies = [\n    "einops",'),
    "another service": (COMPOSE, "\nservices:\n", "\nservices:\n  cache:\n    image: redis:8\n"),
    "a variable's name": (HOST_ENV, re.compile(r"$"), "\nMY_TOKEN\n"),
}


@pytest.fixture
def project(generate, tmp_path: Path) -> Path:
    return shutil.copytree(generate(**ANSWERS), tmp_path / "project")


def edited(project: Path, file: str, before: str | re.Pattern[str] | None, after: str | None) -> list:
    """The problems after an edit."""
    path = project / file
    if before is None:
        path.unlink()
    else:
        text = path.read_text(encoding="utf-8")
        pattern = before if isinstance(before, re.Pattern) else re.compile(re.escape(before))
        changed = pattern.sub(lambda _: after, text, count=1)
        assert changed != text, f"{file} does not contain {before}"
        path.write_text(changed, encoding="utf-8")
    validation = Validation(project)
    assert not validation.skipped
    return validation.problems()


@pytest.mark.parametrize(("file", "before", "after"), BROKEN.values(), ids=BROKEN)
def test_each_broken_project_has_one_problem(project: Path, file: str, before, after) -> None:
    problems = edited(project, file, before, after)
    assert len(problems) == 1, "\n".join(map(str, problems))
    assert problems[0].remedy


@pytest.mark.parametrize(("file", "before", "after"), LEGAL.values(), ids=LEGAL)
def test_legal_edits_are_accepted(project: Path, file: str, before, after) -> None:
    assert edited(project, file, before, after) == []


def keys_of(schema: dict, definitions: dict) -> set[str]:
    """The properties of an object, in all of its variants."""
    found = set(schema.get("properties", {}))
    for each in [part for kind in ("allOf", "anyOf", "oneOf") for part in schema.get(kind, [])]:
        found |= keys_of(each, definitions)
    if "$ref" in schema:
        found |= keys_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return found


def test_the_lists_of_keys_and_options() -> None:
    if REFERENCE.is_file():
        schema = json.loads(REFERENCE.read_text(encoding="utf-8"))
        named = keys_of(schema, schema["definitions"])
        assert named - {"additionalProperties"} == KEYS
    if shutil.which("docker"):
        listed = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True).stdout
        rows = re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)(?: ([a-z0-9-]+))? {2,}", listed, re.MULTILINE)
        assert {name for name, _ in rows} <= OPTIONS
        assert {name for name, kind in rows if not kind} <= SWITCHES
    assert set(specification.MOVED) - KEYS == {"extensions", "settings", "devPort"}


def test_a_start_is_refused_and_what_resembles_nothing_is_listed(project: Path) -> None:
    path = project / MAIN
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(FIRST, '  "x-studio": 1,\n' + FIRST), encoding="utf-8")
    accepted = Project(project, {})
    accepted.refuse_mistakes()
    assert accepted.config.ignored == ("x-studio",)
    for wrong in (text.replace('"runArgs"', '"runArg"'), text.replace("--ulimit=memlock", "--ulimt=memlock")):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(RefusalError, match=r"ulimit|runArgs"):
            Project(project, {}).refuse_mistakes()
