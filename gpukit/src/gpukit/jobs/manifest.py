"""What `submit --on kubernetes` sends: the Job of cluster/job.yaml with a few fields set, and its image."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpukit.host import frozen, shared
from gpukit.host.git import git
from gpukit.jobs.kubectl import Object
from gpukit.jobs.records import FILES, run_and_arguments
from gpukit.project.messages import RefusalError, say

if TYPE_CHECKING:
    from gpukit.host.project import Project

SCRIPT = FILES["kubernetes"]
NO_REGISTRY = "REGISTRY/"  # of the image in the file, where no registry was answered
QUEUE = "kueue.x-k8s.io/queue-name"  # https://kueue.sigs.k8s.io/docs/tasks/run/jobs/ (2026-11-26)
LONGEST = 63  # of a host name, which is the Job's name and the pod's index, and of a label's value
USER = {"USER_UID": "1000", "USER_GID": "1000"}  # of the image, as in the file


def job_name(stem: str, suffix: str, nodes: int) -> str:
    """The name of a Job: that in the file, as far as it fits, and a suffix."""
    room = LONGEST - len(f"-{suffix}-{nodes - 1}")
    return f"{stem[:room].rstrip('-.')}-{suffix}"


def container_of(job: Object) -> Object:
    return job["spec"]["template"]["spec"]["containers"][0]


def sizes(job: Object, nodes: int | None, gpus: int | None) -> tuple[int, int]:
    """Set the number of pods, and of GPUs in each; None for those in the file. Both, as they are then.

    CPUs and memory in the file are for its number of GPUs, so they grow with it.
    """
    spec = job["spec"]
    nodes = nodes or spec.get("completions") or 1
    spec.update(completions=nodes, parallelism=nodes)
    container = container_of(job)
    words = container["command"]
    if nodes > 1 and not any(word.startswith("--nnodes=") for word in words):
        raise RefusalError(f"--nodes has no effect: the command in {SCRIPT} has no `--nnodes=1`.")
    container["command"] = [f"--nnodes={nodes}" if word.startswith("--nnodes=") else word for word in words]
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    key = next((key for key in limits if key.startswith("nvidia.com/")), "")
    if not key:
        if gpus:
            raise RefusalError(f"--gpus has no effect: {SCRIPT} requests no GPUs.")
        return nodes, 0
    before = int(limits[key])
    if gpus and gpus != before:
        for part in resources.values():
            for name in ("cpu", "memory"):
                if name in part:
                    part[name] = scaled(str(part[name]), gpus, before)
        limits[key] = gpus
    return nodes, gpus or before


def scaled(quantity: str, to: int, of: int) -> str:
    """A quantity such as 16Gi, times `to` / `of`, if that is a whole number."""
    number, unit = re.fullmatch(r"(\d*)(.*)", quantity, re.DOTALL).groups()
    whole = number and int(number) * to % of == 0 and not unit.startswith((".", "e"))
    return f"{int(number) * to // of}{unit}" if whole else quantity


def program(job: Object, command: list[str], package: str, name: str) -> list[str]:
    """Set the arguments of torchrun; the command of the job, with the name of its run.

    The file has those of the project's training; what was submitted follows them, and the last one counts.
    """
    if not re.fullmatch(r"python[\d.]*", command[0]) or len(command) == 1:
        raise RefusalError(
            f"{SCRIPT} starts Python with torchrun: submit a command such as `python -m {package}.train`."
        )
    container = container_of(job)
    if command[1:3] != ["-m", f"{package}.train"]:
        container["args"] = literal(command[1:])
        return command
    run, arguments = run_and_arguments(command[3:])
    container["args"] = [*container["args"], *literal(arguments), *(["--name", *literal([run])] if run else [])]
    return [*command[:3], f"--name={run or name}", *arguments]


def literal(words: list[str]) -> list[str]:
    """Words in which Kubernetes replaces no $(NAME)."""
    return [word.replace("$(", "$$(") for word in words]


def adapt(job: Object, name: str, queue: str, hours: float | None, variables: list[str]) -> None:
    """Set the Job's name, its queue, its time limit, and variables that its Secret must have."""
    container = container_of(job)
    secret = next((each["secretRef"]["name"] for each in container.get("envFrom", []) if "secretRef" in each), "")
    if variables and not secret:
        raise RefusalError(f"-e has no effect: {SCRIPT} names no Secret under `envFrom`.")
    for variable in variables:
        value = {"secretKeyRef": {"name": secret, "key": variable}}
        container.setdefault("env", []).append({"name": variable, "valueFrom": value})
    job["metadata"]["name"] = name
    if queue:
        job["metadata"]["labels"][QUEUE] = queue
        job["spec"]["suspend"] = True  # until Kueue admits it
    if hours:
        job["spec"]["activeDeadlineSeconds"] = math.ceil(hours * 3600)


