"""torch: whether it is the base's own build, and whether it is still the one that was built in."""

from __future__ import annotations

import re
from typing import Any

from gpukit.checks import check
from gpukit.finding import Finding, count, failed, passed, skipped, warned
from gpukit.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import REBUILD
from gpukit.verify.torch_process import last_line


def local_part(version: str) -> str:
    """What sets a build apart: cu130 of 2.14.1+cu130, nv25.11 of NVIDIA's, cpu where nothing is said."""
    local = version.partition("+")[2]
    nvidia = re.search(r"\bnv(\d+)\.(\d+)", local)
    return f"nv{int(nvidia[1])}.{int(nvidia[2]):02d}" if nvidia else local or "cpu"


@check("import", "torch imports")
def imports(saw: Any, stack: Stack) -> Finding:
    error = saw.torch.error
    if error is None:
        return passed(saw.torch.version)
    if error.kind == "ModuleNotFoundError" and "'torch'" in error.text:
        cause = "torch is not installed in this Python."
    elif error.kind == "Death":
        cause = f"Python {error.text} while it imported torch."
    elif error.kind == "Timeout":
        cause = "Importing torch does not come to an end."
    elif ".so" in error.text:
        cause = "A library that torch was built with is missing or another version."
    else:
        cause = "This installation of torch is broken."
    return failed(last_line(error.text or error.log) or error.kind, "`import torch` works", cause=cause, remedy=REBUILD)


@check("torch", "torch's build", needs=("import",))
def torch(saw: Any, stack: Stack) -> Finding:
    """The base's own: same minor version, same build. A newer patch release is as good."""
    seen, expected = saw.torch.version, stack.torch
    same_version = minor(seen) == minor(expected)
    if on_cpu(saw, stack) and stack.cuda is not None:
        if same_version:
            return passed(seen, f"{minor(expected)}, any build")
        return failed(
            seen,
            f"{minor(expected)}, any build",
            cause="The container without a GPU has another torch than the one with it.",
            remedy=REBUILD,
        )
    for_cpu = stack.cuda is not None and saw.torch.cuda is None
    if same_version and local_part(seen) == local_part(expected) and not for_cpu:
        return passed(seen, expected)
    if same_version and for_cpu:
        cause = "This is a build for CPUs. Something installed torch from another index than the base's."
    elif same_version:
        cause = "This is another build of the same version."
    else:
        cause = "This is another torch than the base's."
    return failed(seen, expected, cause=cause, remedy=REBUILD)


@check("cuda", "torch's CUDA", needs=("import",))
def cuda(saw: Any, stack: Stack) -> Finding:
    seen = saw.torch.cuda or "none"
    if stack.cuda is None:
        if saw.torch.cuda is None:
            return passed(seen, "none")
        return warned(
            seen,
            "none",
            cause="This torch carries CUDA's libraries, gigabytes that no target of this project uses.",
            remedy=REBUILD,
        )
    if on_cpu(saw, stack):
        return skipped("This is the container without a GPU.", seen)
    if saw.torch.cuda and minor(saw.torch.cuda) == minor(stack.cuda):
        return passed(seen, stack.cuda)
    if saw.torch.cuda is None:
        cause = "torch was built without CUDA, and uses no GPU."
    else:
        cause = "torch was built with another CUDA than the base's."
    return failed(seen, stack.cuda, cause=cause, remedy=REBUILD)


@check("protected", "Base's packages")
def protected(saw: Any, stack: Stack) -> Finding:
    """pip and uv are held to the versions recorded at build; whoever went round them shows here."""
    if saw.recorded is None:
        return skipped("Nothing was recorded: this image was not built from the project's Dockerfile.")
    if not saw.changes:
        return passed(f"{count(len(saw.recorded), 'package')}, as they were built in")
    return failed(
        "; ".join(str(change) for change in saw.changes),
        "as they were built in",
        cause="Something was installed over the base's own packages.",
        remedy=f"Take what asks for another version out of pyproject.toml. {REBUILD}",
    )
