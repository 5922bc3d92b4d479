"""The loss of one training script under every launcher, with two processes each.

    uv run --no-project --with-requirements tests/requirements.txt python benchmarks/launchers.py

The launchers are real, as far as possible on one machine: Slurm's daemons, Ray, and the commands that SkyPilot would
run on its machines, with the variables that it sets. gloo, on the CPU. Two processes are the fewest that can differ in
the order of a sum. --rounds is the number of launchers. Requires Slurm (Debian's slurm-wlm and munge) and root.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import yaml
from harness import ROOT, Benchmark, say

from tests.cluster.conftest import RUN, Project, quiet
from tests.cluster.environments import environment
from tests.cluster.slurm import Slurm
from tests.ports import free_port

STEPS = 60
RAY = "ray[train]==2.60.0"
ARGUMENTS = (*RUN, "--max-steps", str(STEPS))
# Run by each of Ray's workers. Ray has already created a process group; the script creates its own at another port.
JOB = """\
import os, sys
import ray, torch.distributed
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

def work(config):
    torch.distributed.destroy_process_group()
    os.environ["MASTER_PORT"] = config["port"]
    os.chdir(config["folder"])
    import tyro
    from my_gpu_project.config import Settings
    from my_gpu_project.train import train
    train(tyro.cli(Settings, args=config["arguments"]))

port, folder, *arguments = sys.argv[1:]
ray.init(num_cpus=2, include_dashboard=False)
config = {"port": port, "folder": folder, "arguments": arguments}
TorchTrainer(work, train_loop_config=config, scaling_config=ScalingConfig(num_workers=2)).fit()
"""


def together(commands: list[list[str]], folder: Path, envs: list[dict[str, str]]) -> None:
    """Run the commands in parallel; exit with the output of the first that fails."""
    with contextlib.ExitStack() as ending:
        started = []
        for command, env in zip(commands, envs, strict=True):
            log = ending.enter_context(tempfile.TemporaryFile("w+"))
            started.append((subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log), log))
            ending.callback(started[-1][0].kill)
        for process, log in started:
            if process.wait(900):
                log.seek(0)
                sys.exit(f"{shlex.join(process.args)}\n{log.read()[-3000:]}")


def torchrun(project: Project, *options: str, nodes: int = 1, name: str) -> None:
    train = ["-m", "my_gpu_project.train", *ARGUMENTS, "--name", name]
    command = ["./launch", "--native", "run", "--", "torchrun", *options, *train]
    together([command] * nodes, project.folder, [quiet(PET_NODE_RANK=str(rank)) for rank in range(nodes)])


def skypilot(project: Project, name: str) -> None:
    task = yaml.safe_load((project.folder / "cluster/sky.yaml").read_text(encoding="utf-8"))
    run = task["run"].replace("29500", str(free_port()))
    env = {**task["envs"], "OUTPUTS": str(project.folder / "outputs"), "RUN_NAME": name}
    env |= {"OPTIONS": shlex.join(ARGUMENTS), "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "0"}
    env["SKYPILOT_NODE_IPS"] = "127.0.0.1\n127.0.0.1"
    envs = [quiet(**env, SKYPILOT_NODE_RANK=str(rank)) for rank in range(2)]
    together([["bash", "-c", run]] * 2, project.folder, envs)


def slurm(project: Project, name: str) -> str:
    cluster = Slurm(project.folder.parent / "slurm")
    try:
        job = cluster.submit(project.folder, *ARGUMENTS, options=("--cpus-per-task=1",), RUN_NAME=name)
        if cluster.end(job, within=900) != "COMPLETED":
            sys.exit(cluster.report(job))
    finally:
        cluster.close()
    return cluster.version


def ray(project: Project, name: str) -> None:
    python = str(environment(RAY))
    path = [
        project.folder / "src",
        ROOT / "gpukit/src",
        ROOT / "exactrun/src",
        *os.environ.get("PYTHONPATH", "").split(os.pathsep),
    ]
    env = quiet(PYTHONPATH=os.pathsep.join(map(str, path)), RAY_TRAIN_V2_ENABLED="1", HOME=str(project.folder.parent))
    # otherwise, it starts its workers with uv run, as this process was started
    env["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    arguments = [str(free_port()), str(project.folder), *ARGUMENTS, "--name", name]
    together([[python, "-c", JOB, *arguments]], project.folder, [env])


def main() -> None:
    with Benchmark("The same script under every launcher", __doc__, rounds=5, packages=("torch",)) as bench:
        bench.spare.chmod(0o755)
        made = bench.project("made", hardware="cpu", workflow="scripts", cluster="[slurm, skypilot]")
        project = Project(bench.spare / "project", made)
        meeting = ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
        two = ["--nnodes=2", "--nproc-per-node=1", *meeting]
        ways: dict[str, Callable[[str], object]] = {
            "torchrun, two processes": lambda name: torchrun(project, "--standalone", "--nproc-per-node=2", name=name),
            "two torchruns, one process each": lambda name: torchrun(project, *two, nodes=2, name=name),
            "SkyPilot's run section, two simulated nodes": lambda name: skypilot(project, name),
            "Slurm: sbatch, two nodes": lambda name: slurm(project, name),
            f"Ray Train {RAY.partition('==')[2]}, two workers": lambda name: ray(project, name),
        }
        bench.columns = ["started by", f"loss after {STEPS} steps", "bit-identical steps"]
        first: dict[int, float] = {}
        for number, what in enumerate(list(ways)[: bench.rounds]):
            say(what)
            ways[what](str(number))
            losses = project.losses(str(number))
            first = first or losses
            equal = sum(losses.get(step) == loss for step, loss in first.items())
            bench.row(what, f"{losses[STEPS]:.6f}", f"{equal} of {STEPS}")
        total = len(bench.rows)
        same = sum(row[1] == bench.rows[0][1] for row in bench.rows)
        bench.result("launchers with the same loss, to 6 digits", same, f"of {total}", at_least=total)
        bench.notes = [
            "`minimal`, two processes in total, gloo, on the CPU. The script is the same file, unchanged.",
            "Slurm from Debian, with a controller and two nodes on loopback; Ray with a cluster of one node.",
        ]


if __name__ == "__main__":
    main()
