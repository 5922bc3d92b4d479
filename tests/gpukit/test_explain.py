"""`explain`: input, machine, question, output, and exit code."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gpukit.cli import explain as command
from gpukit.cli.main import main
from gpukit.errors.machine import Card, Machine
from tests.conftest import ROOT

CERTAIN = "AssertionError: Torch not compiled with CUDA enabled"
LIKELY = "RuntimeError: No CUDA GPUs are available"
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
UNKNOWN = "Oops: error 17 of the moon"
HEALTHY = "step 1 loss 0.5 lr 0.1\nstep 2 loss 0.4 lr 0.1\ntraining finished\n"


@pytest.fixture(autouse=True)
def nothing_known_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "this_machine", lambda *_: Machine())
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def terminal(monkeypatch):
    """A terminal, on which these answers are typed."""

    def typed(*answers):
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        waiting = iter(answers)
        asked = []
        monkeypatch.setattr("builtins.input", lambda question: (asked.append(question), next(waiting))[1])
        return asked

    return typed


def piped(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False))


@pytest.mark.parametrize(("text", "code"), [(CERTAIN, 0), (LIKELY, 1), (UNKNOWN, 3), (HEALTHY, 4)])
@pytest.mark.parametrize("by", ["file", "pipe", "dash", "argument"])
def test_the_exit_code_is_the_confidence(text, code, by, tmp_path, monkeypatch, capsys):
    (tmp_path / "log").write_text(text, encoding="utf-8")
    piped(monkeypatch, text.encode())
    given = {"file": ["log"], "pipe": [], "dash": ["-"], "argument": [text]}[by]
    assert main(["explain", *given]) == code
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("data", [b"", b" \n", b"\x7fELF\0\0\0\0\0\0"])
def test_input_that_is_no_text(data, monkeypatch, capsys):
    piped(monkeypatch, data)
    assert main(["explain"]) == 2
    assert capsys.readouterr().err.startswith("gpukit: ")


def test_json(monkeypatch, capsys):
    piped(monkeypatch, LIKELY.encode())
    assert main(["explain", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["confidence"], document["exit_code"], document["tool"]) == ("likely", 1, "explain")
    assert "gpu-not-given" in [cause["id"] for cause in document["causes"]]
    piped(monkeypatch, UNKNOWN.encode())
    assert main(["explain", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["causes"] == [] and len(document["look_at"]) == 3


def causes(capsys, *arguments):
    main(["explain", "--json", *arguments])
    return [cause["id"] for cause in json.loads(capsys.readouterr().out)["causes"]]


def test_machine_from_a_file_or_this_one(tmp_path, monkeypatch, capsys):
    old = tmp_path / "machine.json"
    old.write_text('{"machine": {"gpus": [{"name": "NVIDIA GeForce GTX 1080"}]}}', encoding="utf-8")
    assert causes(capsys, NO_KERNEL, "--machine", str(old))[0] == "no-kernel-older-card"
    monkeypatch.setattr(command, "this_machine", lambda *_: Machine(gpus=(Card(capability="12.0"),)))
    assert causes(capsys, NO_KERNEL)[0] == "no-kernel-newer-card"
    assert causes(capsys, NO_KERNEL, "--machine", str(old))[0] == "no-kernel-older-card"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-container-cli: initialization error: WSL environment detected but no adapters were found",
        "NVIDIA GeForce RTX 4090: CUDA driver version is insufficient for CUDA runtime version",
    ],
)
def test_a_text_of_another_machine_says_nothing_of_this_one(text, monkeypatch, capsys):
    alone = causes(capsys, text)
    monkeypatch.setattr(command, "this_machine", lambda *_: Machine(system="linux", gpus=(), driver=""))
    assert causes(capsys, text) == alone


@pytest.mark.parametrize("content", ["{", "[]", '{"machine": 3}', None])
def test_a_machine_that_cannot_be_read(content, tmp_path, capsys):
    if content is not None:
        (tmp_path / "machine").write_text(content, encoding="utf-8")
    assert main(["explain", LIKELY, "--machine", "machine"]) == 2
    assert "machine" in capsys.readouterr().err


def test_one_question_if_its_answer_changes_the_causes(terminal, capsys):
    assert causes(capsys, LIKELY, "--in-container", "no")[0] != causes(capsys, LIKELY, "--in-container", "yes")[0]
    asked = terminal("n")
    assert main(["explain", LIKELY]) == 1
    assert len(asked) == 1
    asked = terminal()
    main(["explain", CERTAIN])
    main(["explain", LIKELY, "--in-container", "no", "--worked-before", "no"])
    assert asked == []


def test_only_secrets_are_hidden(monkeypatch, tmp_path, capsys):
    mig = "MIG-1a2b3c4d-1111-2222-3333-444455556666"
    secret = "hf_abcdefghijklmnopqrstuvwxyz012345"
    text = f"Unexpected token: unexpected {mig} in /data/x for {secret}: fatal error\n"
    piped(monkeypatch, text.encode())
    assert main(["explain", "--report", "report.md"]) == 3
    for shown in (capsys.readouterr().out, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert secret not in shown and "/data/x" in shown and "Unexpected token: unexpected" in shown
    piped(monkeypatch, text.encode())
    main(["explain"])
    assert mig in capsys.readouterr().out


def test_only_what_comes_from_the_text_is_masked(monkeypatch, capsys, tmp_path):
    """A name of a machine can be a part of a command in a remedy."""
    hide = SimpleNamespace(names=lambda text: text.replace("vm", "<host>"))
    monkeypatch.setattr(command, "mask", lambda *_: hide)
    (tmp_path / "machine").write_text('{"unified_memory": true}', encoding="utf-8")
    main(["explain", "vm: torch.OutOfMemoryError: CUDA out of memory", "--machine", "machine"])
    shown = capsys.readouterr().out
    assert "/proc/sys/vm/drop_caches" in shown and "<host>: torch.OutOfMemoryError" in shown


def test_what_is_stated_takes_precedence_over_the_text(tmp_path, capsys):
    """uv lists the platforms of all wheels: the text must not change the machine that was stated."""
    text = "unsatisfied condition: cuda>=12.8, on NVIDIA GeForce GTX 1080, Driver Version: 470.10  CUDA Version: 11.4"
    (tmp_path / "machine").write_text('{"driver": "551.78", "cuda": "12.4", "system": "windows"}', encoding="utf-8")
    main(["explain", text, "--machine", "machine"])
    shown = capsys.readouterr().out
    assert "551.78" in shown and "570.26 or newer" in shown and "470.10" not in shown.partition("because")[2]


def test_in_a_pipe_that_is_closed_and_without_a_home(tmp_path):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "gpukit/src"), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "gpukit", "explain"]
    done = subprocess.run(argv, input=LIKELY.encode(), env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 1 and done.stderr == b""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "machine").write_text("{}", encoding="utf-8")  # nothing is known, so that a question would help
    piped_in = [*argv, "--machine", "machine"]
    done = subprocess.run(
        piped_in, input=LIKELY.encode(), env=environment, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 1 and b"--in-container yes" in done.stdout and done.stderr == b""
    command = f"{sys.executable} -m gpukit explain gpu-not-given | head -n 1"
    done = subprocess.run(["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.stdout.count(b"\n") == 1 and done.stderr == b""


def test_a_text_pasted_into_a_terminal(tmp_path):
    """One Ctrl-D ends the text, and the question can still be answered."""
    (tmp_path / "machine").write_text("{}", encoding="utf-8")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "gpukit/src"), "TERM": "xterm"}
    argv = [sys.executable, "-m", "gpukit", "explain", "--machine", "machine"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path) as process:
        os.close(theirs)
        shown = ""
        for awaited, typed in (("Ctrl-D", f"{LIKELY}\n\x04"), ("[y/n", "n\n"), ("more ", "")):
            while awaited not in shown:
                assert select.select([ours], [], [], 60)[0], shown
                shown += os.read(ours, 4096).decode()
            os.write(ours, typed.encode())
            shown = "" if typed else shown
        assert process.wait(60) == 1
    os.close(ours)
