"""`explain`: what a check looks at, or what an error text means."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from gpukit.doctor import main as doctor
from gpukit.errors.diagnose import report
from gpukit.errors.rule import Words
from gpukit.errors.rules import RULES
from gpukit.findings import checks
from gpukit.verify import main as verify


def explain(what: str) -> int:
    """Print the entry of a check or an error text by its id; otherwise the cause of the text in a file, or `-`.

    Returns 0 if the cause is known, and 2 if it is not, or is one of several.
    """
    entries = [checks.explain(each) for each in (*doctor.CHECKS, *verify.CHECKS) if each.id == what]
    entries += [entry(rule) for rule in RULES if rule.id == what]
    if not entries and (what == "-" or Path(what).is_file()):
        return report(what)
    if not entries:
        ids = dict.fromkeys([*(each.id for each in (*doctor.CHECKS, *verify.CHECKS)), *(rule.id for rule in RULES)])
        similar = dict.fromkeys([*(id for id in ids if what in id), *difflib.get_close_matches(what, ids, 5)])
        advice = f"similar ids: {', '.join(similar)}" if similar else "`doctor --help` and `verify --help` list ids"
        print(f"explain: {what} is neither a file nor a known id; {advice}.", file=sys.stderr)
        return 2
    print("\n\n".join(entries))
    return 0


def entry(rule: Words) -> str:
    """What the page says about one error text."""
    rows = [("text", rule.says), ("cause", rule.cause), *(("maybe", f"{what}: {how}") for what, how in rule.maybe)]
    rows += [("remedy", rule.remedy), ("more", rule.look)]
    return "\n".join(f"{name:<8}{' '.join(text.replace('{0}', '...').split())}" for name, text in rows)
