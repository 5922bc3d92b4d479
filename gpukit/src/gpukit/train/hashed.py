"""Files that are hashed while they are written, flushed to disk, and compared with their size and hash when read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

BUFFER = 1 << 20  # bytes: for the many small pieces that torch.save writes
# What fsync(2) returns where a file system does not support it, as some FUSE, 9p, and CIFS mounts do for folders.
NO_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS}


class DamageError(Exception):
    """A file, or its checkpoint, is damaged; the message is a clause that says how."""


class Written:
    """A new file, hashed while it is written.

    `end` raises the first error, also an interrupt, and later writes are ignored: torch.save would replace the error.
    """

    def __init__(self, path: Path) -> None:
        self.file = path.open("xb", buffering=BUFFER)
        self.sum, self.size = hashlib.sha256(), 0
        self.error: BaseException | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write the bytes and add them to the hash."""
        self.size += len(data)
        beside = Thread(target=self.sum.update, args=(data,)) if len(data) >= BUFFER else None
        if beside is not None:
            beside.start()
        else:
            self.sum.update(data)
        try:
            if self.error is None:
                self.file.write(data)
        except BaseException as error:
            self.error = error
        if beside is not None:
            beside.join()
        return len(data)

    def flush(self) -> None:
        """torch.save calls this; `end` flushes."""

    def end(self) -> dict[str, Any]:
        """Write the rest, and start writing to disk; return size and SHA-256. Raises what `write` raised."""
        if self.error is not None:
            raise self.error
        self.file.flush()
        _uncache(self.file.fileno())
        return {"bytes": self.size, "sha256": self.sum.hexdigest()}

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # after an error, it flushes once more
            self.file.close()


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, if the file system supports it."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
        _uncache(file)
    except OSError as error:
        if error.errno not in NO_FSYNC:
            raise
    finally:
        os.close(file)


def _uncache(file: int) -> None:
    """Start writing the file to disk, and drop what is there from the page cache, which the data set needs."""
    with contextlib.suppress(OSError):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def verify(path: Path, entry: dict[str, Any]) -> None:
    """Read the file; DamageError if it does not match `entry`, the result of `Written.end`."""
    with readable(path), path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise DamageError(f"{path.name} has {found} bytes instead of {entry['bytes']}")
        if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise DamageError(f"{path.name} has a wrong SHA-256")


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Report errors of the file system while `path` is read as DamageError."""
    try:
        yield
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamageError(f"{path.name} cannot be read: {error.strerror or error}") from error
