"""Files that are hashed while they are written, flushed to disk, and compared with their size and hash when read."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

BUFFER = 1 << 20  # bytes: torch.save writes many small pieces
# What fsync(2) returns where a file system does not support it, as some FUSE, 9p, and CIFS mounts do for folders.
NO_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS}


class DamageError(Exception):
    """A file, or its checkpoint, is damaged; the message is a clause that says how."""


class Written(io.BufferedWriter):
    """A new file, hashed while it is written. `end` closes it, and returns its size and SHA-256."""

    def __init__(self, path: Path) -> None:
        super().__init__(_Hashed(path.open("xb", buffering=0)), BUFFER)

    def end(self) -> dict[str, Any]:
        self.close()
        if self.raw.error is not None:
            raise self.raw.error
        return {"bytes": self.raw.size, "sha256": self.raw.sum.hexdigest()}


class _Hashed(io.RawIOBase):
    """A file for torch.save, which would replace an error, also an interrupt: it is kept in `error`."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.sum = hashlib.sha256()
        self.size = 0
        self.error: BaseException | None = None

    def write(self, data: bytes | memoryview) -> int:
        try:
            if self.error is None:
                self._put(memoryview(data))
        except BaseException as error:
            self.error = error
        self.size += len(data)
        return len(data)

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def _put(self, data: memoryview) -> None:
        self.sum.update(data)
        while data:
            data = data[self.file.write(data[:BUFFER]) :]
            with contextlib.suppress(OSError, AttributeError):  # start writing to disk; macOS has no such call
                os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self.file.close()
        super().close()


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


def verify(path: Path, entry: dict[str, Any]) -> None:
    """Read the file; DamageError if it does not match `entry`, the result of `Written.end`."""
    with readable(path), path.open("rb", buffering=0) as file:
        found = os.fstat(file.fileno()).st_size
        if found != entry["bytes"]:
            raise DamageError(f"{path.name} has {found} bytes instead of {entry['bytes']}")
        if digest(file) != entry["sha256"]:
            raise DamageError(f"{path.name} has a wrong SHA-256")


def digest(file: BinaryIO) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(BUFFER))
    while count := file.readinto(buffer):
        found.update(buffer[:count])
    return found.hexdigest()


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Report errors of the file system while `path` is read as DamageError."""
    try:
        yield
    except FileNotFoundError:
        raise DamageError(f"{path.name} is missing") from None
    except OSError as error:
        raise DamageError(f"{path.name} cannot be read: {error.strerror or error}") from error
