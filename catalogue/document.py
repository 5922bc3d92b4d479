"""Write docs/hardware.md from the catalogue; with --check, fail where it is stale."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the file runs by itself
from catalogue import support

DOCUMENT = support.HERE.parent / "docs/hardware.md"
HARDWARE = support.load("hardware")["hardware"]
BASES = support.load("images")["bases"]
RELEASES = support.load("images")["releases"]
USE_CASES = support.load("packages")["use_cases"]

TOP = """\
# Hardware

<!-- Written by `python catalogue/document.py` from catalogue/*.yml. Change those, not this file. -->

Which id to answer, what each one can be built on, and which driver it needs. Every figure comes from `catalogue/`,
where its source and the date of the last check stand beside it.
"""

CARDS = """\
## Which id is my card?

`nvidia-smi -L` prints the card's name. Memory is nominal: tools report a little less, and one name can stand for
two sizes. A driver older than the first one here does not know the card; "any" means that every driver which the
bases below accept knows it.
"""

NOT_HERE = """\
A variant that is not listed (SUPER, Ti, D, Embedded, a laptop's) goes with its series; `nvidia-smi
--query-gpu=compute_cap --format=csv` settles it. Not supported: Tesla P100 (capability 6.0), Maxwell and older,
Jetson Xavier and older, and what is not NVIDIA's. A project for `cpu` runs there, without the GPU.
"""

MATRIX = """\
## What runs where

What `release: current` gives today, the newest release that is confirmed for the machine; below it the others that
can be pinned with `advanced`. **Bold** is the recommended base.
"""

EDGES = """\
Two machines in one project (`also_on`) get the newest release that serves both. Where none does, the pair is
refused: Pascal (`gtx-10`) and any Blackwell GPU have no build in common, because CUDA 12.8, the first for
Blackwell, came with PyTorch builds that no longer hold Pascal's code. Volta and Blackwell meet in one: `wheel`
2.10.0-cu128.

A release can also be ruled out by the use case: """

DRIVERS = """\
## Driver floors

A driver must know the card (the first table) *and* serve the release. NVIDIA's and PyTorch's builds for one CUDA
major version run on the first driver branch of that version; only `nvidia/cuda` images refuse to start on a GeForce
card below the driver of their own toolkit.
"""

OLD_DRIVERS = """\
A driver that cannot be updated to 580: pin `wheel` 2.14.1-cu126 (Turing to Hopper) or 2.10.0-cu128 (Volta to
Blackwell). CUDA's forward compatibility package helps only on data-centre GPUs and Jetson, never on GeForce.
"""

ENDED = """\
## Where support has ended

CUDA 13 has no Maxwell, Pascal or Volta, and driver branch 580 is the last for them. PyTorch builds for them up to
2.14 (cu126); 2.15 has no such build.
"""

AVOID = """\
## What not to use

| do not | because |
| --- | --- |
| `TORCH_CUDA_ARCH_LIST="8.9;9.0"` for RTX 50 | it is capability 12.0; code for 8.9 or 9.0 never runs there |
| `TORCH_CUDA_ARCH_LIST=12.0f` | an error in PyTorch: it takes `12.0`, `12.0a` and `12.0+PTX` |
| driver 545 for RTX 50 | the first that knows one is 570.86.16; the RTX 5070 Ti needs 570.124.04 |
| driver 590 and newer for Pascal or Volta | 580 is the last branch |
| `--gpus all` on a DGX Station GB300 | CUDA fails beside the display GPU: ask for `device=0` |
| `docker run --gpus` on a Jetson | its containers start with `--runtime nvidia` |
| `nvidia-smi --query-gpu=memory.total` on DGX Spark | `[N/A]`: GPU and system share one memory |
| a cuDNN tag ending in `cudnn9` | that suffix existed for CUDA 12.3.2 only; from 12.4.1 on it is `cudnn` |
| an old point release of nvidia/cuda (12.8.0) | only a line's last is kept, until six months after its driver's end |
| PyTorch or Triton from source for capability 12.x | wheels hold 12.0 since 2.7 (cu128), and its code runs on 12.1 |
| xformers or flash-attn wheels on arm64 | there are none; NVIDIA's image brings flash-attn |
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def cards() -> str:
    """Every card, alphabetically, with its id, memory and first driver; sizes of one name in one row."""
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
    """What a base has for a machine: `current`, what else may be pinned, or why there is nothing."""
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
    """Hardware against bases."""
    rows = []
    for name, machine in HARDWARE.items():
        what = [machine["capability"] or "no GPU", machine["arch"]]
        what += [machine["status"]] if machine["status"] != "supported" else []
        rows.append([f"`{name}`<br>{machine['label']}", ", ".join(what), *(offer(name, base) for base in BASES)])
    return table(["id", "capability, CPU", *(f"`{base}`" for base in BASES)], rows)


def why() -> str:
    """Why the recommended base is that one, said once for all ids with the same reason."""
    lines = []
    reason = lambda item: (item[1]["base"]["recommended"], item[1]["base"]["why"])  # noqa: E731
    for (base, text), group in itertools.groupby(sorted(HARDWARE.items(), key=reason), key=reason):
        ids = sorted((name for name, _ in group), key=list(HARDWARE).index)
        lines.append(f"- `{base}` for {', '.join(f'`{name}`' for name in ids)}: {text}.")
    uncertain = [
        f"`{release}`" for base in BASES for release, entry in RELEASES[base].items() if entry["status"] == "uncertain"
    ]
    return "\n".join([*lines, "", f"Known only in part, so never `current`: {', '.join(uncertain)}."]) + "\n"


def drivers() -> str:
    """The releases with their driver floor, CUDA, torch and end."""
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
    return table(["release", "torch", "CUDA", "driver from", "ends", "CPUs"], rows)


def ended() -> str:
    """The machines whose support has ended."""
    rows = [
        [f"`{name}`", machine["label"], machine["capability"], f"CUDA {machine['max_cuda']}", machine["driver"]["last"]]
        for name, machine in HARDWARE.items()
        if machine["status"] == "ended"
    ]
    return table(["id", "cards", "capability", "last toolkit", "last driver branch"], rows)


def document() -> str:
    """The whole of docs/hardware.md."""
    spans = [f"`{name}` needs torch {case['torch']}" for name, case in USE_CASES.items()]
    parts = [TOP, CARDS, cards(), NOT_HERE, MATRIX, matrix(), why(), EDGES + "; ".join(spans) + ".\n"]
    parts += [DRIVERS, drivers(), OLD_DRIVERS, ENDED, ended(), AVOID]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the document is stale")
    parser.add_argument("--to", type=Path, default=DOCUMENT, help="the file (docs/hardware.md)")
    options = parser.parse_args()
    if options.check:
        if options.to.is_file() and options.to.read_text(encoding="utf-8") == document():
            return 0
        print(f"{options.to} is stale: run `python catalogue/document.py`.", file=sys.stderr)
        return 1
    options.to.parent.mkdir(parents=True, exist_ok=True)
    options.to.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
