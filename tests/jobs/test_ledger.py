"""What programs and people read in the morning: compare, wait, JSON, and the limits of a night."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpukit.cli.main import main
from gpukit.jobs import ledger
from tests.conftest import ROOT
from tests.jobs.test_frozen import git, repository, write  # noqa: F401
from tests.jobs.test_jobs import Queue, queue, root  # noqa: F401

SCHEMA = json.loads((ROOT / "docs/jobs.schema.json").read_text(encoding="utf-8"))
# What a run of exactrun writes: python -c TRAIN --name=NAME --lr LR
TRAIN = """
import json, pathlib, sys, time
arguments = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
folder = pathlib.Path("outputs", arguments["--name"])
folder.mkdir(parents=True, exist_ok=True)
(folder / "run.json").write_text(json.dumps({"settings": {"seed": 7, "max_steps": 3}, "starts": [{}]}))
for step in (1, 2, 3):
    row = {"step": step, "loss": 2.0 / step, "held_out_loss": abs(float(arguments["--lr"]) - step), "memory_gb": 1.5}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\\n")
if arguments["--lr"] == "9":
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
if arguments["--lr"] == "8":
    sys.exit("ValueError: no")
"""


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """The JSON that a command prints, which is as the schema says."""
    capsys.readouterr()
    assert main([*words]) == code
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    return found


def test_an_agents_evening(
    queue: Queue,  # noqa: F811
    repository: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With documented commands and JSON only: three variants, of which two fail; compare, choose, and submit again."""

    def submit(lr: str) -> int:
        number = len(queue.states()) + 1
        command = [sys.executable, "-c", TRAIN, f"--name=job-{number}", f"--lr={lr}"]
        job = asked(capsys, "submit", "--json", "--", *command)
        assert (job["id"], job["state"]) == (number, "queued")
        return job["id"]

    first = submit("2")
    write(repository, "src/a.py", "a = 1\n")
    others = [submit("8"), submit("9")]
    assert asked(capsys, "jobs", "wait", str(first), "--timeout", "0.1", "--json", code=124)["over"] is False
    assert asked(capsys, "jobs", "move", "3", "--json")["id"] == 3
    assert asked(capsys, "jobs", "cancel", str(submit("1")), "--json")["state"] == "canceled"
    queue.start()
    numbers = [str(number) for number in (first, *others)]
    ended = asked(capsys, "jobs", "wait", *numbers, "--json", code=3)
    assert [job["state"] for job in ended["jobs"]] == ["finished", "failed", "failed"] and ended["over"]
    assert "memory" in ended["jobs"][2]["cause"]["id"] and ended["jobs"][2]["cause"]["remedy"]
    assert ended["jobs"][0]["cause"] is None
    assert main(["jobs", "show", "3"]) == 0
    assert ended["jobs"][2]["cause"]["remedy"] in capsys.readouterr().out
    text = asked(capsys, "jobs", "logs", "--json", "2")["text"]
    assert "ValueError" in text
    compared = asked(capsys, "jobs", "compare", "--json")
    assert compared["differing"] == ["--lr"] and compared["metric"] == "held_out_loss"
    best = min((job for job in compared["jobs"] if job["state"] == "finished"), key=lambda job: job["best"])
    assert (best["id"], best["best"], best["last"], best["step"], best["seed"]) == (first, 0, 1, 3, 7)
    changed = [{"path": "src/a.py", "added": 1, "removed": 1}]
    assert [job["changed"] for job in compared["jobs"]] == [[], changed, changed]
    again = submit("3")
    assert asked(capsys, "jobs", "wait", str(again), "--json")["over"]
    assert asked(capsys, "jobs", "show", str(again), "--json")["progress"]["step"] == 3
    assert len(asked(capsys, "jobs", "--json")["jobs"]) == 5
    retried = asked(capsys, "jobs", "retry", "2", "--json")
    assert retried["code"] == ended["jobs"][1]["code"]
    for wrong in (["jobs", "show", "77", "--json"], ["submit", "--json", "--gpus", "0", "true"]):
        error = asked(capsys, *wrong, code=1)["error"]
        assert error["message"] and error["id"]
    assert main(["jobs", "compare", "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert rows[0][:3] == ["ID", "STATE", "lr"] and rows[1][:3] == ["1", "finished", "2"]
    assert main(["jobs", "compare", "1", "2"]) == 0 and "src/a.py +1-1" in capsys.readouterr().out


def test_wait_says_how_jobs_ended(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    queue.add("raise SystemExit(1)")
    queue.add("", after=1)
    queue.add("import time; time.sleep(99)", max_hours=0.2 / 3600)
    queue.add("")
    queue.add("")
    queue.table.cancel(5)
    queue.start(GRACE="0.2")
    expected = {"1": 3, "2": 5, "3": 3, "4": 0, "5": 4, "4 5": 4, "2 3": 3}
    assert {numbers: main(["jobs", "wait", *numbers.split()]) for numbers in expected} == expected


def test_wait_says_once_why_a_job_does_not_start(queue: Queue, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    number = queue.add("")
    queue.table.wait(number, ["SOME_TOKEN"])
    assert main(["jobs", "wait", str(number), "--timeout", "1.2"]) == 124
    assert capsys.readouterr().err.count("SOME_TOKEN") == 1


@pytest.mark.parametrize(
    "words",
    [
        *("wait 1 --csv", "show 1 2", "run 1", "run --json", "show 1 --timeout 3"),
        *("logs --budget 1h", "compare -f", "--watch --json"),
    ],
)
def test_options_that_would_have_no_effect(root: Path, words: str, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    assert main(["jobs", *words.split()]) == 1
    shown = capsys.readouterr()
    assert (shown.out + shown.err).count("\n") == 1


def test_damaged_runs_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """A sample of benchmarks/experiments.py, which has 1,000."""
    row = '{"step": %d, "held_out_loss": %s}\n'
    whole = row % (1, 2.5) + row % (2, "null") + row % (3, "1e999")
    files = {
        "whole": {"run.json": '{"starts": [{}], "settings": {}}', "metrics.jsonl": whole},
        "cut": {"metrics.jsonl": row % (1, 0.5) + '{"step": 2, "held'},  # by a kill: it is not damaged
        "binary": {"run.json": "\x00\xff", "metrics.jsonl": "\x00\n\x01\n"},
        "none": {},
    }
    jobs = []
    for at, (name, contents) in enumerate(files.items(), 1):
        for path, text in contents.items():
            write(root, f"outputs/{name}/{path}", text)
        job = {"id": at, "state": "failed", "note": "", "command": ["x", f"--name={name}"], "code": "", "starts": 1}
        jobs.append({**job, "ran": 1800.0, "gpus": 2})
    found = ledger.compare(root, jobs)
    assert [job["damaged"] for job in found["jobs"]] == [[], [], ["metrics.jsonl", "run.json"], []]
    assert [job["last"] for job in found["jobs"]] == [2.5, 0.5, None, None]
    assert {job["gpu_hours"] for job in found["jobs"]} == {1.0}
    notes = [row[-1] for row in ledger.table(found)[1:]]
    assert notes[2] == "metrics.jsonl is damaged; run.json is damaged" and notes[3] == "no metrics"
    # what has not changed is not read again
    (root / ".launch/jobs").mkdir(parents=True)
    assert ledger.compare(root, jobs) == found
    with monkeypatch.context() as patch:
        patch.delattr(ledger, "numbers")
        assert ledger.compare(root, jobs[:3]) == {**found, "jobs": found["jobs"][:3]}
    write(root, "outputs/cut/metrics.jsonl", files["cut"]["metrics.jsonl"] + "\n" + row % (3, 0.25))
    write(root, ledger.OUTCOMES, (root / ledger.OUTCOMES).read_text() + "damaged")
    shutil.rmtree(root / "outputs/binary")
    assert [job["best"] for job in ledger.compare(root, jobs)["jobs"]] == [2.5, 0.25, None, None]
    remembered = json.loads((root / ledger.OUTCOMES).read_text())
    assert {Path(name.partition("\0")[0]).name for name in remembered} == {"whole", "cut"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m a.train --lr 1e-3 --flag --x -1", {"--lr": "1e-3", "--flag": "yes", "--x": "-1"}),
        ("python t.py lr=1 model.size=2", {"lr": "1", "model.size": "2"}),
        ("torchrun --nproc-per-node=2 t.py", {"--nproc-per-node": "2"}),
    ],
)
def test_options_of_a_command(command: str, expected: dict[str, str]) -> None:
    found = ledger.options(command.split())
    assert {name: value for name, value in found.items() if name != "command"} == expected


def test_a_budget_is_kept(queue: Queue) -> None:  # noqa: F811
    """Jobs of different length: what would pass the budget does not start, and what runs saves and ends."""
    second = 1 / 3600
    saves = "import signal, sys, time; signal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(143)))\n"
    queue.add(saves + "time.sleep(99)", gpus=8)
    queue.add("import time; time.sleep(0.3)")
    queue.add("", max_hours=1.0)
    queue.add("import time; time.sleep(0.3)", max_hours=10 * second)
    queue.add("", gpus=10)  # waits for all GPUs until the budget is used
    worker = queue.start("0,1,2,3,4,5,6,7,8,9", BUDGET=str(80 * second), GRACE="5")
    assert worker.wait(60) == 0, "it ends with the budget"
    used = sum(job["ran"] * job["gpus"] for job in queue.table.recent(100))
    assert used < 80 + 8 * 5, "by less than what a job has to save"
    assert queue.states() == ["out of time", "finished", "queued", "finished", "queued"] and "saved" in queue.log(1)
    assert all("--budget" in queue.table.get(number)["note"] for number in (3, 5))
    said = worker.stderr.read()
    assert b"Job 3 was not started" in said and b"Job 5 was not started" in said


def test_a_full_disk_keeps_jobs_waiting(queue: Queue) -> None:  # noqa: F811
    queue.add("")
    worker = queue.start(KEEP_FREE="1e18")
    queue.until(lambda: "--keep-free" in queue.table.get(1)["note"])
    assert queue.states() == ["queued"]
    worker.terminate()
    worker.wait(60)
    queue.start(KEEP_FREE="1")
    queue.until_states("finished")
    assert queue.table.get(1)["note"] == ""
