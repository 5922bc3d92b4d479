"""Sort what pyproject.toml asks for into the layers of the image. Runs in the Dockerfile; standard library only.

    python layers.py FOLDER STATE

FOLDER holds pyproject.toml and, where the project is pinned, requirements.txt. Written into it:

    torch.txt   PyTorch's own packages: a layer that only a new release of the stack changes
    first.txt   what was asked for when this layer was last made, as long as all of it is still asked for

What was added since goes into a last, small layer: one more dependency neither downloads nor stores the others again.
STATE is a file that the builder keeps from one build to the next; without it everything is asked for anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

TORCH = {"torch", "torchvision", "torchaudio"}


def name(requirement: str) -> str:
    """The normalised name of a requirement: "Foo.Bar[x]>=1" -> "foo-bar"."""
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]*", requirement.strip()).group()).lower()


def wanted(folder: Path) -> list[str]:
    """Every requirement of the project, pinned where requirements.txt pins it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project.get("dependencies", []) + project.get("optional-dependencies", {}).get("dev", [])
    pins = folder / "requirements.txt"
    if pins.exists():
        pinned = [line.partition(" #")[0].strip() for line in pins.read_text(encoding="utf-8").splitlines()]
        pinned = [line for line in pinned if line and not line.startswith(("#", "-"))]
        known = {name(line) for line in pinned}
        requirements = pinned + [line for line in requirements if name(line) not in known]
    return requirements


def main(folder: Path, state: Path) -> None:
    """Write torch.txt and first.txt into `folder`, and remember first.txt in `state`."""
    requirements = wanted(folder)
    rest = [line for line in requirements if name(line) not in TORCH]
    before = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    first = before if before and set(before) <= set(rest) else rest
    state.write_text("\n".join(first), encoding="utf-8")
    for file, lines in ("torch.txt", [line for line in requirements if name(line) in TORCH]), ("first.txt", first):
        (folder / file).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
