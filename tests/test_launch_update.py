"""`./launch update`: what it reports, applies, refuses, and reverts."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from copier import run_copy, run_update
from plumbum import local

from gpukit.cli.main import parse
from gpukit.host import uv
from gpukit.host.process import Result
from gpukit.plan import extensions
from gpukit.project import support
from gpukit.project.messages import RefusalError
from gpukit.project.stack import minor
from gpukit.update import main, record, summary, trial
from gpukit.update.template import Template, release_key
from gpukit.wheel import vendor, writer
from tests import test_update as releases
from tests.conftest import ROOT, change, git, quick
from tests.test_update import NEW, OLD, add_release, commit, stack

template = releases.template
project = releases.project


def launch(project: Path, *arguments: str) -> int:
    return main.update(project, parse(["update", *arguments]), extensions.renew)


def refused(project: Path, *arguments: str) -> str:
    """The id of the refusal; the files must be as before."""
    before = tree(project)
    with pytest.raises(RefusalError) as error:
        launch(project, *arguments)
    assert tree(project) == before
    return error.value.id


def tree(folder: Path) -> dict[str, tuple]:
    """Every file and folder outside .git, with its mode and contents."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] != ".git":
            content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            found[name] = (path.lstat().st_mode, content)
    return found


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver, no terminal, no variables of a project."""
    monkeypatch.setattr(main, "driver", lambda: None)
    monkeypatch.setattr(main, "terminal", lambda: False)
    monkeypatch.delenv("GPUKIT_PROJECT", raising=False)


def copier_inside(argv: list[str], variables: dict[str, str]) -> Result:
    """What a command of Copier does, in this process."""
    data = dict(argv[place + 1].split("=", 1) for place, word in enumerate(argv) if word == "--data")
    options = dict(word[2:].split("=", 1) for word in argv if re.match(r"--[\w-]+=", word))
    more = {"defaults": True, "quiet": True, "unsafe": True}
    given = {"vcs_ref": options.get("vcs-ref"), "answers_file": options.get("answers-file")}
    try:
        with quick(), local.env(**variables), pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            if argv[1] == "copy":
                run_copy(*argv[-2:], data=data, **given, **more)
            else:
                run_update(argv[-1], data=data, **given, **more, overwrite=True)
    except Exception as error:
        return Result(1, err=str(error))
    return Result(0)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Run Copier in this process, which is three times as fast; returns the commands."""
    commands: list[list[str]] = []

    def run(argv: list[str], folder: Path, note: str = "", data: str | None = None, **variables: str) -> Result:
        commands.append(argv)
        return copier_inside(argv, variables)

    monkeypatch.setattr(trial, "copier", lambda folder: ["copier"])
    monkeypatch.setattr(trial, "run", run)
    return commands


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of Copier: a release that raises the driver floor and brings extra.txt."""

    def update(copy: Path, template: Template, commit: str, answers: object) -> bool:
        text = git("show", f"{commit}:template/extra.txt", cwd=template.repository)
        (copy / "extra.txt").write_text(text)
        text = (copy / "stack.json").read_text(encoding="utf-8")
        (copy / "stack.json").write_text(text.replace('"driver": "580"', '"driver": "595.10"'), encoding="utf-8")
        change(copy / ".copier-answers.yml", f"_commit: {OLD}", f"_commit: {NEW}")
        return True

    monkeypatch.setattr(trial, "update", update)


@pytest.fixture
def mine(template: Path, project: Callable[..., Path]) -> Path:
    """A committed project with its wheel."""
    folder = project()
    vendor.put(writer.for_project(template / "gpukit"), folder)
    commit(folder, "wheel")
    return folder


def new_release(template: Path, tag: str = NEW) -> None:
    subprocess.run([sys.executable, "catalogue/combine.py"], cwd=template, check=True)
    commit(template, "new")
    git("tag", tag, cwd=template)


def new_question(template: Path) -> None:
    change(
        template / "copier.yml",
        "\nadvanced:\n",
        "\npager:\n  type: str\n  help: Which?\n  default: less\n\nadvanced:\n",
    )


def new_range(template: Path) -> None:
    path = template / "catalogue/packages.yml"
    path.write_text(path.read_text(encoding="utf-8").replace('"tyro>=1.0,<2"', '"tyro>=1.1,<2"'), encoding="utf-8")


def new_gpukit(template: Path) -> None:
    with (template / "gpukit/src/gpukit/doctor/driver.py").open("a") as file:
        file.write("\n\ndef added() -> None:\n    pass\n")


def new_file(template: Path) -> None:
    (template / "template/extra.txt").write_text("extra\n")


def new_stack(template: Path) -> None:
    add_release(template, "wheel", driver="595.10")


def everything(template: Path) -> None:
    for each in (new_question, new_range, new_gpukit, new_file, new_stack):
        each(template)
    change(template / "template/Dockerfile.jinja", 'CMD ["bash"]', 'CMD ["bash", "-l"]')


def lines(text: str) -> dict[str, str]:
    found = dict(line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    assert len(found) <= 10
    return found


def test_pinned_wheels_that_fit_no_more_are_named(
    template: Path, mine: Path, stub: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = stack(mine)["torch"]
    url = f"https://host/private-1.0+cu130torch{minor(torch)}-cp312-cp312-linux_x86_64.whl#sha256={'0' * 64}"
    change(mine / "pyproject.toml", "\ndependencies = [\n", f'\ndependencies = [\n    "private @ {url}",\n')
    commit(mine)
    new_file(template)
    new_release(template)
    raised = trial.update
    assert launch(mine, "--check") == 0
    assert "private" not in capsys.readouterr().out

    def with_torch(copy: Path, *more: object) -> bool:
        raised(copy, *more)
        (copy / "stack.json").write_text(json.dumps({**stack(copy), "torch": "2.99.0+cu130"}))
        return True

    monkeypatch.setattr(trial, "update", with_torch)
    assert launch(mine, "--check") == 0
    assert "private 1.0 fits no more" in lines(capsys.readouterr().out)["packages"]


STACK = {"base", "torch", "driver", "files"}
CONFLICTS = {"Dockerfile", "pyproject.toml", "stack.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "labels"),
    [(new_question, {"answers"}), (new_range, {"packages", "files"}), (new_gpukit, {"gpukit"}), (new_file, {"files"})],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_change_is_named_and_nothing_else(
    template: Path,
    mine: Path,
    inside: list,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], None],
    labels: set[str],
) -> None:
    make(template)
    new_release(template)
    before = tree(mine)
    index = (mine / ".git/index").read_bytes()
    assert launch(mine, "--check") == 0
    assert (tree(mine), (mine / ".git/index").read_bytes()) == (before, index)
    found = lines(capsys.readouterr().out)
    assert set(found) == {"template", "next"} | labels
    expected = {
        "answers": "new question pager = less",
        "packages": "tyro >=1.0,<2 -> >=1.1,<2",
        "files": "new extra.txt" if make is new_file else "changed pyproject.toml",
        "template": f"{OLD} -> {NEW} (commit {git('rev-parse', NEW, cwd=template)[:12]})",
    }
    assert {label: found[label] for label in expected if label in found} == {
        label: text for label, text in expected.items() if label in found
    }


@pytest.mark.parametrize(
    "state", [pytest.param("clean", marks=pytest.mark.slow), pytest.param("edited", marks=pytest.mark.slow), "conflict"]
)
def test_an_update_is_applied_and_undone(
    template: Path, mine: Path, inside: list, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    if state != "clean":
        change(mine / "README.md", "## Start\n", "## What for\n\nPlates.\n\n## Start\n")
        (mine / "own.txt").write_text("mine\n")
    if state == "conflict":
        change(mine / "Dockerfile", 'CMD ["bash"]', 'CMD ["zsh"]')
        change(mine / "stack.json", f'"release": "{stack(mine)["release"]}"', '"release": "mine"')
        change(mine / "pyproject.toml", '"tyro>=1.0,<2"', '"tyro>=1.0.5,<2"')
    commit(mine) if state != "clean" else None
    (mine / "outputs").mkdir()
    (mine / "outputs/ignored.txt").write_text("ignored\n")
    before = tree(mine)
    old_wheel = next((mine / "vendor").iterdir()).name
    everything(template)
    new_release(template)
    assert launch(mine) == int(state == "conflict")
    found = lines(capsys.readouterr().out)
    assert set(found) == {"template", "answers", "gpukit", "next", *STACK} | (
        {"conflicts"} if state == "conflict" else {"packages"}
    )
    assert ("changed stack.json" in found["files"]) == (state != "conflict")
    assert found["driver"] == "580 -> 595.10 or newer"
    assert "torch" in found["torch"] or "2.16.0" in found["torch"]
    assert found.get("conflicts", "") == (", ".join(sorted(CONFLICTS)) if state == "conflict" else "")
    unmerged = {line.split("\t")[1] for line in git("ls-files", "-u", cwd=mine).splitlines()}
    assert unmerged == (CONFLICTS if state == "conflict" else set())
    if state == "conflict":
        assert "zsh" in git("show", ":2:Dockerfile", cwd=mine) and "-l" in git("show", ":3:Dockerfile", cwd=mine)
        assert "<<<<<<< before updating" in (mine / "Dockerfile").read_text(encoding="utf-8")
    else:
        assert stack(mine)["driver"] == "595.10"
    assert [path.name for path in (mine / "vendor").iterdir()] != [old_wheel]
    assert len(list((mine / "vendor").iterdir())) == 1
    assert (mine / "extra.txt").exists()
    assert refused(mine) == "update-dirty", "the last update is not committed"
    git("add", "-A", cwd=mine) if state == "edited" else None
    assert launch(mine, "--undo") == 0
    assert tree(mine) == before
    assert git("status", "--porcelain", cwd=mine) == git("ls-files", "-u", cwd=mine) == ""
    assert refused(mine, "--undo") == "nothing-to-undo"


@pytest.mark.slow
def test_undo_refuses_what_was_edited_since(template: Path, mine: Path, stub: None) -> None:
    new_file(template)
    new_release(template)
    assert launch(mine) == 0
    (mine / "note.txt").write_text("new\n")
    assert refused(mine, "--undo") == "edited-since-update"
    (mine / "note.txt").unlink()
    (mine / "extra.txt").write_text("edited\n")
    assert refused(mine, "--undo") == "edited-since-update"
    commit(mine, "the update, and an edit")
    assert refused(mine, "--undo") == "undo-other-commit"
    assert refused(mine, "--to", OLD) == "downgrade"
    assert launch(mine) == 0, "it is up to date"


@pytest.mark.slow
def test_a_driver_below_the_new_floor_is_asked_about_first(
    template: Path,
    mine: Path,
    stub: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    new_file(template)
    new_release(template)
    monkeypatch.setattr(main, "driver", lambda: "585.12")
    assert refused(mine) == "driver-below-floor"
    monkeypatch.setattr(main, "terminal", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr(main, "confirmed", lambda text: asked.append(text) or False)
    assert refused(mine) == "driver-below-floor"
    assert "595.10" in asked[0] and "585.12" in asked[0]
    capsys.readouterr()
    assert launch(mine, "--accept-driver") == 0
    assert lines(capsys.readouterr().out)["driver"] == (
        "580 -> 595.10 or newer; this machine has 585.12, which is too old"
    )
    assert stack(mine)["driver"] == "595.10" and len(asked) == 1


@pytest.mark.slow
def test_a_tag_that_moved_is_reported(
    template: Path, mine: Path, stub: None, capsys: pytest.CaptureFixture[str]
) -> None:
    new_file(template)
    new_release(template)
    assert launch(mine, "--check") == 0
    (template / "template/extra.txt").write_text("other\n")
    commit(template, "other")
    git("tag", "-f", NEW, cwd=template)
    assert refused(mine) == "template-tag-moved"
    assert launch(mine, "--check") == 0
    assert git("rev-parse", NEW, cwd=template)[:12] in capsys.readouterr().err
    assert launch(mine) == 0, "it was reported"
    assert (mine / "extra.txt").read_text() == "other\n"


@pytest.mark.slow
def test_without_a_wheel_detached_in_a_folder_and_in_conflict(
    template: Path, mine: Path, inside: list, tmp_path: Path
) -> None:
    """A project copied with -T has no vendor/; it is a folder of a repository, on no branch."""
    repository = tmp_path / "repository"
    shutil.copytree(mine, repository / "training", ignore=shutil.ignore_patterns(".git", "vendor"), symlinks=True)
    inner = repository / "training"
    change(inner / "Dockerfile", 'CMD ["bash"]', 'CMD ["zsh"]')
    git("init", "-q", cwd=repository)
    commit(repository, "generated")
    git("checkout", "-q", "--detach", cwd=repository)
    before = tree(repository)
    everything(template)
    new_release(template)
    assert launch(inner) == 1
    assert list((inner / "vendor").glob("gpukit-*.whl"))
    unmerged = {line.split("\t")[1] for line in git("ls-files", "-u", cwd=repository).splitlines()}
    assert unmerged == {"training/Dockerfile"}
    assert launch(inner, "--undo") == 0
    assert tree(repository) == before


@pytest.mark.slow
def test_answers_a_branch_and_a_private_template(
    template: Path, mine: Path, inside: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The template is fetched once, over ssh; Copier gets that clone."""
    log = tmp_path / "ssh.log"
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >>{log}\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
    monkeypatch.setenv("GIT_SSH_VARIANT", "simple")
    bare = tmp_path / "private.git"
    git("clone", "-q", "--bare", str(template), str(bare), cwd=tmp_path)
    address = f"git@example.org:{bare}"
    change(mine / ".copier-answers.yml", f"_src_path: {template}", f"_src_path: {address}")
    commit(mine, "fork")
    new_file(template)
    commit(template, "on a branch")
    git("push", "-q", str(bare), "HEAD:refs/heads/next", cwd=template)
    assert launch(mine) == 0, "no release is newer"
    assert log.read_text().count("\n") == 1
    assert launch(mine, "--to", "next", "--answers", "workflow=scripts") == 0
    assert log.read_text().count("\n") == 2
    stored = summary.answers((mine / ".copier-answers.yml").read_text(encoding="utf-8"))
    assert (stored["workflow"], stored["_src_path"]) == ("scripts", address)
    assert re.fullmatch(rf"{OLD}-1-g[0-9a-f]+", stored["_commit"])
    commit(mine, "updated")
    assert launch(mine) == 0, "newer than the newest release"
    assert launch(mine, "--to", "current", "--answers", "workflow=notebook") == 0
    assert summary.answers((mine / ".copier-answers.yml").read_text(encoding="utf-8"))["workflow"] == "notebook"
    commit(mine, "answered")
    assert launch(mine, "--to", "current", "--answers", "workflow=notebook") == 0
    assert not git("status", "--porcelain", cwd=mine), "nothing changes"
    assert refused(mine, "--to", "current", "--answers", "workflow") == "not-an-answer"
    assert refused(mine, "--answers") == "no-terminal"
    assert refused(mine, "--to", "current", "--answers", "workflow=none") == "copier-failed"
    with pytest.raises(RefusalError, match=r"nothing was changed: cluster: [^']+\Z"):  # the template's own sentence
        launch(mine, "--to", "current", "--answers", "cluster=slurm")


