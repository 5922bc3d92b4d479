"""The interpreter and its packages, compilers, Jupyter, and which credentials are set."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from functools import cached_property
from importlib import metadata
from pathlib import Path

from gpukit.image import guard
from gpukit.project.location import root
from gpukit.verify import requirements, sources
from gpukit.verify.probes.seen import Kernel, Versions

COMMAND_LIMIT = 15
# Variables and files with credentials.
CREDENTIALS = ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "AWS_ACCESS_KEY_ID", "KAGGLE_KEY")
CREDENTIAL_FILES = (".netrc", ".cache/huggingface/token", ".aws/credentials", ".kaggle/kaggle.json")


class Software:
    environment: Mapping[str, str]

    @cached_property
    def gpukit(self) -> Versions:
        # Not by sys.path: ./launch inside the container runs the wheel in vendor/, which has metadata too.
        paths = list({sysconfig.get_path(name) for name in ("purelib", "platlib")})
        installed = next((found.version for found in metadata.distributions(name="gpukit", path=paths)), None)
        wheels = sorted((root() / "vendor").glob("gpukit-*.whl"))
        if len(wheels) != 1:
            reason = f"vendor/ has {len(wheels)} gpukit wheels." if wheels else "vendor/ has no gpukit wheel."
            return Versions(installed, None, reason)
        return Versions(installed, wheels[0].name.split("-")[1])

    @cached_property
    def python(self) -> str:
        return ".".join(str(part) for part in sys.version_info[:3])

    @cached_property
    def prefixes(self) -> tuple[str, str]:
        """sys.prefix and sys.base_prefix: different in a virtual environment."""
        return sys.prefix, sys.base_prefix

    @cached_property
    def workspace_venv(self) -> str:
        """A virtual environment in the workspace, which editors would use for this project."""
        folder = root() / ".venv"
        return str(folder) if (folder / "pyvenv.cfg").is_file() else ""

    @property
    def base_image(self) -> str:
        """What `./launch build` built the image from, as NAME@DIGEST; "" if it was not recorded."""
        return self.environment.get("GPUKIT_BASE", "")

    @cached_property
    def protected(self) -> dict[str, str] | None:
        """The protected packages recorded when the image was built; None without a record."""
        try:
            return guard.recorded(guard.RECORD)
        except OSError:
            return None

    @cached_property
    def protected_changes(self) -> list[guard.Change]:
        return guard.changed(self.protected or {})

    @cached_property
    def requirements(self) -> requirements.Requirements:
        return requirements.read(root(), self._distributions)

    @cached_property
    def _distributions(self) -> dict[str, metadata.Distribution]:
        return requirements.distributions()

    @cached_property
    def conflicts(self) -> tuple[requirements.Conflict, ...] | None:
        """None without uv."""
        lines, base = guard.conflicts(), []
        with contextlib.suppress(OSError):
            base = guard.CONFLICTS.read_text(encoding="utf-8").splitlines()
        return None if lines is None else requirements.conflicts(lines, base)

    @cached_property
    def imports(self) -> list[sources.Import]:
        """Those in the project's sources."""
        return sources.imports(root())

    @cached_property
    def unknown_imports(self) -> list[sources.Import]:
        """Those that cannot work, because no installed package has the module."""
        return [each for each in self.imports if not each.lazy and not found(each.module)]

    @cached_property
    def compiler(self) -> str | None:
        return next((found for name in ("g++", "c++", "clang++") if (found := shutil.which(name))), None)

    @cached_property
    def python_header(self) -> bool:
        return Path(sysconfig.get_path("include"), "Python.h").is_file()

    @cached_property
    def credentials(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of those that are set and not set; never a value."""
        home = Path(self.environment.get("HOME") or "/")
        there = [name for name in CREDENTIALS if self.environment.get(name)]
        there += [f"~/{name}" for name in CREDENTIAL_FILES if os.access(home / name, os.R_OK)]
        return tuple(there), tuple(name for name in CREDENTIALS if name not in there)

    @cached_property
    def kernel(self) -> Kernel | None:
        """None without Jupyter."""
        # Natively, the machine may have its own Jupyter, which is not this project's.
        within = str(Path(sys.prefix, "bin")) if sys.prefix != sys.base_prefix else None
        jupyter = shutil.which("jupyter", path=within)
        if jupyter is None:
            return None
        printed = run(jupyter, "kernelspec", "list", "--json")
        try:
            specs = json.loads(printed or "")["kernelspecs"]
            name = "python3" if "python3" in specs else sorted(specs)[0]
            command = specs[name]["spec"]["argv"][0]
        except (ValueError, KeyError, IndexError, TypeError):
            return Kernel(message="`jupyter kernelspec list` shows no kernel")
        # Jupyter starts a plain `python` with its own interpreter.
        path = _interpreter_of(jupyter) if re.fullmatch(r"python[\d.]*", command) else command
        prefix = run(path, "-c", "import ipykernel, sys; print(sys.prefix)")
        return Kernel(name, path, (prefix or "").strip(), "" if prefix else f"{path} cannot import ipykernel")


def found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def run(*command: str) -> str | None:
    """The output of a command; None if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMMAND_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _interpreter_of(script: str) -> str:
    """The interpreter in the first line of a script."""
    with contextlib.suppress(OSError), Path(script).open("rb") as file:
        first = file.readline(1024).decode(errors="replace")
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0].endswith("/env"):
            words = [found for name in words[1:2] if (found := shutil.which(name))]
        if words and "python" in Path(words[0]).name:  # for a long path, pip writes a line of sh instead
            return words[0]
    return sys.executable
