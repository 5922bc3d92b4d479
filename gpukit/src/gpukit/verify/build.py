"""torch: whether it is the base's own build, and whether it is still the one that was built in."""

from __future__ import annotations

import re
from typing import Any

from gpukit.errors.known import known
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.remedies import REBUILD
from gpukit.verify.torch_process import last_line

NOT_HERE = Cause("torch is not installed in this Python.", REBUILD, says=("No module named 'torch'",))
CRASHES = Cause("Python {ending} while it imported torch.", REBUILD)
NO_END = Cause("Importing torch does not come to an end.", REBUILD)
LIBRARY = Cause(
    "A library that torch was built with is missing or another version.",
    REBUILD,
    says=("cannot open shared object file", "undefined symbol", "version `GLIBCXX_"),
)
BROKEN = Cause("This installation of torch is broken.", REBUILD)
CPU_ANOTHER = Cause("The container without a GPU has another torch than the one with it.", REBUILD)
FOR_CPU = Cause(
    "This is a build for CPUs. Something installed torch from another index than the base's.",
    REBUILD,
    says=("Torch not compiled with CUDA enabled",),
)
ANOTHER_BUILD = Cause("This is another build of the same version.", REBUILD)
ANOTHER = Cause("This is another torch than the base's.", REBUILD)
NEEDLESS = Cause(
    "This torch carries CUDA's libraries, gigabytes that no target of this project uses.", REBUILD, status=WARN
)
NO_CUDA = Cause(
    "torch was built without CUDA, and uses no GPU.", REBUILD, says=("Torch not compiled with CUDA enabled",)
)
ANOTHER_CUDA = Cause("torch was built with another CUDA than the base's.", REBUILD)
MOVED = Cause(
    "Something was installed over the base's own packages.",
    f"Take what asks for another version out of pyproject.toml. {REBUILD}",
)


def local_part(version: str) -> str:
    """What sets a build apart: cu130 of 2.14.1+cu130, nv25.11 of NVIDIA's, cpu where nothing is said."""
    local = version.partition("+")[2]
    nvidia = re.search(r"\bnv(\d+)\.(\d+)", local)
    return f"nv{int(nvidia[1])}.{int(nvidia[2]):02d}" if nvidia else local or "cpu"


def _with_index(saw: Any, text: str) -> str:
    return f"{text}, from the {saw.torch.index}" if saw.torch.index else text


@check("import", "torch imports", causes=(NOT_HERE, CRASHES, NO_END, LIBRARY, BROKEN))
def imports(saw: Any, stack: Stack) -> Finding:
    """In a process of its own, so that a crash or a hang is told like any other fault."""
    error = saw.torch.error
    if error is None:
        return passed(saw.torch.version)
    seen, expected = last_line(error.text or error.log) or error.kind, "`import torch` works"
    if error.kind == "ModuleNotFoundError" and "'torch'" in error.text:
        return NOT_HERE(seen, expected)
    if error.kind == "Death":
        return CRASHES(seen, expected, ending=error.text)
    if error.kind == "Timeout":
        return NO_END(seen, expected)
    if ".so" in error.text or "symbol" in error.text:
        return LIBRARY(seen, expected)
    return known(f"{error.text}\n{error.log}", BROKEN)(seen, expected)


@check("torch", "torch's build", needs=("import",), causes=(CPU_ANOTHER, FOR_CPU, ANOTHER_BUILD, ANOTHER))
def torch(saw: Any, stack: Stack) -> Finding:
    """The base's own: same minor version, same build. A newer patch release is as good."""
    seen, expected = _with_index(saw, saw.torch.version), stack.torch
    same_version = minor(seen) == minor(expected)
    if on_cpu(saw, stack) and (stack.cuda is not None or saw.torch.index):
        if same_version:
            return passed(seen, f"{minor(expected)}, any build")
        return CPU_ANOTHER(seen, f"{minor(expected)}, any build")
    for_cpu = stack.cuda is not None and saw.torch.cuda is None
    same_build = saw.torch.index or local_part(saw.torch.version) == local_part(expected)
    if same_version and same_build and not for_cpu:  # which CUDA it is for is the next check
        return passed(seen, expected)
    if same_version:
        return (FOR_CPU if for_cpu else ANOTHER_BUILD)(seen, expected)
    return ANOTHER(seen, expected)


@check("cuda", "torch's CUDA", needs=("import",), causes=(NEEDLESS, NO_CUDA, ANOTHER_CUDA))
def cuda(saw: Any, stack: Stack) -> Finding:
    """The CUDA that torch was built with; a build for CPUs has none, and uses no GPU without a word."""
    seen = _with_index(saw, saw.torch.cuda or "none")
    if stack.cuda is None:
        if saw.torch.cuda is None or saw.torch.index:
            return passed(seen, "none")
        return NEEDLESS(seen, "none")
    if on_cpu(saw, stack):
        return skipped("This is the container without a GPU.", seen)
    if saw.torch.cuda and minor(saw.torch.cuda) == minor(stack.cuda):
        return passed(seen, stack.cuda)
    return (NO_CUDA if saw.torch.cuda is None else ANOTHER_CUDA)(seen, stack.cuda)


@check("protected", "Base's packages", causes=(MOVED,))
def protected(saw: Any, stack: Stack) -> Finding:
    """pip and uv are held to the versions recorded at build; whoever went round them shows here."""
    if saw.protected is None:
        return skipped("Nothing was recorded: this image was not built from the project's Dockerfile.")
    if not saw.protected_changes:
        return passed(f"{count(len(saw.protected), 'package')}, as they were built in")
    return MOVED("; ".join(str(change) for change in saw.protected_changes), "as they were built in")
