"""`gpukit speed`, with a stand-in for what is measured, and with a real script on a CPU."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpukit.cli import main as cli
from gpukit.script import speed as module
from gpukit.script.probe import Measured
from gpukit.script.speed import difference, known, report, speed
from tests.train.conftest import ROOT

PLAIN = Measured(20, 0.1, (2.0, 1.0, 0.5), 8, 100, "cpu")
TRIED = ["--dtype bf16", "--dtype fp16", "--compile"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands; one of each option makes a step faster, and fp16 changes the losses, if `trial` is not replaced."""
    commands = list[list[str]]()

    def measure(command: list[str], **_: object) -> Measured:
        commands.append(command)
        return trial(command)

    monkeypatch.setattr(module, "measure", measure)
    return commands


def trial(command: list[str]) -> Measured:
    found = PLAIN
    if "bf16" in command:
        found = replace(found, seconds=0.05, losses=(2.01, 1.0, 0.5))
    if "fp16" in command:
        found = replace(found, seconds=0.01, losses=(2.0, 1.0, 0.6))
    if "--compile" in command:
        found = replace(found, seconds=0.96 * found.seconds)
    if "--batch-size" in command:
        size = int(command[command.index("--batch-size") + 1])
        return Measured(why="out of memory", memory=True) if size > 16 else replace(found, batch=size)
    return found


def test_options_that_are_faster_with_the_same_losses_are_kept(asked: list[list[str]]) -> None:
    rows, best, ended = speed(["train.py", "--dtype=fp32"], TRIED, say=lambda text: None)
    assert asked[:4] == [
        ["train.py", "--dtype=fp32"],
        ["train.py", "--dtype", "bf16"],
        ["train.py", "--dtype", "fp16"],
        ["train.py", "--dtype", "bf16", "--compile"],
    ]
    assert str(best) == "--dtype bf16" and not ended, "a gain of 4 % is not worth an option"
    assert [row.problem for row in rows] == ["", "", "other losses", "", "", "out of memory"]
    assert [str(row) for row in rows[4:]] == ["--dtype bf16 --batch-size 16", "--dtype bf16 --batch-size 32"]
    text = report(rows, best, "")
    assert "Fastest with the same losses: --dtype bf16\n2.00 times as fast: --dtype bf16 --batch-size 16." in text
    assert text.splitlines()[1].startswith("--dtype fp16") and text.splitlines()[-3].startswith("--dtype bf16 --batch")


def test_a_script_that_fails_is_measured_once(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", lambda command, **_: Measured(why="no such file"))
    rows, best, _ = speed(["train.py"], TRIED, say=lambda text: None)
    assert len(rows) == 1 and report(rows, best, "").endswith("cannot be measured: no such file.")


@pytest.mark.parametrize(
    ("losses", "apart"), [((2.0, 1.0), 0.0), ((2.0, 1.1), 0.1), ((), None), ((2.0, math.nan), math.inf)]
)
def test_losses_are_compared(losses: tuple[float, ...], apart: float | None) -> None:
    assert difference(losses, PLAIN.losses) == pytest.approx(apart)


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt, 130), (module._OverError, 0)])
def test_what_was_measured_is_printed_when_it_is_ended_early(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, stop: type, code: int
) -> None:
    def measure(command: list[str], **_: object) -> Measured:
        if "fp16" in command:
            raise stop
        return trial(command)

    monkeypatch.setattr(module, "measure", measure)
    assert module.main(["--", "train.py"], TRIED, "--batch-size", 3.0, False) == code
    out, err = capsys.readouterr()
    assert "Ended by" in out and out.splitlines()[-1] == "Fastest with the same losses: --dtype bf16"
    assert "as it is" in err
    assert module.main(["--", "train.py"], TRIED, "--batch-size", 3.0, True) == code
    assert json.loads(capsys.readouterr().out)["options"] == "--dtype bf16"


def test_the_command_line_passes_the_options_of_the_script() -> None:
    given = cli.parse(["speed", "--batch-size", "64", "--minutes", "1.5", "--json", "--compile"])
    assert given.rest == ["--batch-size", "64", "--compile"] and (given.minutes, given.json) == (1.5, True)
    given = cli.parse(["speed", "--try=--amp", "--try", "--workers 8", "--", "python", "a.py", "--json"])
    assert given.rest == ["--", "python", "a.py", "--json"] and given.tried == ["--amp", "--workers 8"]


def test_only_options_that_a_script_has_are_tried(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--dtype')\nparser.parse_args()\n"
    )
    assert known([sys.executable, str(script)], TRIED) == ["--dtype bf16", "--dtype fp16"]
    assert known([sys.executable, "-c", "raise SystemExit(2)"], TRIED) == []


def test_a_real_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One of its options takes half of the time."""
    monkeypatch.setenv("PYTHONPATH", ":".join([str(ROOT), *sys.path]))
    monkeypatch.setattr(module, "SECONDS", 0.1)
    monkeypatch.setattr(module, "TIMES", ())
    monkeypatch.chdir(tmp_path)
    rows, best, _ = speed([sys.executable, "-m", "tests.train.probed"], ["--compile"], say=lambda text: None)
    assert [row.problem for row in rows] == ["", ""] and rows[0].found.batch == 32
    assert str(best) == "--compile" and [row.difference for row in rows] == [0, 0]
