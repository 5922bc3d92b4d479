"""Write the files that the image's layers need, from the wheel, stack.json, and pyproject.toml. Needs Python 3.11.

    python -m gpukit.image.layers SOURCE STATE TARGET

SOURCE holds stack.json, pyproject.toml, and requirements.txt if the project is pinned; or what an adopted repository
has of these. Written into TARGET:

    torch/guard.py, install.py, torch.json    for PyTorch's layer
    dependencies/first.txt                    the dependencies of the last full build, if all of them are still required
    dependencies/all.txt                      all dependencies: those added since then are a small layer of their own
    dependencies/NAME-VERSION-...whl          an adopted package's name and commands, which all.txt names too

COPY is cached by content, so a change that is not in these files reinstalls nothing. STATE is a file that the builder
keeps between builds.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
import tomllib
from pathlib import Path

from gpukit.image import editable
from gpukit.image.guard import TORCH
from gpukit.project import dependencies
from gpukit.project.location import is_adopted, located

BUILT = "/etc/gpukit"  # where the Dockerfile puts these files


def name(requirement: str) -> str:
    """The normalized name of a requirement: "Foo.Bar[x]>=1" -> "foo-bar"."""
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]*", requirement.strip()).group()).lower()


def wanted(folder: Path) -> list[str]:
    """Every requirement of the project, pinned where requirements.txt pins it."""
    if is_adopted(folder):
        return dependencies.wanted(folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project.get("dependencies", []) + extra(project, "dev")
    pins = folder / "requirements.txt"
    if pins.exists():
        pinned = [line.partition(" #")[0].strip() for line in pins.read_text(encoding="utf-8").splitlines()]
        pinned = [line for line in pinned if line and not line.startswith(("#", "-"))]
        known = {name(line) for line in pinned}
        requirements = pinned + [line for line in requirements if name(line) not in known]
    return requirements


def extra(project: dict, wanted: str, seen: tuple[str, ...] = ()) -> list[str]:
    """The requirements of an extra, with those of the project's own extras that it names: `dev = ["demo[lint]"]`."""
    found: list[str] = []
    for line in project.get("optional-dependencies", {}).get(wanted, []):
        own = re.fullmatch(r"[^\[\s]+\s*\[([^]]+)\]\s*", line) if name(line) == name(project["name"]) else None
        for other in re.split(r"[\s,]+", own[1].strip()) if own else ():
            found += extra(project, other, (*seen, wanted)) if other not in (*seen, wanted) else []
        found += [] if own else [line]
    return found


def torch_facts(stack: dict, requirements: list[str]) -> dict:
    """What install.py needs."""
    facts = stack["torch_install"]
    own = [line for line in requirements if name(line) in TORCH]
    own += [facts["requirement"]] if facts["requirement"] not in own else []
    return {
        "requirements": own,
        "protected": stack["protected"],
        "index": facts["index"],
        "cuda": stack["cuda"],
        "package_index": facts["package_index"],
    }


def main(source: Path, state: Path, target: Path) -> None:
    requirements = wanted(source)
    stack = json.loads(located("stack.json", source).read_text(encoding="utf-8"))
    rest = [line for line in requirements if name(line) not in TORCH]
    before = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    first = before if before and set(before) <= set(rest) else rest
    state.write_text("\n".join(first), encoding="utf-8")
    package = editable.write(source, target / "dependencies", "/workspace") if is_adopted(source) else None
    requirements += [f"{package.name.split('-')[0]} @ file://{BUILT}/{package.name}"] if package else []
    files = {f"torch/{each}": pkgutil.get_data("gpukit.image", each) or b"" for each in ("guard.py", "install.py")}
    files["torch/torch.json"] = json.dumps(torch_facts(stack, requirements), indent=2).encode()
    for each, lines in (("first", first), ("all", requirements)):
        files[f"dependencies/{each}.txt"] = "".join(f"{line}\n" for line in lines).encode()
    for path, content in files.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
