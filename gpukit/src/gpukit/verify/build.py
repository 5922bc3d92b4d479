"""Whether torch is the expected build, and whether a protected package has changed since the image was built."""

from __future__ import annotations

import re
from typing import Any

from gpukit.errors.known import diagnosed, sign_ids
from gpukit.findings.checks import check
from gpukit.findings.finding import Finding, count, passed, problem, skipped
from gpukit.project.stack import Stack, minor
from gpukit.verify.device import on_cpu
from gpukit.verify.torch_process import last_line


def local_part(version: str) -> str:
    """The build in a version: cu130 of 2.14.1+cu130, nv25.11 of an NVIDIA build, cpu if there is none."""
    local = version.partition("+")[2]
    nvidia = re.search(r"\bnv(\d+)\.(\d+)", local)
    return f"nv{int(nvidia[1])}.{int(nvidia[2]):02d}" if nvidia else local or "cpu"


def _with_index(probes: Any, text: str) -> str:
    return f"{text}, from the {probes.torch.index}" if probes.torch.index else text


@check(
    "import",
    "Import torch",
    causes=(
        "torch-not-installed",
        "torch-import-crashes",
        "torch-import-hangs",
        "torch-library-missing",
        "torch-broken",
    ),
)
def imports(probes: Any, stack: Stack) -> Finding:
    """`import torch` in a separate process, so that a crash or a hang is reported like any other error."""
    error = probes.torch.error
    if error is None:
        return passed(probes.torch.version)
    seen, expected = last_line(error.text or error.log) or error.kind, "`import torch` works"
    if error.kind == "ModuleNotFoundError" and "other-python" in sign_ids(error.text):
        return problem("torch-not-installed", seen, expected)
    if error.kind == "Death":
        return problem("torch-import-crashes", seen, expected, ending=error.text)
    if error.kind == "Timeout":
        return problem("torch-import-hangs", seen, expected)
    if error.kind in ("ImportError", "OSError"):  # what Python and ctypes raise for it
        return problem("torch-library-missing", seen, expected)
    return diagnosed(f"{error.text}\n{error.log}", "torch-broken", seen, expected)


@check(
    "torch",
    "torch build",
    needs=("import",),
    causes=("cpu-torch-differs", "cpu-torch", "torch-other-build", "torch-other-version"),
)
def torch(probes: Any, stack: Stack) -> Finding:
    """The same minor version and the same build as the base's; a newer patch release is accepted."""
    seen, expected = _with_index(probes, probes.torch.version), stack.torch
    same_version = minor(seen) == minor(expected)
    if on_cpu(probes, stack) and (stack.cuda is not None or probes.torch.index):
        if same_version:
            return passed(seen, f"{minor(expected)}, any build")
        return problem("cpu-torch-differs", seen, f"{minor(expected)}, any build")
    for_cpu = stack.cuda is not None and probes.torch.cuda is None
    same_build = probes.torch.index or local_part(probes.torch.version) == local_part(expected)
    if same_version and same_build and not for_cpu:  # which CUDA it is for is the next check
        return passed(seen, expected)
    if same_version:
        return problem("cpu-torch" if for_cpu else "torch-other-build", seen, expected)
    return problem("torch-other-version", seen, expected)


@check("cuda", "CUDA of torch", needs=("import",), causes=("torch-cuda-not-needed", "cpu-torch", "torch-other-cuda"))
def cuda(probes: Any, stack: Stack) -> Finding:
    """The CUDA version that torch was built for. A CPU build has none, and silently uses no GPU."""
    seen = _with_index(probes, probes.torch.cuda or "none")
    if stack.cuda is None:
        if probes.torch.cuda is None or probes.torch.index:
            return passed(seen, "none")
        return problem("torch-cuda-not-needed", seen, "none")
    if on_cpu(probes, stack):
        return skipped("no-gpu-requested", seen)
    if probes.torch.cuda and minor(probes.torch.cuda) == minor(stack.cuda):
        return passed(seen, stack.cuda)
    return problem("cpu-torch" if probes.torch.cuda is None else "torch-other-cuda", seen, stack.cuda)


@check("base-image", "Base image", causes=("base-moved",))
def base_image(probes: Any, stack: Stack) -> Finding:
    """The image was built from the version of the base image that stack.json records."""
    name, _, digest = probes.base_image.partition("@")
    if not stack.digest:
        return skipped("base-without-digest", digest)
    if not digest:
        return skipped("image-without-record")
    if name != stack.image:
        return skipped("other-base-image", digest, name=name)
    return passed(digest, stack.digest) if digest == stack.digest else problem("base-moved", digest, stack.digest)


@check("protected", "Protected packages", causes=("protected-changed",))
def protected(probes: Any, stack: Stack) -> Finding:
    """The protected packages have the versions recorded when the image was built."""
    if probes.protected is None:
        return skipped("image-not-from-dockerfile")
    if not probes.protected_changes:
        return passed(f"{count(len(probes.protected), 'package')} unchanged")
    return problem(
        "protected-changed",
        "; ".join(str(change) for change in probes.protected_changes),
        "as recorded when the image was built",
    )
