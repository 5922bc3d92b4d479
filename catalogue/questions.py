"""The questions of copier.yml: what fragments/given.jinja checks, and the table of them in docs/questions.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support
from catalogue.pages import filled

ROOT = support.HERE.parent
PAGE = ROOT / "docs/questions.md"
CONFIG = support.parse((ROOT / "copier.yml").read_text(encoding="utf-8"))
QUESTIONS = {name: question for name, question in CONFIG.items() if not name.startswith("_")}
ASKED = {name: question for name, question in QUESTIONS.items() if "help" in question}
GIVEN = ["project", "dependencies"]  # by `gpukit adopt`
HIDDEN = [name for name in QUESTIONS if name not in (*ASKED, *GIVEN)]
# The questions whose choices are in the catalogue, and where; copier.yml lists the choices of the others.
CHOICES = {
    "hardware": ("hardware", "hardware"),
    "also_on": ("hardware", "hardware"),
    "use_case": ("packages", "use_cases"),
    "base": ("images", "bases"),
}


def kind(name: str) -> dict[str, Any]:
    """What kind of answer a question takes, and its choices."""
    question = ASKED[name]
    choices = question.get("choices")
    if name in CHOICES:
        file, section = CHOICES[name]
        ids = list(support.load(file)[section])
    elif isinstance(choices, dict):
        ids = [choice["value"] if isinstance(choice, dict) else choice for choice in choices.values()]
    else:
        ids = []
    if question["type"] == "bool":
        return {"kind": "switch", "choices": []}
    if not choices:
        return {"kind": "text", "choices": []}
    if not ids:
        return {"kind": "checked with the others", "choices": []}
    return {"kind": "several" if question.get("multiselect") else "one", "choices": ids}


def page() -> str:
    """The contents of docs/questions.md."""
    rows = [f"| `{name}` | {ASKED[name]['help']} | {values(name)} | {default(name)} |" for name in ASKED]
    head = ["| name | question | values | default |", "| --- | --- | --- | --- |"]
    return filled(PAGE, {"questions": "\n".join([*head, *rows])})


def values(name: str) -> str:
    found = kind(name)
    if found["kind"] == "switch":
        return "yes, no"
    if found["kind"] == "text":
        return f"text, such as `{ASKED[name]['placeholder']}`"
    if found["kind"] == "checked with the others":
        return "depends on other answers"
    ids = ", ".join(f"`{id}`" for id in found["choices"])
    if CHOICES.get(name) == ("hardware", "hardware"):
        ids = "[ids](hardware.md#which-id-is-my-card)"  # too many for this page
    return f"a list of {ids}" if found["kind"] == "several" else ids


def default(name: str) -> str:
    value = ASKED[name]["default"]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and "{" in value:
        return "depends on other answers"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`" if value != "" else "nothing"


def files() -> dict[Path, str]:
    return {PAGE: page()}


if __name__ == "__main__":
    support.write(files())
