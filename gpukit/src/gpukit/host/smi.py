"""What nvidia-smi reports (its XML is the format that changes least), and the kernel in /proc and /sys."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from gpukit.host.process import Result, nvidia_smi, run

COMMAND = ("nvidia-smi", "-q", "-x")
LIMIT = 20


@dataclass(frozen=True)
class Card:
    """One GPU. None: this driver or GPU does not report it."""

    name: str = ""
    uuid: str = ""
    bus: str = ""
    mig: bool = False
    display: bool = False
    processes: int = 0
    computing: int = 0  # those that compute; a display's do not
    used: int | None = None  # MiB of memory, in use by anything
    memory: int | None = None  # MiB
    temperature: int | None = None
    slowed: tuple[str, ...] = ()  # the reasons that are active
    uncorrected: int | None = None  # memory errors since the driver was loaded that ECC could not correct
    pending: bool = False  # rows or pages that will be remapped or retired at the next reset
    failure: bool = False  # no spare row was left
    recovery: str = ""  # the action that the driver requests
    gen: int | None = None
    width: int | None = None
    widest: int | None = None  # the width that this GPU and its machine can have
    mode: str = ""  # compute mode: Default, Exclusive_Process, Prohibited
    lost: bool = False  # the driver no longer reaches it, although it is listed


@dataclass(frozen=True)
class Smi:
    """`message` is set if it fails, and `late` if it did not answer in time."""

    driver: str = ""
    cards: tuple[Card, ...] = ()
    message: str = ""
    late: bool = False


def look() -> Smi:
    return read(run([nvidia_smi(), *COMMAND[1:]], LIMIT))


def read(done: Result) -> Smi:
    """The answer of COMMAND."""
    if done.code == 0:
        return parse(done.out)
    missing = "nvidia-smi is not installed" if done.code is None else f"exit code {done.code}"
    return Smi(message=done.text or missing, late=done.timed_out)


def parse(xml: str) -> Smi:
    try:
        root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", xml).strip())
    except ElementTree.ParseError as error:
        return Smi(message=f"its XML cannot be read: {error}")
    return Smi(_text(root, "driver_version"), tuple(_card(gpu) for gpu in root.iter("gpu")))


def _card(gpu: ElementTree.Element) -> Card:
    reasons = [*gpu.findall("clocks_event_reasons/*"), *gpu.findall("clocks_throttle_reasons/*")]
    active = [each for each in reasons if _text(each, ".") == "Active"]
    return Card(
        name=_text(gpu, "product_name"),
        uuid=_text(gpu, "uuid"),
        bus=_text(gpu, "pci/pci_bus_id") or gpu.get("id", ""),
        mig=_text(gpu, "mig_mode/current_mig") == "Enabled",
        display=_text(gpu, "display_active") == "Enabled",
        processes=len(gpu.findall("processes/process_info")),
        computing=sum(each.text in ("C", "M+C") for each in gpu.findall("processes/process_info/type")),
        used=_number(_text(gpu, "fb_memory_usage/used")),
        memory=_number(_text(gpu, "fb_memory_usage/total")),
        temperature=_number(_text(gpu, "temperature/gpu_temp")),
        slowed=tuple(re.sub(r"^clocks_\w+?_reasons?_", "", each.tag) for each in active),
        uncorrected=_uncorrected(gpu),
        pending=any(
            _text(gpu, path) == "Yes"
            for path in (
                "remapped_rows/remapped_row_pending",
                "retired_pages/pending_retirement",
                "retired_pages/pending_blacklist",
                "ecc_errors/channel_repair_pending",
                "ecc_errors/tpc_repair_pending",
            )
        ),
        failure="Yes"
        in (_text(gpu, "remapped_rows/remapped_row_failure"), _text(gpu, "ecc_errors/unrepairable_memory")),
        recovery=_recovery(gpu),
        gen=_number(_text(gpu, "pci/pci_gpu_link_info/pcie_gen/current_link_gen")),
        width=_number(_text(gpu, "pci/pci_gpu_link_info/link_widths/current_link_width")),
        widest=_number(_text(gpu, "pci/pci_gpu_link_info/link_widths/max_link_width")),
        mode=_text(gpu, "compute_mode"),
        lost=_says(gpu, "GPU is lost"),
    )


def _recovery(gpu: ElementTree.Element) -> str:
    asked = _text(gpu, "gpu_recovery_action")
    if asked in ("", "None", "N/A"):  # before driver 570, only whether a reset is required
        required = _text(gpu, "gpu_reset_status/reset_required") == "Yes" or _says(gpu, "GPU requires reset")
        return "Reset" if required else ""
    return asked


def _says(gpu: ElementTree.Element, error: str) -> bool:
    """Whether a field has an error instead of a value."""
    return any((each.text or "").strip(" []") == error for each in gpu.iter())


def _uncorrected(gpu: ElementTree.Element) -> int | None:
    counts = [
        _number(each.text or "")
        for each in gpu.findall("ecc_errors/volatile/*")
        if "uncorrectable" in each.tag
    ]  # fmt: skip
    counts.append(_number(_text(gpu, "ecc_errors/volatile/double_bit/total")))  # before Ampere
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _number(text: str) -> int | None:
    match = re.match(r"\s*(\d+)", text)
    return int(match.group(1)) if match else None


def quota() -> float | None:
    """The CPU quota of the container's cgroup, in CPUs."""
    with contextlib.suppress(OSError, ValueError):
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        return None if share == "max" else int(share) / int(period)
    with contextlib.suppress(OSError, ValueError):  # cgroup v1
        share, period = (
            int(Path("/sys/fs/cgroup/cpu", name).read_text(encoding="utf-8"))
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        return share / period if share > 0 else None
    return None
