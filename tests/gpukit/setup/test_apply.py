"""Running the steps: the log, the proof, the way back. On the real machines of tests/engine it is tried whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpukit.project.messages import RefusalError
from gpukit.setup import apply
from gpukit.setup.steps import Step
from tests.conftest import ROOT, started, until
from tests.gpukit.setup.conftest import bare


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(apply, "CHECK_TIMEOUT", 0.0)
    return tmp_path / "state/gpu-template"


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages of this machine, to be changed."""
    here = {"bash", "curl"}
    monkeypatch.setattr(apply, "installed", lambda: set(here))
    return here


def step(file: Path, *commands: str, check: str = "", id: str = "one", **more) -> Step:
    """One that makes a file."""
    return Step(
        id,
        "A file",
        "why",
        lambda context: "nowhere",
        lambda context: not file.exists() or file.read_text() != "done\n",
        lambda context: [*commands, f"echo done > {file}"],
        lambda context: check or f"grep done {file}",
        writes=lambda context: [str(file)],
        **more,
    )


def log(state: Path) -> str:
    return "".join(file.read_text() for file in state.glob("setup-*.log"))


def test_a_step_is_done_proved_and_not_done_again(make_context, state, packages, tmp_path, capsys) -> None:
    context = make_context(**bare(root=True))
    made = step(tmp_path / "file")
    assert apply.apply(context, [made], lambda: context, yes=True) == 0
    assert "one: verified: done." in capsys.readouterr().err
    assert f"revert: rm -f {tmp_path}/file" in log(state)
    assert apply.apply(context, [made], lambda: context, yes=True) == 0
    assert "is already done" in capsys.readouterr().err
    assert len(json.loads((state / "setup.json").read_text())) == 1


def test_existing_files_are_restored(make_context, state, packages, tmp_path, monkeypatch) -> None:
    file = tmp_path / "daemon.json"
    file.write_text("mine\n")
    context = make_context(**bare(root=True))
    assert apply.apply(context, [step(file)], lambda: context, yes=True) == 0
    assert file.read_text() == "done\n"
    monkeypatch.setattr(apply.os, "geteuid", lambda: 0)
    assert apply.undo(yes=True, dry=True) == 0
    assert file.read_text() == "done\n"
    assert apply.undo(yes=True) == 0
    assert file.read_text() == "mine\n"
    assert json.loads((state / "setup.json").read_text()) == []
    assert apply.undo(yes=True) == 0


def test_failed_step_stops_and_resumes(make_context, state, packages, tmp_path, capsys) -> None:
    """The second attempt keeps what the first one found: what half of it brought is taken back as well."""
    file = tmp_path / "file"
    switch = tmp_path / "switch"
    context = make_context(**bare(root=True))
    steps = [step(file, f"test -e {switch}"), step(tmp_path / "other", id="two")]
    assert apply.apply(context, steps, lambda: context, yes=True) == 1
    output = capsys.readouterr().err
    assert f"one: `test -e {switch}` failed: exit status 1" in output
    assert "Not done: one" in output and not (tmp_path / "other").exists()
    packages |= {"half", "whole"}
    switch.touch()
    file.write_text("done\n")  # what looks done is done again where it did not end
    context = make_context(**bare(root=True), interrupted=apply.Journal().interrupted)
    assert context.interrupted == ("one",)
    assert apply.apply(context, steps, lambda: context, yes=True) == 0
    first, second = json.loads((state / "setup.json").read_text())
    assert (first["added"], second["added"]) == (["half", "whole"], [])
    assert apply.undo_commands(first, "sudo ")[0].endswith("apt-get purge -y half whole")


def test_step_that_cannot_be_undone(make_context, state, packages, tmp_path) -> None:
    context = make_context(**bare(root=True))
    assert apply.apply(context, [step(tmp_path / "file", undoable=False)], lambda: context, yes=True) == 0
    assert not (state / "setup.json").exists()


def test_successful_commands_are_still_checked(make_context, state, packages, tmp_path, capsys) -> None:
    context = make_context(**bare(root=True))
    assert (
        apply.apply(context, [step(tmp_path / "file", check="echo not there; false")], lambda: context, yes=True) == 1
    )
    assert "fails: not there" in capsys.readouterr().err


