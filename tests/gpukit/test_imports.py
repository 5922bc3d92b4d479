"""Which subpackage of gpukit may import which, and that no modules import each other in a circle."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "gpukit/src/gpukit"
BELOW = {"project": "", "findings": "project", "errors": "findings project", "host": "errors findings project"}
BELOW |= {"image": "project", "wheel": ""}
BELOW |= dict.fromkeys(["doctor", "launch", "verify", "track", "update"], "wheel image host errors findings project")
BELOW["validate"] = "image host findings project"
BELOW["train"] = "track host errors findings project"
BELOW["script"] = f"train {BELOW['train']}"
BELOW["remote"] = f"launch {BELOW['launch']}"
BELOW["jobs"] = f"launch {BELOW['launch']}"
BELOW["plan"] = f"doctor script {BELOW['doctor']}"  # script/memory.py, in a process of its own
BELOW["adopt"] = f"plan update validate {BELOW['plan']}"
BELOW |= {"setup": f"doctor {BELOW['doctor']}", "cli": " ".join([*BELOW, "setup"])}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for path in PACKAGE.rglob("*.py")}


def imported(path: Path) -> set[str]:
    """The modules of gpukit that a file names, in imports anywhere in it and in strings for import_module or -m."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and re.fullmatch(r"gpukit(\.\w+)+", str(node.value)):
            names.add(str(node.value))
    return {name for name in names if name in MODULES}


def test_each_subpackage_imports_only_what_is_below_it() -> None:
    found = [(module, name) for module, path in MODULES.items() for name in imported(path) if name.count(".")]
    parts = [(module, name, module.split(".")[1], name.split(".")[1]) for module, name in found]
    assert [
        (module, name) for module, name, own, other in parts if own in BELOW and other not in (own, *BELOW[own].split())
    ] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    list(TopologicalSorter({module: imported(path) - {module} for module, path in MODULES.items()}).static_order())
