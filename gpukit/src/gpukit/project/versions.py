"""The numbers of a version, whether a range allows one, and whether a requirement applies to a container: what adopting
has to know where no other package can be imported. PEP 440 and PEP 508; `key` ignores epochs.
"""

from __future__ import annotations

import operator
import re
from typing import Any

CLAUSE = re.compile(r"(===|~=|==|!=|<=|>=|<|>)\s*(v?\d[^\s,;)]*)")
# https://packaging.python.org/en/latest/specifications/version-specifiers/ (2026-11-25), without the local part
VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<stage>alpha|a|beta|b|preview|pre|c|rc)[-_.]?(?P<number>\d*))?"
    r"(?:-(?P<dashed>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<posted>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<devs>\d*))?",
    re.IGNORECASE,
)
SHORT = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
STAGES = {"dev": 0, "a": 1, "b": 2, "rc": 3}
FINAL = 4
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
LINUX.update(implementation_name="cpython", platform_python_implementation="CPython", platform_machine="x86_64")
COMPARISONS = {"Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le}
COMPARISONS.update(Gt=operator.gt, GtE=operator.ge)


def version(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: 570.86.16 is (570, 86, 16), 2.10.0a0+x is (2, 10, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def key(version: str) -> tuple[tuple[int, ...], int, int, int]:
    """What versions are compared by: 2.13.0a0 is before 2.13, and 2.13.post1 after it."""
    version = version.strip()
    found = VERSION.match(version)
    if not found:
        return (), FINAL, 0, 0
    release = [int(part) for part in found["release"].split(".")]
    while release and not release[-1]:
        release.pop()
    after = int(found["dashed"] or found["posted"] or 0) + 1 if found["dashed"] or found["post"] else 0
    stage = (found["stage"] or "").lower()
    number = found["number"]
    if found["dev"] and not stage and not after:
        stage = "dev"
        number = found["devs"]
    return tuple(release), STAGES.get(SHORT.get(stage, stage), FINAL), int(number or 0), after


def clauses(requirement: str) -> list[tuple[str, str]]:
    """The clauses of a requirement's range, as in `torch>=2.4,<2.9 ; sys_platform == 'linux'`."""
    return CLAUSE.findall(requirement.partition(";")[0].partition("@")[0])


def allows(requirement: str, version: str) -> bool:
    """Whether the range of a requirement allows a version, such as 2.14.1+cu130."""
    return all(_meets(sign, bound, version) for sign, bound in clauses(requirement))


def _meets(sign: str, bound: str, version: str) -> bool:
    here = key(version)
    there = key(bound.partition("+")[0])
    if sign in ("==", "!=", "==="):
        if bound.endswith(".*"):
            parts = [int(part) for part in bound[:-2].split(".")]
            same = [*here[0], *[0] * len(parts)][: len(parts)] == parts
        else:
            local = bound.partition("+")[2]
            same = here == there and local in ("", version.partition("+")[2])
        return same != (sign == "!=")
    if sign == "~=":
        prefix = [int(part) for part in VERSION.match(bound)["release"].split(".")][:-1]  # type: ignore[index]
        return here >= there and [*here[0], *[0] * len(prefix)][: len(prefix)] == prefix
    if sign == "<":  # 2.9 excludes its own pre-releases
        return here < there and not (here[0] == there[0] and there[1] == FINAL)
    if sign == ">":  # 2.9 excludes its own post-releases
        return here > there and (here[:3] != there[:3] or there[3] > 0)
    return here >= there if sign == ">=" else here <= there


def applies(requirement: str, python: str) -> bool:
    """Whether a requirement's marker is true in a container; a marker that cannot be read counts as true."""
    import ast  # imported here because it is slow

    marker = re.split(r"\s;|;\s|;", requirement, maxsplit=1)[1:]
    if not marker or not marker[0].strip():
        return True
    known = {**LINUX, "python_version": python, "python_full_version": f"{python}.99"}
    try:
        return bool(_value(ast.parse(marker[0].strip(), mode="eval").body, known))
    except (SyntaxError, KeyError, TypeError, ValueError):
        return True


def _value(node: Any, known: dict[str, str]) -> Any:
    import ast

    if isinstance(node, ast.BoolOp):
        values = [_value(each, known) for each in node.values]
        return all(values) if isinstance(node.op, ast.And) else any(values)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError("not a marker")
    left = _value(node.left, known)
    right = _value(node.comparators[0], known)
    sign = node.ops[0]
    names = {each.id for each in (node.left, node.comparators[0]) if isinstance(each, ast.Name)}
    if isinstance(sign, (ast.In, ast.NotIn)):
        return (left in right) == isinstance(sign, ast.In)
    if names & {"python_version", "python_full_version"}:
        left = key(left)
        right = key(right)
    return COMPARISONS[type(sign).__name__](left, right)
