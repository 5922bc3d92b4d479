"""Error texts of public threads, as people paste them: named with the right cause, or shown as they are."""

from __future__ import annotations

import io
import re

import pytest

from gpukit import doctor
from gpukit.doctor.about import diagnose
from gpukit.doctor.words import RULES
from tests.gpukit.doctor.conftest import FAULTS


def texts(name):
    blocks = re.split(r"^=== ", (FAULTS / f"{name}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [tuple(re.fullmatch(r"(\S+)\norigin: (.+)\n([\s\S]+)", block.strip()).groups()) for block in blocks]


@pytest.mark.parametrize(("id", "origin", "text"), texts("texts"), ids=lambda value: value[:50])
def test_a_text_from_a_public_thread(id, origin, text):
    known = diagnose(text)
    assert known and known.id == id
    assert known.cause and known.remedy and known.look and "{" not in known.cause


def test_ids_and_patterns():
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.compile(rule.pattern)
        assert rule.cause.endswith(".")
        assert diagnose(rule.cause) is None or diagnose(rule.cause).id == rule.id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "docker: Error response from daemon: the moon is full",
        "ValueError: not enough values to unpack (expected 2, got 1)",
        "KeyError: 'labels'",
        'ERROR: failed to solve: process "/bin/sh -c make" did not complete successfully: exit code: 2',
        "Segmentation fault (core dumped)",
        "I trained for 802 steps and then for 804 more, on /dev/nvidia0",
        "nvidia-container-cli: something entirely new",
    ],
)
def test_what_nobody_knows_is_not_guessed(text):
    assert diagnose(text) is None


def test_telling(tmp_path, capsys, monkeypatch):
    log = tmp_path / "log"
    log.write_text("\x1b[31mmodprobe: FATAL: Module nvidia not found.\x1b[0m\n", encoding="utf-8")
    assert doctor.main(["--about", str(log)]) == 0
    said = capsys.readouterr().out
    assert "seen    modprobe: FATAL: Module nvidia not found." in said
    assert "dkms" in said
    monkeypatch.setattr("sys.stdin", io.StringIO("step 1\nOops: error 17 with hf_abcdefghijklmnopqrstuvwxyz012345\n"))
    assert doctor.main(["--about", "-"]) == 2
    said = capsys.readouterr().out
    assert "  Oops: error 17 with ***" in said
    assert doctor.main(["--about", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(" \n"))
    assert doctor.main(["--about", "-"]) == 2
