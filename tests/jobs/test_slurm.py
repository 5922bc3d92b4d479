"""Jobs on Slurm, without one: tests/cluster has a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpukit.jobs import records, slurm
from gpukit.jobs.table import FINAL
from gpukit.project.messages import RefusalError

RECORD = {"id": "s12", "slurm": "12", "state": "queued", "command": ["python", "-m", "demo.train", "--name=12"]}
RECORD |= {"submitted": 1.0, "position": 1.0, "gpus": 1, "after": None, "max_hours": None, "variables": [], "note": ""}
RECORD |= {"status": None, "started": None, "ended": None, "ran": 0, "starts": 0, "wanted": "", "priority": 0}
RECORD |= {"log": "cluster/12.log"}


@pytest.mark.parametrize(
    ("row", "status", "wanted", "expected"),
    [
        # squeue --format=%i|%T|%M|%r of Slurm 22.05.8, recorded 2026-11-24
        ("12|PENDING|0:00|Dependency", "", "", ("queued", "Dependency")),
        ("12|PENDING|0:00|DependencyNeverSatisfied", "", "", ("held", "DependencyNeverSatisfied")),
        ("12|PENDING|0:00|BeginTime", "143", "", ("queued", "BeginTime")),  # requeued
        ("12|RUNNING|1-02:03:04|None", "", "", ("running", "")),
        ("12|COMPLETED|0:11|None", "0", "", ("finished", "")),
        ("12|FAILED|0:03|NonZeroExitCode", "2", "", ("failed", "exit status 2")),
        ("12|CANCELLED|0:03|None", "143", "", ("canceled", "")),
        ("12|TIMEOUT|8:00:00|TimeLimit", "", "", ("out of time", "")),
        (None, "out of time", "", ("out of time", "")),
        (None, "0", "canceled", ("finished", "")),
        (None, "143", "canceled", ("canceled", "")),
        (None, "1", "", ("failed", "exit status 1")),
        (None, "", "", ("failed", "killed: Slurm no longer lists it, and it has not reported its end")),
        (None, "garbage", "", ("failed", "killed: Slurm no longer lists it, and it has not reported its end")),
    ],
)
def test_the_state_of_a_job_on_slurm(
    tmp_path: Path, row: str | None, status: str, wanted: str, expected: tuple[str, str]
) -> None:
    (tmp_path / "cluster").mkdir()
    if status:
        (tmp_path / "cluster/12.status").write_text(f"{status}\n")
    job = {**RECORD, "wanted": wanted}
    slurm.refresh(tmp_path, job, row.split("|") if row else None)
    assert (job["state"], job["note"]) == expected
    assert (job["ended"] is not None) == (job["state"] in FINAL)
    if row and "RUNNING" in row:
        assert job["ran"] == 93784 and job["starts"] == 1


def test_slurm_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write(slurm.folder(tmp_path), RECORD)
    monkeypatch.setenv("PATH", str(tmp_path))
    (job,) = slurm.jobs(tmp_path)
    assert job["state"] == "queued" and "squeue" in job["note"]
    (slurm.folder(tmp_path) / "13.json").write_text("{")
    assert len(slurm.jobs(tmp_path)) == 1, "a damaged file is left out"


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (["sh", "-c", "true"], {}),
        (["python", "-m", "demo.other"], {}),
        (["python", "-m", "demo.train", "--no-resume"], {}),
        (["python", "-m", "demo.train"], {"after": 3}),
        (["python", "-m", "demo.train"], {"after": "s99"}),
        (["python", "-m", "demo.train"], {"gpus": 2}),
    ],
)
def test_what_slurm_does_not_get(tmp_path: Path, command: list[str], facts: dict) -> None:
    given = {"gpus": 1, "after": None, "max_hours": None, "variables": [], **facts}
    with pytest.raises(RefusalError, match="cluster="):
        slurm.submit(tmp_path, command, "demo", {}, **given)
    (tmp_path / "cluster").mkdir()
    (tmp_path / slurm.SCRIPT).write_text("#!/bin/sh\n")
    with pytest.raises(RefusalError) as refused:
        slurm.submit(tmp_path, command, "demo", {"PATH": ""}, **given)
    assert "sbatch" not in str(refused.value) or "train.sbatch" in str(refused.value)


def test_a_cancel_while_another_command_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `jobs --watch` does all the time: what it writes does not undo the cancel."""
    records.write(slurm.folder(tmp_path), RECORD)

    def asked(*_: object, **__: object) -> str:
        records.write(slurm.folder(tmp_path), {**RECORD, "wanted": "canceled"})
        return "12|RUNNING|0:03|None\n"

    monkeypatch.setattr(slurm, "ask", asked)
    slurm.jobs(tmp_path)
    (job,) = records.read(slurm.folder(tmp_path))
    assert (job["state"], job["wanted"]) == ("running", "canceled")
