"""What each hardware needs, and which targets a project can have, from data/stacks.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpukit.errors.machine import Machine
from gpukit.host.cards import data
from gpukit.host.facts import hardware
from gpukit.host.kernels import runs
from gpukit.project.stack import Kernels, Memory, Stack, Target, version


def stack(ids: Iterable[str], arch: str = "") -> Stack:
    """The stack for a machine with one of these hardware ids: the base, release, and driver of the first.

    `arch`: the machine's CPU architecture, for hardware that exists with several, such as `cpu`.
    """
    ids = list(ids)
    found = data("stacks")["stacks"][ids[0]]
    known = data("cards")
    fields = ("base", "release", "image", "python", "torch", "cuda", "driver", "end_of_life", "size_gb")
    return Stack(
        project="",
        package="",
        use_case="minimal",
        tracking=(),
        targets={id: target(known[id], arch) for id in ids},
        channel="current",
        kernels={name: Kernels(tuple(each["sass"]), tuple(each["ptx"])) for name, each in found["kernels"].items()},
        protected=tuple(found["protected"]),
        memory=Memory(**found["memory"]),
        user="",
        mounts=(),
        read_only=(),
        native=found["wheel"],
        **{field: found[field] for field in fields},
    )


def needs(machine: Machine, cpu: bool = False) -> Stack:
    """The stack for the first known GPU of this machine; for the CPU if there is none."""
    arch = machine.arch or "amd64"
    ids = hardware(machine)
    if cpu or machine.system == "macos" or machine.gpus == ():
        return stack(["cpu"], arch)
    if ids:
        return stack(ids)
    if machine.capabilities:  # GPUs that are not in the catalogue
        return stack(_similar(machine.capabilities, arch) or ["cpu"], arch)
    return stack(candidates(arch))


def _similar(capabilities: tuple[str, ...], arch: str) -> list[str]:
    """The hardware whose build has kernels for a GPU that is not in the catalogue."""
    for id, found in data("stacks")["stacks"].items():
        kernels = found["kernels"].get(arch)
        for capability in capabilities:
            if kernels and runs(capability, tuple(kernels["sass"]), tuple(kernels["ptx"])):
                return [id]
    return []


def target(known: dict[str, Any], arch: str = "") -> Target:
    return Target(
        known["label"],
        known["capability"],
        arch or known["arch"],
        known["driver"],
        known["unified_memory"],
        tuple(known["precisions"]),
        known["last_driver"],
        known["modules"],
    )


def without_gpu(stack: Stack) -> Stack:
    """The same project in its container without a GPU."""
    targets = {id: replace(target, capability=None) for id, target in stack.targets.items()}
    size = data("stacks")["stacks"]["cpu"]["size_gb"]
    return replace(stack, targets=targets, driver=None, size_gb=size, end_of_life=None)


def natively(stack: Stack) -> Stack:
    """What a native environment of the project has instead of the image."""
    own = {name: stack.native[name] for name in ("torch", "cuda", "driver", "python", "size_gb")}
    return replace(stack, base="wheel", **own, protected=tuple(stack.native["protected"]))


def candidates(arch: str) -> list[str]:
    """The possible hardware ids if the GPU is not known; those with the newest CUDA first."""
    known = data("cards")
    stacks = data("stacks")["stacks"]
    found = [id for id, each in known.items() if each["capability"] and each["arch"] == arch and each["modules"]]
    return sorted(found, key=lambda id: version(stacks[id]["cuda"]), reverse=True) or ["rtx-40"]


def releases_for(base: str, targets: Iterable[str], use_case: str) -> list[str]:
    """The confirmed releases of a base that support all these hardware ids and the use case."""
    return [
        name
        for name, release in data("stacks")["releases"].get(base, {}).items()
        if release["confirmed"] and set(targets) <= {*release["hardware"]} and use_case in release["use_cases"]
    ]


def wheel_for(ids: Iterable[str], driver: str) -> str | None:
    """The command that installs the newest PyTorch for this hardware and an older driver."""
    releases = data("stacks")["releases"]["wheel"]
    for name in releases_for("wheel", ids, "minimal"):
        if releases[name]["driver"] and version(releases[name]["driver"]) <= version(driver):
            return releases[name]["install"]
    return None


def for_driver(stack: Stack, ids: Iterable[str], driver: str) -> tuple[str, str] | None:
    """Base and release that support this hardware with an older driver, such as 570; the stack's base comes first.

    Within a base, confirmed releases come first: the others can be pinned.
    """
    known = data("stacks")["releases"]
    for base in dict.fromkeys([stack.base, *known]):
        for name, release in sorted(known[base].items(), key=lambda entry: not entry[1]["confirmed"]):
            floor = version(release["driver"] or "")[: len(version(driver))]
            supported = set(ids) <= {*release["hardware"]} and stack.use_case in release["use_cases"]
            if supported and floor and floor <= version(driver):
                return base, name
    return None


def update_answers(stack: Stack, id: str) -> str:
    """The options of `./launch update` that add this hardware to the project, or replace the target; empty if none do.

    copier.yml accepts these answers: a test renders them.
    """
    if id in stack.targets or id not in data("cards"):
        return ""
    others = list(stack.targets)[1:]
    added = _with_base(stack, [*stack.targets, id]) if stack.gpu else None
    if added is not None:
        return " ".join([f"--answers 'also_on=[{', '.join([*others, id])}]'", *added])
    instead = _with_base(stack, [id])
    nothing_else = ["'also_on=[]'"] if others else []
    return "" if instead is None else " ".join([f"--answers hardware={id}", *nothing_else, *instead])


def _with_base(stack: Stack, targets: list[str]) -> list[str] | None:
    """The answers for base and release that support these targets: none if unchanged; None if no base supports them."""
    recommended = data("stacks")["stacks"][targets[0]]["base"]
    for base in dict.fromkeys([stack.base, recommended, *data("stacks")["releases"]]):
        if names := releases_for(base, targets, stack.use_case):
            pinned = stack.channel == "pin" and not (base == stack.base and stack.release in names)
            return [f"base={base}"] * (base != stack.base) + ["release=current"] * pinned
    return None
