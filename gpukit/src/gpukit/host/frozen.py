"""The code of a job: what git would commit at its `submit`, as a commit that is on no branch.

It is in the project's own repository. If that is not in the project's folder (a linked worktree, a part of a larger
repository, or none at all), it is in .launch/jobs/code.git, which containers and other nodes see too. A ref keeps it
from `git gc`. The job runs in a checkout of it, a repository whose HEAD is that commit and that borrows its objects.
Where git is missing, a copy of the files stands for the commit (host/copies.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpukit.host import copies, shared
from gpukit.host.git import attempt, git, names, sources
from gpukit.host.shared import SHARED
from gpukit.project.location import ADOPTED, is_adopted, located
from gpukit.project.messages import RefusalError, plain

PLACE = ".launch/jobs"
REFS = "refs/gpukit/jobs"
LAST = "frozen.json"
SUBMODULE = "160000"  # the mode of its entry in an index
DAYS = 30  # for which code is kept after the end of its last job, for retries
FRESH = 2.0  # seconds in which a file can change again without another time, on coarse file systems
LARGE = 100e6  # bytes of a new file that is probably data: GitHub refuses larger ones
MANY = 1e9  # bytes of all new files
FULL = 1e6  # bytes that are free on a full disk, at most
NOT_KEPT = (*shared.CACHES, "/cluster/image.*", "/cluster/*.status")  # of what a job writes; as in a .gitignore
AUTHOR = {f"GIT_{role}_{what}": "gpukit" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
LATEST = ", or submit with --latest, which runs the project as it is when the job starts"


def freeze(root: Path, otherwise: str = LATEST) -> str:
    """The commit of the project's files as they are now. Its working tree, index, and branches are not touched.

    Without git, the name of a copy of the files that `./launch --host` has sent.

    Raises RefusalError where neither is possible, for submodules, and for large files that nobody has told git to
    ignore, with what to do `otherwise`.
    """
    place = made(root)
    if not shutil.which("git"):
        files = [] if is_adopted(root) else copies.sent(root)  # what git ignores in an adopted one is shared
        if not files:
            raise RefusalError(f"git keeps the code of jobs, and is not installed here: install it{otherwise}.")
        return copies.make(root, place, files)
    files = sources(root)
    if is_adopted(root) and not {ADOPTED["stack.json"], ADOPTED[".devcontainer/devcontainer.json"]} <= {*files}:
        raise RefusalError(
            f"git ignores files in .gpukit or .devcontainer/gpukit, which a job needs: `git add -f` both{otherwise}."
        )
    own = (root / ".git").is_dir()
    repository = root / ".git" if own else place / "code.git"
    about = {path: found for path in files if (found := lstat(f"{root}/{path}"))}
    state = state_of(repository if own else None, about)
    last = remembered(place / LAST)
    if state and state == last.get("state") and is_kept(root, repository, last["commit"]):
        return str(last["commit"])
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
        staged = names(git(root, "ls-files", "-z", "--stage", **env))
        known = {path: entry for entry, _, path in (each.partition("\t") for each in staged)}
        code = code_of(about, known, otherwise, () if is_adopted(root) else SHARED)
        gone = known.keys() - code
        there = [path for path in gone if os.path.lexists(f"{root}/{path}")]
        changes = "\0".join([*code, *gone.difference(there)])
        note = "Storing the project's files for the job ..."
        update = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
        git(root, *update, data=changes, note=note, **env)
        if there:
            git(root, "update-index", "--force-remove", "-z", "--stdin", data="\0".join(there), **env)
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
        env = {"GIT_DIR": str(repository), **AUTHOR, **dates}
        commit = git(root, "commit-tree", tree, *above, "-m", message, **env).strip()
    git(root, "update-ref", f"{REFS}/{commit}", commit, GIT_DIR=str(repository))
    remember(place / LAST, {"state": state, "commit": commit})
    return commit


# What was frozen last: a submission of the same files needs one process of git instead of eight.


def state_of(repository: Path | None, about: dict[str, os.stat_result]) -> str:
    """A hash that changes with the files and the index; empty if one is so new that its time may not change with it."""
    digest = hashlib.sha256()
    found = dict(about)
    if repository and (repository / "index").exists():
        found["/index"] = (repository / "index").stat()
    for path, one in found.items():
        facts = (one.st_mode, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns)
        digest.update(f"{path}\0{facts}\n".encode(errors="surrogateescape"))
    newest = max((one.st_ctime for one in found.values()), default=0.0)
    return "" if newest > time.time() - FRESH else digest.hexdigest()


def lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:  # it was removed just now
        return None


def is_kept(root: Path, repository: Path, commit: str) -> bool:
    """Whether a commit still has its ref, which is a file of its own until `git gc`."""
    if (repository / REFS / commit).is_file():
        return True
    return attempt(root, "rev-parse", "--quiet", "--verify", f"{REFS}/{commit}", GIT_DIR=str(repository)).code == 0


def remembered(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="ascii")))
    except (OSError, ValueError, TypeError):
        return {}


def remember(path: Path, facts: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="freeze-", dir=path.parent) as draft:
        new = Path(draft, path.name)
        new.write_text(json.dumps(facts), encoding="ascii")
        new.replace(path)


def made(root: Path) -> Path:
    """The folder of the queue's files, which is created if it does not exist."""
    for path in (located(".launch", root), located(PLACE, root)):
        path.mkdir(mode=0o700, exist_ok=True)
    return located(PLACE, root)


