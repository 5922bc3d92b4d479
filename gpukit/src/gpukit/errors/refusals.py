"""Errors of an engine as refusals of launch: the kind, the cause, and one sentence with the remedy."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from gpukit.project.messages import RefusalError

if TYPE_CHECKING:
    from gpukit.errors.diagnose import Found

# The kinds of refusals: the `kind` of a rule.
KINDS = ("engine", "gpu", "disk", "image", "mount", "network", "port", "name", "limit", "command", "build", "uv")
BUILD_KINDS = (
    "engine",
    "disk",
    "image",
    "build",
    "uv",
)  # the kinds that a build can meet; its steps may print anything
NOT_RESPONDING = (
    "docker-down",
    "docker-desktop-down",
    "docker-service-missing",
    "docker-host-silent",
)  # no engine responds
STEP = re.compile(r"failed to solve: process|returned a non-zero code")
WITHOUT_GPU = " Without a GPU: `./launch --cpu ...`."


def classify(text: str, kinds: Collection[str] = ()) -> tuple[str, Found] | None:
    """The kind of an engine's error and its most likely cause; None if it is not known, or not of these kinds."""
    from gpukit.errors.diagnose import diagnose  # imported here because it is slow

    for found in diagnose(text, kinds=kinds or KINDS).causes:
        return found.rule.kind, found
    return None


def explain(text: str, fallback: str, cpu: bool = False, kinds: Collection[str] = ()) -> RefusalError:
    """The refusal for an engine's error; if its cause is unknown, `fallback` and the engine's last line."""
    known = classify(text, kinds)
    if known:
        kind, found = known
        sentence = f"{found.why} {found.remedy}" + (WITHOUT_GPU if kind == "gpu" and cpu else "")
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
