"""metrics.jsonl and trackers: the lines are always there, and a tracker that fails costs the run nothing but itself."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactrun.metrics import Lines, read
from exactrun.observer import Observers
from gpukit.track import trackers as track

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("start", "log", "finish")


def followed(folder: Path, trackers: list[str], say: Any = print, settings: dict | None = None) -> Observers:
    """metrics.jsonl and the trackers of a run that has begun."""
    observers = Observers([Lines(), *(track.Tracker(name, "my-project") for name in trackers)])
    observers.open(SimpleNamespace(folder=folder, settings=settings or {}, say=say))
    return observers


class Fake:
    """A tracker that notes what it gets, and fails at `stage`."""

    stage = ""

    def __init__(self, run: Path, settings: dict, project: str) -> None:
        self.got = type(self).got = [("start", run.name, settings, project)]
        self._at("start")

    def _at(self, stage: str) -> None:
        if self.stage == stage:
            raise OSError("the line\nbroke")

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._at("log")
        self.got.append(("log", step, figures))

    def finish(self, status: str) -> None:
        self._at("finish")
        self.got.append(("finish", status))


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    """The kind of the tracker "bad"; "good" is one that works."""
    monkeypatch.setitem(track.KINDS, "good", type("Good", (Fake,), {}))
    monkeypatch.setitem(track.KINDS, "bad", type("Bad", (Fake,), {}))
    return track.KINDS["bad"]


def losses(run: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read(run)]


def test_a_tracker_gets_all_in_order(tmp_path: Path, fakes: type[Fake]) -> None:
    run = followed(tmp_path, ["good"], settings={"lr": 0.1})
    run.log(1, {"loss": 0.5})
    run.log(2, {"loss": 0.25, "rate": 10})
    assert run.close("finished") == []
    assert track.KINDS["good"].got == [
        ("start", tmp_path.name, {"lr": 0.1}, "my-project"),
        ("log", 1, {"loss": 0.5}),
        ("log", 2, {"loss": 0.25, "rate": 10}),
        ("finish", "finished"),
    ]
    assert read(tmp_path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "rate": 10}]


@pytest.mark.parametrize("stage", STAGES)
def test_one_that_fails_is_dropped_with_a_sentence(stage: str, tmp_path: Path, fakes: type[Fake]) -> None:
    """And the end says which metrics it lacks."""
    fakes.stage = "" if stage == "log" else stage
    said: list[str] = []
    run = followed(tmp_path, ["bad", "good"], said.append)
    run.log(1, {"loss": 1.0})
    fakes.stage = stage
    for step in (2, 3):
        run.log(step, {"loss": 1.0})
    last = {"start": None, "log": 1, "finish": 3}[stage]
    lacks = "has no metrics" if last is None else f"lacks the metrics after step {last}"
    assert run.close("finished") == [f"Bad {lacks}; metrics.jsonl has them."]
    assert said == [f"Bad is not used{' from here on' if stage != 'start' else ''}: the line."]
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3]
    good = track.KINDS["good"].got
    assert [row[1] for row in good if row[0] == "log"] == [1, 2, 3] and good[-1] == ("finish", "finished")


# The lines.


def test_every_line_is_valid_json(tmp_path: Path) -> None:
    run = followed(tmp_path, [])
    run.log(1, {"loss": math.nan, "rate": math.inf, "count": 2})
    run.close("failed")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert line == {"step": 1, "loss": None, "rate": None, "count": 2}
    assert math.isnan(read(tmp_path)[0]["loss"])


def test_a_step_that_ran_twice_counts_once_and_a_line_cut_off_by_a_kill_spoils_no_other(tmp_path: Path) -> None:
    first = followed(tmp_path, [])
    for step in (10, 20, 30, 40):
        first.log(step, {"loss": float(step), "only_first": 1})
    first.close("stopped")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 50, "lo')
    second = followed(tmp_path, [])  # from the checkpoint of step 15
    for step in (20, 30):
        second.log(step, {"loss": -float(step)})
    second.log(30, {"accuracy": 0.9})
    second.close("stopped")
    assert read(tmp_path) == [
        {"step": 10, "loss": 10.0, "only_first": 1},
        {"step": 20, "loss": -20.0},
        {"step": 30, "loss": -30.0, "accuracy": 0.9},
    ]


FULL = """
    import resource
    said = []
    observers = followed(run, ["tensorboard"], said.append)
    observers.log(1, {"loss": 1.0})
    resource.setrlimit(resource.RLIMIT_FSIZE, (120, resource.RLIM_INFINITY))
    for step in range(2, 40):
        observers.log(step, {"loss": 1.0})
    if not FOR_EVER:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    observers.log(40, {"loss": 4.0})
    print(*said, *observers.close("finished"), sep="\\n")
