"""cluster/train.sbatch with real Slurm: two nodes with one process each; signaled, requeued, killed, and failing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import RUN, Project, quiet
from tests.cluster.slurm import Slurm
from tests.conftest import ROOT

pytestmark = pytest.mark.cluster
SLOWLY = {"SLOWER": "0.01"}  # 8 samples per step, which takes almost 0.1 s
SMALL = ("--cpus-per-task=1", "--nodes=2")


def restarts(slurm: Slurm, job: str) -> int:
    return int(slurm.facts(job).get("Restarts", "0"))


def at_step(slurm: Slurm, project: Project, job: str, step: int) -> None:
    slurm.wait(lambda: max(project.losses(job), default=0) >= step, f"step {step}", job)


def saving(folder: Path) -> bool:
    return any(folder.glob("checkpoints/.step-*"))


def test_three_interruptions_give_the_losses_of_an_uninterrupted_run(
    slurm: Slurm, project: Project, uninterrupted: dict[int, float]
) -> None:
    job = slurm.submit(project.folder, *RUN, "--max-steps", "60", options=SMALL, **SLOWLY)
    outputs = project.folder / "outputs" / job

    at_step(slurm, project, job, 5)
    reached = max(project.losses(job))
    slurm.ask("scancel", "--batch", "--signal=USR1", job)  # as at its time limit
    slurm.wait(lambda: restarts(slurm, job) == 1, "the first restart", job)
    assert max(int(path.name.removeprefix("step-")) for path in outputs.glob("checkpoints/step-*")) >= reached

    at_step(slurm, project, job, 15)
    slurm.ask("scontrol", "requeue", job)  # as for a preemption
    slurm.wait(lambda: restarts(slurm, job) == 2, "the second restart", job)

    at_step(slurm, project, job, 25)
    project.hold.touch()
    slurm.wait(lambda: saving(outputs), "a checkpoint in the making", job)
    slurm.ask("scancel", "--signal=KILL", f"{job}.0")  # kill -9 of the step while it saves
    slurm.wait(lambda: restarts(slurm, job) == 3, "the third restart", job)
    assert saving(outputs)
    project.hold.unlink()

    assert slurm.end(job) == "COMPLETED", slurm.report(job)
    assert project.losses(job) == uninterrupted
    log = (project.folder / f"cluster/{job}.log").read_text(encoding="utf-8")
    assert log.count("Resuming") == 3 and log.count("Starting") == 1
    assert "SIGUSR1: saved" in log and log.count("requeuing it") == 2
    assert not saving(outputs)


def test_killed_before_the_first_checkpoint(slurm: Slurm, project: Project, uninterrupted: dict[int, float]) -> None:
    """Runs are in a separate folder, as on a scratch disk."""
    scratch = project.folder.parent / "scratch"
    (project.folder / "outputs").mkdir(exist_ok=True)
    options = {"OUTPUTS": str(scratch), "RUN_NAME": "early", **SLOWLY}
    job = slurm.submit(project.folder, *RUN, "--max-steps", "10", options=SMALL, **options)
    slurm.wait(lambda: (scratch / "early/metrics.jsonl").exists(), "the first step", job)
    slurm.ask("scancel", "--signal=KILL", f"{job}.0")
    slurm.wait(lambda: restarts(slurm, job) == 1, "a restart", job)
    assert slurm.end(job) == "COMPLETED", slurm.report(job)
    shutil.move(scratch / "early", project.folder / "outputs/early")
    assert project.losses("early") == {step: uninterrupted[step] for step in range(1, 11)}


@pytest.mark.parametrize("wrong", ["docker", "Pyxis"])
def test_an_unknown_run_in_is_one_sentence(slurm: Slurm, project: Project, wrong: str) -> None:
    job = slurm.submit(project.folder, options=SMALL, RUN_IN=wrong)
    assert slurm.end(job) == "FAILED"
    log = (project.folder / f"cluster/{job}.log").read_text(encoding="utf-8")
    assert log == f"RUN_IN is {wrong}: it must be native, pyxis or apptainer.\n"


def test_submit_and_jobs(slurm: Slurm, project: Project) -> None:
    """`./launch submit --on slurm`: the losses of a process without Slurm; and each way in which a job can end."""
    script = project.folder / "cluster/train.sbatch"
    script.write_text(
        script.read_text(encoding="utf-8").replace("--cpus-per-task=8", "--cpus-per-task=1")
    )  # one's site
    train = ["python", "-m", "my_gpu_project.train", *RUN]
    here = ["./launch", "--native", "run", "--", sys.executable, *train[1:], "--max-steps", "10", "--name", "here"]
    subprocess.run(here, cwd=project.folder, capture_output=True, check=True, env=quiet())

    def ask(*words: str, **env: str) -> str:
        env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/gpukit/src:{ROOT}/exactrun/src", **env}
        return slurm.ask(sys.executable, "-m", "gpukit", *words, cwd=project.folder, **env)

    def submit(*words: str, steps: str = "10", **env: str) -> str:
        return ask("submit", "--on", "slurm", *words, "--", *train, "--max-steps", steps, **env).strip()

    def states() -> dict[str, str]:
        rows = [line.split("  ") for line in ask("jobs").splitlines()[1:] if line.startswith("s")]
        return {row[0]: row[1].strip() for row in rows}

    first = submit("-e", "SECRET", SECRET="not stored")
    failing = submit(steps="none")
    held = submit("--after", failing)
    assert not any("not stored" in path.read_text() for path in (project.folder / ".launch/slurm").glob("*.json"))
    out_of_time = submit("--max-hours", "0.03", steps="100000")  # Slurm warns at once: two minutes are left
    (project.folder / "src/my_gpu_project/train.py").write_text("raise SystemExit('edited')\n", encoding="utf-8")
    slurm.wait(lambda: states()[first] == "finished", "the first job", first[1:])
    assert project.losses(first[1:]) == project.losses("here")
    slurm.wait(lambda: states()[failing] == "failed", "a job that failed", failing[1:])
    assert restarts(slurm, failing[1:]) == 0
    slurm.wait(lambda: states()[held] == "held", "a job that is held", held[1:])
    ask("jobs", "cancel", held)
    slurm.wait(lambda: states()[out_of_time] == "out of time", "a job out of time", out_of_time[1:])
    slurm.wait(lambda: states()[held] == "canceled", "a canceled job", held[1:])
    assert any((project.folder / f"outputs/{out_of_time[1:]}/checkpoints").glob("step-*"))
    assert "max-steps" in ask("jobs", "logs", failing) and f"outputs/{first[1:]}" in ask("jobs", "show", first)

    assert ask("jobs", "retry", first) == "", "without SECRET"
    again = ask("jobs", "retry", failing).strip()
    slurm.wait(lambda: states()[again] == "failed", "a retried job", again[1:])
    assert "max-steps" in ask("jobs", "logs", again) and "edited" not in ask("jobs", "logs", again)
    assert not [path for path in (project.folder / ".launch/slurm").iterdir() if path.is_dir()]
    assert ask("jobs", "move", again) == "", "refused"
