"""Files that are hashed while they are written, flushed to disk, and compared with their size and hash when read.

Large files bypass the page cache (open(2), O_DIRECT) if the file system supports it: the data set stays cached, and
writing a checkpoint is faster without the copy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

CHUNK = 2 << 20  # bytes written and hashed at once: a multiple of any disk's block
THREADED = 1 << 20  # bytes; hashing larger pieces in a thread is faster


class DamageError(Exception):
    """A file, or its checkpoint, is damaged; the message is a clause that says how."""


class Written:
    """A new file, hashed by a helper thread while it is written.

    `end` raises the first error, and later writes are ignored: torch.save would replace the error by its own.
    """

    def __init__(self, path: Path, helper: Executor) -> None:
        self.helper, self.sum, self.size = helper, hashlib.sha256(), 0
        self.error: OSError | None = None
        self.buffer, self.used = _spare.pop() if _spare else _aligned(CHUNK), 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self.file = os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)  # some file systems create the file before they fail
            self.file = os.open(path, flags, 0o666)

    def write(self, data: bytes | memoryview) -> int:
        """Buffer the bytes, and write them whenever the buffer is full."""
        count = len(data)
        if count < CHUNK - self.used:  # nearly always: torch.save writes many small pieces
            self.buffer[self.used : self.used + count] = data
            self.used += count
            return count
        rest = memoryview(data).cast("B")
        while rest and self.error is None:
            piece = rest[: CHUNK - self.used]
            self.buffer[self.used : self.used + len(piece)] = piece
            self.used, rest = self.used + len(piece), rest[len(piece) :]
            if self.used == CHUNK:
                self._put(self.buffer)
        return count

    def flush(self) -> None:
        """torch.save calls this; `end` flushes."""

    def end(self) -> dict[str, Any]:
        """Write the rest; return the size and SHA-256 of the file. Raises OSError if any write failed."""
        self._through_cache()  # the end of a file is rarely a whole block
        self._put(self.buffer[: self.used])
        if self.error:
            raise self.error
        if hasattr(os, "posix_fadvise"):  # start writeback (posix_fadvise(2)); `sync` waits for it
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        return {"bytes": self.size, "sha256": self.sum.hexdigest()}

    def sync(self) -> None:
        """Flush the file to disk."""
        os.fsync(self.file)

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)
        _spare.append(self.buffer)

    def _put(self, piece: memoryview) -> None:
        self.size, self.used = self.size + len(piece), 0
        hashed = self.helper.submit(self.sum.update, piece) if len(piece) >= THREADED else self.sum.update(piece)
        while piece and self.error is None:
            try:
                piece = piece[os.write(self.file, piece) :]
            except OSError as error:
                if error.errno == errno.EINVAL and self._through_cache():
                    continue
                self.error = error
        if hashed is not None:
            hashed.result()

    def _through_cache(self) -> bool:
        """Switch between direct and cached writes; return whether writes were direct before."""
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        direct = flags & getattr(os, "O_DIRECT", 0)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags ^ direct)
        return bool(direct)


_spare: list[memoryview] = []  # buffers to reuse: allocating one takes as long as writing a small file


def _aligned(size: int) -> memoryview:
    """Memory aligned to a page, as O_DIRECT needs; a huge page if possible (saves 0.8 ms)."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to disk, which fsync(2) of a file does not do."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def verify(path: Path, entry: dict[str, Any], into: memoryview | None = None) -> None:
    """Read the file, into a buffer of its size if given; DamageError if it does not match its size and hash.

    `entry`: the result of `Written.end`.
    """
    total, done = hashlib.sha256(), 0
    spare = memoryview(bytearray(CHUNK)) if into is None else into
    with readable(path), path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise DamageError(f"{path.name} has {found} bytes instead of {entry['bytes']}")
        while done < found:
            piece = spare[:CHUNK] if into is None else spare[done : done + CHUNK]
            count = file.readinto(piece)
            total.update(piece[:count])
            done += count or found
    if total.hexdigest() != entry["sha256"]:
        raise DamageError(f"{path.name} has a wrong SHA-256")


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Report errors of the file system while `path` is read as DamageError."""
    try:
        yield
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except PermissionError:
        raise DamageError(f"{path.name} cannot be read: permission denied") from None
    except OSError as error:
        raise DamageError(f"{path.name} cannot be read ({error.strerror or error})") from error
