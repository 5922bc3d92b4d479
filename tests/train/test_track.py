"""Trackers: the lines are always there, and a tracker that fails or hangs costs the run nothing but itself."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactrun.metrics import read
from gpukit.track import trackers as track
from tests.train.followed import Followed

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("start", "log", "artifact", "finish")


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What a hanging tracker waits for: comes when the test is over."""
    event = threading.Event()
    yield event
    event.set()


class Fake(track.Backend):
    """A tracker that notes what it gets, and at `stage` does `how`."""

    module = "json"
    stage = how = ""
    event: threading.Event

    def __init__(self, run: Path, settings: dict, project: str) -> None:
        self.got = type(self).got = [("start", run.name, settings, project)]
        self._at("start")

    def _at(self, stage: str) -> None:
        if self.stage == stage and self.how == "raises":
            raise OSError("the line\nbroke")
        if self.stage == stage and self.how == "hangs":
            self.event.wait()

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._at("log")
        self.got.append(("log", step, figures))

    def artifact(self, path: Path) -> None:
        self._at("artifact")
        self.got.append(("artifact", path))

    def finish(self, status: str) -> None:
        self._at("finish")
        self.got.append(("finish", status))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, hanging: threading.Event):
    """`fake(stage, how)` -> a kind of tracker, known under the name "fake"; "good" is one that works."""
    monkeypatch.setitem(track.KINDS, "good", type("Good", (Fake,), {}))

    def make(stage: str, how: str) -> type[Fake]:
        kind = type("Bad", (Fake,), {"stage": stage, "how": how, "event": hanging})
        monkeypatch.setitem(track.KINDS, "fake", kind)
        return kind

    return make


def losses(run: Path) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in read(run)]


def test_a_tracker_gets_all_in_order(tmp_path: Path, fake) -> None:
    kind = fake("", "")
    tracker = Followed(tmp_path, {"lr": 0.1}, ["fake"], "my-project")
    tracker.write(1, loss=0.5)
    tracker.write(2, loss=0.25, rate=10)
    tracker.artifact(tmp_path / "loss.png")
    assert tracker.finish("finished") == [] and not tracker.tracker.hung
    assert kind.got == [
        ("start", tmp_path.name, {"lr": 0.1}, "my-project"),
        ("log", 1, {"loss": 0.5}),
        ("log", 2, {"loss": 0.25, "rate": 10}),
        ("artifact", tmp_path / "loss.png"),
        ("finish", "finished"),
    ]
    assert read(tmp_path) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25, "rate": 10}]


@pytest.mark.parametrize("stage", STAGES)
def test_one_that_raises_is_left_out_with_a_sentence(stage: str, tmp_path: Path, fake) -> None:
    fake(stage, "raises")
    said: list[str] = []
    tracker = Followed(tmp_path, {}, ["fake", "good"], "p", say=said.append)
    for step in range(1, 4):
        tracker.write(step, loss=1.0)
        tracker.artifact(tmp_path)
    said += tracker.finish("finished")
    assert not tracker.tracker.hung
    assert said[0] == f"Bad is not used{' from here on' if stage != 'start' else ''}: the line."
    assert all("not used" not in one for one in said[1:])
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3]
    good = track.KINDS["good"].got
    assert [row[1] for row in good if row[0] == "log"] == [1, 2, 3] and good[-1] == ("finish", "finished")


def test_what_a_lost_tracker_lacks_is_told_again_at_the_end(tmp_path: Path, fake) -> None:
    kind = fake("", "")
    said: list[str] = []
    tracker = Followed(tmp_path, {}, ["fake"], "p", say=said.append)
    tracker.write(1, loss=1.0)
    while len(kind.got) < 2:
        time.sleep(0.01)
    kind.stage = "log"
    kind.how = "raises"
    tracker.write(2, loss=1.0)
    tracker.tracker.couriers[0].done.wait()
    tracker.write(3, loss=1.0)
    assert said == ["Bad is not used from here on: the line."]
    assert tracker.finish("finished") == ["Bad lacks the metrics after step 1; metrics.jsonl has them."]


