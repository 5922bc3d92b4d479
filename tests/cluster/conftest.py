"""Projects that train on several simulated machines. PyTorch is the one of tests/train.

Their `launch` is a substitute: `./launch --native run -- CMD` runs CMD with that PyTorch, without an environment.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import PATIENCE, Slurm, lacking
from tests.conftest import ROOT, cannot
from tests.train.conftest import REASON

LAUNCH = """\
#!/bin/sh
[ "$1 $2 $3" = "--native run --" ] || exit 64
shift 3
export PYTHONPATH="$PWD/src":{path}
if [ "$1" = torchrun ]; then
  shift
  set -- {python} -m torch.distributed.run "$@"
fi
exec "$@"
"""
# Imported by every training process: while a file `hold` exists, no checkpoint is completed.
HOLD = """\
import os, time
fsync = os.fsync
def held(file):
    while os.path.exists("hold"):
        time.sleep(0.1)
    fsync(file)
os.fsync = held
"""
RUN = ("--device", "cpu", "--workers", "0", "--batch-size", "16", "--log-steps", "1", "--save-steps", "10")


class Project:
    def __init__(self, folder: Path, template: Path) -> None:
        self.folder = shutil.copytree(template, folder)
        self.hold = folder / "hold"
        path = [
            folder / "held",
            ROOT / "gpukit/src",
            ROOT / "exactrun/src",
            *os.environ.get("PYTHONPATH", "").split(os.pathsep),
        ]
        (folder / "launch").write_text(
            LAUNCH.format(path=shlex.quote(os.pathsep.join(map(str, path))), python=shlex.quote(sys.executable))
        )
        (folder / "held").mkdir()
        (folder / "held/sitecustomize.py").write_text(HOLD)
        data = folder / "src/my_gpu_project/data.py"
        text = data.read_text(encoding="utf-8")
        slow = 'import time; time.sleep(float(__import__("os").environ.get("SLOWER", 0)))'
        assert text.count("        point = self.points[index]\n") == 1
        data.write_text(text.replace("        point = self", f"        {slow}\n        point = self"), encoding="utf-8")

    def losses(self, run: str | Path) -> dict[int, float]:
        """Step -> loss; the last one, if a step ran twice."""
        file = self.folder / "outputs" / run / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return {line["step"]: line["loss"] for line in map(json.loads, filter(whole, lines)) if "loss" in line}

    def torchrun(self, *arguments: str) -> None:
        """Two processes on this machine."""
        command = ["./launch", "--native", "run", "--", "torchrun", "--standalone", "--nproc-per-node=2"]
        command += ["-m", "my_gpu_project.train", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, env=quiet())
        assert done.returncode == 0, done.stderr


def whole(line: str) -> bool:
    """The last line may be incomplete."""
    return line.endswith("}")


def quiet(**env: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **env}


@pytest.fixture(scope="session")
def short() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    path = Path(tempfile.mkdtemp(prefix="cluster-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)  # some files belong to root


@pytest.fixture(scope="session")
def project(generate: Callable[..., Path], short: Path) -> Project:
    if REASON:
        cannot(REASON)
    return Project(short / "project", generate(hardware="cpu", workflow="scripts", cluster=["slurm", "skypilot"]))


@pytest.fixture(scope="session")
def uninterrupted(project: Project) -> dict[int, float]:
    """The losses of two uninterrupted processes, started by torchrun on one machine."""
    project.torchrun(*RUN, "--max-steps", "60", "--name", "uninterrupted")
    found = project.losses("uninterrupted")
    assert list(found) == list(range(1, 61))
    return found


@pytest.fixture(scope="session")
def slurm(short: Path) -> Iterator[Slurm]:
    if reason := lacking():
        cannot(reason)
    cluster = Slurm(short / "slurm")
    yield cluster
    cluster.close()
