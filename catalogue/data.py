"""Write gpukit's part of the catalogue to gpukit/src/gpukit/data/."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support

FOLDER = support.HERE.parent / "gpukit/src/gpukit/data"
HARDWARE = support.load("hardware")["hardware"]
POLICIES = support.load("hardware")["memory"]
BASES = support.load("images")["bases"]
RELEASES = support.load("images")["releases"]
PACKAGES = support.load("packages")
EXTENSIONS = support.load("extensions")


def cards() -> dict[str, Any]:
    """By hardware id: how its cards are recognized, and their facts that do not depend on an image."""
    return {
        id: {
            "label": machine["label"],
            "capability": machine["capability"],
            "arch": machine["arch"],
            "min_cuda": machine["min_cuda"],
            "name": machine.get("name", ""),
            "chips": machine.get("chips", ""),
            "names": names()[id],
            "driver": machine["driver"]["first"],
            "last_driver": machine["driver"]["last"],
            "modules": machine["driver"]["modules"],
            "unified_memory": machine["unified_memory"],
            "precisions": machine["precisions"],
            "tflops": machine["tflops"]["cards"] if "tflops" in machine else {},
            "memory_gb": memory(machine.get("cards", [])),
        }
        # If two ids share a capability and a CPU architecture, the one with names comes first.
        for id, machine in sorted(HARDWARE.items(), key=lambda item: "name" not in item[1])
    }


@functools.cache
def names() -> dict[str, list[str]]:
    """What texts call the cards of each machine: their names, its label, and the parts of both that say enough.

    A part such as `RTX 5000` is left out if a card of another capability is called that too.
    """
    found: dict[str, list[str]] = {}
    for id, machine in HARDWARE.items():
        labels = re.split(r", | \(|\)", machine["label"])
        whole = [
            name for name in [*(card["name"] for card in machine["cards"]), *labels] if name and "series" not in name
        ]
        found[id] = list(dict.fromkeys(whole)) if machine["capability"] else []
    capabilities = {name: HARDWARE[id]["capability"] for id, whole in found.items() for name in whole}

    def is_clear(part: str, capability: str) -> bool:
        pattern = re.compile(rf"(?<!\w){re.escape(part)}(?!\w)", re.IGNORECASE)
        return all(own == capability for name, own in capabilities.items() if pattern.search(name))

    for id, whole in found.items():
        parts = []
        for name in whole:
            words = name.partition(" (")[0].removeprefix("Jetson ").removeprefix("Quadro ").split()
            starts = [" ".join(words[:end]) for end in range(1, len(words) + 1)]
            parts += [start for start in starts if re.search(r"\d\w*$|Orin$|Thor$", start)]
        found[id] = list(
            dict.fromkeys([*whole, *(part for part in parts if is_clear(part, HARDWARE[id]["capability"]))])
        )
    return found


def memory(cards: list[dict[str, Any]]) -> dict[str, list[int]]:
    """The nominal sizes of each card's memory."""
    found: dict[str, list[int]] = {}
    for card in cards:
        name = card["name"] + (" Laptop GPU" if card.get("form") == "laptop" else "")
        found[name] = sorted({*found.get(name, []), *card["memory_gb"]})
    return found


def wheel(id: str) -> dict[str, Any]:
    """The newest confirmed PyTorch wheels for this hardware, and the command that installs them."""
    name = support.current("wheel", [id])
    fields = ("torch", "cuda", "driver", "python", "pythons", "index")
    release = RELEASES["wheel"][name]
    cap = "allocator_cap" in release
    return {
        "release": name,
        **{field: release[field] for field in fields},
        "allocator_cap": cap,
        "install": install(release),
    }


def install(release: dict[str, Any]) -> str:
    return f"pip install torch=={release['torch'].partition('+')[0]} --index-url {release['index']}"


def stack(id: str) -> dict[str, Any]:
    """What `release: current` selects for this hardware alone, on its recommended base."""
    machine = HARDWARE[id]
    base = machine["base"]["recommended"]
    name = support.current(base, [id])
    release = RELEASES[base][name]
    memory = POLICIES[machine["memory"]]
    fields = ("image", "python", "torch", "cuda", "kernels", "end_of_life", "size_gb")
    return {
        "base": base,
        "release": name,
        "why": machine["base"]["why"],
        **{field: release[field] for field in fields},
        "driver": release["driver"] if machine["capability"] else None,
        "protected": BASES[base]["protected"],
        "memory": {
            **{field: memory[field] for field in ("ipc", "shm_size", "fraction", "ulimits")},
            "allocator_cap": "allocator_cap" in release,
        },
        "wheel": wheel(id),
    }