@pytest.mark.parametrize("stage", STAGES)
def test_one_that_hangs_is_given_up_at_the_end(
    stage: str, tmp_path: Path, fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(track, "STARTUP", 0.5)
    fake(stage, "hangs")
    reported: list[str] = []
    tracker = Followed(tmp_path, {}, ["fake", "good"], "p", say=reported.append)
    late = "Bad has not responded for 0.5 s: training starts without it."
    assert reported == ([late] if stage == "start" else [])
    for step in range(1, 4):
        tracker.write(step, loss=1.0)
    tracker.artifact(tmp_path)
    said = tracker.finish("stopped", patience=0.3)
    assert tracker.tracker.hung
    assert said == [f"Bad is not used{' from here on' if stage != 'start' else ''}: it does not respond."]
    assert [step for step, _ in losses(tmp_path)] == [1, 2, 3]
    assert track.KINDS["good"].got[-1] == ("finish", "stopped")


def test_ctrl_c_gives_up_what_is_waited_for(tmp_path: Path, fake) -> None:
    fake("log", "hangs")
    tracker = Followed(tmp_path, {}, ["fake", "good"], "p")
    tracker.write(1, loss=1.0)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    assert tracker.finish("finished") == ["Bad is not used from here on: Ctrl-C was pressed while waiting for it."]
    assert tracker.tracker.hung and track.KINDS["good"].got[-1] == ("finish", "finished")


def test_one_that_hangs_for_long_is_left_out_before(tmp_path: Path, fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "ROOM", 5)
    fake("log", "hangs")
    said: list[str] = []
    tracker = Followed(tmp_path, {}, ["fake"], "p", say=said.append)
    for step in range(20):
        tracker.write(step, loss=1.0)
    assert said == ["Bad is not used from here on: its queue of 5 entries is full."]
    assert tracker.finish("finished", patience=0.1) == ["Bad has no metrics; metrics.jsonl has them."]
    assert tracker.tracker.hung


# The lines.


def test_every_line_is_valid_json(tmp_path: Path) -> None:
    tracker = Followed(tmp_path, {}, [], "p")
    tracker.write(1, loss=math.nan, rate=math.inf, count=2)
    tracker.finish("failed")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert line == {"step": 1, "loss": None, "rate": None, "count": 2}
    assert math.isnan(read(tmp_path)[0]["loss"])


def test_a_step_that_ran_twice_counts_once_and_a_line_cut_off_by_a_kill_spoils_no_other(tmp_path: Path) -> None:
    first = Followed(tmp_path, {}, [], "p")
    for step in (10, 20, 30, 40):
        first.write(step, loss=float(step), only_first=1)
    first.finish("stopped")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 50, "lo')
    second = Followed(tmp_path, {}, [], "p")  # from the checkpoint of step 15
    for step in (20, 30):
        second.write(step, loss=-float(step))
    second.write(30, accuracy=0.9)
    second.finish("stopped")
    assert read(tmp_path) == [
        {"step": 10, "loss": 10.0, "only_first": 1},
        {"step": 20, "loss": -20.0},
        {"step": 30, "loss": -30.0, "accuracy": 0.9},
    ]


FULL = """
    import resource
    said = []
    tracker = Followed(run, {}, ["tensorboard"], "p", say=said.append)
    tracker.write(1, loss=1.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (120, resource.RLIM_INFINITY))
    for step in range(2, 40):
        tracker.write(step, loss=1.0)
    tracker.tracker.couriers[0].done.wait(60)
    if not FOR_EVER:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    tracker.write(40, loss=4.0)
    print(*said, *tracker.finish("finished"), tracker.tracker.hung, sep="\\n")
"""


@pytest.mark.parametrize("for_ever", [False, True])
def test_metrics_that_cannot_be_written_are_counted_and_later_ones_are_written(for_ever: bool, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = python(f"    FOR_EVER = {for_ever}\n" + FULL, tmp_path)
    said = done.stdout.splitlines()
    assert done.stderr == "" and "metrics.jsonl cannot be written (" in said[0] and said[-1] == "False"
    assert {line.split()[0] for line in said[1:-1]} >= {"TensorBoard"}
    steps = [step for step, _ in losses(tmp_path)]
    assert "metrics.jsonl lacks " in done.stdout
    assert steps[0] == 1 and len(steps) < 40 and (steps[-1] == 40) != for_ever


# In a process of its own.


def python(code: str, run: Path, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    start = f"""\
        import sys
        from pathlib import Path
        sys.path[:0] = {[str(ROOT / name) for name in ("", "gpukit/src", "exactrun/src")]!r}
        from exactrun.observer import end
        from tests.train.followed import Followed
        from gpukit.track import trackers as track
        run = Path(sys.argv[1])
        """
    known = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "MLFLOW_"))}
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(path), known.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code), str(run)],
        env={**known, "HOME": str(run), "OMP_NUM_THREADS": "1", **environment},
        cwd=run,
        capture_output=True,
        text=True,
        timeout=100,
    )


RUN = """
    import os
    said = []
    track.STARTUP = float(os.environ.get("STARTUP", track.STARTUP))
    tracker = Followed(run, {"lr": 0.1, "folder": run}, ["%s"], "my-project", say=said.append)
    for step in (1, 2, 3):
        tracker.write(step, loss=1 / step)
    (run / "loss.png").write_bytes(b"no picture")
    tracker.artifact(run / "loss.png")
    said += tracker.finish("finished"%s)
    print(*said, tracker.tracker.hung, sep="\\n", flush=True)
    if tracker.tracker.hung:
        end(3)
"""