def test_blocked_step_does_not_stop_the_others(make_context, state, packages, tmp_path, capsys) -> None:
    context = make_context(**bare(root=True))
    steps = [
        step(tmp_path / "a", id="blocked", blocks=lambda context: "Take it away first."),
        step(tmp_path / "b", id="waiting", waits=lambda context: "Restart first."),
        step(tmp_path / "c", id="free"),
    ]
    assert apply.apply(context, steps, lambda: context, yes=True) == 1
    output = capsys.readouterr().err
    assert (
        "blocked: Take it away first." in output and "waiting: Restart first." in output and "free: verified" in output
    )
    assert [path.name for path in sorted(tmp_path.glob("?"))] == ["c"]


def test_it_waits_for_another_program_that_uses_apt(
    make_context, state, packages, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(apply, "RETRY_DELAY", 0.0)
    count = tmp_path / "count"
    busy = f"echo x >> {count}; test $(wc -l < {count}) -gt 2 || {{ echo 'E: Could not get lock /var/x'; exit 100; }}"
    context = make_context(**bare(root=True))
    assert apply.apply(context, [step(tmp_path / "file", busy)], lambda: context, yes=True) == 0
    assert capsys.readouterr().err.count("Another program uses apt") == 2


def test_unexpected_key_is_reported(make_context, state, packages, tmp_path, capsys) -> None:
    context = make_context(**bare(root=True))
    line = f'test "$(true --show-keys)" = {context.repositories["toolkit"].fingerprint}'
    assert apply.apply(context, [step(tmp_path / "file", line)], lambda: context, yes=True) == 1
    assert "The key at https://nvidia.github.io/libnvidia-container/gpgkey is not NVIDIA's" in capsys.readouterr().err


def test_no_question_without_a_terminal(make_context, state, packages, tmp_path, monkeypatch) -> None:
    context = make_context(**bare(root=True))
    monkeypatch.setattr(apply.sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(RefusalError, match="--apply --yes"):
        apply.apply(context, [step(tmp_path / "file")], lambda: context, yes=False)
    assert not (tmp_path / "file").exists()


def test_the_end_of_the_input_is_no(make_context, state, packages, tmp_path, monkeypatch) -> None:
    context = make_context(**bare(root=True))
    monkeypatch.setattr(apply.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(apply.sys.stdin, "readline", lambda: "", raising=False)
    with pytest.raises(RefusalError, match="Nothing was done"):
        apply.apply(context, [step(tmp_path / "file")], lambda: context, yes=False)
    assert not (tmp_path / "file").exists()


def test_neither_root_nor_sudo(make_context, state, packages, tmp_path) -> None:
    context = make_context(**bare(sudo=False))
    with pytest.raises(RefusalError, match="run this as root"):
        apply.apply(context, [step(tmp_path / "file")], lambda: context, yes=True)


def test_unreadable_undo_journal(state) -> None:
    state.mkdir(parents=True)
    (state / "setup.json").write_text("{")
    with pytest.raises(RefusalError, match="move it away"):
        apply.undo(yes=True)


SCRIPT = """\
import sys
sys.path[:0] = [{template!r}]
from gpukit.setup import apply
log = apply.Log()
try:
    log.run("trap '' INT TERM; echo begun; sleep 1; echo ended; touch {file}")
except BaseException as stop:
    log.note(type(stop).__name__)
    raise
"""


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "SystemExit")])
def test_running_command_is_waited_for_when_interrupted(state, tmp_path, number, name) -> None:
    """A package manager that receives a signal finishes first; nothing keeps running afterwards."""
    script = SCRIPT.format(template=str(ROOT / "gpukit/src"), file=tmp_path / "ended")
    if number == signal.SIGTERM:
        script = f"import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n{script}"
    environment = {**os.environ, "XDG_STATE_HOME": str(state.parent)}
    with started(sys.executable, "-c", script, env=environment, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: "\nbegun" in log(state))
        process.send_signal(number)
        assert process.wait(60) != 0
    assert (tmp_path / "ended").exists()
    assert name in log(state) and "exit status 0" in log(state)