def code_of(
    about: dict[str, os.stat_result], known: dict[str, str], otherwise: str, apart: tuple[str, ...]
) -> list[str]:
    """The files that are the code. `known`: those in the index, by their mode, object, and stage. `apart`: folders
    whose new files are not.

    Raises RefusalError for repositories, and for large files that are not in the index.
    """
    links = tuple(f"{path}/" for path, one in about.items() if stat.S_ISLNK(one.st_mode))
    ours = (".launch/", *(f"{name}/" for name in apart))
    found = []
    for path, one in about.items():
        new = path not in known
        if path.startswith(links) or (new and (path.startswith(ours) or path.endswith(".pyc"))):
            continue  # a folder in the index that is a link now, ours, or Python's
        if stat.S_ISDIR(one.st_mode):
            if known.get(path, SUBMODULE).startswith(SUBMODULE):
                raise RefusalError(
                    f"{path} is a repository of its own, which a job's code cannot contain: remove it{otherwise}."
                )
            continue  # a file in the index that is a folder now
        if one.st_size > LARGE and new:
            size = f"{one.st_size / 1e9:.1f} GB"
            raise RefusalError(f"{path} has {size}, and git would commit it: add it to .gitignore{otherwise}.")
        found.append(path)
    size = sum(about[path].st_size for path in found if path not in known)
    if size > MANY:
        raise RefusalError(f"git would commit {size / 1e9:.1f} GB of new files: add data to .gitignore{otherwise}.")
    return found


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


