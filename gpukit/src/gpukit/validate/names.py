"""Rules about names in the project's scripts: each is defined, and a class or a function has what others use of it.

Only what is certain without running anything: of classes whose bases are known, and of functions without decorators.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union

from gpukit.project.location import located
from gpukit.validate.files import generated
from gpukit.validate.problem import Problem
from gpukit.validate.source import LATE, OURS, Folder, suggestion, text_of

# What newer Pythons, notebooks, profilers, and type checkers define
MORE = "aiter anext EncodingWarning ExceptionGroup BaseExceptionGroup _ display get_ipython profile reveal_type"
BUILT_IN = {*dir(builtins), *MORE.split()}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
Definition = Union[ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef]
TYPES = {"int": int, "float": (int, float), "str": str, "bool": bool}
DATACLASS = re.compile(r"(dataclasses\.)?dataclass\b")
UNUSUAL = re.compile(r"\bfield\((?!default)|kw_only|KW_ONLY|init=False|dataclass\(\*|ClassVar")  # of fields
# Where a command, or the editor's debugger, starts a module with options
STARTS = re.compile(
    r"^(?!\s*(?:#|//)).*?(?:-m[\s\"',]+|\"module\": \")([\w]+(?:\.\w+)+)\b((?:[^\]\n;&|]|\n\s*\")*)", re.M
)


def problems(project: Path, read: Mapping[str, Any], places: Mapping[str, Folder]) -> Iterator[Problem]:
    trees = {name: tree for name, tree in read.items() if isinstance(tree, ast.Module)}
    known = definitions(trees, places)
    fields = {kind: members(kind, known) for kind in known}
    said: set[str] = set()  # a member that is gone is one cause
    for name, tree in trees.items():
        yield from undefined(name, (project / name).read_text(encoding="utf-8-sig", errors="replace"), tree)
        here = visible(name, tree, known, places)
        found = [*wrong_fields(tree, known), *wrong_calls(tree, here)]
        for node, kind, member in uses(tree, here):
            there = fields[kind]
            if (
                isinstance(node, ast.Attribute)
                and not isinstance(node.ctx, ast.Load)
                and "frozen=True" in ast.unparse(here[kind])
            ):
                found.append(
                    (node, f"{kind} is frozen: its {member} cannot be set", f"write replace(..., {member}=...)")
                )
            elif there and member not in {*there, *said} and not member.startswith("__"):
                said.add(member)
                found.append((node, f"{kind} has no {member}", suggestion(member, there)))
        for node, what, remedy in found:
            yield Problem(name, f"line {node.lineno}", what, remedy)
    for file in [file for file in generated(project) if file != "README.md"]:
        for module, rest in STARTS.findall(located(file, project).read_text(encoding="utf-8", errors="replace")):
            tree = trees.get(f"src/{module.replace('.', '/')}.py")
            there = fields.get(parsed(tree)) if tree else None
            for option in re.findall(r"(?<!\S)[\"']?--([a-z][\w-]*)(?![\w.-])", rest):
                member = option.replace("-", "_")
                if there and not {member, member.removeprefix("no_"), "help"} & there and member not in said:
                    said.add(member)
                    yield Problem(file, "", f"{module} has no option --{option}", "correct it, or add the setting")


def undefined(name: str, text: str, tree: ast.Module) -> Iterator[Problem]:
    """The first name that neither the script nor Python defines."""
    if LATE.search(text) or "NameError" in text:
        return
    tables = [symtable.symtable(text, name, "exec")]
    for table in tables:
        tables += table.get_children()
    own: set[str] = set()
    used: set[str] = set()
    for table in tables:
        for symbol in table.get_symbols():
            outermost = table is tables[0]
            if (outermost or symbol.is_declared_global()) and (symbol.is_assigned() or symbol.is_imported()):
                own.add(symbol.get_name())
            here = symbol.is_parameter() or symbol.is_assigned() or symbol.is_imported()
            if symbol.is_referenced() and not here and (outermost or symbol.is_global()):
                used.add(symbol.get_name())
    lost = {each for each in used - own - BUILT_IN if not each.startswith("__")}
    for node in ast.walk(tree) if lost else ():
        if isinstance(node, ast.Name) and node.id in lost:
            remedy = suggestion(node.id, own, "import it, or correct the name")
            yield Problem(name, f"line {node.lineno}", f"the name {node.id} is not defined", remedy)
            return


class Defined(NamedTuple):
    """A class or a function, and the last part of its module's name."""

    module: str
    node: Definition


