"""Virtual environments for packages that are too large for tests/requirements.txt, kept in the cache of tests/train."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from tests.train.conftest import CACHE


def environment(requirement: str) -> Path:
    """The Python of an environment with a package such as `skypilot==0.14.1`.

    Raises:
        OSError, subprocess.SubprocessError: pip could not install it.
    """
    name = requirement.replace("==", "-").replace("[", "-").replace("]", "")
    folder = CACHE / f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin/python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            print(f"Bringing {requirement} for tests/cluster, once ...", file=sys.stderr, flush=True)
            # without the packages of tests/train, which pip would mistake for those of the environment
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, timeout=300, env=env)
            pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", requirement]
            subprocess.run(pip, check=True, timeout=1200, env=env)
            (folder / "whole").touch()
    return python
