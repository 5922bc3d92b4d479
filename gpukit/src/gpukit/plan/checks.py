"""What the catalogue says of a target: whether torch has kernels for it, and which driver it needs."""

from __future__ import annotations

from typing import Any

from gpukit.doctor.driver import compatibility_helps
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, passed
from gpukit.host.cards import data
from gpukit.host.kernels import runs
from gpukit.project.stack import Stack, version

OTHER_STACK = "`./launch update {answers}`"
OUTSIDE = "Use the stack that `gpukit plan --for {id}` recommends."
NOT_FOR_ARCH = Cause(
    "torch-not-for-this-cpu",
    "This release of {base} is not for {arch}.",
    OTHER_STACK,
    standalone=OUTSIDE,
)
OLD_CUDA = Cause(
    "cuda-below-floor",
    "This stack has CUDA {cuda}, and {label} needs {least} or newer.",
    OTHER_STACK,
    standalone=OUTSIDE,
)
WITHOUT_KERNELS = Cause(
    "torch-without-kernels",
    "This torch has no kernels that run on capability {capability}: the first one would fail with 'no kernel image is "
    "available'.",
    OTHER_STACK,
    standalone=OUTSIDE,
)
ONLY_PTX = Cause(
    "torch-only-ptx",
    "This torch has only PTX for capability {capability}: the driver compiles each kernel at first use, which takes "
    "time.",
    OTHER_STACK,
    status=WARN,
    standalone=OUTSIDE,
)
DRIVER_BELOW = Cause(
    "driver-below-floor",
    "The driver there is {driver}, and this stack needs {floor} or newer.",
    "Install the NVIDIA driver {floor} or newer on that machine{instead}.",
)
DRIVER_NEEDS_COMPATIBILITY = Cause(
    "driver-needs-forward-compatibility",
    "The driver there is {driver}, older than the base image's CUDA. On a data-center card, the image's compatibility "
    "libraries can make up for that if NVIDIA's Container Toolkit mounts them.",
    "`./launch verify` there checks whether they do. To be sure, install the driver {floor} or newer{instead}.",
    status=WARN,
    standalone="Install the driver {floor} or newer to be sure{instead}.",
)
LAST_BRANCH = Cause(
    "last-driver-below-floor",
    "The last driver for this GPU is of branch {last}, and this stack needs {floor} or newer.",
    OTHER_STACK,
    standalone=OUTSIDE,
)


@check("torch", "PyTorch", causes=(NOT_FOR_ARCH, OLD_CUDA, WITHOUT_KERNELS, ONLY_PTX))
def torch(probes: Any, stack: Stack) -> Finding:
    """PyTorch runs on a GPU only if it has code compiled for its capability, or PTX for an older one."""
    target, answers = probes.target, probes.answers
    if target.arch not in stack.kernels:
        seen = f"{stack.base} {stack.release} is for {', '.join(stack.kernels)}"
        return NOT_FOR_ARCH(seen, target.arch, base=stack.base, arch=target.arch, answers=answers, id=probes.id)
    if not target.capability:
        return passed(f"torch {stack.torch}, on the CPU")
    least = data("cards")[probes.id]["min_cuda"]
    if stack.cuda and least and version(stack.cuda)[:2] < version(least)[:2]:
        facts = {"cuda": stack.cuda, "label": target.label, "least": least}
        return OLD_CUDA(f"CUDA {stack.cuda}", f"{least} or newer", answers=probes.answers, id=probes.id, **facts)
    kernels = stack.kernels[target.arch]
    has = f"SASS {' '.join(kernels.sass) or 'none'}" + (f", PTX {' '.join(kernels.ptx)}" if kernels.ptx else "")
    seen, expected = f"torch {stack.torch} has {has}", f"capability {target.capability}"
    kind = runs(target.capability, kernels.sass, kernels.ptx)
    if kind == "sass":
        return passed(f"{seen}, which runs on {target.capability}")
    cause = ONLY_PTX if kind else WITHOUT_KERNELS
    return cause(seen, expected, capability=target.capability, answers=answers, id=probes.id)


@check("driver", "Driver", causes=(LAST_BRANCH, DRIVER_NEEDS_COMPATIBILITY, DRIVER_BELOW))
def driver(probes: Any, stack: Stack) -> Finding:
    """The NVIDIA driver of the target's machine must be new enough for the GPU and for the stack's CUDA."""
    target = probes.target
    if not target.capability:
        return passed("none needed")
    floor = max((each for each in (stack.driver, target.driver) if each), key=version, default="")
    last = target.last_driver
    if last and version(last)[:1] < version(floor)[:1]:
        facts = {"last": last, "floor": floor, "answers": probes.answers, "id": probes.id}
        return LAST_BRANCH(f"branch {last}", f"{floor} or newer", **facts)
    given = probes.driver
    if given and version(given) < version(floor)[: len(version(given))]:
        cards = data("cards")[probes.id]["memory_gb"]
        helps = any(compatibility_helps(stack.base, given, card) for card in cards)
        cause = DRIVER_NEEDS_COMPATIBILITY if helps and floor == stack.driver else DRIVER_BELOW
        instead = other_release(probes, stack, given)
        return cause(given, f"{floor} or newer", driver=given, floor=floor, instead=instead)
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
