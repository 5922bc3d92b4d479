"""Apply an update as one step that can be reverted, even if it was interrupted.

The record lies in git's own folder, where git does not see it: the commit, each changed file before and after, and the
files as they were. Files are written before others are removed, so that a wheel is in vendor/ at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpukit.host.git import attempt, git, status
from gpukit.project.location import located
from gpukit.project.messages import RefusalError, some

SCHEMA = 1
ASIDE = ".gpukit-update"  # the end of a file's name while it is written
DISCARD = "`git restore --source=HEAD --staged --worktree .` discards all changes to tracked files"


def place(project: Path) -> Path:
    """The folder of the record: one for each work tree, and for each project in it."""
    prefix = git(project, "rev-parse", "--show-prefix").strip("\n").strip("/")
    name = "gpukit" + (f"-{hashlib.sha256(prefix.encode()).hexdigest()[:8]}" if prefix else "")
    return Path(git(project, "rev-parse", "--absolute-git-dir").strip("\n")) / name


@contextlib.contextmanager
def locked(project: Path) -> Iterator[None]:
    """Only one update at a time; the lock ends with the process."""
    import fcntl

    folder = place(project)
    try:
        folder.mkdir(exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise RefusalError(f"{folder} cannot be written: {error.strerror}.", id="update-record") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RefusalError(
                "Another update of this project is running: wait until it ends.", id="update-running"
            ) from None
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait for the end of what must not be left half done."""
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def state(path: Path) -> str | None:
    """A file's type, permission to execute, and contents; None if there is no file."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return None
    content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    kind = "link" if path.is_symlink() else "program" if found.st_mode & 0o100 else "file"
    return f"{kind} {hashlib.sha256(content).hexdigest()}"


def load(project: Path) -> dict[str, Any]:
    """The record; empty if there is none."""
    try:
        found = json.loads((place(project) / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if found.get("schema") == SCHEMA else {}


def store(project: Path, record: dict[str, Any]) -> None:
    path = place(project) / "record.json"
    write(path, json.dumps(record, indent=1).encode())


def write(path: Path, content: bytes) -> None:
    aside = path.with_name(path.name + ASIDE)
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def drop(project: Path) -> None:
    folder = place(project)
    (folder / "record.json").unlink(missing_ok=True)
    shutil.rmtree(folder / "before", ignore_errors=True)


def differences(project: Path, copy: Path) -> dict[str, dict[str, str | None]]:
    """The files that the update of the copy changed. Of vendor/, also those that git ignores here."""
    changed = set(status(copy))
    for folder in (project, copy):
        changed |= {path.relative_to(folder).as_posix() for path in located("vendor", folder).glob("gpukit-*.whl")}
    found = {name: {"before": state(project / name), "after": state(copy / name)} for name in sorted(changed)}
    return {name: each for name, each in found.items() if each["before"] != each["after"]}


def apply(project: Path, copy: Path, conflicts: list[str], facts: dict[str, str]) -> None:
    """Bring the files of the updated copy into the project. Interrupted, it is finished by `recover`: reverted."""
    files = differences(project, copy)
    folders = {parent.as_posix() for name in files for parent in Path(name).parents if not (project / parent).is_dir()}
    record = {"schema": SCHEMA, "state": "unfinished", "head": head(project), **facts, "files": files}
    record["folders"] = sorted(folders)
    drop(project)
    before = place(project) / "before"
    for name, each in files.items():
        if each["before"]:
            duplicate(project / name, before / name)
    store(project, record)
    try:
        transfer(project, copy, {name: each["after"] for name, each in files.items()})
        mark(project, copy, conflicts)
    except BaseException:  # also Ctrl-C
        revert(project, record)
        raise
    store(project, {**record, "state": "done"})


def mark(project: Path, copy: Path, conflicts: list[str]) -> None:
    """Enter the conflicts into the index, as after a merge: `git mergetool` works."""
    if not conflicts:
        return
    prefix = git(project, "rev-parse", "--show-prefix").strip("\n")
    entries = []
    for entry in conflicts:
        facts, _, name = entry.partition("\t")
        mode, blob, stage = facts.split()
        source = git(copy, "unpack-file", blob).strip()
        own = git(project, "hash-object", "-w", "--no-filters", "--", str(copy / source)).strip()
        (copy / source).unlink()
        zero = f"0 {'0' * len(own)}\t{prefix}{name}"
        entries += [zero] * (zero not in entries) + [f"{mode} {own} {stage}\t{prefix}{name}"]
    root = Path(git(project, "rev-parse", "--show-toplevel").strip("\n"))
    git(root, "update-index", "-z", "--index-info", data="".join(f"{entry}\0" for entry in entries))


def transfer(project: Path, source: Path, wanted: dict[str, str | None]) -> None:
    """Write the files that are wanted from `source`, then remove the others."""
    written = {name for name, after in wanted.items() if after}
    blocking = {name for name in wanted if any(other.startswith(f"{name}/") for other in written)}
    for name in sorted(blocking):
        remove(project / name)
    for name in sorted(written):
        if (project / name).is_dir():
            for other in sorted((other for other in wanted if other.startswith(f"{name}/")), reverse=True):
                remove(project / other)
                remove_folders(project / other, project / name)
        if state(project / name) != wanted[name]:
            duplicate(source / name, project / name)
    for name in sorted(wanted.keys() - written - blocking):
        remove(project / name)


def duplicate(source: Path, target: Path) -> None:
    """Copy a file or link so that the target is complete at any time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(target.name + ASIDE)
    try:
        shutil.copy2(source, aside, follow_symlinks=False)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()


