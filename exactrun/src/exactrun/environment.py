"""What a run was started with: versions, packages, GPU, and the state of git."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from datetime import datetime
from typing import Any

import torch


def start(settings: dict[str, Any]) -> dict[str, Any]:
    """The record of one start of a run: its settings (JSON values), versions, device, and the state of git."""
    return {
        "at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "command": sys.argv,
        "settings": settings,
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        "versions": versions(),
        "git": git_state(),
    }


def versions() -> dict[str, Any]:
    """The versions of Python, PyTorch, CUDA, and every installed package, and the GPU."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
    packages = {each.metadata["Name"]: each.version for each in importlib.metadata.distributions()}
    return {**found, "packages": dict(sorted((name, version) for name, version in packages.items() if name))}


def git_state() -> dict[str, Any] | None:
    """Commit, branch, and changed files of the project; None if it is not a git repository, or git fails."""

    def git(*arguments: str) -> str:
        options = {"capture_output": True, "text": True, "errors": "replace", "timeout": 20}
        return subprocess.run(["git", *arguments], check=True, **options).stdout

    try:
        return {
            "commit": git("rev-parse", "HEAD").strip(),
            "branch": git("rev-parse", "--abbrev-ref", "HEAD").strip(),
            "changed": git("status", "--porcelain").splitlines(),
        }
    except (OSError, subprocess.SubprocessError):
        return None
