"""Write the generated parts of pages: docs/troubleshooting.md from the checks and knowledge/, and the table of verified
runs in docs/verified.md and README.md from records/.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "gpukit/src")]

from catalogue.pages import filled  # noqa: E402

TROUBLESHOOTING = ROOT / "docs/troubleshooting.md"
VERIFIED = ROOT / "docs/verified.md"
README = ROOT / "README.md"
RECORDS = ROOT / "records"
LONGEST = 160  # characters of a message that are shown


def troubleshooting() -> str:
    from gpukit.doctor import main as doctor
    from gpukit.plan import main as plan
    from gpukit.verify import main as verify

    checks = every_check(
        [
            ("doctor", "The host: `./launch doctor`", doctor.CHECKS),
            ("plan", "A machine that is not here: `./launch plan`", plan.EXPLAINED),
            ("verify", "The container: `./launch verify`", verify.CHECKS),
        ]
    )
    return filled(TROUBLESHOOTING, {"checks": checks, "messages": error_texts()})


def every_check(tools: list[tuple[str, str, Any]]) -> str:
    """The causes of each tool's checks, with their remedies."""
    lines = []
    for tool, title, checks in tools:
        lines += ["", f"## {title}"]
        option = "" if tool == "plan" else "--only "  # plan always runs all of its checks
        common = _shared_causes(checks)
        if common:
            lines += [
                "",
                f'<a id="{tool}-common"></a>',
                "",
                "### Causes that several checks can find",
                "",
                *_causes(common),
            ]
        for each in checks:
            lines += ["", f'<a id="{tool}-{each.id}"></a>', "", f"### {each.title} (`{option}{each.id}`)"]
            if each.about:
                lines += ["", each.about]
            own = [id for id in each.causes if id not in common]
            if own:
                lines += ["", *_causes(own)]
            if len(own) < len(each.causes):
                lines += ["", f"Also [the causes that several checks can find](#{tool}-common)."]
    return "\n".join([*lines, ""])


def _shared_causes(checks: list[Any]) -> list[str]:
    """The causes that more than three checks share, in their order."""
    named = Counter(id for each in checks for id in dict.fromkeys(each.causes))
    return [id for id, times in named.items() if times > 3]


def _causes(ids: Iterable[str]) -> list[str]:
    """A table of causes."""
    from gpukit.findings.causes import PROJECT, cause, shown
    from gpukit.project.data import data

    missing = [id for id in ids if id not in data("knowledge")["causes"]]
    if missing:
        sys.exit(f"knowledge/ has no cause {', '.join(missing)}, which a check can find: add it there.")
    rows = []
    for own in map(cause, dict.fromkeys(ids)):
        why, remedy = (_cell(shown(text, PROJECT)) for text in (own.why, own.remedy))
        rows.append(f"| {own.status} | {why} | {remedy} |")
    return ["| | cause | remedy |", "|---|---|---|", *rows]


def error_texts() -> str:
    """Every message that `explain` recognizes, by topic, each with an anchor."""
    from gpukit.errors.signs import signs
    from gpukit.findings.causes import PROJECT, shown
    from gpukit.project.data import data

    lines = []
    for topic, about in data("knowledge")["topics"].items():
        lines += ["", f"### {about.rstrip('.')}", ""]
        for sign in signs():
            if sign.topic == topic:
                causes = " Or: ".join(shown(cause.why, PROJECT) for cause in sign.causes)
                lines.append(f'- <a id="{sign.id}"></a>{_code(_short(sign.example))} {_cell(causes)}')
    return "\n".join([*lines, ""])


def _short(words: str) -> str:
    """The most specific part of a long text: what precedes a colon usually names the program."""
    words = " ".join(words.split())
    while len(words) > LONGEST and len(words.partition(": ")[2]) > 20:
        words = words.partition(": ")[2]
    return words if len(words) <= LONGEST else words[:LONGEST].rsplit(" ", 1)[0] + " ..."


def _cell(text: str) -> str:
    """Escape text for a table; in code, only the character that separates cells."""
    escapes = {"<": "&lt;", ">": "&gt;", "*": "\\*"}
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    plain = (re.sub(r"[<>*]", lambda found: escapes[found[0]], part) for part in parts[::2])
    return "".join(part for pair in zip_longest(plain, parts[1::2], fillvalue="") for part in pair)


def _code(text: str) -> str:
    """A text as code in a table: on one line, with bars escaped."""
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def records(folder: Path = RECORDS) -> list[dict]:
    """The records, newest first. Tests check them against their schema."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda record: (record["date"], record["cards"][0]["name"]), reverse=True)


def verified_table(found: list[dict]) -> str:
    if not found:
        return "No run on real hardware has been recorded yet."
    lines = ["| card | driver | base | PyTorch | result | did not pass | date |", "|---|---|---|---|---|---|---|"]
    for record in found:
        names = [card["name"] for card in record["cards"]]
        cards = f"{len(names)} x {names[0]}" if len(names) > 1 and len(set(names)) == 1 else ", ".join(names)
        missed = ", ".join(f"{each['id']} ({each['status']})" for each in record["not_passed"]) or "-"
        cells = (
            *(cards, record["driver"] or "-", f"{record['base']} {record['release']}", record["torch"]),
            *(record["result"], missed, record["date"]),
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    table = {"verified": verified_table(records())}
    return {
        TROUBLESHOOTING: troubleshooting(),
        VERIFIED: filled(VERIFIED, table),
        README: filled(README, table),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
