"""`./launch pin`: the versions that the image has become those that every later build gets."""

from __future__ import annotations

import json
import re

from gpukit.host.project import Project
from gpukit.image.guard import TORCH
from gpukit.launch import image
from gpukit.launch.image import BASE
from gpukit.project import pyproject
from gpukit.project.location import is_adopted
from gpukit.project.messages import RefusalError, say

HEADER = """\
# Written by `./launch pin`: the exact versions, in the image, of what pyproject.toml asks for and of what that needs.
# The build installs these while this file is there. `./launch pin` renews it, `./launch pin --remove` takes it away.
# A line that is a comment is not pinned here: it comes with the base image, or from an address in pyproject.toml.
"""
# Follows what the installed packages require; only what is installed counts.
CLOSURE = """
import importlib.metadata as metadata, json, re, sys
def canonical(name): return re.sub(r"[-_.]+", "-", name).lower()
todo, found = [canonical(name) for name in sys.argv[1:]], {}
while todo:
    name = todo.pop()
    if name in found: continue
    try: package = metadata.distribution(name)
    except metadata.PackageNotFoundError: continue
    found[name] = [package.version, bool(package.read_text("direct_url.json"))]
    todo += [canonical(re.match(r"[\\w.-]+", line)[0]) for line in package.requires or []]
print(json.dumps(found))
"""
TOOLS = {"pip", "setuptools", "wheel"}  # Ubuntu's and NVIDIA's Python bring their own, which uv may not replace


def pin(project: Project, digest: bool = False, remove: bool = False) -> int:
    if is_adopted(project.root):
        raise RefusalError("This repository names its own versions: pin them in its files, or in .gpukit/extra.txt.")
    if remove:
        return unpin(project)
    path = project.root / "requirements.txt"
    mine(path)
    names = [pyproject.name_of(value) for value in pyproject.every(pyproject.read(project.root / "pyproject.toml"))]
    command = ["run", "--rm", "--network=none", project.tag, "python", "-c", CLOSURE, *names]
    if project.show(*command):
        return 0
    image.ensure(project, gpu=False)
    found = json.loads(project.engine.get(*command))
    text = lines(found, project.stack.get("protected", []), project.cpu)
    pyproject.write(path, HEADER + text)
    number = len(re.findall(r"^\w", text, re.MULTILINE))
    say(f"{path.name} pins {number} packages to the image's versions; every later build installs exactly these.")
    if project.cpu:
        say("PyTorch is not pinned from the image without a GPU: `./launch pin` does so, unless the base includes it.")
    return base_digest(project, digest)


def lines(found: dict[str, list], protected: list[str], cpu: bool = False) -> str:
    """One line a package. PyTorch's wheels are pinned without "+cu130", so that the CPU image gets the same release.

    `cpu`: the image without a GPU, whose PyTorch and tools are not those of the other image's base.
    """
    text = ""
    for name, (version, address) in sorted(found.items()):
        own = pyproject.matches(name, protected) or "+" in version or (cpu and name in {*TORCH, *TOOLS})
        if (
            not cpu and name in TORCH and re.fullmatch(r"[\d.]+(\+\w+)?", version)
        ):  # NVIDIA's own builds are pre-releases
            own = False
            version = version.partition("+")[0]
        text += f"{'# ' if own or address else ''}{name}=={version}\n"
    return text


def mine(path) -> None:
    if path.exists() and not path.read_text(encoding="utf-8").startswith(HEADER.splitlines()[0]):
        raise RefusalError(f"{path.name} was not written by `./launch pin`: move its lines to pyproject.toml first.")


def base_digest(project: Project, write: bool) -> int:
    """Offer the base image's digest, or write it into the Dockerfile."""
    dockerfile = project.config.dockerfile
    text = pyproject.read(dockerfile)
    base = BASE.search(text)
    if not base:
        raise RefusalError("The Dockerfile has no default for BASE_IMAGE to pin.")
    try:
        found = image.resolve(project, base[2])
    except RefusalError:
        if write:
            raise
        found = ""
    if not found and write:
        raise RefusalError(f"{base[2]} was not pulled from a registry, so it has no digest: `docker pull {base[2]}`.")
    if found and write:
        pyproject.write(dockerfile, text[: base.start()] + f"{base[1]}{base[2]}@{found}" + text[base.end() :])
        say(f"The Dockerfile now starts from {base[2]}@{found}.")
    elif found:
        say(f"The base image is {base[2]}@{found}: `./launch pin --digest` writes that into the Dockerfile.")
    return 0


def unpin(project: Project) -> int:
    path = project.root / "requirements.txt"
    dockerfile = project.config.dockerfile
    mine(path)
    text = pyproject.read(dockerfile)
    loose = BASE.sub(r"\1\2", text)
    if not path.exists() and loose == text:
        say("Nothing is pinned here.")
        return 0
    if project.dry:
        return 0
    path.unlink(missing_ok=True)
    if loose != text:
        pyproject.write(dockerfile, loose)
    say("Nothing is pinned now: the next build installs the newest versions that pyproject.toml allows.")
    return 0
