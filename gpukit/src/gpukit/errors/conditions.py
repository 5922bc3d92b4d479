"""Conditions of causes: what is known of the machine, and what stands in the text.

A condition is nested lists: an operator or function, and its operands. Its value is True (it supports the cause), False
(it rules the cause out), or None (unknown). In `maybe(...)`, false counts as unknown; in `sure(...)`, unknown as false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from gpukit.errors.machine import Machine, compiled
from gpukit.findings.causes import PROJECT, worded
from gpukit.project.data import data
from gpukit.project.versions import version

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
# What a comparison says if it is true, and if it is false.
WORDS = {"<": ("below", "at least"), "<=": ("at most", "above"), ">": ("above", "at most"), ">=": ("at least", "below")}
QUOTED = 60  # characters of the text that a reason quotes


class Case(NamedTuple):
    """An error text, what its sign captured, and the known facts about the machine that it comes from."""

    text: str
    machine: Machine
    captures: Mapping[str, str] = MappingProxyType({})


def holds(condition: Any, case: Case) -> bool | None:
    """Whether a condition is true; None if that is unknown."""
    if condition is None:
        return None
    name, *parts = condition
    if name in ("and", "or"):
        values = [holds(part, case) for part in parts]
        deciding = name == "or"
        return deciding if deciding in values else None if None in values else not deciding
    if name == "not":
        value = holds(parts[0], case)
        return None if value is None else not value
    if name == "maybe":
        return holds(parts[0], case) or None
    if name == "sure":
        return bool(holds(parts[0], case))
    if name == "text":
        return _search(parts, case) is not None
    if name == "fact":
        return holds(data("knowledge")["facts"][parts[0]]["test"], case)
    if name == "predicate":
        return PREDICATES[parts[0]](case)
    if name in COMPARISONS:
        left, right = (_value(part, case) for part in parts)
        return None if left is None or right is None else COMPARISONS[name](*_comparable(left, right))
    value = _value(condition, case)
    return None if value is None else bool(value)


def reason(condition: Any, case: Case) -> str:
    """Why a condition is true, from what is known; empty if it is not, or if nothing tells it."""
    return " and ".join(dict.fromkeys(_reasons(condition, case, True)))


def _reasons(condition: Any, case: Case, wanted: bool) -> list[str]:
    """Why a condition has this value; empty if it has another one."""
    if condition is None or holds(condition, case) is not wanted:
        return []
    name, *parts = condition
    if name in ("and", "or"):
        found = [reasons for part in parts if (reasons := _reasons(part, case, wanted))]
        return [each for reasons in (found if wanted == (name == "and") else found[:1]) for each in reasons]
    if name in ("not", "maybe", "sure"):
        return _reasons(parts[0], case, wanted != (name == "not"))
    if name == "text":
        match = _search(parts, case)
        if not match or not match[0].strip():
            return []
        quoted = ""
        for more in (r"[\w.:=+/-]*", r"\w*"):  # whole paths and options; if that is too long, whole words
            before = re.search(rf"{more}\Z", case.text[: match.start()])
            after = re.match(more, case.text[match.end() :])
            quoted = " ".join(f"{before and before[0]}{match[0]}{after and after[0]}".split())
            if len(quoted) <= QUOTED:
                break
        return [f'the text has "{quoted[:QUOTED]}"']
    if name == "fact":
        fact = data("knowledge")["facts"][parts[0]]
        said = fact.get("if_true" if wanted else "if_false")
        return [worded(said, PROJECT, values(case))] if said else []
    if name in COMPARISONS and parts[0][0] == "machine":
        says = data("knowledge")["values"].get(parts[0][1])
        if says and name in WORDS:
            words = WORDS[name][0 if wanted else 1]
            return [f"{says} {_value(parts[0], case)}, {words} {_value(parts[1], case)}"]
    return []


def values(case: Case) -> dict[str, str]:
    """What is known of a case, for the placeholders of sentences: what was captured, figures, and the machine."""
    found = {name: f"{value:.1f}" for name, value in figures(case.text).items()}
    machine = case.machine
    for prefix, part in {"machine": machine, "machine.engine": machine.engine, "machine.torch": machine.torch}.items():
        known = {name: value for name, value in part._asdict().items() if isinstance(value, (str, float))}
        found.update({f"{prefix}.{name}": str(value) for name, value in known.items()})
    return {**found, **case.captures}


def _search(patterns: list[str], case: Case) -> re.Match[str] | None:
    return next(filter(None, (compiled(pattern).search(case.text) for pattern in patterns)), None)


def _value(part: Any, case: Case) -> Any:
    kind, name = part
    if kind == "value":
        return name
    if kind == "capture":
        return case.captures.get(name, figures(case.text).get(name))
    value: Any = case.machine
    for each in name.split("."):
        value = getattr(value, each)
    return len(value) if isinstance(value, tuple) else value


def _comparable(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values of the same kind: numbers, versions, or strings."""
    if isinstance(left, (int, float)) or isinstance(right, (int, float)):
        return float(left), float(right)
    if version(left) and version(right):
        return version(left), version(right)
    return str(left).lower(), str(right).lower()