def definitions(trees: Mapping[str, ast.Module], places: Mapping[str, Folder]) -> dict[str, Defined]:
    """The project's classes and functions of which there is one of this name, and gpukit's from which they inherit."""
    found = [Defined(Path(name).stem, node) for name, tree in trees.items() for node in own(tree)]
    names = [each.node.name for each in found]
    known = {each.node.name: each for each in found if names.count(each.node.name) == 1}
    for tree in trees.values():
        bases = {ast.unparse(base) for node in own(tree) if isinstance(node, ast.ClassDef) for base in node.bases}
        for name, module in imported(tree).items():
            first, *parts = module.split(".")
            if name in bases and first in places and first in OURS:
                nodes = own(ast.parse(text_of(places[first], parts) or ""))
                known.update({node.name: Defined(parts[-1], node) for node in nodes if node.name == name})
    return known


def own(tree: ast.Module) -> list[Definition]:
    return [node for node in tree.body if isinstance(node, (ast.ClassDef, *FUNCTION))]


def imported(tree: ast.Module) -> dict[str, str]:
    """The names that a script imports from modules, each with its module."""
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    froms = [("." * node.level + (node.module or ""), alias) for node in nodes for alias in node.names]
    return {alias.name: module for module, alias in froms if not alias.asname}


def visible(
    name: str, tree: ast.Module, known: Mapping[str, Defined], places: Mapping[str, Folder]
) -> dict[str, Definition]:
    """The known definitions that names mean in a script: those that it has, or imports, and never replaces."""
    outermost = {*tree.body}
    other = {each for node in ast.walk(tree) if node not in outermost for each in bound(node)}
    modules = {each.name: f".{Path(name).stem}" for each in own(tree)}
    modules |= {each: module for each, module in imported(tree).items() if module.partition(".")[0] in ("", *places)}
    ends = {each: module.rpartition(".")[2] for each, module in modules.items()}
    return {each: found.node for each, found in known.items() if each not in other and ends.get(each) == found.module}