def remove_folders(path: Path, last: Path) -> None:
    """Remove the folders above a path, up to `last`, that are empty."""
    with contextlib.suppress(OSError):
        while path != last:
            path = path.parent
            path.rmdir()


def head(project: Path) -> str:
    return git(project, "rev-parse", "HEAD").strip()


def recover(project: Path) -> bool:
    """Revert an update that was interrupted; whether there was one."""
    record = load(project)
    if record.get("state") != "unfinished":
        return False
    if record["head"] != head(project):  # its owner has committed what was there
        drop(project)
        return False
    refuse_edited(project, record, "The last update was interrupted, and")
    revert(project, record)
    return True


def undo(project: Path) -> dict[str, Any]:
    """Revert the last update, and return its record."""
    record = load(project)
    if not record:
        raise RefusalError(
            "There is no update to undo: `./launch update` has changed nothing here.", id="nothing-to-undo"
        )
    if record["head"] != head(project):
        raise RefusalError(
            f"The last update started from commit {record['head'][:12]}, and another one is checked out now: if you "
            "committed the update, `git revert COMMIT` reverts it.",
            id="undo-other-commit",
        )
    if record["state"] == "done" and not status(project):
        raise RefusalError(
            "There is no update to undo: it was committed on another branch, or its files were reset.",
            id="nothing-to-undo",
        )
    refuse_edited(project, record, "Nothing was undone:")
    revert(project, record)
    return record


def refuse_edited(project: Path, record: dict[str, Any], start: str) -> None:
    """Refuse to revert if any file is neither as before nor as after the update, or others were changed."""
    files = record["files"]
    unfinished = record["state"] == "unfinished"
    edited = [
        name
        for name, each in files.items()
        if state(project / name) not in ((each["before"], each["after"]) if unfinished else (each["after"],))
    ]
    aside = {f"{name}{ASIDE}" for name in files}
    edited += [name for name in status(project) if name not in files and not (unfinished and name in aside)]
    if edited:
        verb = "were" if len(edited) > 1 else "was"
        raise RefusalError(
            f"{start} {some(edited)} {verb} edited since. Move your edits elsewhere first; {DISCARD}.",
            id="edited-since-update",
        )


def revert(project: Path, record: dict[str, Any]) -> None:
    """Restore the files as they were. If this is interrupted, the next `update` or `update --undo` does the rest."""
    store(project, {**record, "state": "unfinished"})
    files = record["files"]
    for name in files:
        remove((project / name).with_name(Path(name).name + ASIDE))
    transfer(project, place(project) / "before", {name: each["before"] for name, each in files.items()})
    for folder in sorted(record["folders"], reverse=True):
        with contextlib.suppress(OSError):  # not empty: something of its owner is there
            (project / folder).rmdir()
    if files:
        git(project, "reset", "-q", "HEAD", "--", *files)
    drop(project)


def refuse_no_git(project: Path) -> None:
    if attempt(project, "rev-parse", "--is-inside-work-tree").code != 0:
        raise RefusalError(
            'Only a project in git can be updated: `git init && git add -A && git commit -m "Generated"`.',
            id="update-no-git",
        )


def refuse_dirty(project: Path) -> None:
    """An update starts from a clean tree: otherwise nothing could tell its changes from others."""
    if attempt(project, "rev-parse", "--verify", "-q", "HEAD").code != 0:
        raise RefusalError('Commit the project first: `git add -A && git commit -m "Generated"`.', id="update-dirty")
    found = status(project)
    if not found:
        return
    record = load(project)
    if record and record["head"] == head(project) and set(found) <= set(record["files"]):
        raise RefusalError(
            "The last update is not committed: commit it, or revert it with `./launch update --undo`.",
            id="update-dirty",
        )
    conflict = any(re.search("U|AA|DD", letters) for letters in found.values())
    remedy = "Resolve the conflicts and commit first" if conflict else "Commit or stash your changes first"
    raise RefusalError(f"{remedy}: {some(list(found))}.", id="update-dirty")
