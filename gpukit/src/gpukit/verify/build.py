"""Whether torch is the expected build, and whether a protected package has changed since the image was built."""

from __future__ import annotations

import re
from typing import Any

from gpukit.errors.known import known_cause, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import WARN, Cause, Finding, count, passed, skipped
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import NO_GPU_REQUESTED, on_cpu
from gpukit.verify.remedies import REBUILD
from gpukit.verify.torch_process import last_line

NOT_INSTALLED = Cause(
    "torch-not-installed", "torch is not installed in this Python.", REBUILD, error_texts=("No module named 'torch'",)
)
CRASHES = Cause("torch-import-crashes", "Python crashed during `import torch`: it {ending}.", REBUILD)
HANGS = Cause("torch-import-hangs", "`import torch` hangs.", REBUILD)
LIBRARY_MISSING = Cause(
    "torch-library-missing",
    "A shared library that torch needs is missing or has another version.",
    REBUILD,
    error_texts=("cannot open shared object file", "undefined symbol", "version `GLIBCXX_"),
)
BROKEN = Cause("torch-broken", "The installed torch is broken.", REBUILD)
CPU_VERSION_DIFFERS = Cause(
    "cpu-torch-differs", "The CPU container has another version of torch than the GPU container.", REBUILD
)
CPU_BUILD = Cause(
    "cpu-torch",
    "This is a CPU build of torch: it was installed from another index than the base's.",
    REBUILD,
    error_texts=("Torch not compiled with CUDA enabled",),
)
OTHER_BUILD = Cause("torch-other-build", "This is another build of the same version of torch.", REBUILD)
OTHER_VERSION = Cause("torch-other-version", "This is another version of torch than the base's.", REBUILD)
CUDA_NOT_NEEDED = Cause(
    "torch-cuda-not-needed",
    "This build of torch includes the CUDA libraries, several gigabytes that no target of this project uses.",
    REBUILD,
    status=WARN,
)
NO_CUDA = Cause(
    "cpu-torch",
    "torch was built without CUDA and cannot use a GPU.",
    REBUILD,
    error_texts=("Torch not compiled with CUDA enabled",),
)
OTHER_CUDA = Cause("torch-other-cuda", "torch was built for another version of CUDA than the base's.", REBUILD)
PROTECTED_CHANGED = Cause(
    "protected-changed",
    "A protected package of the base was replaced or removed.",
    f"Remove what requires another version from pyproject.toml. {REBUILD}",
)

BASE_MOVED = Cause(
    "base-moved",
    "The image was built from another version of the base image than the one recorded: its tag has moved.",
    "On the host: `./launch update`, in case a newer release of the template records this version; `./launch pin "
    "--digest` keeps it until then",
    status=WARN,
)


def local_part(version: str) -> str:
    """The build in a version: cu130 of 2.14.1+cu130, nv25.11 of an NVIDIA build, cpu if there is none."""
    local = version.partition("+")[2]
    nvidia = re.search(r"\bnv(\d+)\.(\d+)", local)
    return f"nv{int(nvidia[1])}.{int(nvidia[2]):02d}" if nvidia else local or "cpu"


def _with_index(probes: Any, text: str) -> str:
    return f"{text}, from the {probes.torch.index}" if probes.torch.index else text


@check("import", "Import torch", causes=(NOT_INSTALLED, CRASHES, HANGS, LIBRARY_MISSING, BROKEN))
def imports(probes: Any, stack: Stack) -> Finding:
    """`import torch` in a separate process, so that a crash or a hang is reported like any other error."""
    error = probes.torch.error
    if error is None:
        return passed(probes.torch.version)
    seen, expected = last_line(error.text or error.log) or error.kind, "`import torch` works"
    if error.kind == "ModuleNotFoundError" and "other-python" in sign_ids(error.text):
        return NOT_INSTALLED(seen, expected)
    if error.kind == "Death":
        return CRASHES(seen, expected, ending=error.text)
    if error.kind == "Timeout":
        return HANGS(seen, expected)
    if error.kind in ("ImportError", "OSError"):  # what Python and ctypes raise for it
        return LIBRARY_MISSING(seen, expected)
    return known_cause(f"{error.text}\n{error.log}", BROKEN)(seen, expected)


@check("torch", "torch build", needs=("import",), causes=(CPU_VERSION_DIFFERS, CPU_BUILD, OTHER_BUILD, OTHER_VERSION))
def torch(probes: Any, stack: Stack) -> Finding:
    """The same minor version and the same build as the base's; a newer patch release is accepted."""
    seen, expected = _with_index(probes, probes.torch.version), stack.torch
    same_version = minor(seen) == minor(expected)
    if on_cpu(probes, stack) and (stack.cuda is not None or probes.torch.index):
        if same_version:
            return passed(seen, f"{minor(expected)}, any build")
        return CPU_VERSION_DIFFERS(seen, f"{minor(expected)}, any build")
    for_cpu = stack.cuda is not None and probes.torch.cuda is None
    same_build = probes.torch.index or local_part(probes.torch.version) == local_part(expected)
    if same_version and same_build and not for_cpu:  # which CUDA it is for is the next check
        return passed(seen, expected)
    if same_version:
        return (CPU_BUILD if for_cpu else OTHER_BUILD)(seen, expected)
    return OTHER_VERSION(seen, expected)


@check("cuda", "CUDA of torch", needs=("import",), causes=(CUDA_NOT_NEEDED, NO_CUDA, OTHER_CUDA))
def cuda(probes: Any, stack: Stack) -> Finding:
    """The CUDA version that torch was built for. A CPU build has none, and silently uses no GPU."""
    seen = _with_index(probes, probes.torch.cuda or "none")
    if stack.cuda is None:
        if probes.torch.cuda is None or probes.torch.index:
            return passed(seen, "none")
        return CUDA_NOT_NEEDED(seen, "none")
    if on_cpu(probes, stack):
        return skipped(NO_GPU_REQUESTED, seen)
    if probes.torch.cuda and minor(probes.torch.cuda) == minor(stack.cuda):
        return passed(seen, stack.cuda)
    return (NO_CUDA if probes.torch.cuda is None else OTHER_CUDA)(seen, stack.cuda)


@check("base-image", "Base image", causes=(BASE_MOVED,))
def base_image(probes: Any, stack: Stack) -> Finding:
    """The image was built from the version of the base image that stack.json records."""
    name, _, digest = probes.base_image.partition("@")
    if not stack.digest:
        return skipped("stack.json records no digest of the base image.", digest)
    if not digest:
        return skipped("Unknown: only `./launch build` records what an image is built from.")
    if name != stack.image:
        return skipped(f"The image was built from {name}, which stack.json says nothing about.", digest)
    return passed(digest, stack.digest) if digest == stack.digest else BASE_MOVED(digest, stack.digest)


@check("protected", "Protected packages", causes=(PROTECTED_CHANGED,))
def protected(probes: Any, stack: Stack) -> Finding:
    """The protected packages have the versions recorded when the image was built."""
    if probes.protected is None:
        return skipped("There is no record: this image was not built from the project's Dockerfile.")
    if not probes.protected_changes:
        return passed(f"{count(len(probes.protected), 'package')} unchanged")
    return PROTECTED_CHANGED(
        "; ".join(str(change) for change in probes.protected_changes), "as recorded when the image was built"
    )
