"""`gpukit update --pull-request`: the steps against a bare remote, and a `gh` that answers as recorded."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpukit.project.messages import RefusalError
from gpukit.update import main, request, trial
from tests import test_launch_update as local
from tests.conftest import git
from tests.test_launch_update import launch, new_release, tree
from tests.test_update import NEW, OLD, change, commit

template = local.template
project = local.project
mine = local.mine
inside = local.inside
machine = local.machine
pytestmark = pytest.mark.slow

BRANCH = "gpukit-update/main"

# What gh prints without a terminal: `pr list --json` one JSON array, `pr create` the address, `api --silent` nothing.
# https://cli.github.com/manual/gh_pr_list, gh_pr_create, gh_api (2026-11-23). The refusal is quoted in
# https://github.com/microsoft/AL-Go/issues/159.
GH = """#!/usr/bin/env python3
import json, os, pathlib, sys
folder, words = pathlib.Path(__file__).parent, sys.argv[1:]
with (folder / "log").open("a") as file: file.write(json.dumps(words) + "\\n")
path = folder / "requests.json"
known = json.loads(path.read_text()) if path.exists() else []
option = lambda name: words[words.index(name) + 1]
if (folder / "refusal").exists() and words[:2] != ["pr", "list"]:
    sys.exit((folder / "refusal").read_text())
if (folder / "offline").exists():
    sys.exit("error connecting to api.github.com\\ncheck your internet connection or https://githubstatus.com")
if words[:2] == ["pr", "list"]:
    print(json.dumps([each for each in known if each.pop("head") == option("--head")]))
elif words[:2] == ["pr", "create"]:
    number = len(known) + 1
    body = pathlib.Path(option("--body-file")).read_text()
    url = "https://github.com/o/r/pull/%d" % number
    new = dict(number=number, url=url, state="OPEN", body=body, head=option("--head"), title=option("--title"))
    new["isCrossRepository"] = False
    known.insert(0, new)
    print(url)
elif words[0] == "api":
    number = int(words[3].rpartition("/")[2])
    each = next(each for each in known if each["number"] == number)
    each["title"] = words[words.index("-f") + 1].partition("=")[2]
    each["body"] = pathlib.Path(words[words.index("-F") + 1].partition("=@")[2]).read_text()
else:
    sys.exit("unknown command")
if words[:2] != ["pr", "list"]:
    path.write_text(json.dumps(known))
"""


class Hub:
    """GitHub: a bare repository, and gh."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.folder = folder / "gh"
        self.project = project
        self.folder.mkdir()
        (self.folder / "gh").write_text(GH)
        (self.folder / "gh").chmod(0o755)
        self.remote = folder / "remote.git"
        git("init", "-q", "--bare", "-b", "main", str(self.remote), cwd=folder)
        git("branch", "-M", "main", cwd=project)
        git("remote", "add", "origin", str(self.remote), cwd=project)
        git("push", "-q", "origin", "main", cwd=project)

    def requests(self) -> list[dict[str, Any]]:
        path = self.folder / "requests.json"
        return json.loads(path.read_text()) if path.exists() else []

    def end(self, state: str) -> None:
        known = self.requests()
        known[0]["state"] = state
        (self.folder / "requests.json").write_text(json.dumps(known))

    def tip(self) -> str:
        return git("ls-remote", str(self.remote), f"refs/heads/{BRANCH}", cwd=self.project).split("\t")[0]

    def show(self, name: str) -> str:
        return git("show", f"{BRANCH}:{name}", cwd=self.remote)


