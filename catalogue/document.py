"""Write docs/hardware.md from the catalogue; with --check, exit with 1 if it is out of date."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support

DOCUMENT = support.HERE.parent / "docs/hardware.md"
HARDWARE = support.load("hardware")["hardware"]
BASES = support.load("images")["bases"]
RELEASES = support.load("images")["releases"]
USE_CASES = support.load("packages")["use_cases"]

TOP = """\
# Hardware

<!-- Written by `python catalogue/document.py` from catalogue/*.yml. Change those, not this file. -->

Which hardware id to select, which releases of each base support it, and which driver it needs. Every figure comes from
`catalogue/`, which also states its source and the date of the last check.
"""

CARDS = """\
## Which id is my card?

`nvidia-smi -L` prints the card's name. "Memory" is the nominal size; tools report slightly less. "First driver" is the
oldest driver that supports the card; "any" means that every driver supported by the bases below also supports the card.
"""

NOT_HERE = """\
A variant that is not listed (SUPER, Ti, D, Embedded, laptop) usually has the id of its series. If in doubt, compare the
capability: `nvidia-smi --query-gpu=compute_cap --format=csv`. Not supported: Tesla P100 (capability 6.0), Maxwell and
older, Jetson Xavier and older, and GPUs of other vendors. On such machines, use `cpu`.
"""

MATRIX = """\
## What runs where

The first line of each cell is what `release: current` selects today: the newest release that is confirmed for the
machine. The other releases can be pinned (question `advanced`). **Bold** marks the recommended base.
"""

EDGES = """\
A project for several machines (`also_on`) gets the newest release that supports all of them. If there is none, the
combination is refused. Pascal (`gtx-10`) and Blackwell cannot be combined: Blackwell requires CUDA 12.8, and PyTorch
builds for CUDA 12.8 have no kernels for Pascal. The newest release for both Volta and Blackwell is `wheel`
2.10.0-cu128.

The use case can also exclude a release: """

DRIVERS = """\
## Driver floors

A driver must support the card (first table) *and* the release (this table). In general, a build for one CUDA major
version runs on the first driver branch of that version and newer. Only `nvidia/cuda` images need the driver of their
own toolkit: with an older one, they refuse to start on GeForce cards.
"""

OLD_DRIVERS = """\
See also [A driver that cannot be updated](choosing-a-base.md#a-driver-that-cannot-be-updated).
"""

ENDED = """\
## Where support has ended

CUDA 13 does not support Maxwell, Pascal, and Volta, and driver branch 580 is the last that does. PyTorch 2.14 (cu126)
is the last with builds for them.
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def cards() -> str:
    """Every card, alphabetically, with its id, memory, and first driver; all memory sizes of a card in one row."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for name, machine in HARDWARE.items():
        for card in machine["cards"]:
            title = f"{card['name']} ({card['form']})" if card.get("form") else card["name"]
            row = rows.setdefault((title, name), {"memory": [], "driver": card["driver"]})
            row["memory"].append(card["memory_gb"])
            older = [driver for driver in (row["driver"], card["driver"]) if driver]
            row["driver"] = min(older, key=lambda text: [int(part) for part in text.split(".")]) if older else None
    lines = []
    for (title, name), row in sorted(rows.items(), key=lambda item: item[0][0].lower()):
        machine = HARDWARE[name]
        sizes = " or ".join(str(size) for size in sorted(filter(None, row["memory"])))
        memory = f"{sizes} GB{', shared with the system' if machine['unified_memory'] else ''}" if sizes else "?"
        driver = row["driver"] or ("with JetPack" if machine["status"] == "experimental" else "any")
        lines.append([title, f"`{name}`", machine["capability"], memory, driver])
    return table(["card", "id", "capability", "memory", "first driver"], lines)


def offer(name: str, base: str) -> str:
    """The releases of a base for a machine: `current` and those that can be pinned, or why there are none."""
    chosen = support.current(base, [name])
    fits = [release for release, entry in RELEASES[base].items() if not support.supports(HARDWARE[name], entry)]
    if not fits:
        first = next(iter(RELEASES[base].values()))
        return f"none: {support.supports(HARDWARE[name], first)}"
    pins = [release for release in fits if release != chosen]
    others = f"<br>{', '.join(pins)}" if pins else ""
    if not chosen:
        return f"none confirmed{others}"
    star = "**" if HARDWARE[name]["base"]["recommended"] == base else ""
    return f"{star}{chosen}{star}{others}"


def matrix() -> str:
    """The releases for each machine and base."""
    rows = []
    for name, machine in HARDWARE.items():
        what = [machine["capability"] or "no GPU", machine["arch"]]
        what += [machine["status"]] if machine["status"] != "supported" else []
        rows.append([f"`{name}`<br>{machine['label']}", ", ".join(what), *(offer(name, base) for base in BASES)])
    return table(["id", "capability, CPU", *(f"`{base}`" for base in BASES)], rows)


def why() -> str:
    """Why each base is recommended: one line for all ids with the same reason."""
    lines = []
    reason = lambda item: (item[1]["base"]["recommended"], item[1]["base"]["why"])  # noqa: E731
    for (base, text), group in itertools.groupby(sorted(HARDWARE.items(), key=reason), key=reason):
        ids = sorted((name for name, _ in group), key=list(HARDWARE).index)
        lines.append(f"- `{base}` for {', '.join(f'`{name}`' for name in ids)}: {text}.")
    uncertain = [
        f"`{release}`" for base in BASES for release, entry in RELEASES[base].items() if entry["status"] == "uncertain"
    ]
    return (
        "\n".join([*lines, "", f"Not fully confirmed, and therefore never `current`: {', '.join(uncertain)}."]) + "\n"
    )


def drivers() -> str:
    """The releases with their PyTorch, CUDA, driver floor, and end of support."""
    rows = [
        [
            f"`{base}` {name}",
            release["torch"],
            release["cuda"] or "none",
            release["driver"] or "none",
            release["end_of_life"] or "",
            " ".join(release["kernels"]),
        ]
        for base in BASES
        for name, release in RELEASES[base].items()
    ]
    return table(["release", "PyTorch", "CUDA", "first driver", "end of support", "CPU"], rows)


def ended() -> str:
    """The machines whose support has ended."""
    rows = [
        [f"`{name}`", machine["label"], machine["capability"], f"CUDA {machine['max_cuda']}", machine["driver"]["last"]]
        for name, machine in HARDWARE.items()
        if machine["status"] == "ended"
    ]
    return table(["id", "cards", "capability", "last toolkit", "last driver branch"], rows)


def document() -> str:
    """The contents of docs/hardware.md."""
    spans = [f"`{name}` needs torch {case['torch']}" for name, case in USE_CASES.items()]
    parts = [TOP, CARDS, cards(), NOT_HERE, MATRIX, matrix(), why(), EDGES + "; ".join(spans) + ".\n"]
    parts += [DRIVERS, drivers(), OLD_DRIVERS, ENDED, ended()]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if the document is out of date"
    )
    parser.add_argument("--to", type=Path, default=DOCUMENT, help="the file (docs/hardware.md)")
    options = parser.parse_args()
    if options.check:
        if options.to.is_file() and options.to.read_text(encoding="utf-8") == document():
            return 0
        print(f"{options.to} is out of date: run `python catalogue/document.py`.", file=sys.stderr)
        return 1
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
