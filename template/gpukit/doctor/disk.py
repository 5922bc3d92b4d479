"""Room for the image where the engine keeps images."""

from __future__ import annotations

from typing import Any

from gpukit.checks import check
from gpukit.doctor.engine import desktop, facts, remote
from gpukit.finding import Finding, failed, passed, skipped, warned
from gpukit.stack import Stack

WORKING_ROOM_GB = 5  # for another layer of packages on an image that is there
REMEDY = "docker system prune"


def folder(said: dict[str, Any]) -> str:
    """Where images lie: in containerd's store where the engine uses it, as new installations of Docker 29 do."""
    if ["driver-type", "io.containerd.snapshotter.v1"] in (said.get("DriverStatus") or []):
        return "/var/lib/containerd"
    return said.get("DockerRootDir") or "/var/lib/docker"


@check("disk", "Disk space", needs=("engine",))
def disk(saw: Any, stack: Stack) -> Finding:
    """An image of this kind takes many gigabytes, and a full disk stops a build in its middle."""
    said = facts(saw.info)
    if desktop(said):
        return skipped("Docker Desktop keeps images in its virtual machine, whose disk cannot be seen from here.")
    if remote(saw.endpoint):
        return skipped(f"The engine is on another machine: {saw.endpoint}")
    place = folder(said)
    free = saw.free_gb(place)
    if free is None:
        return skipped(f"{place} cannot be seen from here.")
    built = saw.built
    need = WORKING_ROOM_GB if built else stack.size_gb
    seen, expected = f"{free:.0f} GB free in {place}", f"{need:g} GB"
    if free >= need:
        return passed(seen, expected)
    if built:
        return warned(
            seen, expected, cause="The image is there, and the next rebuild may fill the disk.", remedy=REMEDY
        )
    return failed(seen, expected, cause=f"The image takes about {stack.size_gb:g} GB and will not fit.", remedy=REMEDY)
