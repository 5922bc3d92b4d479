"""What runs where: the only place that decides which release supports which machine."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
FILES = ("hardware", "images", "packages", "extensions")
PROVENANCE = {"source", "sources", "checked", "specs"}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """libyaml if PyYAML has it: the parser in Python takes ten times as long."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Reject a key that occurs twice, of which YAML would silently keep the last."""
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            keys = [key.value for key, _ in node.value]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} occurs twice", node.start_mark)
        return mapping


def parse(text: str) -> Any:
    """YAML, as the loader above reads it."""
    return yaml.load(text, _Loader)


@functools.cache
def load(name: str) -> dict[str, Any]:
    """A file of the catalogue, one of FILES."""
    return parse((HERE / f"{name}.yml").read_text(encoding="utf-8"))


def write(files: Mapping[Path, str]) -> None:
    """Write generated files. Tests compare them with what would be written."""
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def number(version: str) -> tuple[int, int]:
    """The first two numbers of a version, which determine compatibility: "2.10.0a0+b55.nv25.11" -> (2, 10)."""
    major, minor = re.match(r"(\d+)(?:\.(\d+))?", version).groups("0")
    return int(major), int(minor)


def supports(hardware: Mapping[str, Any], release: Mapping[str, Any]) -> str:
    """Why a release does not support a machine, in a few words; "" if it does."""
    label = hardware["label"]
    last = hardware["driver"]["last"]
    kernels = release["kernels"].get(hardware["arch"])
    if kernels is None:
        return f"no {hardware['arch']} build"
    if hardware["capability"] is None:
        return ""
    if release["cuda"] is None:
        return "no CUDA"
    if number(release["cuda"]) < number(hardware["min_cuda"]):
        return f"CUDA {release['cuda']} is older than the {hardware['min_cuda']} that {label} needs"
    if hardware["max_cuda"] and number(release["cuda"]) > number(hardware["max_cuda"]):
        return f"CUDA {release['cuda']} no longer supports {label}"
    if last and number(release["driver"])[0] > number(last)[0]:
        return f"no driver from {release['driver']} on supports {label}"
    compiled = set(kernels["sass"]) & set(hardware["sass"])
    if not compiled and not any(number(ptx) <= number(hardware["capability"]) for ptx in kernels["ptx"]):
        return f"no kernels for {label}"
    return ""


def outside(release: Mapping[str, Any], span: str) -> str:
    """Which part of a range such as ">=2.9,<2.15" a release's torch does not satisfy; "" if it satisfies all.

    NVIDIA's pre-releases (2.10.0a0) count as the release that follows, because they have its features.
    """
    torch = number(release["torch"])
    for part in filter(None, span.split(",")):
        operator, bound = re.fullmatch(r"\s*(>=|<)\s*([\d.]+)\s*", part).groups()
        if (torch < number(bound)) if operator == ">=" else (torch >= number(bound)):
            return f"its torch is not {part.strip()}"
    return ""


def superseded(base: str, name: str) -> bool:
    """Whether the publisher fixes only newer releases (the base's rule), and a confirmed one of them is listed."""
    images = load("images")
    rule = images["bases"][base]["support"]["rule"]
    releases = images["releases"][base]
    if rule == "driver-branch":  # it ends with that branch, whatever is newer
        return False
    numbers = {id: number(id if rule == "newest" else release["torch"]) for id, release in releases.items()}
    return any(numbers[id] > numbers[name] for id, release in releases.items() if release["status"] == "confirmed")


def refused(release: Mapping[str, Any], targets: Iterable[str], use_case: str = "") -> str:
    """Why a release cannot be selected for these hardware ids and this use case; "" if it can."""
    reasons = [supports(load("hardware")["hardware"][target], release) for target in targets]
    reasons.append(outside(release, load("packages")["use_cases"][use_case]["torch"]) if use_case else "")
    return "; ".join(filter(None, reasons))


def current(base: str, targets: Iterable[str], use_case: str = "") -> str:
    """The id of the release that `current` means on a base for these hardware ids and this use case; "" for none."""
    targets = list(targets)
    for name, release in load("images")["releases"][base].items():
        if release["status"] == "confirmed" and not refused(release, targets, use_case):
            return name
    return ""


def bases(targets: Iterable[str], use_case: str = "") -> dict[str, str]:
    """The bases that support all of these hardware ids, each with its `current` release."""
    targets = list(targets)
    found = {base: current(base, targets, use_case) for base in load("images")["bases"]}
    return {base: name for base, name in found.items() if name}


def loaded(cuda: str, libraries: Mapping[str, list[str]]) -> list[str]:
    """The capabilities that bitsandbytes has code for: those of the library that it loads for a CUDA version."""
    wanted = number(cuda)
    same = {number(version): version for version in libraries if number(version)[0] == wanted[0]}
    below = [version for version in same if version <= wanted]
    return libraries[same[max(below) if below else min(same)]] if same else []


def bare(value: Any) -> Any:
    """A value without where it is from: nothing is rendered from that."""
    if isinstance(value, dict):
        return {name: bare(item) for name, item in value.items() if name not in PROVENANCE}
    return [bare(item) for item in value] if isinstance(value, list) else value
