"""MLflow and TensorBoard as services: started with Compose, written to from the container, read over HTTP."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Engine, Project


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url: str, **question: Any) -> Any:
    """The JSON response of a server; repeats the request until it has started."""
    data = json.dumps(question).encode() if question else None
    until = time.monotonic() + 90
    while True:
        try:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            if time.monotonic() > until:
                raise
            time.sleep(1)


@pytest.fixture(scope="module")
def served(plain: Engine, project: Callable[..., Project]) -> Iterator[Project]:
    """A project with both servers, without a GPU, on free ports."""
    found = project(name="served", on=plain, tracking=["mlflow", "tensorboard"], credentials=[], data_dir="")
    found.write(".env", f"MLFLOW_PORT={free_port()}\nTENSORBOARD_PORT={free_port()}\n")
    found.launched("--cpu", "up", timeout=900)
    yield found
    found.launched("stop")
    assert found.containers() == []
    found.launched("clean", "--yes")


def address(project: Project, service: str) -> str:
    (name,) = project.containers(f"--filter=label=com.docker.compose.service={service}")
    published = project.engine.inspect(name)["NetworkSettings"]["Ports"].values()
    bindings = [binding for ports in published for binding in ports or []]
    assert {binding["HostIp"] for binding in bindings} == {"127.0.0.1"}
    return f"http://127.0.0.1:{bindings[0]['HostPort']}"


def logged(project: Project, run: str) -> list[float]:
    """The losses of a run in MLflow."""
    server = f"{address(project, 'mlflow')}/api/2.0/mlflow"
    experiments = [one["experiment_id"] for one in ask(f"{server}/experiments/search", max_results=100)["experiments"]]
    runs = ask(f"{server}/runs/search", experiment_ids=experiments, max_results=100).get("runs", [])
    (found,) = [one["info"]["run_id"] for one in runs if one["info"]["run_name"] == run]
    history = ask(f"{server}/metrics/get-history?run_id={found}&metric_key=loss")["metrics"]
    return [metric["value"] for metric in sorted(history, key=lambda metric: metric["step"])]


def losses(project: Project, run: str) -> list[float]:
    lines = (project.path / "outputs" / run / "metrics.jsonl").read_text().splitlines()
    return [loss for line in lines if (loss := json.loads(line).get("loss")) is not None]


def train(run: str) -> tuple[str, ...]:
    return ("python", "-m", "engine_tests.train", f"--name={run}", "--max-steps=6", "--log-steps=2")


def test_the_compose_container_logs_to_both(served: Project) -> None:
    output = served.launched("shell", "--", *train("composed"))
    assert "left out" not in output
    assert len(losses(served, "composed")) == 3
    assert logged(served, "composed") == pytest.approx(losses(served, "composed"))
    for _ in range(30):  # TensorBoard looks for new runs every few seconds
        tags = ask(f"{address(served, 'tensorboard')}/data/plugin/scalars/tags")
        if "composed" in tags:
            break
        time.sleep(1)
    assert "loss" in tags["composed"]


def test_the_containers_of_cli_and_launch_log_to_mlflow(served: Project) -> None:
    config = served.path / ".devcontainer/cpu/devcontainer.json"
    served.up(f"--config={config}", timeout=600)
    done = served.inside(f"--config={config}", *train("vscode"))
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stdout + done.stderr
    assert logged(served, "vscode") == pytest.approx(losses(served, "vscode"))
    output = served.launched("--cpu", "run", "--", *train("launched"))
    assert "left out" not in output
    assert logged(served, "launched") == pytest.approx(losses(served, "launched"))


def test_the_servers_are_only_reachable_from_this_machine(served: Project) -> None:
    """Only published on 127.0.0.1; and the user owns the files that the servers write."""
    for service in ("mlflow", "tensorboard"):
        address(served, service)
    (dev,) = served.containers("--filter=label=com.docker.compose.service=dev")
    assert not any(served.engine.inspect(dev)["NetworkSettings"]["Ports"].values())
    files = list((served.path / "outputs/mlflow").rglob("*"))
    assert {path.stat().st_uid for path in files} == {served.user.uid}
