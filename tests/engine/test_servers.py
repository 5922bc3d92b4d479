"""MLflow and TensorBoard as services: started with Compose, written to from the container, read over HTTP."""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import ROOT, until
from tests.ports import free_port
from tests.trackers import recorder

from .conftest import PUBLIC, Engine, Project
from .test_secrets import watched


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
    """A project with both servers and W&B, without a GPU, on ports that are free here."""
    found = project(name="served", on=plain, tracking=["mlflow", "tensorboard", "wandb"], credentials=[], data_dir="")
    found.write(".env", f"MLFLOW_PORT={free_port()}\nTENSORBOARD_PORT={free_port()}\n")
    found.launched("--cpu", "up", timeout=900)
    ask(f"{address(found, 'mlflow')}/api/2.0/mlflow/experiments/get?experiment_id=0")  # `up` does not wait forever
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


def logged(project: Project, run: str, server: str = "", experiment: str = "engine-tests") -> list[float]:
    """The losses that MLflow has of a run."""
    server = f"{server or address(project, 'mlflow')}/api/2.0/mlflow"
    there = ask(f"{server}/experiments/search", max_results=100)["experiments"]
    (number,) = [one["experiment_id"] for one in there if one["name"] == experiment]
    runs = ask(f"{server}/runs/search", experiment_ids=[number], max_results=100).get("runs", [])
    (found,) = [one["info"]["run_id"] for one in runs if one["info"]["run_name"] == run]
    history = ask(f"{server}/metrics/get-history?run_id={found}&metric_key=loss")["metrics"]
    return [metric["value"] for metric in sorted(history, key=lambda metric: metric["step"])]


def losses(project: Project, run: str) -> list[float]:
    lines = (project.path / "outputs" / run / "metrics.jsonl").read_text().splitlines()
    return [loss for line in lines if (loss := json.loads(line).get("loss")) is not None]


def train(run: str) -> tuple[str, ...]:
    return ("python", "-m", "engine_tests.train", f"--name={run}", "--max-steps=6")


def test_composes_container_writes_to_both(served: Project) -> None:
    said = served.launched("shell", "--", *train("composed"))
    assert "not used" not in said
    assert "http://mlflow" not in said  # no link that a browser on this machine cannot open
    assert len(losses(served, "composed")) == 6  # the first ten steps are logged whatever --log-steps is
    assert logged(served, "composed") == pytest.approx(losses(served, "composed"))
    tags = f"{address(served, 'tensorboard')}/data/plugin/scalars/tags"
    until(lambda: "loss" in ask(tags).get("composed", {}), 180)  # it looks for new runs every few seconds


def test_the_containers_of_cli_and_launch_log_to_mlflow(served: Project) -> None:
    config = served.path / ".devcontainer/cpu/devcontainer.json"
    served.up(f"--config={config}", timeout=600)
    done = served.inside(f"--config={config}", *train("vscode"))
    assert done.returncode == 0, done.stderr
    assert "not used" not in done.stdout + done.stderr
    assert logged(served, "vscode") == pytest.approx(losses(served, "vscode"))
    said = served.launched("--cpu", "run", "--", *train("launched"))
    assert "not used" not in said
    assert logged(served, "launched") == pytest.approx(losses(served, "launched"))


PASSWORD = "planted7c31e0"
KEY = "0123456789abcdef" * 2 + "planted0"


@pytest.fixture
def theirs(served: Project) -> Iterator[str]:
    """The user's own MLflow, on another port than the project's, as this machine and containers reach it."""
    (ours,) = served.containers("--filter=label=com.docker.compose.service=mlflow")
    place = f"{served.engine.gateway}:{free_port()}"
    image = served.engine.inspect(ours)["Image"]
    server = "mlflow server --host 0.0.0.0 --workers 1 --allowed-hosts * --backend-store-uri sqlite:////tmp/mlflow.db"
    name = served.engine.get("run", "--detach", "--rm", f"--publish={place}:5000", image, *server.split())
    yield place
    served.engine.get("rm", "--force", name)


SCRIPT = """
import contextlib, sys, mlflow, wandb
with mlflow.start_run(run_name=sys.argv[1]):
    mlflow.log_metric("loss", 0.5)
with contextlib.suppress(Exception):
    wandb.init()
"""


