"""Rules about src/: that the modules are there which other files start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.project.location import located
from gpukit.project.messages import alike
from gpukit.validate.files import generated
from gpukit.validate.problem import STACK, Problem

# Modules that a command, the editor's debugger, or an entry point starts, in lines that are not comments
STARTED = re.compile(
    r"^(?![ \t]*(?:#|//)).*?(?:-m[,\s]+[\"']?|\"module\": \"|^[\w-]+ = \")(\w+(?:\.\w+)+)", re.MULTILINE
)


def modules(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    source = project / "src"
    package = stack["package"]
    starts: dict[str, list[str]] = {}  # modules of the package, each with the files that start it
    for name in [name for name in generated(project) if name != "README.md"]:
        text = located(name, project).read_text(encoding="utf-8", errors="replace")
        for module in STARTED.findall(text):
            if module.partition(".")[0] == package:
                starts.setdefault(module, []).append(name)
    if (source / package).is_dir():
        for module, names in starts.items():
            path = source.joinpath(*module.split("."))
            if not (path.is_dir() or any(path.parent.glob(f"{path.name}.*"))):
                yield Problem(names[0], "", f"starts {module}, which is not in src/", "name a module that is there")
        return
    others = [path.name for path in source.glob("*") if (path / "train.py").is_file()]
    meant = alike(package, others)
    if starts or meant:
        files = ", ".join(dict.fromkeys(["./launch", *(name for names in starts.values() for name in names)]))
        remedy = (
            f"rename it back, or run `./launch update --answers package_name={meant or next(iter(others), 'NAME')}`"
        )
        yield Problem(STACK, "/package", f"src/ has no folder {package}, which {files} start", remedy)
