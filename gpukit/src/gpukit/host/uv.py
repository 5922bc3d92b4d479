"""Where uv is installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find() -> str | None:
    """$UV, the uv on PATH, or the one in ~/.local/bin, which only a new shell has on its PATH after installation."""
    own = str(Path.home() / ".local/bin")
    return os.environ.get("UV") or shutil.which("uv") or shutil.which("uv", path=own)
