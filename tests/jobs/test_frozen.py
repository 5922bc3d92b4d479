"""A job runs the code that it was submitted with, whatever happens to the project meanwhile."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace as Namespace

import pytest

from gpukit.cli.main import main
from gpukit.host import frozen, shared
from gpukit.host import queue as place
from gpukit.jobs import worker
from gpukit.jobs.table import Table
from gpukit.project.location import ADOPTED
from gpukit.project.messages import RefusalError
from tests.jobs.small import kills
from tests.jobs.test_jobs import Queue, queue, root  # noqa: F401

# Prints what it finds; HEAD is its own code.
SHOW = """
import os, pathlib, subprocess
print(sorted((str(path), path.read_text()) for path in pathlib.Path("src").rglob("*.py") if path.is_file()))
git = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
print(git("rev-parse", "HEAD"), git("status", "--porcelain"), git("diff", "HEAD"))
pathlib.Path("outputs", os.environ["GPUKIT_JOB"]).write_text(pathlib.Path("data/kept").read_text())
"""


def git(folder: Path, *words: str) -> str:
    who = {f"GIT_{role}_{what}": "t" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-c", "init.defaultBranch=main", *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **who}, capture_output=True, text=True, check=True
    ).stdout


def write(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")


def sources(folder: Path) -> str:
    files = [path for path in (folder / "src").rglob("*.py") if path.is_file()]
    return str(sorted((str(path.relative_to(folder)), path.read_text()) for path in files))


def state(folder: Path) -> list[str]:
    """What a submission must not change."""
    asked = [("status", "--porcelain"), ("stash", "list"), ("branch", "-v"), ("diff",), ("diff", "--cached")]
    return [git(folder, *words) for words in asked]


@pytest.fixture
def repository(root: Path) -> Path:  # noqa: F811
    write(root, ".gitignore", "/outputs/\n/data/\n/.launch/\n__pycache__/\n.env\n")
    write(root, "data/kept", "shared")
    write(root, ".env", "SECRET=planted\n")
    for name in "abc":
        write(root, f"src/{name}.py", f"{name} = 0\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def edits(root: Path) -> list[object]:  # noqa: F811
    def renamed() -> None:
        (root / "src/b.py").rename(root / "src/two words é.py")

    def folder_for_a_file() -> None:
        (root / "src/a.py").unlink()
        write(root, "src/a.py/inner.py", "inner = 1\n")

    def link_for_a_folder() -> None:
        shutil.rmtree(root / "src/a.py")
        git(root, "add", "src/deep")
        (root / "src/deep").rename(root / "data/deep")
        (root / "src/deep").symlink_to("../data/deep")

    def deleted_branch() -> None:
        git(root, "checkout", "-qb", "other")
        git(root, "commit", "-qam", "second")
        git(root, "checkout", "-q", "main")
        git(root, "branch", "-qD", "other")

    def rebased() -> None:
        git(root, "checkout", "-qb", "work")
        git(root, "commit", "-qam", "third")
        git(root, "checkout", "-q", "main")
        git(root, "commit", "-q", "--allow-empty", "-m", "fourth")
        git(root, "checkout", "-q", "work")
        git(root, "rebase", "-q", "main")

    return [
        lambda: None,
        lambda: write(root, "src/a.py", "a = 1\n"),
        lambda: write(root, "src/deep/new.py", "new = 1\n"),
        lambda: (root / "src/c.py").unlink(),
        renamed,
        lambda: git(root, "stash", "-q"),
        lambda: write(root, "src/a.py", "a = 2\n"),
        lambda: git(root, "add", "src/a.py"),
        lambda: write(root, "src/a.py", "a = 3\n"),
        deleted_branch,
        lambda: write(root, "src/a.py", "a = 4\n"),
        rebased,
        folder_for_a_file,
        link_for_a_folder,
        lambda: git(root, "checkout", "-q", "."),
        lambda: (root / "src/a.py").chmod(0o755),
        lambda: git(root, "rm", "-q", "--cached", "src/a.py"),
        lambda: write(root, "src/two\nlines.py", "lines = 2\n"),
        lambda: git(root, "add", "--intent-to-add", "src/two\nlines.py"),
        lambda: write(root, "src/a.py", ""),
    ]


@pytest.mark.parametrize("kind", ["repository", "worktree", "none"])
def test_each_job_runs_the_code_it_was_submitted_with(
    queue: Queue,  # noqa: F811
    repository: Path,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "worktree":
        git(repository, "worktree", "add", "-q", str(repository / ".launch/elsewhere"))
        shutil.move(repository / ".git", repository / ".git.first")
        shutil.copy(repository / ".launch/elsewhere/.git", repository / ".git")
        text = (repository / ".git").read_text().replace("/.git/", "/.git.first/")
        (repository / ".git").write_text(text)
        write(repository, ".gitignore", (repository / ".gitignore").read_text() + "/.git.first/\n")
        shutil.rmtree(repository / ".launch/elsewhere")
    elif kind != "repository":
        shutil.rmtree(repository / ".git")
    changes = edits(repository) if kind == "repository" else edits(repository)[:5]
    expected = []
    for change in changes:
        change()
        before = state(repository) if kind == "repository" else []
        assert main(["submit", "--", sys.executable, "-c", SHOW]) == 0
        assert before == (state(repository) if kind == "repository" else [])
        expected.append(sources(repository))
    assert main(["submit", "--latest", "--", sys.executable, "-c", "print(open('src/a.py').read())"]) == 0
    write(repository, "src/a.py", "a = 'latest'\n")
    if kind == "repository":
        git(repository, "reflog", "expire", "--expire=now", "--all")
        git(repository, "gc", "-q", "--prune=now")
    queue.start()
    count = len(expected)
    queue.until_states(*["finished"] * (count + 1))

    def checkouts() -> list[Path]:
        return [path for path in (repository / ".launch/jobs").glob("[0-9]*") if path.is_dir()]

    queue.until(lambda: not checkouts())
    for number, files in enumerate(expected, 1):
        code = queue.table.get(number)["code"]
        assert queue.log(number).splitlines() == [files, f"{code}  "], number
        assert (repository / f"outputs/{number}").read_text() == "shared"
        assert queue.table.get(number)["note"] == ""
    assert queue.log(count + 1) == "a = 'latest'\n\n" and queue.table.get(count + 1)["code"] == ""
    # a retry runs the same code; git may remove what no job needs
    assert main(["jobs", "retry", "2"]) == 0
    queue.until(lambda: queue.table.get(count + 2)["state"] == "finished" and not checkouts())
    assert queue.log(count + 2) == queue.log(2) != queue.log(1)
    frozen.forget(repository, lambda: {queue.table.get(1)["code"]})
    if kind == "repository":
        listed = git(repository, "for-each-ref", "--format=%(refname)", "refs/gpukit").split()
        assert listed == [f"{frozen.REFS}/{queue.table.get(1)['code']}"]
        git(repository, "gc", "-q", "--prune=now")
        capsys.readouterr()
        assert main(["jobs", "retry", "2"]) == 1 and "submit the job again" in capsys.readouterr().err


@pytest.mark.parametrize("why", ["a filter is missing", "the disk is full"])
def test_code_that_cannot_be_checked_out_fails_its_job_and_no_other(
    queue: Queue,  # noqa: F811
    repository: Path,
    why: str,
) -> None:
    large = repository / "src/large.bin"
    large.write_bytes(random.Random(0).randbytes(4 << 20))
    if why == "a filter is missing":
        write(repository, ".gitattributes", "*.bin filter=lfs\n")
        (repository / ".git/lfs").mkdir()  # git LFS was used here
    try:
        if why == "the disk is full":
            small = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(repository / ".launch")]
            (repository / ".launch").mkdir(exist_ok=True)
            queue.table.base.close()
            if os.getuid() != 0 or subprocess.run(small, capture_output=True).returncode:
                pytest.skip("no file system can be mounted here")
            queue.table = Table(place.folder(repository))
        assert main(["submit", "--", "true"]) == 0
        large.unlink()
        assert main(["submit", "--", "true"]) == 0
        queue.start()
        queue.until_states("failed", "finished")
        note = queue.table.get(1)["note"]
        assert ("disk is full" if why == "the disk is full" else "large.bin") in note and "\n" not in note
        queue.until(lambda: not [path for path in (repository / ".launch/jobs").iterdir() if path.is_dir()])
    finally:
        queue.table.base.close()
        if why == "the disk is full":
            subprocess.run(["umount", "--lazy", str(repository / ".launch")], check=False)


def test_what_a_job_writes_beside_outputs_is_not_lost(queue: Queue, repository: Path) -> None:  # noqa: F811
    code = """
