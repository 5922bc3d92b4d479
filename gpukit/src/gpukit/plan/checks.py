"""What the catalogue says of a target: whether torch has kernels for it, and which driver it needs."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.driver import compatibility_helps
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, passed, problem
from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.project.stack import Stack, version


@check(
    "torch", "PyTorch", causes=("torch-not-for-this-cpu", "cuda-below-floor", "torch-without-kernels", "torch-only-ptx")
)
def torch(probes: Any, stack: Stack) -> Finding:
    """PyTorch runs on a GPU only if it has code compiled for its capability, or PTX for an older one."""
    target = probes.target
    answers = probes.answers
    if target.arch not in stack.kernels:
        seen = f"{stack.base} {stack.release} is for {', '.join(stack.kernels)}"
        return problem(
            "torch-not-for-this-cpu",
            seen,
            target.arch,
            base=stack.base,
            arch=target.arch,
            answers=answers,
            id=probes.id,
        )
    if not target.capability:
        return passed(f"torch {stack.torch}, on the CPU")
    least = data("cards")[probes.id]["min_cuda"]
    if stack.cuda and least and version(stack.cuda)[:2] < version(least)[:2]:
        facts = {"cuda": stack.cuda, "label": target.label, "least": least}
        return problem(
            "cuda-below-floor", f"CUDA {stack.cuda}", f"{least} or newer", answers=probes.answers, id=probes.id, **facts
        )
    kernels = stack.kernels[target.arch]
    has = f"SASS {' '.join(kernels.sass) or 'none'}" + (f", PTX {' '.join(kernels.ptx)}" if kernels.ptx else "")
    seen = f"torch {stack.torch} has {has}"
    expected = f"capability {target.capability}"
    kind = runs(target.capability, kernels.sass, kernels.ptx)
    if kind == "sass":
        return passed(f"{seen}, which runs on {target.capability}")
    id = "torch-only-ptx" if kind else "torch-without-kernels"
    return problem(id, seen, expected, capability=target.capability, answers=answers, id=probes.id)


@check(
    "driver", "Driver", causes=("last-driver-below-floor", "driver-needs-forward-compatibility", "driver-below-floor")
)
def driver(probes: Any, stack: Stack) -> Finding:
    """The NVIDIA driver of the target's machine must be new enough for the GPU and for the stack's CUDA."""
    target = probes.target
    if not target.capability:
        return passed("none needed")
    floor = max((each for each in (stack.driver, target.driver) if each), key=version, default="")
    last = target.last_driver
    if last and version(last)[:1] < version(floor)[:1]:
        facts = {"last": last, "floor": floor, "answers": probes.answers, "id": probes.id}
        return problem("last-driver-below-floor", f"branch {last}", f"{floor} or newer", **facts)
    given = probes.driver
    if given and version(given) < version(floor)[: len(version(given))]:
        cards = data("cards")[probes.id]["memory_gb"]
        helps = any(compatibility_helps(stack.base, given, card) for card in cards)
        id = "driver-needs-forward-compatibility" if helps and floor == stack.driver else "driver-below-floor"
        instead = other_release(probes, stack, given)
        return problem(id, given, f"{floor} or newer", driver=given, floor=floor, instead=instead)
    return passed(f"{given}, for {floor} or newer" if given else f"{floor} or newer")


def other_release(probes: Any, stack: Stack, driver: str) -> str:
    """The release that supports the older driver, as the end of a remedy; empty if none does."""
    target = probes.target.driver
    if not probes.release or (target and version(driver) < version(target)[: len(version(driver))]):
        return ""
    base, name = probes.release
    answers = f"--answers base={base} release={name}" if base != stack.base else f"--answers release={name}"
    how = f"the base `{base}`, release {name}" if stack.standalone else f"`./launch update {answers}`"
    return f", or use a release that supports driver {driver}: {how}"
