"""The code of a job: what git would commit at its `submit`, as a commit that is on no branch.

It is in the project's own repository. If that is not in the project's folder (a linked worktree, a part of a larger
repository, or none at all), it is in .launch/jobs/code.git, which containers and other nodes see too. A ref keeps it
from `git gc`. The job runs in a checkout of it, a repository whose HEAD is that commit and that borrows its objects.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpukit.host.git import attempt, git, names, sources
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError

PLACE = ".launch/jobs"
REFS = "refs/gpukit/jobs"
DAYS = 30  # for which code is kept after the end of its last job, for retries
SHARED = ("outputs", "data")  # of the project, in every checkout
LARGE = 100e6  # bytes of a new file that is probably data: GitHub refuses larger ones
NOT_KEPT = ("/outputs", "/data", "__pycache__/", "*.pyc", ".pytest_cache/", ".ruff_cache/", "*.egg-info/")
NOT_KEPT += ("/cluster/image.*", "/cluster/*.status")
AUTHOR = {f"GIT_{role}_{what}": "gpukit" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
LATEST = ", or submit with --latest, which runs the project as it is when the job starts"


def freeze(root: Path, otherwise: str = LATEST) -> str:
    """The commit of the project's files as they are now. Its working tree, index, and branches are not touched.

    Empty for an adopted repository: its jobs run the files as they are when they start.

    Raises RefusalError without git, for submodules, and for large files that nobody has told git to ignore, with what
    to do `otherwise`.
    """
    if is_adopted(root):
        return ""  # where its programs write is not known, so that a checkout would take their results with it
    if not shutil.which("git"):
        raise RefusalError(f"git keeps the code of jobs, and is not installed here: install it{otherwise}.")
    place = made(root)
    files = sources(root)
    own = (root / ".git").is_dir()
    repository = root / ".git" if own else place / "code.git"
    if not own and not repository.exists():
        with tempfile.TemporaryDirectory(prefix="freeze-", dir=place) as draft:
            git(root, "init", "--quiet", "--bare", "--template=", f"{draft}/code.git")
            with contextlib.suppress(OSError):  # another process was first
                Path(draft, "code.git").rename(repository)
    with tempfile.TemporaryDirectory(prefix="freeze-", dir=place) as draft:
        index = Path(draft, "index")
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(repository / "index", index)  # with its time, by which git knows which files it must read
        env = {"GIT_DIR": str(repository), "GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": str(index)}
        known = set(names(git(root, "ls-files", "-z", **env)))
        ours = (".launch/", *(f"{name}/" for name in SHARED))
        files = [path for path in files if path in known or not path.startswith(ours)]
        refuse_what_is_no_code(root, files, known, otherwise)
        note = "Storing the project's files for the job ..."
        git(root, "update-index", "--add", "--remove", "-z", "--stdin", data="\0".join(files), note=note, **env)
        gone = known.difference(files)
        if gone:
            git(root, "update-index", "--force-remove", "-z", "--stdin", data="\0".join(gone), **env)
        tree = git(root, "write-tree", **env).strip()
        if not own:
            index.replace(repository / "index")
    head = attempt(root, "log", "-1", "--format=%H %T %ct", GIT_DIR=str(repository)).out.split()
    parent, same, at = head or ("", "", "0")
    commit = parent
    if tree != same:
        dates = {f"GIT_{role}_DATE": f"@{at} +0000" for role in ("AUTHOR", "COMMITTER")}  # the same code, the same name
        above = ["-p", parent] if parent else []
        message = "The code of jobs, by `./launch submit`"
        commit = git(
            root, "commit-tree", tree, *above, "-m", message, GIT_DIR=str(repository), **AUTHOR, **dates
        ).strip()
    git(root, "update-ref", f"{REFS}/{commit}", commit, GIT_DIR=str(repository))
    return commit


def made(root: Path) -> Path:
    """The folder of the queue's files, which is created if it does not exist."""
    for path in (located(".launch", root), located(PLACE, root)):
        path.mkdir(mode=0o700, exist_ok=True)
    return located(PLACE, root)


def refuse_what_is_no_code(root: Path, files: list[str], known: set[str], otherwise: str) -> None:
    for path in files:
        about = os.lstat(f"{root}/{path}")
        if stat.S_ISDIR(about.st_mode):
            raise RefusalError(
                f"{path} is a repository of its own, which a job's code cannot contain: remove it{otherwise}."
            )
        if about.st_size > LARGE and path not in known:
            size = f"{about.st_size / 1e9:.1f} GB"
            raise RefusalError(f"{path} has {size}, and git would commit it: add it to .gitignore{otherwise}.")


