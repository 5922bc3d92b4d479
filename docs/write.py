"""Write the pages that come from data: the troubleshooting page from the checks, docs/verified.md from records/.

python docs/write.py            write them
python docs/write.py --check    exit 1 and say which would change
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "template"))

TROUBLESHOOTING = ROOT / "template/gpukit/TROUBLESHOOTING.md"
VERIFIED = ROOT / "docs/verified.md"
RECORDS = ROOT / "records"


def troubleshooting() -> str:
    from gpukit import doctor, verify
    from gpukit.checks import page

    return page(
        [
            ("doctor", "The host: `./launch doctor`", doctor.CHECKS),
            ("verify", "The container: `./launch verify`", verify.CHECKS),
        ]
    )


def records(folder: Path = RECORDS) -> list[dict]:
    """Newest first. Whether each has the right form is for the tests to say."""
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


def verified(found: list[dict]) -> str:
    return "\n".join(
        [
            "# Verified on real hardware",
            "",
            "Each row is a run of `./launch verify --record` in a generated project on the card that it names, sent in",
            "as a file in `records/`. Nothing else goes in: no emulation, no stand-in image, no estimate.",
            "",
            verified_table(found),
            "",
            "To add yours: `./launch verify --record`, then a pull request that puts the file it names into `records/`",
            "and renews this page with `python docs/write.py`. The file holds the card, the driver, the versions and",
            "the checks that did not pass; no name of a person or a machine.",
            "",
        ]
    )


def pages() -> dict[Path, str]:
    return {TROUBLESHOOTING: troubleshooting(), VERIFIED: verified(records())}


def main(argv: list[str]) -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in argv:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what `python docs/write.py` writes", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages()[path], encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
