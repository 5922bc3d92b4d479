"""Which files travel: the project's to the other machine, its outputs back."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from gpukit.host import git
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError, announced, say, some
from gpukit.remote.connection import Host
from gpukit.remote.there import identify, look, read_file, read_json, walk, write_file, write_json

STAYS = (".launch", "data", "outputs")  # each machine has its own; in the last two, what git tracks is code
FETCHED = ".launch/fetched.json"


def sources(root: Path) -> list[str]:
    """The files to send: what git would commit, and the wheel, which a user's own rules may ignore."""
    named = list(_sources(root))
    stays = STAYS if not is_adopted(root) else STAYS[:1]
    tracked = git.attempt(root, "ls-files", "-z", "--cached", "--", *STAYS[1:])
    code = set(git.names(tracked.out))
    found = {name for name in named if name.split("/")[0] not in stays or name in code}
    wheels = [*root.glob("vendor/gpukit-*.whl"), *root.glob(".gpukit/gpukit-*.whl")]
    return sorted(found | {path.relative_to(root).as_posix() for path in wheels})


def _sources(root: Path) -> Iterator[str]:
    for name in git.sources(root):
        path = root / name
        if name == "./":  # of a submodule that is not checked out
            continue
        if path.is_dir() and not path.is_symlink():  # a submodule, or a repository in the repository
            yield from (f"{name.rstrip('/')}/{inner}" for inner in _sources(path))
        else:
            yield name


def amount(files: int, size: int) -> str:
    return f"{files} file{'s' * (files != 1)} ({readable(size)})"


