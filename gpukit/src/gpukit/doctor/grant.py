"""Whether the engine gives a container the GPU, and if not, which part is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpukit.doctor.driver import DRIVER_HANGS, NO_GPU_REQUESTED
from gpukit.doctor.engine import ENGINE_IS_REMOTE, HANGS, cdi, desktop, facts, remote
from gpukit.errors.known import known_cause, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed, skipped
from gpukit.host.cards import cards
from gpukit.host.process import hide_home
from gpukit.project.stack import Stack, version

GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
OLD_MESSAGE = 'could not select device driver "" with capabilities: [[gpu]]'
NEW_MESSAGE = "failed to discover GPU vendor from CDI: no known GPU vendor found"
REFRESH_SINCE = "1.18"  # from here on, the toolkit writes and updates the specification by itself
UNITS = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
REFRESH = f"`sudo systemctl enable --now {UNITS} && sudo systemctl restart docker`"
GENERATE = "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker`"

NO_TOOLKIT = Cause(
    "toolkit-not-installed",
    "NVIDIA's Container Toolkit is not installed, and Docker needs it to give a container the GPU.",
    "Install it: `./launch setup` shows the commands, and runs them with --apply.",
    (OLD_MESSAGE, NEW_MESSAGE),
)
NOT_CONFIGURED = Cause(
    "toolkit-not-configured",
    "NVIDIA's Container Toolkit is installed, but Docker is not configured to use it.",
    "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`",
    (OLD_MESSAGE, "unknown or invalid runtime name: nvidia"),
)
HALF_INSTALLED = Cause(
    "toolkit-incomplete",
    "Docker is configured to use NVIDIA's runtime, but the program is missing: the toolkit was removed, at least "
    "in part.",
    f"Install nvidia-container-toolkit again: {GUIDE}",
    ('exec: "nvidia-container-runtime": executable file not found in $PATH',),
)
NOT_RESTARTED = Cause(
    "docker-not-restarted",
    "NVIDIA's Container Toolkit is installed and its CDI specification exists, but Docker has not read it.",
    "`sudo systemctl restart docker`",
    (NEW_MESSAGE,),
)
NO_SPECIFICATION = Cause(
    "cdi-no-specification",
    "Docker looks for GPUs in a CDI specification, but there is none.",
    GENERATE,
    (NEW_MESSAGE, "unresolvable CDI devices nvidia.com/gpu=all"),
)
NOT_REFRESHED = Cause(
    "cdi-not-refreshed",
    "Docker looks for GPUs in a CDI specification, but there is none: the service that writes it is not running.",
    REFRESH,
    (NEW_MESSAGE, "unresolvable CDI devices nvidia.com/gpu=all"),
)
STALE = Cause(
    "cdi-stale",
    "The CDI specification was written for driver {old}, but driver {new} is running.",
    GENERATE,
    ("failed to stat CDI host device", "failed to fulfil mount request: open /usr/lib/x86_64-linux-gnu/libcuda.so"),
)
SNAP = Cause(
    "docker-snap",
    "Docker was installed as a snap, which does not see NVIDIA's Container Toolkit.",
    "`sudo snap remove docker`, then install Docker Engine: https://docs.docker.com/engine/install/",
    (OLD_MESSAGE, "load library failed: libnvidia-ml.so.1"),
)
DESKTOP = Cause(
    "docker-desktop-without-gpu",
    "Docker Desktop finds no GPU in its virtual machine.",
    "In Windows: `wsl --update`, install NVIDIA's current driver, then restart Docker Desktop.",
    (OLD_MESSAGE,),
)
WSL_NO_SPECIFICATION = Cause(
    "cdi-no-specification-in-wsl",
    "Docker looks for GPUs in a CDI specification, but this WSL has none.",
    "`sudo nvidia-ctk cdi generate --mode=wsl --output=/etc/cdi/nvidia.yaml && sudo systemctl restart docker`",
    (NEW_MESSAGE,),
)
NO_SUCH_GPU = Cause(
    "gpu-unknown",
    "This machine has no GPU {name}.",
    "`nvidia-smi -L` lists the GPUs of this machine; GPUS chooses one.",
    ("unresolvable CDI devices nvidia.com/gpu=7",),
)
REFUSED = Cause(
    "gpu-refused",  # replaced with the cause of the engine's message, if it is known
    "The engine refuses the GPU for another reason; its own message is shown.",
    "`sudo journalctl -u docker --no-pager | tail -n 30` shows the engine's log.",
)
CAUSES = (
    NO_TOOLKIT,
    NOT_CONFIGURED,
    HALF_INSTALLED,
    NO_SPECIFICATION,
    NOT_REFRESHED,
    NOT_RESTARTED,
    STALE,
    SNAP,
    DESKTOP,
    WSL_NO_SPECIFICATION,
    NO_SUCH_GPU,
    REFUSED,
)
# Rules for the engine's messages; the missing part depends on the machine.
NO_GPU_DRIVER = {"no-gpu-driver"}
UNKNOWN_RUNTIME = {"runtime-unknown"}
MISSING_PROGRAM = {"runtime-missing", "toolkit-missing"}
CDI_RULES = {"cdi-no-vendor", "cdi-unresolved"}
DRIVER_RULES = {"driver-unseen", "cdi-stale", "cdi-broken"}


@check("gpu", "GPU granted", needs=("engine", "driver"), level="full", causes=CAUSES)
def gpu(probes: Any, stack: Stack) -> Finding:
    """Tested by requesting the GPU: `docker info` does not show whether Docker provides GPUs through CDI."""
    if not stack.gpu:
        return skipped(NO_GPU_REQUESTED)
    if probes.cards.timed_out:
        return skipped(DRIVER_HANGS)
    if stack.standalone:
        return _toolkit_ready(probes)
    grant = probes.grant
    if grant.granted:
        return passed(grant.message)
    expected, seen = "a container with the GPU", _last_error(grant.output) if grant.output else "refused"
    if grant.id == HANGS.id:
        return HANGS(seen, expected)
    missing = None if remote(probes.endpoint) else _missing_part(probes, grant.output, expected)
    cause = known_cause(grant.output, REFUSED)
    if grant.granted is None and not missing and cause is REFUSED:  # not about the GPU, and unknown
        return skipped(grant.message)
    return missing or (replace(REFUSED, why=grant.message) if cause is REFUSED else cause)(seen, expected)


def _toolkit_ready(probes: Any) -> Finding:
    """Outside a project, no container is started: whether the toolkit is installed and configured."""
    if remote(probes.endpoint):
        return skipped(ENGINE_IS_REMOTE)
    info, toolkit, expected = facts(probes.info), probes.toolkit, "NVIDIA's Container Toolkit, set up for Docker"
    if desktop(info) and probes.system == "wsl":
        return passed("by Docker Desktop")
    seen = f"toolkit {toolkit.version}" if toolkit.version else "no toolkit"
    if cdi(info):
        return _stale(probes, seen, expected) or passed(f"{seen}, GPUs by CDI")
    if _configured(info) and toolkit.runtime:
        return passed(f"{seen}, NVIDIA's runtime")
    missing = _missing_part(probes, OLD_MESSAGE, expected)
    return replace(missing, seen=seen, status=WARN) if missing else passed(seen)  # only containers need it


def _stale(probes: Any, seen: str, expected: str) -> Finding | None:
    """The finding for a CDI specification that was written for another driver."""
    running = next((card.driver for card in cards(probes.cards.out) if card.driver), probes.module)
    for specification in probes.toolkit.specifications:
        if specification.driver and running and specification.driver != running and probes.system == "linux":
            return STALE(f"{seen}; {specification.path}", expected, old=specification.driver, new=running)
    return None


def _missing_part(probes: Any, text: str, expected: str) -> Finding | None:
    """The missing part, if the engine's message has several causes and the machine decides."""
    info, toolkit, seen, about = facts(probes.info), probes.toolkit, _last_error(text), set(sign_ids(text))
    if not about & (NO_GPU_DRIVER | UNKNOWN_RUNTIME | MISSING_PROGRAM | CDI_RULES | DRIVER_RULES):
        return None
    if desktop(info) and "driver-unseen" not in about:
        return DESKTOP(seen, expected)
    if "/snap/" in info.get("DockerRootDir", ""):
        return SNAP(seen, expected)
    if stale := _stale(probes, seen, expected):
        return stale
    if about & DRIVER_RULES:
        return None
    if about & MISSING_PROGRAM:
        return HALF_INSTALLED(seen, expected) if toolkit.version or _configured(info) else NO_TOOLKIT(seen, expected)
    if not toolkit.version and not toolkit.runtime:
        return HALF_INSTALLED(seen, expected) if _configured(info) else NO_TOOLKIT(seen, expected)
    if about & CDI_RULES:
        if probes.gpus not in (None, "all") and cdi(info):
            return NO_SUCH_GPU(seen, expected, name=probes.gpus)
        if toolkit.specifications:
            return NOT_RESTARTED(f"{seen}; {toolkit.specifications[0].path}", expected)
        if probes.system == "wsl":
            return WSL_NO_SPECIFICATION(seen, expected)
        return (NOT_REFRESHED if version(toolkit.version) >= version(REFRESH_SINCE) else NO_SPECIFICATION)(
            seen, expected
        )
    return NOT_CONFIGURED(seen, expected)


def _configured(info: dict[str, Any]) -> bool:
    return "nvidia" in (info.get("Runtimes") or {})


def _last_error(text: str) -> str:
    """The engine's last line, without its prefixes."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and "--help" not in line]
    last = lines[-1] if lines else ""
    for lead in ("stderr: ", "Error response from daemon: "):
        last = last.rpartition(lead)[2]
    return hide_home(last) or "refused"