def test_the_users_own_servers_are_used_instead(served: Project, theirs: str) -> None:
    """By training and by any script, through compose, launch, and the CLI; their secrets are seen nowhere."""
    config = f"--config={served.path / '.devcontainer/cpu/devcontainer.json'}"
    with recorder(served.engine.gateway) as wandb, watched() as seen:
        env = {
            "MLFLOW_TRACKING_URI": f"http://{theirs}",
            "MLFLOW_TRACKING_USERNAME": "me",
            "MLFLOW_TRACKING_PASSWORD": PASSWORD,
            "MLFLOW_EXPERIMENT_NAME": "mine",
            "WANDB_BASE_URL": f"http://{wandb.place}",
            "WANDB_API_KEY": KEY,
            "WANDB_PROJECT": "my-project",
            "WANDB_ENTITY": "me",
        }
        ask(f"http://{theirs}/api/2.0/mlflow/experiments/get?experiment_id=0")  # it is up
        up = served.launch("--cpu", "up", **env, timeout=300)
        again = served.cli("up", config, "--remove-existing-container", "--log-level=trace", **env)
        written = up.stderr + again.stdout + again.stderr
        for name, done, figures in (
            ("compose", lambda: served.launch("shell", "--", *train("mine-compose"), **env), None),
            ("launch", lambda: served.launch("--cpu", "run", "--", *script("mine-launch"), **env), [0.5]),
            ("cli", lambda: served.inside(config, *script("mine-cli"), **env), [0.5]),
        ):
            wandb.asked.clear()
            result = done()
            written += result.stdout + result.stderr
            assert result.returncode == 0, result.stderr
            found = logged(served, f"mine-{name}", f"http://{theirs}", "mine")
            assert found == pytest.approx(figures or losses(served, f"mine-{name}"))
            assert f"http://{theirs}/#/experiments/" in result.stdout  # MLflow's own links
            asked = [one for one in wandb.asked if '"project":"my-project"' in one[2] and '"entity":"me"' in one[2]]
            assert asked and {one[1] for one in asked} == {f"api:{KEY}"}, name
    for secret in (PASSWORD, KEY):
        assert secret not in written
        assert not [line for line in seen if secret in line]
        assert secret not in served.engine.get("history", "--no-trunc", f"{served.image}-cpu")


def script(run: str) -> tuple[str, ...]:
    return ("python", "-c", SCRIPT, run)


def test_only_this_machine_is_answered(served: Project) -> None:
    """Nothing but what is published on 127.0.0.1; and what the servers write belongs to the user."""
    for service in ("mlflow", "tensorboard"):
        address(served, service)
    (dev,) = served.containers("--filter=label=com.docker.compose.service=dev")
    assert not any(served.engine.inspect(dev)["NetworkSettings"]["Ports"].values())
    files = list((served.path / "outputs/mlflow").rglob("*"))
    assert {path.stat().st_uid for path in files} == {served.user.uid}


ASKS = """
import json, sys, time, urllib.error, urllib.request
def ask(path, data=None):
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:8000" + path, data)) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["detail"]
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)
cases = [b'{"inputs": [[1, 1], [0, 2]]}', b"{", b'{"inputs": [[1, NaN]]}', b'{"inputs": [[1]]}', b'{"inputs": []}']
cases += [json.dumps({"inputs": [[1, 1]] * 65}).encode(), b" " * (17 << 20), b"[" * 100_000]
json.dump([ask("/health"), *(ask("/predict", case) for case in cases)], sys.stdout)
"""


def test_predictions_of_an_exported_model(plain: Engine, project: Callable[..., Project]) -> None:
    """The target `predict`: small; it serves as an ordinary user, read-only, and without a network."""
    one = project(name="predict", on=plain, services=["predict"], tracking=[], credentials=[], data_dir="")
    image = f"{one.image}-predict"
    done = one.run("docker", "build", "--quiet", "--target=predict", f"--tag={image}", ".", timeout=600)
    assert done.returncode == 0, done.stderr
    assert plain.inspect(image)["Size"] - plain.inspect(PUBLIC["wheel"])["Size"] < 200e6
    # onnx.helper (onnx 1.23.2): the product with [[1, 2], [3, 4]], and the metadata that export.py writes
    shutil.copy(ROOT / "tests/data/two.onnx", one.path / "model.onnx")
    mount = f"--volume={one.path}/model.onnx:/model.onnx:ro"
    container = plain.get("run", "--detach", "--read-only", "--network=none", mount, image)
    try:
        found = json.loads(plain.get("exec", container, "python3", "-c", ASKS))
        assert found[0] == [200, {"status": "ok", "model": found[0][1]["model"]}]
        assert found[1] == [200, {"outputs": [[4.0, 6.0], [6.0, 8.0]], "classes": ["1", "1"]}]
        assert [status for status, _ in found[2:]] == [400, 400, 400, 400, 400, 413, 400]
        assert plain.get("exec", container, "id", "-u") == "1000"
        assert "ORT_DISABLE_TELEMETRY=1" in plain.get("exec", container, "cat", "/proc/1/environ").split("\0")
        sockets = plain.get(
            "exec", container, "sh", "-c", "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp"
        ).splitlines()
        states = [line.split()[1::2][:2] for line in sockets if ":" in line.split()[0]]
        assert {address.split(":")[1] for address, state in states if state == "0A"} == {"1F40"}, "port 8000"
    finally:
        plain.get("rm", "--force", container)
