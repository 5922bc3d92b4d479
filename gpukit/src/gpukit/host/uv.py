"""Where uv is installed, how to install it, where it keeps files, and Python with packages that it provides."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from gpukit.project.messages import RefusalError

PAGE = "https://docs.astral.sh/uv/getting-started/installation/"
# Debian's own pip installs nothing outside of an environment.
INSTALL = f"`pipx install uv`, `python3 -m venv .venv && . .venv/bin/activate && pip install uv`, or see {PAGE}"

# What checks of generated files import, by the name of the module.
PACKAGES = {"jsonschema": "jsonschema>=4.23,<5", "yaml": "pyyaml>=6.0.2,<7", "docker": "docker>=7.1,<8"}
PACKAGES["tomli"] = "tomli>=2.2,<3; python_version < '3.11'"


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


def importable(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None  # without an origin, it is only a folder of that name


def python(
    modules: list[str], arguments: list[str], say: Callable[[str], None], env: Mapping[str, str] = os.environ
) -> int | None:
    """Run Python with PACKAGES, and return its exit status; None, with a sentence, if uv cannot provide `modules`."""
    names = " and ".join(modules)
    uv = find()
    if uv is None:
        say(f"uv is not installed, so {names} cannot be fetched. To install uv: {INSTALL}.")
        return None
    packages = [part for requirement in PACKAGES.values() for part in ("--with", requirement)]
    # --isolated: ignore any active environment.
    command = [uv, "run", "-qq", "--isolated", "--no-project", "--python", sys.executable, *packages, "python"]
    try:
        with subprocess.Popen([*command, *arguments], env={"UV_HTTP_TIMEOUT": "15", **env}) as process:
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                say(f"fetching {names} with uv ...")
                process.wait()
        if process.returncode == 0 or process.returncode > 2:  # uv ends with 1 or 2 on its own errors
            return process.returncode
        say(f"uv could not provide {names} (offline?).")
        return None
    except OSError as error:
        say(f"uv cannot be started: {error.strerror}.")
        return None


def cache(env: Mapping[str, str]) -> Path:
    caches = env.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(env.get("UV_CACHE_DIR") or Path(caches, "uv")).expanduser().absolute()


def environments(env: Mapping[str, str]) -> Path:
    """The folder for the native environments of all projects."""
    shared = env.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(env.get("GPUKIT_NATIVE") or Path(shared, "gpu-template")).expanduser().absolute()