@pytest.fixture
def hub(tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    # The project's own tests, as ./launch runs them: the recorded result is in a file of the project.
    script = tmp_path / "tests.sh"
    script.write_text('#!/bin/sh\nenv >"$PWD/../environment"\ncat tests/result && exit "$(cat tests/result)"\n')
    script.chmod(0o755)
    (mine / "tests/result").write_text("0\n")
    commit(mine, "tests")
    made = Hub(tmp_path, mine)
    monkeypatch.setattr(request, "TESTS", [str(script)])
    monkeypatch.setenv("PATH", f"{made.folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GH_TOKEN", "secret")
    return made


def propose(hub: Hub) -> int:
    """Run it; whatever happens, the checkout stays as it is, and there is at most one open request."""
    before = tree(hub.project), git("rev-parse", "HEAD", cwd=hub.project), git("status", "--porcelain", cwd=hub.project)
    try:
        return launch(hub.project, "--pull-request")
    finally:
        after = (
            tree(hub.project),
            git("rev-parse", "HEAD", cwd=hub.project),
            git("status", "--porcelain", cwd=hub.project),
        )
        assert after == before
        assert sum(each["state"] == "OPEN" for each in hub.requests()) <= 1


def next_release(template: Path, tag: str, text: str) -> None:
    (template / "template/extra.txt").write_text(text)
    changelog = template / "CHANGELOG.md"
    first = re.search(r"^## ", changelog.read_text(encoding="utf-8"), re.MULTILINE)
    content = changelog.read_text(encoding="utf-8")
    place = first.start() if first else len(content)
    changelog.write_text(
        f"{content[:place]}## {tag}\n\n- {text.strip()} arrived\n\n{content[place:]}", encoding="utf-8"
    )
    new_release(template, tag)


def test_one_pull_request_through_its_life(
    template: Path,
    hub: Hub,
    inside: list,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert propose(hub) == 0, "no update"
    assert (hub.requests(), hub.tip()) == ([], "")

    workflow = next((template / "template").glob("*github*/workflows/ci.yml.jinja"))
    change(workflow, "timeout-minutes: 10", "timeout-minutes: 11")
    next_release(template, NEW, "first")
    assert propose(hub) == 0, "an update"
    (opened,) = hub.requests()
    commit_ = git("rev-parse", NEW, cwd=template).strip()
    assert (opened["title"], opened["head"]) == (f"Update the GPU stack to {NEW}", BRANCH)
    for text in (
        commit_,
        "- first arrived",
        "files      changed .github/workflows/ci.yml; new extra.txt",
        "+    timeout-minutes: 11",
    ):
        assert text in opened["body"], text
    assert (hub.show("extra.txt"), hub.show(".copier-answers.yml").count(NEW)) == ("first", 1)
    assert "timeout-minutes: 10\n" in hub.show(".github/workflows/ci.yml")
    assert git("rev-parse", f"{BRANCH}^", cwd=hub.remote) == git("rev-parse", "main", cwd=hub.remote)
    changed = set(git("diff", "--name-only", "main", BRANCH, cwd=hub.remote).split())
    assert changed == {".copier-answers.yml", "extra.txt"}

    look = SimpleNamespace(name=NEW, commit="0" * 40)
    assert commit_ in request.moved(opened, look), "the tag has moved since"
    assert request.moved(opened, SimpleNamespace(name=NEW, commit=commit_)) == request.moved(None, look) == ""

    tip = hub.tip()
    assert propose(hub) == 0, "the same again"
    assert (hub.tip(), len(hub.requests())) == (tip, 1)

    next_release(template, "9999.2.0", "second")
    assert "The support of" not in opened["body"]
    monkeypatch.setattr(main, "today", lambda: date(2099, 1, 1))
    assert propose(hub) == 0, "another update with an open request"
    (opened,) = hub.requests()
    assert opened["title"] == "Update the GPU stack to 9999.2.0"
    assert hub.show("extra.txt") == "second" and hub.tip() != tip
    assert "The support of" in opened["body"] and "has a newer release" in opened["body"]
    assert "- second arrived" in opened["body"] and "- first arrived" in opened["body"]
    assert "Unreleased" not in opened["body"], "only what is new"

    # Somebody adds a commit to the branch: it is never overwritten.
    clone = tmp_path / "clone"
    git("clone", "-q", "-b", BRANCH, str(hub.remote), str(clone), cwd=tmp_path)
    (clone / "by-hand.txt").write_text("x\n")
    commit(clone, "by hand")
    git("push", "-q", cwd=clone)
    tip = hub.tip()
    assert propose(hub) == 0
    assert hub.tip() == tip
    git("push", "-qf", "origin", f"HEAD~1:refs/heads/{BRANCH}", cwd=clone)
    opened["isCrossRepository"] = True
    (hub.folder / "requests.json").write_text(json.dumps([opened]))
    assert request.requests(hub.project, "main", BRANCH) == [], "a fork's branch of that name"
    opened["isCrossRepository"] = False
    (hub.folder / "requests.json").write_text(json.dumps([opened]))

    # Closed without merging: not opened again for this release, but for the next.
    hub.end("CLOSED")
    assert propose(hub) == 0
    assert [each["state"] for each in hub.requests()] == ["CLOSED"]
    next_release(template, "9999.3.0", "third")
    assert propose(hub) == 0
    assert [each["state"] for each in hub.requests()] == ["OPEN", "CLOSED"]


def test_what_turns_the_check_red(template: Path, hub: Hub, inside: list, tmp_path: Path) -> None:
    """Failing tests, then a conflict: the request is opened all the same, and the exit code is 1."""
    (hub.project / "tests/result").write_text("3\n")
    commit(hub.project, "failing tests")
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')
    next_release(template, NEW, "first")
    assert propose(hub) == 1
    (opened,) = hub.requests()
    assert opened["title"].endswith("(checks fail)") and ": failed" in opened["body"]

    change(hub.project / "Dockerfile", 'CMD ["bash"]', 'CMD ["zsh"]')
    commit(hub.project, "mine")
    assert propose(hub) == 1
    (opened,) = hub.requests()
    assert opened["title"].endswith("(conflicts)")
    assert "- [ ] `Dockerfile`" in opened["body"] and "not run, because of the conflicts" in opened["body"]
    assert "<<<<<<< before updating" in hub.show("Dockerfile")


def test_the_tests_do_not_get_the_token(
    template: Path, hub: Hub, inside: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_release(template, NEW, "first")
    seen: list[str] = []
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        if command == request.TESTS:
            seen.extend(options["env"])
        return real(command, **options)

    monkeypatch.setattr(request.subprocess, "run", run)
    checkout = tmp_path / "checkout"  # as actions/checkout makes it
    git("clone", "-q", "--depth=1", f"file://{hub.remote}", str(checkout), cwd=tmp_path)
    hub.project = checkout
    assert propose(hub) == 0
    assert len(hub.requests()) == 1 and hub.show("extra.txt") == "first"
    assert seen and "GH_TOKEN" not in seen


@pytest.mark.parametrize(
    ("case", "id"),
    [
        ("offline", "program-failed"),
        ("template gone", "template-gone"),
        ("not allowed", "actions-pull-requests"),
        ("detached", "no-branch"),
    ],
)
def test_without_a_pull_request(template: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, case: str, id: str) -> None:
    def update(copy: Path, *_: object) -> bool:
        change(copy / ".copier-answers.yml", f"_commit: {OLD}", f"_commit: {NEW}")
        return True

    monkeypatch.setattr(trial, "update", update)
    next_release(template, NEW, "first")
    if case == "offline":
        (hub.folder / "offline").touch()
    elif case == "template gone":
        template.rename(template.with_name("gone"))
    elif case == "detached":
        git("checkout", "-q", "--detach", cwd=hub.project)
    else:
        (hub.folder / "refusal").write_text(
            "pull request create failed: GraphQL: GitHub Actions is not permitted to create or approve pull requests "
            "(createPullRequest)"
        )
    with pytest.raises(RefusalError) as error:
        propose(hub)
    assert error.value.id == id
    assert hub.requests() == []
    assert bool(hub.tip()) == (case == "not allowed")
    if case == "not allowed":  # allowed now: the branch is there already
        (hub.folder / "refusal").unlink()
        tip = hub.tip()
        assert (propose(hub), len(hub.requests()), hub.tip()) == (0, 1, tip)


def test_a_folder_of_a_repository(template: Path, hub: Hub, inside: list, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    shutil.copytree(hub.project, repository / "training", ignore=shutil.ignore_patterns(".git"), symlinks=True)
    (repository / "other.txt").write_text("other\n")
    git("init", "-q", "-b", "main", cwd=repository)
    commit(repository, "generated")
    git("remote", "add", "origin", str(hub.remote), cwd=repository)
    git("push", "-qf", "origin", "main", cwd=repository)
    next_release(template, NEW, "first")
    assert launch(repository / "training", "--pull-request") == 0
    changed = git("diff", "--name-only", "main", f"{BRANCH}-training", cwd=hub.remote).split()
    assert changed == ["training/.copier-answers.yml", "training/extra.txt"]