# What an expression cannot say

AMOUNT = r"([\d.]+) ?([KMGT]i?B|bytes)"
CONTEXT = 0.6  # GiB: about what CUDA and its libraries need beside torch's memory
UNITS = {"k": 2**-20, "m": 2**-10, "g": 1.0, "t": 2.0**10, "b": 2**-30}


@lru_cache(maxsize=4)
def figures(text: str) -> dict[str, float]:
    """The amounts of GPU memory in a text, in GiB, and their shares of all of it.

    `own` is what the program holds, `others` other programs, `unused` what torch has reserved and does not use.
    `spare` is how often what it tried to allocate would fit into the free memory.
    """
    found: dict[str, float] = {}
    for name, patterns in data("knowledge")["figures"].items():
        for pattern in patterns:
            match = compiled(pattern.replace("{amount}", AMOUNT).replace("{number}", r"([\d.]+)")).search(text)
            if match:
                unit = match[2] if match.lastindex == 2 else "GiB"
                found[name] = float(match[1].rstrip(".")) * UNITS[unit[0].lower()]
                break
    total = found.get("total")
    free = found.get("free")
    if "on startup is less than" in text:  # the program itself holds nothing yet
        found["own"] = 0.0
    others = [
        float(amount) * UNITS[unit[0].lower()]
        for amount, unit in re.findall(rf"Process \d+ has [^.]*?{AMOUNT} memory in use", text)
    ]
    torch = found.pop("allocated", 0.0) + found.get("unused", 0.0)
    beside = 0.0
    if torch and not torch <= found.get("own", 0.0) <= (total or torch):
        # In containers and on Windows the driver does not know the process: its part is 0, absurd, or another's
        found["own"] = min((each for each in others if torch <= each < torch + 2 * CONTEXT), default=torch)
        beside = CONTEXT if found["own"] == torch else 0.0
        others = [each for each in others if each != found["own"]]
    if total and free is not None and "own" in found:
        others.append(max(0.0, total - free - found["own"] - beside))
    others = [each for each in others if each <= (total or each)]  # what Windows reports may be absurd
    if others:
        found["others"] = max(others)
    shares = {
        f"{name}_share": found[name] / total for name in ("own", "others", "unused", "free") if name in found and total
    }
    if free is not None and found.get("tried"):
        found["spare"] = free / found["tried"]
    return {**found, **shares}


def cuda_above_driver(case: Case) -> bool | None:
    """Whether torch's CUDA has a higher major version than the driver supports."""
    torch = case.machine.torch.cuda
    driver = case.machine.cuda
    return version(torch)[:1] > version(driver)[:1] if torch and driver else None


def torch_older_than_card(case: Case) -> bool | None:
    """Whether torch was built for a CUDA that is older than the first one that knows the GPU."""
    capability = case.machine.capability
    torch = case.machine.torch.cuda
    known = [each for each in data("cards").values() if capability and each["capability"] == capability]
    first = [card["min_cuda"] for card in known if not card["unified_memory"]]  # on those, it is that of the system
    return version(torch) < min(map(version, first)) if first and torch else None


def torch_has_kernels(case: Case) -> bool | None:
    """Whether torch's list of architectures has one that runs on the GPU: of its generation, and not newer than it."""
    card, kernels = _card_and_kernels(case)
    return any(each <= card and each[0] == card[0] for each in kernels) if card and kernels else None


def card_below_kernels(case: Case) -> bool | None:
    """Whether the GPU is older than all of torch's list of architectures."""
    card, kernels = _card_and_kernels(case)
    return card < min(kernels) if card and kernels else None


def _card_and_kernels(case: Case) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The GPU's compute capability, and those of torch's list of architectures; empty if unknown."""
    digits = [re.sub(r"\D", "", arch.partition("sm_")[2]) for arch in case.machine.torch.arch_list or ()]
    return version(case.machine.capability or ""), [(int(each[:-1]), int(each[-1])) for each in digits if each]


PREDICATES: dict[str, Callable[[Case], bool | None]] = {
    each.__name__: each for each in (cuda_above_driver, torch_older_than_card, torch_has_kernels, card_below_kernels)
}
