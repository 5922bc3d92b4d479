"""The facts about the machine that an error text comes from. None means unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from gpukit.project.data import data
from gpukit.project.stack import version


@dataclass(frozen=True)
class Card:
    """One GPU; `capability` is such as 12.0, `memory_gb` in GiB."""

    name: str = ""
    capability: str | None = None
    memory_gb: float | None = None


@dataclass(frozen=True)
class Engine:
    name: str | None = None  # docker, podman
    version: str | None = None
    rootless: bool | None = None
    desktop: bool | None = None  # Docker Desktop
    snap: bool | None = None
    toolkit: str | None = None  # the version of NVIDIA's Container Toolkit; empty: not installed
    cdi: bool | None = None
    running: bool | None = None


@dataclass(frozen=True)
class Torch:
    version: str | None = None  # such as 2.9.1+cu130
    cuda: str | None = None  # that it was built for; empty: a build without CUDA
    arch_list: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Machine:
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
    engine: Engine = field(default_factory=Engine)
    torch: Torch = field(default_factory=Torch)
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
        return replace(
            self,
            unified_memory=memory.pop() if self.unified_memory is None and len(memory) == 1 else self.unified_memory,
            cuda=self.cuda or max(supported, key=version, default=None),
        )

    def over(self, other: Machine) -> Machine:
        """These facts; unknown ones are taken from `other`."""
        known: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, (Engine, Torch)):
                parts = {part.name: getattr(mine, part.name) for part in fields(mine)}
                known[each.name] = replace(
                    theirs, **{name: value for name, value in parts.items() if value is not None}
                )
            elif each.name == "packages":
                known[each.name] = {**(theirs or {}), **(mine or {})} or None
            else:
                known[each.name] = theirs if mine is None else mine
        return Machine(**known)


def from_json(data: Any) -> Machine:
    """The machine in the output of `doctor --json`, or only its `machine`. Unknown fields are ignored.

    Raises:
        ValueError: it is not an object
    """
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    data = data.get("machine", data)
    if not isinstance(data, dict):
        raise ValueError("`machine` is not a JSON object")
    known = _known(Machine, data)
    for name, kind in (("engine", Engine), ("torch", Torch)):
        if isinstance(known.get(name), dict):
            known[name] = kind(**_known(kind, known[name]))
        else:
            known.pop(name, None)
    cards = known.pop("gpus", None)
    if isinstance(cards, list):
        named = [Card(**_known(Card, card)) for card in cards if isinstance(card, dict)]
        known["gpus"] = tuple(replace(card, capability=card.capability or capability(card.name)) for card in named)
    if "driver" in data and data["driver"] is None:
        known["driver"] = ""  # null in a file means that no driver was found
    return Machine(**known)


def _known(kind: type, data: dict[str, Any]) -> dict[str, Any]:
    names = {each.name: str(each.type) for each in fields(kind)}
    return {name: _typed(names[name], value) for name, value in data.items() if name in names and value is not None}


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


def machine_in_text(text: str) -> Machine:
    """The facts in a text about the machine that it comes from."""
    found: dict[str, Any] = {}

    def first(pattern: str) -> str | None:
        match = re.search(pattern, text)
        return next((group for group in match.groups() if group), match.group()) if match else None

    if re.search(r"microsoft-standard|\bWSL ?2?\b(?! integration)|/mnt/[a-z]/|/usr/lib/wsl|/dev/dxg", text):
        found["system"] = "wsl"
    elif re.search(r"\b[A-Z]:\\(?!\\?n)", text):
        found["system"] = "windows"
    arm, intel = (
        re.search(names, text)
        for names in (r"(?<![a-z0-9])(?:aarch64|arm64|sbsa)\b", r"(?<![a-z0-9])(?:x86_64|amd64)\b")
    )
    if bool(arm) != bool(intel):  # a text that names both lists what there is
        found["arch"] = "arm64" if arm else "amd64"
    if re.search(r"tegra|\bL4T\b|JetPack|/nvmap|\bnvgpu\b|Orin|Xavier", text, re.IGNORECASE):
        found["jetson"] = first(r"\bR(3\d)\b|L4T[ -]?R?(3\d[\d.]*)") or "unknown"
        found["unified_memory"] = True
    if re.search(r"\bGB10\b|DGX Spark", text):
        found["unified_memory"] = True
    name = first(
        r"(NVIDIA (?:GeForce |RTX |TITAN |Quadro |Tesla )?[A-Z]?[\w]*\d[\w]*(?: (?:Ti|SUPER|Ada|Laptop "
        r"GPU|PCIe|SXM\d?))*)"
    )
    number = first(r"(?:CUDA |compute )capability (?:sm_)?(\d+\.\d)\b") or capability(text)
    if number or name:
        found["gpus"] = (Card(name or "", number),)
    found["driver"] = first(
        r"Driver Version: (\d{3}\.[\d.]+)|NVRM version: .*?(\d{3}\.[\d.]+)|driver[ /-](?:version ?:? ?)?v?(\d{3}\.\d+[\d.]*)"
    )
    found["cuda"] = first(r"CUDA Version: (\d+\.\d)|found version (\d{5})\b")
    if found["cuda"] and found["cuda"].isdigit():
        found["cuda"] = f"{int(found['cuda']) // 1000}.{int(found['cuda']) % 1000 // 10}"
    torch = first(r"\b(?:Py)?torch(?:==|[- ]version ?:? ?|[ -])v?(\d\.\d+\.\d+(?:\+\w+)?)")
    cuda = first(r"CUDA used to build PyTorch ?: (\d+\.\d+|None)")
    cuda = "" if cuda == "None" else cuda
    if torch and "+cu" in torch:
        digits = torch.partition("+cu")[2]
        cuda = f"{digits[:2]}.{digits[2:]}" if digits.isdigit() else None
    elif torch and torch.endswith("+cpu"):
        cuda = ""
    found["torch"] = Torch(torch, cuda)
    found["python"] = first(r"python(\d\.\d+)/|Python (\d\.\d+)\b")
    podman, desktop = (
        re.search(r"\bpodman\b|\bcrun\b", text),
        re.search(r"Docker Desktop|docker-desktop|desktop-linux", text),
    )
    docker = re.search(r"\bdockerd?\b|moby", text, re.IGNORECASE)
    found["engine"] = Engine(
        "podman" if podman else "docker" if docker else None,
        desktop=True if desktop else None,
        rootless=True if re.search(r"rootless|run/user/\d+/docker\.sock", text) else None,
        snap=True if re.search(r"/snap/docker|snap\.docker", text) else None,
    )
    return Machine(**{name: value for name, value in found.items() if value is not None})


def at_least(found: str | None, wanted: str) -> bool | None:
    """Whether a version is `wanted` or newer; None if it is unknown."""
    return version(found) >= version(wanted) if found and version(found) else None
