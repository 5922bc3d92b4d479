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
    starts: list[tuple[str, str]] = []
    for name in [name for name in generated(project) if not name.endswith(".md")]:
        text = located(name, project).read_text(encoding="utf-8", errors="replace")
        for module in ("".join(match) for match in STARTED.findall(text)):
            if module.partition(".")[0] == package:
                starts.append((module, name))
    if not (source / package).is_dir():
        others = [path.name for path in source.glob("*") if (path / "train.py").is_file()]
        meant = alike(package, others) or next(iter(others), "NAME")
        names = dict.fromkeys(["./launch", *(name for _, name in starts)])
        what = f"src/ has no folder {package}, which {', '.join(names)} start"
        remedy = f"rename it back, or run `./launch update --answers package_name={meant}`"
        yield Problem(STACK, "/package", what, remedy)
        return
    for module, name in dict(reversed(starts)).items():  # one file for each
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
                what = ""
                if module.partition(".")[0] == package and not exists(source, module):
                    what = f"imports {module}, which is not in src/"
                elif isinstance(node, ast.ImportFrom):
                    there = defined(source.joinpath(*module.split(".")).with_suffix(".py"))
                    missing = [alias.name for alias in node.names if there and alias.name not in {*there, "*"}]
                    what = f"imports {missing[0]}, which {module} does not have" if missing else ""
                if what:
                    yield Problem(name, f"line {node.lineno}", what, "correct the name, or add what it names")


def imported(node: ast.stmt, packages: tuple[str, ...]) -> list[str]:
    """The modules that a statement imports, in a module of these packages."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    above = packages[: len(packages) - node.level + 1] if node.level else ()
    return [".".join([*above, *filter(None, [node.module])])]


def defined(path: Path) -> set[str]:
    """The names that a module may have; none if that is not known."""
    try:
        nodes = [*ast.walk(ast.parse(path.read_bytes()))]
    except (OSError, SyntaxError):
        return set()
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {
        alias.asname or alias.name.partition(".")[0]
        for node in nodes
        for alias in getattr(node, "names", [])
        if isinstance(alias, ast.alias)
    }
    names |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    return set() if names & {"*", "__getattr__", "globals", "vars"} else names


def exists(source: Path, module: str) -> bool:
    """Whether there is a module, a package, or what a build makes of one: a .so file, or a name that begins with _."""
    path = source.joinpath(*module.split("."))
    return path.is_dir() or path.name.startswith("_") or any(path.parent.glob(f"{path.name}.*"))
