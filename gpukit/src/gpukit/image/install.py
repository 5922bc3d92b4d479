"""Install PyTorch in the image and record what later packages must not change. The Dockerfile runs it beside guard.py:

    python install.py torch.json

torch.json (layers.py writes it): `requirements`, `protected`, `index` (PyTorch's, without the build's name), `cuda`, and
`package_index`: whether the package index has a build that supports every target. The environment has TORCH_BACKEND, the
build's name (cu130, cpu), and UV_INDEX, which replaces PyTorch's index if it is not empty.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
OTHER_INDEX = HERE / "torch-index.txt"  # where torch is from, if it is not from PyTorch's index
BUILD = "import torch; print(torch.__version__, torch.version.cuda)"


def main(facts: dict) -> None:
    backend, own = os.environ.get("TORCH_BACKEND", ""), os.environ.get("UV_INDEX")
    index = f"{facts['index']}{backend}"
    record(HERE / "torch.json", check=False)  # what the base brings
    code, output = uv_install(facts["requirements"], own or f"pytorch={index}")
    if code and not own and (facts["package_index"] or backend == "cpu") and "pytorch.org" in output:
        print(f"{index} does not respond: installing the package index's build of PyTorch.", flush=True)
        code, output = uv_install(facts["requirements"], "")
        OTHER_INDEX.write_text("package index\n", encoding="utf-8")
    if code:
        sys.exit(code)
    if OTHER_INDEX.exists() and backend != "cpu":
        done = subprocess.run([sys.executable, "-c", BUILD], check=True, capture_output=True, text=True)
        version, cuda = done.stdout.split()[-2:]
        if cuda != facts["cuda"]:
            sys.exit(
                f"The package index has torch {version} for CUDA {cuda}, and this project needs CUDA {facts['cuda']}."
            )
    record(HERE / "torch.json")


def uv_install(requirements: list[str], index: str) -> tuple[int, str]:
    """Run `uv pip install` with its output shown; returns its exit status and output."""
    environment = {**os.environ, "UV_INDEX": index}
    if not index:
        del environment["UV_INDEX"]
    process = subprocess.Popen(
        ["uv", "pip", "install", *requirements],
        env=environment,
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


def record(stack: Path, check: bool = True) -> None:
    command = [sys.executable, str(HERE / "guard.py"), "record", f"--stack={stack}"]
    subprocess.run(command, check=check, stderr=None if check else subprocess.DEVNULL)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
