"""Write the tables of docs/hardware.md from the catalogue."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support
from catalogue.pages import filled

DOCUMENT = support.HERE.parent / "docs/hardware.md"
HARDWARE = support.load("hardware")["hardware"]
IMAGES = support.load("images")
BASES = IMAGES["bases"]
RELEASES = IMAGES["releases"]
PACKAGES = support.load("packages")
USE_CASES = PACKAGES["use_cases"]


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
    return f"{table(head, rows)}\n{''.join(notes)}"


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
    """PyTorch's versions."""
    rows = [
        [item["newest"], item["pypi"], ", ".join(item["flavors"]), item["torchvision"], item["triton"]]
        for item in IMAGES["wheels"]["versions"].values()
    ]
    return table(["torch", "package index", "PyTorch's index", "torchvision", "Triton"], rows)


def builds() -> str:
    """What PyTorch's builds are compiled for."""
    rows = [
        [build["flavor"], build["torch"], " ".join(build["amd64"]), " ".join(build["arm64"]) or "not known"]
        for build in IMAGES["flavors"]["builds"]
    ]
    return table(["build", "torch", "amd64", "arm64"], rows)


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


def branches() -> str:
    """The driver of each toolkit, and the branches."""
    known = ", ".join(f"{toolkit}: {driver}" for toolkit, driver in IMAGES["toolkits"]["drivers"].items())
    rows = [
        [item["branch"], item["kind"], item["end"] or "?", f"{item['newest'] or ''} {item['released'] or ''}".strip()]
        for item in IMAGES["branches"]
    ]
    sentence = f"The driver of each toolkit, which `nvidia/cuda` images require on GeForce cards: {known}."
    return f"{sentence}\n\n{table(['driver branch', 'kind', 'support ends', 'newest known'], rows)}"


def use_cases() -> str:
    spans = "; ".join(f"`{name}` needs torch {case['torch']}" for name, case in USE_CASES.items())
    return f"The use case can also exclude a release: {spans}."


def avoid() -> str:
    exact = " or ".join(f"{item['package']} {item['version']} (torch {item['torch']})" for item in PACKAGES["exact"])
    magma = HARDWARE["t4-rtx-20"]["environment"]["why"]
    return (
        f"- {exact} in a training project: each requires exactly one torch version. Use a separate image.\n"
        f"- `torch.linalg` on capability 7.5 without `TORCH_LINALG_PREFER_CUSOLVER=1`: {magma}."
    )


def files() -> dict[Path, str]:
    parts = (formats, compiled, extensions, triton, drivers, branches, ended, wheels, builds, contents, host, avoid)
    found = {part.__name__: part() for part in parts}
    found |= {"cards": cards(), "releases": f"{matrix()}\n{why()}", "use-cases": use_cases()}
    return {DOCUMENT: filled(DOCUMENT, found)}


if __name__ == "__main__":
    support.write(files())