# The image


def repository(job: Object, environment: dict[str, str]) -> str:
    """The name of the image without a tag: that in the file, in the registry that GPUKIT_REGISTRY names."""
    from gpukit.host import registry  # slow to import, as are those below

    name = re.sub(r"(?::[^/]*)?(?:@.*)?$", "", container_of(job)["image"])
    own = environment.get("GPUKIT_REGISTRY", "").rstrip("/")
    if own:
        name = f"{own}/{name.rpartition('/')[2]}"
    if name.startswith(NO_REGISTRY):
        raise RefusalError(
            "No registry is known for the image: add a line such as `GPUKIT_REGISTRY=ghcr.io/YOU` to .env, or for "
            "everyone, `./launch update --to current --answers registry=ghcr.io/YOU`."
        )
    registry.parse(name)
    return name


def build(root: Path, code: str, name: str) -> tuple[str, str]:
    """Build the image of the project's files in a commit, add a layer with them, and push that.

    Returns its name, with a tag that is a hash of the content, and its architecture.
    """
    from gpukit.host.project import Project
    from gpukit.launch import image

    place = frozen.made(root)
    folder = place / f"image-{os.getpid()}.new"  # one that is removed later if this is killed
    try:
        frozen.check_out(root, code, folder)
        tree = code if frozen.copy_of(root, code) else git(folder, "rev-parse", "HEAD^{tree}").strip()
        project = Project(folder, os.environ)
        project.tag = f"{project.name}-cluster"  # as yours, except for the user's id
        image.ensure(project, gpu=False, extra=USER)
        template = "--format={{.Id}} {{.Architecture}}"
        base, architecture = project.engine.get("image", "inspect", template, project.tag).split()
        targets = {target["arch"] for target in project.stack["targets"].values()}
        if architecture not in targets:
            raise RefusalError(
                f"This engine builds images for {architecture}, and the project is for {' and '.join(sorted(targets))}:"
                " submit from such a machine."
            )
        name = f"{name}:{hashlib.sha256(f'{base} {tree}'.encode()).hexdigest()[:12]}"
        if project.engine.call("image", "inspect", name)[0]:
            shutil.rmtree(folder / ".git")
            for link in frozen.SHARED:
                (folder / link).unlink()
            with tempfile.TemporaryDirectory(prefix="freeze-", dir=place) as context:  # Podman takes none from stdin
                folder.rename(Path(context, "source"))
                add_source(project, name, Path(context))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(shared.beside(folder), ignore_errors=True)
    say(f"Pushing {name} ...")
    command = project.engine.argv("push", name)  # it shows its progress on stdout
    done = subprocess.run(command, env=project.engine.env, stdout=sys.stderr.fileno(), stderr=subprocess.PIPE)
    if done.returncode:
        raise not_pushed(name, done.stderr.decode(errors="replace"))
    return name, architecture


def add_source(project: Project, name: str, context: Path) -> None:
    """Build the image with the layer. `context`: a folder with the files in `source`."""
    (context / "Dockerfile").write_text(f"FROM {project.tag}\nCOPY --chown=1000:1000 source /workspace\n")
    project.engine.env.setdefault("DOCKER_BUILDKIT", "1")
    code, output = project.engine.stream("build", f"--tag={name}", f"--label={project.label}", str(context))
    if code:
        raise project.engine.explain(output, "The image with your source cannot be built")


def not_pushed(name: str, output: str) -> RefusalError:
    """The refusal for a push that failed."""
    from gpukit.host import registry

    host = registry.parse(name).host
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    what = f": {lines[-1]}" if lines else ""
    return RefusalError(
        f"{host} did not take the image{what}. `docker login {host}` signs in; GPUKIT_REGISTRY names another registry.",
        kind="image",
        output=output,
    )
