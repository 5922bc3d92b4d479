"""A project as it is generated, natively, with the real torch: made, trained, killed, resumed and looked at."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpukit.wheel import writer
from tests.conftest import cannot, until
from tests.trackers import recorder

pytestmark = pytest.mark.network
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-template"
STEPS = ("--max-steps", "60", "--save-steps", "10", "--log-steps", "1")


@pytest.fixture(scope="session")
def wheels() -> Path:
    """An index that has torch alone: the build that pip finds, which reads the machine's own configuration."""
    if sys.version_info < (3, 11):
        cannot("Python 3.11 is needed")
    folder = CACHE / f"native-{sys.version_info[0]}.{sys.version_info[1]}" / "torch"
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("torch-*.whl")):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
            done = subprocess.run([*pip, "torch==2.13.0"], capture_output=True, text=True, timeout=1200)
            if done.returncode:
                cannot(f"pip could not bring PyTorch: {done.stderr.strip().splitlines()[-1]}")
        (file,) = folder.glob("torch-*.whl")
        link = f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>'
        (folder / "index.html").write_text(link, encoding="utf-8")
    return folder.parent


class Trained:
    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root = root
        self.env = env
        (package,) = (path.name for path in (root / "src").iterdir() if (path / "train.py").is_file())
        self.train = ["run", "--", "python", "-m", f"{package}.train", *STEPS, "--name"]

    def argv(self, *arguments: str) -> list[str]:
        return ["/bin/sh", str(self.root / "launch"), "--native", *arguments]

    def launch(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(self.argv(*arguments), env=self.env, capture_output=True, text=True, timeout=600)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def losses(self, name: str) -> dict[int, float]:
        lines = (self.root / "outputs" / name / "metrics.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return {row["step"]: row["loss"] for row in found if "loss" in row}


def environment(root: Path, wheels: Path, place: Path) -> dict[str, str]:
    """Variables for a generated project, with that torch and this tree's gpukit."""
    stack = json.loads((root / "stack.json").read_text(encoding="utf-8"))
    stack["native"].update(requirement="torch==2.13.0", torch="2.13.0+cpu")
    (root / "stack.json").write_text(json.dumps(stack), encoding="utf-8")
    writer.write(writer.running(), root / "vendor")
    env = {name: value for name, value in os.environ.items() if not re.match(r"UV_|VIRTUAL_ENV|PYTHONPATH", name)}
    return env | {
        "WANDB_MODE": "disabled",  # and the project's MLflow server is not there, which stops nothing
        "GPUKIT_NATIVE": str(place),
        "UV_INDEX": f"pytorch={wheels.as_uri()}",
        "PATH": os.pathsep.join([str(Path(sys.executable).resolve().parent), env["PATH"]]),
    }


@pytest.fixture(scope="session")
def trained(generate: Callable[..., Path], wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = generate(hardware="cpu", workflow="scripts", project_name="Native training", tracking=["mlflow", "wandb"])
    found = Trained(root, environment(root, wheels, tmp_path_factory.mktemp("native")))
    found.launch("build")
    return found


def test_killed_and_resumed_to_the_bit(trained: Trained) -> None:
    trained.launch(*trained.train, "whole")
    name = "cut"
    process = subprocess.Popen(
        trained.argv(*trained.train, name), env=trained.env, stdout=subprocess.DEVNULL, start_new_session=True
    )
    metrics = trained.root / "outputs" / name / "metrics.jsonl"
    until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 24, 300)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert len(trained.losses(name)) < 60
    assert "Resuming" in trained.launch(*trained.train, name)
    assert trained.losses(name) == trained.losses("whole")


def test_verify_finds_nothing_wrong(trained: Trained) -> None:
    """And what it skips, it skips for want of a GPU or of a container."""
    skipped = ("user", "mounts", "limits", "jupyter")
    said = json.loads(trained.launch("verify", "--quick", "--json"))
    found = {each["id"]: each for each in said["findings"]}
    assert not [each for each in found.values() if each["status"] == "FAIL"]
    assert {found[name]["status"] for name in ("python", "venv", "import", "torch", "protected", "packages")} == {
        "PASS"
    }
    for name in skipped:
        assert found[name]["status"] == "SKIP", found[name]
    assert not re.search(r"container without|./launch build|Dev Containers", json.dumps(said))


def test_the_users_own_trackers_are_used(trained: Trained) -> None:
    with recorder() as server:
        own = {
            "MLFLOW_TRACKING_URI": f"http://{server.place}",
            "MLFLOW_TRACKING_USERNAME": "me",
            "MLFLOW_TRACKING_PASSWORD": "secret",
            "MLFLOW_EXPERIMENT_NAME": "mine",
            "WANDB_BASE_URL": f"http://{server.place}",
            "WANDB_API_KEY": "0123456789" * 4,
            "WANDB_PROJECT": "my-project",
            "WANDB_MODE": "online",
        }
        Trained(trained.root, {**trained.env, **own}).launch(*trained.train, "own")
    mlflow = [one for one in server.asked if "experiment_name=mine" in one[0]]
    wandb = [one for one in server.asked if '"project":"my-project"' in one[2]]
    assert mlflow and {one[1] for one in mlflow} == {"me:secret"}
    assert wandb and {one[1] for one in wandb} == {f"api:{own['WANDB_API_KEY']}"}
    assert len(trained.losses("own")) == 60
