"""cluster/sky.yaml: SkyPilot's own parser accepts it, and its run section trains on two machines.

SkyPilot is in its own virtual environment, in the cache where tests/train has PyTorch.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from catalogue import support
from tests.cluster.conftest import RUN, Project, quiet
from tests.cluster.environments import environment
from tests.cluster.slurm import PATIENCE
from tests.conftest import cannot
from tests.ports import free_port

pytestmark = pytest.mark.cluster
VERSION = "0.14.1"
HARDWARE = support.load("hardware")["hardware"]
RENTED = [id for id, machine in HARDWARE.items() if machine["skypilot"]["accelerators"]]
PUBLISHED = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/common/accelerators.csv"
# Prints each task as JSON, as SkyPilot parses it.
PARSE = """\
import json, sys, sky
for path in sys.argv[1:]:
    task = sky.Task.from_yaml(path)
    offers = [resources.accelerators for resources in task.resources]
    jobs = [resources.job_recovery for resources in task.resources]
    mounts = {place: [storage.name, storage.mode.value] for place, storage in task.storage_mounts.items()}
    print(json.dumps({"nodes": task.num_nodes, "offers": offers, "jobs": jobs, "mounts": mounts, "run": task.run,
                      "envs": task.envs, "files": task.file_mounts, "spot": [r.use_spot for r in task.resources]}))
"""


@pytest.fixture(scope="session")
def skypilot() -> Path:
    """The Python of an environment with SkyPilot."""
    try:
        return environment(f"skypilot=={VERSION}")
    except (OSError, subprocess.SubprocessError) as error:
        return cannot(f"pip could not bring SkyPilot: {error}")


@pytest.fixture
def parsed(skypilot: Path, tmp_path: Path) -> Callable[..., list[dict]]:
    """Tasks as SkyPilot parses them, without this machine's settings; cards have the names in the catalogue."""
    lists = tmp_path / ".sky/catalogs/v8/common"
    lists.mkdir(parents=True)
    names = [name for id in RENTED for name in HARDWARE[id]["skypilot"]["accelerators"]]
    (lists / "accelerators.csv").write_text("\n".join(["AcceleratorName,Clouds", *(f"{n},['AWS']" for n in names)]))
    (lists / "metadata.csv").write_text("GPU,MemoryGB,Manufacturer\n")

    def parse(*tasks: Path) -> list[dict]:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
        done = subprocess.run(
            [skypilot, "-c", PARSE, *tasks], capture_output=True, text=True, env=env, cwd=tmp_path, timeout=PATIENCE
        )
        if done.returncode:
            raise ValueError(done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return parse


def test_skypilot_accepts_the_generated_task(generate: Callable[..., Path], parsed: Callable[..., list[dict]]) -> None:
    answers = [{"hardware": id} for id in [*RENTED, "cpu"]]
    answers += [
        {"hardware": "rtx-40", "also_on": ["h100", "dgx-spark"], "tracking": ["wandb"]},
        {"hardware": "h100", "data_dir": "~/data sets", "project_name": 'A: "b" #1', "use_case": "llm"},
    ]
    tasks = [generate(cluster=["skypilot"], **each) / "cluster/sky.yaml" for each in answers]
    for given, task in zip(answers, parsed(*tasks), strict=True):
        targets = [given["hardware"], *given.get("also_on", [])]
        names = [name for id in targets for name in HARDWARE[id]["skypilot"]["accelerators"]]
        assert sorted(name for offer in task["offers"] for name in offer or {}) == sorted(names)
        known = [HARDWARE[id]["skypilot"] for id in targets if id in RENTED]
        assert task["nodes"] == 1
        assert set(task["spot"]) == {not known or any(each.get("spot", True) for each in known)}
        assert all(job["strategy"] == "EAGER_NEXT_REGION" for job in task["jobs"])
        bucket = task["envs"]["BUCKET"]
        assert task["mounts"] == {"/outputs": [bucket, "MOUNT_CACHED"]}
        assert (task["files"] or {}) == ({"/data": given["data_dir"]} if "data_dir" in given else {})


def test_a_typo_is_rejected(generate: Callable[..., Path], parsed: Callable[..., list[dict]], tmp_path: Path):
    text = (generate(hardware="h100", cluster=["skypilot"]) / "cluster/sky.yaml").read_text(encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(text.replace("num_nodes:", "num_node:"))
    with pytest.raises(ValueError, match="num_node"):
        parsed(tmp_path / "wrong.yaml")


def test_the_run_section_trains_on_two_machines(project: Project, uninterrupted: dict[int, float]) -> None:
    """On loopback, with the variables that SkyPilot sets; killed and restarted, as on new machines."""
    task = yaml.safe_load((project.folder / "cluster/sky.yaml").read_text(encoding="utf-8"))
    run = task["run"].replace("29500", str(free_port()))
    env = {**task["envs"], "OUTPUTS": str(project.folder / "outputs"), "RUN_NAME": "sky", "SKYPILOT_NUM_NODES": "2"}
    del env["OPTIONS"]
    env |= {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1", "SKYPILOT_NUM_GPUS_PER_NODE": "0"}

    def start(options: tuple[str, ...], **more: str) -> list[subprocess.Popen[str]]:
        return [
            subprocess.Popen(
                ["bash", "-c", run],
                cwd=project.folder,
                env=quiet(**env, OPTIONS=shlex.join(options), SKYPILOT_NODE_RANK=str(rank), **more),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(2)
        ]

    nodes = start((*RUN, "--max-steps", "60"), SLOWER="0.01")
    try:
        while max(project.losses("sky"), default=0) < 15:
            assert all(node.poll() is None for node in nodes), [node.communicate()[0] for node in nodes]
            time.sleep(0.1)
    finally:
        for pid in training(project.folder):
            os.kill(pid, 9)
    output = [node.communicate(timeout=PATIENCE)[0] for node in nodes]
    assert all(node.returncode for node in nodes), output

    nodes = start((*RUN, "--max-steps", "60"))
    output = [node.communicate(timeout=PATIENCE)[0] for node in nodes]
    assert not any(node.returncode for node in nodes), output
    assert "Resuming" in "".join(output)
    assert project.losses("sky") == uninterrupted


def training(folder: Path) -> list[int]:
    """The processes whose working directory is this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and int(process.name) != os.getpid():
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.network
def test_skypilot_has_the_names_of_the_cards() -> None:
    try:
        with urllib.request.urlopen(PUBLISHED, timeout=10) as answer:
            known = {line.partition(",")[0] for line in answer.read().decode().splitlines()[1:]}
    except OSError as error:
        pytest.skip(f"SkyPilot's list of cards cannot be read here: {error}")
    for id in RENTED:
        assert set(HARDWARE[id]["skypilot"]["accelerators"]) <= known, id
    assert not any(re.fullmatch("GB[123]00|DGX.*|GB10", name) for name in known), "a cloud offers it now"
