"""Running containers: reloads of systemd, updates of the driver, reboots."""

from __future__ import annotations

import re
from typing import Any

from gpukit.doctor.driver import DRIVER_HANGS, NO_GPU_REQUESTED
from gpukit.doctor.engine import ENGINE_IS_REMOTE, cdi, facts, remote
from gpukit.errors.known import known_cause, lookup, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.project.stack import Stack, version

CDI_SINCE = "29"  # from here on, Docker implements --gpus with CDI
NODE, LINK = "/dev/nvidiactl", "/dev/char/195:255"
NVML_ERROR = "Failed to initialize NVML: Unknown Error"

RELOADED = Cause(
    "container-lost-gpu",
    "The container lost its GPU: `systemctl daemon-reload` on this machine takes it away from running containers.",
    "`./launch stop`, then start it again",
    (NVML_ERROR,),
)
FAILS_INSIDE = Cause(
    "gpu-fails-in-container",  # replaced with the cause of the error text
    "The GPU does not work in the container; the error text is a known one.",
    "The remedy of that error text is shown.",
)
UPDATED = Cause(
    "container-has-old-driver",
    "The driver was updated while the container was running; the container still has the old libraries.",
    "`./launch stop`, then start it again",
)
RELOAD_TAKES_GPU = Cause(
    "reload-takes-gpu",
    "Each `systemctl daemon-reload` (package updates run it too) will take the GPU away from running containers: "
    "systemd manages their cgroups and does not know the driver's device files.",
    "`sudo nvidia-ctk system create-dev-char-symlinks --create-all`",
    (NVML_ERROR,),
    status=WARN,
)
TOO_EARLY = Cause(
    "container-before-driver",
    "Docker started this container at boot before the driver was loaded, and the start failed.",
    "`docker start {name}`; to prevent this: `sudo systemctl enable nvidia-persistenced`",
    ("nvml error: driver not loaded", 'error gathering device information while adding custom device "/dev/nvidia'),
    status=WARN,
)
# Rules for the errors of a container that starts before the driver is loaded.
BEFORE_DRIVER_RULES = {
    "driver-silent",
    "driver-not-loaded",
    "device-files-missing",
    "toolkit-failed",
    "cdi-unresolved",
    "cdi-no-vendor",
}


@check(
    "running",
    "Running container",
    needs=("engine", "driver"),
    level="full",
    causes=(RELOADED, UPDATED, FAILS_INSIDE),
    project=True,
)
def running(probes: Any, stack: Stack) -> Finding:
    """A running container of this project must still have its GPU."""
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    if probes.cards.timed_out:
        return skipped(DRIVER_HANGS)
    inside = probes.inside
    if inside is None:
        return passed("none with a GPU")
    output = inside.text
    cause = lookup(output, {"lost-after-reload": RELOADED, "driver-updated": UPDATED})
    if cause:
        return cause(output, "a GPU")
    if inside.code != 0:
        cause = known_cause(output, FAILS_INSIDE)
        return (
            skipped("nvidia-smi could not be run in it.", output) if cause is FAILS_INSIDE else cause(output, "a GPU")
        )
    found = len(re.findall(r"^GPU \d+:", output, re.MULTILINE))
    return passed(f"has its GPU{'s' if found > 1 else ''}")


@check("reload", "GPU survives a reload", needs=("engine", "driver"), causes=(RELOAD_TAKES_GPU,))
def reload(probes: Any, stack: Stack) -> Finding:
    """If systemd manages cgroups, a container keeps its GPU after `systemctl daemon-reload` only if systemd knows the
    device nodes.
    """
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    info = facts(probes.info)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    if probes.system != "linux":
        return skipped("The engine runs in a virtual machine.")
    manager = info.get("CgroupDriver", "")
    if manager != "systemd":
        return passed(f"cgroups by {manager}" if manager else "cgroups not by systemd")
    if version(info["ServerVersion"]) >= version(CDI_SINCE) and cdi(info):
        return passed("GPUs by CDI")
    if probes.exists(LINK) or not probes.exists(NODE):
        return passed("systemd knows the GPU's device files")
    return RELOAD_TAKES_GPU(f"cgroups by systemd, GPUs without CDI, no {LINK}", "CDI, or links in /dev/char")


@check("restart", "Start after a reboot", needs=("engine", "driver"), causes=(TOO_EARLY,), project=True)
def restart(probes: Any, stack: Stack) -> Finding:
    """A container that Docker starts at boot must start after the driver."""
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    for container in probes.containers:
        early = container.restart in ("always", "unless-stopped") and not container.running
        if early and BEFORE_DRIVER_RULES.intersection(sign_ids(container.error)):
            return TOO_EARLY(container.error, "a container that runs", name=container.name)
    return passed("no container started too early")
