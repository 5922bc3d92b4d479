"""The texts of a generated project. Its training is tested in tests/train/."""

from __future__ import annotations

import json
import operator
import re
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
    """Escaped text as a reader sees it."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


@pytest.fixture(params=ANSWERS)
def project(request: pytest.FixtureRequest, generate) -> Path:
    return generate(**ANSWERS[request.param])


def test_texts_are_short_and_fully_rendered(project: Path) -> None:
    readme = (project / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 85
    texts = [project / name for name in ("README.md", ".env.example", ".gitignore", ".dockerignore", "pyproject.toml")]
    texts += [*project.glob(".github/**/*.yml"), *project.glob("src/**/*.py"), *project.glob("tests/*.py")]
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"[ \t]$", text, re.MULTILINE), path
        ours = re.sub(r'(?s)TEMPLATE = """.*?"""', "", text)  # a chat template also contains Jinja
        assert "{%" not in ours and not re.search(r"(?<!\$)\{\{", ours), path
        assert text.endswith("\n") and not text.endswith("\n\n"), path
        assert path.suffix == ".py" or "\n\n\n" not in text, path


def test_texts_only_name_selected_options(generate) -> None:
    plain = generate(**ANSWERS["cpu"])
    full = generate(**ANSWERS["shared"])
    names = re.compile("wandb|mlflow|tensorboard|GPUS|jupyter|/data`", re.IGNORECASE)
    for name in ("README.md", ".env.example", "pyproject.toml"):
        assert not names.search((plain / name).read_text(encoding="utf-8")), name
    assert not (plain / "notebooks").exists()
    readme = (full / "README.md").read_text(encoding="utf-8")
    for word in ("export GPUS=0", "MIG", "5000", "6006", "WANDB_API_KEY", "~/.aws", "~/.kaggle", "`/data`", "16 GB"):
        assert word in readme


def test_without_ci_there_is_no_workflow(generate) -> None:
    assert not (generate(ci="none") / ".github").exists()


def test_free_text_is_escaped(generate) -> None:
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
    for file in (project / ".github/workflows").iterdir():
        text = file.read_text(encoding="utf-8")
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {"contents": "read"}
        more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
        writing = {"update": {"contents": "write", "pull-requests": "write"}}
        assert more == (writing if file.name == "update.yml" else {})
        assert all(re.search(r"@[0-9a-f]{40} # v\d", line) for line in text.splitlines() if "uses:" in line)


OURS = "me/project"
FORK = "you/project"


@pytest.mark.parametrize(
    ("event", "action", "added", "labels", "source", "runs"),
    [
        ("workflow_dispatch", "", "", [], "", True),
        ("pull_request", "labeled", "gpu", ["gpu"], OURS, True),
        ("pull_request", "labeled", "bug", ["bug", "gpu"], OURS, False),
        ("pull_request", "synchronize", "", ["bug", "gpu"], OURS, True),
        ("pull_request", "synchronize", "", ["bug"], OURS, False),
        ("pull_request", "labeled", "gpu", ["gpu"], FORK, False),
        ("pull_request", "synchronize", "", ["gpu"], FORK, False),
    ],
)
def test_a_label_starts_the_gpu_job_except_for_forks(
    generate, event: str, action: str, added: str, labels: list[str], source: str, runs: bool
) -> None:
    workflow = yaml.safe_load((generate() / ".github/workflows/gpu.yml").read_text(encoding="utf-8"))
    triggers = workflow[True]  # YAML 1.1 reads `on` as true
    assert event != "pull_request" or action in triggers["pull_request"]["types"]
    values = {
        "github.event.pull_request.head.repo.full_name": source,
        "github.event.pull_request.labels.*.name": labels,
        "github.event.label.name": added,
        "github.event.action": action,
        "github.event_name": event,
        "github.repository": OURS,
    }
    expression = workflow["jobs"]["gpu"]["if"]
    for name, value in values.items():
        expression = expression.replace(name, repr(value))
    expression = expression.replace("||", "or").replace("&&", "and").replace("contains(", "operator.contains(")
    assert eval(expression, {"operator": operator}) is runs
    assert "gpu" in workflow["jobs"]["gpu"]["runs-on"][1]


def test_no_gpu_job_without_a_gpu(generate) -> None:
    assert not (generate(hardware="cpu") / ".github/workflows/gpu.yml").exists()


def test_the_build_context_has_only_what_the_dockerfile_copies(project: Path) -> None:
    allowed = {line[1:] for line in (project / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied: set[str] = set()
    for line in (project / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied.update(re.sub(r"\[(.)\]", r"\1", word) for word in line.split()[1:-1])
    assert copied == allowed


def test_the_image_is_scanned_by_its_list_of_packages(generate) -> None:
    job = yaml.safe_load((generate() / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]["image"]
    scan = job["steps"][-1]
    assert scan["uses"].startswith("anchore/scan-action@")
    assert (scan["with"]["only-fixed"], scan["with"]["severity-cutoff"]) == (True, "critical")
    made = next(step["with"] for step in job["steps"] if "sbom-action" in step.get("uses", ""))
    assert made["format"] == "cyclonedx-json" and made["output-file"] == scan["with"]["sbom"]