@pytest.mark.slow
def test_what_cannot_be_updated(template: Path, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_file(template)
    new_release(template)
    assert refused(mine, "--to", "5.0") == "release-unknown"
    change(mine / "Dockerfile", 'CMD ["bash"]', 'CMD ["zsh"]')
    assert refused(mine, "--check") == "update-dirty"
    git("checkout", "-q", "Dockerfile", cwd=mine)
    with record.locked(mine):
        done = subprocess.run(
            [sys.executable, "-m", "gpukit", "update", "--check"],
            cwd=mine,
            env={**os.environ, "PYTHONPATH": str(ROOT / "gpukit/src")},
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1 and "is running" in done.stderr
    answers = (mine / ".copier-answers.yml").read_text(encoding="utf-8")
    for old, new, id in [
        (f"_commit: {OLD}", "_commit: 0.0.1", "template-commit-gone"),
        (f"_src_path: {template}", f"_src_path: {tmp_path}/gone", "template-gone"),
        (f"_src_path: {template}", "_src_path: https://127.0.0.1:9/gone.git", "program-failed"),
        (f"_commit: {OLD}\n", "", "no-answers"),
        ("workflow: notebook", "<<<<<<< a\nworkflow: notebook\n>>>>>>> b", "committed-conflict"),
    ]:
        (mine / ".copier-answers.yml").write_text(answers.replace(old, new), encoding="utf-8")
        commit(mine, id)
        assert refused(mine) == id
    with pytest.raises(RefusalError, match="cannot be fetched"):
        Template("https://127.0.0.1:9/gone.git", tmp_path)
    assert main.update.__doc__
    (tmp_path / "no-git").mkdir()
    assert refused(tmp_path / "no-git") == "update-no-git"
    monkeypatch.setenv("PATH", str(Path(shutil.which("git") or "").parent / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UV", raising=False)
    with pytest.raises(RefusalError) as error:
        trial.copier(tmp_path)
    assert error.value.id == "uv-missing" and uv.INSTALL in str(error.value)


def test_copier_is_an_installed_one_or_comes_from_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("copier", "copier 9.18.2"), ("uv", "uv 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.delenv("UV", raising=False)
    assert trial.copier(tmp_path)[:3] == [str(tmp_path / "uv"), "tool", "run"]
    (tmp_path / "copier").write_text("#!/bin/sh\necho copier 9.19.1\n")
    assert trial.copier(tmp_path) == [str(tmp_path / "copier")]


def test_releases_are_ordered_as_copier_orders_them() -> None:
    from packaging.version import Version

    tags = ["v1.0", "1.0.1", "1.10", "1.9.post1", "1.9", "2.0rc1", "2.0.dev3", "next", "1.9-2", "1!0.1", "v1.9.0+a.1"]
    final = [tag for tag in tags if release_key(tag)]
    assert set(tags) - set(final) == {"2.0rc1", "2.0.dev3", "next"}
    assert sorted(final, key=release_key) == sorted(final, key=lambda tag: Version(Version(tag).public))


def test_an_untagged_clone_is_as_new_as_its_own_head(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    clone = tmp_path / "clone"
    another = ["commit", "-q", "--allow-empty", "-m", "another"]
    git("init", "-q", str(origin), cwd=tmp_path)
    git(*another, cwd=origin)
    git("clone", "-q", str(origin), str(clone), cwd=tmp_path)
    git(*another, cwd=clone)
    template = Template(str(clone), tmp_path)
    assert template.newest() == git("rev-parse", "HEAD", cwd=clone).strip()
    assert template.commit("HEAD~1") == git("rev-parse", "HEAD", cwd=origin).strip()


def test_a_summary_without_stack_json(mine: Path) -> None:
    (mine / "stack.json").unlink()
    found = summary.compare(mine, driver="570.10")
    assert not found.too_old and "stack.json" in found.text("update")


def test_what_the_summary_reads() -> None:
    text = "# comment\n_commit: 1.0\nalso_on:\n- h100\n- 'rtx-40'\nnone: []\nname: 'it''s'\nlong: a\n    b\n"
    assert summary.answers(text) == {
        "_commit": "1.0",
        "also_on": "[h100, rtx-40]",
        "none": "[]",
        "name": "it's",
        "long": "a b",
    }
    several = {"driver": "580", "targets": {"a": {"driver": "590"}, "b": {"driver": "600"}}}
    assert summary.floor(several) == "590", "this machine may have the least demanding card"
    assert summary.floor({"driver": None, "targets": {"cpu": {"driver": None}}}) == ""
    old = '[project]\ndependencies = ["a>=1", "b", "c[x]>=2"]\n'
    new = '[project]\ndependencies = ["a>=2", "c[x]>=2", "d; platform_machine == \'x\'"]\n'
    assert summary.package_line(old, new) == "a >=1 -> >=2; new d ; platform_machine == 'x'; without b"
    assert summary.shown(list("abcdefgh")) == "a, b, c, d, e, f, and 2 more"


@pytest.mark.parametrize(("release", "too_old"), [((36, 4), True), ((38, 2), False)])
def test_a_jetson_is_judged_by_its_system(mine: Path, release: tuple[int, ...], too_old: bool) -> None:
    change(mine / "stack.json", '"driver": "580",\n  "end_of_life"', '"driver": "590",\n  "end_of_life"')
    assert summary.compare(mine, "540.4.0", release).too_old is too_old


@pytest.mark.slow
@pytest.mark.parametrize(
    ("day", "said"),
    [("2028-05-10", ""), ("2028-05-11", "ends in 90 days, on 2028-08-09"), ("2028-08-10", "ended on 2028-08-09")],
)
def test_the_end_of_support_is_announced_in_advance(
    mine: Path,
    template: Path,
    stub: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    day: str,
    said: str,
) -> None:
    monkeypatch.setattr(main, "today", lambda: datetime.date.fromisoformat(day))
    text = (mine / "stack.json").read_text(encoding="utf-8")
    found = {**json.loads(text), "base": "wheel", "release": "1", "end_of_life": "2028-08-09"}
    (mine / "stack.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    commit(mine, "a date")
    assert launch(mine) == 0, "there is no update"
    assert bool(said) == ("The support of wheel 1" in (message := capsys.readouterr().err)) and said in message
    new_file(template)
    new_release(template)
    assert launch(mine, "--check") == 0, "there is one, with the same end"
    assert said in capsys.readouterr().err
    change(mine / "stack.json", '"channel": "current"', '"channel": "pin"')
    pinned = support.notice(json.loads((mine / "stack.json").read_text()), main.today())
    assert ("--answers release=current" in pinned) == bool(said)


@pytest.mark.slow
def test_two_branches(template: Path, mine: Path, stub: None) -> None:
    new_file(template)
    new_release(template)
    before = tree(mine)
    git("checkout", "-qb", "first", cwd=mine)
    assert launch(mine) == 0
    commit(mine, "updated")
    assert refused(mine, "--undo") == "undo-other-commit"
    git("checkout", "-q", "-", cwd=mine)
    assert refused(mine, "--undo") == "nothing-to-undo"
    git("checkout", "-qb", "second", "first~1", cwd=mine)
    assert tree(mine) == before
    assert launch(mine) == 0
    assert launch(mine, "--undo") == 0
    assert tree(mine) == before


# ---------------------------------------------------------------------------------------------------------------------
# Interruptions


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A repository, and a copy of it in which files were changed, added, and removed."""
    project = tmp_path / "p"
    (project / "vendor").mkdir(parents=True)
    for name, text in {
        "a.txt": "a\n",
        "b/c.txt": "c\n",
        "gone.txt": "x\n",
        "was": "file\n",
        "vendor/gpukit-1-x.whl": "1",
    }.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "program").write_text("#!/bin/sh\n")
    (project / "program").chmod(0o755)
    (project / "link").symlink_to("a.txt")
    os.utime(project / "a.txt", (4_000_000_000, 4_000_000_000))  # of a clock that was wrong
    os.utime(project / "b/c.txt", (1, 1))
    git("init", "-q", cwd=project)
    commit(project)
    copy = trial.duplicate(project, tmp_path)
    (copy / "a.txt").write_text("a2\n")
    (copy / "gone.txt").unlink()
    (copy / "was").unlink()
    (copy / "was").mkdir()
    (copy / "was/now.txt").write_text("folder\n")
    (copy / "program").chmod(0o644)
    (copy / "link").unlink()
    (copy / "link").symlink_to("b/c.txt")
    (copy / "vendor/gpukit-1-x.whl").unlink()
    (copy / "vendor/gpukit-2-x.whl").write_text("2")
    (copy / "new folder").mkdir()
    (copy / "new folder/ä b.txt").write_bytes(b"\r\n\xff")
    return project, copy


class KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours runs afterwards."""


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Raise at the given step of those that change something."""
    steps = itertools.count()

    def step(real: Callable) -> Callable:
        def run(*arguments: object) -> object:
            if next(steps) == at:
                raise KilledError
            return real(*arguments)

        return run

    for name in ("duplicate", "remove", "store", "mark"):
        monkeypatch.setattr(record, name, step(getattr(record, name)))


@pytest.mark.slow
@pytest.mark.parametrize("during", ["apply", "undo"])
def test_an_interruption_at_any_point_is_reverted(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    project, copy = pair
    before = tree(project)
    for at in itertools.count():
        if during == "undo":
            record.apply(project, copy, [], {})
        with monkeypatch.context() as patch:
            interrupt(patch, at)
            if during == "apply":
                patch.setattr(record, "revert", lambda *_: (_ for _ in ()).throw(KilledError))
            try:
                record.apply(project, copy, [], {}) if during == "apply" else record.undo(project)
                ended = True
            except KilledError:
                ended = False
        wheels = list((project / "vendor").glob("gpukit-*.whl"))
        assert wheels, "./launch must run at any time"
        unfinished = record.load(project).get("state") == "unfinished"
        if at % 2 and record.load(project):
            record.undo(project)
        else:
            assert record.recover(project) == unfinished
            record.undo(project) if record.load(project) else None
        assert tree(project) == before, at
        assert git("status", "--porcelain", cwd=project) == ""
        if ended:
            break
    assert at > 10


@pytest.mark.slow
def test_ctrl_c_reverts_at_once(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, copy = pair
    before = tree(project)
    monkeypatch.setattr(record, "mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        record.apply(project, copy, [], {})
    assert tree(project) == before and not record.load(project)


@pytest.mark.slow
def test_an_edit_after_an_interruption_is_kept(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, copy = pair
    with monkeypatch.context() as patch:
        patch.setattr(record, "mark", lambda *_: (_ for _ in ()).throw(KilledError))
        patch.setattr(record, "revert", lambda *_: None)
        with pytest.raises(KilledError):
            record.apply(project, copy, [], {})
    (project / "a.txt").write_text("edited\n")
    with pytest.raises(RefusalError) as error:
        record.recover(project)
    assert error.value.id == "edited-since-update"
    commit(project, "kept")
    assert not record.recover(project), "its owner has committed it"


@pytest.mark.slow
def test_launch_updates_with_two_wheels(template: Path, mine: Path) -> None:
    """The whole way, as a user runs it: another process, Copier's own command, and an interruption between wheels."""
    new_gpukit(template)
    new_release(template)
    before = tree(mine)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUKIT", "PYTHON"))}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(mine / "launch"), "update", *arguments]
        return subprocess.run(command, cwd=mine, env=environment, capture_output=True, text=True)

    done = run()
    assert done.returncode == 0, done.stderr
    assert set(lines(done.stdout)) == {"template", "gpukit", "next"}
    old = next(name for name in before if name.endswith(".whl"))
    (mine / old).write_bytes(before[old][1])
    kept = record.load(mine)
    record.store(mine, {**kept, "state": "unfinished"})
    done = run("--undo")
    assert (done.returncode, tree(mine)) == (0, before), done.stderr
    done = run("--undo")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
