"""The project's image: built where none of the current inputs is there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from gpukit.errors.known import match_signs
from gpukit.host import refusals
from gpukit.host.preflight import preflight
from gpukit.host.project import Project
from gpukit.project.messages import RefusalError, say

# The Dockerfile's default for the base image: what precedes the name, the name, and the digest after it.
BASE = re.compile(r"(\$\{BASE_IMAGE:-|^ARG BASE_IMAGE=[\"']?)([^}\"'\s@]+)(@sha256:[0-9a-f]+)?", re.MULTILINE)
BASED = "gpukit.base"  # the label with the base image and its digest
SECONDS = 10  # for a registry's answer


def build_arguments(project: Project) -> dict[str, str]:
    """The build arguments of devcontainer.json, and the user's ids.

    Empty ones too: VS Code and Compose pass them, and BuildKit's cache tells an unset argument from an empty one.
    """
    arguments = dict(project.config.build_args)
    if not project.as_root:  # as root the container runs as root and the image keeps its own ids
        arguments.update(USER_UID=str(os.getuid()), USER_GID=str(os.getgid()))
    refuse_credentials(arguments)
    return arguments


def refuse_credentials(arguments: dict[str, str]) -> None:
    for name, value in arguments.items():
        if re.search(r"://[^/@\s]+@", value):
            raise RefusalError(f"{name} contains credentials, which `docker history` would show: remove them.")


def copied(project: Project) -> list[Path]:
    """The files that the Dockerfile's COPY lines take from the project."""
    try:
        text = project.config.dockerfile.read_text(encoding="utf-8").replace("\\\n", " ")
    except OSError as error:
        raise RefusalError(f"{project.config.dockerfile} cannot be read: {error.strerror}.") from None
    found: set[Path] = set()
    for line in re.findall(r"^\s*COPY\s+(?!.*--from=)(.*)$", text, re.MULTILINE | re.IGNORECASE):
        for source in [word for word in line.split() if not word.startswith("--")][:-1]:
            source = source.lstrip("/")[2:] if source.startswith("./") else source.lstrip("/")
            for path in project.config.context.glob(source) if source.strip("./") else []:  # not the whole folder
                found.update(path.rglob("*") if path.is_dir() else [path])
    return sorted(path for path in found if path.is_file())


def fingerprint(project: Project) -> str:
    """One hash over everything that the build reads."""
    digest = hashlib.sha256()
    for path in [project.config.dockerfile, *copied(project)]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    digest.update(json.dumps([build_arguments(project), project.config.target], sort_keys=True).encode())
    return digest.hexdigest()


def base_image(project: Project, arguments: dict[str, str]) -> str:
    """What a build with these arguments starts from, as NAME@DIGEST; "" if that cannot be found out."""
    default = BASE.search(project.config.dockerfile.read_text(encoding="utf-8"))
    name = arguments.get("BASE_IMAGE") or (default[2] + (default[3] or "") if default else "")
    if "@" in name or not name:
        return name
    try:
        digest = resolve(project, name)
    except RefusalError:
        return ""  # the build itself reports it if it matters
    return f"{name}@{digest}" if digest else ""


def resolve(project: Project, name: str) -> str:
    """The digest of the image that a build starts from: the engine's if it has the image, or the registry's.

    "" for an image that no registry gave it. Raises RefusalError if the registry does not say.
    """
    from gpukit.host.registry import DIGEST, Registry  # imported here because it is slow, and only a build needs it

    code, output, _ = project.engine.call("image", "inspect", "--format={{json .RepoDigests}}", name)
    if code == 0:
        repository = re.sub(r":[^:/]*$", "", name)
        local = re.search(rf'"(?:docker\.io/(?:library/)?)?{re.escape(repository)}@({DIGEST.pattern})"', output)
        return local[1] if local else ""
    try:
        digest = Registry(SECONDS).digest(name)
    except RefusalError:
        template = "--format={{json .Manifest.Digest}}"  # with the accounts and mirrors of the engine's user
        code, output, _ = project.engine.call("buildx", "imagetools", "inspect", template, name, seconds=SECONDS)
        found = DIGEST.search(output) if code == 0 else None
        if not found:
            raise
        digest = found[0]
    if not digest:
        raise RefusalError(f"The registry has no {name}: check the name and the tag.", id="registry-missing")
    return digest


def recorded_base(project: Project) -> str:
    """The base image with the digest that the project's image was built from; "" if it was not recorded."""
    template = f'--format={{{{index .Config.Labels "{BASED}"}}}}'
    code, output, _ = project.engine.call("image", "inspect", template, project.tag)
    return output.strip() if code == 0 and "@sha256:" in output else ""


def build_command(
    project: Project, extra: dict[str, str] | None = None, no_cache: bool = False, base: str = ""
) -> list[str]:
    refuse_credentials(extra or {})
    command = ["build", f"--file={project.config.dockerfile}", f"--tag={project.tag}"]
    command += [f"--build-arg={name}={value}" for name, value in {**build_arguments(project), **(extra or {})}.items()]
    command += [f"--label={project.label}", f"--label=gpukit.inputs={fingerprint(project)}"]
    command += [f"--label={BASED}={base}"] if base else []
    command += [f"--target={project.config.target}"] if project.config.target else []
    return command + ["--no-cache"] * no_cache + [str(project.config.context)]


def build(project: Project, extra: dict[str, str] | None = None, no_cache: bool = False) -> None:
    if project.show(*build_command(project, extra, no_cache)):
        return
    project.engine.check()
    base = base_image(project, {**build_arguments(project), **(extra or {})})
    command = build_command(project, extra, no_cache, base)
    project.engine.env.setdefault("DOCKER_BUILDKIT", "1")
    code, output = project.engine.stream(*command)
    if code:
        unfit = refusals.unfit_pin(output, project.code / "requirements.txt")
        raise unfit or project.engine.explain(output, "The image cannot be built", refusals.BUILD_KINDS)
    if project.engine.rootless:
        # https://github.com/containers/podman/blob/main/docs/tutorials/performance.md (2026-11-26)
        say("The first start takes longer: Podman copies the image once for your user id.")


def make_ready(project: Project) -> None:
    """Prepare the start of a container: its mounts and its image."""
    project.prepare()
    ensure(project)


def ensure(project: Project, gpu: bool = True, extra: dict[str, str] | None = None) -> None:
    """Build the image if there is none that was built from the current files; with `extra` build arguments."""
    if project.dry:
        return
    wanted = fingerprint(project)
    if project.code != project.root:
        now = Project(project.root, project.given, project.cpu, project.chosen_gpus)
        project.tag += f":{wanted[:12]}" * (wanted != fingerprint(now))  # the project's own image stays
    code, label, errors = project.engine.call(
        "image", "inspect", '--format={{index .Config.Labels "gpukit.inputs"}}', project.tag
    )
    if code and not match_signs(errors, "no-such-image"):
        raise project.engine.explain(errors, f"{project.engine.title} does not show its images")
    if label.strip() != wanted:
        if gpu:
            preflight(project)  # better now than after the build
        say(f"Building the image {project.tag}: " + ("there is none yet." if code else "its inputs have changed."))
        build(project, extra)
