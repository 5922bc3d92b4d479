"""Run git, and other programs whose output is read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gpukit.host.process import Result
from gpukit.project.messages import RefusalError, say

NOTE_AFTER = 2.0  # seconds
# In a git hook, these variables name the repository of the hook.
FOREIGN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {**kept, "LC_ALL": "C", "GIT_LFS_SKIP_SMUDGE": "1", **more}


def run(argv: list[str], folder: Path, note: str = "", data: str | None = None, **more: str) -> Result:
    """Run a program to its end. After two seconds, `note` is printed. ssh and git ask for passwords at the terminal."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(**more),
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except OSError as error:
        return Result(None, err=f"{argv[0]}: {error.strerror}")
    with process:
        try:
            out, err = process.communicate(data, timeout=NOTE_AFTER)
        except subprocess.TimeoutExpired:
            if note:
                say(note)
            out, err = process.communicate()
        except BaseException:  # Ctrl-C also reaches the program; SIGTERM does not
            process.terminate()
            raise
    return Result(process.returncode, out, err)


def attempt(folder: Path, *arguments: str, data: str | None = None, note: str = "", **more: str) -> Result:
    done = run(["git", *arguments], folder, note, data, **{"GIT_LITERAL_PATHSPECS": "1", **more})
    if done.code is None:
        raise RefusalError("git is needed for this: install it first.", id="git-missing")
    return done


def git(folder: Path, *arguments: str, data: str | None = None, note: str = "", **more: str) -> str:
    """The output of a git command that is expected to succeed."""
    done = attempt(folder, *arguments, data=data, note=note, **more)
    if done.code:
        raise RefusalError(f"`git {arguments[0]}` failed in {folder}: {last_line(done)}", id="git-failed")
    return done.out


def last_line(done: Result) -> str:
    lines = [line.strip() for line in (done.err + "\n" + done.out).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))]
    return (errors or lines or ["no message"])[0 if errors else -1]


def refusal(done: Result, sentence: str) -> RefusalError:
    """The refusal for a program that failed: its last line, and the remedy if the cause is certain."""
    from gpukit.errors.diagnose import diagnose  # imported here because it is slow
    from gpukit.findings.causes import PROJECT

    certain = [found for found in diagnose(done.text).causes if found.sign.certain]
    words = certain[0].words(PROJECT) if certain else None
    remedy = f". {words.why} {words.remedy}" if words else ""
    return RefusalError(
        f"{sentence}: {last_line(done)}{remedy}",
        id=certain[0].cause.id if certain else "program-failed",
        output=done.text,
    )


def names(output: str) -> list[str]:
    """The entries of an output with -z."""
    return [entry for entry in output.split("\0") if entry]


def status(folder: Path) -> dict[str, str]:
    """The changed and untracked files of this folder, relative to it, with git's two letters."""
    prefix = git(folder, "rev-parse", "--show-prefix").strip("\n")
    listed = names(git(folder, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--", "."))
    return {entry[3:][len(prefix) :]: entry[:2] for entry in listed}


def unmerged(folder: Path) -> list[str]:
    """The entries of the index for files in conflict: `MODE BLOB STAGE<tab>PATH`, relative to the folder."""
    return names(git(folder, "ls-files", "-u", "-z"))


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[dict[str, str]]:
    """The variables with which git reads a folder, also one that is in no repository."""
    if attempt(folder, "rev-parse", "--is-inside-work-tree").out.strip() == "true":
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gpukit-") as temporary:
        git(folder, "init", "--quiet", "--bare", temporary)
        yield {"GIT_DIR": temporary, "GIT_WORK_TREE": str(folder)}


def ignored(folder: Path) -> list[str]:
    """What git ignores in a folder, relative to it; of a folder that is ignored as a whole, only its own path."""
    options = ("--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching", "--no-renames")
    with reading(folder) as variables:
        prefix = git(folder, "rev-parse", "--show-prefix", **variables).strip("\n")
        listed = names(git(folder, "status", *options, "--", ".", **variables))
    return [entry[3:].rstrip("/")[len(prefix) :] for entry in listed if entry.startswith("!!")]


def would_ignore(folder: Path, paths: list[str]) -> set[str]:
    """Those of the paths that git would ignore if they were in this folder."""
    with reading(folder) as variables:
        options = {"data": "\0".join(paths), "GIT_LITERAL_PATHSPECS": "0", **variables}
        return {*names(attempt(folder, "check-ignore", "-z", "--stdin", **options).out)}


def sources(folder: Path) -> list[str]:
    """The files of a folder that git would commit: tracked, or new and not ignored. Paths are relative to the folder.

    `.env` is never among them. In a folder that is not in a repository, its `.gitignore` files still count.
    """
    command = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    try:
        listed = git(folder, *command)
    except RefusalError:
        with reading(folder) as variables:
            listed = git(folder, *command, **variables)
    found = {*names(listed)}
    # as texts: pathlib takes 0.1 s for 10,000 files
    return sorted(path for path in found if not f"/{path}".endswith("/.env") and os.path.lexists(f"{folder}/{path}"))
