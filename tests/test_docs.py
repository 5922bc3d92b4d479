"""The documents agree with the code: links, commands, files, answers, and versions."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from gpukit.cli import main as cli
from gpukit.cli.table import COMMANDS
from tests.conftest import FULL_MARKERS, ROOT, needs

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")),
]
GENERATED = ("hardware.md", "benchmarks.md", "verified.md", "troubleshooting.md")
HANDWRITTEN = [path for path in DOCUMENTS if path.name not in GENERATED]  # written by hand
PARTS = ("benchmarks/", "catalogue/", "docs/", "examples/", "fragments/", "gpukit/", "hooks/", "template/")
TEMPLATES = (".devcontainer/", ".vscode/", ".github/", "src/", "notebooks/")  # folders of a generated project
CREATED = {
    "requirements.txt",
    "setup.py",
    "setup.cfg",
    "extra.txt",
    "environment.yml",
    "pixi.toml",
    "torch-index.txt",
    ".env",
    ".grype.yaml",
    "error.txt",
    "report.md",
    "compose.yaml",
    "docs/benchmarks.md",
    "examples/",
}  # created by a command, or by you


def named(documents: list[Path]) -> list:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in documents]


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[str]:
    """The shell lines in code blocks."""
    found = re.findall(r"^```sh\n(.*?)^```", text(path), re.MULTILINE | re.DOTALL)
    return [line.strip() for block in found for line in block.splitlines() if line.strip()]


def spans(path: Path) -> list[str]:
    """The code in backticks, outside code blocks."""
    rest = re.sub(r"^```.*?^```", "", text(path), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`((?:\\`|[^`\n])+)`", rest.replace("\n", " "))
    return [span.replace("\\|", "|").replace("\\`", "`") for span in found]


def commands(path: Path) -> list[list[str]]:
    """Every command in a document, split into words, without comments."""
    found = []
    for line in blocks(path) + spans(path):
        for part in re.split(r" && |; ", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue  # part of an error message, not a command
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words.pop(0)
            if words:
                found.append(words)
    return found


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text(path), re.MULTILINE)
    return {*re.findall(r'<a id="([\w-]+)">', text(path))} | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", named(DOCUMENTS))
def test_link_targets_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(path)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        assert to.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(to), f"{to.name} has no heading for #{anchor}"


@pytest.mark.parametrize("path", named(HANDWRITTEN))
def test_no_registry_or_local_path_is_named(path: Path) -> None:
    for word in ("pypi" + ".org", "python" + "hosted", "npm" + "js", "/tmp/", "/root/", "/home/"):
        assert word not in text(path).replace("`/root/.cache`", "")


def check_launch(words: list[str]) -> None:
    """Fail if ./launch does not accept this command line."""
    if words[1:] in ([], ["--help"]) or "..." in words[1:3]:
        return
    if len(words) == 2 and words[1] in COMMANDS:
        return  # the name of a command, in a sentence
    try:
        cli.parse(words[1:])
    except SystemExit:
        pytest.fail(f"./launch does not accept: {shlex.join(words)}")


@pytest.mark.parametrize("path", named(HANDWRITTEN))
def test_launch_accepts_documented_commands(path: Path) -> None:
    for words in commands(path):
        if words[0] == "./launch":
            check_launch(words)


# Answers that generate every file named in the documents.
FULL = {"hardware": "rtx-50", "use_case": "llm", "tracking": ["mlflow"], "cluster": ["slurm", "kubernetes", "skypilot"]}


@pytest.mark.parametrize("path", named(HANDWRITTEN))
def test_named_files_exist(path: Path, generate) -> None:
    project = generate(**FULL)
    for span in spans(path) + [word for words in commands(path) for word in words[1:]]:
        name = span.removeprefix("./")
        if name in CREATED or re.search(r"[\s<>$*{}:=]|\.\.\.|NAME", name):
            continue
        if name.startswith(PARTS):
            assert (ROOT / name).exists(), f"{name} is not in this repository"
        elif name.startswith("tests/"):
            assert (ROOT / name).exists() or (project / name).exists(), f"{name} is nowhere"
        elif name.startswith(TEMPLATES):
            assert (project / name).exists() or (ROOT / name).exists(), f"{name} is not in a generated project"
        elif re.fullmatch(r"[\w.-]+\.(py|toml|ya?ml|json|txt|md|sh)", name) and name != "devcontainer.json":
            places = [*ROOT.rglob(name), *project.rglob(name)]
            assert places, f"no file is called {name}"


def test_readme_tree_matches_a_project(generate) -> None:
    project = generate(**FULL)
    names = re.findall(r"[├└]── (\S+)", text(ROOT / "README.md"))
    assert len(names) >= 9
    for name in {*names} - {"vendor/"}:  # written by the hooks
        assert list(project.glob(name.replace("<package>", "*"))), f"{name} is not in a generated project"
    listed = re.search(r"── launch +([a-z, ]+), and more$", text(ROOT / "README.md"), re.MULTILINE)[1].split(", ")
    assert {*listed} <= {*COMMANDS}


@cache
def copier_help(command: str) -> str:
    """The help text of one of Copier's commands; empty if there is no such command."""
    done = subprocess.run([sys.executable, "-m", "copier", command, "--help"], capture_output=True, text=True)
    return done.stdout if re.search(rf"^\S+ {command} ", done.stdout) else ""


