"""Run commands with a time limit, and anything that may hang in a background thread."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHORT_TIMEOUT = 3.0  # seconds, for the client or the disk
LONG_TIMEOUT = 6.0  # seconds, for the engine or the driver
WSL_PATHS = ("/usr/lib/wsl/lib/nvidia-smi",)


def hide_home(text: str) -> str:
    """Replace the home directory, which contains the user's name, with ~."""
    home = os.environ.get("HOME", "").rstrip("/")
    return re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text) if home.count("/") > 1 else text


@dataclass(frozen=True)
class Result:
    """The result of a command. `code` is None if the command does not exist or timed out."""

    code: int | None
    out: str = ""
    err: str = ""
    timed_out: bool = False

    @property
    def text(self) -> str:
        return hide_home((self.out + self.err).strip())


def nvidia_smi() -> str:
    """The path of nvidia-smi. In WSL, it is in a folder that not every PATH contains."""
    return shutil.which("nvidia-smi") or next((path for path in WSL_PATHS if os.access(path, os.X_OK)), "nvidia-smi")


def run(argv: list[str], timeout: float) -> Result:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Result(None)
    except subprocess.TimeoutExpired:
        return Result(None, err=f"no answer in {timeout:g} s", timed_out=True)
    except OSError as error:
        return Result(None, err=str(error))
    return Result(done.returncode, done.stdout, done.stderr)


class Background:
    """The result of a function that runs in a thread; `fallback` if it takes too long or fails.

    The thread is a daemon: one that hangs in the kernel (a dead network mount) must not keep doctor from ending.
    """

    def __init__(self, look: Callable[[], Any], seconds: float, fallback: Any) -> None:
        self._value = fallback
        self._until = time.monotonic() + seconds
        self._thread = threading.Thread(target=self._run, args=(look,), daemon=True)
        self._thread.start()

    def _run(self, look: Callable[[], Any]) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._value = look()

    @property
    def value(self) -> Any:
        self._thread.join(max(0.0, self._until - time.monotonic()))
        return self._value
