"""What this machine needs, where there is no project: its stack, and how that is shown."""

from __future__ import annotations

from typing import Any

from gpukit.errors.machine import Machine
from gpukit.findings.checks import More
from gpukit.host import facts, stacks
from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.project.stack import Stack, version

UNIFIED = (
    "GPU and CPU share one memory: leave some to the system, with torch.cuda.set_per_process_memory_fraction(0.8)."
)
ARM64 = "arm64: xformers and flash-attn have no wheels; NVIDIA's image has flash-attn."
ON_CPU = (
    "This machine has no NVIDIA GPU: PyTorch runs on its CPU. That is enough to write and test code, to prepare data, "
    "and for small models; training larger ones needs a GPU."
)
LAST = "Driver branch {branch} is the last that supports this card."
UNKNOWN = "The card is not known before its driver is installed; `gpukit setup --hardware ID` takes one of: {ids}."
EXPERIMENTAL = "Its driver comes with JetPack."


def needs(machine: Machine, cpu: bool = False) -> Stack:
    """The stack of the first of this machine's cards that the template knows; of the CPU where there is none."""
    arch = machine.arch or "amd64"
    ids = facts.hardware(machine)
    if cpu or machine.system == "macos" or machine.gpus == ():
        return stacks.stack(["cpu"], arch)
    if ids:
        return stacks.stack(ids)
    return stacks.stack(_similar(machine.capabilities, arch) or stacks.candidates(arch))


def _similar(capabilities: tuple[str, ...], arch: str) -> list[str]:
    """The hardware whose build has kernels for a card that is in no list."""
    for id, found in data("stacks")["stacks"].items():
        kernels = found["kernels"].get(arch)
        for capability in capabilities:
            if kernels and runs(capability, tuple(kernels["sass"]), tuple(kernels["ptx"])):
                return [id]
    return []


def report(machine: Machine, stack: Stack, document: dict[str, Any]) -> More:
    """What stands below the findings, and the same in the document of --json."""
    ids = [id for id in facts.hardware(machine) if id in stack.targets] or (["cpu"] if not stack.gpu else [])
    wheel, id = dict(stack.native), ids[0] if ids else ""
    found = data("stacks")["stacks"][next(iter(stack.targets))]
    floors = [floor for floor in (wheel["driver"], *(stack.targets[id].driver for id in ids)) if floor]
    floor = max(floors, key=version, default=None) if stack.gpu else None
    older = _for_driver(machine.driver, ids, wheel) if floor else None
    notes = [*_notes(machine, stack, id)]
    if older:
        notes.append(f"With driver {machine.driver}: `{older}`.")
    document["needs"] = {
        "hardware": ids,
        "label": stack.targets[id].label if id else "",
        "driver": floor,
        "image": stack.image,
        "base": stack.base,
        "release": stack.release,
        "python": stack.python,
        "torch": wheel["torch"],
        "cuda": wheel["cuda"],
        "install": wheel["install"],
        "precisions": list(stack.targets[id].precisions) if id else [],
        "unified_memory": bool(id and stack.targets[id].unified_memory),
        "notes": notes,
    }
    lines = [f"{document['needs']['label'] or 'An NVIDIA GPU'} needs:" if stack.gpu else "Without a GPU:"]
    rows = [
        ("driver", f"{floor} or newer{_installed(machine)}" if floor else _system(machine, stack)),
        ("PyTorch", f"{wheel['torch']}" + (f", built for CUDA {wheel['cuda']}" if wheel["cuda"] else "")),
        ("install", wheel["install"]),
        ("image", f"{stack.image}  ({found['why']})"),
        ("precision", ", ".join(document["needs"]["precisions"])),
    ]
    lines += [f"  {name:<10} {text}" for name, text in rows if text]
    return More(document, "\n".join([*lines, *(f"  {note}" for note in notes)]))


def _system(machine: Machine, stack: Stack) -> str:
    return EXPERIMENTAL if stack.gpu and machine.jetson else ""


def _installed(machine: Machine) -> str:
    return f" (here: {machine.driver})" if machine.driver else ""


def _notes(machine: Machine, stack: Stack, id: str) -> list[str]:
    if not stack.gpu:
        return [ON_CPU]
    notes = []
    if not id and not machine.capabilities:
        notes.append(UNKNOWN.format(ids=", ".join(stack.targets)))
    if id and stack.targets[id].unified_memory:
        notes.append(UNIFIED)
    if machine.arch == "arm64":
        notes.append(ARM64)
    if id and stack.targets[id].last_driver:
        notes.append(LAST.format(branch=stack.targets[id].last_driver))
    return notes


def _for_driver(driver: str | None, ids: list[str], wheel: dict[str, Any]) -> str | None:
    """The newest PyTorch that an older driver serves, where it does not serve the newest."""
    if not driver or not wheel["driver"] or version(driver) >= version(wheel["driver"]):
        return None
    return stacks.wheel_for(ids, driver)
