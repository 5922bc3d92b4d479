"""Whether the engine gives a container the GPU, or which part is missing, and whether running ones keep it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gpukit.doctor.engine import cdi, desktop, facts, remote, without_gpu
from gpukit.errors.known import diagnosed, lookup, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Finding, passed, problem, skipped
from gpukit.host.cards import cards
from gpukit.host.preflight import GPU_KINDS
from gpukit.host.process import hide_home
from gpukit.project.stack import Stack, version

OLD_MESSAGE = 'could not select device driver "" with capabilities: [[gpu]]'
PODMANS_MESSAGE = "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all"
REFRESH_SINCE = "1.18"  # from here on, the toolkit writes and updates the specification by itself

# Signs of the engine's messages; the missing part depends on the machine.
TOOLKIT_SIGNS = {"no-gpu-driver", "runtime-unknown"}
MISSING_PROGRAM = {"runtime-missing", "toolkit-missing"}
CDI_SIGNS = {"cdi-no-vendor", "cdi-unresolved"}
DRIVER_SIGNS = {"driver-unseen", "cdi-stale", "cdi-broken"}


@check(
    "gpu",
    "GPU granted",
    needs="engine driver",
    level="full",
    causes=(
        "toolkit-not-installed toolkit-not-configured toolkit-incomplete cdi-no-specification cdi-not-refreshed "
        "docker-not-restarted cdi-stale docker-snap docker-desktop-without-gpu cdi-no-specification-in-wsl "
        "gpu-unknown gpu-refused cdi-unreadable"
    ),
    container=True,
)
def gpu(probes: Any, stack: Stack) -> Finding:
    """Tested by requesting the GPU: `docker info` does not show whether Docker provides GPUs through CDI."""
    if not stack.gpu:
        return skipped("no-gpu-requested")
    if probes.cards.timed_out:
        return skipped("gpu-request-would-hang")
    if stack.standalone:
        return _toolkit_ready(probes)
    refusal = probes.refusal
    if refusal is None:
        return passed(f"GPU {probes.gpus}")
    expected = "a container with the GPU"
    seen = _last_error(refusal.output)
    if refusal.id == "docker-hangs":
        return problem("docker-hangs", seen, expected)
    missing = None if remote(probes.endpoint) else _missing_part(probes, refusal.output, expected)
    if missing:
        return missing
    finding = diagnosed(refusal.output, "gpu-refused", seen, expected, message=str(refusal))
    if refusal.kind not in GPU_KINDS and finding.cause_id == "gpu-refused":  # not about the GPU, and unknown
        return skipped("gpu-refused", message=str(refusal))
    return finding


def _toolkit_ready(probes: Any) -> Finding:
    """Outside a project, no container is started: whether the toolkit is installed and configured."""
    if remote(probes.endpoint):
        return skipped("engine-elsewhere")
    info = facts(probes.info)
    toolkit = probes.toolkit
    expected = "NVIDIA's Container Toolkit, set up for the engine"
    if desktop(info) and probes.system == "wsl":
        return passed("by Docker Desktop")
    seen = f"toolkit {toolkit.version}" if toolkit.version else "no toolkit"
    if cdi(info):
        return _stale(probes, seen, expected) or passed(f"{seen}, GPUs by CDI")
    if _configured(info) and toolkit.runtime:
        return passed(f"{seen}, NVIDIA's runtime")
    message = PODMANS_MESSAGE if probes.engine_name == "podman" else OLD_MESSAGE
    missing = _missing_part(probes, message, expected)
    return replace(missing, seen=seen, status=WARN) if missing else passed(seen)  # only containers need it


def _stale(probes: Any, seen: str, expected: str) -> Finding | None:
    """The finding for a CDI specification that was written for another driver."""
    running = next((card.driver for card in cards(probes.cards.out) if card.driver), probes.module)
    for specification in probes.toolkit.specifications:
        if specification.driver and running and specification.driver != running and probes.system == "linux":
            return problem(
                "cdi-stale", f"{seen}; {specification.path}", expected, old=specification.driver, new=running
            )
    return None


def _missing_part(probes: Any, text: str, expected: str) -> Finding | None:
    """The missing part, if the engine's message has several causes and the machine decides."""
    info = facts(probes.info)
    toolkit = probes.toolkit
    seen = _last_error(text)
    about = set(sign_ids(text))
    if not about & (TOOLKIT_SIGNS | MISSING_PROGRAM | CDI_SIGNS | DRIVER_SIGNS):
        return None
    if desktop(info) and "driver-unseen" not in about:
        return problem("docker-desktop-without-gpu", seen, expected)
    if "/snap/" in info.get("DockerRootDir", ""):
        return problem("docker-snap", seen, expected)
    if stale := _stale(probes, seen, expected):
        return stale
    if about & DRIVER_SIGNS:
        return None
    if about & MISSING_PROGRAM or not (toolkit.version or toolkit.runtime):
        incomplete = _configured(info) or toolkit.version
        return problem("toolkit-incomplete" if incomplete else "toolkit-not-installed", seen, expected)
    if about & CDI_SIGNS:
        if probes.gpus not in (None, "all") and cdi(info):
            return problem("gpu-unknown", seen, expected, name=probes.gpus)
        if toolkit.specifications and probes.engine_name == "podman":  # which reads them at each start
            return problem("cdi-unreadable", f"{seen}; {toolkit.specifications[0].path}", expected)
        if toolkit.specifications:
            return problem("docker-not-restarted", f"{seen}; {toolkit.specifications[0].path}", expected)
        if probes.system == "wsl":
            return problem("cdi-no-specification-in-wsl", seen, expected)
        refreshes = version(toolkit.version) >= version(REFRESH_SINCE)
        return problem("cdi-not-refreshed" if refreshes else "cdi-no-specification", seen, expected)
    return problem("toolkit-not-configured", seen, expected)


def _configured(info: dict[str, Any]) -> bool:
    return "nvidia" in (info.get("Runtimes") or {})


def _last_error(text: str) -> str:
    """The engine's last line, without its prefixes."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "--help" not in line]
    last = lines[-1] if lines else ""
    for lead in ("stderr: ", "Error response from daemon: "):
        last = last.rpartition(lead)[2]
    return hide_home(last) or "refused"


CDI_SINCE = "29"  # from here on, Docker implements --gpus with CDI
NODE = "/dev/nvidiactl"
LINK = "/dev/char/195:255"

# What a sign means if it is nvidia-smi in a container that prints it.
MEANS = {"lost-after-reload": "container-lost-gpu", "driver-updated": "container-has-old-driver"}
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
    if id := lookup(output, MEANS.values(), MEANS):
        return problem(id, output, "a GPU")
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
