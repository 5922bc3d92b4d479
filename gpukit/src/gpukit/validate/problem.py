"""A problem that validation reports in one line: the file, the place, what is wrong, and the remedy."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

STACK = "stack.json"
MAIN = ".devcontainer/devcontainer.json"
CPU = ".devcontainer/cpu/devcontainer.json"
PODMAN = ".devcontainer/podman/devcontainer.json"
HOST_ENV = ".devcontainer/host.env"
INITIALIZE = ".devcontainer/initialize.sh"
COMPOSE = "compose.yaml"
COMPOSE_CPU = "compose.cpu.yaml"
DOCKERFILE = "Dockerfile"
PYPROJECT = "pyproject.toml"
RESTORE = "restore it with `git checkout`, or run `./launch update`"


class Problem(NamedTuple):
    file: str
    place: str  # a JSON pointer, or "line 7"
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}: {self.place + ': ' if self.place else ''}{self.what}; {self.remedy}"


def quoted(value: Any) -> str:
    if value is None:
        return "not set"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 90 else f"{text[:87]}..."