import os, pathlib, time
pathlib.Path("result.txt").write_text("kept")
pathlib.Path("src/a.py").write_text("changed")
pathlib.Path("__pycache__").mkdir(exist_ok=True)
pathlib.Path("__pycache__/x.pyc").write_text("")
assert not os.path.exists(".env")
ran = pathlib.Path("outputs/ran-by-git").resolve()
settings = f'[core]\\n fsmonitor = touch {ran}\\n[filter "own"]\\n clean = touch {ran}\\n'
pathlib.Path(".git/config").write_text(settings)
pathlib.Path(".git/info/attributes").write_text("* filter=own")
pathlib.Path("outputs/started").touch()
while not os.path.exists("outputs/go"): time.sleep(0.01)
"""
    assert main(["submit", "--", sys.executable, "-c", code]) == 0
    worker = queue.start()
    queue.until((repository / "outputs/started").exists)
    worker.terminate()
    worker.wait(60)
    assert queue.states() == ["queued"] and (repository / ".launch/jobs/1/result.txt").exists()  # to resume
    (repository / "outputs/go").touch()
    queue.start()
    queue.until_states("finished")
    queue.until(lambda: queue.table.get(1)["note"])
    left = repository / "outputs/job-1-files"
    assert sorted(str(path.relative_to(left)) for path in left.rglob("*") if path.is_file()) == [
        "result.txt",
        "src/a.py",
    ]
    assert "outputs/job-1-files" in queue.table.get(1)["note"]
    assert (repository / "src/a.py").read_text() == "a = 0\n"
    assert not (repository / "outputs/ran-by-git").exists(), "a job's own git settings have run a program"
    for number, first in ((2, "shutil.rmtree('.git')"), (3, "subprocess.run(['git', 'add', 'own'], check=True)")):
        code = f"import pathlib, shutil, subprocess; pathlib.Path('own').write_text('kept'); {first}"
        assert main(["submit", "--", sys.executable, "-c", code]) == 0
        queue.until(lambda number=number: f"job-{number}-files" in queue.table.get(number)["note"])
        assert [path.name for path in (repository / f"outputs/job-{number}-files").iterdir()] == ["own"]


def test_what_a_hostile_job_writes_leads_nowhere_else(repository: Path, tmp_path: Path) -> None:
    job = {"id": 1, "code": frozen.freeze(repository), "sealed": "credentials"}
    one = worker.Worker(place.folder(repository), None, Namespace(links=False), None, None)
    folder = one.code(job)
    config = folder / ".devcontainer/devcontainer.json"
    config.write_text('{"initializeCommand": "true"}', encoding="utf-8")
    one.code(job)  # after an interruption
    assert config.read_bytes() == (repository / ".devcontainer/devcontainer.json").read_bytes()
    frozen.forget(repository, set)
    assert frozen.is_kept(repository, repository / ".git", job["code"]), "a checkout needs it"
    # links to the project, paths through them, what git would wait for, and a link where its files are to be moved
    (folder / "own").write_text("kept", encoding="utf-8")
    (folder / "link").symlink_to(repository)
    write(folder, "src/a.py", "changed")
    os.mkfifo(folder / ".gitattributes")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repository / "outputs/job-1-files-2").symlink_to(elsewhere)
    folder.chmod(0)
    before = sorted(path for path in repository.rglob("*") if repository / "outputs" not in path.parents)
    assert frozen.remove(repository, folder, "job-1-files").endswith("outputs/job-1-files-3")
    after = sorted(path for path in repository.rglob("*") if repository / "outputs" not in path.parents)
    assert set(before) - set(after) == {
        path for path in before if {folder, shared.beside(folder)} & {path, *path.parents}
    }
    left = repository / "outputs/job-1-files-3"
    assert sorted(str(path.relative_to(left)) for path in left.rglob("*")) == ["link", "own", "src", "src/a.py"]
    assert not [*elsewhere.iterdir()] and not (set(after) - set(before))


# What an adopted repository's job finds and writes. git ignores *.pt, data/, and .env.
ADOPTED_JOB = """
import os, pathlib, sys
def add(path, text):
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text)
print(pathlib.Path("src/a.py").read_text(), pathlib.Path("data/kept").read_text(), pathlib.Path("old.pt").read_text())
print(pathlib.Path(".env").read_text(), *sorted(os.listdir(".gpukit")))
job = os.environ["GPUKIT_JOB"]
add(f"data/{job}", "in a shared folder")
add("out/new.pt", job)
add("out/log.csv", job)
add("next.pt", job)
os.replace("next.pt", "old.pt")
add("src/a.py", "changed")
add("__pycache__/x.pyc", "")
if job == "2":
    add("late.pt", job)
    add("data/../late.pt", "the user's")  # data is a link
