"""Disk space for the image, and for checkpoints and models."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.engine import ENGINE_IS_REMOTE, desktop, facts, remote
from gpukit.doctor.mounts import shown
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack

REBUILD_GB = 5  # for another layer of packages on an existing image
CACHE_GB = 10  # for a model of ordinary size, downloaded and unpacked
FULL_GB = 0.2
TOO_SMALL = Cause(
    "image-does-not-fit",
    "The image takes about {size:g} GB and will not fit.",
    "`docker system prune`",
    ("no space left on device",),
)
NEARLY_FULL = Cause(
    "disk-nearly-full",
    "The image exists, but the next rebuild may fill the disk.",
    "`docker system prune`",
    status=WARN,
)
NO_INODES = Cause(
    "no-free-inodes",
    "The disk has free space but no free inodes, so no more files can be created.",
    "`docker system prune`",
    ("no space left on device",),
)
ENVIRONMENT_TOO_LARGE = Cause(
    "environment-does-not-fit",
    "The native environment and uv's cache take about {size:g} GB and will not fit.",
    "`du -xh --max-depth=2 {folder} | sort -h | tail`",
    ("No space left on device (os error 28)",),
)
CACHE_FULL = Cause(
    "disk-full",
    "The disk is full: neither checkpoints nor models can be written.",
    "`du -xh --max-depth=2 {folder} | sort -h | tail`",
    ("OSError: [Errno 28] No space left on device",),
)
CACHE_LOW = Cause(
    "checkpoint-space-low",
    "Little space is left for checkpoints and downloaded models.",
    "`du -xh --max-depth=2 {folder} | sort -h | tail`",
    status=WARN,
)


def folder(info: dict[str, Any]) -> str:
    """Where the engine stores images. New installations of Docker 29 use containerd's store."""
    if ["driver-type", "io.containerd.snapshotter.v1"] in (info.get("DriverStatus") or []):
        return "/var/lib/containerd"
    return info.get("DockerRootDir") or "/var/lib/docker"


@check("disk", "Disk space", needs=("engine",), causes=(TOO_SMALL, NEARLY_FULL, NO_INODES, ENVIRONMENT_TOO_LARGE))
def disk(probes: Any, stack: Stack) -> Finding:
    """An image takes many gigabytes, as does a native environment with uv's cache, and a full disk stops a build."""
    if probes.native:
        return native_disk(probes, stack)
    info = facts(probes.info)
    if desktop(info):
        return skipped("Docker Desktop stores images in its virtual machine, whose disk is not visible from here.")
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    place = folder(info)
    free = probes.free_gb(place)
    if free is None:
        return skipped(f"{place} is not visible from here.")
    built = probes.built
    need = REBUILD_GB if built else stack.size_gb
    seen, expected = f"{free:.0f} GB free in {place}", f"{need:g} GB"
    if free < need:
        return (
            NEARLY_FULL(seen, expected) if built and free > FULL_GB else TOO_SMALL(seen, expected, size=stack.size_gb)
        )
    files = probes.free_files(place)
    if files is not None and files < 1000:
        return NO_INODES(f"{seen}, room for {files} files", "inodes")
    return passed(seen, expected)


def native_disk(probes: Any, stack: Stack) -> Finding:
    rooms = [(free, place) for place in probes.native_folders for free in (probes.free_gb(place),) if free is not None]
    if not rooms:
        return skipped("The free space there cannot be determined.")
    free, place = min(rooms)
    need = REBUILD_GB if probes.created else stack.size_gb
    seen, expected = f"{free:.0f} GB free in {shown(place)}", f"{need:g} GB"
    if free < need:
        return ENVIRONMENT_TOO_LARGE(seen, expected, size=need, folder=shown(place, command=True))
    files = probes.free_files(place)
    if files is not None and files < 1000:
        return NO_INODES(f"{seen}, room for {files} files", "inodes")
    return passed(seen, expected)


@check("caches", "Room for models", needs=("mounts",), causes=(CACHE_FULL, CACHE_LOW))
def caches(probes: Any, stack: Stack) -> Finding:
    """Checkpoints and downloaded models are stored in the project's folder and in the mounted caches."""
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    written = [folder.source for folder in probes.config.folders if folder.kind == "folder" and not folder.read_only]
    rooms = [(free, source) for source in written for free in (probes.free_gb(source),) if free is not None]
    if not rooms:
        return skipped("The free space there cannot be determined.")
    free, source = min(rooms)
    seen, expected = f"{free:.1f} GB free in {shown(source)}", f"{CACHE_GB} GB"
    if free <= FULL_GB:
        return CACHE_FULL(seen, expected, folder=shown(source, command=True))
    if free < CACHE_GB:
        return CACHE_LOW(seen, expected, folder=shown(source, command=True))
    return passed(seen, expected)
