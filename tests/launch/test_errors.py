"""Engines' own words, old and new, and what they must become: one sentence, of the right kind, with a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpukit.errors.refusals import BUILDING, RULES, classify, explain

BLOCKS = (Path(__file__).parent / "engine-words.txt").read_text(encoding="utf-8").split("\n\n")[1:]
CASES = [block.strip().splitlines() for block in BLOCKS]


@pytest.mark.parametrize(("kind", "part", "text"), CASES, ids=lambda value: value[-40:])
def test_what_an_engine_says(kind: str, part: str, text: str) -> None:
    known = classify(text + "\n\nRun 'docker run --help' for more information\n")
    assert known, text
    assert known[0] == kind
    assert re.search(part, known[1])
    assert "{0}" not in known[1] and "\n" not in known[1] and known[1].endswith((".", "..."))


def test_every_rule_has_an_example() -> None:
    sentences = [classify(text)[1] for _, _, text in CASES]
    for _, pattern, sentence in RULES:
        start = sentence.partition("{0}")[0]
        assert any(start in said for said in sentences), pattern


def test_the_way_without_a_gpu_is_named_where_there_is_one() -> None:
    text = 'could not select device driver "" with capabilities: [[gpu]]'
    assert "./launch --cpu" in str(explain(text, "x", cpu=True))
    assert "--cpu" not in str(explain(text, "x"))
    assert "--cpu" not in str(explain("no space left on device", "x", cpu=True))


def test_what_nobody_knows_is_handed_on() -> None:
    text = "docker: Error response from daemon: the moon is full"
    assert str(explain(f"{text}\nSee 'docker run --help'.\n", "It cannot start")) == f"It cannot start: {text}"
    assert str(explain("", "It cannot start")) == "It cannot start."


def test_a_build_is_not_judged_by_what_its_steps_print() -> None:
    text = 'libnvidia-ml.so is missing, never mind\nERROR: failed to solve: process "x" did not complete successfully'
    assert classify(text)[0] == "gpu"
    assert classify(text, BUILDING)[0] == "build"