def readable(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{math.ceil(size / 1e3)} kB"


def sender(root: Path) -> dict[str, str]:
    """This copy of the project, as the other machine remembers it.

    If the folder was copied with all its files, the copy is another one; if it was moved, it is the same.
    """
    path = located(".launch/sender.json", root)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    here = {"from": f"{socket.gethostname()}:{root}", "inode": path.parent.stat().st_ino}
    found = read_json(path)
    if not any(found.get(name) == value for name, value in here.items()):
        found = {"id": secrets.token_hex(8), **here}
        write_json(path, found)
    return {"id": found["id"], "from": here["from"]}


def send(host: Host, root: Path, launch: str) -> str:
    """Make the files there those of this project; the folder's absolute path, if it is new.

    `launch`: how to call it, for advice. Raises:
        RefusalError: files were edited there, or came from another copy of the project; nothing was changed then.
    """
    try:
        files = {name: found for name in sources(root) if (found := identify(root / name))}
        sizes = {name: (root / name).lstat().st_size for name in files}
    except OSError as error:
        raise RefusalError(f"{error.filename} cannot be read: {error.strerror}.") from None
    sent = 0
    with host.exchange("receive", files=files, sizes=sizes, sender=sender(root)) as (process, answers):
        for answer in answers:
            if "waits" in answer:
                say(f"Another command is sending files to {host}: waiting for it.")
            if "sender" in answer and "needed" not in answer:
                raise RefusalError(
                    f"The files in {host} came from another copy of the project, {answer['sender']['from']}. To "
                    f"replace them, name the folder: `--host {host}`; or name another one."
                )
            if "edited" in answer:
                names = answer["edited"]
                raise RefusalError(
                    f"Edited in {host} since they were sent, or not sent at all: {some(names, 3)}. `{launch} fetch "
                    f"{names[0]}` brings one here; to send yours, delete them there."
                )
            if "full" in answer:
                needed, free = answer["full"]
                raise RefusalError(
                    f"{host.destination} has {readable(free)} free for {host.folder}, and {readable(needed)} are to be "
                    "sent: make room there."
                )
            if answer.get("sender"):
                say(f"Replacing the files in {host} that came from {answer['sender']['from']}.")
            if "needed" in answer:
                sent = answer["needed"]
                with announced(f"Sending {amount(len(sent), sum(sizes[name] for name in sent))} ..."):
                    _send(root, [name for name in sent if files[name][0] != "link"], process.stdin)
    if answer["kept"]:
        say(f"Edited in {host}, so it stays there though it is gone here: {some(answer['kept'], 3)}.")
    if sent or answer["deleted"]:
        deleted = f", {answer['deleted']} deleted" if answer["deleted"] else ""
        say(f"{amount(len(sent), sum(sizes[name] for name in sent))} sent{deleted}.")
    return answer["path"] if answer["new"] else ""


def _send(root: Path, names: list[str], stream: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # an answer says why
        for name in names:
            try:
                with (root / name).open("rb") as file:
                    write_file(stream, file, os.fstat(file.fileno()).st_size)
            except FileNotFoundError:
                raise RefusalError(f"{name} was deleted while it was being sent: run the same command again.") from None
        stream.flush()


# Outputs


def fetch(host: Host, root: Path, path: str, leave_out: list[str]) -> list[str]:
    """Bring what is in `path` there. Files that only exist here, or were changed here, stay as they are.

    `leave_out`: patterns of files not to bring. Returns the names of the files that came.
    """
    inside = PurePosixPath(path)
    if inside.is_absolute() or ".." in inside.parts or inside.parts[:1] in ((".git",), (".launch",), ()):
        raise RefusalError(f"fetch {path}: write a path in the project, such as outputs/baseline.")
    record = read_json(located(FETCHED, root))
    base = root / inside
    local = list(walk(base, [])) if base.is_dir() else [base]
    looks = {str(one.relative_to(root)): look(one) for one in local}
    known = {name: found[:2] for name, found in looks.items() if found}
    own = []
    outside = []
    came = []
    size = same = 0
    request = {"path": str(inside), "leave_out": leave_out, "known": known}
    try:
        with host.exchange("send", **request) as (process, answers), announced(f"Fetching {path} ..."):
            for answer in answers:
                if "done" in answer:
                    same += answer["same"]
                    break
                name = answer["name"]
                if not _is_in(name, inside):
                    raise RefusalError(f"{host} sent {name!r}, which is not in {path}.")
                if "link" in answer and identify(root / name) == ["link", answer["link"]]:
                    same += 1
                elif "link" in answer and _leaves(name, answer["link"]):
                    outside.append(name)
                elif _place(root, answer, record, process.stdout):
                    came.append(name)
                    size += answer.get("size", 0)
                else:
                    own.append(name)
    finally:
        located(FETCHED, root).parent.mkdir(mode=0o700, exist_ok=True)
        write_json(located(FETCHED, root), record)
    if outside:
        say(f"Not fetched, because these links lead out of {inside.parts[0]}: {some(outside, 3)}.")
    if own:
        say(f"Not fetched, because other files of that name are here: {some(own, 3)}. Rename yours first.")
    more = f", {same} are here already" if same else ""
    if left_out := answer["left_out"]:
        more += f", {left_out} checkpoint{'s stay' if left_out > 1 else ' stays'} there (--checkpoints)"
    say(f"{path}: {amount(len(came), size)} fetched{more}.")
    return came


def _is_in(name: str, base: PurePosixPath) -> bool:
    path = PurePosixPath(name)
    return ".." not in path.parts and path.parts[: len(base.parts)] == base.parts


def _leaves(name: str, target: str) -> bool:
    """Whether a link leads out of the folder (outputs) that it is in: files that follow could be written anywhere."""
    folders = PurePosixPath(name).parts[1:-1]
    end = os.path.normpath(os.path.join(*folders, target))  # noqa: PTH118 - `..` is to be resolved, but no links
    return end.split("/")[0] in ("", "..", ".git", ".launch")


def _place(root: Path, answer: dict[str, Any], record: dict[str, Any], stream: Any) -> bool:
    """Put a file in place, unless one of this machine's own is there."""
    name = answer["name"]
    path = root / name
    before = look(path)
    mine = before and record.get(name) != before and (not answer.get("sent") or answer["sent"] != _digest(path))
    target = answer.get("link")
    if target is not None and mine:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name[:100]}.{os.getpid()}")
    digest = hashlib.blake2b(digest_size=16)
    try:
        if target is not None:
            draft.symlink_to(target)
        else:
            with draft.open("wb") as file:
                for block in read_file(stream):
                    digest.update(block)
                    if not mine:
                        file.write(block)
            os.utime(draft, ns=(answer["time"], answer["time"]))
        if mine:
            return before is not None and digest.hexdigest() == _digest(path)
        draft.replace(path)
    except EOFError:
        raise RefusalError("The connection was lost: run the same command again to fetch the rest.") from None
    finally:
        draft.unlink(missing_ok=True)
    record[name] = look(path)
    return True


def _digest(path: Path) -> str:
    found = identify(path)
    return found[1] if found else ""
