"""The project's location, and where its files are.

A project is generated, or it is a repository that adopted gpukit: then our files are in folders of their own. All other
code names a file as it is named in a generated project, and asks here where it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

VARIABLE = "GPUKIT_PROJECT"  # set by ./launch, the image, and the native environment
# What a generated project has, and where an adopted repository has it. Of a folder, everything in it.
ADOPTED = {
    ".devcontainer/devcontainer.json": ".devcontainer/gpukit/devcontainer.json",
    ".devcontainer/cpu/devcontainer.json": ".devcontainer/gpukit-cpu/devcontainer.json",
    ".devcontainer/host.env": ".gpukit/host.env",
    ".devcontainer/initialize.sh": ".gpukit/initialize.sh",
    "Dockerfile": ".gpukit/Dockerfile",
    ".dockerignore": ".gpukit/Dockerfile.dockerignore",
    ".gitignore": ".gpukit/.gitignore",
    "apt.txt": ".gpukit/apt.txt",
    "stack.json": ".gpukit/stack.json",
    ".copier-answers.yml": ".gpukit/answers.yml",
    "vendor": ".gpukit",
    ".env": ".gpukit/.env",
    ".launch": ".gpukit",
    "outputs": ".gpukit/outputs",
}
# Of these, the ones that sentences name as ours alone: `Dockerfile` and `outputs/` may be any.
ANY = ("Dockerfile", ".dockerignore", ".gitignore", "outputs", "vendor")
NAMED = {"vendor/": ".gpukit/", **{name: there for name, there in ADOPTED.items() if name not in ANY}}
EXTRA = ".gpukit/extra.txt"  # what an adopted repository's image installs besides what the repository itself requires


def is_adopted(root: Path) -> bool:
    return (root / ADOPTED["stack.json"]).is_file()


def place(root: Path, name: str) -> str:
    """Where the project in `root` has the file that a generated project has at `name`; relative to `root`."""
    if not is_adopted(root):
        return name
    if name in ADOPTED:
        return ADOPTED[name]
    folder, slash, rest = name.partition("/")
    return f"{ADOPTED[folder]}/{rest}" if slash and folder in ADOPTED else name


def named(text: str) -> str:
    """A sentence that names files as in a generated project, with the names that they have in this one."""
    folder = find_root()
    if folder is None or not is_adopted(folder):
        return text
    return renamed(text, NAMED)


def renamed(text: str, names: dict[str, str]) -> str:
    """A sentence with other names of files."""
    words = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![\w./-])(?:{words})(?![\w-]|\.\w)", lambda found: names[found[0]], text)


def project_of(folder: Path) -> Path:
    """The project of a job's checkout (host/frozen.py); any other folder is a project's own."""
    match = re.fullmatch(r"(.+)/\.(?:launch|gpukit)/(?:jobs|slurm)/[^/]+", str(folder))
    return Path(match[1]) if match else folder


def find_root() -> Path | None:
    """The project's folder: $GPUKIT_PROJECT, otherwise the first one upward with stack.json and .devcontainer/."""
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).resolve()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / place(folder, "stack.json")).is_file() and (folder / ".devcontainer").is_dir():
            return folder
    return None


def root() -> Path:
    """The same; the current directory outside a project."""
    return find_root() or Path.cwd()


def located(name: str, folder: Path | None = None) -> Path:
    """The path of a project's file, named as in a generated one. `folder`: the project's (default: the current one)."""
    folder = folder or root()
    return folder / place(folder, name)
