"""Running containers: reloads of systemd, updates of the driver, reboots."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.engine import cdi, facts, without_gpu
from gpukit.errors.known import diagnosed, lookup
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem, skipped
from gpukit.project.stack import Stack, version

CDI_SINCE = "29"  # from here on, Docker implements --gpus with CDI
NODE = "/dev/nvidiactl"
LINK = "/dev/char/195:255"

CAUSES_BY_SIGN = {"lost-after-reload": "container-lost-gpu", "driver-updated": "container-has-old-driver"}
NOT_RUN = "gpu-fails-in-container"


@check(
    "running",
    "Running container",
    needs="engine driver",
    level="full",
    causes="container-lost-gpu container-has-old-driver gpu-fails-in-container",
    project=True,
    container=True,
    skip=without_gpu,
)
def running(probes: Any, stack: Stack) -> Finding:
    """A running container of this project must still have its GPU."""
    if probes.cards.timed_out:
        return skipped("gpu-request-would-hang")
    inside = probes.inside
    if inside is None:
        return passed("none with a GPU")
    output = inside.text
    if id := lookup(output, CAUSES_BY_SIGN):
        return problem(CAUSES_BY_SIGN[id], output, "a GPU")
    if inside.code != 0:
        finding = diagnosed(output, NOT_RUN, output, "a GPU")
        return skipped(NOT_RUN, output) if finding.cause_id == NOT_RUN else finding
    found = len(re.findall(r"^GPU \d+:", output, re.MULTILINE))
    return passed(f"has its GPU{'s' if found > 1 else ''}")


@check(
    "reload",
    "GPU survives a reload",
    needs="engine driver",
    causes="reload-takes-gpu",
    container=True,
    skip=without_gpu,
)
def reload(probes: Any, stack: Stack) -> Finding:
    """If systemd manages cgroups, a container keeps its GPU after `systemctl daemon-reload` only if systemd knows the
    device nodes.
    """
    info = facts(probes.info)
    if probes.system != "linux":
        return skipped("engine-in-virtual-machine")
    manager = info.get("CgroupDriver", "")
    if manager != "systemd":
        return passed(f"cgroups by {manager}" if manager else "cgroups not by systemd")
    if probes.engine_name == "podman" or (version(info["ServerVersion"]) >= version(CDI_SINCE) and cdi(info)):
        return passed("GPUs by CDI")
    if probes.exists(LINK) or not probes.exists(NODE):
        return passed("systemd knows the GPU's device files")
    return problem("reload-takes-gpu", f"cgroups by systemd, GPUs without CDI, no {LINK}", "CDI, or links in /dev/char")
