"""The facts about the machine that an error text comes from. None means unknown."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from gpukit.project.data import data
from gpukit.project.versions import version


class Card(NamedTuple):
    """One GPU; `capability` is such as 12.0, `memory_gb` in GiB."""

    name: str = ""
    capability: str | None = None
    memory_gb: float | None = None


class Engine(NamedTuple):
    name: str | None = None  # docker, podman
    version: str | None = None
    rootless: bool | None = None
    desktop: bool | None = None  # Docker Desktop
    snap: bool | None = None
    toolkit: str | None = None  # the version of NVIDIA's Container Toolkit; empty: not installed
    cdi: bool | None = None
    running: bool | None = None


class Torch(NamedTuple):
    version: str | None = None  # such as 2.9.1+cu130
    cuda: str | None = None  # that it was built for; empty: a build without CUDA
    arch_list: tuple[str, ...] | None = None


class Machine(NamedTuple):
    """`gpukit doctor --json` prints these as `machine`; docs/machine.md describes each.

    `container`: whether the failing program ran in a container. `driver`: empty if none is installed.
    """

    system: str | None = None  # linux, wsl, windows, macos
    arch: str | None = None  # amd64, arm64
    os: str | None = None
    kernel: str | None = None
    container: bool | None = None
    jetson: str | None = None  # release of Jetson Linux; empty: not a Jetson
    unified_memory: bool | None = None
    gpus: tuple[Card, ...] | None = None
    driver: str | None = None
    open_modules: bool | None = None
    cuda: str | None = None  # the newest that the driver supports
    secure_boot: bool | None = None
    selinux: str | None = None
    engine: Engine = Engine()
    torch: Torch = Torch()
    python: str | None = None
    packages: dict[str, str] | None = None
    memory_gb: float | None = None
    shm_mb: float | None = None
    disk_free_gb: float | None = None
    targets: tuple[str, ...] | None = None  # of the project
    worked_before: bool | None = None  # whether the failing program worked on this machine before

    @property
    def capabilities(self) -> tuple[str, ...]:
        return tuple(card.capability for card in self.gpus or () if card.capability)

    @property
    def capability(self) -> str | None:
        """The highest of all GPUs."""
        return max(self.capabilities, key=version, default=None)

    def completed(self) -> Machine:
        """The machine, with what follows: the driver's newest CUDA, and the memory of the project's targets."""
        memory = {data("cards")[id]["unified_memory"] for id in self.targets or () if id in data("cards")}
        drivers = data("stacks")["cuda_drivers"].items()
        supported = [cuda for cuda, driver in drivers if self.driver and version(driver) <= version(self.driver)]
        return self._replace(
            unified_memory=memory.pop() if self.unified_memory is None and len(memory) == 1 else self.unified_memory,
            cuda=self.cuda or max(supported, key=version, default=None),
        )

    def over(self, other: Machine) -> Machine:
        """These facts; unknown ones are taken from `other`."""
        known: dict[str, Any] = {}
        for name, mine in self._asdict().items():
            theirs = getattr(other, name)
            if isinstance(mine, (Engine, Torch)):
                stated = {each: value for each, value in mine._asdict().items() if value is not None}
                known[name] = theirs._replace(**stated)
            else:
                known[name] = theirs if mine is None else mine
        return Machine(**known)


def from_json(data: Any) -> Machine:
    """The machine in the output of `doctor --json`, or only its `machine`. Unknown fields are ignored.

    Raises:
        ValueError: it is not an object
    """
    data = data.get("machine", data) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    known = _known(Machine, data)
    for name, kind in (("engine", Engine), ("torch", Torch)):
        if isinstance(known.get(name), dict):
            known[name] = kind(**_known(kind, known[name]))
        else:
            known.pop(name, None)
    cards = known.pop("gpus", None)
    if isinstance(cards, list):
        named = [Card(**_known(Card, card)) for card in cards if isinstance(card, dict)]
        known["gpus"] = tuple(card._replace(capability=card.capability or capability(card.name)) for card in named)
    if "driver" in data and data["driver"] is None:
        known["driver"] = ""  # null in a file means that no driver was found
    return Machine(**known)


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    types = {name: re.sub(r"^ForwardRef\('", "", str(type)) for name, type in kind.__annotations__.items()}
    return {name: _typed(types[name], value) for name, value in data.items() if name in types and value is not None}


def _typed(kind: str, value: Any) -> Any:
    """Convert a value: a file of another version, or written by hand, may have a number instead of a string."""
    if kind.startswith("str") and not isinstance(value, str):
        return str(value)
    if kind.startswith("float") and not isinstance(value, (int, float)):
        found = re.search(r"\d+(?:\.\d+)?", str(value))
        return float(found.group()) if found else None
    if kind.startswith("bool") and not isinstance(value, bool):
        return str(value).lower() in ("1", "true", "yes", "on")
    if kind.startswith("tuple[str"):
        return tuple(str(each) for each in value) if isinstance(value, list) else tuple(str(value).split())
    return value


@cache
def _names() -> list[tuple[str, str]]:
    """All names of GPUs with their compute capabilities, the longest first: a name may be a part of another."""
    found = dict(data("stacks")["older_cards"])
    for known in data("cards").values():
        found.update(dict.fromkeys(known["names"], known["capability"]))
    return sorted(found.items(), key=lambda item: -len(item[0]))


def capability(text: str) -> str | None:
    """The compute capability of a GPU by its name, or of the GPU that a text names."""
    lower = text.lower()
    for name, number in _names():
        # Short names are words of other texts too, unless their case is right: T4, L4, A2.
        at, whole = (text, name) if len(name) < 5 else (lower, name.lower())
        if whole in at and re.search(rf"(?<!\w){re.escape(whole)}(?!\w)", at):
            return number
    return None


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.MULTILINE)


def machine_in_text(text: str) -> Machine:
    """The facts in a text about the machine that it comes from."""
    found: dict[str, Any] = {}
    lower = text.lower()
    for entry in data("knowledge")["in_text"]:
        pattern, *words = entry["text"]
        possible = entry["fact"] not in found and (not words or any(map(lower.__contains__, words)))
        if possible and (match := compiled(pattern).search(text)):
            found[entry["fact"]] = entry.get("value", next(filter(None, match.groups()), ""))
    name = found.pop("name", "")
    number = found.pop("capability", None) or capability(text)
    if number or name:
        found["gpus"] = (Card(name, number),)
    if found.get("cuda", "").isdigit():  # such as 12060
        found["cuda"] = f"{int(found['cuda']) // 1000}.{int(found['cuda']) % 1000 // 10}"
    _, _, build = found.get("torch.version", "").partition("+")  # such as cu130
    if build == "cpu":
        found["torch.cuda"] = ""
    elif re.fullmatch(r"cu\d{3}", build):
        found["torch.cuda"] = f"{build[2:4]}.{build[4]}"
    if "torch.arch_list" in found:
        found["torch.arch_list"] = tuple(found["torch.arch_list"].replace(",", " ").split())
    parts: dict[str, dict[str, Any]] = {"": {}, "engine": {}, "torch": {}}
    for fact, value in found.items():
        part, _, field_name = fact.rpartition(".")
        parts[part][field_name] = value
    return Machine(**parts[""], engine=Engine(**parts["engine"]), torch=Torch(**parts["torch"]))
