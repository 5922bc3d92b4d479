"""The imports in the project's own sources: src/ and notebooks/."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROVIDED = {"gpukit"}  # this code is running, so it is importable
MAX_BYTES = 1 << 20  # bytes of a file that is read
MAX_FILES = 2000  # files


@dataclass(frozen=True)
class Import:
    """`statement` as it can be run, `module`: its first name, `place`: file and line.

    `lazy`: in a function, so that the program may never run it.
    """

    statement: str
    module: str
    place: str
    lazy: bool = False


def imports(project: Path) -> list[Import]:
    """Each import of another package, once. Optional ones are skipped: in `try`, or under `if TYPE_CHECKING`."""
    source, notebooks = project / "src", project / "notebooks"
    known = PROVIDED | sys.stdlib_module_names | {path.stem for path in source.glob("*")}
    files = [*sorted(source.rglob("*.py")), *sorted(notebooks.rglob("*.ipynb")), *sorted(notebooks.rglob("*.py"))]
    found: dict[str, Import] = {}
    for file in files[:MAX_FILES]:
        if any(part.startswith(".") for part in file.relative_to(project).parts):  # .ipynb_checkpoints
            continue
        beside = {path.stem for path in file.parent.iterdir()}  # Python finds these if the file itself is run
        for each in _imports_of(file, file.relative_to(project).as_posix()):
            if each.module in known or each.module in beside:
                continue
            if each.statement not in found or found[each.statement].lazy > each.lazy:
                found[each.statement] = each
    return list(found.values())


def _imports_of(file: Path, name: str) -> Iterator[Import]:
    try:
        if file.stat().st_size > MAX_BYTES:
            return
        text = file.read_text(encoding="utf-8")
        cells = [text] if file.suffix == ".py" else _cells(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    for cell in cells:
        try:
            tree = ast.parse(cell)
        except (SyntaxError, ValueError):  # a merge in progress, or another language
            continue
        for node, lazy in _statements(tree.body, False):
            place = f"{name}:{node.lineno}" if file.suffix == ".py" else name
            yield from _as_statements(node, place, lazy)


def _cells(text: str) -> list[str]:
    """The code of a notebook, without the lines that are IPython's."""
    cells = []
    for cell in json.loads(text)["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "code" and not (lines and lines[0].startswith("%%")):
            cells.append("\n".join("pass" if line.lstrip()[:1] in ("%", "!", "?") else line for line in lines))
    return cells


def _statements(body: list[ast.stmt], lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, lazy
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _statements(node.body, True)
        elif isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.dump(node.test):
                yield from _statements([*node.body, *node.orelse], True)
        elif isinstance(node, (ast.ClassDef, ast.With, ast.AsyncWith, ast.For, ast.While)):
            yield from _statements(node.body, lazy)


def _as_statements(node: ast.Import | ast.ImportFrom, place: str, lazy: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(f"import {alias.name}", alias.name.partition(".")[0], place, lazy)
    elif not node.level and node.module and node.module != "__future__":
        names = ", ".join(alias.name for alias in node.names)
        yield Import(f"from {node.module} import {names}", node.module.partition(".")[0], place, lazy)
