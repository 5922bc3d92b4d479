"""The user's part of a generated project: its texts, and the training script as a user meets it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ANSWERS = {
    "default": {},
    "cpu": {"hardware": "cpu", "workflow": "scripts"},
    "spark": {"hardware": "dgx-spark", "workflow": "scripts", "use_case": "llm", "tracking": ["wandb"]},
    "shared": {
        "hardware": "rtx-30",
        "also_on": ["h100"],
        "shared_machine": True,
        "tracking": ["tensorboard", "wandb", "mlflow"],
        "credentials": ["aws", "gcloud", "kaggle"],
        "data_dir": "~/data_sets",
    },
    "old": {"hardware": "gtx-10", "tracking": ["tensorboard"]},
    "long": {"project_name": "P" * 80, "package_name": "p" * 60, "tracking": ["mlflow"]},
}
HOSTILE = "`x` *b* <img src=x> [a](b) & \"q\" 'r' \\n $(id) ${HOME} {{ 7 * 7 }} # 🚀 名"


def markdown(text: str) -> str:
    """What a reader sees of escaped text."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


@pytest.fixture(params=ANSWERS)
def project(request: pytest.FixtureRequest, generate) -> Path:
    return generate(**ANSWERS[request.param])


def test_texts_are_short_and_without_residue(project: Path) -> None:
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 90
    texts = [project / name for name in ("README.md", ".env.example", ".gitignore", ".dockerignore", "pyproject.toml")]
    texts += [*project.glob(".github/**/*.yml"), *project.glob("src/**/*.py"), *project.glob("tests/*.py")]
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"[ \t]$", text, re.MULTILINE), path
        assert "{%" not in text and not re.search(r"(?<!\$)\{\{", text), path
        assert text.endswith("\n") and not text.endswith("\n\n"), path
        assert path.suffix == ".py" or "\n\n\n" not in text, path


def test_only_what_was_answered_is_named(generate) -> None:
    plain, full = generate(**ANSWERS["cpu"]), generate(**ANSWERS["shared"])
    names = re.compile("wandb|mlflow|tensorboard|GPUS|jupyter|/data`", re.IGNORECASE)
    for name in ("README.md", ".env.example", "pyproject.toml"):
        assert not names.search((plain / name).read_text(encoding="utf-8")), name
    assert not (plain / "notebooks").exists()
    readme = (full / "README.md").read_text(encoding="utf-8")
    for word in ("export GPUS=0", "MIG", "5000", "6006", "WANDB_API_KEY", "~/.aws", "~/.kaggle", "`/data`", "16 GB"):
        assert word in readme


def test_no_ci_no_workflow(generate) -> None:
    assert not (generate(ci="none") / ".github").exists()


def test_free_text_stays_text(generate) -> None:
    project = generate(project_name=HOSTILE, package_name="hostile")
    title = (project / "README.md").read_text(encoding="utf-8").splitlines()[0]
    assert markdown(title) == f"# {HOSTILE}"
    assert not re.search(r"(?<!\\)[`*_<\[$&]", title)
    notebook = json.loads((project / "notebooks/quickstart.ipynb").read_text(encoding="utf-8"))
    assert notebook["cells"][0]["source"][0] == title + "\n"
    assert f"description = {json.dumps(HOSTILE, ensure_ascii=False)}" in (project / "pyproject.toml").read_text(
        encoding="utf-8"
    )


