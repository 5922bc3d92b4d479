"""Disk space for the image, and for checkpoints and models."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.engine import desktop, elsewhere, facts, remote
from gpukit.doctor.mounts import shown
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack

REBUILD_GB = 5  # for another layer of packages on an existing image
CACHE_GB = 10  # for a model of ordinary size, downloaded and unpacked
FULL_GB = 0.2


def folder(info: dict[str, Any]) -> str:
    """Where the engine stores images. New installations of Docker 29 use containerd's store."""
    if ["driver-type", "io.containerd.snapshotter.v1"] in (info.get("DriverStatus") or []):
        return "/var/lib/containerd"
    return info.get("DockerRootDir") or "/var/lib/docker"


@check(
    "disk",
    "Disk space",
    needs="engine",
    causes="image-does-not-fit disk-nearly-full no-free-inodes environment-does-not-fit",
)
def disk(probes: Any, stack: Stack) -> Finding:
    """An image takes many gigabytes, as does a native environment with uv's cache, and a full disk stops a build."""
    if probes.native:
        return native_disk(probes, stack)
    info = facts(probes.info)
    if desktop(info):
        return skipped("disk-of-docker-desktop")
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    place = folder(info)
    free = probes.free_gb(place)
    if free is None:
        return skipped("place-not-visible", place)
    built = probes.built
    need = REBUILD_GB if built else stack.size_gb
    seen = f"{free:.0f} GB free in {place}"
    expected = f"{need:g} GB"
    if free < need:
        id = "disk-nearly-full" if built and free > FULL_GB else "image-does-not-fit"
        return problem(id, seen, expected, size=stack.size_gb)
    files = probes.free_files(place)
    if files is not None and files < 1000:
        return problem("no-free-inodes", f"{seen}, room for {files} files", "inodes")
    return passed(seen, expected)


def native_disk(probes: Any, stack: Stack) -> Finding:
    rooms = [(free, place) for place in probes.native_folders for free in (probes.free_gb(place),) if free is not None]
    if not rooms:
        return skipped("free-space-unknown")
    free, place = min(rooms)
    need = REBUILD_GB if probes.created else stack.size_gb
    seen = f"{free:.0f} GB free in {shown(place)}"
    expected = f"{need:g} GB"
    if free < need:
        return problem("environment-does-not-fit", seen, expected, size=need, folder=shown(place, command=True))
    files = probes.free_files(place)
    if files is not None and files < 1000:
        return problem("no-free-inodes", f"{seen}, room for {files} files", "inodes")
    return passed(seen, expected)


@check("caches", "Room for models", needs="mounts", causes="disk-full checkpoint-space-low", skip=elsewhere)
def caches(probes: Any, stack: Stack) -> Finding:
    """Checkpoints and downloaded models are stored in the project's folder and in the mounted caches."""
    written = [folder.source for folder in probes.config.folders if folder.kind == "folder" and not folder.read_only]
    rooms = [(free, source) for source in written for free in (probes.free_gb(source),) if free is not None]
    if not rooms:
        return skipped("free-space-unknown")
    free, source = min(rooms)
    seen = f"{free:.1f} GB free in {shown(source)}"
    expected = f"{CACHE_GB} GB"
    if free <= FULL_GB:
        return problem("disk-full", seen, expected, folder=shown(source, command=True))
    if free < CACHE_GB:
        return problem("checkpoint-space-low", seen, expected, folder=shown(source, command=True))
    return passed(seen, expected)
