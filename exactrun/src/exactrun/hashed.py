"""Files that are flushed to disk, and compared with their size and hash when they are read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BUFFER = 1 << 20  # bytes that are read at once
# What fsync(2) returns where a file system does not support it, as some FUSE, 9p, and CIFS mounts do for folders.
NO_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS}


class DamageError(Exception):
    """A file, or its checkpoint, is damaged; the message is a clause that says how."""


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk, if the file system supports it."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in NO_FSYNC:
            raise
    finally:
        os.close(file)


def entry(path: Path) -> dict[str, Any]:
    """The size of a file, and its SHA-256 in hexadecimal digits."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(BUFFER))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
        return {"bytes": file.tell(), "sha256": found.hexdigest()}


def verify(path: Path, expected: dict[str, Any]) -> None:
    """Read the file; DamageError if it does not match `expected`, the result of `entry`."""
    with readable(path):
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DamageError(f"{path.name} has {size} bytes instead of {expected['bytes']}")
        if entry(path) != expected:
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
