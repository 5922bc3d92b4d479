"""What is wrong in catalogue/*.yml, one line per fault: file, entry, what is wrong, and what helps.

uv run --group test python catalogue/check.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run directly
from catalogue import support

# By file, the parts whose keys are ids: answers of projects hold them.
IDS = {"hardware": ("hardware",), "images": ("bases", "releases"), "packages": ("use_cases", "workflows", "tracking")}


def faults() -> list[str]:
    """The faults of the first check that finds any: the later ones take for granted what the earlier ones checked."""
    return (
        list(unreadable())
        or list(dict.fromkeys(against_schemas()))
        or [*lost_ids(), *unserved(), *drivers(), *unlisted()]
    )


def unreadable() -> Iterator[str]:
    for name in support.FILES:
        try:
            support.load(name)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f", line {mark.line + 1}" if mark else ""
            problem = getattr(error, "problem", None) or "it cannot be read"
            yield f"catalogue/{name}.yml{line}: not valid YAML: {problem}."


def against_schemas() -> Iterator[str]:
    for name in support.FILES:
        schema = json.loads((support.HERE / f"schemas/{name}.schema.json").read_text(encoding="utf-8"))
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        for error in validator.iter_errors(support.load(name)):
            yield f"catalogue/{name}.yml: {place(error)}: {explained(error)}"


def place(error: jsonschema.ValidationError) -> str:
    """Where in a file: `hardware.rtx-60.cards.0`."""
    return ".".join(str(part) for part in error.absolute_path) or "the file"


def explained(error: jsonschema.ValidationError) -> str:
    """What is wrong, and what helps."""
    value = error.instance
    rule = error.validator_value
    if error.validator == "required":
        missing = [name for name in rule if name not in value]
        return f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; another entry shows the form."
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = [name for name in value if name not in known]
        return f"unknown: {', '.join(map(str, unknown))}; the fields are {', '.join(known)}."
    shown = json.dumps(value, ensure_ascii=False, default=str)
    shown = shown if len(shown) < 60 else shown[:57] + "..."
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{shown} is a number: quote it, if it is a version."
    if error.validator == "enum":
        return f"{shown} is not one of {', '.join(map(str, rule))}."
    if error.validator == "pattern":
        return f"{shown} does not match {rule}."
    return f"{shown} is not accepted: {error.message[:200]}."


def lost_ids() -> Iterator[str]:
    """Projects store ids: each of the last release must still be there. Before the first release there is none."""
    git = ["git", "-C", str(support.HERE.parent)]
    tag = subprocess.run([*git, "describe", "--tags", "--abbrev=0", "--match=v*"], capture_output=True, text=True)
    for name, sections in IDS.items() if tag.returncode == 0 else ():
        path = f"{tag.stdout.strip()}:catalogue/{name}.yml"
        old = subprocess.run([*git, "show", path], capture_output=True, text=True)
        before = support.parse(old.stdout) if old.returncode == 0 else {}
        for section in sections:
            for id, entry in before.get(section, {}).items():
                now = support.load(name).get(section, {})
                if id not in now:
                    yield f"catalogue/{name}.yml: {section}.{id}: removed; projects store it: keep it, and retire it."
                elif section == "releases":
                    for release in entry:
                        if release not in now[id]:
                            yield f"catalogue/{name}.yml: {section}.{id}.{release}: removed; pinned projects need it."


def unserved() -> Iterator[str]:
    """Machines and use cases that nothing serves."""
    cases = support.load("packages")["use_cases"]
    for id, machine in support.load("hardware")["hardware"].items():
        where = f"catalogue/hardware.yml: hardware.{id}"
        recommended = machine["base"]["recommended"]
        if not support.bases([id]):
            what = f"capability {machine['capability']} on {machine['arch']}"
            yield f"{where}: no confirmed release serves {what}: add one to catalogue/images.yml, or correct `sass`."
        elif not support.current(recommended, [id]):
            others = ", ".join(support.bases([id]))
            yield f"{where}: its recommended base, {recommended}, has no confirmed release for it: recommend {others}."
        else:
            for case in cases:
                if not support.bases([id], case):
                    span = cases[case]["torch"]
                    yield f"{where}: no confirmed release serves it with the use case {case} (torch {span})."


def drivers() -> Iterator[str]:
    """`driver.first` is the first of the cards' drivers."""
    for id, machine in support.load("hardware")["hardware"].items():
        known = [card["driver"] for card in machine["cards"]]
        first = (
            None
            if None in known
            else min(known, key=lambda text: [int(n) for n in re.findall(r"\d+", text)], default=None)
        )
        if machine["driver"]["first"] != first:
            where = f"catalogue/hardware.yml: hardware.{id}.driver.first"
            yield f"{where}: write {json.dumps(first)}, the first of its cards' drivers."


def unlisted() -> Iterator[str]:
    """Extensions whose index the catalogue does not have."""
    known = support.load("extensions")
    for name, extension in known["extensions"].items():
        for index in extension["indexes"]:
            if index not in known["indexes"]:
                yield f"catalogue/extensions.yml: extensions.{name}: {index} is not among the indexes."


def main() -> int:
    found = faults()
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