"""


@pytest.mark.parametrize("for_ever", [False, True])
def test_metrics_that_cannot_be_written_are_counted_and_later_ones_are_written(for_ever: bool, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = python(f"    FOR_EVER = {for_ever}\n" + FULL, tmp_path)
    said = done.stdout.splitlines()
    assert done.stderr == "" and any("metrics.jsonl cannot be written (" in line for line in said)
    assert any(line.startswith("TensorBoard is not used from here on") for line in said)
    steps = [step for step, _ in losses(tmp_path)]
    assert f"metrics.jsonl lacks {40 - len(steps)} lines " in done.stdout
    assert steps[0] == 1 and len(steps) < 40 and (steps[-1] == 40) != for_ever


# In a process of its own.


def python(code: str, run: Path) -> subprocess.CompletedProcess:
    start = f"""\
        import sys
        from pathlib import Path
        sys.path[:0] = {[str(ROOT / name) for name in ("", "gpukit/src", "exactrun/src")]!r}
        from tests.train.test_track import followed
        run = Path(sys.argv[1])
        """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code), str(run)],
        env={**os.environ, "HOME": str(run), "OMP_NUM_THREADS": "1"},
        cwd=run,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    said: list[str] = []
    run = followed(tmp_path, ["tensorboard"], said.append)
    for step in (1, 2, 3):
        run.log(step, {"loss": 1 / step})
    assert said + run.close("finished") == []
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    scalars = [(event.step, round(event.value, 4)) for event in events.Scalars("loss")]
    assert scalars == [(1, 1.0), (2, 0.5), (3, 0.3333)]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without variables of the trackers; what is set is restored."""
    for name in ("SUPPRESS_PRINTING_URL_TO_STDOUT", "HTTP_REQUEST_TIMEOUT", "HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(f"MLFLOW_{name}", "")
    for name in [name for name in os.environ if name.startswith(("MLFLOW_", "WANDB_"))]:
        monkeypatch.delenv(name)
    return monkeypatch


def test_secrets_in_an_error_are_not_told(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(**_: object) -> None:
        raise OSError(f"no such key: {os.environ['WANDB_API_KEY']}, at http://me:pass@host/")

    environment.setitem(sys.modules, "wandb", SimpleNamespace(Settings=dict, init=fail))
    environment.setenv("WANDB_API_KEY", "0123456789abcdef" * 2)
    said: list[str] = []
    followed(tmp_path, ["wandb"], said.append).close("failed")
    assert said == ["Wandb is not used: no such key: ***, at http://***@host/."]


def test_wandb_logs_to_the_users_project(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[str] = []

    def init(**options: Any) -> SimpleNamespace:
        given.append(options["project"])
        return SimpleNamespace(id="x", finish=lambda exit_code: None)

    environment.setitem(sys.modules, "wandb", SimpleNamespace(Settings=dict, init=init))
    for project in ("", "mine"):
        environment.setenv("WANDB_PROJECT", project)
        assert followed(tmp_path, ["wandb"]).close("finished") == []
    assert given == ["my-project", "mine"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "MLFLOW_TRACKING_URI is not set."),
        ("http://127.0.0.1:9", "no server responds at http://127.0.0.1:9; start it with `./launch up`."),
    ],
)
def test_mlflow_without_a_server_is_reported_at_the_start(
    environment: pytest.MonkeyPatch, address: str, said: str, tmp_path: Path
) -> None:
    environment.setenv("MLFLOW_TRACKING_URI", address)
    messages: list[str] = []
    followed(tmp_path, ["mlflow"], messages.append).close("finished")
    assert messages == [f"MLflow is not used: {said}"]


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield one.getsockname()[1]


class FakeMLflow(types.ModuleType):
    """Notes which experiment a run is created in."""

    experiment = None

    def set_experiment(self, name: str) -> None:
        self.experiment = name

    def start_run(self, **given: str) -> SimpleNamespace:
        self.given = given
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    def log_params(self, settings: dict) -> None: ...

    def end_run(self, status: str) -> None:
        self.status = status


@pytest.mark.parametrize("user", ["", "me:secret@"])
@pytest.mark.parametrize(("given", "experiment"), [({}, "my-project"), ({"MLFLOW_EXPERIMENT_ID": "3"}, None)])
def test_mlflow_uses_the_users_experiment_and_resumes_its_run(
    environment: pytest.MonkeyPatch, server: int, given: dict, experiment: str | None, user: str, tmp_path: Path
) -> None:
    """Its links, which have the address, are printed unless there is a password in it."""
    environment.setenv("MLFLOW_TRACKING_URI", f"http://{user}127.0.0.1:{server}")
    for name, value in given.items():
        environment.setenv(name, value)
    fake = FakeMLflow("mlflow")
    environment.setitem(sys.modules, "mlflow", fake)
    assert followed(tmp_path, ["mlflow"]).close("stopped") == []
    assert (fake.experiment, fake.given, fake.status) == (experiment, {"run_name": tmp_path.name}, "KILLED")
    assert followed(tmp_path, ["mlflow"]).close("finished") == []
    assert (fake.given, fake.status) == ({"run_id": "abc"}, "FINISHED")
    assert ("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT" in os.environ) == bool(user)
