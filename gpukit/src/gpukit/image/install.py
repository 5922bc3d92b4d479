"""Install PyTorch in the image and record its packages' versions. The Dockerfile runs this file beside guard.py:

    python install.py torch.json

torch.json, which layers.py writes: `requirements`, `protected`, `cuda`, `index` (PyTorch's, without the build's name),
and `package_index` (whether the package index has a build that supports every target). Environment: TORCH_BACKEND, the
build's name (cu130, cpu), and UV_INDEX, which replaces PyTorch's index if it is not empty.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PROTECTED = HERE / "protected.txt"
TORCH_INDEX = HERE / "torch-index.txt"  # verify reads it
NO_RESPONSE = re.compile(r"(?:Failed to fetch|error sending request)[^\n]*\bpytorch\.org")
BUILD = "import torch; print(torch.__version__, torch.version.cuda)"
REMEDY = "Use a mirror of PyTorch's index: set UV_INDEX=pytorch=URL."


def main(facts: dict) -> None:
    backend = os.environ.get("TORCH_BACKEND", "")
    own_index = os.environ.get("UV_INDEX")
    index = f"{facts['index']}{backend}"
    record(quiet=True)  # fails if the base image has no such packages
    in_base = re.search(r"^(# )?torch==", PROTECTED.read_text(encoding="utf-8"), re.MULTILINE)
    code, output = uv_install(facts["requirements"], own_index or f"pytorch={index}")
    if code and not own_index and NO_RESPONSE.search(output):
        if not facts["package_index"] and backend != "cpu":
            sys.exit(f"{index} does not respond, and the package index has no build for all targets. {REMEDY}")
        print(f"{index} does not respond: installing the package index's build of PyTorch.", flush=True)
        code, _ = uv_install(facts["requirements"], "")
    if code:
        sys.exit(f"uv could not install PyTorch (exit code {code}); its messages are above.")
    code = record()
    # PyTorch's index names the build in the version, as in 2.14.1+cu130. uv passes over an index that answers 403.
    if (
        not own_index
        and not in_base
        and re.search(r"^torch==[^+\n]+$", PROTECTED.read_text(encoding="utf-8"), re.MULTILINE)
    ):
        print(f"This PyTorch is from the package index, not from {index}.", flush=True)
        check_cuda(facts["cuda"] if backend != "cpu" else None)
        TORCH_INDEX.write_text("package index\n", encoding="utf-8")
    sys.exit(code)


def uv_install(requirements: list[str], index: str) -> tuple[int, str]:
    """Run `uv pip install` with its output shown; returns its exit code and output. Without `index`, uv's default."""
    environment = {name: value for name, value in os.environ.items() if name != "UV_INDEX"}
    process = subprocess.Popen(
        ["uv", "pip", "install", *requirements],
        env={**environment, **({"UV_INDEX": index} if index else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    output = ""
    for line in process.stdout or ():
        print(line, end="", flush=True)
        output += line
    return process.wait(), output


def check_cuda(expected: str | None) -> None:
    """Exit if torch is for another CUDA; None accepts any build."""
    if expected is None:
        return
    done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"The package index's build of PyTorch cannot be imported:\n{done.stderr.strip()}")
    version, cuda = done.stdout.split()[-2:]
    if cuda != expected:
        sys.exit(f"The package index has torch {version} for CUDA {cuda}; this project needs CUDA {expected}. {REMEDY}")


def record(quiet: bool = False) -> int:
    command = [sys.executable, "guard.py", "record", "--stack=torch.json", f"--to={PROTECTED}"]
    return subprocess.run(command, cwd=HERE, stderr=subprocess.DEVNULL if quiet else None, check=False).returncode


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
