"""From an existing repository to its program's first line: uv run python benchmarks/adopt.py

Each round adopts another repository of nanoGPT's shape: scripts, and no file that names the dependencies. It imports
what nanoGPT imports, and one more small package, so that its dependencies are a new layer. PyTorch's layer and the
other packages are cached, as after the first repository on a machine. BASE_IMAGE names the base, as in a project.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT, Benchmark, commit, run, say

PACKAGES = ["einops", "humanize", "tabulate", "sortedcontainers", "more-itertools"]
FILES = {
    "train.py": "import numpy, torch\n\nprint('iter 0: loss', torch.ones(1).item(), flush=True)\n",
    "model.py": "from transformers import GPT2LMHeadModel\n",
    "data/prepare.py": "import datasets, requests, tiktoken, tqdm, wandb\n",
}


def repository(folder: Path, package: str) -> Path:
    for name, text in {**FILES, "more.py": f"import {package.replace('-', '_')}\n" if package else ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    commit(folder)
    return folder


def adopt(folder: Path, template: Path) -> float:
    env = {name: value for name, value in os.environ.items() if name not in ("UV_INDEX", "GPUKIT_PROJECT")}
    env["PYTHONPATH"] = str(ROOT / "gpukit/src")
    command = [sys.executable, "-m", "gpukit", "adopt", "--yes", f"--template={template}", "--hardware=rtx-40"]
    started = time.perf_counter()
    run(*command, cwd=folder, env=env)
    elapsed = time.perf_counter() - started
    commit(folder)
    return elapsed


def first_line(folder: Path) -> float:
    """Seconds from the command until its program's first line."""
    started = time.perf_counter()
    command = [folder / "launch", "--cpu", "run", "--", "python", "train.py"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("iter 0"):
                return time.perf_counter() - started
    sys.exit(f"{''.join(lines)[-3000:]}\nThe program printed nothing.")


def main() -> None:
    with Benchmark("Adopting a repository", __doc__, rounds=3, engine=True) as bench:
        adopting: list[float] = []
        built: list[float] = []
        again: list[float] = []
        images: list[str] = []
        try:
            for number, package in enumerate(["", *PACKAGES[: bench.rounds]]):  # the first fills the caches
                folder = repository(bench.spare / f"nanogpt-{number}", package)
                seconds = [adopt(folder, bench.template())]
                images.append(run(folder / "launch", "--cpu", "--dry-run", "run", "--", "true").split()[-2])
                seconds += [first_line(folder), first_line(folder)]
                say(f"round {number}:", *(f"{each:.1f} s" for each in seconds))
                if number:
                    for kept, each in zip((adopting, built, again), seconds, strict=True):
                        kept.append(each)
        finally:
            if images:
                run("docker", "image", "rm", "--force", *images)
        bench.figure("`gpukit adopt --yes`", adopting)
        bench.figure("`./launch --cpu run -- python train.py`, first", built)
        bench.figure("`./launch --cpu run -- python train.py`, again", again)
        bench.result("first line of the program, PyTorch cached", statistics.median(built), "s", at_most=60)
        bench.result("adopting, and that", statistics.median(map(sum, zip(adopting, built, strict=True))), "s")
        bench.notes = ["Other load on the machine adds to all of these times."]


if __name__ == "__main__":
    main()
