"""Write docs/hardware.md from the catalogue."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support

DOCUMENT = support.HERE.parent / "docs/hardware.md"
HARDWARE = support.load("hardware")["hardware"]
IMAGES = support.load("images")
BASES = IMAGES["bases"]
RELEASES = IMAGES["releases"]
PACKAGES = support.load("packages")
USE_CASES = PACKAGES["use_cases"]

TOP = """\
# Hardware

<!-- Written by `python catalogue/document.py` from catalogue/*.yml. Change those, not this file. -->

Which hardware id to select, which releases of each base support it, and which driver it needs. Every figure comes from
`catalogue/`, which also states its source and the date of the last check.
"""

CARDS = """\
## Which id is my card?

`nvidia-smi -L` prints the card's name. "Memory" is the nominal size; tools report slightly less, and some names stand
for two sizes. "First driver" is the oldest driver that supports the card, without Vulkan developer drivers; "any" means
that every driver supported by the bases below also supports the card.
"""

NOT_HERE = """\
A variant that is not listed (Embedded, Max-Q, OEM) usually has the id of its series. If in doubt, compare the
capability: `nvidia-smi --query-gpu=compute_cap --format=csv`. Every computer with a GB10 is `dgx-spark`. About 269 of
the 288 GB of B300 and GB300 are usable. Tesla P100 and Quadro GP100 (capability 6.0) have no id; PyTorch's cu126 builds
support them, so a project for `gtx-10` may work there (not tested). RTX Spark (N1X, capability 12.1, Windows on Arm)
has not been tested. Not supported: Maxwell and older, Jetson Xavier and older, Rubin (capability 10.7), and GPUs of
other vendors. On such machines, use `cpu`.
"""

FORMATS = """\
## Number formats and packages with their own kernels

"Tensor cores" lists the formats that the GPU supports, "Transformer Engine" the low-precision recipes that it accepts
(the default is **bold**), and "bitsandbytes" the capability of the kernels in its wheels that the GPU runs, with the
release that `release: current` selects for `llm`.
"""

BITSANDBYTES = """\
bitsandbytes has no kernels for capability 8.7. Jetson Orin runs those for 8.0, as it runs PyTorch's (from CUDA 13.2
on); no such run has been reported yet. `LLM.int8()` requires capability 7.5.
"""

COMPILED = """\
Other packages have code for these capabilities (`./launch plan` compares them with each target). flash-attn is compiled
during installation. torchao needs its own only for some functions, and has none on arm64.
"""

EXTENSIONS = """\
These have wheels elsewhere than on the package index. `./launch add` pins one that fits all targets, by URL and hash
([Packages with CUDA code](plan.md#packages-with-cuda-code)). "PyTorch" is the newest that the index was seen to have
wheels for.
"""

TRITON = """\
Triton, and with it `torch.compile`, compiles for all older GPUs in this document. For newer ones:
"""

WHEELS = """\
## PyTorch's wheels

The CUDA version of the build on the package index, and the builds on PyTorch's own index. On the package index, the
arm64 wheels before 2.11 are CPU builds.
"""

FLAVORS = """\
The capabilities that they are compiled for. Compiled kernels run on their own capability and on newer ones of the same
major version: 8.0 on 8.6 and 8.9, and from CUDA 13.2 on also on 8.7; 10.0 on 10.3; 12.0 on 12.1.
"""

CONTENTS = """\
## Other NGC releases

The contents of releases of `nvcr.io/nvidia/pytorch` that are not offered here, for readers of older guides.
"""

HOST = """\
## What the host needs
"""

MATRIX = """\
## What runs where

The first line of each cell is what `release: current` selects today: the newest release that is confirmed for the
machine. The other releases can be pinned (question `advanced`). **Bold** marks the recommended base.
"""

EDGES = """\
A project for several machines (`also_on`) gets the newest release that supports all of them. If there is none, the
combination is refused. Pascal (`gtx-10`) and Blackwell cannot be combined: Blackwell requires CUDA 12.8, and PyTorch
builds for CUDA 12.8 have no kernels for Pascal. The newest release for Volta and Blackwell is `wheel` 2.10.0-cu128.

The use case can also exclude a release: """

DRIVERS = """\
## Driver floors

A driver must support the card (first table) *and* the release (this table). In general, a build for one CUDA major
version runs on the first driver branch of that version and newer. Only `nvidia/cuda` images need the driver of their
own toolkit: with an older one, they refuse to start on GeForce cards.

With a driver that is older than the toolkit, compiled kernels run but PTX does not: an extension built with `+PTX`, or
code that numba or CuPy compile at run time, fails with `cudaErrorUnsupportedPtxVersion`. From branch 615 on, only the
open kernel modules exist; they support Turing and newer.
"""

OLD_DRIVERS = """\
The driver of each toolkit, which `nvidia/cuda` images require on GeForce cards: {toolkits}.

{branches} If the driver cannot be updated to 580, pin `wheel` 2.14.1-cu126 (Turing to Hopper) or 2.10.0-cu128 (Volta
to Blackwell). CUDA's forward compatibility package works only on data center GPUs and Jetson, not on GeForce cards ([A
driver that cannot be updated](choosing-a-base.md#a-driver-that-cannot-be-updated)).
"""

ENDED = """\
## Where support has ended

CUDA 13 does not support Maxwell, Pascal, and Volta, and driver branch 580 is the last that does. PyTorch 2.14 (cu126)
is the last with builds for them. Keep cuDNN 9.10.2 from those builds: newer versions have no kernels for these GPUs.
"""

AVOID = """\
## What not to use

| avoid | because |
| --- | --- |
| `TORCH_CUDA_ARCH_LIST="8.9;9.0"` for RTX 50 | its capability is 12.0, and kernels for 8.9 or 9.0 do not run on it |
| `TORCH_CUDA_ARCH_LIST=12.0f` | an error in PyTorch: it takes `12.0`, `12.0a` and `12.0+PTX` |
| driver 545 for RTX 50 | the first with support is 570.86.16; the RTX 5070 Ti needs 570.124.04 |
| driver 590 and newer for Pascal or Volta | 580 is the last branch |
| `--gpus all` on a DGX Station GB300 | CUDA fails if the display GPU is visible too: request `device=0` |
| `docker run --gpus` on a Jetson | its containers start with `--runtime nvidia` |
| `nvidia-smi --query-gpu=memory.total` on DGX Spark | `[N/A]`: GPU and CPU share one memory |
| a cuDNN tag ending in `cudnn9` | that suffix existed for CUDA 12.3.2 only; from 12.4.1 on it is `cudnn` |
| an old point release of nvidia/cuda (12.8.0) | only the last point release of each line is kept |
| PyTorch or Triton from source for capability 12.x | wheels have kernels for 12.0 since 2.7 (cu128); 12.1 runs them |
| xformers or flash-attn from the package index on arm64 | no arm64 wheels there; NVIDIA's image includes flash-attn |
| {exact} in a training project | each requires exactly one torch version: use a separate image |
| cuBLAS of CUDA 13.2.1 for NVFP4 | its release notes list wrong results |
| `torch.linalg` on capability 7.5 without `TORCH_LINALG_PREFER_CUSOLVER=1` | {magma} |
| JetPack 6 on Jetson Orin | arm64 builds run from JetPack 7.2 on; NVIDIA's `-igpu` images for 6 ended with 26.02 |
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines) + "\n"


def cards() -> str:
    """Every card, alphabetically, with its id, memory and first driver."""
    lines = []
    for name, machine in HARDWARE.items():
        shared = ", shared with the system" if machine["unified_memory"] else ""
        first = machine.get("jetpack", {}).get("first")
        for card in machine["cards"]:
            system = f"with JetPack {card.get('jetpack', first)}" if first else "any"
            title = f"{card['name']} ({card['form']})" if card.get("form") else card["name"]
            sizes = " or ".join(str(size) for size in sorted(card["memory_gb"]))
            memory = f"{sizes} GB{shared}{' (unconfirmed)' if card.get('uncertain') else ''}"
            lines.append([title, f"`{name}`", machine["capability"], memory, card["driver"] or system])
    lines.sort(key=lambda line: line[0].lower())
    return table(["card", "id", "capability", "memory", "first driver"], lines)


def recipes(capability: str) -> str:
    """What Transformer Engine accepts on a capability."""
    own = support.number(capability)
    known = PACKAGES["recipes"]
    starts = [start for start in known["default"] if support.number(start) <= own]
    default = known["default"][max(starts, key=support.number)] if starts else ""
    found = []
    for recipe in known["accepted"]:
        if own >= support.number(recipe["from"]) and not (recipe["below"] and own >= support.number(recipe["below"])):
            partial = " (partial)" if recipe["partial"] and own >= support.number(recipe["partial"]) else ""
            bold = "**" if default in recipe["classes"].split(", ") else ""
            found.append(f"{bold}{recipe['recipe']}{bold}{partial}")
    return ", ".join(found) or "none"


def quantized(name: str) -> str:
    """The code in bitsandbytes that runs on a machine with what `current` gives it for `llm`."""
    machine = HARDWARE[name]
    libraries = PACKAGES["kernels"]["bitsandbytes"][HARDWARE[name]["arch"]]
    base = machine["base"]["recommended"]
    chosen = support.current(base, [name], "llm")
    if not chosen:
        return "none"
    release = RELEASES[base][chosen]
    runs = [code for code in support.loaded(release["cuda"], libraries) if code in machine["sass"]]
    return runs[-1] if runs else "none"


def formats() -> str:
    """Number formats by id, with the packages that have kernels of their own."""
    rows = [
        [
            f"`{name}`",
            machine["capability"],
            ", ".join(machine["precisions"]) or "none",
            recipes(machine["capability"]),
            quantized(name),
        ]
        for name, machine in HARDWARE.items()
        if machine["capability"]
    ]
    notes = [
        f"`{recipe['recipe']}` is partial from {recipe['partial']} on: {recipe['why']}. "
        for recipe in PACKAGES["recipes"]["accepted"]
        if recipe["partial"]
    ]
    notes += [f"`{recipe['recipe']}` needs CUDA {recipe['cuda']}. " for recipe in PACKAGES["recipes"]["accepted"]]
    head = ["id", "capability", "tensor cores", "Transformer Engine", "bitsandbytes"]
    parts = [table(head, rows), "".join(notes).strip() + "\n", BITSANDBYTES, COMPILED, compiled()]
    parts += [EXTENSIONS, extensions(), TRITON, triton()]
    return "\n".join(parts)


def extensions() -> str:
    """Whose wheels `add` pins."""
    known = support.load("extensions")
    rows = []
    for package, facts in known["extensions"].items():
        capabilities = facts.get("capabilities", {})
        gpus = (
            f"{capabilities['from']} and newer" if "from" in capabilities else ", ".join(capabilities.get("only", []))
        )
        publishers = " or ".join(known["indexes"][index]["publisher"] for index in facts["indexes"])
        if publishers:
            rows.append([package, publishers, gpus or "all", facts.get("seen", "not asked yet")])
    return table(["package", "built by", "capabilities", "PyTorch"], rows)


def compiled() -> str:
    """The code in packages, besides bitsandbytes, which has a column above."""
    rows = []
    for package, facts in PACKAGES["kernels"].items():
        for arch in ("amd64", "arm64") if package != "bitsandbytes" else ():
            for cuda, codes in facts.get(arch, {}).items():
                ptx = [f"PTX {code}" for code in facts.get("ptx", ())]
                rows.append([f"{package} {facts['version']}", arch, cuda, ", ".join(codes + ptx)])
    return table(["package", "CPU", "CUDA", "compiled for"], rows)


def triton() -> str:
    rows = [[version, ", ".join(codes) or "none"] for version, codes in PACKAGES["triton"]["from"].items()]
    return table(["Triton from", "capabilities of 10.0 and newer"], rows)


def wheels() -> str:
    """PyTorch's versions, and what its builds are compiled for."""
    rows = [
        [item["newest"], item["pypi"], ", ".join(item["flavors"]), item["torchvision"], item["triton"]]
        for item in IMAGES["wheels"]["versions"].values()
    ]
    builds = [
        [build["flavor"], build["torch"], " ".join(build["amd64"]), " ".join(build["arm64"]) or "not known"]
        for build in IMAGES["flavors"]["builds"]
    ]
    first = table(["torch", "package index", "PyTorch's index", "torchvision", "Triton"], rows)
    return "\n".join([first, FLAVORS, table(["build", "torch", "amd64", "arm64"], builds)])


def contents() -> str:
    """NVIDIA's images that are not offered."""
    images = IMAGES["contents"]["images"].items()
    return table(["release", "torch", "CUDA", "Python"], [[name, *item.values()] for name, item in images])


def host() -> str:
    """The programs of the host, and what single machines ask of them."""
    rows = [[item["program"], item["least"] or "any", item["newest"] or "", item["why"]] for item in PACKAGES["host"]]
    asked = [
        f"On `{name}` NVIDIA supports its Container Toolkit from {machine['toolkit']['first']} on."
        for name, machine in HARDWARE.items()
        if "toolkit" in machine
    ]
    mig = ", ".join(
        f"`{name}` {machine['mig'].get('driver') or 'every driver that knows it'}"
        + (f" ({machine['mig']['cards']})" if "cards" in machine["mig"] else "")
        for name, machine in HARDWARE.items()
        if "mig" in machine
    )
    return (
        table(["program", "from", "newest known", "for"], rows) + f"\n{' '.join(asked)} MIG, by first driver: {mig}.\n"
    )


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
            (release["end_of_life"] or "no date") + (", superseded" if support.superseded(base, name) else ""),
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


def old_drivers() -> str:
    """The driver of each toolkit, the branches, and what an old driver still runs."""
    known = [f"{toolkit}: {driver}" for toolkit, driver in IMAGES["toolkits"]["drivers"].items()]
    rows = [
        [item["branch"], item["kind"], item["end"] or "?", f"{item['newest'] or ''} {item['released'] or ''}".strip()]
        for item in IMAGES["branches"]
    ]
    branches = table(["driver branch", "kind", "support ends", "newest known"], rows)
    return OLD_DRIVERS.format(toolkits=", ".join(known), branches=branches)


def avoid() -> str:
    exact = " or ".join(f"{item['package']} {item['version']} (torch {item['torch']})" for item in PACKAGES["exact"])
    magma = HARDWARE["t4-rtx-20"]["environment"]["why"]
    return AVOID.format(exact=exact, magma=magma)


def document() -> str:
    """The contents of docs/hardware.md."""
    spans = [f"`{name}` needs torch {case['torch']}" for name, case in USE_CASES.items()]
    parts = [TOP, CARDS, cards(), NOT_HERE, MATRIX, matrix(), why(), EDGES + "; ".join(spans) + ".\n"]
    parts += [FORMATS, formats(), DRIVERS, drivers(), old_drivers(), ENDED, ended(), WHEELS, wheels(), CONTENTS]
    parts += [contents(), HOST, host(), avoid()]
    return "\n".join(parts)


def files() -> dict[Path, str]:
    return {DOCUMENT: document()}


if __name__ == "__main__":
    support.write(files())
