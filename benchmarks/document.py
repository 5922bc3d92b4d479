"""Write docs/benchmarks.md from the newest result of each benchmark; with --check, fail where it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs/benchmarks.md"
ORDER = ["generate", "launch", "rebuild"]
TOP = """\
# Benchmarks

<!-- Written by `python benchmarks/document.py` from benchmarks/results/. Change those, not this file. -->

What this template costs, beside what one would do without it. Each row was measured in one run, the two things in
turn, as medians; only what they are to each other means anything on another machine. Measure on yours with the command
above each table; its result goes to `benchmarks/results/`, and this page is written anew. Images called `standin/...`
are laid out as the real ones, with a PyTorch for CPUs, and need no download of gigabytes.
"""


def newest() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((HERE / "results").glob("*.json")):  # names begin with the date
        result = json.loads(file.read_text(encoding="utf-8"))
        found[result["benchmark"]] = result
    return [found[name] for name in ORDER if name in found]


def section(result: dict[str, Any]) -> str:
    lines = [f"## {result['title']}", "", "```sh", result["command"], "```", ""]
    lines += [f"| measured | median of {result['repeats']} |", "| --- | --- |"]
    lines += [f"| {one['what']} | {one['median']:.2f} s |" for one in result["figures"]]
    lines += ["", "| result | | goal |", "| --- | --- | --- |"]
    for one in result["results"]:
        held = "" if one["value"] <= one["at_most"] else ", **missed**"
        lines.append(f"| {one['what']} | {one['value']:g} {one['unit']} | at most {one['at_most']:g}{held} |")
    machine, versions = result["machine"], result["versions"]
    lines += ["", *(f"- {note}" for note in result["notes"])]
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines.append(
        f"- {result['date']}, commit {result['commit']}: {machine['class']}; load {machine['load']:g} at the start, as "
        f"{machine['user'].replace('ordinary user', 'an ordinary user')}; {named}."
    )
    return "\n".join(lines) + "\n"


def document() -> str:
    return "\n".join([TOP, *map(section, newest())])


def main() -> int:
    if "--check" in sys.argv[1:]:
        if DOCUMENT.is_file() and DOCUMENT.read_text(encoding="utf-8") == document():
            return 0
        print(f"{DOCUMENT} is stale: run `python benchmarks/document.py`.", file=sys.stderr)
        return 1
    DOCUMENT.write_text(document(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
