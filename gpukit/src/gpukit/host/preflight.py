"""Check that the engine grants the GPUs that devcontainer.json requests, with an image of a few empty folders."""

from __future__ import annotations

import io
import secrets
import tarfile

from gpukit.errors.known import match_signs
from gpukit.host.project import Project
from gpukit.project.devcontainer import gpu_arguments
from gpukit.project.messages import RefusalError, say

PROBE_IMAGE = "gpukit-probe"
GPU_KINDS = ("gpu", "engine")  # the kinds of refusals that affect every start with a GPU
TIMEOUT = 60  # seconds: the driver may have to load first


def preflight(project: Project) -> int:
    project.refuse_mistakes()
    found = refusal(project)
    if found and found.kind in GPU_KINDS:
        raise found
    if found:
        say(str(found))  # not about GPUs: starting the container will report it
    return 0


def refusal(project: Project) -> RefusalError | None:
    """Why the engine does not start a container with the GPUs; None if it does, or if none is requested."""
    name = f"{PROBE_IMAGE}-{secrets.token_hex(4)}"
    flags = [f"--name={name}", "--rm", "--pull=never", "--network=none"]
    arguments = ["run", *flags, *gpu_arguments(project.config), PROBE_IMAGE, "/none"]
    if project.gpus is None:
        return None
    project.gpu_is_chosen()
    if project.show(*arguments):
        return None
    try:
        errors = project.engine.call(*arguments, seconds=TIMEOUT)[2]
        if match_signs(errors, "no-such-image"):
            project.engine.call("import", "-", PROBE_IMAGE, stdin=empty_image())
            errors = project.engine.call(*arguments, seconds=TIMEOUT)[2]
    except BaseException:
        project.engine.remove(name)
        raise
    # The engine fails only at the missing program: it has granted everything before that.
    if match_signs(errors, "no-such-command"):
        return None
    return project.engine.explain(errors, "The engine could not be checked for GPUs")


def empty_image() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder in ("etc", "tmp", "usr", "usr/bin", "usr/lib"):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o755
            archive.addfile(entry)
    return content.getvalue()