def serves(base: str, name: str) -> dict[str, Any]:
    """The hardware and the use cases that a release supports, in all combinations that copier.yml accepts."""
    release = RELEASES[base][name]
    cases = PACKAGES["use_cases"].items()
    return {
        "confirmed": release["status"] == "confirmed",
        "superseded": support.superseded(base, name),
        "hardware": [id for id, machine in HARDWARE.items() if not support.supports(machine, release)],
        "use_cases": [case for case, needs in cases if not support.outside(release, needs["torch"])],
        **{field: release[field] for field in ("driver", "torch", "cuda", "python")},
        **({"install": install(release)} if base == "wheel" else {}),
        **({"numpy": release["numpy"]} if "numpy" in release else {}),
    }


def stacks() -> dict[str, Any]:
    """The stack of each hardware id, what each release supports, how bases end and what they bring, which packages need
    torch to be built, and the uv that setup installs.
    """
    return {
        "stacks": {id: stack(id) for id in HARDWARE},
        "releases": {base: {name: serves(base, name) for name in RELEASES[base]} for base in BASES},
        "older_cards": support.load("hardware")["older"]["capabilities"],
        "cuda_drivers": support.load("images")["toolkits"]["drivers"],
        "support": {base: BASES[base]["support"]["text"] for base in BASES},
        "brings": {base: BASES[base]["brings"] for base in BASES},
        "torch_to_build": PACKAGES["torch_to_build"]["packages"],
        "uv": {name: PACKAGES["uv"][name] for name in ("version", "sha256", "http_timeout")},
    }


def text(contents: Any, depth: int) -> str:
    """JSON with one line for each entry at a given depth."""
    if depth == 0 or not isinstance(contents, dict):
        return json.dumps(contents, ensure_ascii=False)
    lines = ",\n".join(f"{json.dumps(name)}: {text(entry, depth - 1)}" for name, entry in contents.items())
    return f"{{\n{lines}\n}}"


def kernels() -> dict[str, Any]:
    """What is known of packages with their own code for GPUs, of Triton, and of Transformer Engine's recipes."""
    return support.bare(
        {
            "packages": PACKAGES["kernels"],
            "triton": PACKAGES["triton"]["from"],
            "recipes": PACKAGES["recipes"]["accepted"],
        }
    )


def extensions() -> dict[str, Any]:
    """Whose wheels of packages with CUDA code are trusted, and what their names mean."""
    found = support.bare({name: EXTENSIONS[name] for name in ("names", "indexes", "extensions")})
    for each in found["extensions"].values():
        each.pop("seen", None)
    return found


def written() -> list[str]:
    """The lines of the template's files that no one rewrites, or the parts of them that are the same in every project.

    `validate` finds a line that differs from one of these in one letter. In prose, in the project's own code, and
    where a name stands alone, a word that resembles another is no mistake.
    """
    root = support.HERE.parent
    own = re.compile(r"/(src|tests|[^/]*notebooks[^/]*|[^/]*answers[^/]*)(/|$)|\.(md|json)(\.jinja)?$")
    settings = re.compile(r"devcontainer\.json|/\.vscode/")
    paths = [
        path for folder in ("template", "examples") for path in sorted((root / folder).rglob("*")) if path.is_file()
    ]
    stacks = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(root.glob("examples/*/stack.json"))]
    names = [name for stack in stacks for name in (stack["project"], stack["package"])]
    answers = [support.parse(path.read_text(encoding="utf-8")) for path in sorted(root.glob("examples/*.yml"))]
    names += [each["project_name"] for each in answers]
    own_name = re.compile("|".join(names))
    found: set[str] = set()
    for path in paths:
        name = f"/{path.relative_to(root).as_posix()}"
        if path.parent.name == "examples" or (own.search(name) and not settings.search(name)):
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.strip().startswith(("#", "//", "{#")) and not own_name.search(line):
                found |= {part.strip(" ,\t") for part in re.split(r"\{\{.*?\}\}|\{%.*?%\}| # .*", line)}
    return sorted(part for part in found if len(part) >= 10 and not re.fullmatch(r"\w+=?", part))


def files() -> dict[Path, str]:
    contents = {"cards": text(cards(), 1), "kernels": text(kernels(), 2), "stacks": text(stacks(), 2)}
    contents["extensions"] = text(extensions(), 2)
    contents["written"] = json.dumps({"lines": written()}, ensure_ascii=False, indent=0)
    return {FOLDER / f"{name}.json": part + "\n" for name, part in contents.items()}


if __name__ == "__main__":
    support.write(files())
