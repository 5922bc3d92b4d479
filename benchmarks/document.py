"""Write the results in docs/benchmarks.md: the newest one of each benchmark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from catalogue.pages import filled  # noqa: E402

DOCUMENT = HERE.parent / "docs/benchmarks.md"
ORDER = [
    "generate",
    "update",
    "launch",
    "over_ssh",
    "services",
    "jobs",
    "verify",
    "explain",
    "prove",
    "plan",
    "memory",
    "rebuild",
]
ORDER += ["launchers", "resume_project", "resume_others", "resume_adapters", "resume_streams", "checkpoint"]
ORDER += ["step", "rehearse", "podman", "experiments", "adopt"]


def newest() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((HERE / "results").glob("*.json")):  # names start with the date
        result = json.loads(file.read_text(encoding="utf-8"))
        found[result["benchmark"]] = result
    return [found[name] for name in ORDER if name in found]


def table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    cells = [[f"{cell:g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *cells]]


def goal(one: dict[str, Any]) -> str:
    """The goal of a result, and whether it was missed."""
    if one["value"] is None:
        return "not measured"
    bound = next((key for key in ("at_most", "at_least") if key in one), None)
    if bound is None:
        return ""
    held = one["value"] <= one[bound] if bound == "at_most" else one["value"] >= one[bound]
    return f"{bound.replace('_', ' ')} {one[bound]:g}{'' if held else ', **missed**'}"


def result_row(one: dict[str, Any]) -> list[str]:
    value = "" if one["value"] is None else f"{one['value']:g} {one.get('unit', '')}".strip()
    return [one["what"], value, goal(one)]


def section(result: dict[str, Any]) -> str:
    lines = [f"## {result['title']}", "", "```sh", result["command"], "```", ""]
    if result.get("figures"):
        rows = [[one["what"], f"{one['median']:.2f} s"] for one in result["figures"]]
        lines += [*table(["measured", f"median of {result['repeats']} rounds"], rows), ""]
    if result.get("table"):
        lines += [*table(result["table"]["columns"], result["table"]["rows"]), ""]
    lines += table(["result", "figure", "goal"], [result_row(one) for one in result["results"]])
    machine = result["machine"]
    versions = result["versions"]
    lines += ["", *(f"- {note}" for note in result["notes"])]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines.append(f"- Measured on {result['date']}: {machine['class']}; {named}.")
    return "\n".join(lines) + "\n"


def document() -> str:
    return filled(DOCUMENT, {"results": "\n".join(map(section, newest()))})


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
