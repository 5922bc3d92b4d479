"""What a run was started with."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime
from typing import Any

import torch


def start(settings: dict[str, Any]) -> dict[str, Any]:
    """The record of one start of a run: its command, settings (JSON values), versions, and device."""
    return {
        "at": datetime.now().astimezone().isoformat(timespec="milliseconds"),
        "command": sys.argv,
        "settings": settings,
        "world": int(os.environ.get("WORLD_SIZE", "1")),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
    }
