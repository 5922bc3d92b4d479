"""No secret, no user's name and no other machine's comes out of doctor, whatever the tools say."""

from __future__ import annotations

import io
import json
import re
from types import SimpleNamespace

import pytest

from gpukit.cli.main import main
from gpukit.doctor import main as doctor

SECRETS = {
    "HF_TOKEN": "hf_PlantedPlantedPlanted1234567",
    "WANDB_API_KEY": "1234567890abcdef1234567890abcdef12345678",
    "AWS_SECRET_ACCESS_KEY": "planted/Secret+Access/Key0123456789abcdef",
    "MY_PASSWORD": "correct-horse-battery",
}
TOOL = """#!/bin/sh
echo "$HF_TOKEN $WANDB_API_KEY $AWS_SECRET_ACCESS_KEY $MY_PASSWORD" >&2
echo "error during connect: https://ada:correct-horse-battery@lab.example.com/?token=$HF_TOKEN" >&2
echo "open $HOME/.docker/contexts/meta.json: ssh://ada@lab.example.com: no route" >&2
exit 1
"""


@pytest.fixture
def planted(monkeypatch, tmp_path):
    tools, home = tmp_path / "bin", tmp_path / "home/ada"
    tools.mkdir()
    home.mkdir(parents=True)
    for name in ("docker", "nvidia-smi", "nvidia-ctk", "systemctl"):
        (tools / name).write_text(TOOL, encoding="utf-8")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("DOCKER_HOST", "tcp://ada:correct-horse-battery@lab.example.com:2376")
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--quick"], ["--early"]])
def test_tool_output_is_shown_without_secrets(planted, capsys, stack_file, arguments):
    stack = [] if arguments == ["--early"] else ["--stack", str(stack_file())]
    doctor.main([*arguments, *stack])
    output = "".join(capsys.readouterr())
    assert output or arguments == ["--early"]
    assert [name for name, value in SECRETS.items() if value in output] == []


def test_engine_messages_hide_names(planted, host, make_stack):
    from gpukit.doctor.host import Result
    from gpukit.findings.checks import run

    for endpoint in ("ssh://ada@lab.example.com", "tcp://lab.example.com:2376", f"unix://{planted}/docker.sock"):
        words = f"error during connect: {endpoint}: dial lab.example.com: no route, see {planted}/.docker/x"
        for answer in (Result(1, "", words), Result(None, err="no answer in 6 s", timed_out=True)):
            findings = run(doctor.CHECKS, host(endpoint=endpoint, info=answer), make_stack())
            output = json.dumps([finding.__dict__ for finding in findings])
            assert "ada" not in output
            assert "lab.example.com" not in output or endpoint.startswith("unix")


def test_a_pasted_text_is_shown_without_names(planted, capsys, monkeypatch):
    text = f"OSError: [Errno 30] Read-only file system: '{planted}/x' for ada with {SECRETS['HF_TOKEN']}\n"
    stdin = SimpleNamespace(buffer=io.BytesIO(text.encode()), isatty=lambda: False)
    monkeypatch.setattr("sys.stdin", stdin)
    assert main(["explain", "-"]) in (0, 1)
    output = capsys.readouterr().out
    assert SECRETS["HF_TOKEN"] not in output
    assert not re.search(r"\bada\b", output)
