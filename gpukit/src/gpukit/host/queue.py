"""Where the queue is kept, and what tells one start of this machine and one process from another."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gpukit.project.inputs import dependency_files
from gpukit.project.location import is_adopted, located
from gpukit.project.messages import RefusalError, say

TOKEN = ".launch/jobs/token"  # of the service `jobs`
HEALTH = "service.json"  # what the service's worker tells its HTTP server
A_MINUTE = 60.0  # to save after SIGTERM, as for containers

# f_type of statfs(2). Sources: linux/magic.h of Linux 6.1, and for those marked * src/stat.c of GNU coreutils 9.1.
NETWORK = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "SMB",
    0xFE534D42: "SMB",
    0x0BD00BD0: "Lustre",  # *
    0x47504653: "GPFS",  # *
    0x19830326: "BeeGFS",  # *
    0x00C36400: "Ceph",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x73757245: "Coda",
    0x01021997: "9P",
    0x7461636F: "OCFS2",
}
ELSEWHERE = "on a cluster, use `./launch submit --on slurm`; otherwise, move the project to a local disk"


def folder(root: Path) -> Path:
    """The queue's folder. Refuses network file systems: locks and shared memory, which SQLite needs, fail there."""
    place = located(".launch/jobs", root)
    try:
        for path in (place.parent, place):
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RefusalError(f"{place} cannot be created ({error.strerror}): give the folder to this user.") from None
    system = NETWORK.get(file_system(place))
    if system:
        raise RefusalError(
            f"The queue needs a local disk, and {place} is on a network file system ({system}): {ELSEWHERE}."
        )
    return place


def is_service(root: Path) -> bool:
    """Whether a service of compose.yaml processes the queue, on the same image and GPUs."""
    path = root / "compose.yaml"
    return (
        path.is_file()
        and not is_adopted(root)
        and bool(re.search(r"^  jobs:", path.read_text(encoding="utf-8"), re.MULTILINE))
    )


def fingerprint(root: Path) -> str:
    """A hash of the files that determine the environment of jobs; of gpukit's wheel, its name says which one it is."""
    digest = hashlib.sha256()
    for wheel in sorted(located("vendor", root).glob("*.whl")):
        digest.update(f"{wheel.name}\n".encode())
    files = [located(name, root) for name in ("Dockerfile", "apt.txt", "stack.json")]
    files += [root / name for name in dependency_files(root)]
    files += sorted(root.glob(".devcontainer/**/devcontainer.json"))
    for path in files:
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def file_system(path: Path) -> int:
    """f_type of statfs(2), the first word of its structure; 0 if it cannot be read."""
    if not sys.platform.startswith("linux"):
        return 0
    import ctypes

    buffer = (ctypes.c_long * 64)()  # struct statfs has 15 words on 64-bit Linux
    failed = ctypes.CDLL(None).statfs(os.fsencode(path), ctypes.byref(buffer))
    return 0 if failed else buffer[0] & 0xFFFFFFFF


def boot_id() -> str:
    """Another one after each start of the machine; see proc_sys_kernel(5)."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def process(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on, its state; see proc_pid_stat(5). Empty if there is no process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return []


def born(pid: int) -> str:
    """When a process began, which tells it from a later one with its number; empty if there is none."""
    fields = process(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


class WorkerLock:
    """Held by the process that works on the queue; the kernel releases it, however that process ends."""

    def __init__(self, place: Path) -> None:
        self.path = place / "worker.lock"
        self.file = -1

    def take(self, seconds: float = 1.0) -> bool:
        """Whether it was free; `seconds`: for commands that only look, which hold it for an instant."""
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + seconds
        while not _locked(self.file, fcntl.LOCK_EX):
            if time.monotonic() > until:
                self.release()
                return False
            time.sleep(0.05)
        return True

    def sign(self, **facts: Any) -> None:
        """Write who holds it."""
        text = json.dumps({"pid": os.getpid(), "born": born(os.getpid()), "boot": boot_id(), **facts})
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, text.encode(), 0)

    def release(self) -> None:
        os.close(self.file)
        self.file = -1

    def holder(self) -> dict[str, Any] | None:
        """What the holder wrote; None if nobody holds it."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except OSError:
            return None
        try:
            if _locked(file, fcntl.LOCK_SH):
                return None
            text = os.pread(file, 4096, 0)
        finally:
            os.close(file)
        try:
            facts = json.loads(text)
        except ValueError:
            return {}
        return facts if isinstance(facts, dict) else {}

    def name(self) -> str:
        """What holds it, for messages."""
        holder = self.holder() or {}
        return "the service `jobs`" if "container" in holder else f"process {holder.get('pid', 'unknown')}"


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def stop(root: Path, dry: bool) -> bool:
    """Stop the worker, if there is one: it ends its jobs, which stay in the queue. Whether there was one."""
    lock = WorkerLock(located(".launch/jobs", root))
    holder = lock.holder() or {}
    pid = holder.get("pid", 0)
    if not pid or holder.get("boot") != boot_id() or born(pid) != holder.get("born"):
        return False
    if dry:
        print(f"kill -TERM {pid}")
        return True
    say("Stopping the queue: jobs have one minute to save, and resume when it is processed again.")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + A_MINUTE + 15
    while lock.holder() is not None and time.monotonic() < until:
        time.sleep(0.1)
    return True
