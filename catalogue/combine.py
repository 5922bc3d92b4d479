"""Write catalogue.json: what copier.yml and the files of template/ read.

It contains the catalogue, and what follows from it alone, whatever the answers are: copier.yml need not compute that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import data, questions, support

FILE = support.HERE / "catalogue.json"
DOCUMENTED = {
    "wheels",
    "flavors",
    "contents",
    "toolkits",
    "branches",
    "ends",
    "leads",
    "kernels",
    "triton",
    "recipes",
    "host",
    "names",
    "indexes",
    "extensions",
}  # for documents, or for gpukit alone
OF_CARDS = {"cards", "chips", "name", "tflops"}  # nothing is rendered from these fields of a machine
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}  # as Docker and as Python call them


def contents() -> dict[str, Any]:
    """The catalogue without sources and without what only documents show, and what follows from it."""
    whole = {name: support.bare(value) for file in support.FILES for name, value in support.load(file).items()}
    found = {name: value for name, value in whole.items() if name not in support.PROVENANCE | DOCUMENTED}
    machines = found["hardware"]
    releases = found["releases"]
    cases = found["use_cases"]
    found["hardware"] = {id: of_machine(id, machine) for id, machine in machines.items()}
    found["releases"] = {
        base: {id: {**item, **of_release(base, item)} for id, item in items.items()} for base, items in releases.items()
    }
    found["use_cases"] = {id: {**case, "packages": packages(case["packages"])} for id, case in cases.items()}
    found["without_gpu"] = without_gpu()
    found["questions"] = {name: questions.kind(name) for name in questions.ASKED}
    found["hidden"] = questions.HIDDEN
    found["given"] = questions.GIVEN
    found["products"] = {  # other names of a machine, as users may give them
        id: [machine["label"], *(card["name"] for card in machine["cards"])]
        for id, machine in machines.items()
        if machine["capability"]
    }
    return found


def without_gpu() -> str:
    """The id of the newest confirmed wheel release without CUDA, for machines without a GPU."""
    releases = support.load("images")["releases"]["wheel"].items()
    return next(id for id, release in releases if release["status"] == "confirmed" and not release["cuda"])


def of_machine(id: str, machine: dict[str, Any]) -> dict[str, Any]:
    title = machine["label"] + (" (experimental)" if machine["status"] == "experimental" else "")
    cards = [
        " ".join(filter(None, [card["name"], card.get("form"), " or ".join(map(str, card["memory_gb"])), "GB"]))
        for card in machine["cards"]
    ]
    more = [", ".join(cards[:5])] + (["…"] if len(cards) > 5 else [])
    recommended = machine["base"]["recommended"]
    labels = support.load("images")["bases"]
    bases = {recommended: f"{labels[recommended]['label']} (recommended: {machine['base']['why']})"}
    bases.update({base: entry["label"] for base, entry in labels.items() if base != recommended})
    return {
        "id": id,
        **{name: value for name, value in machine.items() if name not in OF_CARDS},
        "title": title,
        "choice": f"{title}: {', '.join(more)}" if cards else title,
        "bases": bases,  # the labels of the question `base`, the recommended one first
        "apart": [other for other in data.HARDWARE if not support.bases([id, other])],
        "expected": {  # what stack.json says of it
            **fields(machine, ("label", "capability", "arch")),
            "driver": machine["driver"]["first"],
            "last_driver": machine["driver"]["last"],
            "modules": machine["driver"]["modules"],
            **fields(machine, ("unified_memory", "precisions")),
        },
    }


def of_release(base: str, release: dict[str, Any]) -> dict[str, Any]:
    wheels = support.load("images")["releases"]["wheel"]
    details = [
        f"torch {release['torch']}",
        f"CUDA {release['cuda']}" if release["cuda"] else "",
        f"until {release['end_of_life']}" if release["end_of_life"] else "",
    ]
    spans = {case["torch"] for case in data.PACKAGES["use_cases"].values() if case["torch"]}
    reasons = {id: support.supports(machine, release) for id, machine in data.HARDWARE.items()}
    reasons |= {span: support.outside(release, span) for span in sorted(spans)}
    served = {id: machine for id, machine in data.HARDWARE.items() if not reasons[id] and machine["capability"]}
    torch = release["torch"].partition("+")[0]
    toolkit = release["image"].partition(":")[2] if base == "cuda" else release["cuda"]
    index = release["index"] or wheels[without_gpu()]["index"]
    found = {
        "details": ", ".join(filter(None, details)),
        "refused": {key: reason for key, reason in reasons.items() if reason},  # by hardware id, and by range of torch
        "pin": f"torch=={torch}" if release["requirement"] else "torch",
        "torch_backend": index.rpartition("/")[2],
        # The wheel of the same torch, for work without a container; a base with its own build of torch has none.
        "wheel": next((id for id, wheel in wheels.items() if wheel["torch"] == release["torch"]), None),
        # By hardware id, only where it is not the capability of the machine, or the driver of the release.
        "compiled": {id: machine["sass"][0] for id, machine in served.items() if unknown(toolkit, machine)},
        "drivers": {id: machine["driver"]["first"] for id, machine in served.items() if newer(machine, release)},
        # What stack.json says of it.
        "expected": {
            "image": release["image"],
            "digest": release.get("digest"),
            **fields(release, ("python", "torch", "cuda", "kernels", "driver", "end_of_life")),
        },
        "torch_install": {
            "requirement": release["requirement"],
            "index": index.rpartition("/")[0] + "/",
            "package_index": release.get("package_index", False),
        },
    }
    if base == "wheel":
        found["native"] = {
            **fields(release, ("torch", "requirement", "index")),
            "cpu_index": wheels[without_gpu()]["index"],
            "package_index": release.get("package_index", False),
            **fields(release, ("cuda", "python", "pythons", "driver")),
            "allocator_cap": "allocator_cap" in release,
            "protected": data.BASES["wheel"]["protected"],
            "size_gb": release["size_gb"],
        }
    return found


def fields(entry: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: entry[name] for name in names}


def unknown(toolkit: str, machine: dict[str, Any]) -> bool:
    """Whether a CUDA toolkit cannot compile for a machine's own capability, only for one whose code runs there."""
    return "compiles" in machine and support.number(toolkit) < support.number(machine["compiles"])


def newer(machine: dict[str, Any], release: dict[str, Any]) -> bool:
    """Whether a machine needs a newer driver than a release."""
    first = machine["driver"]["first"]
    return bool(first) and support.number(first) > support.number(release["driver"])


def packages(entries: list[dict[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """What a use case installs, by base and by the CPU architectures of a project's machines ("amd64 arm64")."""
    both = " ".join(ARCHITECTURES)
    return {
        base: {which: requirements(entries, base, which.split()) for which in (*ARCHITECTURES, both)}
        for base in data.BASES
    }


def requirements(entries: list[dict[str, Any]], base: str, architectures: list[str]) -> list[str]:
    """Without what the base brings, and what has no build for any of the architectures."""
    found = []
    for entry in entries:
        served = [one for one in architectures if one in entry.get("on", architectures)]
        if base not in entry.get("bases", [base]) or not served:
            continue
        everywhere = served == architectures
        marker = "" if everywhere else f"; platform_machine == '{ARCHITECTURES[served[0]]}'"
        found.append(entry["name"] + marker)
    return found


def text() -> str:
    """One line for each entry: a change is easy to see, and Jinja reads it faster than with more lines."""
    return data.text(contents(), 3) + "\n"


def files() -> dict[Path, str]:
    return {FILE: text()}


if __name__ == "__main__":
    support.write(files())