def forget(root: Path, needed: Callable[[], set[str]]) -> None:
    """Let git remove the code that is not `needed` any more, which is asked when no `submitting` is open."""
    with _locked(root, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
        if not alone:
            return
        place = located(PLACE, root)
        kept = needed() | {code_in(folder) for folder in place.iterdir()}  # that of `run --no-credentials`, too
        copies.forget(place, kept)
        for repository in repositories(root):
            listed = git(root, "for-each-ref", "--format=%(refname)", REFS, GIT_DIR=str(repository)).split()
            old = "".join(f"delete {ref}\n" for ref in listed if ref.rpartition("/")[2] not in kept)
            if old:
                git(root, "update-ref", "--stdin", data=old, GIT_DIR=str(repository))


def repositories(root: Path) -> list[Path]:
    return [path for path in (root / ".git", located(PLACE, root) / "code.git") if path.is_dir()]


def copy_of(root: Path, code: str) -> Path | None:
    """The copy that stands for a commit where git was missing."""
    return copies.find(located(PLACE, root), code)


def repository_of(root: Path, commit: str) -> Path:
    """The repository that has a commit. Raises RefusalError if it is gone."""
    for repository in repositories(root):
        if attempt(root, "cat-file", "-e", f"{commit}^{{commit}}", GIT_DIR=str(repository)).code == 0:
            return repository
    raise RefusalError(f"The code {commit[:10]} is no longer in this project's repository: submit the job again.")


def keep(root: Path, commit: str) -> None:
    """Keep the code of an earlier job for another one. Raises RefusalError if it is gone."""
    if not copy_of(root, commit):
        git(root, "update-ref", f"{REFS}/{commit}", commit, GIT_DIR=str(repository_of(root, commit)))


def code_in(folder: Path) -> str:
    """The commit of a checkout, or the name of its copy; empty if it is none."""
    head = shared.beside(folder) / "HEAD"
    return head.read_text(encoding="ascii").strip() if folder.is_dir() and head.is_file() else ""


def borrowed(root: Path, folder: Path) -> Path:
    """The folder with the objects of a checkout; its copy, if it has none."""
    code = code_in(folder)
    return copy_of(root, code) or repository_of(root, code) / "objects"


def check_out(root: Path, commit: str, folder: Path, links: bool = True, fresh: bool = False) -> None:
    """Write the files of a commit to `folder`, unless they are there from before an interruption; if `fresh`, always.

    With links to what it shares (host/shared.py). Without `links`, for containers: with empty folders for outputs/ and
    data/, and .git/shared, at which the container has `borrowed(...)`.

    Raises RefusalError if the code is gone, or cannot be written; then nothing of it is left.
    """
    if not fresh and code_in(folder) == commit and shared.is_linked(root, folder) == links:
        return
    source = copy_of(root, commit) or repository_of(root, commit)
    draft = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        remove(root, folder, f"job-{folder.name}-files")  # it was for a container, or is for one now
        linked = write(root, source, commit, draft, links)
        note(draft, shared.beside(folder), commit, linked)
        draft.rename(folder)
    except (OSError, RefusalError) as error:
        why = "this disk is full" if shutil.disk_usage(folder.parent).free < FULL else str(error).rstrip(".")
        raise RefusalError(f"The code {commit[:10]} cannot be checked out: {why}.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def note(checkout: Path, place: Path, commit: str, linked: list[str]) -> None:
    """Keep what tells later what the job wrote: it may change or remove its own repository."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in ("index", "info/exclude"):
        if (checkout / ".git" / name).is_file():
            shutil.copy2(checkout / ".git" / name, place)
    (place / "linked").write_text("\0".join(linked), encoding="utf-8", errors="surrogateescape")
    (place / "HEAD").write_text(f"{commit}\n", encoding="ascii")


def write(root: Path, source: Path, commit: str, folder: Path, links: bool) -> list[str]:
    """The files of a commit, from its repository or its copy, and what they share with the project: its links."""
    if source == copy_of(root, commit):
        shutil.copytree(source, folder, symlinks=True)
        (folder / ".git/shared").mkdir(parents=True)
    else:
        borrow(root, source, commit, folder, links)
    if is_adopted(root):
        return shared.link(root, folder, links)
    for name in SHARED:
        (root / name).mkdir(exist_ok=True)
        part = folder / name
        if part.is_symlink() or part.is_file():
            part.unlink()
        elif part.is_dir():
            shutil.rmtree(part)
        if links:
            part.symlink_to(os.path.relpath(root / name, folder))
        else:
            part.mkdir()
    return []


def borrow(root: Path, repository: Path, commit: str, folder: Path, links: bool) -> None:
    """A repository that borrows the objects of another one, with the files of a commit."""
    git(root, "init", "--quiet", "--template=", str(folder))
    for part in ("info", "shared", "objects/info"):
        (folder / ".git" / part).mkdir(parents=True, exist_ok=True)
    (folder / ".git/info/exclude").write_text("".join(f"{each}\n" for each in not_kept(root)), encoding="utf-8")
    alternates = folder / ".git/objects/info/alternates"
    objects = os.path.relpath(repository / "objects", folder / ".git/objects")
    alternates.write_text(f"{objects}\n", encoding="utf-8")
    lfs = repository / "lfs"
    settings = ["core.hooksPath=/dev/null", "core.splitIndex=false", "advice.detachedHead=0", f"lfs.storage={lfs}"]
    if lfs.is_dir():  # without a filter (git LFS sets `process`), git would write pointers as files
        settings += ["filter.lfs.required=1", "filter.lfs.smudge="]
    options = [part for setting in settings for part in ("-c", setting)]
    done = attempt(folder, *options, "checkout", "--quiet", "--detach", commit, GIT_LFS_SKIP_SMUDGE="0")
    if done.code:
        raise RefusalError(plain(done.err))
    if not links:
        alternates.write_text("../shared\n", encoding="utf-8")


def remove(root: Path, folder: Path, name: str) -> str:
    """Remove a checkout after the end of its job; a sentence if the job wrote files beside outputs/ and data/.

    They are moved to outputs/NAME: a script may keep its results there. In an adopted repository, those that git
    ignores are moved to the same places of the repository.
    """
    if not folder.is_dir():
        shutil.rmtree(shared.beside(folder), ignore_errors=True)
        return ""
    kept = folder.with_name(f"{folder.name}.kept")  # in one step to outputs/, where other jobs may put links
    gone = folder.with_name(f"{folder.name}.gone")  # at once: of a part, it could not be told what the job wrote
    try:
        folder.chmod(0o700)  # a job may have changed that
        left = [path for path in written(root, folder) if is_inside(folder, path)]
        home = shared.home(root, folder, left) if is_adopted(root) else set()
        for path in left:
            place = (root if path in home else kept) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # another command does the same
                shutil.move(folder / path, place)
        outputs = free(located("outputs", root) / name)
        sentence = f"files that it wrote elsewhere are in {outputs.relative_to(root)}" if kept.is_dir() else ""
        if sentence:
            shutil.move(kept, outputs)
        shutil.rmtree(gone, ignore_errors=True)  # of a remove that was killed
        with contextlib.suppress(FileNotFoundError):
            folder.rename(gone)
    except OSError as error:
        return f"its checkout {folder} cannot be removed ({error.strerror})"
    shutil.rmtree(shared.beside(folder), ignore_errors=True)
    shutil.rmtree(gone, ignore_errors=True)
    return sentence


def is_inside(folder: Path, path: str) -> bool:
    """Whether a file is in a checkout and nowhere else: a job can write git's index, and links in place of folders."""
    there = (folder / path).parent.resolve()
    ours = ".." not in Path(path).parts and folder.resolve() in (there, *there.parents)
    return ours and os.path.lexists(folder / path)


def free(path: Path) -> Path:
    """The path, or the first one with a number behind it that nobody has taken."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not os.path.lexists(each))


def not_kept(root: Path) -> tuple[str, ...]:
    """What is not kept of a checkout, as lines of a .gitignore."""
    return NOT_KEPT if is_adopted(root) else (*(f"/{name}" for name in SHARED), *NOT_KEPT)


def written(root: Path, folder: Path) -> list[str]:
    """The files that a job wrote or changed in its checkout, beside what it shares with the project."""
    ours = () if is_adopted(root) else SHARED
    code = code_in(folder)
    copy = copy_of(root, code)
    if copy:
        return copies.written(copy, folder, (*not_kept(root), "/.git"))
    index = shared.beside(folder) / "index"
    exclude = shared.beside(folder) / "exclude"
    with contextlib.suppress(RefusalError):
        # not the checkout's own repository: git runs programs that its configuration names, which a job may write
        repository = {"GIT_DIR": str(repository_of(root, code)), "GIT_INDEX_FILE": str(index)}
        for attributes in folder.rglob(".gitattributes"):
            if attributes.is_fifo():
                attributes.unlink()  # git would wait for who writes to it
        if index.is_file() and exclude.is_file():  # and to these
            listing = ("ls-files", "-z", "--others", "--modified", f"--exclude-from={exclude}")
            listed = attempt(folder, *listing, GIT_WORK_TREE=str(folder), **repository)
            if listed.code == 0:
                found = [path for path in names(listed.out) if not path.startswith(tuple(f"{each}/" for each in ours))]
                return list(dict.fromkeys([*found, *(shared.replaced(folder) if is_adopted(root) else ())]))
    return [path.name for path in folder.iterdir() if path.name not in (*ours, ".git")]  # what it wrote is not known


def remove_drafts(place: Path, seconds: float = 3600) -> None:
    """Remove what a killed `freeze`, `check_out`, or `remove` has left."""
    for path in [*place.glob("freeze-*"), *place.glob("*.new"), *place.glob("*.gone")]:
        with contextlib.suppress(OSError):
            if path.is_dir() and (path.suffix == ".gone" or path.stat().st_mtime < time.time() - seconds):
                shutil.rmtree(path)
