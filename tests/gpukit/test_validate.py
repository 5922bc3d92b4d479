"""Edits of generated projects: each that breaks one is one problem that names it; legal ones are none."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpukit.host.project import Project
from gpukit.project import flags, specification
from gpukit.project.messages import RefusalError
from gpukit.validate import compose, files, formats, source, values, written
from gpukit.validate.main import FAILED, HOST, PASSED, Validation, run
from gpukit.wheel import vendor, writer
from tests.conftest import ROOT

MAIN = ".devcontainer/devcontainer.json"
CPU = ".devcontainer/cpu/devcontainer.json"
PODMAN = ".devcontainer/podman/devcontainer.json"
COMPOSE = "compose.yaml"
COMPOSE_CPU = "compose.cpu.yaml"
HOST_ENV = ".devcontainer/host.env"
INITIALIZE = ".devcontainer/initialize.sh"
PYPROJECT = "pyproject.toml"
STACK = "stack.json"
SLURM = "cluster/train.sbatch"
ANSWERS = ".copier-answers.yml"
WORKFLOW = ".github/workflows/ci.yml"
KUBERNETES = "cluster/job.yaml"
SKYPILOT = "cluster/sky.yaml"
TRAIN = "src/my_gpu_project/train.py"
REFERENCE = ROOT.parent / "shared/reference"
PROJECTS = {
    "all files": {
        "hardware": "rtx-50",
        "tracking": ["wandb", "mlflow"],
        "credentials": ["aws"],
        "data_dir": "/srv/data",
        "workflow": "notebook",
        "cluster": ["slurm", "kubernetes"],
    },
    "unified memory": {"hardware": "dgx-spark", "use_case": "llm", "workflow": "scripts"},
}
START = re.compile(r"\A")
END = re.compile(r"\Z")
NAME = '  "name": '
GPU = '"--gpus=\\"device=${localEnv:GPUS:all}\\""'


def key(text: str) -> tuple[str, str]:
    """An edit that adds a key to devcontainer.json."""
    return NAME, f"  {text},\n{NAME}"


def listed(name: str, *items: str) -> tuple[str, str]:
    """An edit that adds items to a list in devcontainer.json."""
    return f'"{name}": [', f'"{name}": [' + "".join(f"{json.dumps(item)}, " for item in items)


def flag(*arguments: str) -> tuple[str, str]:
    return listed("runArgs", *arguments)


def spelled(word: str, wrong: str) -> tuple[str, str]:
    return f'"{word}":', f'"{wrong}":'


# What the one problem says, and the edit: the file, the text in it, and what replaces it. No text: the file is removed.
BROKEN = {
    # devcontainer.json: keys
    "`runArgs`": (MAIN, *spelled("runArgs", "runArg")),
    "`runArgs`, in lower case": (MAIN, *spelled("runArgs", "runargs")),
    "`mounts`": (MAIN, *spelled("mounts", "mount")),
    "`containerEnv`": (MAIN, *spelled("containerEnv", "containerEnvs")),
    "`build`": (MAIN, *spelled("build", "biuld")),
    "`args`": (MAIN, *spelled("args", "arg")),
    "`dockerfile`": (MAIN, *spelled("dockerfile", "dockerFile")),
    "`context`": (CPU, *spelled("context", "contxt")),
    "`initializeCommand`": (MAIN, *spelled("initializeCommand", "initialiseCommand")),
    "`workspaceMount`": (MAIN, *spelled("workspaceMount", "workspaceMounts")),
    "`workspaceFolder`": (CPU, *spelled("workspaceFolder", "workspace_folder")),
    "`containerUser`": (MAIN, *spelled("containerUser", "conainerUser")),
    "`init`": (MAIN, *spelled("init", "inti")),
    "`customizations`": (MAIN, *spelled("customizations", "customisations")),
    "`hostRequirements`": (MAIN, *key('"hostRequirement": {"gpu": true}')),
    "`gpu`": (MAIN, *key('"hostRequirements": {"gpus": true}')),
    "`postCreateCommand`": (MAIN, *key('"postCreate": "true"')),
    "--gpus": (MAIN, *key('"gpus": "all"')),
    "--shm-size": (MAIN, *key('"shmSize": "16g"')),
    "`containerEnv` instead": (MAIN, *key('"environment": {}')),
    "customizations.vscode.extensions": (MAIN, *key('"extensions": []')),
    "customizations.vscode.settings": (MAIN, *key('"settings": {}')),
    "build.dockerfile": (MAIN, *key('"dockerFile": "../Dockerfile"')),
    "dockerFile as `build.dockerfile` and context as `build.context`": (MAIN, re.compile(r'"build": \{.*?\n  \},', re.DOTALL), '"dockerFile": "../Dockerfile", "context": "..",'),
    "/runArgs: is missing": (MAIN, re.compile(r'  "runArgs": \[.*?\],\n', re.DOTALL), ""),
    "/mounts: is missing": (MAIN, re.compile(r'  "mounts": \[.*?\],\n', re.DOTALL), ""),
    "/build: is missing": (MAIN, re.compile(r'  "build": \{.*?\n  \},\n', re.DOTALL), ""),
    "/containerEnv/GPUKIT_DEVICE": (CPU, re.compile(r',?\s*"GPUKIT_DEVICE": "cpu"'), ""),
    # devcontainer.json: values
    "Expecting ','": (MAIN, '"init": true,', '"init": true'),
    "merge conflict": (MAIN, NAME, "<<<<<<< mine\n" + NAME),
    '"init": true': (MAIN, '"init": true', '"init": "true"'),
    "/forwardPorts": (MAIN, *key('"forwardPorts": 8888')),
    "/features": (MAIN, *key('"features": ["git"]')),
    "/hostRequirements/memory": (MAIN, *key('"hostRequirements": {"memory": "32 gigabytes"}')),
    "/waitFor": (MAIN, *key('"waitFor": "postCreate"')),
    "/postStartCommand": (MAIN, *key('"postStartCommand": true')),
    "/containerEnv/SIZE": (MAIN, '"containerEnv": {', '"containerEnv": {"SIZE": 7,'),
    "/containerEnv: is a list": (MAIN, re.compile(r'"containerEnv": \{.*?\n  \}', re.DOTALL), '"containerEnv": []'),
    "regular user": (MAIN, '"containerUser": "dev"', '"containerUser": "root"'),
    '"vscode"': (MAIN, '"containerUser": "dev"', '"containerUser": "vscode"'),
    "/containerUser: is missing": (MAIN, '  "containerUser": "dev",\n', ""),
    "/updateRemoteUserUID": (MAIN, *key('"updateRemoteUserUID": false')),
    "/privileged": (MAIN, *key('"privileged": true')),
    "/appPort": (MAIN, *key('"appPort": ["8888:8888"]')),
    "/build/dockerfile": (MAIN, '"../Dockerfile"', '"../Dockerfile.mine"'),
    'write "context": ".."': (MAIN, '"context": ".."', '"context": "../.."'),
    "/build/target": (MAIN, '"context": "..",', '"context": "..", "target": "tool",'),
    "BASE_IMAGE": (MAIN, re.compile(r'"BASE_IMAGE": "[^"]+",\s*'), ""),
    "MIRROR": (MAIN, '"args": {', '"args": {"MIRROR": "x",'),
    "initialize.sh, which creates": (MAIN, ".devcontainer/initialize.sh", ".devcontainer/init.sh"),
    "that there is no GPU": (CPU, re.compile(r'initialize.sh",\s*"cpu"'), 'initialize.sh"'),
    "TORCH_BACKEND": (CPU, '"TORCH_BACKEND": "cpu"', '"TORCH_BACKEND": "cu130"'),
    "a GPU is requested in": (CPU, *flag("--gpus=all")),
    "value of DB_PASSWORD": (MAIN, *key('"remoteEnv": {"LOGIN": "u:${localEnv:DB_PASSWORD}"}')),
    "value of HF_TOKEN": (MAIN, '"containerEnv": {', '"containerEnv": {"HF_TOKEN": "${localEnv:HF_TOKEN}",'),
    "to the top level": (MAIN, '"context": "..",', '"context": "..", "runArgs": ["--init"],'),
    "it has init twice": (MAIN, '"init": true,', '"init": true, "init": true,'),
    "/dockerComposeFile: is not allowed": (MAIN, *key('"dockerComposeFile": "../compose.yaml"')),
    "/workspaceFolder": (CPU, '"workspaceFolder": "/workspace"', '"workspaceFolder": "/work"'),
    "no variable `${localWorkspaceFoldr}`": (MAIN, "--env-file=${localWorkspaceFolder}", "--env-file=${localWorkspaceFoldr}"),
    "no variable `${workspaceFolder}`": (MAIN, re.compile(r"\$\{\w+\}/.launch/huggingface"), "${workspaceFolder}/.launch/huggingface"),
    "do not use the GPU": (MAIN, '"containerEnv": {', '"containerEnv": {"GPUKIT_DEVICE": "cpu",'),
    # devcontainer.json: mounts
    "no field ` source`": (MAIN, re.compile(r",source=(\S+huggingface,)"), r", source=\1"),
    "but not the type bind": (MAIN, '"workspaceMount": "type=bind,', '"workspaceMount": "'),
    "two mounts have": (MAIN, *listed("mounts", "type=bind,source=/opt,target=/home/dev/.cache/huggingface")),
    "nothing is mounted at /home": (MAIN, "target=/home/dev/.cache/huggingface", "target=/home/dev/.cache/hf"),
    "`readonly`": (MAIN, "target=/home/dev/.aws,readonly", "target=/home/dev/.aws,readnly"),
    "writable at /home/dev/.aws": (MAIN, "target=/home/dev/.aws,readonly", "target=/home/dev/.aws"),
    "/data is mounted writable": (MAIN, "target=/data,readonly", "target=/data"),
    "`target`": (MAIN, "huggingface,target=/home", "huggingface,taget=/home"),
    "has the type bnd": (MAIN, re.compile("type=bind(?=[^\n]+huggingface)"), "type=bnd"),
    "/workspaceMount": (MAIN, "target=/workspace", "target=/work"),
    "has no source": (MAIN, re.compile(r"source=[^,]+huggingface,"), ""),
    # flags
    "`--ulimit`": (MAIN, "--ulimit=memlock", "--ulimt=memlock"),
    "`--ulimit`, as two": (CPU, re.compile(r'"--ulimit=(stack=\d+)"'), r'"--ulmit", "\1"'),
    "`--env-file`": (CPU, "--env-file=", "--envfile="),
    "no option `--turbo`": (MAIN, *flag("--turbo")),
    "`--ipc=host`": (MAIN, '"--ipc=host"', '"ipc=host"'),
    "no option `--ipc host`": (MAIN, '"--ipc=host"', '"--ipc host"'),
    "`--cpus` needs a value": (MAIN, re.compile(r'("--env-file[^\n]+")'), r'\1, "--cpus"'),
    "--ulimit memlok": (MAIN, "--ulimit=memlock=-1", "--ulimit=memlok=-1"),
    "--ulimit nofile": (MAIN, *flag("--ulimit=nofile=many")),
    "soft limit exceeds": (MAIN, *flag("--ulimit=nofile=9:8")),
    "--ipc is hots": (MAIN, "--ipc=host", "--ipc=hots"),
    "--memory is much": (MAIN, *flag("--memory=much")),
    "--cpus is four": (MAIN, *flag("--cpus=four")),
    "--pids-limit": (MAIN, *flag("--pids-limit", "none")),
    "field `targt`": (MAIN, *flag("--mount=type=bind,source=/opt,targt=/opt")),
    "target is not a path": (MAIN, *flag("-v", "/opt:opt")),
    "--publish is": (MAIN, *flag("-p", "127.0.0.1:web:80")),
    "open to the network": (MAIN, *flag("--publish=8888:8888")),
    "/redis: is a service": (COMPOSE, "\nnetworks:\n", "\nredis:\n  image: redis:7\nnetworks:\n"),
    "`{{` begins": (COMPOSE, "init: true", "init: {{ true }} or not"),
    "in `\\` and a space": (SLURM, "--nproc-per-node=\"$processes\" \\\n", "--nproc-per-node=\"$processes\" \\ \n"),
    "NAME @ URL": (PYPROJECT, "    # your own", '    "git+https://example.org/a.git",\n    # your own'),
    "--name is my/box": (MAIN, *flag("--name=my/box")),
    "--add-host is box": (MAIN, *flag("--add-host", "box")),
    "--privileged": (MAIN, *flag("--privileged")),
    "--user makes": (CPU, *flag("-u", "root")),
    "with a space": (MAIN, *flag("--hostname=box ")),
    "--device is": (MAIN, *flag("--device=nvidia0")),
    "`${localEnv:NAME}`": (MAIN, "${localEnv:UV_INDEX}", "${localEnv.UV_INDEX}"),
    "quote several devices": (MAIN, '"--gpus=\\"device=${localEnv:GPUS:all}\\""', '"--gpus=device=${localEnv:GPUS:all}"'),
    "no GPU is requested": (MAIN, re.compile(r'"--gpus[^\n]+\n'), ""),
    "requested by --runtime": (MAIN, GPU, '"--runtime=nvidia"'),
    "--ulimit memlock is not set": (MAIN, '    "--ulimit=memlock=-1",\n', ""),
    "--ulimit memlock is not set, --ulimit stack": (CPU, re.compile(r'"--ulimit=memlock=-1",\s*"--ulimit=stack=\d+",'), ""),
    '--ipc is "private"': (MAIN, '"--ipc=host"', '"--ipc", "private"'),
    "host.env is not passed": (MAIN, re.compile(r',\s*"--env-file[^\n]+'), ""),
    "names .devcontainer/hots.env": (MAIN, "/host.env", "/hots.env"),
    "per_process_memory_fraction": (MAIN, re.compile(r',?\s*"PYTORCH_ALLOC_CONF": "[^"]+"'), ""),
    # files that a start needs
    f"{MAIN}: is missing": (MAIN,),
    f"{CPU}: is missing": (CPU,),
    f"{STACK}: is missing": (STACK,),
    f"{HOST_ENV}: is missing": (HOST_ENV,),
    f"{INITIALIZE}: is missing": (INITIALIZE,),
    f"{COMPOSE}: is missing": (COMPOSE,),
    f"{COMPOSE_CPU}: is missing": (COMPOSE_CPU,),
    f"{PYPROJECT}: is missing": (PYPROJECT,),
    "Dockerfile: is missing": ("Dockerfile",),
    "launch: is missing": ("launch",),
    "apt.txt: is missing": ("apt.txt",),
    ".dockerignore: is missing": (".dockerignore",),
    "launch: is empty": ("launch", re.compile(r".+", re.DOTALL), ""),
    "launch: sh cannot": ("launch", END, "\nif then\n"),
    f"{INITIALIZE}: sh cannot": (INITIALIZE, END, "\necho 'unfinished\n"),
    "launch: line 1": ("launch", "#!/bin/sh", "#!/bin/hs"),
    "launch: line 1, in a comment": ("launch", "#!/bin/sh", "# /bin/sh"),
    f"{SLURM}: line 1": (SLURM, "env bash", "env bsah"),
    "`gpus-per-node`": (SLURM, "#SBATCH --gpus-per-node", "#SBATCH --gpu-per-node"),
    "`gpus-per-node`, as the second": (SLURM, "#SBATCH --gpus-per-node", "#SBATCH --requeue --gpu-per-node"),
    "`#SBATCH`": (SLURM, "#SBATCH --nodes", "#SBTACH --nodes"),
    "does not create .launch/huggingface": (INITIALIZE, '"$cache" .launch/huggingface', '"$cache" .launch/hugging'),
    "does not create .aws,": (INITIALIZE, 'folder "$HOME/.aws"\n', ""),
    "does not create .launch/jupyter-token": (INITIALIZE, re.compile(r"\[ -s .launch/jupyter-token[^\n]+\n"), ""),
    "does not create the network": (INITIALIZE, re.compile(r"network=\S+\n"), "network=other\n"),
    f"{HOST_ENV}: line 1": (HOST_ENV, START, "HF TOKEN\n"),
    f"{HOST_ENV}: line 1, exported": (HOST_ENV, START, "export NAME=1\n"),
    "value of a secret": (HOST_ENV, "HF_TOKEN\n", "HF_TOKEN=0123456789\n"),
    "value of a secret, in the Dockerfile": ("Dockerfile", "\nWORKDIR /workspace", "\nENV HF_TOKEN=0123\nWORKDIR /workspace"),
    "`git;` is not the name": ("apt.txt", "\ngit\n", "\ngit; curl\n"),
    "below the first command": (SLURM, "\nset -euo", "\nset -euo pipefail\n#SBATCH --mem=4G\nset -euo"),
    # the answers, the workflows, the ignore files
    "`pull_request`": (WORKFLOW, "pull_request:", "pull_requests:"),
    "hardware is rtx-30": (ANSWERS, re.compile(r"hardware: .+"), "hardware: rtx-30"),
    "/_src_path: is missing": (ANSWERS, "_src_path:", "_scr_path:"),
    f"{ANSWERS}: line": (ANSWERS, "hardware: ", "hardware: ["),
    "`runs-on`": (WORKFLOW, "runs-on:", "run-on:"),
    "`on`": (WORKFLOW, "\non:", "\nonn:"),
    f"{WORKFLOW}: line": (WORKFLOW, "jobs:\n", "jobs: [\n"),
    ".gitignore: does not keep .env": (".gitignore", "/.env\n", ""),
    ".gitignore: is missing": (".gitignore",),
    # stack.json
    f"{STACK}: /package": (STACK, re.compile(r'"package": "(\w+)t"'), r'"package": "\1"'),
    f"{STACK}: line": (STACK, re.compile(r"\}\s*\Z"), ""),
    f"{STACK}: /imag": (STACK, *spelled("image", "imag")),
    f"{STACK}: /memory/ipcs": (STACK, *spelled("ipc", "ipcs")),
    f"{STACK}: /memry": (STACK, *spelled("memory", "memry")),
    f"{STACK}: /python": (STACK, re.compile(r'"python": "([^"]+)"'), r'"python": 3'),
    f"{STACK}: /native/driver": (STACK, re.compile(r'"driver": "?[\d.]+"?,(?=\s+"allocator_cap)'), '"driver": true,'),
    f"{STACK}: /targets": (STACK, re.compile(r'"(rtx-50|dgx-spark)": \{'), '"rtx-5000": {'),
    f"{STACK}: /image: does not agree with Dockerfile and README.md": (STACK, re.compile(r'"image": "[^"]+"'), '"image": "a:1"'),
    f"{STACK}: /user: does not agree with {MAIN} and {CPU}": (STACK, '"user": "dev"', '"user": "me"'),
    "have no code for": (STACK, re.compile(r'"capability": "[^"]+"'), '"capability": "3.0"'),
    # Dockerfile
    "`WORKDIR`": ("Dockerfile", "\nWORKDIR /etc/gpukit", "\nWORKDRI /etc/gpukit"),
    "`tmpfs`": ("Dockerfile", "RUN --mount=type=bind,source=vendor", "RUN --mount=target=/t,type=tmpf RUN --mount=type=bind,source=vendor"),
    "RUN has no mount of the type folder": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN --network=none --mount=type=folder,target=/t true\nWORKDIR /workspace"),
    "COPY has no flag --form": ("Dockerfile", "COPY --from=tools /layers/torch", "COPY --form=tools /layers/torch"),
    "no field `sorce`": ("Dockerfile", "type=bind,source=vendor", "type=bind,sorce=vendor"),
    "the list of CMD": ("Dockerfile", 'CMD ["bash"]', 'CMD ["bash"'),
    "COPY needs": ("Dockerfile", "/dependencies/all.txt ./", "/dependencies/all.txt"),
    "no variable `USER_UDI`": ("Dockerfile", "USER ${USER_UID}", "USER ${USER_UDI}"),
    "lets other packages replace": ("Dockerfile", "UV_CONSTRAINT=/etc/gpukit/protected", "UV_CONSTRAINT=/etc/gpukit/protectd"),
    "has no line `END`": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN <<END\necho 1\nWORKDIR /workspace"),
    "this ENTRYPOINT": ("Dockerfile", END, '\nENTRYPOINT ["python3"]\n'),
    "this ENTRYPOINT, in the other form": ("Dockerfile", END, "\nENTRYPOINT exec python -m mine\n"),
    "runs as root": ("Dockerfile", "\nUSER ${USER_UID}", ""),
    "runs as root, named": ("Dockerfile", "USER ${USER_UID}", "USER root"),
    "argument UV_INDEX": ("Dockerfile", "ARG UV_INDEX\n", ""),
    "argument USER_GID": ("Dockerfile", "ARG USER_GID=1000\n", ""),
    "apts.txt: is missing": ("Dockerfile", "COPY apt.txt ", "COPY apts.txt "),
    "image is ubuntu:24.04": ("Dockerfile", re.compile(r"BASE_IMAGE:-[^}]+"), "BASE_IMAGE:-ubuntu:24.04"),
    "no default for BASE_IMAGE": ("Dockerfile", re.compile(r"\$\{BASE_IMAGE:-[^}]+\}"), "ubuntu:24.04"),
    "named `tool`": ("Dockerfile", "--from=tools /layers/torch", "--from=tool /layers/torch"),
    "named `tools`": ("Dockerfile", "FROM system AS tools", "FROM system"),
    "does not install gpukit": ("Dockerfile", re.compile(r"RUN --mount=type=bind,source=vendor[^\n]+\n"), ""),
    "so that Docker creates it as root": ("Dockerfile", re.compile(r" /home/dev/.cache/huggingface"), ""),
    "compiles for": ("Dockerfile", re.compile(r'TORCH_CUDA_ARCH_LIST="[^"]+"'), 'TORCH_CUDA_ARCH_LIST="7.5"'),
    "keeps stack.json": (".dockerignore", "!stack.json\n", ""),
    "does not keep .env": (".dockerignore", "\n*\n", "\n"),
    "README.md: line": ("README.md", ", Python 3.", ", Python 2."),
    # pyproject.toml
    f"{PYPROJECT}: line 1: cannot be read": (PYPROJECT, "[project]", "[project"),
    "`dependencies`": (PYPROJECT, "\ndependencies =", "\ndependencis ="),
    "`project`": (PYPROJECT, "[project]", "[projct]"),
    "/tool/uv/managed": (PYPROJECT, "managed = false", "managed = true"),
    "/project/dependencies": (PYPROJECT, '"torch",', '"torch", "num py",'),
    "excludes Python": (PYPROJECT, re.compile(r'requires-python = "[^"]+"'), 'requires-python = ">=3.99"'),
    "excludes torch": (PYPROJECT, '"torch",', '"torch==1.13",'),
    "/project/dependencies/1": (PYPROJECT, '"torch",', '"torch", 3,'),
    "does not match, in pyproject.toml": (PYPROJECT, re.compile(r'requires-python = ".+"'), 'requires-python = "3.11+"'),
    f"{STACK}: /python: does not agree with README.md and {PYPROJECT}": (STACK, re.compile(r'"python": "3\.\d+"'), '"python": "3.8"'),
    f"{PYPROJECT}: /project/version": (PYPROJECT, 'version = "0.1.0"', 'version = "one"'),
    # compose.yaml
    "/services/mlflow/restart": (COMPOSE, "restart: unless-stopped", "restart: unless-stoped"),
    "/services/mlflow/cap_drop": (COMPOSE, "cap_drop: [ALL]", "cap_drop: ALL"),
    "/services/mlflow/mem_limit": (COMPOSE, "mem_limit: 4g", "mem_limit: 4x"),
    "/services/mlflow/healthcheck/start_period": (COMPOSE, "start_period: 10m", "start_period: ten minutes"),
    "/services/mlflow/healthcheck/test": (COMPOSE, "test: [CMD,", "test: [CMDD,"),
    "/services/dev/depends_on": (COMPOSE, "    user: dev\n", "    user: dev\n    depends_on: {mlflow: {condition: service_helthy}}\n"),
    "one of count:": (COMPOSE, "              device_ids:", "              count: 1\n              device_ids:"),
    f"{COMPOSE}: /name": (COMPOSE, "\nname: ", "\nname: My "),
    "/services/dev/build/dockerfile": (COMPOSE, "context: .\n", "context: .\n      dockerfile: Dockerfile.gpu\n"),
    f"{COMPOSE}: line 5: cannot be read": (COMPOSE, "services:", "services: ["),
    "`environment`": (COMPOSE, "    environment:", "    enviroment:"),
    "`services`": (COMPOSE, "services:", "service:"),
    "`device_ids`": (COMPOSE, "device_ids:", "device_id:"),
    "`devices`": (COMPOSE, "          devices:", "          device:"),
    "has ipc twice": (COMPOSE, "    ipc: host\n", "    ipc: host\n    ipc: host\n"),
    "/services/dev: is missing": (COMPOSE, "\n  dev:", "\n  deev:"),
    "/services/dev/ipc": (COMPOSE, "    ipc: host\n", ""),
    "/services/dev/shm_size": (COMPOSE, "    ipc: host\n", "    ipc: host\n    shm_size: 1g\n"),
    "/services/dev/shm_size: is": (COMPOSE, "    ipc: host\n", "    ipc: host\n    shm_size: [1]\n"),
    "/services/dev/ulimits/stack": (COMPOSE, "stack: 67108864", "stack: {soft: 1, hard: 2}"),
    "differs from .devcontainer/devcontainer.json: memlock, stack": (COMPOSE, re.compile(r"    ulimits:\n(?: {6}.*\n)+"), ""),
    "with GPUS=0, the GPU is \"all\"": (COMPOSE, 'device_ids: ["${GPUS:-all}"]', "count: all"),
    "the GPU is \"none\"": (COMPOSE, re.compile(r" +deploy:\n(?: {6,}.*\n)+"), ""),
    "`gpus:`": (COMPOSE, "    init: true\n    command", "    init: true\n    gpus: all\n    command"),
    "bind of /srv/data, writable": (COMPOSE, "target: /data\n        read_only: true", "target: /data"),
    "/data is missing": (COMPOSE, re.compile(r"      - type: bind\n        source: /srv/data\n(?: {8}.*\n)+"), ""),
    "/services/dev/user": (COMPOSE, "    user: dev", "    user: root"),
    "/services/dev/env_file": (COMPOSE, "env_file: .devcontainer/host.env", "env_file: 3"),
    "hosts.env does not exist": (COMPOSE, "env_file: .devcontainer/host.env", "env_file: .devcontainer/hosts.env"),
    "environment/WANDB_DIR": (COMPOSE, "WANDB_DIR=/workspace/outputs", "WANDB_DIR=/tmp"),
    "value of HF_TOKEN, in Compose": (COMPOSE, "    environment:\n", "    environment:\n      - HF_TOKEN=${HF_TOKEN}\n"),
    "build/args/USER_UID": (COMPOSE, re.compile(r" +USER_UID: [^\n]+\n"), ""),
    "build/args/UV_INDEX": (COMPOSE, "UV_INDEX: ${UV_INDEX:-}", "UV_INDEX: https://mirror.example.org"),
    "/services/mlflow/ports/0": (COMPOSE, "127.0.0.1:${MLFLOW_PORT:-5000}:5000", "${MLFLOW_PORT:-5000}:5000"),
    "/services/mlflow/build": (COMPOSE, "dockerfile_inline: |", "labels: |"),
    "names the service mlflow": (COMPOSE, "\n  mlflow:", "\n  mlflows:"),
    "service mlflow, which is not here": (COMPOSE, "\n  mlflow:", "\n  tracking-server:"),
    "ml is not declared": (COMPOSE, "\n  dev:\n", "\n  dev:\n    depends_on: [ml]\n"),
    "cache is not declared": (COMPOSE, "    volumes:\n", "    volumes:\n      - cache:/cache\n"),
    "is not external": (COMPOSE, "    external: true\n", ""),
    "/services/dev/networks": (COMPOSE, re.compile(r"\nnetworks:\n.+", re.DOTALL), ""),
    "no closing brace": (COMPOSE, "127.0.0.1:${MLFLOW_PORT:-5000}", "127.0.0.1:${MLFLOW_PORT:-5000"),
    "no closing brace, in another": (COMPOSE, "UV_INDEX: ${UV_INDEX:-}", "UV_INDEX: ${UV_INDEX:-${OTHER}"),
    # compose.cpu.yaml
    f"{COMPOSE_CPU}: /services/dev/deploy": (COMPOSE_CPU, "    deploy: !reset null\n", ""),
    f"{COMPOSE_CPU}: /services/dev/build/args": (COMPOSE_CPU, "TORCH_BACKEND: cpu", "TORCH_BACKEND: cu130"),
    f"{COMPOSE_CPU}: /services/dev: is missing": (COMPOSE_CPU, "\n  dev:", "\n  deev:"),
    f"{COMPOSE_CPU}: /services/dev/enviroment": (COMPOSE_CPU, "    environment:", "    enviroment:"),
    f"{COMPOSE_CPU}: /services/dev/environment/GPUKIT_DEVICE": (COMPOSE_CPU, "- GPUKIT_DEVICE=cpu", "- OTHER="),
    f"{COMPOSE_CPU}: is not a mapping": (COMPOSE_CPU, re.compile(r".+", re.DOTALL), ""),
    f"{COMPOSE_CPU}: /services/dev/deploy, as null leaves it": (COMPOSE_CPU, "deploy: !reset null", "deploy: null"),
    "also that of the service docs": (COMPOSE, "\n  mlflow:", "\n  docs:\n    image: nginx\n    ports: ['127.0.0.1:5000:80']\n  mlflow:"),
    "/services/mlflow/environment/0": (COMPOSE, "- MLFLOW_DISABLE_TELEMETRY=true", "- MLFLOW_DISABLE_TELEMETRY: true"),
    # workflows
    "/jobs/tests/needs: lnt": (WORKFLOW, "\n  tests:\n", "\n  tests:\n    needs: lnt\n"),
    "has 6 fields": (WORKFLOW, re.compile(r'cron: "'), 'cron: "0 '),
    "'25' is not a hour": (WORKFLOW, re.compile(r'cron: "(\d+) \d+'), r'cron: "\1 25'),
    '"actions/checkout" does not match': (WORKFLOW, re.compile(r"actions/checkout@.+"), "actions/checkout"),
    "either `run:` or `uses:`": (WORKFLOW, "      - run: pytest\n", "      - name: pytest\n"),
    "no event pull-request, but there is pull_request": (WORKFLOW, re.compile(r"on:\n  push:.*?workflow_dispatch:\n", re.DOTALL), "on: [push, pull-request]\n"),
    "bash cannot read it": (WORKFLOW, "./launch validate", "echo 'checking"),
    "read, write, or none": (".github/workflows/update.yml", "contents: write", "contents: writes"),
    # the cluster
    "/time": (SLURM, "--time=08:00:00", "--time=8h"),
    "/gpus-per-node": (SLURM, re.compile(r"#SBATCH --gpus-per-node=\d+"), "#SBATCH --gpus-per-node=8gpus"),
    "/Job/spec/template/spec/containers/0/resources/limits/memory": (KUBERNETES, "memory: 64Gi", "memory: 64GB"),
    "did you mean `outputs`?": (KUBERNETES, "- name: outputs\n              mountPath", "- name: output\n              mountPath"),
    "did you mean `trainer`?": (KUBERNETES, "        - name: train\n", "        - name: trainer\n"),
    "podFailurePolicy allows no other": (KUBERNETES, "restartPolicy: Never", "restartPolicy: Always"),
    "lower-case letters, digits, and -": (KUBERNETES, re.compile(r"kind: Job\nmetadata:\n  name: \S+"), "kind: Job\nmetadata:\n  name: My_Job"),
    "`volumeMounts`": (KUBERNETES, "volumeMounts:", "volumeMount:"),
    "did you mean `JOB_NAME`?": (KUBERNETES, "--name, $(JOB_NAME)", "--name, $(JOB_NAM)"),
    "the value in quotes": (KUBERNETES, 'value: "110"', "value: 110"),
    # what a shell reads
    "runs into the next one, `ENV`": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN true && \\\n\nENV X=1\nWORKDIR /workspace"),
    "a space beside its =": ("Dockerfile", "\nWORKDIR /workspace", "\nENV X = 1\nWORKDIR /workspace"),
    "sh cannot read it": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN echo 'one\nWORKDIR /workspace"),
    "post-create.sh does not exist": (MAIN, *key('"postCreateCommand": "bash .devcontainer/post-create.sh"')),
    "starts my_gpu_project.train": (TRAIN,),
    "starts my_gpu_project.trian": (PYPROJECT, "[tool.uv]", '[project.scripts]\ngo = "my_gpu_project.trian:main"\n\n[tool.uv]'),
    # what scripts import, and what the image installs
    "there is no module .modle; did you mean `model`?": (TRAIN, "from .model import", "from .modle import"),
    f"{TRAIN}: line 6: has a merge conflict": (TRAIN, "from dataclasses", "<<<<<<< HEAD\nfrom dataclasses"),
    "torch==1.13 excludes": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN pip install 'torch==1.13' einops\nWORKDIR /workspace"),
    "apt.txt: line 5: is a command": ("apt.txt", END, "apt-get install -y ffmpeg\n"),
    "python is not declared under strategy/matrix": (WORKFLOW, 'python-version: "3.12"', "python-version: ${{ matrix.python }}"),
    "meta is not declared under steps": (WORKFLOW, "      - run: pytest\n", "      - run: pytest ${{ steps.meta.outputs.flags }}\n"),
    "lint is not declared under needs": (WORKFLOW, "      - run: pytest\n", "      - run: pytest ${{ needs.lint.outputs.flags }}\n"),
    "cannot be read from `=` on": (WORKFLOW, "\n  tests:\n", "\n  tests:\n    if: ${{ github.ref = 'refs/heads/main' }}\n"),
    "did you mean `branches`?": (WORKFLOW, "    branches:", "    branchs:"),
    "port 53 is also that of the service a": (COMPOSE, "\n  mlflow:", "".join(f"\n  {a}:\n    image: x\n    ports: ['127.0.0.1:53:53/udp']" for a in "ab") + "\n  mlflow:"),
    # a letter in what the template wrote, and what a user adds
    "did you mean `vscode`?": (MAIN, '"vscode": {', '"vscod": {'),
    "did you mean `launch`?": (MAIN, "/.launch/huggingface", "/.lanch/huggingface"),
    "did you mean `update`?": ("Dockerfile", "apt-get update", "apt-get upadte"),
    "did you mean `torch`?": ("Dockerfile", "install.py torch.json", "install.py torhc.json"),
    "which is not between 0 and 1": (MAIN, "GPUKIT_MEMORY_FRACTION:0.8", "GPUKIT_MEMORY_FRACTION:8.0"),
    "--memory is 16 bytes": (MAIN, *flag("--memory=16")),
    "--volume ~/data:/data has ~": (MAIN, *flag("-v", "~/data:/data")),
    "creates no user `dev`": ("Dockerfile", "-s /bin/bash dev", "-s /bin/bash developer"),
    "the list of CMD is not JSON": ("Dockerfile", 'CMD ["bash"]', "CMD ['bash']"),
    "does not copy what says which PyTorch is installed": ("Dockerfile", "COPY --from=tools /layers/torch/ ./\n", ""),
    # what a shell, root, torchrun, or another tool would have to do
    "at /sets has ~ or $NAME": (MAIN, *listed("mounts", "type=bind,source=$HOME/sets,target=/sets")),
    "--volume /scratch/$USER:/scratch has": (MAIN, *flag("-v", "/scratch/$USER:/scratch")),
    "apt-get needs root": ("Dockerfile", END, "RUN apt-get update && apt-get install -y ffmpeg\n"),
    "without `apt-get update`": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN apt-get install -y --no-install-recommends ffmpeg\nWORKDIR /workspace"),
    "on this PATH": ("Dockerfile", "\nWORKDIR /workspace", "\nENV PATH=/opt/tools/bin\nWORKDIR /workspace"),
    f"{SLURM}: /ntasks-per-node": (SLURM, "--ntasks-per-node=1", "--ntasks-per-node=8"),
    "requests/nvidia.com/gpu and limits": (KUBERNETES, "memory: 16Gi\n", "memory: 16Gi\n              nvidia.com/gpu: 2\n"),
    "completions and parallelism differ": (KUBERNETES, "completions: 1", "completions: 2"),
    f"{STACK}: /driver: is a whole number": (STACK, re.compile(r'\n  "driver": "(\d+)"'), r'\n  "driver": \1'),
    "scripts/start.sh does not exist": (MAIN, *key('"postStartCommand": {"start": ["bash", "scripts/start.sh"]}')),
    "requirements-dev.txt does not exist": (MAIN, *key('"postCreateCommand": "pip install -r requirements-dev.txt"')),
    "--cpuset-cpus is 0:7": (MAIN, *flag("--cpuset-cpus=0:7")),
    "`source` is a command of bash": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN true && source /etc/profile\nWORKDIR /workspace"),
    "the comment is part of WORKDIR": ("Dockerfile", "\nWORKDIR /workspace", "\nWORKDIR /workspace # the project"),
    "../shared is outside": ("Dockerfile", "\nWORKDIR /workspace", "\nCOPY ../shared /opt/shared\nWORKDIR /workspace"),
    "/services/a/command/1: is a whole number": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: redis, command: [--port, 6380]}\n"),
    "there is no folder ./serve": (COMPOSE, "\nservices:\n", "\nservices:\n  serve: {build: ./serve}\n"),
    "Slurm does not create the folder logs": (SLURM, "--output=cluster/", "--output=logs/"),
    "in lower-case letters": (KUBERNETES, re.compile(r"image: \S+"), "image: ghcr.io/Acme/Project:v1"),
    "3.10 is the number 3.1": (WORKFLOW, 'python-version: "3.12"', "python-version: [3.9, 3.10]"),
    "/services/api/gpus": (COMPOSE, "\nservices:\n", "\nservices:\n  api: {image: a, gpus: 2}\n"),
    # what is read as something else, is there twice, or is not there
    "a value without quotes": ("Dockerfile", 'TORCH_CUDA_ARCH_LIST="', 'A = "'),
    "or in a value": ("Dockerfile", "ENV GPUKIT_PROJECT=/workspace PYTHONPATH", "ENV GPUKIT_PROJECT /workspace PYTHONPATH"),
    "a space in its image": ("Dockerfile", "} AS system", " } AS system"),
    "FROM does not see BASE_IMAGE": ("Dockerfile", re.compile(r"ARG BASE_IMAGE\n(FROM .*\n)"), r"\1ARG BASE_IMAGE\n"),
    "nothing copies /entrypoint.sh": ("Dockerfile", "ENTRYPOINT []", 'ENTRYPOINT ["/entrypoint.sh"]'),
    "a program with a space": ("Dockerfile", "\nWORKDIR /workspace", '\nSHELL ["bash -c"]\nWORKDIR /workspace'),
    "the image has no sudo": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN sudo make install\nWORKDIR /workspace"),
    "it needs -y": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN apt-get update && apt-get install ffmpeg\nWORKDIR /workspace"),
    "does not work in the folder": ("Dockerfile", "WORKDIR /etc/gpukit\n", ""),
    "does not copy the list": ("Dockerfile", "COPY --from=tools /layers/dependencies/all.txt ./\n", ""),
    "builds for arm64": ("Dockerfile", "FROM ${BASE", "FROM --platform=linux/arm64 ${BASE"),
    "keeps apt.txt, vendor": (".dockerignore", END, "*\n"),
    "the quotes part of the value": (HOST_ENV, END, '\nMY_MODE="fast"\n'),
    "/containerEnv/PATH": (MAIN, '"containerEnv": {', '"containerEnv": {"PATH": "/opt/bin:${PATH}",'),
    "/containerEnv/CUDA_VISIBLE_DEVICES": (MAIN, '"containerEnv": {', '"containerEnv": {"CUDA_VISIBLE_DEVICES": "",'),
    "does not create .launch/torch": (MAIN, re.compile(r'(per_process_memory[\s\S]*"mounts": \[)'), r'\1"type=bind,source=${localWorkspaceFolder}/.launch/torch,target=/torch",'),
    "write PUBLISHER.NAME": (MAIN, *listed("extensions", "Python")),
    "the command listens on 6006": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: [tensorboard, --port, '6006', --host, 0.0.0.0], ports: ['127.0.0.1:9:6060']}\n"),
    "container_name is own more than once": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, container_name: own}\n  b: {image: a, container_name: own}\n"),
    "/services/deev: is not in compose.yaml": (COMPOSE_CPU, "services:\n", "services:\n  deev:\n    build: {args: {A: b}}\n"),
    "mountPath is /dev/shm more than once": (KUBERNETES, "mountPath: /outputs", "mountPath: /dev/shm"),
    "write `nvidia.com/gpu`": (KUBERNETES, "nvidia.com/gpu:", "nvidia.com/gpus:"),
    "write it as B:USR1@120": (SLURM, "B:USR1", "USR1"),
    "Slurm gives none": (SLURM, "#SBATCH --gpus", "# SBATCH --gpus"),
    "3.10 is the number 3.1, in a list": (WORKFLOW, 'python-version: "3.12"', "python-version:\n            - 3.10"),
    "no }} at its end": (WORKFLOW, "github.ref }}", "github.ref }"),
    "pytest in CI": (PYPROJECT, 'pythonpath = ["src"]\n', ""),
    # at another level, or of another kind
    "move it to /services/mlflow": (COMPOSE, "    restart: unless", "      restart: unless"),
    "move it to an entry of /on": (WORKFLOW, "  pull_request:\n", "  branches: [main]\n"),
    "move it to /Job/spec": (KUBERNETES, re.compile(r"  backoffLimit: 4\n([\s\S]*?)(?=      restartPolicy)"), r"\1      backoffLimit: 4\n"),
    "containers: is a mapping": (KUBERNETES, "        - name: train", "          name: train"),
    "/tool/ruff/lint/select: is a string": (PYPROJECT, re.compile(r"select = \[.*\]"), 'select = "E,F"'),
    "./.github/actions/setup does not exist": (WORKFLOW, "      - run: pytest\n", "      - uses: ./.github/actions/setup\n"),
    "no context `secret`": (WORKFLOW, re.compile(r"(PYTHONPATH: src)"), r"\1\n          A: ${{ secret.A }}"),
    "cannot be read from `=` on, in a condition without braces": (WORKFLOW, "if: runner.environment ==", "if: runner.environment ="),
    # what files use of each other, and the forms of values
    "/initializeCommand/0": (MAIN, re.compile(r'"sh",\s+"(?=.devcontainer/init)'), '"sh '),
    "/services/a/profiles: is a string": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: redis, profiles: extra}\n"),
    "write USER, or ${UID}:${GID}": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: redis, user: '${USER_UID}:{USER_GID}'}\n"),
    "/services/mlflow/build/dockerfile_inline": (COMPOSE, "dockerfile_inline: |", "dockerfile_inline:"),
    "move it to /services/dev/deploy/resources": (COMPOSE, "      resources:\n        reservations:\n", "      reservations:\n"),
    "does not write USER_UID to .env": (INITIALIZE, '"USER_UID=', '"UID='),
    "a space before its `=`": (INITIALIZE, "cache=$", "cache = $"),
    "of several files needs a folder": ("Dockerfile", "\nWORKDIR /workspace", "\nCOPY apt.txt pyproject.toml /opt/both\nWORKDIR /workspace"),
    "TORCH_BACKEND is not declared in this stage": ("Dockerfile", re.compile(r"(FROM system AS torch\n)([\s\S]*?)(ARG TORCH_BACKEND=\w+\n)"), r"FROM system AS other\n\3\1\2"),
    "of a mount has no value": ("Dockerfile", "--mount=type=bind,source=vendor", "--mount=type=bind, source=vendor"),
    "certs/*.crt: is missing": ("Dockerfile", "cert[s]/", "certs/"),
    "useradd needs root": ("Dockerfile", END, "RUN useradd other\n"),
    "the image has no conda": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN conda install -y faiss-gpu\nWORKDIR /workspace"),
    "HEALTHCHECK is curl": ("Dockerfile", "\nWORKDIR /workspace", "\nHEALTHCHECK curl localhost\nWORKDIR /workspace"),
    "USER_UID and USER_GID, which a start passes": ("Dockerfile", re.compile(r"ARG USER_[UG]ID=1000\nARG USER_[UG]ID=1000\n"), ""),
    "/project/optional-dependencies/dev": (PYPROJECT, '"pytest>=8.4,<10"', '"pytest>=8.4;<10"'),
    "the mark gpu, which is not declared": (PYPROJECT, re.compile(r"markers = .*\n"), ""),
    "the extra dev, which": (PYPROJECT, "\ndev = [", "\ndevelop = ["),
    "a309ff8\" does not match": (WORKFLOW, re.compile(r"(actions/setup-python@).*"), r"\1a309ff8"),
    "no activity label, but there is labeled": (".github/workflows/gpu.yml", "[labeled,", "[label,"),
    "add `group:`": (".github/workflows/gpu.yml", re.compile(r"      group: .*\n"), ""),
    "notebooks/first.ipynb does not exist": (WORKFLOW, "notebooks/quickstart.ipynb", "notebooks/first.ipynb"),
    "there is no folder test": (WORKFLOW, "      - run: pytest\n", "      - run: pytest\n        working-directory: test\n"),
    "/Job/spec/template/spec/securityContext/runAsUser": (KUBERNETES, "runAsUser: 1000", 'runAsUser: "1000"'),
    "write Job, Service, or": (KUBERNETES, "kind: Service", "kind: service"),
    # what a start, a workflow's token, and a command over several lines need
    "`mkdir` fails from the second start": (INITIALIZE, "mkdir -p .launch\n", "mkdir .launch\n"),
    "no contents and no pull-requests: write": (".github/workflows/update.yml", re.compile(r"    permissions:\n(?: {6}.*\n)+"), ""),
    "--master-addr begins a command": (SLURM, re.compile(r" \\\n(?= *--master-addr)"), "\n"),
    "lacks the `\\` at its end": (SLURM, re.compile(r" \\\n(?= *torchrun)"), "\n"),
    # what one file says of another, or of a server
    "starts my-gpu-project.train": (".vscode/launch.json", '"my_gpu_project.train",\n', '"my-gpu-project.train",\n'),
    "devcontainer.cpu.json does not exist": (WORKFLOW, ".devcontainer/cpu/devcontainer.json", ".devcontainer/devcontainer.cpu.json"),
    "empties HF_TOKEN": (HOST_ENV, "HF_TOKEN\n", "HF_TOKEN=\n"),
    "the server listens on 127.0.0.1": (COMPOSE, "mlflow server --host 0.0.0.0", "mlflow server --host 127.0.0.1"),
    "the extra dev, in another table": (PYPROJECT, "[project.optional-dependencies]", "[dependency-groups]"),
    "several labels as a list": (".github/workflows/gpu.yml", re.compile("runs-on: .*"), "runs-on: self-hosted, gpu"),
    "/torch_install/requirement: torch==2.5.1 excludes": (STACK, re.compile(r'("torch_install": \{\s+"requirement": ")[^"]+'), r"\1torch==2.5.1"),
    '"dockerfile": "../../Dockerfile" and "context": "../.."': (CPU, re.compile(r'"\.\./\.\./Dockerfile",(\s+)"context": "../.."'), r'"../Dockerfile",\1"context": ".."'),
    # what a program, a shell, git, or another tool makes of it
    "the server listens on 127.0.0.1, as by default": ("Dockerfile", 'CMD ["bash"]', 'EXPOSE 8000\nCMD ["uvicorn", "serve:app"]'),
    "starts train.py, which does not exist": (".vscode/launch.json", re.compile(r'"module": "(?=my_gpu_project.train")[^"]+"'), '"program": "${workspaceFolder}/train.py"'),
    "its Python would come before": (MAIN, *key('"features": {"ghcr.io/devcontainers/features/python:1": {"version": "3.11"}}')),
    "`$!` is the program": (SLURM, re.compile(r' "\$@" &\n'), ' "$@"\n'),
    "the line ends of Windows, in .gitattributes": (".gitattributes", END, "* text eol=crlf\n"),
    "expandable_segments=True is not OPTION:VALUE": (MAIN, '"containerEnv": {', '"containerEnv": {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],expandable_segments=True",'),
    "docker build has no option --gpus": (MAIN, '"context": "..",', '"context": "..", "options": ["--pull", "--gpus=all"],'),
    "`set -euo pipefail` is of bash": (INITIALIZE, "set -eu\n", "set -euo pipefail\n"),
    f"{ANSWERS}: is missing": (ANSWERS,),
    "write one text for a shell": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: 'pip install b && a'}\n"),
    "write one text for a shell, in a healthcheck": (COMPOSE, "test: [CMD, bash", "test: [CMD, curl, localhost, '||', exit"),
    "root without its capabilities": (COMPOSE, "    user: ${USER_UID}:${USER_GID}\n", ""),
    "move it to /services/dev/deploy/resources/reservations": (COMPOSE, "        reservations:\n", "        limits:\n"),
    "nothing copies own.txt": ("Dockerfile", "\nENTRYPOINT", "\nRUN pip install -r own.txt\nENTRYPOINT"),
    "there is no module my_gpu_project.trainer": ("tests/test_train.py", "my_gpu_project.train import", "my_gpu_project.trainer import"),
    # what one line needs of another
    "GitHub has no such runner": (WORKFLOW, "runs-on: ubuntu-24.04", "runs-on: ubuntu-20.04"),
    "torchvision==0.20.1 excludes torch": (PYPROJECT, "    # your own packages\n", '    "torchvision==0.20.1",\n'),
    "exclude each other": (PYPROJECT, "    # your own packages\n", '    "numpy==1.23.5",\n'),
    "write it as py312": (PYPROJECT, "line-length = 120\n", 'line-length = 120\ntarget-version = "3.12"\n'),
    "no - before its default": (COMPOSE, "${MLFLOW_PORT:-5000}", "${MLFLOW_PORT:5000}"),
    "asks port 5001": (COMPOSE, "127.0.0.1/5000", "127.0.0.1/5001"),
    "names localhost, which in the container": (HOST_ENV, "http://mlflow:5000", "http://localhost:5000"),
    "names port 5001": (HOST_ENV, "http://mlflow:5000", "http://mlflow:5001"),
    "is not a published port": (COMPOSE, "127.0.0.1:${MLFLOW_PORT:-5000}:5000", "127.0.0.1:${MLFLOW_PORT:-5000}:5000:5000"),
    "ENV has a quote without its end": ("Dockerfile", END, '\nENV LIST="a;b\n'),
    "config is a module of the package": (TRAIN, "from .config import", "from config import"),
    "Python cannot read it: unexpected indent": (TRAIN, "    here = ", "     here = "),
    "has python-version in a step": (WORKFLOW, re.compile(r"        with:\n  (        python-version: .*)"), r"\1"),
    "is a path of the host": (MAIN, '"containerEnv": {', '"containerEnv": {"CACHE": "${localEnv:HOME}/cache",'),
    "/services/healthcheck/test: is not in the specification": (COMPOSE, re.compile(r"    healthcheck:\n  (.*)\n  (.*)\n  (.*)\n"), r"  healthcheck:\n\1\n\2\n\3\n"),
}  # fmt: skip
LEGAL = {
    "without Compose: the search path of the host": (MAIN, '"containerEnv": {', '"containerEnv": {"PATH": "/opt/bin:${localEnv:PATH}",'),
    "a user of an argument": ("Dockerfile", END, "\nARG ADMIN=root\nUSER ${ADMIN}\nRUN apt-get update && apt-get install -y a\nUSER ${USER_UID}\n"),
    "a profile's folder": (COMPOSE, "\nservices:\n", "\nservices:\n  some: {build: ./some, profiles: [some]}\n"),
    "a password of another service": (COMPOSE, "\nservices:\n", "\nservices:\n  db: {image: postgres, environment: {DB_PASSWORD: '${DB_PASSWORD}'}}\n"),
    "ports of other commands": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: 'wait --port 1; a --port 80', ports: ['127.0.0.1:1-9:80']}\n  b: {image: a, command: a --port 8:80, ports: ['127.0.0.1:7:7']}\n"),
    "the same port of two addresses": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, ports: ['127.0.0.1:7:7']}\n  b: {image: a, ports: ['[::1]:7:7']}\n"),
    "the update by another token": (".github/workflows/update.yml", re.compile(r"    permissions:\n(?: {6}.*\n)+([\s\S]*)github.token"), r"\1secrets.BOT"),
    "a list of options over several lines": (SLURM, "  srun_options=()\n  enter=(./", "  srun_options=(\n  --exact # $(one)\n  )\n  enter=(./"),
    "a shell's command": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: 'sh -c \"a && b --host localhost\"', ports: ['127.0.0.1:9:9']}\n"),
    "a Python feature without Python": (CPU, *key('"features": {"ghcr.io/devcontainers/features/python:1": {"version": "none"}}')),
    "options of a build": (CPU, '"context": "../..",', '"context": "../..", "options": ["--network=host", "--secret", "id=a"],'),
    "the ends of other files": (".gitattributes", END, "*.csv eol=crlf\n"),
    "a server of another program": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: gunicorn -k uvicorn.workers.UvicornWorker -b 0.0.0.0, ports: ['127.0.0.1:9:8000']}\n"),
    "rules by their names": (PYPROJECT, 'select = ["B"', 'preview = true\nselect = ["unused-import", "B"'),
    "quotes in a value": ("Dockerfile", END, '\nENV PS1="\\\\"x\\\\" # "\n'),
    "ENV of one value": ("Dockerfile", END, "\nENV LDFLAGS -L/opt -Wl,-rpath=/opt\n"),
    "the container in another file": (COMPOSE, re.compile(r"\n  dev:\n(?:    .*\n)*"), "\n  dev:\n    extends: {file: other.yaml, service: dev}\n"),
    "comments and trailing commas": (MAIN, '"init": true,', '"init": true, // always\n  /* ours */ "overrideCommand": true,'),
    "a path of a command": (MAIN, re.compile(r'"sh",\s+"(?=.devcontainer/init)'), '"${localWorkspaceFolder}/'),
    "a schema": (MAIN, *key('"$schema": "https://example.org/devContainer.schema.json"')),
    "features": (MAIN, *key('"features": {"ghcr.io/devcontainers/features/node:1": {"version": "22"}}')),
    "the order of features": (MAIN, *key('"overrideFeatureInstallOrder": ["ghcr.io/devcontainers/features/node"]')),
    "commands": (MAIN, *key('"postCreateCommand": {"one": "true", "two": ["echo", "2"]}, "postStartCommand": "nvidia-smi"')),
    "what VS Code waits for": (MAIN, *key('"updateContentCommand": "true", "waitFor": "updateContentCommand"')),
    "ports": (MAIN, *key('"forwardPorts": [6006, "db:5432"], "portsAttributes": {"6006": {"label": "TensorBoard"}}')),
    "other ports": (MAIN, *key('"otherPortsAttributes": {"onAutoForward": "silent"}, "appPort": [9000, "127.0.0.1:1:1"]')),
    "requirements": (MAIN, *key('"hostRequirements": {"gpu": {"cores": 1000}, "memory": "32gb", "cpus": 8, "storage": "9gb"}')),
    "an optional GPU": (CPU, *key('"hostRequirements": {"gpu": "optional"}')),
    "secrets by name": (MAIN, *key('"secrets": {"HF_TOKEN": {"description": "for gated models"}}')),
    "capabilities": (MAIN, *key('"capAdd": ["SYS_PTRACE"], "securityOpt": ["seccomp=unconfined"]')),
    "a variable of the editor": (MAIN, *key('"remoteEnv": {"PATH": "${containerEnv:PATH}:/workspace/bin", "DEBUG": null}')),
    "what the editor does": (MAIN, *key('"shutdownAction": "none", "remoteUser": "dev", "updateRemoteUserUID": true')),
    "keys of other tools": (MAIN, *key('"codespaces": {}, "jetbrains": {"backend": "PyCharm"}, "x-studio": 1')),
    "other editors": (MAIN, '"customizations": {', '"customizations": {"jetbrains": {"plugins": []},'),
    "build options": (MAIN, '"args": {', '"target": "dependencies", "cacheFrom": ["a/b"], "options": ["--pull"], "args": {'),
    "flags as two strings": (MAIN, '"--ipc=host"', '"--ipc", "host"'),
    "flags": (MAIN, *flag("--cpus=4", "-l", "A=1", "-it", "--pids-limit", "-1", "--memory=8g", "--cap-drop=ALL", "--tty")),
    "flags for the network": (MAIN, *flag("-p", "127.0.0.1:9002:9002", "-p=[::1]:80:80/tcp", "--add-host=a:1.2.3.4")),
    "without Compose: flags for devices": (MAIN, *flag("--device", "/dev/fuse", "--device=/dev/a:/dev/b:rw", "--ulimit", "nofile=1024:2048")),
    "without Compose: a variable": (MAIN, *flag("-e", "TOKENIZERS_PARALLELISM=false", "--env=SSH_KEY_FILE=/workspace/x", "-eHF_HUB_OFFLINE")),
    "without Compose: mounts": (MAIN, *listed("mounts", "type=tmpfs,target=/scratch,tmpfs-size=1g", "type=volume,source=a,target=/a")),
    "without Compose: other variables": (MAIN, *listed("mounts", "type=volume,source=a-${devcontainerId},target=${containerWorkspaceFolder}/a")),
    "another env file": (MAIN, *flag("--env-file", "${localEnv:HOME}/.demo.env")),
    "rare flags": (MAIN, *flag("--group-add=video", "--sysctl", "net.core.somaxconn=9", "--blkio-weight=500", "--cap-add=IPC_LOCK")),
    "a volume": (MAIN, *flag("--tmpfs=/scratch:size=1g", "--health-cmd=true", "--health-interval=30s", "--restart=no")),
    "Podman's flags": (MAIN, *flag("--userns=keep-id:uid=1000,gid=1000", "--security-opt=label=disable", "--tz=local")),
    "initialize.sh and more": (MAIN, re.compile(r'"initializeCommand": (\[[^]]+\])'), r'"initializeCommand": {"a": \1, "b": "true"}'),
    "a here-document": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN <<END\necho 1\nEND\nworkdir /workspace"),
    "an entrypoint": ("Dockerfile", END, '\nENTRYPOINT ["/opt/nvidia/nvidia_entrypoint.sh"]\n'),
    "an entrypoint of the shell": ("Dockerfile", END, '\nENTRYPOINT ["sh", "-c", "date; exec \\"$@\\"", "--"]\n'),
    "no entrypoint": ("Dockerfile", END, "\nENTRYPOINT []\n"),
    "mounts of a build": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN --mount=target=/t --mount=type=ssh,required --mount=type=$K,target=/k echo type=x\nWORKDIR /workspace"),
    "more in initialize.sh": (INITIALIZE, END, "\nif false; then\nexit 1\nfi\nnvidia-smi || true\ngit config x y\nown-tool\ncat <<EOF >/dev/null\nHello\nEOF\nexit 0\n"),
    "more for Slurm": (SLURM, "\n#SBATCH --nodes", "\n##SBATCH --nods=1\n# SBATCH --x\n#SBATCH -p gpu\n#SBATCH --part=gpu\n#SBATCH --mem=\"64G\" --requeue --comment=\"a --b\" -w n1 # --x\n#SBATCH --tres-per-task=cpu:1\n#SBATCH --nodes"),
    "another shell": ("launch", "#!/bin/sh", "#! /usr/bin/env -S bash"),
    "variables of a service": (COMPOSE, "    init: true\n    command", "    init: true\n    labels: [\"a=$${HOME\", \"b=${A:-{x}}\", \"c=${B:-${C:-1}}\"]\n    command"),
    "flags of instructions": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN --security=sandbox [ -d /etc ] && true\nCOPY --link --chmod=755 stack.json $HOME/\n"
                              'HEALTHCHECK --start-interval=1s CMD ["true"]\nARG HTTPS_PROXY\nLABEL by=$USER via=$HTTP_PROXY\nCOPY <<END /note\n1\nEND\nWORKDIR /workspace'),
    "a mirror": ("Dockerfile", "BASE_IMAGE:-", "BASE_IMAGE:-harbor.example.org:5000/hub/"),
    "a port for the network": (MAIN, *flag("--publish=0.0.0.0:8888:8888")),
    "a service for the network": (COMPOSE, "127.0.0.1:${MLFLOW_PORT", "192.168.1.5:${MLFLOW_PORT"),
    "a digest": ("Dockerfile", re.compile(r"(BASE_IMAGE:-[^}]+)"), r"\1@sha256:" + "0a" * 32),
    "another stage": ("Dockerfile", "\nFROM system AS tools", "\nFROM busybox AS own\nFROM system AS tools\nCOPY --from=own /bin/sh /own"),
    "a system package": ("apt.txt", END, "ffmpeg # for video\nlibgl1:amd64 curl=8.* libstdc++6/trixie -t trixie-backports\n"),
    "a variable's name": (HOST_ENV, END, "\n# mine\nMY_TOKEN\nMY_MODE=fast\n"),
    "a dependency": (PYPROJECT, "dependencies = [", 'dependencies = [\n    "einops>=0.8; sys_platform == \'linux\'", "flash-attn @ https://a.b/c.whl",'),
    "another table": (PYPROJECT, "[tool.ruff]", '[dependency-groups]\ndocs = ["zensical"]\n\n[tool.mypy]\nstrict = true\n\n[tool.ruff]'),
    "a service": (COMPOSE, "\nservices:\n", "\nvolumes:\n  data:\nservices:\n  cache:\n    image: redis:8\n    profiles: [extra]\n    volumes: [data:/data]\n"
                  "    depends_on: [dev]\n    x-note: ours\n"),
    "a service with a GPU, and another port for its health": (COMPOSE, "\nservices:\n", "\nservices:\n  api:\n    image: a\n    ports: ['127.0.0.1:8080:8080']\n    healthcheck: {test: ': < /dev/tcp/127.0.0.1/9000'}\n"
                                                           "    deploy: {resources: {reservations: {devices: [{capabilities: [gpu], count: 1}]}}}\n"),
    "the dependencies as a folder": ("Dockerfile", "/layers/dependencies/first.txt ./", "/layers/dependencies/ ./"),
    "an option of the installation": ("Dockerfile", "uv pip install -r all.txt", "uv pip install --no-cache -r all.txt"),
    "a shell's test": ("Dockerfile", 'CMD ["bash"]', "CMD [ -t 0 ] && exec bash"),
    "Compose's extensions": (COMPOSE, "\nservices:\n", "\nx-common: &common\n  restart: always\nservices:\n"),
    "another workflow": (WORKFLOW, END, "\n  docs:\n    uses: a/b/.github/workflows/c.yml@v1\n    secrets: inherit\n"),
    "no workflow": (WORKFLOW,),
    "line ends of Windows": ("Dockerfile", re.compile(r"\n"), "\r\n"),
    "a healthcheck": (COMPOSE, "    init: true\n    command", "    init: true\n    healthcheck: {test: [CMD, 'true'], retries: 3}\n    command"),
    "how services start": (COMPOSE, "    restart: unless-stopped\n", "    restart: on-failure:3\n    shm_size: 1.5gb\n    stop_grace_period: 1m30s\n    depends_on: {dev: {condition: service_started, required: false}}\n"),
    "other triggers": (WORKFLOW, "pull_request:", "merge_group:\n  pull_request:"),
    "expressions": (WORKFLOW, END, "\n  more:\n    needs: [lint]\n    runs-on: ${{ fromJSON(vars.A || '[\"a\"]')[0] }}\n"
                    "    if: ${{ !cancelled() && (needs.lint.result == 'it''s' || github.event.inputs['a-b'] != '') }}\n"
                    "    steps:\n      - if: contains(github.event.pull_request.labels.*.name, 'odd (')\n        run: cat <<A\n"
                    "      - shell: python\n        run: print(\"it's\")\n"),
    "another shell for a job": (WORKFLOW, END, "\n  win:\n    runs-on: windows-2025\n    steps:\n      - run: if ($env:A) { $x = @{ a = 1 } }\n"),
    "another cron": (WORKFLOW, re.compile(r'cron: "[^"]+"'), 'cron: "*/30 0-6,22 * JAN-MAR MON-FRI"'),
    "more for Kubernetes": (KUBERNETES, END, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n"),
    "another claim": (KUBERNETES, re.compile(r"claimName: \S+"), "claimName: storage"),
    "another amount": (KUBERNETES, 'cpu: "4"', "cpu: 500m"),
    "profiles on one port": (COMPOSE, "\n  mlflow:", "".join(f"\n  {a}:\n    image: x\n    profiles: [{a}]\n    ports: ['127.0.0.1:9:9']" for a in "ab") + "\n  mlflow:"),
    "what a build reads": ("Dockerfile", "\nWORKDIR /workspace", '\nARG ARCHS=9.0\nENV TORCH_CUDA_ARCH_LIST=${ARCHS}\nCOPY ["apt.txt","/t/"]\nRUN --mount=type=bind,target=/src cp -r /opt/conf.d /t; pip install -r /src/all.txt; \\\n\\\n    # a comment\n    echo b\nWORKDIR /workspace'),
    "variables, and words of bash in a text": (INITIALIZE, "mkdir -p outputs", '. ./own.env\necho "the source of $NAME, set by own.env"\npython x || python3 x\n[ -z "${SCRATCH:-}" ] || mkdir -p "$SCRATCH"\nmkdir -p outputs'),
    "modules in comments": (WORKFLOW, END, "# python -m my_gpu_project.later\n"),
    "files that a command writes": (MAIN, *key('"postCreateCommand": "uv export -o all.txt && pip install -r all.txt"')),
    "files that only this machine has": (COMPOSE, "env_file: .devcontainer/host.env", "env_file: [.devcontainer/host.env, .env]"),
    "a machine in the network": (HOST_ENV, END, "\nHTTPS_PROXY=http://proxy:3128\n"),
    "imports that may fail, and modules that a build writes": (TRAIN, END, "\n\ntry:\n    import flash_attn\nexcept ImportError:\n    from .none import x\nfrom . import _version\nfrom .a_pb2 import A\nimport my_gpu_project.config\nfrom .model import *\nif False:\n    from .later import y\n"),
    "an image of one's own with another torch": ("Dockerfile", "\n# PyTorch. ", "\nFROM python:3.12 AS other\nRUN pip install torch==1.13\n\n# PyTorch. "),
    "other environments with another torch": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN /opt/a/bin/pip install torch==1.13 && uv pip install --python=/opt/a torch==1.13\nWORKDIR /workspace"),
    "another user beside the image's": ("Dockerfile", "\nWORKDIR /workspace", "\nRUN useradd builder\nWORKDIR /workspace"),
    "without Compose: a folder of this machine, and another PYTHONPATH": (MAIN, re.compile('("containerEnv": {)([^]]+"mounts": \\[)'), r'\1"PYTHONPATH": "/workspace/lib",\2"type=bind,source=${localWorkspaceFolder}/sets,target=/sets",'),
    "services in another file": (COMPOSE, "\nservices:\n", "\ninclude: [more.yaml]\nservices:\n  late:\n    image: a\n    depends_on: [db]\n"),
    "computed matrices, and outputs": (WORKFLOW, END, "\n  m:\n    needs: lint\n    runs-on: ubuntu-24.04\n    strategy:\n      matrix: ${{ fromJSON(needs.lint.outputs.m) }}\n    outputs: {a: '${{ steps.a.outputs.b }}'}\n    steps:\n      - id: a\n        run: echo ${{ matrix.x }} ${{ needs.lint.result == 'success' && !cancelled() }}\n"),
    "a matrix without a value": (WORKFLOW, "python-version: \"3.12\"", "python-version: ${{ matrix.python || '3.12' }}"),
    "names in texts, and in other values": (WORKFLOW, END, "\n  n:\n    runs-on: ubuntu-24.04\n    steps:\n      - run: grep ' \\ -b' ${{ fromJSON(vars.A)[0].steps.x }} ${{ format('{0} }} needs.a', hashFiles('**/x')) }}\n        env: {A: steps.txt, B: docs/matrix.md}\n"),
    "the label of every Job": (KUBERNETES, re.compile(r"  selector:\s+\S+: \S+\n"), "  selector: {job-name: a}\n"),
    "without Compose: sizes that have no effect": (MAIN, *flag("--shm-size=8gb")),
    "merged more than once": (COMPOSE, re.compile(r"\nservices:\n([\s\S]*)\Z"), r"\nx-a: &a {A: 1}\nservices:\n  own:\n    image: a\n    environment: &b\n      <<: *a\n      A: 2\n\1\nx-b:\n  <<: *b\n"),
    "a service with `gpus:`": (COMPOSE, "\nservices:\n", "\nservices:\n  all: {image: a, gpus: all}\n  one: {image: a, gpus: [{driver: nvidia, count: 1}]}\n"),
    "images by all their names": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: 'redis:8-Alpine'}\n  b: {image: 'Registry.local:5000/a/b@sha256:0A'}\n  c: {image: '${REGISTRY}/A'}\n  d: {build: 'https://github.com/a/b.git#main'}\n"),
    "signs that begin no comment": ("Dockerfile", END, '\nENV A="b # c" D=e#f\n'),
    "root's packages, and a longer PATH": ("Dockerfile", END, "\nENV PATH=/opt/tools/bin:$PATH\nUSER root\nRUN apt-get update\nRUN apt-get -y install ffmpeg\nUSER ${USER_UID}\n"),
    "a stage with a PATH of its own, a source of packages, and a text": ("Dockerfile", END, '\nUSER root\nRUN curl -fsSL https://a.org/setup | bash - && apt-get install -y nodejs\nRUN echo "apt-get install needs sudo"\nUSER ${USER_UID}\nRUN sudo -E apt-get install -y git\n'),
    "programs of a small stage": ("Dockerfile", re.compile(r"\n(?=FROM \S+ AS torch)"), "\nFROM busybox AS small\nENV PATH=/bin\n\n"),
    "scripts of the image, and files that may be missing": (MAIN, *key('"postStartCommand": {"a": "bash /usr/local/bin/start.sh", "b": "sh scripts/own.sh || true"}')),
    "files that an earlier command writes": (MAIN, *key('"onCreateCommand": "uv export -o all.txt", "updateContentCommand": "pip install -r all.txt"')),
    "folders of other machines": (COMPOSE, "\nservices:\n", "\nservices:\n  near: {build: ../serve}\n  there: {build: /srv/serve}\n"),
    "a log on the cluster": (SLURM, "--output=cluster/", "--output=/shared/logs/"),
    "tasks that srun starts": (SLURM, re.compile(r"--ntasks-per-node=1([\s\S]*)\nsrun "), r"--ntasks-per-node=8\1\nsrun --ntasks-per-node=1 "),
    "pods that do not wait for one another": (KUBERNETES, re.compile(r"completions: \d+([\s\S]*)gpukit.script.torchrun"), r"completions: 8\1my_gpu_project.data"),
    "versions in quotes": (WORKFLOW, 'python-version: "3.12"', "python-version: '3.10'  # 3.10"),
    "what steps of workflows write": (WORKFLOW, END, "\n  s:\n    runs-on: ubuntu-latest\n    steps:\n      - run: |\n          python - <<END > tests/made.py\n          a = 1\n          END\n          python tests/made.py && export A=1 B=\"x y\"\n          mkdir -p out\n"
                                      "      - {run: ls, working-directory: out}\n      - run: docker run --rm image python tools/a.py\n"),
    "arguments, mounts, and programs": ("Dockerfile", END, "\nUSER root\nARG LIST\nRUN --mount=type=secret,id=a,required --mount=type=bind,source=src,target=/s,ro for x in $LIST; do echo $x; done\nEXPOSE 6006 7000-7010/udp\n"
                                        "ADD https://example.org/Miniconda3.sh /tmp/\nRUN sh /tmp/Miniconda3.sh -b && conda install -y a\nRUN useradd other\nUSER ${USER_UID}\n"),
    "a service of another user": (COMPOSE, "\nservices:\n", "\nservices:\n  a:\n    image: a\n    user: '1000:${GID:-1000}'\n    environment: {FORM: '{A_B}'}\n    build: {dockerfile_inline: \"ARG V=1\\nFROM a:$V\\nARG V\\nRUN echo $$V $$HOME\\n\"}\n"),
    "marks that pytest and plugins have": (PYPROJECT, '"pytest>=8.4,<10"', '"pytest>=8.4,<10; python_version >= \'3.9\'", "pytest-asyncio"'),
    "runners of one's own": (WORKFLOW, "runs-on: ubuntu-24.04", "runs-on: ubuntu-24.04-16core"),
    "labels of one's own": (WORKFLOW, re.compile(r"runs-on: ubuntu\S+"), "runs-on: [self-hosted, ubuntu-20.04]"),
    "the build of a release": (PYPROJECT, "    # your own packages\n", '    "einops==0.8+own",\n    "einops==0.8",\n'),
    "extras that exclude each other": (PYPROJECT, "[project.optional-dependencies]\n", '[project.optional-dependencies]\nold = ["einops==0.7"]\nnew = ["einops==0.8"]\n'),
    "another package with the name of a module": (TRAIN, "from .config import", "from data import everything\nfrom .config import"),
    "a module beside a script that adds its folder": (TRAIN, "from .config import", "import sys\n\nsys.path.insert(0, 'here')\nfrom config import"),
    "a server of several ports": (COMPOSE, "\nservices:\n", "\nservices:\n  ray: {image: ray, command: ray start --head --port=6379, ports: ['127.0.0.1:8265:8265'], healthcheck: {test: 'curl localhost:8265'}}\n"),
    "servers that listen everywhere": (COMPOSE, "\nservices:\n", "\nservices:\n  a: {image: a, command: fastapi run, ports: ['127.0.0.1:8:8000']}\n"
                                       "  b: {image: a, command: mlflow server -h 0.0.0.0, ports: ['127.0.0.1:9:5000']}\n"
                                       "  c: {image: jupyter/base-notebook, command: jupyter lab, ports: ['127.0.0.1:8888:8888']}\n"
                                       "  d: {image: a, command: aim up --repo /tensorboard, ports: ['127.0.0.1:7:${AIM_PORT:?set it}']}\n"),
    "a page of a check": (COMPOSE, "127.0.0.1/5000", "127.0.0.1/5000; curl http://localhost/2/ready"),
    "the address of a link": (HOST_ENV, END, "\nPUBLIC_URL=http://localhost:5000\n"),
    "without Compose: a path of the host for a program": (MAIN, '"containerEnv": {', '"containerEnv": {"HOST_CACHE": "${localEnv:HOME}/cache",'),
    "a torchvision that fits": (PYPROJECT, "    # your own packages\n", '    "torchvision>=0.20",\n    "numpy==2.3.1",\n'),
    "a GPU in both": (KUBERNETES, "memory: 16Gi\n", "memory: 16Gi\n              nvidia.com/gpu: 1\n"),
    "ulimits in full": (COMPOSE, "stack: 67108864", "stack: {soft: 67108864, hard: 67108864}"),
}  # fmt: skip


@pytest.fixture(scope="module")
def projects(generate: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    copies = tmp_path_factory.mktemp("edited")
    return [shutil.copytree(generate(**answers), copies / name) for name, answers in PROJECTS.items()]


@contextmanager
def edited(project: Path, file: str, *replacement: object) -> Iterator[bool]:
    """The project with an edit, undone afterwards; whether the edit applies to it."""
    path = project / file
    if not path.is_file():
        yield False
        return
    before = path.read_bytes()
    mode = path.stat().st_mode
    try:
        if not replacement:
            path.unlink()
            yield True
            return
        old, new = replacement
        pattern = old if isinstance(old, re.Pattern) else re.compile(re.escape(str(old)))
        changed = pattern.sub(str(new) if isinstance(old, re.Pattern) else lambda _: str(new), before.decode(), count=1)
        path.write_text(changed, encoding="utf-8")
        yield changed.encode() != before
    finally:
        path.write_bytes(before)
        path.chmod(mode)


def results(projects: list[Path], edit: tuple, most: int = 2) -> list[list[str]]:
    """The problems of each project to which the edit applies, or of as many."""
    found: list[list[str]] = []
    for project in projects:
        if len(found) == most:
            break
        with edited(project, *edit) as applies:
            if applies:
                validation = Validation(project)
                found.append([str(problem) for problem in validation.problems()])
                assert not validation.skipped
    assert found, "the edit applies to no project"
    return found


@pytest.mark.parametrize("says", BROKEN)
def test_each_edit_that_breaks_a_project_is_one_problem(projects: list[Path], says: str) -> None:
    for problems in results(projects, BROKEN[says], most=1):
        assert len(problems) == 1, "\n".join(problems)
        assert re.split(r"(?<=.), (?:in|as|named|exported)\b| instead$", says)[0] in problems[0]
        assert "; " in problems[0], "it has a remedy"


def test_legal_edits_are_accepted(projects: list[Path]) -> None:
    """All that fit together at once; if anything is reported, each alone, as two may contradict each other."""
    accepted: set[str] = set()
    for project in projects:
        with_compose = (project / COMPOSE).exists()
        left = {name: edit for name, edit in LEGAL.items() if not (with_compose and name.startswith("without Compose"))}
        while left:
            with ExitStack() as edits:
                applied = [name for name, edit in left.items() if edits.enter_context(edited(project, *edit))]
                problems = Validation(project).problems()
            for name in applied if problems else ():
                assert results([project], left[name]) == [[]], name
            accepted |= {*applied}
            left = {name: edit for name, edit in left.items() if applied and name not in applied}
    assert accepted == {*LEGAL}


@pytest.mark.parametrize(
    ("line", "own"),
    {
        '"--shm-size=16gb"': '"--shm-size=16g",',
        "storage: 100Gi": "storage: 100Ti",
        "accelerators: {RTX4090: 1, H100: 1, H200: 1}": "accelerators: {RTX4090: 1, A100: 1, H200: 1}",
        "set -euo pipefail": "set -euxo pipefail",
        'version = "0.1.0"': 'version = "0.1.0a"',
        'CMD ["bash"]': 'CMD ["dash"]',
    }.items(),
)
def test_a_word_that_may_be_meant_is_no_mistake(line: str, own: str) -> None:
    assert line in written.lines(), "the template has another line now"
    assert written.mistyped(own) is None


@pytest.mark.parametrize(
    ("says", "edit"),
    {
        "`num_nodes`": ("num_nodes: 1", "num_node: 1"),
        "/resources/accelerators/H100": ("H100: 1", "H100: eight"),
        "/envs/BUCKET": (re.compile("BUCKET: .*"), "BUCKET: My-Bucket"),
        "BUCKT is not declared": ("name: ${BUCKET}", "name: ${BUCKT}"),
        "/run: bash cannot read it": ("./launch --native run -- torchrun", "./launch --native run -- 'torchrun"),
        "": ("disk_size: 256", "disk_size: 512\n  infra: aws/us-east-1"),
    }.items(),
    ids=str,
)
def test_edits_of_a_project_for_skypilot(generate: Callable[..., Path], says: str, edit: tuple) -> None:
    project = generate(hardware="h100", cluster=["skypilot"], workflow="scripts")
    (problems,) = results([project], (SKYPILOT, *edit))
    assert len(problems) == bool(says) and all(says in problem for problem in problems)


@pytest.mark.parametrize(
    ("expression", "says"),
    {
        "sum(increase(a[5m]) > 0": "`(` has no other half",
        "a{b='c} > 0": "`{` has no other half",
        'a{b=~"c\\\\(|\\"]"} # (': "",
        "a{b=~`c\\[(`}": "",
    }.items(),
)
def test_brackets_of_expressions(expression: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) if says else nullcontext():
        formats.brackets(expression)


@pytest.mark.parametrize(("declared", "found"), [("faiss-gpu-cu12", 0), ("faiss-cpu>=1", 0), ("einops", 1)])
def test_a_module_may_come_from_several_packages(tmp_path: Path, declared: str, found: int) -> None:
    code = "import faiss\nimport google.protobuf\n"
    (tmp_path / "search.py").write_text(code)
    content = {"project": {"name": "p", "dependencies": [declared]}}
    assert len([*source.undeclared(tmp_path, content, {"search.py": ast.parse(code)})]) == found


@pytest.mark.parametrize(("name", "found"), [("test_it.py", 1), ("data/sample.py", 0)])
def test_data_of_tests_need_not_be_readable(tmp_path: Path, name: str, found: int) -> None:
    path = tmp_path / "tests" / name
    path.parent.mkdir(parents=True)
    path.write_text("x = (\n")
    stack = {"package": "p", "python": "3.12"}
    assert len([*source.imports(tmp_path, stack, source.scripts(tmp_path, stack))]) == found


def test_services_with_the_image_of_dev_have_it_without_a_gpu_too() -> None:
    project = ROOT / "examples/service-rtx-30"
    base = compose.parse((project / COMPOSE).read_text(encoding="utf-8"))
    over = compose.parse((project / COMPOSE_CPU).read_text(encoding="utf-8"))

    def places() -> list[str]:
        return [problem.place for problem in compose.without_gpu(compose.merged(base, over), base)]

    assert places() == []
    over["services"]["jobs"]["build"]["args"]["TORCH_BACKEND"] = "cu130"
    assert places() == ["/services/jobs/build/args"]
    del over["services"]["jobs"]["deploy"]
    assert places() == ["/services/jobs/deploy"]
    base["services"]["jobs"]["profiles"] = ["own"]
    assert places() == [], "it starts only if asked for"


def test_what_a_service_with_a_gpu_needs_is_said(projects: list[Path]) -> None:
    """`gpus:` a Compose that knows it, and any request a GPU."""
    for request, named in (("gpus: all", ["2.30", "gpus: !reset"]), ("profiles: [a], gpus: all", ["2.30"]), ("", [])):
        with edited(projects[0], COMPOSE, "\nservices:\n", f"\nservices:\n  serve: {{image: a, {request}}}\n"):
            validation = Validation(projects[0])
            assert validation.problems() == []
            assert len(validation.notices) == len(named)
            assert all(word in notice for word, notice in zip(named, validation.notices))


def test_lines_of_the_users_settings_that_are_ignored(projects: list[Path]) -> None:
    settings = projects[0] / ".env"
    for text, found in (
        ('# a\n\nexport A=b # c\nB = "d e"\nHF_TOKEN\nGPUS="0,1" # both\n', []),
        ("A=b\nGPUS: 0\nC: 1\n", [("line 2", ".env")]),
        ("GPUS=cuda:0\n", [("GPUS", ".env")]),
    ):
        settings.write_text(text, encoding="utf-8")
        assert [(problem.place, problem.file) for problem in Validation(projects[0]).problems()] == found
    settings.unlink()


def test_imports_from_the_wheel(projects: list[Path], tmp_path: Path) -> None:
    project = shutil.copytree(projects[0], tmp_path / "project")
    assert vendor.put(writer.for_project(ROOT / "gpukit"), project) and Validation(project).problems() == []
    for old, new, says in (
        ("import parse\n", "import pars\n", "gpukit.script.settings has no pars; did you mean `parse`?"),
        ("gpukit.script.start ", "gpukit.script.stat ", "no module gpukit.script.stat; did you mean `start`?"),
        ("exactrun import Run,", "exactrun import Runs,", "exactrun has no Runs; did you mean `Run`?"),
    ):
        with edited(project, TRAIN, old, new):
            (problem,) = Validation(project).problems()
        assert says in str(problem)
    with edited(project, TRAIN, START, "import einops\nimport PIL\n"):
        validation = Validation(project)
        assert validation.problems() == []
    assert [line.split()[-1].strip("`.") for line in validation.notices] == ["einops", "pillow"]


def test_limits_may_exceed_the_policy(projects: list[Path]) -> None:
    with (
        edited(projects[1], MAIN, "stack=67108864", "stack=134217728"),
        edited(projects[1], CPU, "stack=67108864", "stack=134217728"),
    ):
        assert Validation(projects[1]).problems() == []
    with edited(projects[1], MAIN, "stack=67108864", "stack=8388608"):
        assert "--ulimit stack" in str(Validation(projects[1]).problems())


def test_a_renamed_package_is_one_problem(projects: list[Path]) -> None:
    """Whoever starts its programs."""
    folder = projects[0] / "src/my_gpu_project"
    other = folder.rename(folder.with_name("finetune"))
    copied = "\nCOPY src/my_gpu_project/model.py ./\nWORKDIR /workspace"
    try:
        with edited(projects[0], "Dockerfile", "\nWORKDIR /workspace", copied):
            assert len(Validation(projects[0]).problems()) == 1
        (problem,) = Validation(projects[0]).problems()
        assert "package_name=finetune" in problem.remedy and WORKFLOW in problem.what
    finally:
        other.rename(folder)


def test_each_file_that_no_program_can_read_is_one_problem(projects: list[Path]) -> None:
    """A file that cannot be read is not compared with others."""
    for name in files.generated(projects[0]):
        with edited(projects[0], name, START, "<<<<<<< mine\n") as applies:
            problems = Validation(projects[0]).problems() if applies else []
        assert [problem.file for problem in problems] == [name] * applies


@pytest.mark.parametrize(
    ("change", "says"),
    {
        b"<<<<<<< mine\n": "has a merge conflict",
        b"\xff\xfe": "is not UTF-8",
        b"# caf\xe9\n": "is not UTF-8",
        b"# hf_0123456789abcdefghijklmnop\n": "looks like a secret token",
        b"\xef\xbb\xbf": "byte order mark",
        b"\r\n": "the line ends of Windows",
    }.items(),
    ids=str,
)
def test_why_no_program_can_read_a_file(projects: list[Path], tmp_path: Path, change: bytes, says: str) -> None:
    names = {"byte order mark": files.NO_MARK, "the line ends of Windows": files.UNIX}
    project = shutil.copytree(projects[0], tmp_path / "project")
    changed = [name for name in names.get(says, files.generated(project)) if (project / name).is_file()]
    for name in changed:
        (project / name).write_bytes(change + (project / name).read_bytes())
    problems = Validation(project).problems()
    assert sorted(problem.file for problem in problems) == sorted(changed)
    assert all(says in str(problem) for problem in problems)


def test_what_git_ignores_is_missing_in_a_clone(projects: list[Path]) -> None:
    """Each rule that is to blame is one problem; those of the user count too. Without a repository, nothing is known."""
    project = projects[0]
    added = "*.env\n/stack.*\n/.devcontainer/cpu/\n/.vscode/\n"  # the last by choice: no start needs it
    with edited(project, ".gitignore", END, added):
        assert Validation(project).problems() == []
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        try:
            found = Validation(project).problems()
            lines = [line for problem in found for line in re.findall("`(.+?)`", problem.remedy)]
            with edited(project, ".gitignore", END, "\n".join(lines)):
                assert Validation(project).problems() == []
        finally:
            shutil.rmtree(project / ".git")
    by_rule = {problem.what.split("`")[1]: problem.what for problem in found}
    assert {*by_rule} == {"*.env", "/stack.*", "/.devcontainer/cpu/"}
    assert {problem.file for problem in found} == {".gitignore"}
    assert HOST_ENV in by_rule["*.env"] and STACK not in by_rule["*.env"] and STACK in by_rule["/stack.*"]


def test_a_project_in_a_repository_that_ignores_it(projects: list[Path], tmp_path: Path) -> None:
    """As in a home directory whose settings are in git."""
    project = shutil.copytree(projects[0], tmp_path / "project")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("*\n", encoding="utf-8")
    assert Validation(project).problems() == []


def test_git_keeps_the_line_ends_of_what_no_program_reads_otherwise(projects: list[Path]) -> None:
    asked = ["git", "-c", "core.autocrlf=true", "check-attr", "eol", *files.UNIX]
    subprocess.run(["git", "init", "-q"], cwd=projects[0], check=True)
    try:
        answers = subprocess.run(asked, cwd=projects[0], capture_output=True, text=True, check=True).stdout
        assert answers.splitlines() == [f"{name}: eol: lf" for name in files.UNIX]
    finally:
        shutil.rmtree(projects[0] / ".git")


def test_several_causes_are_several_problems(projects: list[Path]) -> None:
    lines = (projects[0] / "Dockerfile").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "BASE_IMAGE:-" in text)
    with (
        edited(projects[0], MAIN, '"init": true,', '"privileged": true,'),
        edited(projects[0], CPU, "--ipc=host", "--ipc=hots"),
        edited(projects[0], "Dockerfile", "BASE_IMAGE:-", "BASE_IMAGE:-mine-"),
    ):
        problems = Validation(projects[0]).problems()
    assert sorted((problem.file, problem.place) for problem in problems) == [
        (CPU, "/runArgs"),
        (MAIN, "/init"),
        (MAIN, "/privileged"),
        ("Dockerfile", f"line {line}"),
    ]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"hardware": "rtx-30", "shared_machine": True, "tracking": ["tensorboard"], "workflow": "scripts"},
        {"hardware": "jetson-orin", "tracking": ["mlflow"]},
        {"hardware": "gb300", "services": ["jobs", "predict"], "use_case": "vision"},
        {"hardware": "cpu", "tracking": ["mlflow"]},
        {"hardware": "rtx-40", "also_on": ["h100"], "advanced": True, "base": "cuda"},
        {"project_name": 'He said "$(hi)" \\ 😀', "data_dir": "~/my data's #1", "tracking": ["mlflow"]},
    ],
    ids=lambda answers: "-".join(map(str, answers.values()))[:40] or "defaults",
)
def test_generated_projects_are_valid(generate: Callable[..., Path], answers: dict) -> None:
    validation = Validation(generate(**answers))
    assert validation.problems() == []
    assert validation.skipped == [] and not [line for line in validation.notices if ANSWERS not in line]


def test_a_request_for_a_gpu_must_fit_the_machine(generate: Callable[..., Path], tmp_path: Path) -> None:
    for hardware, before, after, says in (
        ("cpu", *flag("--gpus=all"), "names none"),
        ("gb300", "${localEnv:GPUS:0}", "${localEnv:GPUS:all}", "which gb300 does not allow"),
        ("jetson-orin", re.compile(r'"NVIDIA_VISIBLE_DEVICES": "[^"]+"'), '"OTHER": ""', "NVIDIA_VISIBLE_DEVICES"),
    ):
        project = shutil.copytree(generate(hardware=hardware), tmp_path / hardware)
        ((problem,),) = results([project], (MAIN, before, after))
        assert says in problem


@pytest.mark.parametrize("hardware", ["rtx-50", "jetson-orin", "cpu"])
def test_podmans_configuration_follows_the_main_one(
    generate: Callable[..., Path], tmp_path: Path, hardware: str
) -> None:
    project = Path(shutil.copytree(generate(hardware=hardware, podman=True, tracking=["wandb"]), tmp_path / "project"))
    assert Validation(project).problems() == []
    for name, old, new in (
        (PODMAN, "--userns=keep-id:uid=1000,gid=1000", "--userns=keep-id"),
        (PODMAN, '"updateRemoteUserUID": false', '"updateRemoteUserUID": true'),
        (PODMAN, '"WANDB_DIR": "/workspace/outputs"', '"WANDB_DIR": "/tmp"'),
        (MAIN, '"mounts": [', '"mounts": ["type=tmpfs,target=/scratch",'),
        (MAIN, '"runArgs": [', '"runArgs": ["--ulimit=nofile=9999",'),
    ):
        with edited(project, name, old, new) as applies:
            assert applies
            (problem,) = Validation(project).problems()
            assert problem.file == PODMAN


def test_no_value_of_a_secret_is_repeated(projects: list[Path]) -> None:
    value = "hf_" + "a1B2" * 8
    for edit in (flag("-e", f"HF_TOKEN={value}"), key(f'"remoteEnv": {{"DB_PASSWORD": "{value}"}}')):
        for problems in results(projects, (MAIN, *edit)):
            assert problems and not any(value in problem for problem in problems)


# The lists of keys and options, against their sources.


def objects(schema: dict, whole: dict) -> Iterator[dict]:
    """The variants of an object in a JSON schema."""
    if "$ref" in schema:
        yield from objects(whole["definitions"][schema["$ref"].rpartition("/")[2]], whole)
    for kind in ("allOf", "anyOf", "oneOf"):
        for each in schema.get(kind, []):
            yield from objects(each, whole)
    yield schema


def keys_in(whole: dict, pattern: str) -> set[str]:
    """The keys that a JSON schema allows at a pattern of places."""
    found = [whole]
    for step in pattern.split("/")[1:]:
        inner = []
        for each in [variant for schema in found for variant in objects(schema, whole)]:
            if step == "*":
                inner += [each[kind] for kind in ("items", "additionalProperties") if isinstance(each.get(kind), dict)]
                inner += each.get("patternProperties", {}).values()
            elif step in each.get("properties", {}):
                inner.append(each["properties"][step])
        found = inner
    return {name for schema in found for each in objects(schema, whole) for name in each.get("properties", {})}


def reference(name: str) -> dict:
    path = REFERENCE / name
    if not path.is_file():
        pytest.skip(f"the official schema {name} is not on this machine")
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_keys_of_devcontainer_json() -> None:
    schema = reference("devContainer.base.schema.json")
    old = {"dockerFile", "context"}  # refused, because launch does not read them
    for pattern, names in specification.DEVCONTAINER.items():
        if not pattern.startswith("/customizations"):
            given = keys_in(schema, pattern) - {"additionalProperties"}  # a slip of the schema
            assert set(names.split()) == given - (old if not pattern else set()), pattern
    own = json.loads((ROOT / "gpukit/src/gpukit/validate/schemas/devcontainer.schema.json").read_text(encoding="utf-8"))
    assert set(own["properties"]) <= set(specification.DEVCONTAINER[""].split())


def test_the_keys_of_compose() -> None:
    schema = reference("compose-spec.json")
    for pattern, names in specification.COMPOSE.items():
        assert set(names.split()) == keys_in(schema, pattern), pattern


def test_the_options_of_docker_run() -> None:
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    building = subprocess.run(["docker", "build", "--help"], capture_output=True, text=True, check=True).stdout
    both = {*re.findall(r"--([a-z-]+)", building)} & {*" ".join(specification.KINDS.values()).split()}
    assert both <= {*specification.BUILD_TOO.split()}
    listed = subprocess.run(["docker", "run", "--help"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^ +(?:(-\w), )?(--[a-z0-9-]+)(?: ([a-z0-9-]+))? {2,}", listed, re.MULTILINE)
    assert {name: kind for _, name, kind in rows}.items() <= flags.KIND.items()
    assert {short: name for short, name, _ in rows if short} == {
        short: name for short, name in specification.LONG.items() if not short.startswith("--")
    }


def test_the_schemas_are_valid() -> None:
    for path in (ROOT / "gpukit").rglob("*.schema.json"):
        Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--ipc=host", "--ipc", "host"], [("--ipc", "host")] * 2),
        (["-eA=1", "-e", "B"], [("--env", "A=1"), ("--env", "B")]),
        (["--init", "-v", "/a:/b:ro"], [("--init", "true"), ("--volume", "/a:/b:ro")]),
        (["--net=x", "-p=1:1"], [("--network", "x"), ("--publish", "1:1")]),
        (
            ["-itu", "dev", "--rm=false"],
            [("--interactive", "true"), ("--tty", "true"), ("--user", "dev"), ("--rm", "false")],
        ),
    ],
)
def test_options_are_read_in_every_notation(arguments: list[str], options: list) -> None:
    assert list(flags.options(arguments)) == options
    assert list(flags.mistakes(arguments)) == []


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("all", "all"),
        ("2", "2 of them"),
        ("count=all", "all"),
        ("device=0", "0"),
        ('"device=0,1"', "0,1"),
        ('"device=GPU-1,MIG-2",capabilities=utility', "GPU-1,MIG-2"),
        ("device=", ""),
    ],
)
def test_gpus_flag(text: str, meaning: str) -> None:
    assert flags.gpus(text) == meaning
    assert values.wrong("--gpus", text) == ""


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("${A}", "1"),
        ("$A", "1"),
        ("${B:-x}", "x"),
        ("${E:-x}", "x"),
        ("${E-x}", ""),
        ("${A:+y}", "y"),
        ("${B:+y}", ""),
        ("${B:-${C:-${A}}}", "1"),
        ("${B:?say B}", ""),
        ("$$A", "$A"),
        ("a$", "a$"),
    ],
)
def test_compose_variables(text: str, meaning: str) -> None:
    assert compose.interpolated({"x": [text]}, {"A": "1", "E": ""}) == {"x": [meaning]}


# The command, and the check before a start.


def test_the_command_and_the_hook_say_the_same(projects: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    """The command runs from the wheel with a Python that has no packages, which uv provides."""
    project = projects[0]
    wheel = vendor.put(writer.for_project(ROOT / "gpukit"), project)
    kept = re.compile(r"PATH|HOME|SSL_CERT_FILE|UV_.*|\w+_proxy", re.IGNORECASE)  # what uv needs to reach its index
    environment = {name: value for name, value in os.environ.items() if kept.fullmatch(name)}
    environment["GPUKIT_PROJECT"] = str(project)
    code = f"import sys; sys.path.insert(0, {str(wheel)!r}); from gpukit.cli.main import main; sys.exit(main(['validate']))"
    command = [sys.executable, "-I", "-S", "-c", code]
    try:
        for edit, status in ((("README.md", START, "\n"), 0), ((MAIN, "--ipc=host", "--ipc=hots"), 1)):
            with edited(project, *edit):
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                run(project)
            own = capfd.readouterr()
            if "not checked" in done.stdout:
                pytest.skip("uv cannot provide jsonschema here")
            said = re.sub(r"validate: fetching .*\n", "", done.stderr)  # after two seconds
            assert (done.stdout, said, done.returncode) == (own.out, own.err, status)
        environment["PATH"] = "/nowhere"
        done = subprocess.run(command, env={**environment, "HOME": "/nowhere"}, capture_output=True, text=True)
        assert done.returncode == 2
        assert "not checked: the schemas" in done.stdout and "uv is not installed" in done.stderr
    finally:
        shutil.rmtree(project / "vendor")


def test_a_missing_or_damaged_wheel_is_named(projects: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    folder = projects[1] / "vendor"
    assert [problem.file for problem in Validation(projects[1], wheel=True).problems()] == ["vendor/"]
    folder.mkdir()
    try:
        for name in ("gpukit-1.0-py3-none-any.whl", "gpukit-2.0-py3-none-any.whl"):
            (folder / name).write_bytes(b"PK")
            assert len(Validation(projects[1], wheel=True).problems()) == 1
        assert run(projects[1], wheel=False) == PASSED, "the hook reports this itself"
    finally:
        shutil.rmtree(folder)


def test_who_reads_the_status_gets_no_line_that_all_is_well(
    projects: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(projects[1], wheel=False, brief=True) == PASSED
    assert capfd.readouterr() == ("", "")
    with edited(projects[1], MAIN, "--ipc=host", "--ipc=hots"):
        assert run(projects[1], wheel=False, brief=True) == FAILED
    assert "hots" in capfd.readouterr().err


def test_a_start_is_refused_and_what_resembles_nothing_is_listed(projects: list[Path]) -> None:
    project = projects[1]
    with edited(project, MAIN, *key('"codespaces": {}, "hostRequirements": {"speed": 1}')):
        accepted = Project(project, HOST)
        accepted.refuse_mistakes()
        assert list(accepted.config.unknown) == [("", "codespaces"), ("/hostRequirements", "speed")]
        validation = Validation(project)
        assert validation.problems() == [] and len(validation.notices) == 2
    for edit in (spelled("runArgs", "runArg"), ("--ulimit=memlock", "--ulimt=memlock"), key('"gpus": "all"')):
        with edited(project, MAIN, *edit):
            refused = Project(project, HOST)
            with pytest.raises(RefusalError, match=r"ulimit|runArgs"):
                refused.refuse_mistakes()


def test_the_check_before_a_start_takes_milliseconds(projects: list[Path]) -> None:
    project = Project(projects[0], HOST)
    begin = time.process_time()
    for _ in range(20):
        project.refuse_mistakes()
    assert time.process_time() - begin < 20 * 0.005
