"""Rules about src/: that the modules are there which other files start, or which its scripts import."""

from __future__ import annotations

import ast
import re
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

from gpukit.project.location import located
from gpukit.project.messages import alike
from gpukit.project.modules import PACKAGES, SHARED
from gpukit.project.pyproject import canonical
from gpukit.project.versions import version
from gpukit.validate.files import WHEELS, generated, unreadable
from gpukit.validate.problem import DOCKERFILE, STACK, Problem

# Modules that a command, the editor's debugger, or an entry point starts, in lines that are not comments
STARTED = re.compile(
    r"^(?![ \t]*(?:#|//)).*?(?:-m[,\s]+[\"']?|\"module\": \"|^[\w-]+ = \")([\w-]+(?:\.\w+)+)", re.MULTILINE
)
PROGRAM = re.compile(r"^(?!\s*//).*\"program\": \"\$\{workspaceFolder\}/([^\"$]+\.py)\"", re.MULTILINE)
OURS = ("gpukit", "exactrun")  # in the wheel
WRITTEN = re.compile(r"_|version$|.*(_pb2|_generated)")  # modules that a build writes
OPEN = "def __getattr__"  # in place of the text of a compiled module: any name may be in it
LATE = re.compile(rf"import \*|{OPEN}|globals\(|exec\(|sys\.modules")
# What every environment with torch has: its requirements in its METADATA (2.14.1, read 2026-11-26), and numpy
BROUGHT = ("torch", "numpy", "filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "triton")
BROUGHT += ("typing-extensions",)
STANDARD = getattr(sys, "stdlib_module_names", ())  # Python 3.9 does not know
Folder = Union[Path, zipfile.Path]


def modules(project: Path, stack: Mapping[str, Any]) -> Iterator[Problem]:
    source = project / "src"
    package = stack["package"]
    starts: dict[str, list[str]] = {}  # modules of the package, each with the files that start it
    for name in [name for name in generated(project) if name != "README.md"]:
        text = located(name, project).read_text(encoding="utf-8", errors="replace")
        for module in STARTED.findall(text):
            if alike(module.partition(".")[0], [package], 1):  # such as without its underscore
                starts.setdefault(module, []).append(name)
        for file in PROGRAM.findall(text):
            if not (project / file).exists():
                yield Problem(name, "", f"starts {file}, which does not exist", "correct the path")
    if (source / package).is_dir():
        for module, names in starts.items():
            if text_of(source, module.split(".")) is None:
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


def scripts(project: Path, stack: Mapping[str, Any]) -> dict[str, ast.Module | Problem]:
    """The scripts of the package and its tests, or what is wrong in each.

    An older Python than the project's does not know its syntax.
    """
    found: dict[str, ast.Module | Problem] = {}
    own = project.glob(f"src/{stack['package']}/**/*.py")
    for path in sorted([*own, *project.glob("tests/**/*.py")]):
        if not path.is_file():  # such as Emacs' lock, a link to nothing
            continue
        name = path.relative_to(project).as_posix()
        content = path.read_bytes()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as of an escape that is none
                found[name] = ast.parse(content)
        except SyntaxError as error:
            problem = unreadable(name, content)
            always = isinstance(error, IndentationError) or str(error.msg).endswith("was never closed")
            if not problem and (always or sys.version_info[:2] >= version(stack["python"])):
                what = f"Python cannot read it: {error.msg}"
                problem = Problem(name, f"line {error.lineno}", what, "correct that line")
            if problem:
                found[name] = problem
    return found


def imports(project: Path, stack: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[Problem]:
    """Scripts that cannot be read, and what others import of the project and of gpukit that is not there.

    Only what Python always imports when it reads a script: others may fail, or be for type checkers.
    """
    own = project / "src" / stack["package"]
    places: dict[str, Folder] = {stack["package"]: own} if own.is_dir() else {}  # `modules` reports that
    for wheel in (path for folder in WHEELS for path in (project / folder).glob("gpukit-*.whl")):
        if zipfile.is_zipfile(wheel):
            archive = zipfile.ZipFile(wheel)
            places |= {name: zipfile.Path(archive, f"{name}/") for name in OURS}
    said: set[str] = set()
    for name, tree in read.items():
        if name.startswith("tests/") and "test" not in Path(name).name:
            continue  # pytest does not collect it: it may be data
        if isinstance(tree, Problem):
            yield tree
        else:
            nodes = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
            found = (missing(project / name, places, node) for node in nodes)
            what, remedy, line = next(filter(None, found), ("", "", 0))  # the next one often has the same cause
            if what and what.split(".")[-1] not in said:  # several scripts may import the same
                said.add(what.split(".")[-1])
                yield Problem(name, f"line {line}", what, remedy)


def missing(
    script: Path, places: Mapping[str, Folder], node: ast.Import | ast.ImportFrom
) -> tuple[str, str, int] | None:
    """What is not there of the packages whose folders are known, the remedy, and the line."""
    level = node.level if isinstance(node, ast.ImportFrom) else 0
    for module in modules_of(node):
        first, *parts = module.split(".")
        folder = script.parents[level - 1] if level else places.get(first)
        parts = [first, *parts] if level and first else parts
        if not level and isinstance(node, ast.ImportFrom) and lost_dot(script, module, node.names):
            return f"{module} is a module of the package", f"write `from .{module}`", node.lineno
        if folder is None or any(WRITTEN.match(part) for part in parts):
            continue
        text = text_of(folder, parts)
        if text is None:
            around = folder / "/".join(parts[:-1])
            nearby = [path.name.partition(".")[0] for path in around.iterdir()] if around.is_dir() else []
            return f"there is no module {'.' * level}{module}", suggestion(parts[-1], nearby), node.lineno
        for alias in node.names if isinstance(node, ast.ImportFrom) and not LATE.search(text) else ():
            name = alias.name
            if name == "*" or WRITTEN.match(name):
                continue
            if not re.search(rf"\b{name}\b", text) and text_of(folder, [*parts, name]) is None:
                outermost = re.findall(r"(?m)^(?:(?:async )?def |class )?[A-Za-z_]\w*|\bimport [^()]+|\(\n[^()]+", text)
                words = re.findall(r"\b[A-Z]\w*" if name[0].isupper() else r"\b[a-z_]\w*", " ".join(outermost))
                return f"{'.' * level}{module} has no {name}", suggestion(name, dict.fromkeys(words)), node.lineno
    return None


def lost_dot(script: Path, module: str, names: list[ast.alias]) -> bool:
    """Whether a module of the package is imported without its dot. Another package may be called like it."""
    own = script.parent / f"{module}.py"
    source = script.parents[1]
    if source.name != "src" or not own.is_file() or module in STANDARD or any(source.glob(f"{module}*")):
        return False
    content = own.read_text(encoding="utf-8", errors="replace")
    text = script.read_text(encoding="utf-8", errors="replace")
    defined = all(re.search(rf"(?m)^(?:def |class )?{re.escape(each.name)}\b", content) for each in names)
    return defined and "sys.path" not in text and bool(re.search(r"(?m)^from \.", text))


def modules_of(node: ast.AST) -> list[str]:
    """The modules that a statement imports, or imports from; a relative import is named without its dots."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def text_of(folder: Folder, parts: list[str]) -> str | None:
    """The text of a module of a package, if it is there."""
    path = folder / "/".join(parts)
    files = [path / "__init__.py", *([path.parent / f"{path.name}.py"] if parts else [])]
    for file in files:
        if file.exists():
            return file.read_text(encoding="utf-8", errors="replace")
    compiled = isinstance(path, Path) and any(path.parent.glob(f"{path.name}.*"))
    return OPEN if compiled or path.is_dir() else None


def suggestion(name: str, known: Iterable[str]) -> str:
    meant = alike(name, known)
    return f"did you mean `{meant}`?" if meant else "correct the name"


def undeclared(project: Path, content: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[str]:
    """Packages that scripts always import, and that no dependency names. Another one may bring them."""
    if sys.version_info < (3, 10):  # which does not know what is its own
        return
    extras = content["project"].get("optional-dependencies", {}).values()
    groups = content.get("dependency-groups", {}).values()
    lines = [line for each in (content["project"].get("dependencies", []), *extras, *groups) for line in each]
    known = {canonical(re.split(r"[^\w.-]", line.strip())[0]) for line in lines if isinstance(line, str)} | {*BROUGHT}
    own = {path.stem for folder in (project, project / "src") for path in folder.glob("*")}
    own |= {Path(part).stem for name in read for part in Path(name).parts}
    path = located(DOCKERFILE, project)
    installed = re.findall(r"pip install ([^&|;\n]*)", path.read_text(encoding="utf-8") if path.is_file() else "")
    own |= {*re.findall(r"[\w-]+", " ".join(installed))}
    for name in sorted(known & {*PACKAGES} - {canonical(package) for package in PACKAGES.values()}):
        if canonical(PACKAGES[name]) not in known:
            yield f"pyproject.toml names {name}, and the package of the module {name} is {PACKAGES[name]}."
    own |= {*OURS, *SHARED, *sys.stdlib_module_names, content["project"]["name"].replace("-", "_")}
    for name, tree in read.items():
        if "sys.path" in (project / name).read_text(encoding="utf-8", errors="replace"):
            return  # modules may be anywhere
        nodes = [node for node in getattr(tree, "body", []) if not getattr(node, "level", 0)]
        for module in [module.partition(".")[0] for node in nodes for module in modules_of(node)]:
            package = canonical(PACKAGES.get(module, module))
            parts = {package, *(package[: match.start()] for match in re.finditer("-", package))}
            longer = (f"{package}-", f"{module}-")  # as faiss-gpu-cu12, for faiss, which faiss-cpu provides, too
            if {module, package} & own or any(each in parts or each.startswith(longer) for each in known):
                continue
            known.add(package)
            what = f"{name} imports {module}, and no dependency in pyproject.toml is called like it"
            yield f"{what}. If none brings it: `./launch add {package}`."
