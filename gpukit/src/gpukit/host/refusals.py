"""Errors of an engine as refusals of launch: the kind, the cause, and one sentence with the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from gpukit.project.messages import RefusalError

if TYPE_CHECKING:
    from gpukit.errors.diagnose import Found
    from gpukit.errors.machine import Machine

# The kinds of refusals: the `kind` of a sign.
KINDS = ("engine", "gpu", "disk", "image", "mount", "network", "port", "name", "limit", "command", "build", "uv")
BUILD_KINDS = ("engine", "disk", "image", "build", "uv")  # that a build can meet; its steps may print anything
# The causes of which no engine responds.
NOT_RESPONDING = ("docker-down", "docker-desktop-down", "docker-service-missing", "docker-host-silent")
STEP = re.compile(r"failed to solve: process|returned a non-zero code")
NO_GPU = "no-gpu-here"  # the cause: this machine has no NVIDIA GPU
WITHOUT_GPU = " Without a GPU: `./launch --cpu ...`."


def no_gpu(command: str = "./launch --cpu ...") -> RefusalError:
    """The refusal on a machine without a GPU; `command` does the same without one."""
    return RefusalError(f"No NVIDIA GPU here. To use the CPU configuration: `{command}`", kind="gpu", id=NO_GPU)


def lacks_gpu(refusal: RefusalError) -> bool:
    """Whether the engine refused the GPU because this machine has none, so that only `--cpu` helps."""
    return refusal.id == NO_GPU


def classify(text: str, kinds: Collection[str] = (), machine: Machine | None = None) -> tuple[str, Found] | None:
    """The kind of an engine's error and its most likely cause; None if it is not known, or not of these kinds.

    `machine`: the facts about the engine's machine, which decide what a GPU that it refuses is missing.
    """
    from gpukit.errors.diagnose import diagnose  # imported here because it is slow

    for found in diagnose(text, machine, kinds or KINDS).causes:
        return found.sign.kind, found
    return None


def explain(
    text: str,
    fallback: str,
    cpu: bool = False,
    kinds: Collection[str] = (),
    machine: Machine | None = None,
    native: bool = False,
) -> RefusalError:
    """The refusal for an error of an engine or of uv; if its cause is unknown, `fallback` and the last line."""
    known = classify(text, kinds, machine)
    if known:
        from gpukit.findings.causes import NATIVE, PROJECT

        kind, found = known
        words = found.words(NATIVE if native else PROJECT)
        sentence = f"{words.why} {words.remedy}"
        if kind == "gpu" and cpu and found.cause.id != NO_GPU:  # whose remedy names it
            sentence += WITHOUT_GPU
        if kind == "image":  # the engine's message names the image
            sentence += f" `BASE_IMAGE=...` names another image or a mirror. The engine's message: {found.line}"
        return RefusalError(sentence, kind=kind, id=found.cause.id, output=text)
    if STEP.search(text):
        return RefusalError(
            f"{fallback}: a step of the Dockerfile failed. Its output above shows why.",
            kind="build",
            id="build-step-failed",
            output=text,
        )
    lines = [line.strip() for line in text.splitlines() if not re.match(r"\s*$|.*--help|Usage:", line)]
    return RefusalError(f"{fallback}: {lines[-1]}" if lines else f"{fallback}.", output=text)


def unfit_pin(text: str, requirements: Path) -> RefusalError | None:
    """The refusal for uv's failed resolution if what it names is a version from requirements.txt."""
    from gpukit.errors.known import match_signs

    failed = match_signs(text, "packages-contradict") if requirements.is_file() else None
    if not failed:
        return None
    # without BuildKit's prefixes: "#14 0.727 ", and "0.727 " in its summary
    reason = re.sub(r"\s*\n(?:#\d+ )?(?:\d+\.\d+ )?\s*", " ", text[failed.start() :])
    for pin in re.findall(r"^[\w.-]+==[^\s;]+", requirements.read_text(encoding="utf-8"), re.MULTILINE):
        if re.search(rf"(?<![\w.-]){re.escape(pin)}(?![\w+]|\.\d)", reason, re.IGNORECASE):
            remedy = "`./launch pin --remove` removes the pins, and `./launch pin` then writes new ones"
            sentence = f"requirements.txt pins {pin}, which is not compatible with the other packages: {remedy}."
            return RefusalError(sentence, kind="uv", id="unfit-pin", output=text)
    return None