def test_notebook_is_clean(generate) -> None:
    notebook = json.loads((generate() / "notebooks/quickstart.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells if "outputs" in cell)


def test_actions_are_pinned_and_may_only_read(project: Path) -> None:
    text = (project / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(re.search(r"@[0-9a-f]{40} # v\d", line) for line in text.splitlines() if "uses:" in line)
    assert ("gpu" in workflow["jobs"]) == ((project / ".devcontainer/cpu").exists())


def test_the_build_sees_only_what_the_dockerfile_copies(project: Path) -> None:
    allowed = {line[1:] for line in (project / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for line in (project / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied.update(re.sub(r"\[(.)\]", r"\1", word) for word in line.split()[1:-1])
    assert copied == allowed


# What follows trains, in processes of its own. It needs PyTorch and tyro beside what the other tests need.


class Trainee:
    """A project that may be written into, and its train.py."""

    def __init__(self, folder: Path, package: str) -> None:
        self.folder, self.package = folder, package

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        path = f"{self.folder / 'src'}:{self.folder / 'fakes'}"
        return subprocess.Popen(
            [sys.executable, "-m", f"{self.package}.train", *arguments],
            cwd=self.folder.parent,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def train(self, *arguments: str, **environment: str) -> str:
        with self.start(*arguments, **environment) as process:
            output = process.communicate(timeout=120)[0]
        assert process.returncode == 0, output
        return output

    def losses(self, name: str) -> dict[int, float]:
        lines = (self.folder / "outputs" / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return {line["step"]: line["loss"] for line in map(json.loads, lines) if "loss" in line}


@pytest.fixture
def trainee(generate, tmp_path: Path):
    """`trainee(**answers)` -> a copy of that project."""
    pytest.importorskip("torch", reason="needs PyTorch", exc_type=ImportError)
    pytest.importorskip("tyro", reason="needs tyro", exc_type=ImportError)

    def copy(**answers: object) -> Trainee:
        folder = shutil.copytree(generate(**answers), tmp_path / "project")
        return Trainee(folder, answers.get("package_name", "my_gpu_project"))

    return copy


def wait_for(path: Path, pattern: str, process: subprocess.Popen) -> None:
    """Until there is a file with something in it; the process must not end before."""
    while not any(file.stat().st_size for file in path.glob(pattern)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def test_the_projects_own_tests_pass(trainee) -> None:
    project = trainee(**ANSWERS["shared"])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=project.folder, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_killed_and_resumed_repeats_an_unbroken_run(trainee) -> None:
    project = trainee()
    steps = ("--max-steps", "400", "--log-steps", "1", "--save-steps", "20")
    project.train(*steps, "--name", "unbroken")
    with project.start(*steps, "--name", "killed") as process:
        wait_for(project.folder / "outputs/killed", "step-*.pt", process)
        process.kill()
    assert "Resuming" in project.train(*steps, "--name", "killed", "--resume")
    assert project.losses("killed") == project.losses("unbroken")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_tells(number: signal.Signals, trainee) -> None:
    project = trainee()
    with project.start("--max-steps", "1000000", "--log-steps", "1", "--name", "run") as process:
        wait_for(project.folder / "outputs/run", "metrics.jsonl", process)
        process.send_signal(number)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number
    saved = re.search(rf"{number.name}: saved (\S+step-(\d+)\.pt)", output)
    assert Path(saved[1]).is_file()
    step = int(saved[2])
    assert f"at step {step}." in project.train("--max-steps", str(step + 5), "--resume")


FAKE_WANDB = """
import os

class Settings:
    def __init__(self, **_): pass

class Run:
    id = "x"
    def log(self, *_, **__): raise OSError("the line broke")

def init(**_):
    if "WORKS" in os.environ: return Run()
    raise OSError("no network")
"""


@pytest.mark.parametrize(
    ("tracking", "environment", "said"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": ""}, "left out: MLFLOW_TRACKING_URI names no server"),
        ("mlflow", {"MLFLOW_TRACKING_URI": "http://none.invalid:9"}, "left out: no server answers at none.invalid:9"),
        ("wandb", {"WANDB_API_KEY": "x"}, "left out: no network"),
        ("wandb", {"WANDB_API_KEY": "x", "WORKS": "a while"}, "left out from here: the line broke"),
    ],
)
def test_a_failing_tracker_never_stops_training(tracking: str, environment: dict, said: str, trainee) -> None:
    project = trainee(tracking=[tracking], workflow="scripts")
    (project.folder / "fakes").mkdir()
    (project.folder / "fakes/wandb.py").write_text(FAKE_WANDB)
    assert said in project.train("--max-steps", "5", "--name", "run", **environment)
    assert list(project.losses("run")) == [5]


def test_the_notebook_runs(trainee) -> None:
    for module in ("matplotlib", "ipykernel", "nbclient"):
        pytest.importorskip(module, reason=f"needs {module}", exc_type=ImportError)
    folder = trainee().folder
    run = subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", "notebooks/quickstart.ipynb"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder / 'src'}:{folder}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.returncode == 0, run.stderr
    ran = (folder / "notebooks/quickstart.ipynb").read_text(encoding="utf-8")
    assert ran.count('"image/png"') == 2