def tracked(name: str, run: Path, patience: str = "", **given: object) -> subprocess.CompletedProcess:
    """A short run with that tracker; it prints what is said of trackers, then whether one hung."""
    done = python(RUN % (name, patience), run, **given)
    lines = done.stdout.splitlines(keepends=True)
    done.stdout = "".join(line for line in lines if not line.startswith("Waiting for "))
    return done


def test_secrets_in_an_error_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "wandb.py").write_text(
        "import os\nclass Settings:\n    def __init__(self, **_): pass\n"
        "def init(**_): raise OSError('no such key: ' + os.environ['WANDB_API_KEY'] + ', at http://me:pass@host/')\n"
    )
    done = tracked("wandb", tmp_path, path=tmp_path, WANDB_API_KEY="0123456789abcdef" * 2)
    first, *between, last = done.stdout.splitlines()
    assert (first, last) == ("Wandb is not used: no such key: ***, at http://***@host/.", "False")
    # If it failed before the end, the end also reports what is missing.
    assert between in ([], ["Wandb has no metrics; metrics.jsonl has them."])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"MLFLOW_TRACKING_URI": ""}, "MLFLOW_TRACKING_URI is not set."),
        (
            {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_PORT": "9"},
            "no server responds at http://127.0.0.1:9; start it with `./launch up`.",
        ),
    ],
)
def test_mlflow_without_a_server_is_reported_at_the_start(given: dict[str, str], said: str, tmp_path: Path) -> None:
    done = tracked("mlflow", tmp_path, **given)
    first, *between, last = done.stdout.splitlines()
    assert first == f"MLflow is not used: {said}" and last == "False"
    assert between in ([], ["MLflow has no metrics; metrics.jsonl has them."])  # if it failed before the end


class FakeMLflow(types.ModuleType):
    """Notes which experiment a run is created in, and whether MLflow would print its links."""

    def set_experiment(self, name: str) -> None:
        self.experiment = name

    def start_run(self, **_: str) -> types.SimpleNamespace:
        self.prints = not os.environ.get("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT")
        return types.SimpleNamespace(info=types.SimpleNamespace(experiment_id="7", run_id="abc"))

    def log_params(self, settings: dict) -> None: ...

    def end_run(self, status: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "experiment", "page"),
    [
        ({"MLFLOW_TRACKING_URI": "http://mlflow:5000/", "MLFLOW_PORT": "5002"}, "p", "http://localhost:5002"),
        ({"MLFLOW_TRACKING_URI": "http://127.0.0.1:5000"}, "p", "http://127.0.0.1:5000"),
        ({"MLFLOW_TRACKING_URI": "https://me:secret@mine.example:8443/x/"}, "p", "https://mine.example:8443/x"),
        ({"MLFLOW_TRACKING_URI": "databricks", "MLFLOW_EXPERIMENT_ID": "3"}, None, ""),
    ],
)
def test_mlflows_links_are_for_a_browser_and_the_users_experiment_is_used(
    given: dict, experiment: str | None, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's server is printed as the host finds it, its port from .env; others without the password."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "")  # restored afterwards
    monkeypatch.delenv("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GPUKIT_PROJECT", str(tmp_path))
    (tmp_path / ".env").write_text("MLFLOW_PORT=5001\n")
    fake = FakeMLflow("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setattr(track.socket, "create_connection", lambda *_, **__: socket.socket())
    said: list[str] = []
    tracker = Followed(tmp_path, {}, ["mlflow"], "p", say=said.append)
    assert tracker.finish("finished") == []
    assert getattr(fake, "experiment", None) == experiment and fake.prints == (not page)
    assert said == ([f"MLflow: {page}/#/experiments/7/runs/abc?workflowType=machine_learning"] if page else [])


def test_wandb_logs_to_the_users_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    wandb = types.ModuleType("wandb")
    wandb.Settings = dict
    wandb.init = lambda **options: given.append(options["project"]) or types.SimpleNamespace(id="x", finish=print)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    for project in ("", "mine"):
        monkeypatch.setenv("WANDB_PROJECT", project)
        track.Wandb(tmp_path, {}, "p")
    assert given == ["p", "mine"]


SLOW = ", patience=80"  # real ones start slowly on a machine that is busy
PATIENT = {"STARTUP": "80"}


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    done = tracked("tensorboard", tmp_path, SLOW, **PATIENT)
    assert done.stdout == "False\n", done.stderr
    code = """
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(str(run))
        events.Reload()
        print([(event.step, round(event.value, 4)) for event in events.Scalars("loss")])
        """
    assert python(code, tmp_path).stdout == "[(1, 1.0), (2, 0.5), (3, 0.3333)]\n"