@contextlib.contextmanager
def submitting(root: Path) -> Iterator[None]:
    """While this is open, `forget` removes nothing: the new commit belongs to no job yet."""
    with _locked(root, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def _locked(root: Path, kind: int) -> Iterator[bool]:
    with (made(root) / "code.lock").open("a") as file:
        free = True
        try:
            fcntl.flock(file, kind)
        except BlockingIOError:
            free = False
        except OSError:  # a network file system without locks
            free = kind == fcntl.LOCK_SH
        yield free


def forget(root: Path, needed: set[str]) -> None:
    """Let git remove the code that is not `needed` any more."""
    with _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
        for repository in repositories(root) if alone else ():
            listed = git(root, "for-each-ref", "--format=%(refname)", REFS, GIT_DIR=str(repository)).split()
            old = "".join(f"delete {ref}\n" for ref in listed if ref.rpartition("/")[2] not in needed)
            if old:
                git(root, "update-ref", "--stdin", data=old, GIT_DIR=str(repository))


def repositories(root: Path) -> list[Path]:
    return [path for path in (root / ".git", located(PLACE, root) / "code.git") if path.is_dir()]


def repository_of(root: Path, commit: str) -> Path:
    """The repository that has a commit. Raises RefusalError if it is gone."""
    for repository in repositories(root):
        if attempt(root, "cat-file", "-e", f"{commit}^{{commit}}", GIT_DIR=str(repository)).code == 0:
            return repository
    raise RefusalError(
        f"The code {commit[:10]} is no longer in this project's repository: submit the job again.", id="code-gone"
    )


def keep(root: Path, commit: str) -> None:
    """Keep the code of an earlier job for another one. Raises RefusalError if it is gone."""
    git(root, "update-ref", f"{REFS}/{commit}", commit, GIT_DIR=str(repository_of(root, commit)))


def borrowed(root: Path, folder: Path) -> Path:
    """The folder with the objects of a checkout."""
    return repository_of(root, (folder / ".git/HEAD").read_text(encoding="ascii").strip()) / "objects"


def check_out(root: Path, commit: str, folder: Path, links: bool = True) -> None:
    """Write the files of a commit to `folder`, unless they are there from before an interruption.

    With links to the project's outputs/ and data/. Without `links`, for containers: with empty folders for them, and
    .git/shared, at which the container has `borrowed(...)`.
    """
    head = folder / ".git/HEAD"
    same = head.is_file() and head.read_text(encoding="utf-8").strip() == commit
    if same and (folder / SHARED[0]).is_symlink() == links:
        return
    remove(root, folder, f"job-{folder.name}-files")  # it was for a container, or is for one now
    repository = repository_of(root, commit)
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    git(root, "init", "--quiet", "--template=", str(draft))
    for part in ("info", "shared", "objects/info"):
        (draft / ".git" / part).mkdir(parents=True, exist_ok=True)
    (draft / ".git/info/exclude").write_text("".join(f"{each}\n" for each in NOT_KEPT), encoding="utf-8")
    borrowed = draft / ".git/objects/info/alternates"
    objects = os.path.relpath(repository / "objects", draft / ".git/objects")
    borrowed.write_text(f"{objects}\n", encoding="utf-8")
    settings = [
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        f"lfs.storage={repository / 'lfs'}",
        "-c",
        "advice.detachedHead=0",
    ]
    git(draft, *settings, "checkout", "--quiet", "--detach", commit, GIT_LFS_SKIP_SMUDGE="0")
    if not links:
        borrowed.write_text("../shared\n", encoding="utf-8")
    for name in SHARED:
        (root / name).mkdir(exist_ok=True)
        part = draft / name
        if part.is_symlink() or part.is_file():
            part.unlink()
        elif part.is_dir():
            shutil.rmtree(part)
        if links:
            part.symlink_to(os.path.relpath(root / name, draft))
        else:
            part.mkdir()
    draft.rename(folder)


def remove(root: Path, folder: Path, name: str) -> str:
    """Remove a checkout after the end of its job; a sentence if the job wrote files beside outputs/ and data/.

    They are moved to outputs/NAME: a script may keep its results there.
    """
    if not folder.is_dir():
        return ""
    repository = {"GIT_DIR": f"{folder}/.git", "GIT_WORK_TREE": str(folder)}  # and not the project's, if it has none
    exclude = f"--exclude-from={folder}/.git/info/exclude"
    listed = attempt(folder, "ls-files", "-z", "--others", "--modified", exclude, **repository)
    left = [path for path in names(listed.out) if not path.startswith(tuple(f"{each}/" for each in SHARED))]
    left = [path for path in dict.fromkeys(left) if os.path.lexists(folder / path)]
    for path in left:
        place = root / "outputs" / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder / path, place)
    gone = folder.with_name(f"{folder.name}.gone")  # at once: of a part, it could not be told what the job wrote
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return f"files that it wrote elsewhere are in outputs/{name}" if left else ""


def remove_drafts(place: Path, seconds: float = 3600) -> None:
    """Remove what a killed `freeze`, `check_out`, or `remove` has left."""
    for path in [*place.glob("freeze-*"), *place.glob("*.new"), *place.glob("*.gone")]:
        with contextlib.suppress(OSError):
            if path.is_dir() and (path.suffix == ".gone" or path.stat().st_mtime < time.time() - seconds):
                shutil.rmtree(path)
