"""NVIDIA's cards as nvidia-smi names them, and which hardware of the template each one is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpukit.project.stack import Stack, version

# The template's hardware ids: capability, processor, what the name holds. The first that fits counts. Ids are never
# renamed; a test in the template holds this table against its catalogue.
HARDWARE = (
    ("dgx-spark", "12.1", "arm64", ""),
    ("rtx-50", "12.0", "amd64", "GeForce"),
    ("rtx-pro-blackwell", "12.0", "amd64", ""),
    ("jetson-thor", "11.0", "arm64", ""),
    ("b300", "10.3", "amd64", ""),
    ("gb300", "10.3", "arm64", ""),
    ("b200", "10.0", "amd64", ""),
    ("gb200", "10.0", "arm64", ""),
    ("h100", "9.0", "amd64", ""),
    ("gh200", "9.0", "arm64", ""),
    ("rtx-40", "8.9", "amd64", "GeForce"),
    ("l4-l40s", "8.9", "amd64", ""),
    ("jetson-orin", "8.7", "arm64", ""),
    ("rtx-30", "8.6", "amd64", "GeForce"),
    ("a10-a40", "8.6", "amd64", ""),
    ("a100", "8.0", "amd64", ""),
    ("t4-rtx-20", "7.5", "amd64", ""),
    ("v100", "7.0", "amd64", ""),
    ("gtx-10", "6.1", "amd64", ""),
)


@dataclass(frozen=True)
class Card:
    name: str
    driver: str  # empty where nvidia-smi does not say, as on some integrated GPUs
    capability: str


def cards(text: str) -> list[Card]:
    """The rows of nvidia-smi's CSV. A name may hold a comma; the last two fields never do."""
    rows = (line.rsplit(",", 2) for line in text.splitlines())
    return [Card(row[0].strip(), _number(row[1]), _number(row[2])) for row in rows if len(row) == 3]


def _number(field: str) -> str:
    field = field.strip()
    return field if version(field) else ""


def hardware(card: Card, arch: str) -> str:
    """The template's id for this card; empty where it has none."""
    for id, capability, processor, part in HARDWARE:
        if (card.capability, arch) == (capability, processor) and part.lower() in card.name.lower():
            return id
    return ""


def answer_with(stack: Stack, id: str) -> str:
    """What `copier update --data` must be given to add this hardware to the project's targets."""
    main, *others = stack.targets
    if main == "cpu" and not others:
        return f"hardware={id}"
    return f"'also_on=[{', '.join([*others, id])}]'"


def jetson(text: str) -> tuple[int, ...]:
    """The release in /etc/nv_tegra_release: `# R36 (release), REVISION: 4.3, ...` is (36, 4, 3)."""
    found = re.search(r"R(\d+) \(release\), REVISION: (\d+(?:\.\d+)*)", text)
    return version(f"{found.group(1)}.{found.group(2)}") if found else ()