@pytest.mark.parametrize("path", named(HANDWRITTEN))
def test_copier_accepts_documented_commands(path: Path, catalogue: dict) -> None:
    questions = set(re.findall(r"^([a-z_]+):", text(ROOT / "copier.yml"), re.MULTILINE))
    ids = set(catalogue["hardware"]["hardware"])
    releases = {id for found in catalogue["images"]["releases"].values() for id in found}
    for words in commands(path):
        if "copier" not in words or words[words.index("copier") + 1 :] == []:
            continue  # Copier itself
        command, *arguments = words[words.index("copier") + 1 :]
        assert copier_help(command), f"copier has no {command}"
        for flag in (word.partition("=")[0] for word in arguments if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){re.escape(flag)}\b", copier_help(command)), f"copier {command} has no {flag}"
        for answer in (word for word in arguments if "=" in word and not word.startswith("-")):
            key, _, value = answer.partition("=")
            assert key in questions, f"there is no question {key}"
            if value != "...":
                assert value in {"hardware": ids, "release": releases | {"current"}}.get(key, {value})


@pytest.mark.parametrize("path", named(HANDWRITTEN))
def test_documented_versions_are_in_the_catalogue(path: Path) -> None:
    known = "".join(text(file) for file in (ROOT / "catalogue").glob("*.yml"))
    for version in re.findall(r"(?<![\d.])(?:5\d\d\.\d+\.\d+|\d+\.\d+\.\d+-cu\d+|\d\d\.\d\d-py3)(?![\d.])", text(path)):
        assert version in known, f"{version} is not in the catalogue"
    for span in spans(path):
        if re.fullmatch(r"GPU_TEMPLATE_\w+(=\w+)?", span):
            assert span.partition("=")[0] in text(ROOT / "hooks/run.py") + text(ROOT / "hooks/smoke.py")


def test_documented_sizes_of_the_bases(catalogue: dict) -> None:
    row = re.search(r"\| unpacked, about \| (.*?) \| (.*?) \| (.*?) \|", text(ROOT / "docs/choosing-a-base.md"))
    for base, cell in zip(("wheel", "ngc", "cuda"), row.groups()):
        sizes = {release["size_gb"] for release in catalogue["images"]["releases"][base].values()}
        documented = {int(number) for number in re.findall(r"\d+", cell)}
        assert {min(sizes), max(sizes)} == documented


def test_each_promise_has_a_quick_test() -> None:
    """In the table of CONTRIBUTING.md."""
    tests = re.findall(r"^\| .* \| `(tests/\S+?)::(test_\w+)` \|$", text(ROOT / "CONTRIBUTING.md"), re.MULTILINE)
    assert tests
    for file, name in tests:
        source = text(ROOT / file)
        assert not needs(ROOT / file), file
        assert f"\ndef {name}(" in source, f"{file}::{name}"
        decorators = source.partition(f"\ndef {name}(")[0].rpartition("\n\n")[2]
        assert not any(f"\n@pytest.mark.{mark}" in f"\n{decorators}" for mark in FULL_MARKERS), f"{file}::{name}"


def test_ci_runs_the_documented_test_command() -> None:
    (command,) = [span for span in spans(ROOT / "README.md") if span.startswith("uv run") and span.endswith(" pytest")]
    for file in (".ci/run", ".github/workflows/ci.yml"):
        assert text(ROOT / file).rstrip().endswith(f"{command} --full")


def test_the_page_of_the_benchmarks_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import document

    assert text(document.DOCUMENT) == document.document(), "run `python benchmarks/document.py`"


def test_benchmark_results_state_their_origin() -> None:
    files = sorted((ROOT / "benchmarks/results").glob("*.json"))
    assert files
    for file in files:
        result = json.loads(text(file))
        assert {"benchmark", "date", "commit", "command", "machine", "versions", "results"} <= result.keys()
        assert result.keys() & {"figures", "table"}
        assert file.name == f"{result['date']}-{result['benchmark']}.json"
        assert (ROOT / re.search(r"benchmarks/\w+\.py", result["command"])[0]).is_file()
        assert not re.search(r"://|/(?:home|root|tmp|Users|work)/|\d+\.\d+\.\d+\.\d+:", text(file)), "of one machine"
