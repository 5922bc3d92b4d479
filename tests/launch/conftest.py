"""A small project for launch: gpukit's wheel, a configuration as it renders, and a tiny Dockerfile."""

from __future__ import annotations

import atexit
import compileall
import functools
import json
import py_compile
import shutil
import tempfile
import zipfile
from pathlib import Path

import pytest

from gpukit.wheel import writer

TEMPLATE = Path(__file__).resolve().parents[2] / "template"

DOCKERFILE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE:-standin/python:slim}
RUN pip install --quiet --break-system-packages uv==0.9.5 six==1.16.0 packaging==24.0 && mkdir /etc/gpukit \\
    && echo packaging==24.0 six==1.16.0 | tr ' ' '\\n' > /etc/gpukit/protected.txt
ENV JUPYTER_TOKEN_FILE=/workspace/.launch/jupyter-token
ENV UV_SYSTEM_PYTHON=1 UV_BREAK_SYSTEM_PACKAGES=1 UV_CONSTRAINT=/etc/gpukit/protected.txt
COPY --chmod=755 jupyter /usr/local/bin/jupyter
WORKDIR /etc/gpukit
COPY pyproject.toml requirements.tx[t] ./
RUN uv pip install --no-cache $(ls requirements.txt 2> /dev/null | sed 's/^/-r /') -r pyproject.toml --extra dev
RUN chmod 1777 /usr/local/lib/python3*/dist-packages /usr/local/bin
ARG USER_UID=1000
ARG USER_GID=1000
RUN groupadd -o -g "$USER_GID" dev && useradd -o -m -u "$USER_UID" -g dev dev \\
    && mkdir -p /home/dev/.cache/huggingface /workspace && chown -R dev:dev /home/dev /workspace
USER ${USER_UID}
WORKDIR /workspace
CMD ["bash"]
"""
PYPROJECT = """\
[project]
name = "small"  # [project] in a comment
version = "0.1.0"
dependencies = [
    "idna>=3.0,<3.11",  # why we need it: "quoted" [brackets]
]

[project.optional-dependencies]
dev = ["iniconfig"]
"""
JUPYTER = """\
# Answers where JupyterLab answers, when it is given its token by file.
import http.server, os, sys
token = open(os.environ["JUPYTER_TOKEN_FILE"]).read()  # as Jupyter reads it: every byte
assert token == token.strip() != "" and sys.argv[1] == "lab", sys.argv
options = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api" else 404)
        self.end_headers()

http.server.HTTPServer((options["--ip"], int(options["--port"])), Handler).serve_forever()
"""
STACK = {"project": "small", "package": "small", "protected": ["six", "packaging", "torch", "nvidia-*"]}
CONFIG = {
    "name": "Small",
    "build": {"dockerfile": "../Dockerfile", "context": "..", "args": {"BASE_IMAGE": "${localEnv:BASE_IMAGE}"}},
    "runArgs": [
        '--gpus="device=${localEnv:GPUS:all}"',
        "--ipc=host",
        "--ulimit=stack=67108864",
        "--env=HF_TOKEN",
    ],
    "init": True,
    "containerEnv": {"WANDB_DIR": "/workspace/outputs"},
    "workspaceMount": "type=bind,source=${localWorkspaceFolder},target=/workspace",
    "workspaceFolder": "/workspace",
    "mounts": [
        "type=bind,source=${localWorkspaceFolder}/.launch/huggingface,target=/home/dev/.cache/huggingface",
    ],
    "containerUser": "dev",
    "initializeCommand": ["sh", "-c", "mkdir -p .launch/huggingface outputs"],
}


def write_project(root: Path, wheel: Path | None = None) -> Path:
    cpu = json.loads(json.dumps(CONFIG).replace('"../Dockerfile"', '"../../Dockerfile"').replace('".."', '"../.."'))
    cpu["runArgs"] = cpu["runArgs"][1:]
    cpu["containerEnv"]["GPUKIT_DEVICE"] = "cpu"
    files = {
        "Dockerfile": DOCKERFILE,
        "jupyter": f"#!/usr/bin/env python3\n{JUPYTER}",
        "notebooks/quickstart.ipynb": "{}",
        "pyproject.toml": PYPROJECT,
        ".devcontainer/devcontainer.json": json.dumps(CONFIG, indent=2),
        ".devcontainer/cpu/devcontainer.json": json.dumps(cpu, indent=2),
        "stack.json": json.dumps(STACK),
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    shutil.copy2(TEMPLATE / "launch", root / "launch")
    (root / "vendor").mkdir(exist_ok=True)
    shutil.copy2(wheel or compiled(), root / "vendor")
    return root


@functools.cache
def wheel() -> Path:
    """This tree's wheel, written once."""
    folder = Path(tempfile.mkdtemp(prefix="gpukit-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return writer.write(writer.running(), folder)


@functools.cache
def compiled() -> Path:
    """The same with its modules compiled, which takes most of the time of a start: tests start it hundreds of times.

    A Python of another version compiles the source, as with the wheel of a project.
    """
    copy = Path(shutil.copytree(wheel().parent, wheel().parent / "compiled")) / wheel().name
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(copy, "a") as archive:
        archive.extractall(folder)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # zipimport compares dates of others
        compileall.compile_dir(folder, quiet=1, legacy=True, stripdir=folder, invalidation_mode=mode)
        for path in sorted(Path(folder).rglob("*.pyc")):
            archive.write(path, path.relative_to(folder))
    return copy


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write_project(tmp_path / "small project, with a comma")
