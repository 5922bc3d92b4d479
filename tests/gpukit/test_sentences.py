"""All sentences of doctor, plan, verify, and setup, by id: no other test depends on their wording.

After a change of a sentence, run `python tests/gpukit/test_sentences.py`, and read what git shows.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).with_name("sentences.txt")
SOURCE = Path(__file__).resolve().parents[2] / "gpukit/src"


def causes() -> dict[str, list]:
    """All causes, by where they stand."""
    from gpukit.findings.finding import Cause

    found: dict[str, list] = {}
    for part in ("doctor", "plan", "verify"):
        package = importlib.import_module(f"gpukit.{part}")
        modules = [f"{package.__name__}.{each.name}" for each in pkgutil.iter_modules(package.__path__)]
        values = [value for name in modules for value in vars(importlib.import_module(name)).values()]
        found[part] = [value for value in values if isinstance(value, Cause)]
    return found


def written() -> str:
    from gpukit.setup.steps import STEPS
    from gpukit.verify.native import WORDING

    lines = []
    for part, these in causes().items():
        for cause in sorted(dict.fromkeys(these), key=lambda cause: (cause.id, cause.why, cause.remedy)):
            texts = ((name, getattr(cause, name)) for name in ("why", "remedy", "standalone", "tell"))
            lines += [f"{part} {cause.id}", *(f"  {name}: {text}" for name, text in texts if text), ""]
    for id, sentences in sorted(WORDING.items()):
        lines += [f"native {id}", *(f"  {name}: {text}" for name, text in sorted(sentences.items())), ""]
    for step in STEPS:
        lines += [f"setup {step.id}", f"  title: {step.title}", f"  why: {step.why}", ""]
    return "\n".join(lines)


@pytest.mark.golden
def test_the_sentences_are_as_they_were_read() -> None:
    assert written() == GOLDEN.read_text(encoding="utf-8")


def test_ids_are_words_with_dashes() -> None:
    every = [cause.id for these in causes().values() for cause in these]
    assert [id for id in every if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", id)] == []


if __name__ == "__main__":
    sys.path.insert(0, str(SOURCE))
    GOLDEN.write_text(written(), encoding="utf-8")
