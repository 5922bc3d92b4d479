"""What runs on the other machine. It is sent as text to Python 3.9 or newer, so it imports nothing of ours.

A request is one line of JSON, and so is each answer, after MARK: a login shell may print something of its own before.
The contents of a file are blocks, each after its length in four bytes; a block of length 0 ends the file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MARK = b"gpukit-host: "
BLOCK = 1 << 18  # bytes
SENT = ".launch/sent.json"  # what was sent: the only files that a send may replace or delete
PATIENCE = 30  # seconds to wait for the terminal's connection
Request = dict[str, Any]


def answer(**facts: Any) -> None:
    sys.stdout.buffer.write(MARK + json.dumps(facts).encode() + b"\n")
    sys.stdout.buffer.flush()


# Files on the wire


def write_file(stream: BinaryIO, file: BinaryIO, size: int) -> None:
    """Write a file's first `size` bytes: one that is being written may have grown since."""
    while size > 0:
        block = file.read(min(BLOCK, size))
        if not block:
            break
        stream.write(len(block).to_bytes(4, "big") + block)
        size -= len(block)
    stream.write(bytes(4))


def read_file(stream: BinaryIO) -> Iterator[bytes]:
    """The blocks of a file. Raises EOFError if the connection ends in the middle."""
    while True:
        length = int.from_bytes(exactly(stream, 4), "big")
        if not length:
            return
        yield exactly(stream, length)


def exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def look(path: Path) -> list[Any] | None:
    """What identifies a file's contents without reading them; None if it does not exist."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_size, found.st_mtime_ns, found.st_mode]


def identify(path: Path) -> list[str] | None:
    """A file's kind and contents: ["link", target], ["file" or "program", hash], ["folder", ""]; None if not there."""
    found = look(path)
    if found is None:
        return None
    mode = found[2]
    if stat.S_ISLNK(mode):
        return ["link", str(path.readlink())]
    if stat.S_ISDIR(mode):
        return ["folder", ""]
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib takes as long as reading a small file
        while block := file.read(BLOCK):
            digest.update(block)
    return ["program" if mode & 0o100 else "file", digest.hexdigest()]


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_name(f"{path.name}-{os.getpid()}")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)


# Receiving the project


def receive(request: Request, stream: BinaryIO) -> None:
    """Make this folder's sent files those of the request. All are received before the first is put in place."""
    root = place(request)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (root / ".launch").mkdir(mode=0o700, exist_ok=True)
        with (root / ".launch/sent.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                answer(waits=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for left in root.glob(".launch/incoming-*"):  # by a send that was killed
                shutil.rmtree(left, ignore_errors=True)
            Folder(root, request).receive(stream)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # the disk, its inodes, or the quota
            answer(error=f"{root}: {error.strerror}: make room there")
        else:
            answer(error=f"{error.filename or root}: {error.strerror}")


class Folder:
    def __init__(self, root: Path, request: Request) -> None:
        self.root = root
        self.request = request
        self.wanted = request["files"]
        self.manifest = read_json(root / SENT)
        self.sent: dict[str, list[Any]] = self.manifest.get("files", {})  # name: kind, hash, and how it looked then
        self.coming = self.manifest.get("coming", {})  # of a send that was interrupted while it put files in place
        self.new = not self.manifest

    def receive(self, stream: BinaryIO) -> None:
        before = self.manifest.get("sender", {})
        another = before and before["id"] != self.request["sender"]["id"]
        if another and not self.request["folder_given"]:
            answer(sender=before)
            return
        found = {name: self.identify(name) for name in {*self.sent, *self.wanted}}
        needed = [name for name, wanted in self.wanted.items() if found[name] != wanted]
        edited = [name for name in needed if found[name] and not self.is_ours(name, found[name])]
        if edited:
            answer(edited=sorted(edited))
            return
        sizes = self.request["sizes"]
        size = sum(sizes[name] for name in needed)
        free = shutil.disk_usage(self.root).free
        if size > free:
            answer(full=[size, free])
            return
        answer(needed=needed, sender=before if another else None)
        gone = [name for name in self.sent if name not in self.wanted and found[name]]
        kept = [name for name in gone if not self.is_ours(name, found[name])]
        with tempfile.TemporaryDirectory(prefix="incoming-", dir=self.root / ".launch") as incoming:
            received = self.fetch(needed, Path(incoming), stream)
            self.put(received, [name for name in gone if name not in kept])
        answer(done=True, kept=kept, new=self.new, path=str(self.root.resolve()), deleted=len(gone) - len(kept))

    def identify(self, name: str) -> list[str] | None:
        """As `identify`; a file that looks as when it was sent is not read."""
        path = self.root / name
        known = self.sent.get(name)
        if known and known[2] == look(path):
            return known[:2]
        return identify(path)

    def is_ours(self, name: str, found: list[str]) -> bool:
        """Whether a file is as it was sent: nobody has edited it here."""
        if found[0] == "folder":  # which is gone once the files that were sent into it are
            files = [str(path.relative_to(self.root)) for path in walk(self.root / name, [])]
            return all(file in self.sent and file not in self.wanted for file in files)
        versions = [self.sent.get(name), self.coming.get(name)]
        return found[1] in [version[1] for version in versions if version]

    def fetch(self, needed: list[str], incoming: Path, stream: BinaryIO) -> dict[str, Path]:
        """The needed files, in a folder of their own."""
        received = {}
        for number, name in enumerate(needed):
            kind, target = self.wanted[name]
            path = received[name] = incoming / str(number)
            if kind == "link":
                path.symlink_to(target)
                continue
            digest = hashlib.blake2b(digest_size=16)
            with path.open("wb") as file:
                for block in read_file(stream):
                    digest.update(block)
                    file.write(block)
            if kind == "program":
                path.chmod(path.stat().st_mode | (path.stat().st_mode & 0o444) >> 2)
            self.wanted[name] = [kind, digest.hexdigest()]  # it may have changed since it was listed
        return received

    def put(self, received: dict[str, Path], gone: list[str]) -> None:
        sender = self.request["sender"]
        if not received and not gone and self.manifest.get("sender") == sender and not self.coming:
            return
        manifest = self.root / SENT
        coming = {name: self.wanted[name] for name in received}
        write_json(manifest, {**self.manifest, "sender": sender, "files": self.sent, "coming": coming})
        for name in gone:
            (self.root / name).unlink()
            for folder in (self.root / name).parents:
                try:
                    if folder != self.root:
                        folder.rmdir()
                except OSError:
                    break  # it has other files
        for name, path in received.items():
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)  # data/ may be a link to another disk
        files = {name: [*wanted, look(self.root / name)] for name, wanted in self.wanted.items()}
        write_json(manifest, {"sender": sender, "files": files})


