"""Does the engine grant the GPUs that devcontainer.json asks for? Asked with an image of a few empty folders."""

from __future__ import annotations

import io
import re
import secrets
import tarfile

from gpukit.host.project import Project
from gpukit.project.devcontainer import gpu_arguments
from gpukit.project.messages import say

PROBE = "gpukit-probe"
NOT_ASKED = "The engine could not be asked for its GPUs"
SECONDS = 60  # a driver that loads, or a GPU that hangs
# The engine gets as far as looking for a program that is not there: everything before that it has granted.
GRANTED = re.compile(r"/none\W{0,3}:? .*no such file|executable file not found|exec /none failed", re.IGNORECASE)


def preflight(project: Project) -> int:
    name = f"{PROBE}-{secrets.token_hex(4)}"
    flags = [f"--name={name}", "--rm", "--pull=never", "--network=none"]
    arguments = ["run", *flags, *gpu_arguments(project.config), PROBE, "/none"]
    if project.gpus is None:
        return 0
    project.gpu_is_chosen()
    if project.show(*arguments):
        return 0
    try:
        errors = project.engine.ask(*arguments, seconds=SECONDS)[2]
        if re.search(rf"no such image|unable to find image|{PROBE}.*not known", errors, re.IGNORECASE):
            project.engine.ask("import", "-", PROBE, stdin=empty_image())
            errors = project.engine.ask(*arguments, seconds=SECONDS)[2]
    except BaseException:
        project.engine.remove(name)
        raise
    if GRANTED.search(errors):
        return 0
    refusal = project.engine.explain(errors, NOT_ASKED)
    if refusal.kind in ("gpu", "engine"):
        raise refusal
    say(str(refusal))  # not about GPUs, so the container's own start will tell
    return 0


def empty_image() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for folder in ("etc", "tmp", "usr", "usr/bin", "usr/lib"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return content.getvalue()
