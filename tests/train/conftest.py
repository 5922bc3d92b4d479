"""PyTorch for the tests of this folder: pip brings it once, the CPU build where its indexes have one, into a cache.

Not by uv and not in tests/requirements.txt: only pip reads the machine's own configuration, which says where a build
for CPUs is; the registry's own is gigabytes of CUDA. `pip config set global.extra-index-url
https://download.pytorch.org/whl/cpu` makes that PyTorch's index.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-template"


def bring() -> Path:
    """The folder with the packages, made when it is not there yet.

    Raises:
        OSError, subprocess.SubprocessError: pip could not bring them.
    """
    what = f"{sys.version_info[:2]} {REQUIREMENTS.read_text(encoding='utf-8')}"
    folder = CACHE / f"torch-{hashlib.sha256(what.encode()).hexdigest()[:12]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            aside = folder.with_suffix(".new")
            shutil.rmtree(aside, ignore_errors=True)
            print("Bringing PyTorch for tests/train, once ...", file=sys.stderr, flush=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", aside]
            subprocess.run([*pip, "--requirement", REQUIREMENTS], check=True, timeout=1200)
            aside.rename(folder)
    return folder


def add_to_path(folder: Path) -> None:
    """For the processes that tests start."""
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)]))


def unavailable() -> str:
    """Why the tests here cannot run; empty where they can."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")
        return ""
    try:
        folder = bring()
    except (OSError, subprocess.SubprocessError) as error:
        return f"pip could not bring PyTorch: {error}"
    sys.path.append(str(folder))
    add_to_path(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch")
    return ""


add_to_path(ROOT / "gpukit/src")
add_to_path(ROOT / "exactrun/src")
REASON = unavailable()
# The libraries of llm read this when they are imported: no hub is asked, and what they keep is gone in the end.
HUB = tempfile.TemporaryDirectory(prefix="hub-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": HUB.name}


class Unavailable(pytest.Module):
    """A file of tests that says once why it does not run."""

    def collect(self) -> Iterator[pytest.Item]:
        if os.environ.get("CI"):
            pytest.fail(REASON)
        pytest.skip(REASON, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Unavailable.from_parent(parent, path=module_path) if REASON else None