"""


def test_a_job_of_an_adopted_repository_shares_what_git_ignores(queue: Queue, repository: Path) -> None:  # noqa: F811
    queue.table.base.close()
    for name in ("stack.json", ".devcontainer/devcontainer.json", ".devcontainer/cpu/devcontainer.json"):
        (repository / ADOPTED[name]).parent.mkdir(exist_ok=True)
        (repository / name).rename(repository / ADOPTED[name])
    write(repository, ".gpukit/.gitignore", "*\n!stack.json\n!.gitignore\n")
    write(repository, ".gitignore", "/data/\n*.pt\n__pycache__/\n.env\n")
    write(repository, "old.pt", "first")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "adopted")
    write(repository, "src/compiled.pyc", "")
    adopted = Queue(repository)
    queue.workers = adopted.workers
    for _ in (1, 2):
        assert main(["submit", "--", sys.executable, "-c", ADOPTED_JOB]) == 0
    write(repository, "src/a.py", "a = 'later'\n")
    before = state(repository)
    assert "compiled" not in git(repository, "ls-tree", "-r", "--name-only", adopted.table.get(1)["code"])
    adopted.start()
    adopted.until_states("finished", "finished")
    adopted.until(lambda: not any(path.is_dir() for path in (repository / ".gpukit/jobs").glob("[0-9]*")))
    logs = [(repository / f".gpukit/jobs/{number}.log").read_text().splitlines() for number in (1, 2)]
    assert [log[0] for log in logs] == ["a = 0", "a = 0"]
    assert [log[1] for log in logs] == [" shared first", " shared 1"]
    assert all("SECRET=planted" in log[2] for log in logs)
    assert [log[3].split() for log in logs] == [[".gitignore", "outputs", "stack.json"]] * 2
    assert (repository / "data/1").exists() and (repository / "data/2").exists()
    assert (repository / "out/new.pt").read_text() == "2", "as without the queue"
    assert (repository / "old.pt").read_text() == "2"
    assert (repository / "late.pt").read_text() == "the user's"
    kept = repository / ".gpukit/outputs"
    found = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    others = {f"job-{number}-files/{path}" for number in (1, 2) for path in ("out/log.csv", "src/a.py")}
    assert found == {*others, "job-2-files/late.pt"}
    assert state(repository) == before, "no results among the code"
    adopted.table.base.close()


def test_what_is_no_code_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (repository / "model.bin").open("wb") as file:
        file.truncate(int(frozen.LARGE) + 1)
    with pytest.raises(RefusalError, match=r"model.bin.*--latest"):
        frozen.freeze(repository)
    (repository / "model.bin").unlink()
    (repository / "images").mkdir()
    for number in range(11):
        with (repository / f"images/{number}").open("wb") as file:
            file.truncate(int(frozen.LARGE))
    with pytest.raises(RefusalError, match=r"1.1 GB.*--latest"):
        frozen.freeze(repository)
    shutil.rmtree(repository / "images")
    git(repository, "init", "-q", "src/other")
    write(repository, "src/other/x.py", "")
    with pytest.raises(RefusalError, match=r"src/other.*--latest"):
        frozen.freeze(repository)
    assert main(["submit", "--latest", "true"]) == 0
    assert main(["submit", "true"]) == 1
    assert main(["--no-credentials", "submit", "--latest", "true"]) == 1
    with Table(repository / ".launch/jobs") as table:
        assert len(table.recent(10)) == 1, "what could not be frozen is not in the queue"
    write(repository, ADOPTED["stack.json"], "{}")
    assert main(["--no-credentials", "submit", "true"]) == 1, "what git ignores there may be secrets"


def test_only_changed_files_are_frozen_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "FRESH", 0)
    first = frozen.freeze(repository)
    with monkeypatch.context() as patch:
        patch.delattr(frozen, "git")
        assert frozen.freeze(repository) == first
    path = repository / "src/a.py"
    before = path.stat()
    path.write_text("a = 7\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = frozen.freeze(repository)
    assert git(repository, "show", f"{second}:src/a.py") == "a = 7\n"
    git(repository, "commit", "-qam", "second")
    head = git(repository, "rev-parse", "HEAD").strip()
    assert frozen.freeze(repository) == frozen.freeze(repository) == head
    frozen.forget(repository, set)
    assert frozen.freeze(repository) == head
    assert git(repository, "for-each-ref", "--format=%(objectname)", frozen.REFS).split() == [head]


@pytest.mark.slow
def test_kills_lose_no_job_and_leave_nothing(queue: Queue, repository: Path) -> None:  # noqa: F811
    """benchmarks/experiments.py kills more often."""
    write(repository, "src/code.py", "print(0)\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    assert {what: count for what, count in kills(repository, 4).items() if count} == {}
