"""What each hardware needs, and which hardware one project can be for (data/stacks.json), without a project."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpukit.host.cards import data
from gpukit.project.stack import Kernels, Memory, Stack, Target, version


def stack(ids: Iterable[str], arch: str = "") -> Stack:
    """What a machine with one of these hardware ids needs: the base, release, and driver of the first.

    `arch`: the machine's processor, where the hardware is for several, as `cpu` is.
    """
    ids = list(ids)
    found, known = data("stacks")["stacks"][ids[0]], data("cards")
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


def candidates(arch: str) -> list[str]:
    """What a machine can be whose card is not known; first what has the newest PyTorch."""
    known = data("cards")
    stacks = data("stacks")["stacks"]
    found = [id for id, each in known.items() if each["capability"] and each["arch"] == arch and each["modules"]]
    return sorted(found, key=lambda id: version(stacks[id]["cuda"]), reverse=True) or ["rtx-40"]


def serving(base: str, targets: Iterable[str], use_case: str) -> list[str]:
    """The confirmed releases of a base that serve these hardware ids together, and the use case."""
    return [
        name
        for name, release in data("stacks")["releases"].get(base, {}).items()
        if release["confirmed"] and set(targets) <= {*release["hardware"]} and use_case in release["use_cases"]
    ]


def wheel_for(ids: Iterable[str], driver: str) -> str | None:
    """The command that installs the newest PyTorch for this hardware and an older driver."""
    releases = data("stacks")["releases"]["wheel"]
    for name in serving("wheel", ids, "minimal"):
        if releases[name]["driver"] and version(releases[name]["driver"]) <= version(driver):
            return releases[name]["install"]
    return None


def answers(stack: Stack, id: str) -> str:
    """What `copier update` must be given so that the project serves this hardware too, or else instead; empty if nothing.

    copier.yml accepts these answers: a test renders each.
    """
    if id in stack.targets or id not in data("cards"):
        return ""
    main, *others = stack.targets
    both = [*stack.targets, id]
    added = f"'also_on=[{', '.join([*others, id])}]'"
    if main != "cpu" or others:
        if more := _base(stack, both):
            return " ".join(["--data", added, *more[1:]])
    instead = _base(stack, [id])
    return (
        " ".join(["--data", f"hardware={id}", *(["--data 'also_on=[]'"] if others else []), *instead[1:]])
        if instead
        else ""
    )


def _base(stack: Stack, targets: list[str]) -> list[str]:
    """Empty if no base serves the targets; otherwise `kept`, and what must be answered for that, if anything."""
    recommended = data("stacks")["stacks"][targets[0] if len(targets) > 1 else targets[-1]]["base"]
    for base in dict.fromkeys([stack.base, recommended, *data("stacks")["releases"]]):
        names = serving(base, targets, stack.use_case)
        if not names:
            continue
        more = [f"--data base={base}"] if base != stack.base else []
        if stack.channel == "pin" and (base != stack.base or stack.release not in names):
            more.append("--data release=current")
        return ["kept", *more]
    return []
