"""GPUs as nvidia-smi names them, and their hardware ids in the catalogue (data/cards.json)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpukit.project.data import data
from gpukit.project.stack import version


@dataclass(frozen=True)
class Card:
    name: str
    driver: str  # empty if nvidia-smi does not report it, as on some integrated GPUs
    capability: str


def cards(text: str) -> list[Card]:
    """The rows of nvidia-smi's CSV. A name may contain a comma; the last two fields never do."""
    rows = (line.rsplit(",", 2) for line in text.splitlines())
    return [Card(row[0].strip(), _number(row[1]), _number(row[2])) for row in rows if len(row) == 3]


def _number(field: str) -> str:
    field = field.strip()
    return field if version(field) else ""


def hardware(card: Card, arch: str) -> str:
    """The hardware id of this card, the first that matches; empty if there is none."""
    for id, known in data("cards").items():
        if (card.capability, arch) == (known["capability"], known["arch"]) and known[
            "name"
        ].lower() in card.name.lower():
            return id
    return ""


def hardware_of_chip(name: str, arch: str) -> str:
    """The same for a name in the PCI ID database, such as `AD102 [GeForce RTX 4090]`, which needs no driver."""
    for id, known in data("cards").items():
        if known["chips"] and known["arch"] == arch and re.match(known["chips"], name) and known["name"] in name:
            return id
    return ""


def reference_tflops(name: str) -> float | None:
    """The speed of a card in NVIDIA's data sheet, see tflops in catalogue/hardware.yml.

    Only GPUs with an unambiguous name. MIG slices, laptop GPUs, and GPUs not listed are measured but not judged.
    """
    return next((known["tflops"][name] for known in data("cards").values() if name in known["tflops"]), None)


def jetson(text: str) -> tuple[int, ...]:
    """The release in /etc/nv_tegra_release: `# R36 (release), REVISION: 4.3, ...` is (36, 4, 3)."""
    found = re.search(r"R(\d+) \(release\), REVISION: (\d+(?:\.\d+)*)", text)
    return version(f"{found.group(1)}.{found.group(2)}") if found else ()
