"""Outside a project: the driver, PyTorch, and image for this machine."""

from __future__ import annotations

import textwrap
from typing import Any

from gpukit.errors.machine import Machine
from gpukit.host import facts
from gpukit.host.cards import data
from gpukit.host.memory import usual
from gpukit.project.stack import Stack, version

UNIFIED = (
    "GPU and CPU share their memory, and too large an allocation freezes the machine. Limit PyTorch in each shell: "
    "export PYTORCH_ALLOC_CONF=per_process_memory_fraction:{most} (torch 2.10 or newer)."
)
ON_CPU = (
    "This machine has no NVIDIA GPU: PyTorch runs on the CPU. That is enough to write and test code, to prepare data, "
    "and for small models; training larger ones needs a GPU."
)
NO_BUILD = "No current PyTorch has a build for this GPU. It runs on the CPU."
LAST_BRANCH = "Driver branch {branch} is the last that supports this card."
UNKNOWN_CARD = "The GPU is not known until its driver is installed. Name it with `gpukit setup --hardware ID`: {ids}."
PART_OF_JETPACK = "part of JetPack 7 or newer"


def report(machine: Machine, stack: Stack) -> tuple[dict[str, Any], str]:
    """What this machine needs: for the JSON document, and as the text below the findings."""
    ids = [id for id in facts.hardware(machine) if id in stack.targets] or (["cpu"] if not stack.gpu else [])
    wheel = dict(stack.native)
    id = ids[0] if ids else ""
    found = data("stacks")["stacks"][next(iter(stack.targets))]
    floors = [floor for floor in (wheel["driver"], *(stack.targets[id].driver for id in ids)) if floor]
    own = not stack.gpu or not id or stack.targets[id].modules  # the driver is not part of the system, as on a Jetson
    floor = max(floors, key=version, default=None) if stack.gpu and own else None
    notes = _notes(machine, stack, id)
    needs = {
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
    about = needs["label"] or "an NVIDIA GPU"
    here = f" (here: {machine.driver})" if machine.driver else ""
    lines = [f"For this machine ({about}):" if stack.gpu else "For this machine, without a GPU:"]
    rows = [
        ("driver", f"{floor} or newer{here}" if floor else "" if own else PART_OF_JETPACK),
        ("PyTorch", f"{wheel['torch']}" + (f", built for CUDA {wheel['cuda']}" if wheel["cuda"] else "")),
        ("install", wheel["install"]),
        ("image", f"{stack.image}  ({found['why']})"),
        ("precision", ", ".join(needs["precisions"])),
    ]
    lines += [f"  {name:<10} {text}" for name, text in rows if text]
    wrapped = (textwrap.fill(note, 100, initial_indent="  ", subsequent_indent="  ") for note in notes)
    return needs, "\n".join([*lines, *wrapped])


def _notes(machine: Machine, stack: Stack, id: str) -> list[str]:
    if not stack.gpu:
        return [NO_BUILD if machine.gpus else ON_CPU]
    notes = []
    if not id and not machine.capabilities:
        notes.append(UNKNOWN_CARD.format(ids=", ".join(stack.targets)))
    if id and stack.targets[id].unified_memory:
        notes.append(UNIFIED.format(most=usual()))
    if id and stack.targets[id].last_driver:
        notes.append(LAST_BRANCH.format(branch=stack.targets[id].last_driver))
    return notes