def bound(node: ast.AST) -> list[str]:
    """The names to which a node gives a meaning."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, (ast.ClassDef, *FUNCTION)):
        return [node.name]
    return [node.arg] if isinstance(node, ast.arg) else []


def members(kind: str, known: Mapping[str, Defined]) -> set[str] | None:
    """What a data class has; None if it is none, or if others may add to it."""
    node = known[kind].node if kind in known else None
    if not is_dataclass(node) or len(node.decorator_list) > 1 or node.keywords:
        return None
    found: set[str] = set()
    for base in node.bases:
        inherited = members(ast.unparse(base), known)
        if inherited is None:
            return None
        found |= inherited
    for each in ast.walk(node):
        if isinstance(each, (ast.ClassDef, *FUNCTION)):
            found.add(each.name)
        elif isinstance(each, (ast.Name, ast.Attribute)) and not isinstance(each.ctx, ast.Load):
            found.add(each.id if isinstance(each, ast.Name) else each.attr)
    return None if {"__getattr__", "__getattribute__"} & found else found


def is_dataclass(node: Any) -> bool:
    return isinstance(node, ast.ClassDef) and any(DATACLASS.match(ast.unparse(each)) for each in node.decorator_list)


def uses(tree: ast.Module, here: Mapping[str, Definition]) -> Iterator[tuple[Any, str, str]]:
    """What a script uses of a data class: of arguments that are annotated with it, of `self`, and to make one."""
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}  # as in hasattr(x, "name")
    scopes = [(node, "") for node in tree.body if isinstance(node, FUNCTION)]
    scopes += [(each, node.name) for node in tree.body if is_dataclass(node) for each in node.body]
    for scope, owner in scopes:
        inside = [*ast.walk(scope)]
        names = [name for each in inside for name in bound(each)]
        of = {}
        for each in scope.args.args if isinstance(scope, FUNCTION) else ():
            kind = each.annotation.id if isinstance(each.annotation, ast.Name) else owner * (each.arg == "self")
            if names.count(each.arg) == 1 and is_dataclass(here.get(kind)):
                of[each.arg] = kind
        for each in inside:
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id in of:
                if each.attr not in texts or not isinstance(each.ctx, ast.Load):
                    yield each, of[each.value.id], each.attr
            elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
                first = each.args[0].id if each.args and isinstance(each.args[0], ast.Name) else ""
                kind = of.get(first, "") if each.func.id == "replace" else each.func.id
                if is_dataclass(here.get(kind)) and "def __init__" not in ast.unparse(here[kind]):
                    yield from ((each, kind, keyword.arg) for keyword in each.keywords if keyword.arg)


def wrong_fields(tree: ast.Module, known: Mapping[str, Defined]) -> Iterator[tuple[Any, str, str]]:
    """Fields of data classes that Python refuses."""
    for node in [node for node in tree.body if is_dataclass(node)]:
        bases = [known[ast.unparse(base)].node for base in node.bases if ast.unparse(base) in known]
        if UNUSUAL.search(" ".join(ast.unparse(each) for each in (node, *bases))):
            continue
        begun = any(isinstance(each, ast.AnnAssign) and each.value for base in bases for each in base.body)
        for field in [each for each in node.body if isinstance(each, ast.AnnAssign)]:
            if isinstance(field.value, (ast.List, ast.Dict, ast.Set)):
                what = "a data class takes no list or dict as a default"
                yield field, what, "write field(default_factory=lambda: ...)"
            elif begun and not field.value:
                what = f"{ast.unparse(field.target)} has no default, and a field before it has one"
                yield field, what, "give it one"
            kind = TYPES.get(ast.unparse(field.annotation))
            if kind and isinstance(field.value, ast.Constant) and not isinstance(field.value.value, kind):
                yield field, f"the default of {ast.unparse(field.target)} has another type", "correct one of them"
            begun = begun or field.value is not None


def wrong_calls(tree: ast.Module, here: Mapping[str, Definition]) -> Iterator[tuple[Any, str, str]]:
    """Calls of the project's functions with too many or too few arguments, or with one that they do not have."""
    for node in ast.walk(tree):
        function = here.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if not isinstance(function, FUNCTION) or function.decorator_list:
            continue
        takes = function.args
        places = [each.arg for each in [*takes.posonlyargs, *takes.args]]
        open_call = any(isinstance(each, ast.Starred) for each in node.args) or any(
            not each.arg for each in node.keywords
        )
        if open_call or takes.vararg or takes.kwarg:
            continue
        given = {each.arg for each in node.keywords}
        names = {*places, *(each.arg for each in takes.kwonlyargs)}
        needed = {*places[: len(places) - len(takes.defaults)]}
        needed |= {each.arg for each, default in zip(takes.kwonlyargs, takes.kw_defaults) if default is None}
        lacks = sorted(needed - given - {*places[: len(node.args)]})
        extra = sorted(given - names) or ["so many arguments"] * (len(node.args) > len(places))
        if lacks or extra:
            what = f"does not take {extra[0]}" if extra else f"needs {', '.join(lacks)}"
            yield node, f"{function.name} {what}", "correct the call, or the function"


def parsed(tree: ast.Module) -> str:
    """The class of the settings that a script reads from its command line."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "parse"]
    return next((each.args[0].id for each in calls if each.args and isinstance(each.args[0], ast.Name)), "")