def place(request: Request) -> Path:
    return Path.home() / request["folder"]


# Sending outputs


def send(request: Request, stream: BinaryIO) -> None:
    """Send what is in a path, except files that the other side has already, and checkpoints unless asked for."""
    root = place(request)
    base = root / request["path"]
    if not os.path.lexists(base):
        answer(error=f"{base} does not exist")
        return
    sent = read_json(root / SENT).get("files", {})
    left_out = same = 0
    for path in [base] if base.is_symlink() or not base.is_dir() else walk(base, request["leave_out"]):
        name = str(path.relative_to(root))
        found = look(path)
        if found is None:
            continue  # deleted since
        if any(path.match(pattern) for pattern in request["leave_out"]):
            left_out += 1
        elif request["known"].get(name) == found[:2]:
            same += 1
        elif path.is_symlink():
            answer(name=name, link=str(path.readlink()))
        elif path.is_file():
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue
            except OSError as error:
                answer(error=f"{path}: {error.strerror}")
                return
            with file:
                answer(name=name, size=found[0], time=found[1], sent=sent.get(name, [None, None])[1])
                write_file(sys.stdout.buffer, file, found[0])
    answer(done=True, left_out=left_out, same=same)


def walk(base: Path, leave_out: list[str]) -> Iterator[Path]:
    for folder, folders, files in os.walk(base):
        here = Path(folder)
        for name in sorted(folders):
            if (here / name).is_symlink() or any((here / name).match(pattern) for pattern in leave_out):
                folders.remove(name)
                yield here / name
        folders.sort()
        yield from (here / name for name in sorted(files))


# Commands


def prepare(request: Request) -> None:
    """Change to the project's folder; variables come in the request, so that no list of processes shows them."""
    root = place(request)
    if not (root / "launch").is_file():
        sys.exit(request["absent"])
    os.chdir(root)
    os.environ.update(request["variables"])


def command(request: Request, stream: BinaryIO) -> None:
    """Run `./launch`. Each byte that follows is a signal for it; when the line is lost, it gets SIGHUP."""
    prepare(request)
    source = subprocess.PIPE if request["input"] else subprocess.DEVNULL
    signal.pthread_sigmask(signal.SIG_BLOCK, request["held"])  # which it inherits
    process = subprocess.Popen(["/bin/sh", "./launch", *request["arguments"]], stdin=source, start_new_session=True)
    if process.stdin:
        with contextlib.suppress(BrokenPipeError), process.stdin as file:  # it may end without reading all
            file.write(request["input"].encode("latin-1"))

    def pass_on() -> None:
        while byte := stream.read(1):
            tell(byte[0])
        tell(signal.SIGHUP)

    def tell(number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    threading.Thread(target=pass_on, daemon=True).start()
    code = process.wait()
    os._exit(code if code >= 0 else 128 - code)  # the thread still reads


def terminal(request: Request, stream: BinaryIO) -> None:
    """Become `./launch` on the terminal of this connection; the request came by `hand_over`."""
    stream.close()
    prepare(request)
    os.execv("/bin/sh", ["sh", "./launch", *request["arguments"]])


def hand_over(request: Request, stream: BinaryIO) -> None:
    """Pass a request to a connection with a terminal, whose input is the keyboard: through a pipe, never in a file."""
    with tempfile.TemporaryDirectory(prefix="gpukit-") as folder:
        pipe = os.path.join(folder, "pipe")  # noqa: PTH118
        os.mkfifo(pipe, 0o600)
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
        signal.alarm(PATIENCE)
        answer(pipe=pipe)
        with open(pipe, "wb") as file:  # noqa: PTH123 - when the other connection has opened it
            file.write(stream.read())


def reply(request: Request, stream: BinaryIO) -> None:
    answer(done=True)


def main(stream: BinaryIO) -> None:
    request = json.loads(stream.readline())
    actions = {action.__name__: action for action in (receive, send, command, terminal, hand_over, reply)}
    try:
        actions[request["action"]](request, stream)
    except (EOFError, BrokenPipeError):  # the line is lost
        os._exit(1)
