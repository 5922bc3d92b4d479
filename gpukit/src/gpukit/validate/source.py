"""Rules about src/: that what other files start is there, that Python can read it, and that its imports are there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpukit.project.location import located
from gpukit.project.messages import alike
from gpukit.validate.files import generated
from gpukit.validate.problem import STACK, Problem

# Modules that a command, the editor's debugger, or an entry point starts
STARTED = re.compile(
    r"(?:-m[,\s]+[\"']?|\"module\": \")(\w+(?:\.\w+)+)|^[\w-]+ = \"(\w+(?:\.\w+)+):\w+\"", re.MULTILINE
)
CERTAIN = re.compile(r"expected ':'|was never closed|unmatched|indent|unterminated string")  # errors in any version


def modules(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    """The project's own modules: those that files start, and those that others of src/ import."""
    source = project / "src"
    package = stack["package"]
    starts: dict[str, str] = {}
    for name in [name for name in generated(project) if not name.endswith(".md")]:
        text = located(name, project).read_text(encoding="utf-8", errors="replace")
        for module in ("".join(match) for match in STARTED.findall(text)):
            if module.partition(".")[0] == package:
                starts.setdefault(module, name)
    if not (source / package).is_dir():
        others = [path.name for path in source.glob("*") if (path / "train.py").is_file()]
        meant = alike(package, others) or next(iter(others), "NAME")
        what = (
            f"src/ has no folder {package}, which {' and '.join(dict.fromkeys(['./launch', *starts.values()]))} start"
        )
        remedy = f"rename it back, or run `./launch update --answers package_name={meant}`"
        yield Problem(STACK, "/package", what, remedy)
        return
    for module, name in starts.items():
        if not exists(source, module):
            yield Problem(name, "", f"starts {module}, which is not in src/", "name a module that is there")
    for path in sorted((source / package).rglob("*.py")):
        name = path.relative_to(project).as_posix()
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError as error:
            known = sys.version_info >= tuple(map(int, stack["python"].split(".")))  # an older one knows less
            if known or CERTAIN.search(error.msg):
                yield Problem(name, f"line {error.lineno}", f"Python cannot read it: {error.msg}", "correct that line")
            continue
        for node in tree.body:
            for module in imported(node, path.relative_to(source).parts[:-1]):
                if module.partition(".")[0] == package and not exists(source, module):
                    what = f"imports {module}, which is not in src/"
                    yield Problem(name, f"line {node.lineno}", what, "correct the name, or add the module")


def imported(node: ast.stmt, packages: tuple[str, ...]) -> list[str]:
    """The modules that a statement imports, in a module of these packages."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = packages[: len(packages) - node.level + 1] if node.level else ()
    return [".".join([*above, *filter(None, [node.module])])]


def exists(source: Path, module: str) -> bool:
    """Whether there is a module, a package, or what a build makes of one: a .so file, or a name that begins with _."""
    path = source.joinpath(*module.split("."))
    return path.is_dir() or path.name.startswith("_") or any(path.parent.glob(f"{path.name}.*"))
