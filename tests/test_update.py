"""`copier update`: what a new version of the template changes, and what it keeps."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from copier import run_copy, run_update

from gpukit.project.pyproject import Requirements
from gpukit.validate.main import Validation
from gpukit.wheel import vendor, writer
from tests.conftest import HERE, ROOT, change, git, quick

pytestmark = pytest.mark.slow

OLD = HERE
NEW = "9999.1.0"
YOURS = ("src", "tests", "notebooks")


def commit(folder: Path, message: str = "mine") -> None:
    git("add", "-A", cwd=folder)
    git("commit", "-qm", message, cwd=folder)


@pytest.fixture
def template(copier_template: Path, tmp_path: Path) -> Path:
    """A clone of the template; `release(template)` tags the next version."""
    clone = tmp_path / "template"
    git("clone", "-q", str(copier_template), str(clone), cwd=tmp_path)
    return clone


def release(template: Path) -> None:
    subprocess.run([sys.executable, "catalogue/combine.py"], cwd=template, check=True)
    commit(template, "new")
    git("tag", NEW, cwd=template)


def fresh(template: Path, project: Path, version: str = OLD, **answers: object) -> Path:
    with quick():
        run_copy(
            str(template),
            project,
            data=answers,
            vcs_ref=version,
            defaults=True,
            quiet=True,
            skip_tasks=True,
            unsafe=True,
        )
    return project


@pytest.fixture
def project(generate: Callable[..., Path], template: Path, tmp_path: Path) -> Callable[..., Path]:
    """A project of the old version in a git repository, from a render shared by the tests."""

    def make(**answers: object) -> Path:
        folder = shutil.copytree(generate(**answers), tmp_path / "project", symlinks=True)
        stored = folder / ".copier-answers.yml"
        comment, rest = stored.read_text(encoding="utf-8").split("\n", 1)
        rest = re.sub("^_src_path:.*\n", "", rest, flags=re.M)
        stored.write_text(f"{comment}\n_commit: {OLD}\n_src_path: {template}\n{rest}", encoding="utf-8")
        git("init", "-q", cwd=folder)
        commit(folder, "generated")
        return folder

    return make


def update(project: Path, version: str = NEW, hooks: bool = False, **answers: object) -> None:
    with quick():
        run_update(
            project,
            data=answers,
            vcs_ref=version,
            defaults=True,
            overwrite=True,
            quiet=True,
            unsafe=True,
            skip_tasks=not hooks,
        )


def texts(project: Path, *without: str) -> dict[str, str]:
    paths = (path for path in sorted(project.rglob("*")) if path.is_file())
    found = {path.relative_to(project).as_posix(): path for path in paths}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in found.items()
        if name.split("/")[0] not in (".git", "__pycache__", *without)
    }


def answers(project: Path) -> dict:
    return yaml.safe_load((project / ".copier-answers.yml").read_text(encoding="utf-8"))


def stack(project: Path) -> dict:
    return json.loads((project / "stack.json").read_text(encoding="utf-8"))


def clean(project: Path) -> bool:
    assert git("ls-files", "-u", cwd=project) == ""
    return git("status", "--porcelain", cwd=project) == ""


# ---------------------------------------------------------------------------------------------------------------------
# A new version


def test_an_update_equals_a_fresh_copy(template: Path, project: Callable[..., Path], tmp_path: Path) -> None:
    mine = project(tracking=["mlflow"], credentials=["aws"])
    change(template / "template/Dockerfile.jinja", "WORKDIR /workspace", "WORKDIR /workspace\nLABEL new=1")
    (template / "template/launch").rename(template / "template/start")
    release(template)
    update(mine)
    assert texts(mine) == texts(fresh(template, tmp_path / "fresh", NEW, tracking=["mlflow"], credentials=["aws"]))
    assert (mine / "start").stat().st_mode & 0o111
    commit(mine, "updated")
    update(mine)
    assert clean(mine), "a second update changes nothing"


@pytest.fixture
def last_release(copier_template: Path) -> str:
    tags = [tag for tag in git("tag", "--sort=-v:refname", cwd=copier_template).split() if tag != HERE]
    if not tags:
        pytest.skip("nothing is released yet, or this clone has no tags")
    return tags[0]


def test_an_update_from_the_last_release_equals_a_fresh_copy(
    copier_template: Path, last_release: str, tmp_path: Path
) -> None:
    mine = fresh(copier_template, tmp_path / "mine", last_release)
    git("init", "-q", cwd=mine)
    commit(mine, "generated")
    update(mine, HERE)
    assert git("ls-files", "-u", cwd=mine) == ""
    assert texts(mine, *YOURS) == texts(fresh(copier_template, tmp_path / "fresh", HERE), *YOURS)


def test_your_edits_survive(template: Path, project: Callable[..., Path]) -> None:
    mine = project()
    pyproject = mine / "pyproject.toml"
    package = mine / "src/my_gpu_project"
    change(pyproject, 'version = "0.1.0"', 'version = "1.2.3"')
    pyproject.write_text(Requirements(pyproject.read_text(encoding="utf-8")).set("einops>=0.8"), encoding="utf-8")
    change(mine / "README.md", "## Start\n", "## What for\n\nPlates.\n\n## Start\n")
    change(mine / "Dockerfile", "WORKDIR /workspace\n", "WORKDIR /workspace\nENV MINE=1\n")
    change(mine / "AGENTS.md", "## Commands\n", "## Review\n\nBy Ann.\n\n## Commands\n")
    change(mine / ".devcontainer/devcontainer.json", '"init": true,', '"init": true, // mine\n  "features": {},')
    (mine / "apt.txt").write_text("ffmpeg\n")
    (package / "train.py").write_text("mine = 1\n")
    (package / "more.py").write_text("more = 1\n")
    (mine / "tests/test_train.py").write_text("def test_mine(): ...\n")
    (mine / "notebooks/quickstart.ipynb").write_text('{"cells": [], "mine": 1}\n')
    (mine / "notebooks/second.ipynb").write_text("{}\n")
    commit(mine)
    change(template / "template/pyproject.toml.jinja", "line-length = 120", "line-length = 100")
    change(template / "template/pyproject.toml.jinja", "    # your own", '    "more>=1",\n    # your own')
    change(template / "template/AGENTS.md.jinja", "## This hardware\n", "## The hardware\n")
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    for file in (*(template / "template/src").glob("*/*train.py*"), template / "template/tests/test_train.py.jinja"):
        file.write_text("new = 1\n")
    (template / "template/{% if workflow == 'notebook' %}notebooks{% endif %}/quickstart.ipynb.jinja").write_text(
        "{}\n"
    )
    release(template)
    update(mine)
    assert git("ls-files", "-u", cwd=mine) == ""
    text = pyproject.read_text(encoding="utf-8")
    assert 'version = "1.2.3"' in text and '"einops>=0.8",' in text
    assert '"more>=1",' in text and "line-length = 100" in text
    dockerfile = (mine / "Dockerfile").read_text(encoding="utf-8")
    assert 'CMD ["bash", "-l"]' in dockerfile and "ENV MINE=1" in dockerfile
    assert "\nPlates.\n" in (mine / "README.md").read_text(encoding="utf-8")
    agents = (mine / "AGENTS.md").read_text(encoding="utf-8")
    assert "\nBy Ann.\n" in agents and "## The hardware\n" in agents
    assert "// mine" in (mine / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    changed = set(git("diff", "--name-only", "HEAD", cwd=mine).split())
    assert changed == {".copier-answers.yml", "AGENTS.md", "Dockerfile", "pyproject.toml"}
    assert Validation(mine).problems() == []


def test_deleted_files_stay_deleted(template: Path, project: Callable[..., Path]) -> None:
    mine = project()
    gone = [
        "src/my_gpu_project/data.py",
        "tests/test_train.py",
        "notebooks/quickstart.ipynb",
        ".vscode/launch.json",
    ]
    for name in gone:
        (mine / name).unlink()
    (mine / "notebooks/own.ipynb").write_text("{}\n")
    commit(mine)
    for file in (template / "template/src").glob("*/*data.py*"):
        file.write_text("new = 1\n")
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    release(template)
    update(mine)
    assert [name for name in gone if (mine / name).exists()] == []
    assert (mine / "notebooks/own.ipynb").exists()


def test_the_answer_predict_brings_its_files_once(template: Path, project: Callable[..., Path]) -> None:
    mine = project()
    train = mine / "src/my_gpu_project/train.py"
    train.write_text("mine = 1\n")
    commit(mine)
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    release(template)
    update(mine, services=["predict"])
    files = [mine / f"src/my_gpu_project/{name}.py" for name in ("export", "predict")]
    assert all(path.is_file() for path in files) and train.read_text() == "mine = 1\n"
    files[1].write_text("mine = 2\n")
    commit(mine)
    for file in (template / "template/src").glob("*/*predict.py*"):
        file.write_text("new = 1\n")
    commit(template, "newer")
    git("tag", "9999.2.0", cwd=template)
    update(mine, "9999.2.0")
    assert files[1].read_text() == "mine = 2\n"


def test_answers_survive_and_nothing_else_is_stored(template: Path, project: Callable[..., Path]) -> None:
    given = {
        "project_name": 'A "b" $(c) 😀',
        "hardware": "dgx-spark",
        "also_on": ["h100"],
        "workflow": "scripts",
        "use_case": "llm",
        "data_dir": "~/my data",
        "tracking": ["wandb", "mlflow"],
        "credentials": ["aws"],
        "ci": "none",
        "base": "wheel",
    }
    mine = project(**given)
    before = answers(mine)
    assert {name: before[name] for name in given} == given
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    release(template)
    update(mine)
    after = answers(mine)
    assert after.pop("_commit") == NEW
    before.pop("_commit")
    assert after == before
    assert {"facts", "given", "catalogue"} & set(after) == set()


def test_a_conflict_is_announced_and_not_hidden(
    template: Path, project: Callable[..., Path], copier: object, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = project()
    change(mine / "Dockerfile", 'CMD ["bash"]', 'CMD ["zsh"]')
    change(mine / "launch", "#!/bin/sh\n", "#!/bin/sh\n# mine\n")
    commit(mine)
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    release(template)
    command = [sys.executable, "-m", "copier", "update", "--trust", "--defaults", "--vcs-ref", NEW, str(mine)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert (
        "validate: not run: merge conflicts in Dockerfile. Resolve them, then run ./launch validate.\n" in done.stderr
    )
    summary = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert set(summary) == {"template", "gpukit", "conflicts", "next"}
    assert summary["conflicts"] == "Dockerfile" and "git add" in summary["next"]
    assert {line.split("\t")[1] for line in git("ls-files", "-u", cwd=mine).splitlines()} == {"Dockerfile"}
    text = (mine / "Dockerfile").read_text(encoding="utf-8")
    assert 'CMD ["zsh"]' in text and 'CMD ["bash", "-l"]' in text and "<<<<<<< " in text


# ---------------------------------------------------------------------------------------------------------------------
# A new release of the stack

RELEASES = {
    "wheel": ("2.16.0-cu130", "2.16.0+cu130", "python:3.12-slim-trixie", "torch>=2.16,<2.17"),
    "ngc": ("26.11", "2.16.0a0+abcdef1.nv26.11", "nvcr.io/nvidia/pytorch:26.11-py3", None),
    "cuda": ("13.0.4-torch-2.16.0", "2.16.0+cu130", "nvidia/cuda:13.0.4-devel-ubuntu24.04", "torch>=2.16,<2.17"),
}


def add_release(template: Path, base: str, **changes: object) -> None:
    """Add a release to a base, as a maintainer would: a copy of the newest confirmed one, with another version."""
    path = template / "catalogue/images.yml"
    text = path.read_text(encoding="utf-8")
    releases = yaml.safe_load(text)["releases"][base]
    name, torch, image, requirement = RELEASES[base]
    entry = dict(next(entry for entry in releases.values() if entry["status"] == "confirmed" and entry["cuda"]))
    entry.update(torch=torch, image=image, requirement=requirement, torchvision=requirement and "0.31.0", **changes)
    block = f"  {base}:\n    {json.dumps(name)}: {json.dumps(entry)}\n"
    head, found, tail = text.partition("\nreleases:\n")
    assert found and tail.count(f"  {base}:\n") == 1
    path.write_text(head + found + tail.replace(f"  {base}:\n", block), encoding="utf-8")


@pytest.mark.parametrize("base", RELEASES)
def test_a_new_release_arrives_everywhere_at_once(
    template: Path, project: Callable[..., Path], tmp_path: Path, base: str
) -> None:
    mine = project(base=base)
    name, torch, image, requirement = RELEASES[base]
    add_release(template, base)
    release(template)
    update(mine)
    dockerfile = (mine / "Dockerfile").read_text(encoding="utf-8")
    readme = (mine / "README.md").read_text(encoding="utf-8")
    assert (stack(mine)["release"], stack(mine)["torch"], stack(mine)["image"]) == (name, torch, image)
    assert image in dockerfile
    assert requirement is None or stack(mine)["torch_install"]["requirement"] == requirement
    assert f"`{image}`" in readme and f"PyTorch {torch}," in readme and f"| Release | {name}, " in readme
    assert answers(mine)["release"] == "current"
    assert texts(mine) == texts(fresh(template, tmp_path / "fresh", NEW, base=base))
    assert Validation(mine).problems() == []


PINS = {"wheel": "2.13.0-cu130", "ngc": "26.06", "cuda": "13.0.3-torch-2.14.1"}


@pytest.mark.parametrize("base", PINS)
def test_a_pin_stays(template: Path, project: Callable[..., Path], base: str) -> None:
    mine = project(base=base, release=PINS[base])
    before = texts(mine, ".copier-answers.yml")
    assert stack(mine)["channel"] == "pin"
    add_release(template, base)
    release(template)
    update(mine)
    assert texts(mine, ".copier-answers.yml") == before
    assert answers(mine)["release"] == PINS[base]


def test_the_end_of_a_pin_is_announced(
    template: Path, project: Callable[..., Path], copier: object, capfd: pytest.CaptureFixture[str]
) -> None:
    copier.setenv("GPU_TEMPLATE_SMOKE", "off")
    mine = project(base="ngc", release="26.06")
    end = str(datetime.date.today() + datetime.timedelta(days=9))
    images = template / "catalogue/images.yml"
    entry = re.search(r'    "26\.06":\n.*?end_of_life: null', images.read_text(encoding="utf-8"), re.S)[0]
    change(images, entry, entry.replace("end_of_life: null", f'end_of_life: "{end}"'))
    release(template)
    update(mine, hooks=True)
    assert f"validate: notice: The support of ngc 26.06 ends in 9 days, on {end}. " in capfd.readouterr().out


# ---------------------------------------------------------------------------------------------------------------------
# A new gpukit


def test_an_update_is_small(template: Path, project: Callable[..., Path], copier: object) -> None:
    """The releases differ in the base's release, the driver floor, and gpukit's code."""
    copier.setenv("GPU_TEMPLATE_SMOKE", "off")
    mine = project()
    old = vendor.put(writer.for_project(template / "gpukit"), mine)
    commit(mine)
    add_release(template, "wheel", driver="595.10")
    with (template / "gpukit/src/gpukit/doctor/driver.py").open("a") as file:
        file.write("\n\ndef added() -> None:\n    pass\n")
    release(template)
    update(mine, hooks=True)
    git("add", "-A", cwd=mine)
    assert git("ls-files", "-u", cwd=mine) == ""
    rows = [row.split("\t") for row in git("diff", "--cached", "--no-renames", "--numstat", cwd=mine).splitlines()]
    wheels = {name for added, _, name in rows if added == "-"}
    new = writer.file_name(writer.for_project(template / "gpukit"))
    assert wheels == {f"vendor/{old.name}", f"vendor/{new}"} and old.name != new
    assert [path.name for path in (mine / "vendor").iterdir()] == [new]
    assert len(rows) <= 9
    assert sum(int(added) + int(removed) for added, removed, name in rows if name not in wheels) <= 40
    assert (stack(mine)["release"], stack(mine)["driver"]) == (RELEASES["wheel"][0], "595.10")
    assert Validation(mine).problems() == []


def test_a_clone_has_its_wheel_and_runs(project: Callable[..., Path], tmp_path: Path, copier: object) -> None:
    """Even with the user's global gitignore, and if git converts line endings to CRLF."""
    ignores = tmp_path / "ignores"
    ignores.write_text("vendor/\n*.whl\n*.env\n.env*\n")
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[user]\n\tname = a\n\temail = a@example.org\n"
        f"[core]\n\texcludesFile = {ignores}\n\tautocrlf = true\n\tsafecrlf = false\n"
    )
    copier.setenv("GIT_CONFIG_GLOBAL", str(config))
    mine = project()
    wheel = vendor.put(writer.for_project(ROOT / "gpukit"), mine)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": str(config)}
    for command in (
        ["git", "-C", str(mine), "add", "-A"],
        ["git", "-C", str(mine), "commit", "-qm", "generated"],
        ["git", "clone", "-q", str(mine), str(tmp_path / "elsewhere")],
    ):
        subprocess.run(command, env=environment, check=True)
    clone = tmp_path / "elsewhere"
    assert (clone / "vendor" / wheel.name).read_bytes() == wheel.read_bytes()
    assert b"\r\n" in (clone / "README.md").read_bytes(), "this git does turn line ends"
    done = subprocess.run([clone / "launch", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run([clone / "launch", "--dry-run", "run", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(clone) in done.stdout


# ---------------------------------------------------------------------------------------------------------------------
# Another answer


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"hardware": "dgx-spark"}),
        ({"hardware": "cpu", "tracking": ["mlflow"]}, {"hardware": "h100", "also_on": ["rtx-40"]}),
        ({"hardware": "dgx-spark"}, {"hardware": "gtx-10"}),
        ({"hardware": "jetson-orin", "tracking": ["tensorboard"]}, {"hardware": "gb300"}),
        ({"hardware": "rtx-50"}, {"hardware": "cpu"}),
        ({"workflow": "scripts"}, {"workflow": "notebook"}),
        ({"shared_machine": True, "tracking": ["mlflow"]}, {"shared_machine": False, "tracking": []}),
    ],
    ids=lambda answers: "-".join(map(str, answers.values())) or "defaults",
)
def test_a_changed_answer_changes_all_files(
    template: Path, project: Callable[..., Path], tmp_path: Path, before: dict, after: dict
) -> None:
    mine = project(**before)
    update(mine, OLD, **after)
    assert git("ls-files", "-u", cwd=mine) == ""
    same = fresh(template, tmp_path / "fresh", **{**before, **after})
    assert texts(mine, *YOURS) == texts(same, *YOURS)
    assert (mine / "notebooks").exists() == (same / "notebooks").exists()
    assert Validation(mine).problems() == []


def test_a_selected_base_stays_if_the_new_hardware_supports_it(project: Callable[..., Path]) -> None:
    mine = project(hardware="rtx-50", base="ngc")
    update(mine, OLD, hardware="h100")
    assert (stack(mine)["base"], answers(mine)["base"]) == ("ngc", "ngc")
    commit(mine)
    update(mine, OLD, hardware="gtx-10")
    assert stack(mine)["base"] == "wheel"


@pytest.mark.parametrize("given", [{"hardware": "gtx-10"}, {"hardware": "v100", "also_on": ["gtx-10"]}])
def test_a_retired_machine_stays_in_projects_that_use_it(
    template: Path, project: Callable[..., Path], given: dict
) -> None:
    mine = project(**given)
    before = stack(mine)
    path = template / "catalogue/hardware.yml"
    head, found, tail = path.read_text(encoding="utf-8").partition("\n  gtx-10:\n")
    path.write_text(head + found + tail.replace("status: ended", "status: retired", 1), encoding="utf-8")
    release(template)
    update(mine)
    assert stack(mine) == before
    assert {name: answers(mine)[name] for name in given} == given
