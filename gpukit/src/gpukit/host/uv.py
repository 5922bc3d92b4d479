"""Where uv is installed, and how to install it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gpukit.project.messages import RefusalError

PAGE = "https://docs.astral.sh/uv/getting-started/installation/"
# Debian's own pip installs nothing outside of an environment.
INSTALL = f"`pipx install uv`, `python3 -m venv .venv && . .venv/bin/activate && pip install uv`, or see {PAGE}"


def find(env: Mapping[str, str] = os.environ) -> str | None:
    """$UV, the uv on PATH, or the one in ~/.local/bin, which only a new shell has on its PATH after installation."""
    own = str(Path.home() / ".local/bin")
    return env.get("UV") or shutil.which("uv", path=env.get("PATH")) or shutil.which("uv", path=own)


def program(env: Mapping[str, str] = os.environ) -> str:
    """Its path; refuses if it is not installed."""
    found = find(env)
    if found is None:
        raise RefusalError(f"uv is not installed. To install it: {INSTALL}", id="uv-missing")
    return found
